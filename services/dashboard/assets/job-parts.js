// job-parts: parts of pages that show a job.

import {ApiError, ConnectionError, jobPath, post, request} from "./api.js";
import {confirmAction} from "./dialogs.js";
import {announce, h, setAttribute, setHidden, setText, syncChildren} from "./dom.js";
import {NOTHING, age, duration, integer, moment, plural, ranges, real, regret, short, size, tenths} from "./format.js";
import {explain, labelled, setExplanation, TERMS} from "./terms.js";

export function statusBadge() {
  return h("span", {class: "badge"}, NOTHING);
}

export function setStatus(badge, status) {
  setText(badge, status);
  setAttribute(badge, "data-status", status);
}

export function progressBar() {
  return h("progress", {max: "1", value: "0", "aria-label": "Progress"});
}

export function setProgress(bar, job) {
  setAttribute(bar, "max", job.horizon);
  setAttribute(bar, "value", job.time_step);
}

// How long ago the job was submitted.
export function jobAge(job) {
  return job.created_ms === null ? NOTHING : age(Date.now() - job.created_ms);
}

// "since 12 s"; "" for a job that makes progress or has ended.
const waitingAge = ({waiting}) => (waiting ? `since ${age(Date.now() - waiting.since_ms)}` : "");

// "since 12 s: waits for client 3 (w3): round 7 has 9 of 10 answers"; "" as above. The time comes
// first so that it remains visible if the text is cut off.
export const waitingText = (job) => (job.waiting ? `${waitingAge(job)}: ${job.waiting.text}` : "");

// A line that shows what the job waits for and since when; it is always present. Screen readers do
// not announce the seconds.
export function waitingLine() {
  const what = h("span", {"aria-live": "polite"});
  const time = h("span", {});
  const element = h("p", {class: "waiting"}, what, time);
  const update = (job) => {
    setText(what, job.waiting?.text ?? "\u00a0");
    setText(time, job.waiting ? `, ${waitingAge(job)}` : "");
    setAttribute(element, "data-for", job.waiting?.for ?? "");
  };
  return {element, update};
}

const ACTIONS = [
  {name: "pause", title: "Pause", of: ["queued", "running"], text: "The open round stays open; workers wait until the job is resumed."},
  {name: "resume", title: "Resume", of: ["paused"], text: "Workers go on where the job was paused."},
  {name: "cancel", title: "Cancel", of: ["queued", "running", "paused"], danger: true,
    text: "The job ends for good. Its rounds, its counters and its model stay."},
  {name: "delete", title: "Delete", of: ["completed", "failed", "cancelled"], danger: true,
    text: "Its rounds, its counters and its model are gone for good."},
];

// Buttons for the actions that the job allows. `onDone(job)` gets the new detail; deletion returns to the list.
export function actionButtons(getJob, onDone) {
  const error = h("p", {class: "error", role: "alert", hidden: true});
  const buttons = ACTIONS.map((action) => h("button", {type: "button", class: action.danger ? "danger" : null,
    "data-action": action.name, disabled: true, onclick: () => act(action)}, action.title));
  const box = h("div", {class: "actions"}, ...buttons);

  async function act(action) {
    const job = getJob();
    const asked = await confirmAction(`${action.title} this job?`, `${job.name} (${job.id}). ${action.text}`,
      `${action.title} job`, action.danger);
    if (!asked) {
      return;
    }
    setHidden(error, true);
    try {
      if (action.name === "delete") {
        await request(jobPath(job.id), {method: "DELETE"});
        location.hash = "#/";
      } else {
        onDone(await post(jobPath(job.id, `/${action.name}`), undefined, {}));
      }
      announce(`${action.title}: done`);
    } catch (problem) {
      if (!(problem instanceof ApiError || problem instanceof ConnectionError)) {
        throw problem;
      }
      setText(error, `${action.title}: ${problem.message}`);
      setHidden(error, false);
    }
  }

  function update() {
    ACTIONS.forEach((action, index) => {
      buttons[index].disabled = !action.of.includes(getJob().status);
    });
  }
  return {box, error, update};
}

// Pairs of a label and a value: tiles(["Regret", "Round"]) -> {element, set(index, text, title), setAlso(index, text: a second line),
// setLabel(index, text, title, term)}
export function tiles(labels) {
  const values = labels.map(() => h("dd", {}, NOTHING));
  const element = h("dl", {class: "tiles"}, labels.map((label, i) => h("div", {}, labelled("dt", {}, label), values[i])));
  const set = (index, text, title) => setText(values[index], text, title ?? text);
  const setAlso = (index, text) => {
    if (values[index].nextSibling === null) {
      values[index].after(h("dd", {class: "also"}));
    }
    setText(values[index].nextSibling, text);
  };
  const setLabel = (index, text, title, term) => {
    const label = element.children[index].firstChild;
    if (label.firstChild.data !== text) {
      label.firstChild.data = text;
    }
    setAttribute(label, "title", title);
    setExplanation(label.lastChild, text, TERMS[term]);
  };
  return {element, set, setAlso, setLabel};
}

