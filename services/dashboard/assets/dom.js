// dom: makes elements. Text only ever becomes text nodes, so a job's name cannot be markup.

// h("a", {class: "x", href: "#/", onclick: f}, "text", element, ...)
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) {
      continue;
    }
    if (name.startsWith("on")) {
      element.addEventListener(name.slice(2), value);
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

// Does nothing if the text is the same, so that screen readers and the layout are not disturbed.
export function setText(element, text, title) {
  const wanted = String(text);
  if (element.textContent !== wanted) {
    element.textContent = wanted;
  }
  if (title !== undefined && element.title !== String(title)) {
    element.title = String(title);
  }
}

export function setAttribute(element, name, value) {
  if (element.getAttribute(name) !== String(value)) {
    element.setAttribute(name, String(value));
  }
}

export function setHidden(element, hidden) {
  if (element.hidden !== hidden) {
    element.hidden = hidden;
  }
}

// Gives `parent` one child per key, in the order of the keys. Existing elements are kept, and so is
// their focus.
export function syncChildren(parent, keys, make) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let at = parent.firstElementChild;
  for (const key of keys) {
    let child = known.get(String(key));
    known.delete(String(key));
    if (child === undefined) {
      child = make(key);
      child.dataset.key = String(key);
    }
    if (child === at) {
      at = at.nextElementSibling;
    } else {
      parent.insertBefore(child, at);
    }
  }
  for (const child of known.values()) {
    child.remove();
  }
}

// Announces a message to screen readers.
export function announce(text) {
  document.getElementById("announcer").textContent = text;
}
