// page-submit: one of the repository's job documents, or that of an earlier job, edited or not, becomes a job.

import {ApiError, ConnectionError, getJson, jobPath, post, request} from "./api.js";
import {confirmAction} from "./dialogs.js";
import {announce, h, setHidden, setText} from "./dom.js";
import {helpAt, helpElements, parseReference} from "./document-help.js";
import {lineOfProblem, lineRange} from "./json-lines.js";
import {documentOf} from "./page-job.js";

// The same text sent again after a lost answer must not become a second job.
function drawKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function lineNumbers(text) {
  return text.split("\n").map((_, index) => index + 1).join("\n");
}

// `from`: the job whose document is edited, or undefined.
export function mount(main, {signal, from, onError, setTitle}) {
  let key = {text: null, value: null};
  let loaded = ""; // the document as it came
  let loadedName = "";
  let documents = new Map(); // by name: functions that fetch their text
  let reference = null; // of the members; null until it is there
  let markedLine = 0;
  setTitle("Submit");
  const choice = h("select", {id: "document-choice", onchange: () => load(choice.value)});
  const gutter = h("pre", {class: "gutter", "aria-hidden": "true"}, "1");
  const mark = h("div", {class: "mark", hidden: true, "aria-hidden": "true"});
  const editor = h("textarea", {id: "editor", spellcheck: "false", autocapitalize: "off", autocomplete: "off", wrap: "off",
    "aria-describedby": "problem", rows: "30"});
  const problemBox = h("div", {id: "problem", class: "problem", role: "alert"});
  const help = h("div", {id: "member-help", class: "member-help"});
  const button = h("button", {type: "submit", class: "primary"}, "Submit job");
  const form = h("form", {class: "submit", novalidate: true},
    h("div", {class: "strip"},
      h("div", {class: "page-tools"}, h("label", {for: "document-choice"}, "Start from "), choice,
        h("button", {type: "button", class: "quiet", onclick: () => load(choice.value)}, "Reload")),
      h("div", {class: "page-tools"}, h("span", {class: "hint"}, "Ctrl + Enter"), button)),
    h("div", {class: "submit-columns"},
      h("div", {class: "card editor-card"}, h("label", {for: "editor"}, "Job document (JSON)"),
        h("div", {class: "editor"}, gutter, h("div", {class: "editor-text"}, mark, editor))),
      h("aside", {class: "card", "aria-label": "What the coordinator says"}, h("h2", {}, "Coordinator"), problemBox,
        h("section", {"aria-label": "Help"}, h("h2", {}, "Help"), help, h("p", {}, h("a", {href: "/assets/document.md"}, "All members of a job document"))))));
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

  function showHelp() {
    if (reference !== null) {
      help.replaceChildren(...helpElements(helpAt(reference, editor.value, editor.selectionStart)));
    }
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
      loaded = await documents.get(name)();
      editor.value = loaded;
      loadedName = name;
      editor.setSelectionRange(0, 0);
      editor.scrollTop = 0;
      clearProblem();
      refresh();
      showHelp();
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
  for (const type of ["input", "keyup", "click", "focus"]) {
    editor.addEventListener(type, showHelp);
  }
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
  const textOf = async (path) => (await request(path, {signal})).text();
  async function begin() {
    const {documents: files} = await getJson("/assets/jobs.json", signal);
    documents = new Map(files.map(({name, path}) => [name, () => textOf(path)]));
    const first = from === undefined ? "synthetic-ceal.json" : `job ${from}`;
    if (from !== undefined) {
      documents = new Map([[first, async () => documentOf(await getJson(jobPath(from), signal))], ...documents]);
    }
    choice.append(...[...documents.keys()].map((name) => h("option", {value: name}, name)));
    choice.value = documents.has(first) ? first : files[0].name;
    await load(choice.value);
    reference = parseReference(await textOf("/assets/document.md"));
    showHelp();
  }
  begin().catch((error) => {
    if (!signal.aborted) {
      onError(error);
    }
  });
}