// The last value of each metric: the mean, and the range if clients differ.
export function metricTiles() {
  const element = h("dl", {class: "metric-tiles", hidden: true});
  const update = (metrics) => {
    const entries = Object.entries(metrics ?? {});
    syncChildren(element, entries.map(([name]) => name), (name) => h("div", {}, labelled("dt", {}, name, "metric"), h("dd", {}, NOTHING)));
    entries.forEach(([, {mean, min, max}], i) => setText(element.children[i].lastChild, real(mean), min < max ? `${mean}, clients ${min} to ${max}` : `${mean}`));
    setHidden(element, entries.length === 0);
  };
  return {element, update};
}

// heads: [{text, num, term: the key of its explanation, unless that is the text}]. On a phone a row becomes a card, whose cells say
// what they are; the roles keep it a table for screen readers.
export function table(caption, heads, props = {}) {
  const body = h("tbody", {role: "rowgroup"});
  const element = h("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": caption, ...props},
    h("table", {role: "table"}, h("caption", {class: "unseen"}, caption),
      h("thead", {role: "rowgroup"}, h("tr", {role: "row"},
        heads.map((head) => labelled("th", {role: "columnheader", scope: "col", class: head.num ? "num" : ""}, head.text, head.term ?? head.text)))),
      body));
  const makeRow = () => h("tr", {role: "row"}, heads.map((head, i) => h(i === 0 ? "th" : "td", {role: i === 0 ? "rowheader" : "cell",
    scope: i === 0 ? "row" : null, class: head.num ? "num" : null, "data-label": head.text})));
  // rows: [{key, cells: [text or {text, title}]}]
  const set = (rows) => {
    syncChildren(body, rows.map(({key}) => key), makeRow);
    rows.forEach((row, index) => row.cells.forEach((cell, i) => {
      const target = body.children[index].children[i];
      setText(target, cell?.text ?? cell, cell?.title);
      if (cell?.term !== undefined && target.lastElementChild === null) {
        target.classList.add("term");
        target.append(explain(cell.text, cell.term));
      }
    }));
  };
  return {element, set};
}

// A table whose columns may change: set(heads, rows).
export function changingTable(caption) {
  const box = h("div", {});
  let shown = null;
  let view = null;
  const set = (heads, rows) => {
    const wanted = JSON.stringify(heads);
    if (wanted !== shown) {
      shown = wanted;
      view = table(caption, heads);
      box.replaceChildren(view.element);
    }
    view.set(rows);
  };
  return {element: box, set};
}

// The formula, payload and wire counters side by side.
export function bitsTable() {
  const view = table("Bits by formula, payload and wire", [{text: "Bits"}, {text: "Formula", num: true},
    {text: "Payload", num: true}, {text: "Wire", num: true}, {text: "Messages", num: true}, {text: "Clipped", num: true}, {text: "Size", num: true}]);
  const update = (job) => {
    const {uplink, downlink, uplink_per_client: each, wire_bytes: wire} = job.bits;
    const wireBits = (bytes) => ({text: integer(8 * bytes), title: `${integer(bytes)} bytes`});
    const name = (text) => ({text, term: text});
    const single = (text, bits) => ({key: text, cells: [name(text), "", integer(bits), "", "", "", size(bits)]});
    view.set([
      {key: "up", cells: [name("Up, all clients"), integer(uplink.formula), integer(uplink.payload), wireBits(wire.in), integer(uplink.messages), integer(uplink.clipped), size(uplink.payload)]},
      {key: "each", cells: [name("Up per client"), tenths(each.formula), tenths(each.payload), {text: tenths((8 * wire.in) / job.clients), title: ""}, tenths(uplink.messages / job.clients), "", size(each.payload)]},
      {key: "down", cells: [name("Down, broadcast"), integer(downlink.formula), integer(downlink.payload), "", integer(downlink.messages), integer(downlink.clipped), size(downlink.payload)]},
      {key: "delivered", cells: [name("Down, delivered"), "", integer(downlink.delivered_payload), wireBits(wire.out), "", "", size(downlink.delivered_payload)]},
      single("Recovery", job.bits.recovery), single("Control", job.bits.control), single("Telemetry", job.bits.telemetry),
    ]);
  };
  return {element: view.element, update};
}

const describe = (object, leaveOut = []) => Object.entries(object ?? {})
  .filter(([key]) => !leaveOut.includes(key))
  .map(([key, value]) => (value !== null && typeof value === "object" ? describe(value) : `${key} ${value}`)).join(", ");

// The values that the opening round found for parameters that are "auto".
const estimates = (found) => (found === null ? NOTHING
  : Object.entries(found).filter(([, value]) => value !== null).map(([key, value]) => `${key} ${real(value)}`).join(", "));

