// page-sweep: the jobs of a sweep, or of any label: a row for each variant with its seeds together, and a picture of what the varied
// members do.

import {ApiError, ConnectionError, getJson, jobPath, post, repeat} from "./api.js";
import {ChartCard} from "./cards.js";
import {confirmAction} from "./dialogs.js";
import {announce, h, setAttribute, setHidden, setText, syncChildren} from "./dom.js";
import {NOTHING, bitsAndSize, integer, plural, real, tenths} from "./format.js";
import {groupsOf, isOfKind, spreadOf, spreadText} from "./groups.js";
import {parametersOf} from "./job-document.js";
import {changingTable} from "./job-parts.js";
import {metricOf} from "./series.js";
import {labelled} from "./terms.js";

const POLL_MS = 2000;
const ENDED_POLL_MS = 30_000;
const PAGE = 1000; // jobs of a request
const MAX_JOBS = 5000;
const isLive = ({status}) => ["queued", "running", "paused"].includes(status);
const BITS = {up: "bits up per client", down: "bits down"};

// What a picture can show of a job, by name; a metric has the name "metric NAME".
const VALUES = {
  regret: (job) => job.cumulative_regret,
  loss: (job) => job.loss,
  [BITS.up]: (job) => job.bits.uplink_per_client.payload,
  [BITS.down]: (job) => job.bits.downlink.payload,
};
const METRIC = "metric ";
const valueOf = (job, name) => (name.startsWith(METRIC) ? metricOf(job.metrics, name.slice(METRIC.length))?.mean : VALUES[name](job));
const meanOf = (values) => (values.length > 0 && values.every(Number.isFinite) ? spreadOf(values).mean : NaN);

// A variant: jobs that differ only in their seed. {key, jobs, parameters}
function variantsOf(jobs) {
  return groupsOf(jobs.map((job) => ({id: job.id, job})), true)
    .map(({key, feeds}) => ({key, jobs: feeds.map(({job}) => job), parameters: parametersOf(feeds[0].job)}));
}

// The members in which the variants differ.
function variedOf(variants) {
  const paths = [...new Set(variants.flatMap(({parameters}) => Object.keys(parameters)))];
  return paths.filter((path) => isOfKind(path) && variants.some(({parameters}) => parameters[path] !== variants[0].parameters[path]));
}

const isNumber = (text) => text !== undefined && text.trim() !== "" && Number.isFinite(Number(text));

