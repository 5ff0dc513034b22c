// page-list: all jobs in pages, newest first or sorted by a column.

import {cursorsIn, cursorsTo} from "./address.js";
import {getJson, repeat} from "./api.js";
import {h, setAttribute, setHidden, setText, syncChildren} from "./dom.js";
import {integer, plural, quality, real, size, tenths} from "./format.js";
import {jobAge, progressBar, setProgress, setStatus, statusBadge, waitingText} from "./job-parts.js";
import {metricOf} from "./series.js";
import {sign} from "./terms.js";

const PAGE = 25;
const POLL_MS = 2000;
const STATUSES = ["queued", "running", "paused", "completed", "failed", "cancelled"];
// Per column: its text, text for screen readers, and the order that a click on the header selects, the more
// useful direction first.
const HEADS = [["", "Compare"], ["Job", "", "name"], ["Status", "", "status"], ["Progress", "", "-progress"], ["Regret", "", "regret"],
  ["Bits up per client", "", "uplink_bits_per_client"], ["Bits down", "", "downlink_bits"], ["Age", "", "-created"], ["Metric", "", ""]];
const METRIC = HEADS.length - 1; // the column of the chosen metric: its name and its order are known only then
const METRIC_NAME = /^[a-z][a-z0-9_]{0,31}$/;
const NEWEST = "-created";
const opposite = (order) => (order.startsWith("-") ? order.slice(1) : `-${order}`);
const ORDERS = HEADS.flatMap(([, , order]) => (order ? [order, opposite(order)] : []));
const metricOrder = (name) => `-metric:${name}`; // most metrics are the better the greater they are
const oneOf = (known, value) => known.find((each) => each === value);
const NUMBERS = [4, 5, 6, 7, METRIC];
const LABEL = "[A-Za-z0-9][A-Za-z0-9._\\/\\-]{0,62}(=.{0,63})?"; // as in api/openapi.yaml; for the pattern of an input
const MAX_LABELS = 16;

const chosen = new Set(); // jobs to compare; kept when the page changes, so that they can come from several

// Converts {team: "a"} to ["team=a"].
const labelsOf = (job) => Object.entries(job.labels ?? {}).map(([key, value]) => `${key}=${value}`);

// Jobs of a sweep, which stand together in most orders, are one line: [{id, jobs, label: of a sweep with several jobs here}]. Not if
// the list is of that sweep alone.
function linesOf(jobs, labels) {
  const lines = new Map();
  for (const job of jobs) {
    const label = `sweep=${job.labels?.sweep}`;
    const isOne = job.labels?.sweep === undefined || labels.includes(label);
    const id = isOne ? job.id : label;
    lines.set(id, {id, label, jobs: [...(lines.get(id)?.jobs ?? []), job]});
  }
  return [...lines.values()].map((line) => (line.jobs.length > 1 ? line : {id: line.jobs[0].id, jobs: line.jobs}));
}

// A button for a label; `onclick` adds or removes the filter.
const chip = (text, action, onclick) => h("button", {type: "button", class: "chip", "aria-label": `${action} ${text}`, title: `${action} ${text}`, onclick}, text);

function makeRow(id, idsOf, onChosen) {
  const box = h("input", {type: "checkbox", "aria-label": `Compare ${id}`, onchange: (event) => {
    idsOf(id).forEach((each) => (event.target.checked ? chosen.add(each) : chosen.delete(each)));
    onChosen();
  }});
  const cells = HEADS.map((head, i) => h("td", {role: "cell", class: NUMBERS.includes(i) ? "num" : null, "data-label": head[0]}));
  cells[0].append(h("label", {class: "pick"}, box));
  cells[1].append(h("a", {class: "name", href: ""}), h("code", {}, id), h("span", {class: "chips"}));
  cells[2].append(statusBadge(), h("span", {class: "waits"}));
  cells[3].append(progressBar(), h("span", {class: "steps"}));
  [cells[5], cells[6]].forEach((cell) => cell.append(h("span", {}), h("span", {class: "also"})));
  return h("tr", {role: "row"}, cells);
}

