// page-submit: submits one of the repository's job documents or that of an earlier job, edited if needed.

import {ApiError, ConnectionError, getJson, jobPath, post, request} from "./api.js";
import {confirmAction} from "./dialogs.js";
import {announce, h, setHidden, setText} from "./dom.js";
import {integer, regret as regretText, tenths} from "./format.js";
import {helpAt, helpElements, parseReference} from "./document-help.js";
import {lineOfProblem, lineRange} from "./json-lines.js";
import {documentText} from "./job-document.js";
import {pathsOf, variantsOf} from "./variants.js";

// Documents that were edited and not submitted, so that leaving the page does not lose them: {text, loaded, name} by the job whose
// document it is. Closing the tab would, so the browser asks.
const drafts = new Map();
window.addEventListener("beforeunload", (event) => {
  if (drafts.size > 0) {
    event.preventDefault();
  }
});

// If the same text is sent again after a lost response, it must not create a second job.
let key = {text: null, value: null};
let sweepKey = {text: null, value: null}; // of the variants, which a second attempt completes
function drawKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function lineNumbers(text) {
  return text.split("\n").map((_, index) => index + 1).join("\n");
}

// `from`: the job whose document is edited, or undefined.
export function mount(main, {signal, from, onError, setTitle}) {
  let loaded = ""; // the document as it was loaded
  let loadedName = "";
  let loads = 0; // loads begun so far
  let documents = new Map(); // from names to functions that fetch the text
  let reference = null; // of the members; null until it has been loaded
  let markedLine = 0;
  setTitle("Submit");
  const choice = h("select", {id: "document-choice", onchange: () => load(choice.value)});
  const gutter = h("pre", {class: "gutter", "aria-hidden": "true"}, "1");
  const mark = h("div", {class: "mark", hidden: true, "aria-hidden": "true"});
  const editor = h("textarea", {id: "editor", spellcheck: "false", autocapitalize: "off", autocomplete: "off", wrap: "off",
    "aria-describedby": "problem", rows: "30"});
  const problemBox = h("div", {id: "problem", class: "problem", role: "alert"});
  const help = h("div", {id: "member-help", class: "member-help"});
  const buttons = [h("button", {type: "button", onclick: () => check()}, "Check"), h("button", {type: "submit", class: "primary"}, "Submit job")];
  const paths = h("datalist", {id: "vary-paths"});
  const vary = {
    path: h("input", {id: "vary-path", type: "text", list: "vary-paths", placeholder: "algorithm.step_size", autocomplete: "off", spellcheck: "false"}),
    values: h("input", {id: "vary-values", type: "text", placeholder: "0.01, 0.02, 0.05", autocomplete: "off", spellcheck: "false"}),
    seeds: h("input", {id: "vary-seeds", type: "text", placeholder: "101-110", autocomplete: "off", size: "10"}),
  };
  const submitVariants = h("button", {type: "button", id: "vary-submit", onclick: () => submitAll()}, "Submit all variants");
  buttons.push(submitVariants);
  const varying = h("details", {class: "card vary"}, h("summary", {}, "Vary a member"),
    h("p", {class: "hint"}, "Submits a job for each value and each seed, with a label in common; their page compares them. For grids of several members: tally sweep."),
    h("div", {class: "page-tools"}, [["path", "Member"], ["values", "Values"], ["seeds", "Seeds"]].map(([name, text]) =>
      [h("label", {for: `vary-${name}`}, text), vary[name]]), submitVariants), paths);
  varying.addEventListener("toggle", () => offerPaths());
  varying.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.target instanceof HTMLInputElement) {
      event.preventDefault(); // the form's own button submits the document as it is
      if (!submitVariants.disabled) {
        submitAll();
      }
    }
  });
  const form = h("form", {class: "submit", novalidate: true},
    h("div", {class: "strip"},
      h("div", {class: "page-tools"}, h("label", {for: "document-choice"}, "Start from "), choice,
        h("button", {type: "button", class: "quiet", onclick: () => load(choice.value)}, "Reload")),
      h("div", {class: "page-tools"}, h("span", {class: "hint"}, "Ctrl + Enter"), buttons)),
    h("div", {class: "submit-columns"},
      h("div", {class: "card editor-card"}, h("label", {for: "editor"}, "Job document (JSON)"),
        h("div", {class: "editor"}, gutter, h("div", {class: "editor-text"}, mark, editor))),
      h("aside", {class: "card", "aria-label": "What the coordinator says"}, h("h2", {}, "Coordinator"), problemBox,
        h("section", {"aria-label": "Help"}, h("h2", {}, "Help"), help, h("p", {}, h("a", {href: "assets/document.md", target: "_blank"}, "All members of a job document"))))),
    varying);
  main.append(h("div", {class: "page-head"}, h("h1", {}, "Submit a job")), form);
  setText(problemBox, "Nothing sent yet.");
  const draft = drafts.get(from);
  if (draft !== undefined) {
    editor.value = draft.text;
    ({loaded, name: loadedName} = draft);
    refresh();
    setText(problemBox, "Nothing sent yet. This is the document as you left it; Reload brings the original back.");
  }

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
      const chosen = editor.value.slice(editor.selectionStart, editor.selectionEnd);
      const inside = chosen === "" ? 0 : chosen.length - chosen.trimStart().length + 1; // the first member in the selection
      help.replaceChildren(...helpElements(helpAt(reference, editor.value, editor.selectionStart + inside)));
    }
  }

  function clearProblem() {
    markedLine = 0;
    editor.removeAttribute("aria-invalid");
    placeMark();
  }

  // Shows all errors of a document with their lines; a click moves the cursor there.
  function errorList(errors) {
    return h("ul", {class: "errors"}, errors.map((each) => {
      const line = lineOfProblem(editor.value, each);
      return h("li", {}, line === 0 ? null : h("button", {type: "button", class: "quiet", onclick: () => goTo(line)}, `Line ${line}`),
        h("span", {}, ` ${each.detail}`));
    }));
  }

  function goTo(line) {
    editor.focus();
    editor.setSelectionRange(...lineRange(editor.value, line));
    const height = parseFloat(getComputedStyle(editor).lineHeight);
    editor.scrollTop = Math.max(0, (line - 5) * height);
    showHelp();
  }

  function showPreview({warnings, expected_bits: expected, planned, suggested_step_size: suggested, memory_bytes: memory, not_checked: open}) {
    const bits = (value) => (value === null ? "no limit" : `${expected.is_exact ? "" : "at most "}${integer(value)}`);
    problemBox.replaceChildren(
      h("p", {}, h("strong", {}, "The document is valid"), ". Nothing was submitted."),
      h("dl", {class: "facts"},
        h("dt", {}, "Bits up per client"), h("dd", {}, expected === null ? "depend on the run" : bits(expected.uplink_per_client)),
        h("dt", {}, "Bits down"), h("dd", {}, expected === null ? "depend on the run" : bits(expected.downlink)),
        planned === null ? null : [
          h("dt", {}, "Planned regret"), h("dd", {id: "planned"}, `${regretText(planned.regret)} for ${tenths(planned.uplink_bits)} bits up per client and ${tenths(planned.downlink_bits)} down`),
          h("dt", {}, "Planned epochs"), h("dd", {}, planned.epochs.map((epoch) => integer(epoch.samples)).join(", "), " queries per client")],
        suggested === null ? null : [h("dt", {}, "Suggested step size"), h("dd", {id: "suggested"}, String(suggested))],
        h("dt", {}, "Memory"), h("dd", {}, `${integer(Math.ceil(memory / 1024))} KiB`),
        h("dt", {}, "Warnings"), h("dd", {class: warnings.length > 0 ? "warning" : null}, warnings.join("; ") || "none"),
        h("dt", {}, "Not checked"), h("dd", {}, open.join("; ") || "nothing is left")));
  }

  function showProblem(error) {
    const problem = error instanceof ApiError ? error.problem : {};
    markedLine = lineOfProblem(editor.value, problem);
    problemBox.replaceChildren(
      h("p", {class: "error"}, h("strong", {}, problem.title ?? "Not sent"), error instanceof ApiError ? ` (${error.status})` : ""),
      problem.field ? h("p", {}, "Field ", h("code", {class: "field"}, String(problem.field)), markedLine > 0 ? `, line ${markedLine}` : "") : "",
      h("p", {class: "detail"}, error.message),
      (problem.errors ?? []).length > 1 ? errorList(problem.errors) : "");
    if (markedLine > 0) {
      editor.setAttribute("aria-invalid", "true");
      goTo(markedLine);
    }
    placeMark();
  }

  async function load(name) {
    if (editor.value !== loaded &&
        !(await confirmAction("Replace the edited document?", "What you have changed will be lost.", "Replace", true))) {
      choice.value = loadedName;
      return;
    }
    const turn = ++loads;
    const before = editor.value;
    try {
      const text = await documents.get(name)();
      if (turn !== loads) { // another document has been chosen meanwhile
        return;
      }
      if (editor.value !== before) { // the user has typed meanwhile
        choice.value = loadedName;
        return;
      }
      editor.value = loaded = text;
      loadedName = name;
      drafts.delete(from);
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

  // Sends the text, shows its errors, and returns the response, or undefined if there is none.
  async function send(path, headers, text) {
    buttons.forEach((button) => { button.disabled = true; });
    clearProblem();
    setText(problemBox, "Sending\u2026");
    try {
      return await post(path, text, {"Content-Type": "application/json", ...headers}, signal);
    } catch (error) {
      if (signal.aborted) {
        return undefined;
      }
      if (!(error instanceof ApiError || error instanceof ConnectionError)) {
        throw error;
      }
      showProblem(error);
      return undefined;
    } finally {
      buttons.forEach((button) => { button.disabled = false; });
    }
  }

  async function check() {
    const preview = await send("v1/jobs?dry_run=1", {}, editor.value);
    if (preview !== undefined) {
      showPreview(preview);
    }
  }

  function offerPaths() {
    paths.replaceChildren(...pathsOf(editor.value).map((value) => h("option", {value})));
  }

  // Checks all variants before it submits the first.
  async function submitAll() {
    const asked = {path: vary.path.value.trim(), values: vary.values.value, seeds: vary.seeds.value};
    const text = JSON.stringify([editor.value, asked]);
    if (sweepKey.text !== text) {
      sweepKey = {text, value: drawKey().slice(0, 16)};
    }
    const sweep = sweepKey.value;
    let variants;
    try {
      variants = variantsOf(editor.value, asked, sweep);
    } catch (error) {
      clearProblem();
      problemBox.replaceChildren(h("p", {class: "error"}, h("strong", {}, "Not sent")), h("p", {class: "detail"}, error.message));
      return;
    }
    for (const [path, word] of [["v1/jobs?dry_run=1", "checked"], ["v1/jobs", "submitted"]]) {
      for (const [index, {document, name}] of variants.entries()) {
        const answer = await send(path, {"Idempotency-Key": `${sweep}-${index}`}, JSON.stringify(document));
        if (answer === undefined) {
          const remedy = word === "submitted" ? " A second attempt submits the others." : "";
          problemBox.prepend(h("p", {}, `${integer(index)} of ${integer(variants.length)} variants were ${word}.${remedy} The next one, ${name}, was not:`));
          return;
        }
        setText(problemBox, `${integer(index + 1)} of ${integer(variants.length)} variants ${word}\u2026`);
      }
    }
    sweepKey = {text: null, value: null};
    drafts.delete(from);
    announce(`${integer(variants.length)} jobs were submitted`);
    location.hash = `#/sweep/${encodeURIComponent(`sweep=${sweep}`)}`;
  }

  async function submit() {
    const text = editor.value;
    if (key.text !== text) {
      key = {text, value: drawKey()};
    }
    const job = await send("v1/jobs", {"Idempotency-Key": key.value}, text);
    if (job !== undefined) {
      key = {text: null, value: null};
      drafts.delete(from);
      announce(`Job ${job.id} was submitted`);
      location.hash = `#/job/${job.id}`;
    }
  }

  editor.addEventListener("input", () => {
    if (editor.value === loaded) {
      drafts.delete(from);
    } else {
      drafts.set(from, {text: editor.value, loaded, name: loadedName});
    }
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
    const {documents: files} = await getJson("assets/jobs.json", signal);
    documents = new Map(files.map(({name, path}) => [name, () => textOf(path.slice(1))]));
    const first = from === undefined ? "synthetic-ceal.json" : `job ${from}`;
    if (from !== undefined) {
      documents = new Map([[first, async () => documentText(await getJson(jobPath(from), signal))], ...documents]);
    }
    choice.append(...[...documents.keys()].map((name) => h("option", {value: name}, name)));
    choice.value = [draft?.name, first, files[0].name].find((name) => documents.has(name));
    if (draft === undefined) {
      await load(choice.value);
    }
    reference = parseReference(await textOf("assets/document.md"));
    showHelp();
  }
  begin().catch((error) => {
    if (!signal.aborted) {
      onError(error);
    }
  });
}