export function mount(main, {signal, label, query, remember, onError, setTitle}) {
  let jobs = [];
  let isWhole = true;
  let isCancelling = false;
  let due = 0; // the next request; once all jobs have ended, they are asked for less often
  let axes = {x: query.get("x") ?? "", y: query.get("y") ?? ""}; // "" = chosen here
  const now = changingTable("Variants");
  const note = h("p", {class: "summary"}, "\u00a0");
  const problem = h("p", {class: "error", role: "alert", hidden: true});
  const cancel = h("button", {type: "button", class: "danger", disabled: true, onclick: () => cancelAll()}, "Cancel all");
  const compare = h("a", {class: "button"}, "Compare curves");
  const choices = Object.fromEntries(["x", "y"].map((name) => [name, h("select", {id: `sweep-${name}`, onchange: (event) => {
    axes = {...axes, [name]: event.target.value};
    remember(Object.entries(axes).filter(([, value]) => value !== ""));
    show();
  }})]));
  const card = new ChartCard({title: "Variants", about: "Variants in a picture", xTitle: "", yTitle: "", xIsInteger: false, fromZero: false,
    file: "tally-sweep", hidden: new Set(), onPick: (point) => { location.hash = addressOf(point.variant); }});
  main.append(
    h("div", {class: "page-head"}, h("h1", {}, "Jobs with ", h("code", {}, label)), h("div", {class: "page-tools"}, compare,
      h("a", {class: "button", href: `#/?${new URLSearchParams([["label", label]])}`}, "List"), cancel)),
    problem, note,
    h("div", {class: "strip"}, ["x", "y"].map((name) => h("div", {class: "page-tools"}, h("label", {for: `sweep-${name}`},
      name === "x" ? "Horizontal " : "Vertical "), choices[name]))),
    h("div", {class: "charts"}, card.element),
    h("section", {class: "card"}, labelled("h2", {}, "Variants"), now.element));
  setTitle(label);
  card.open();

  const addressOf = ({jobs: own}) => (own.length === 1 ? `#/job/${encodeURIComponent(own[0].id)}` : compareAddress(own));
  const compareAddress = (own) => `#/compare/${own.map(({id}) => encodeURIComponent(id)).join(",")}`;

  // Offers the values that there are. Returns the chosen one.
  function choose(name, values, fallback) {
    syncChildren(choices[name], values, (value) => h("option", {value}, value));
    const chosen = values.includes(axes[name]) ? axes[name] : fallback;
    choices[name].value = chosen;
    return chosen;
  }

  function show() {
    const variants = variantsOf(jobs);
    const varied = variedOf(variants);
    const metrics = [...new Set(jobs.flatMap((job) => Object.keys(job.metrics ?? {})))].sort();
    const hasRegret = jobs.some((job) => job.cumulative_regret !== null);
    const by = hasRegret ? "regret" : "loss";
    const results = [...(hasRegret ? ["regret"] : []), "loss", ...metrics.map((name) => METRIC + name), BITS.up, BITS.down];
    const numeric = varied.filter((path) => variants.every(({parameters}) => isNumber(parameters[path])));
    const x = choose("x", [...numeric, ...results], numeric[0] ?? BITS.up);
    const y = choose("y", results, by);
    const best = [...variants].sort((a, b) => rank(a, by) - rank(b, by));
    showTable(best, varied, metrics, by);
    showPicture(best, varied, numeric, x, y);
    const nLive = jobs.filter(isLive).length;
    setText(note, jobs.length === 0 ? "No job has this label." : `${plural(jobs.length, "job")}${isWhole ? "" : " (the newest ones)"} in ${plural(variants.length, "variant")}; ${
      nLive === 0 ? "all have ended" : `${integer(nLive)} not ended`}.${nLive === 0 && best.length > 1 && Number.isFinite(meanOf(best[0].jobs.map((job) => valueOf(job, by))))
      ? ` Least mean ${by}: ${nameOf(best[0], varied)}.` : ""}`);
    cancel.disabled = isCancelling || nLive === 0;
    compare.href = compareAddress(jobs);
    setHidden(compare, jobs.length < 2 || jobs.length > 200);
  }

  // Variants without a value come last.
  function rank({jobs: own}, by) {
    const mean = meanOf(own.map((job) => valueOf(job, by)));
    return own.some(({status}) => status === "failed") || !Number.isFinite(mean) ? Infinity : mean;
  }

  const nameOf = ({jobs: [first], parameters}, varied) => (varied.length === 0 ? first.name || first.id
    : varied.map((path) => `${path.split(".").at(-1)} ${parameters[path] ?? NOTHING}`).join(", "));

  function showTable(variants, varied, metrics, by) {
    const num = true;
    const heads = [{text: "Job"}, ...varied.map((path) => ({text: path, num: variants.every(({parameters}) => isNumber(parameters[path])), term: ""})),
      {text: "Seeds", num, term: "Seeds of a variant"}, {text: "Status"}, {text: by === "regret" ? "Regret" : "Loss", num},
      ...metrics.map((text) => ({text, num, term: "metric"})), {text: "Bits up per client", num}, {text: "Bits down", num}];
    now.set(heads, variants.map(({key, jobs: own, parameters}) => {
      const over = (name, text) => spreadText(own.map((job) => valueOf(job, name)), text);
      const statuses = [...new Set(own.map(({status}) => status))].map((status) => `${own.filter((job) => job.status === status).length} ${status}`);
      return {key, cells: [own[0].name || own[0].id, ...varied.map((path) => parameters[path] ?? NOTHING), integer(own.length),
        own.length === 1 ? own[0].status : statuses.join(", "), over(by), ...metrics.map((name) => over(METRIC + name)),
        over(BITS.up, tenths), over(BITS.down, tenths)]};
    }));
    const rows = new Map([...now.element.querySelectorAll("tbody tr")].map((row) => [row.dataset.key, row]));
    variants.forEach((variant) => {
      const cell = rows.get(variant.key).firstChild;
      const text = variant.jobs[0].name || variant.jobs[0].id;
      if (cell.firstElementChild === null) {
        cell.replaceChildren(h("a", {href: ""}, text));
      }
      setAttribute(cell.firstElementChild, "href", addressOf(variant));
    });
  }

  function showPicture(variants, varied, numeric, x, y) {
    const placeOf = ({jobs: own, parameters}) => (numeric.includes(x) ? Number(parameters[x]) : meanOf(own.map((job) => valueOf(job, x))));
    const points = variants.map((variant) => ({variant, label: nameOf(variant, varied), x: placeOf(variant),
      y: meanOf(variant.jobs.map((job) => valueOf(job, y)))})).filter((point) => Number.isFinite(point.x) && Number.isFinite(point.y)).sort((a, b) => a.x - b.x);
    const isBits = [BITS.up, BITS.down].includes(x);
    card.set([{key: "variants", label: "Variants", color: 0, isDot: true, points}], `A dot for each variant: the mean over its seeds. A click opens ${jobs.length > variants.length ? "its jobs" : "the job"}.`,
      {title: `${y} against ${x}`, xTitle: x, yTitle: y, xText: isBits ? bitsAndSize : real});
  }

  async function cancelAll() {
    const text = `${plural(jobs.filter(isLive).length, "job")} with the label ${label} will end for good.${isWhole ? "" : " Older ones stay."}`;
    if (!(await confirmAction("Cancel these jobs?", text, "Cancel jobs", true))) {
      return;
    }
    setHidden(problem, true);
    isCancelling = cancel.disabled = true;
    try {
      for (const {id} of jobs.filter(isLive).reverse()) { // the newest first, so that none starts because another one ends
        await cancelOne(id);
      }
      announce("Cancel: done");
    } catch (error) {
      if (signal.aborted) {
        return;
      }
      if (!(error instanceof ApiError || error instanceof ConnectionError)) {
        throw error;
      }
      setText(problem, `Cancel: ${error.message}`);
      setHidden(problem, false);
    } finally {
      isCancelling = false;
    }
  }

  // A job may have ended, or been deleted, meanwhile.
  async function cancelOne(id) {
    try {
      await post(jobPath(id, "/cancel"), undefined, {}, signal);
    } catch (error) {
      const isOver = error instanceof ApiError && (error.status === 404 || !isLive(await getJson(jobPath(id), signal)));
      if (!isOver) {
        throw error;
      }
    }
  }

  async function load() {
    if (document.hidden || Date.now() < due) {
      return;
    }
    const found = [];
    let cursor = null;
    do {
      const answer = await getJson(`v1/jobs?${new URLSearchParams([["label", label], ["limit", PAGE], ...(cursor === null ? [] : [["cursor", cursor]])])}`, signal);
      found.push(...answer.jobs);
      cursor = answer.next_cursor;
    } while (cursor !== null && found.length < MAX_JOBS);
    if (!signal.aborted) {
      isWhole = cursor === null;
      jobs = found.reverse(); // in the order of submission
      due = jobs.some(isLive) ? 0 : Date.now() + ENDED_POLL_MS;
      show();
    }
  }

  repeat(load, POLL_MS, signal, onError);
  return () => card.close();
}