function fillRow(row, job, metric, onLabel) {
  const [pick, name, status, progress, regret, up, down, age, number] = row.children;
  pick.querySelector("input").checked = chosen.has(job.id);
  setAttribute(name.firstChild, "href", `#/job/${encodeURIComponent(job.id)}`);
  setText(name.firstChild, job.name || job.id, job.name);
  syncChildren(name.lastChild, labelsOf(job), (text) => chip(text, "Only jobs with", () => onLabel(text)));
  setStatus(status.firstChild, job.status);
  setAttribute(status, "title", job.reason ?? "");
  setText(status.lastChild, waitingText(job), waitingText(job));
  setProgress(progress.firstChild, job);
  setText(progress.lastChild, `${integer(job.time_step)} / ${integer(job.horizon)}`);
  setText(regret, quality(job).text, quality(job).title);
  const {uplink_per_client: each, downlink} = job.bits;
  setText(up.firstChild, tenths(each.payload), `payload ${each.payload}, formula ${each.formula}`);
  setText(up.lastChild, size(each.payload));
  setText(down.firstChild, integer(downlink.payload), `payload ${downlink.payload}, formula ${downlink.formula}`);
  setText(down.lastChild, size(downlink.payload));
  setText(age, jobAge(job));
  const value = metricOf(job.metrics, metric);
  setText(number, real(value?.mean), value === undefined ? "" : `mean ${value.mean}, clients ${value.min} to ${value.max}`);
  setAttribute(number, "data-label", metric);
  setHidden(number, metric === "");
}

// The line of several jobs: their number, and the one with the least regret or loss.
function fillSweep(row, {jobs, label}, metric) {
  const [pick, name, status, progress, regret, up, down, age, number] = row.children;
  const isRegret = jobs.every((job) => job.cumulative_regret !== null);
  const valueOf = (job) => (isRegret ? job.cumulative_regret : job.loss);
  const best = jobs.filter((job) => Number.isFinite(valueOf(job))).sort((a, b) => valueOf(a) - valueOf(b))[0];
  const sum = (of) => jobs.reduce((total, job) => total + of(job), 0);
  pick.querySelector("input").checked = jobs.every(({id}) => chosen.has(id));
  setAttribute(name.firstChild, "href", `#/sweep/${encodeURIComponent(label)}`);
  setText(name.firstChild, `Sweep of ${plural(jobs.length, "job")}`, "Those of this page; the sweep may have more");
  setText(name.children[1], label);
  const statuses = STATUSES.map((each) => [each, jobs.filter((job) => job.status === each).length]).filter(([, n]) => n > 0);
  setStatus(status.firstChild, statuses.length === 1 ? statuses[0][0] : statuses.some(([each]) => each === "running") ? "running" : statuses[0][0]);
  setText(status.lastChild, statuses.length === 1 ? "" : statuses.map(([each, n]) => `${n} ${each}`).join(", "));
  setAttribute(status, "title", "");
  setProgress(progress.firstChild, {time_step: sum((job) => job.time_step), horizon: sum((job) => job.horizon)});
  setText(progress.lastChild, `${integer(sum((job) => job.time_step))} / ${integer(sum((job) => job.horizon))}`);
  setText(regret, best === undefined ? "" : `best ${isRegret ? real(valueOf(best)) : `loss ${real(valueOf(best))}`}`, best === undefined ? "" : `${best.name} (${best.id})`);
  [up, down].forEach((cell) => [...cell.children].forEach((each) => setText(each, "", "")));
  setText(age, jobAge(jobs[0]));
  setText(number, "", "");
  setHidden(number, metric === "");
}

