// dialogs: questions to the user.

import {h} from "./dom.js";

// Shows a dialog made of `content`; resolves to the value passed to close(), or null if it was
// dismissed. `build(close)` returns the content.
function ask(title, build) {
  return new Promise((resolve) => {
    let result = null;
    const dialog = h("dialog", {"aria-labelledby": "dialog-title"});
    const close = (value) => {
      result = value;
      dialog.close();
    };
    dialog.append(h("h2", {id: "dialog-title"}, title), ...build(close));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(result);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

export function confirmAction(title, text, verb, isDangerous) {
  return ask(title, (close) => [
    h("p", {}, text),
    h("div", {class: "dialog-buttons"},
      h("button", {type: "button", autofocus: true, onclick: () => close(null)}, "Back"),
      h("button", {type: "button", class: isDangerous ? "danger" : "primary", "data-confirm": true,
        onclick: () => close(true)}, verb)),
  ]).then((answer) => answer === true);
}

export function askForToken(message) {
  return ask("Admin token", (close) => {
    const input = h("input", {type: "password", id: "token-input", autocomplete: "off", autofocus: true,
      required: true, spellcheck: "false"});
    const form = h("form", {novalidate: true},
      h("p", {}, "This coordinator asks for its admin token. It is kept in this tab only, until the tab is closed."),
      h("p", {class: "error", role: "alert", hidden: message === ""}, message),
      h("label", {for: "token-input"}, "Token"),
      input,
      h("div", {class: "dialog-buttons"},
        h("button", {type: "button", onclick: () => close(null)}, "Not now"),
        h("button", {type: "submit", class: "primary"}, "Use it")));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const token = input.value.trim();
      if (isHeaderText(token)) {
        close(token);
      } else {
        const error = form.querySelector(".error");
        error.textContent = token === "" ? "Enter the token." : "A token has only visible ASCII characters.";
        error.hidden = false;
        input.focus();
      }
    });
    return [form];
  });
}

// fetch() accepts no other header values.
const isHeaderText = (text) => /^[\x21-\x7e]+$/.test(text);