const stopText = (stop) => (stop === null ? NOTHING : `${stop.rule}: ${real(stop.value)} in round ${integer(stop.round)}`);

export function facts() {
  const names = ["Algorithm", "Parameters", "Estimates", "Smoothness", "Strong convexity", "Warnings", "Objective", "Clients", "Minibatch", "Encoding", "Seed", "Initial point", "Domain",
    "f(x*)", "x checksum", "Created", "Started", "Ended", "Stopped by", "Took"];
  const values = names.map(() => h("dd", {}, NOTHING));
  const element = h("dl", {class: "facts"}, names.map((name, i) => [labelled("dt", {}, name), values[i]]));
  const update = (job) => {
    const end = job.finished_ms ?? (job.status === "running" || job.status === "paused" ? Date.now() : null);
    const texts = [
      job.algorithm.type, describe(job.algorithm, ["type"]), estimates(job.estimates),
      real(job.smoothness), real(job.strong_convexity), job.warnings.length > 0 ? job.warnings.join("; ") : "none",
      `${job.objective.type}: ${describe(job.objective, ["type"])}`,
      integer(job.clients), integer(job.minibatch), job.encoding ?? NOTHING, String(job.seed), describe(job.initial_point), describe(job.domain),
      job.reference.type === "none" ? "unknown" : real(job.f_star), job.x_checksum, moment(job.created_ms), moment(job.started_ms), moment(job.finished_ms), stopText(job.stopped_by ?? null),
      job.started_ms !== null && end !== null ? duration(Math.max(0, end - job.started_ms)) : NOTHING,
    ];
    setAttribute(values[names.indexOf("Warnings")], "class", job.warnings.length > 0 ? "warning" : "");
    texts.forEach((text, i) => setText(values[i], text, names[i] === "f(x*)" ? job.f_star ?? "" : undefined));
  };
  return {element, update};
}

// The workers of the job's clients: one row per worker, and one for clients without a worker.
export function clientsTable() {
  const view = table("Clients and their workers", [{text: "Worker"}, {text: "Clients"},
    {text: "State"}, {text: "Last contact", num: true}], {class: "scroll clients"});
  const note = h("p", {class: "summary"}, "\u00a0");
  const update = (job, answer) => {
    const taken = new Set();
    const rows = [];
    answer.workers.forEach((worker, index) => {
      const clients = worker.assignments.filter((each) => each.job === job.id).map((each) => each.client);
      if (clients.length > 0) {
        clients.forEach((client) => taken.add(client));
        rows.push({key: `${index} ${worker.name}`, cells: [{text: worker.name, title: worker.name}, ranges(clients), worker.silent ? "silent" : worker.state,
          `${age(worker.last_contact_age_ms)} ago`]});
      }
    });
    const vacant = [];
    for (let client = 0; client < job.clients; client++) {
      if (!taken.has(client)) {
        vacant.push(client);
      }
    }
    const isLive = ["queued", "running", "paused"].includes(job.status);
    if (isLive && vacant.length > 0 && answer.next_cursor === null) {
      rows.push({key: "vacant", cells: [NOTHING, ranges(vacant), "vacant", NOTHING]});
    }
    view.set(rows);
    setHidden(view.element, !isLive);
    const among = answer.next_cursor === null ? "" : ` by the ${integer(answer.workers.length)} newest of ${integer(answer.workers_total)} workers`;
    setText(note, isLive
      ? `${integer(taken.size)} of ${integer(job.clients)} clients have a worker${among}; ${integer(answer.slots_free)} slots are free.`
      : `The job is ${job.status}: no worker serves its clients.`);
  };
  return {element: h("div", {}, note, view.element), update};
}

const flag = (value) => (value ? "yes" : "no");

// The last rounds, newest first. `has` says whether iterates ("epochs") and the norm test ("stages") apply to the job.
export function roundsTable() {
  const view = table("Latest rounds", [{text: "Round", num: true}, {text: "t", num: true}, {text: "Iterate", num: true}, {text: "Stage", num: true},
    {text: "Samples", num: true}, {text: "Regret", num: true}, {text: "Norm", num: true}, {text: "Loss", num: true}, {text: "Passed"}],
    {class: "scroll rounds"});
  const exact = (value) => ({text: short(value), title: value ?? ""});
  const update = (points, has) => {
    setAttribute(view.element, "data-has", Object.keys(has).filter((key) => has[key]).join(" "));
    view.set([...points].reverse().map((p) => ({key: p.round, cells: [integer(p.round), integer(p.timeStep),
    integer(p.iterate), integer(p.stage), integer(p.samples), {text: regret(p.regret), title: p.regret ?? ""}, exact(p.norm), exact(p.loss), flag(p.passed)]})));
  };
  return {element: view.element, update};
}
