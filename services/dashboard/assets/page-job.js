// page-job: one job, live.

import {getJson, jobPath, repeat} from "./api.js";
import {ChartCard} from "./cards.js";
import {h, setAttribute, setHidden, setText} from "./dom.js";
import {saveFrom} from "./download.js";
import {JobFeed, isEnded} from "./feed.js";
import {compact, integer, plural, regret as regretText, tenths} from "./format.js";
import {actionButtons, bitsTable, clientsTable, facts, jobAge, progressBar, roundsTable, setProgress, setStatus, statusBadge, tiles, waitingLine} from "./job-parts.js";
import {epochs} from "./series.js";

const DRAW_MS = 250; // at most four times a second, however fast rounds close
const WORKERS_MS = 2000;
const MAX_WORKER_PAGES = 5; // of 1,000: what is left out, the table says
const MODES = {
  connecting: "connecting", live: "live", polling: "polling every 2 s", retrying: "connection lost", ended: "final",
};

function charts(id) {
  const file = (name) => `tally-${id}-${name}`;
  return {
    regret: new ChartCard({title: "Cumulative regret", xTitle: "Time steps", yTitle: "Cumulative regret", file: file("regret")}),
    bits: new ChartCard({title: "Cumulative bits", xTitle: "Time steps", yTitle: "Bits", file: file("bits")}),
    tradeoff: new ChartCard({title: "Regret against bits", xTitle: "Bits", yTitle: "Cumulative regret", file: file("regret-bits")}),
    epochs: new ChartCard({title: "Epoch length", xTitle: "Iterate", yTitle: "Time steps", kind: "bar", file: file("epochs")}),
  };
}

// The first pages of workers in one; its next_cursor tells whether there are more.
async function getWorkers(signal) {
  const all = await getJson("/v1/workers", signal);
  for (let page = 1; page < MAX_WORKER_PAGES && all.next_cursor !== null; page++) {
    const {workers, next_cursor: cursor} = await getJson(`/v1/workers?cursor=${all.next_cursor}`, signal);
    all.workers.push(...workers);
    all.next_cursor = cursor;
  }
  return all;
}

// What the plan expects by the end of each epoch: [{x: time steps, y: cumulative regret}].
function plannedRegret(plan) {
  let at = {x: 0, y: 0};
  return (plan?.epochs ?? []).map((epoch) => (at = {x: at.x + epoch.samples, y: at.y + epoch.regret}));
}

const plannedText = (job, planned) => (planned.length === 0 ? ""
  : ` Planned: ${regretText(job.planned.regret)} for ${tenths(job.planned.uplink_bits)} bits up per client and ${tenths(job.planned.downlink_bits)} down.`);

// The three lines of thought of the page: regret over time, bits over time, one against the other.
function drawCharts(cards, feed, count) {
  const {job, points} = feed;
  const origin = (line) => [{x: 0, y: 0}, ...line];
  const last = points.at(-1);
  const thinned = feed.reduced ? ` ${integer(points.length)} of ${integer(last?.round)} rounds are drawn.` : "";
  const up = (point) => point.uplink[count] / job.clients;
  const down = (point) => point.downlink[count];
  const line = (key, label, color, list, more) => ({key, label, color, points: list, ...more});
  const planned = plannedRegret(job.planned);
  cards.regret.set(
    [line("regret", "Regret", 0, last?.regret === null ? [] : origin(points.map((p) => ({x: p.timeStep, y: p.regret})))),
      ...(planned.length > 0 ? [line("planned", "Planned regret", 0, origin(planned), {dash: 1})] : [])],
    `${last === undefined ? "No round has closed yet." : `Regret ${regretText(last.regret)} after ${plural(last.timeStep, "time step")} and ${plural(last.round, "round")}.${thinned}`}${plannedText(job, planned)}`);
  cards.bits.set(
    [line("uplink", "Uplink per client", 1, origin(points.map((p) => ({x: p.timeStep, y: up(p)}))), {stepped: true}),
      line("downlink", "Downlink", 2, origin(points.map((p) => ({x: p.timeStep, y: down(p)}))), {stepped: true, dash: 1})],
    last === undefined ? "No round has closed yet." : `${tenths(up(last))} bits up per client, ${integer(down(last))} bits down (${count}).`,
    {title: `Cumulative bits (${count})`});
  cards.tradeoff.set(
    [line("uplink", "Uplink per client", 1, points.map((p) => ({x: up(p), y: p.regret}))),
      line("downlink", "Downlink", 2, points.map((p) => ({x: down(p), y: p.regret})), {dash: 1})],
    last === undefined ? "No round has closed yet." : `Regret ${regretText(last.regret)} for ${tenths(up(last))} bits up per client and ${integer(down(last))} down.`,
    {title: `Regret against bits (${count})`});
  const lengths = epochs(points);
  const longest = lengths.reduce((most, each) => (each.y > most.y ? each : most), {x: 0, y: 0});
  cards.epochs.set(
    [line("epochs", "Time steps at this iterate", 3, lengths)],
    lengths.length === 0 ? "No round has closed yet."
      : `${plural(last.iterate, "iterate")}; the longest epoch is iterate ${integer(longest.x)} with ${tenths(longest.y)} time step${longest.y === 1 ? "" : "s"}.${feed.reduced ? " Thinned rounds are averaged." : ""}`);
}

function countSwitch(onChange) {
  const radio = (value) => h("label", {}, h("input", {type: "radio", name: "count", value, checked: value === "payload",
    onchange: () => onChange(value)}), ` ${value}`);
  return h("fieldset", {class: "segments"}, h("legend", {}, "Bits counted as"), radio("payload"), radio("formula"));
}

