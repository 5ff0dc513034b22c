// page-submit: one of the repository's job documents, edited or not, becomes a job.

import {ApiError, ConnectionError, post, request} from "./api.js";
import {confirmAction} from "./dialogs.js";
import {announce, h, setHidden, setText} from "./dom.js";
import {lineOfProblem, lineRange} from "./json-lines.js";

// The same text sent again after a lost answer must not become a second job.
function drawKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function lineNumbers(text) {
  return text.split("\n").map((_, index) => index + 1).join("\n");
}

export function mount(main, {signal, onError, setTitle}) {
  let key = {text: null, value: null};
  let loaded = ""; // the document as it came
  let loadedName = "";
  let paths = new Map(); // of the documents, by name
  let markedLine = 0;
  setTitle("Submit");
  const choice = h("select", {id: "document-choice", onchange: () => load(choice.value)});
  const gutter = h("pre", {class: "gutter", "aria-hidden": "true"}, "1");
  const mark = h("div", {class: "mark", hidden: true, "aria-hidden": "true"});
  const editor = h("textarea", {id: "editor", spellcheck: "false", autocapitalize: "off", autocomplete: "off", wrap: "off",
    "aria-describedby": "problem", rows: "30"});
  const problemBox = h("div", {id: "problem", class: "problem", role: "alert"});
  const button = h("button", {type: "submit", class: "primary"}, "Submit job");
  const form = h("form", {class: "submit", novalidate: true},
    h("div", {class: "strip"},
      h("div", {class: "page-tools"}, h("label", {for: "document-choice"}, "Start from "), choice,
        h("button", {type: "button", class: "quiet", onclick: () => load(choice.value)}, "Reload")),
      h("div", {class: "page-tools"}, h("span", {class: "hint"}, "Ctrl + Enter"), button)),
    h("div", {class: "submit-columns"},
      h("div", {class: "card editor-card"}, h("label", {for: "editor"}, "Job document (JSON)"),
        h("div", {class: "editor"}, gutter, h("div", {class: "editor-text"}, mark, editor))),
      h("aside", {class: "card", "aria-label": "What the coordinator says"}, h("h2", {}, "Coordinator"), problemBox)));
  main.append(h("div", {class: "page-head"}, h("h1", {}, "Submit a job")), form);
  setText(problemBox, "Nothing sent yet.");

  function placeMark() {
    setHidden(mark, markedLine === 0);
    const style = getComputedStyle(editor);
    const height = parseFloat(style.lineHeight);
    mark.style.height = `${height}px`;
    mark.style.transform = `translateY(${parseFloat(style.paddingTop) + (markedLine - 1) * height - editor.scrollTop}px)`;
    gutter.scrollTop = editor.scrollTop;
  }

  function refresh() {
    setText(gutter, lineNumbers(editor.value));
    placeMark();
  }

  function clearProblem() {
    markedLine = 0;
    editor.removeAttribute("aria-invalid");
    placeMark();
  }

  function showProblem(error) {
    const problem = error instanceof ApiError ? error.problem : {};
    markedLine = lineOfProblem(editor.value, problem);
    problemBox.replaceChildren(
      h("p", {class: "error"}, h("strong", {}, problem.title ?? "Not sent"), error instanceof ApiError ? ` (${error.status})` : ""),
      problem.field ? h("p", {}, "Field ", h("code", {class: "field"}, String(problem.field)), markedLine > 0 ? `, line ${markedLine}` : "") : "",
      h("p", {class: "detail"}, error.message));
    if (markedLine > 0) {
      editor.setAttribute("aria-invalid", "true");
      editor.focus();
      editor.setSelectionRange(...lineRange(editor.value, markedLine));
      const height = parseFloat(getComputedStyle(editor).lineHeight);
      editor.scrollTop = Math.max(0, (markedLine - 5) * height);
    }
    placeMark();
  }

  async function load(name) {
    if (editor.value !== loaded &&
        !(await confirmAction("Replace the edited document?", "What you have changed will be lost.", "Replace", true))) {
      choice.value = loadedName;
      return;
    }
    try {
      const response = await request(paths.get(name), {signal});
      loaded = await response.text();
      editor.value = loaded;
      loadedName = name;
      editor.scrollTop = 0;
      clearProblem();
      refresh();
    } catch (error) {
      if (!signal.aborted) {
        showProblem(error);
      }
    }
  }

  async function submit() {
    const text = editor.value;
    if (key.text !== text) {
      key = {text, value: drawKey()};
    }
    button.disabled = true;
    clearProblem();
    setText(problemBox, "Sending\u2026");
    try {
      const job = await post("/v1/jobs", text, {"Content-Type": "application/json", "Idempotency-Key": key.value}, signal);
      key = {text: null, value: null};
      announce(`Job ${job.id} was submitted`);
      location.hash = `#/job/${job.id}`;
    } catch (error) {
      if (signal.aborted) {
        return;
      }
      if (!(error instanceof ApiError || error instanceof ConnectionError)) {
        throw error;
      }
      showProblem(error);
    } finally {
      button.disabled = false;
    }
  }

  editor.addEventListener("input", () => {
    clearProblem();
    refresh();
  });
  editor.addEventListener("scroll", placeMark);
  editor.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      submit();
    }
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  request("/assets/jobs.json", {signal}).then((response) => response.json()).then(({documents}) => {
    paths = new Map(documents.map(({name, path}) => [name, path]));
    choice.append(...[...paths.keys()].map((name) => h("option", {value: name}, name)));
    choice.value = paths.has("synthetic-ceal.json") ? "synthetic-ceal.json" : documents[0].name;
    return load(choice.value);
  }).catch((error) => {
    if (!signal.aborted) {
      onError(error);
    }
  });
}