export function mount(main, {signal, query: address, remember, onError}) {
  let cursors = cursorsIn(address); // of the pages up to the current one
  let status = oneOf(STATUSES, address.get("status")) ?? "";
  let metric = METRIC_NAME.test(address.get("metric") ?? "") ? address.get("metric") : ""; // of the last column
  let sort = oneOf([...ORDERS, ...(metric === "" ? [] : [metricOrder(metric), opposite(metricOrder(metric))])], address.get("sort")) ?? NEWEST;
  let labels = [...new Set(address.getAll("label"))].slice(0, MAX_LABELS); // filters of the shown jobs: "key=value" or "key"
  let jobs = [];
  let next = null;
  let isLoaded = false;
  let turn = new AbortController(); // aborts the requests of the current page

  const body = h("tbody", {role: "rowgroup"});
  const empty = h("p", {class: "empty", hidden: true});
  const all = h("input", {type: "checkbox", "aria-label": "Compare all jobs of this page", onchange: (event) => {
    jobs.forEach(({id}) => (event.target.checked ? chosen.add(id) : chosen.delete(id)));
    show();
  }});
  const compare = h("a", {class: "button", role: "link"}, "Compare");
  const clear = h("button", {type: "button", class: "quiet", onclick: () => { chosen.clear(); show(); }}, "Clear");
  const filter = h("select", {id: "status-filter", onchange: (event) => { status = event.target.value; go([null]); }},
    h("option", {value: ""}, "all"), STATUSES.map((name) => h("option", {value: name}, name)));
  const column = h("select", {id: "metric-column", onchange: (event) => chooseMetric(event.target.value)});
  const byMetric = h("span", {class: "page-tools", hidden: true}, h("label", {for: "metric-column"}, "Metric "), sign("Metric", "metric"), column);
  const labelled = h("span", {class: "chips", role: "group", "aria-label": "Only jobs with"});
  const label = h("input", {id: "label-filter", type: "text", placeholder: "key=value", size: "14", maxlength: "127", pattern: LABEL, autocomplete: "off"});
  const byLabel = h("form", {class: "page-tools", onsubmit: (event) => { event.preventDefault(); addLabel(label.value); label.value = ""; }},
    h("label", {for: "label-filter"}, "Label "), label);
  const heads = HEADS.map(([text, unseen, order], i) => h("th", {role: "columnheader", scope: "col", class: NUMBERS.includes(i) ? "num" : null},
    order === undefined ? h("label", {class: "pick"}, h("span", {class: "unseen"}, unseen), all)
      : [h("button", {type: "button", class: "head", onclick: () => sortBy(i === METRIC ? metricOrder(metric) : order)}, text), sign(text, i === METRIC ? "metric" : text)]));
  const newer = h("button", {type: "button", disabled: true, onclick: () => go(cursors.slice(0, -1))}, "Newer");
  const older = h("button", {type: "button", disabled: true, onclick: () => go([...cursors, next])}, "Older");
  const place = h("span", {class: "place", "aria-live": "polite"}, "\u00a0");
  main.append(
    h("div", {class: "page-head"}, h("h1", {}, "Jobs"),
      h("div", {class: "page-tools"},
        h("label", {for: "status-filter"}, "Status "), filter, byLabel, labelled, byMetric, compare, clear,
        h("a", {class: "button primary", href: "#/submit"}, "Submit a job"))),
    h("div", {class: "card list"},
      h("table", {role: "table", class: "jobs"},
        h("caption", {class: "unseen"}, "Jobs"),
        h("thead", {role: "rowgroup"}, h("tr", {role: "row"}, heads)),
        body),
      empty),
    h("nav", {class: "pager", "aria-label": "Pages of the list"}, newer, place, older));

  function show() {
    const lines = linesOf(jobs, labels);
    const idsOf = (id) => linesOf(jobs, labels).find((line) => line.id === id)?.jobs.map((job) => job.id) ?? [];
    syncChildren(body, lines.map(({id}) => id), (id) => makeRow(id, idsOf, show));
    lines.forEach((line, index) => (line.label === undefined ? fillRow(body.children[index], line.jobs[0], metric, addLabel)
      : fillSweep(body.children[index], line, metric)));
    showMetrics();
    all.checked = jobs.length > 0 && jobs.every(({id}) => chosen.has(id));
    syncChildren(labelled, labels, (text) => chip(text, "No longer only jobs with", () => setLabels(labels.filter((each) => each !== text))));
    heads.forEach((head, i) => {
      const order = i === METRIC ? metricOrder(metric) : HEADS[i][2];
      const isBy = [sort, opposite(sort)].includes(order);
      // The age increases as the time of submission decreases.
      const isDescending = sort.startsWith("-") !== (order === NEWEST);
      setAttribute(head, "aria-sort", isBy ? (isDescending ? "descending" : "ascending") : "none");
    });
    setText(newer, sort === NEWEST ? "Newer" : "Back");
    setText(older, sort === NEWEST ? "Older" : "Next");
    newer.disabled = cursors.length === 1;
    older.disabled = next === null;
    setText(place, !isLoaded ? "\u00a0" : `Page ${cursors.length}, ${plural(jobs.length, "job")}`);
    const without = status === "" ? "No job yet. Submit one to see its regret and bits." : `No job is ${status}.`;
    setText(empty, labels.length === 0 ? without : "No job here has these labels.");
    setHidden(empty, jobs.length > 0 || !isLoaded);
    setText(compare, chosen.size === 0 ? "Compare" : `Compare (${chosen.size})`);
    if (chosen.size >= 2) {
      compare.setAttribute("href", `#/compare/${[...chosen].map(encodeURIComponent).join(",")}`);
      compare.removeAttribute("aria-disabled");
    } else {
      compare.removeAttribute("href");
      compare.setAttribute("aria-disabled", "true");
    }
    compare.title = chosen.size >= 2 ? "" : "Tick at least two jobs to compare them";
    clear.disabled = chosen.size === 0;
  }

  // Offers the metrics of the jobs shown, and the chosen one.
  function showMetrics() {
    const names = [...new Set([...jobs.flatMap((job) => Object.keys(job.metrics ?? {})), ...(metric === "" ? [] : [metric])])].sort();
    syncChildren(column, ["", ...names], (name) => h("option", {value: name}, name === "" ? "none" : name));
    column.value = metric;
    setHidden(byMetric, names.length === 0);
    setHidden(heads[METRIC], metric === "");
    setText(heads[METRIC].firstChild, metric);
  }

  function sortBy(order) {
    sort = sort === order ? opposite(order) : order;
    go([null]);
  }

  // The order stays that of the column, if it was.
  function chooseMetric(name) {
    const isBy = metric !== "" && [sort, opposite(sort)].includes(metricOrder(metric));
    if (isBy) {
      const order = name === "" ? NEWEST : metricOrder(name);
      sort = name === "" || sort === metricOrder(metric) ? order : opposite(order);
    }
    metric = name;
    go(isBy ? [null] : cursors);
  }

  function setLabels(wanted) {
    labels = wanted;
    go([null]);
  }

  function addLabel(text) {
    if (text !== "" && labels.length < MAX_LABELS) {
      setLabels([...labels.filter((each) => each !== text), text]);
    }
  }

  filter.value = status;
  show();

  // Which jobs the list shows, in the names of the REST interface.
  function selection() {
    return [...(status === "" ? [] : [["status", status]]), ...(sort === NEWEST ? [] : [["sort", sort]]), ...labels.map((text) => ["label", text])];
  }

  async function load(mine) {
    const query = new URLSearchParams([["limit", PAGE], ...selection(), ...cursorsTo(cursors).slice(-1)]);
    const answer = await getJson(`v1/jobs?${query}`, mine);
    if (!mine.aborted && !document.hidden) {
      isLoaded = true;
      jobs = answer.jobs;
      next = answer.next_cursor;
      show();
    }
  }

  function go(where) {
    cursors = where;
    remember([...selection(), ...(metric === "" ? [] : [["metric", metric]]), ...cursorsTo(cursors)]);
    show();
    poll();
  }

  function poll() {
    turn.abort();
    turn = new AbortController();
    const mine = turn.signal;
    repeat(() => load(mine), POLL_MS, mine, onError);
  }
  signal.addEventListener("abort", () => turn.abort(), {once: true});
  poll();
}