export function mount(main, {signal, id, onError, setTitle}) {
  let count = "payload";
  let drawn = 0;
  let pending = null;
  const cards = charts(id);
  const heading = h("h1", {}, id);
  const badge = statusBadge();
  const mode = h("span", {class: "mode", "aria-live": "polite"}, MODES.connecting);
  const bar = progressBar();
  const reason = h("p", {class: "reason", role: "alert", hidden: true});
  const waiting = waitingLine();
  const numbers = tiles(["Regret", "Time step", "Round", "Iterate", "Stage", "Bits up per client", "Bits down", "Age"]);
  const bits = bitsTable();
  const known = facts();
  const clients = clientsTable();
  const rounds = roundsTable();
  const documentText = h("pre", {tabindex: "0"});
  const saveError = h("p", {class: "error", role: "alert", hidden: true});
  const save = (path, name, type) => async () => {
    setHidden(saveError, true);
    try {
      await saveFrom(jobPath(id, path), `tally-${id}-${name}`, type);
    } catch (error) {
      setText(saveError, `Download: ${error.message}`);
      setHidden(saveError, false);
    }
  };
  const feed = new JobFeed(id, {signal, onChange: schedule, onError});
  const actions = actionButtons(() => feed.job, (job) => feed.takeJob(job));
  main.append(
    h("div", {class: "page-head"}, h("div", {class: "title"}, heading, badge, h("code", {}, id), mode), actions.box),
    actions.error, reason, waiting.element, bar, numbers.element,
    h("div", {class: "strip"}, countSwitch((value) => { count = value; schedule(); }),
      h("div", {class: "page-tools"},
        h("button", {type: "button", "data-save": "rounds", onclick: save("/rounds.csv", "rounds.csv", "text/csv")}, "rounds.csv"),
        h("button", {type: "button", onclick: save("/model", "model.json", "application/json")}, "model.json"))),
    saveError,
    h("div", {class: "charts"}, Object.values(cards).map((card) => card.element)),
    h("div", {class: "columns"},
      h("section", {class: "card"}, h("h2", {}, "Bits"), bits.element),
      h("section", {class: "card"}, h("h2", {}, "Clients"), clients.element),
      h("section", {class: "card"}, h("h2", {}, "Facts"), known.element),
      h("section", {class: "card"}, h("h2", {}, "Latest rounds"), rounds.element)),
    h("details", {class: "card"}, h("summary", {}, "Job document"), documentText));
  Object.values(cards).forEach((card) => card.open());

  function schedule() {
    pending ??= setTimeout(() => {
      pending = null;
      drawn = performance.now();
      if (!signal.aborted) {
        draw();
      }
    }, Math.max(0, drawn + DRAW_MS - performance.now()));
  }

  function draw() {
    const {job} = feed;
    setText(mode, MODES[feed.mode]);
    setAttribute(mode, "data-mode", feed.mode);
    if (job === null) {
      return;
    }
    setText(heading, job.name || job.id);
    setTitle(job.name || job.id);
    setStatus(badge, job.status);
    setText(reason, job.reason ?? "");
    setHidden(reason, job.reason === null);
    waiting.update(job);
    setProgress(bar, job);
    actions.update();
    drawNumbers(numbers, job, feed.points.at(-1));
    bits.update(job);
    known.update(job);
    rounds.update(feed.tail);
    setText(documentText, documentOf(job));
    drawCharts(cards, feed, count);
  }

  feed.run();
  repeat(async () => {
    const answer = await getWorkers(signal);
    await feed.loaded;
    clients.update(feed.job, answer);
    setText(numberAge(numbers), jobAge(feed.job));
    return !isEnded(feed.job);
  }, WORKERS_MS, signal, onError);
  const seconds = setInterval(() => feed.job !== null && waiting.update(feed.job), 1000);
  return () => {
    clearInterval(seconds);
    clearTimeout(pending);
    Object.values(cards).forEach((card) => card.close());
  };
}

const numberAge = (numbers) => numbers.element.lastChild.lastChild;

// While rounds stream in, the last one is newer than the detail, which comes once a second.
function drawNumbers(numbers, job, last) {
  const isNewer = last !== undefined && last.round > job.round;
  const regret = isNewer ? last.regret : job.cumulative_regret;
  const up = isNewer ? last.uplink : job.bits.uplink;
  const downlink = isNewer ? last.downlink : job.bits.downlink;
  const each = {payload: up.payload / job.clients, formula: up.formula / job.clients};
  numbers.set(0, regretText(regret), regret ?? "");
  numbers.setLabel(1, `Time step of ${compact(job.horizon)}`, `of ${integer(job.horizon)}`);
  numbers.set(1, integer(isNewer ? last.timeStep : job.time_step));
  numbers.set(2, integer(isNewer ? last.round : job.round));
  numbers.set(3, integer(job.iterate));
  numbers.set(4, integer(job.stage));
  numbers.set(5, tenths(each.payload), `payload ${each.payload}, formula ${each.formula}`);
  numbers.set(6, integer(downlink.payload), `payload ${downlink.payload}, formula ${downlink.formula}`);
  numbers.set(7, jobAge(job), "");
}

const IN_DOCUMENT = ["name", "algorithm", "objective", "clients", "horizon", "minibatch", "evaluate_every", "seed", "encoding",
  "initial_point", "domain", "reference", "budget", "quorum", "policy", "round_deadline_ms", "job_deadline_ms"];

// What was submitted: the detail without what the coordinator added.
export function documentOf(job) {
  return JSON.stringify(Object.fromEntries(Object.entries(job).filter(([key]) => IN_DOCUMENT.includes(key))), null, 2);
}
