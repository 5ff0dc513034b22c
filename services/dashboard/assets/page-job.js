// page-job: one job, live.

import {getJson, jobPath, repeat} from "./api.js";
import {DEFAULT_AXIS, axisChoice, axisOf, axisSettings, placesOf} from "./axis.js";
import {ChartCard} from "./cards.js";
import {h, setAttribute, setHidden, setText} from "./dom.js";
import {saveFrom} from "./download.js";
import {JobFeed, isEnded} from "./feed.js";
import {bitsAndSize, compact, integer, plural, real, regret as regretText, seconds, size, span, tenths} from "./format.js";
import {documentText} from "./job-document.js";
import {actionButtons, bitsTable, clientsTable, facts, jobAge, metricTiles, progressBar, roundsTable, setProgress, setStatus, statusBadge, tiles, waitingLine} from "./job-parts.js";
import {MetricCards, drawMetric, metricNames} from "./metric-cards.js";
import {paceOf} from "./pace.js";
import {epochs} from "./series.js";
import {labelled, sign} from "./terms.js";

const DRAW_MS = 250; // at most four times a second, however fast rounds close
const DRAW_SHARE = 4; // and for at most a quarter of the time, however slow the browser is
const WORKERS_MS = 2000;
const MAX_WORKER_PAGES = 5; // of 1,000 each; the table says what is left out
const MAX_JSON_DIM = 1_000_000; // of a model as JSON, as in api/openapi.yaml
const MODES = {
  connecting: "connecting", live: "live", polling: "polling every 2 s", retrying: "connection lost", ended: "final",
};

function charts(id) {
  const file = (name) => `tally-${id}-${name}`;
  return {
    regret: new ChartCard({title: "Cumulative regret", about: "Cumulative regret", xTitle: "Time steps", yTitle: "Cumulative regret", file: file("regret")}),
    bits: new ChartCard({title: "Cumulative bits", about: "Cumulative bits", xTitle: "Time steps", yTitle: "Bits", yText: bitsAndSize, file: file("bits")}),
    tradeoff: new ChartCard({title: "Regret against bits", about: "Regret against bits", xTitle: "Bits", xText: bitsAndSize, yTitle: "Cumulative regret", file: file("regret-bits")}),
    epochs: new ChartCard({title: "Epoch length", about: "Epoch length", xTitle: "Iterate", yTitle: "Time steps", kind: "bar", file: file("epochs")}),
    loss: new ChartCard({title: "Loss", about: "Loss by round", xTitle: "Time steps", yTitle: "Loss", file: file("loss")}),
  };
}

// Combines the first pages of workers into one; its next_cursor tells whether there are more.
async function getWorkers(signal) {
  const all = await getJson("v1/workers", signal);
  for (let page = 1; page < MAX_WORKER_PAGES && all.next_cursor !== null; page++) {
    const {workers, next_cursor: cursor} = await getJson(`v1/workers?cursor=${all.next_cursor}`, signal);
    all.workers.push(...workers);
    all.next_cursor = cursor;
  }
  return all;
}

// Returns the plan's prediction for the end of each epoch: [{x: time steps, y: cumulative regret}].
function plannedRegret(plan) {
  let at = {x: 0, y: 0};
  return (plan?.epochs ?? []).map((epoch) => (at = {x: at.x + epoch.samples, y: at.y + epoch.regret}));
}

const plannedText = (job, planned) => (planned.length === 0 ? ""
  : ` Planned: ${regretText(job.planned.regret)} for ${tenths(job.planned.uplink_bits)} bits up per client and ${tenths(job.planned.downlink_bits)} down.`);

const NO_ROUND = "No round has closed yet.";
const lossText = (value) => (value === null ? "unknown" : real(value));
// A job without f(x*) has no regret, so its first two quality charts show the loss instead.
const hasRegret = (job) => job.reference.type !== "none";

// Only CEAL has stages. With constant step sizes, each round has an iterate of its own, and all rounds are equally long.
const hasStages = (job) => job.algorithm.type === "ceal";
const hasEpochs = (job) => ["ceal", "calm"].includes(job.algorithm.type);

// What the quality charts show: the member of a point, its labels, and where the line starts.
const REGRET = {key: "regret", label: "Regret", title: "Cumulative regret", about: "Cumulative regret", against: "Regret against bits", text: regretText, start: [{x: 0, y: 0}]};
const LOSS = {key: "loss", label: "Loss", title: "Loss", about: "Loss by round", against: "Loss against bits", text: lossText, start: []};

// The charts of the page but those of metrics: regret and bits over the chosen axis, regret over bits, epochs, loss. A round that
// has not closed yet gives no chart.
function drawCharts(cards, feed, count, axis, places) {
  const {job, points} = feed;
  const settings = axisSettings(axis);
  const last = points.at(-1);
  const shown = hasRegret(job) ? REGRET : LOSS;
  const quality = (p) => p[shown.key];
  const over = (value) => points.map((p, i) => ({x: places[i], y: value(p)}));
  const after = (start, line) => (line.some(({x, y}) => Number.isFinite(x) && Number.isFinite(y)) ? [...start, ...line] : []);
  const origin = (line) => after([{x: 0, y: 0}], line);
  const thinned = feed.reduced ? ` ${integer(points.length)} of ${integer(last?.round)} rounds are drawn.` : "";
  const up = (point) => point.uplink[count] / job.clients;
  const down = (point) => point.downlink[count];
  const line = (key, label, color, list, more) => ({key, label, color, points: list, ...more});
  const planned = axis === "steps" ? plannedRegret(job.planned) : []; // a plan knows no other axis
  cards.regret.set(
    [line(shown.key, shown.label, 0, after(shown.start, over(quality))),
      ...(planned.length > 0 ? [line("planned", "Planned regret", 0, origin(planned), {dash: 1})] : [])],
    `${last === undefined ? NO_ROUND : `${shown.label} ${shown.text(quality(last))} after ${plural(last.timeStep, "time step")} and ${plural(last.round, "round")}.${thinned}`}${plannedText(job, planned)}`,
    {...settings, title: shown.title, about: shown.about, yTitle: shown.title, file: `tally-${feed.id}-${shown.key}`});
  cards.bits.set(
    [line("uplink", "Uplink per client", 1, origin(over(up)), {stepped: true}),
      line("downlink", "Downlink", 2, origin(over(down)), {stepped: true, dash: 1})],
    last === undefined ? NO_ROUND : `${bitsAndSize(up(last))} up per client, ${bitsAndSize(down(last))} down (${count}).`,
    {...settings, title: `Cumulative bits (${count})`});
  cards.tradeoff.set(
    [line("uplink", "Uplink per client", 1, points.map((p) => ({x: up(p), y: quality(p)}))),
      line("downlink", "Downlink", 2, points.map((p) => ({x: down(p), y: quality(p)})), {dash: 1})],
    last === undefined ? NO_ROUND : `${shown.label} ${shown.text(quality(last))} for ${tenths(up(last))} bits up per client and ${integer(down(last))} down.`,
    {title: `${shown.against} (${count})`, about: shown.against, yTitle: shown.title, file: `tally-${feed.id}-${shown.key}-bits`});
  const lengths = epochs(points);
  const longest = lengths.reduce((most, each) => (each.y > most.y ? each : most), {x: 0, y: 0});
  cards.epochs.set(
    [line("epochs", "Time steps at this iterate", 3, hasEpochs(job) ? lengths : [])],
    lengths.length === 0 ? NO_ROUND
      : `${plural(last.iterate, "iterate")}; the longest epoch is iterate ${integer(longest.x)} with ${tenths(longest.y)} time step${longest.y === 1 ? "" : "s"}.${feed.reduced ? " Thinned rounds are averaged." : ""}`);
  cards.loss.set([line("loss", "Loss", 4, hasRegret(job) ? over((p) => p.loss) : [])], // otherwise the first chart shows it
    last === undefined ? NO_ROUND : `Loss ${lossText(last.loss)} in ${plural(last.round, "round")}.`, settings);
}

function countSwitch(onChange) {
  const radio = (value) => h("label", {}, h("input", {type: "radio", name: "count", value, checked: value === "payload",
    onchange: () => onChange(value)}), ` ${value}`, sign(value));
  return h("fieldset", {class: "segments"}, h("legend", {}, "Bits counted as"), radio("payload"), radio("formula"));
}

export function mount(main, {signal, id, query, remember, onError, setTitle}) {
  let count = "payload";
  let axis = axisOf(query.get("x"));
  let nextDraw = 0;
  let pending = null;
  const cards = charts(id);
  const heading = h("h1", {}, id);
  const badge = statusBadge();
  const mode = h("span", {class: "mode", "aria-live": "polite"}, MODES.connecting);
  const bar = progressBar();
  const reason = h("p", {class: "reason", role: "alert", hidden: true});
  const waiting = waitingLine();
  const numbers = tiles(["Regret", "Loss", "Time step", "Round", "Iterate", "Stage", "Bits up per client", "Bits down", "Seconds per round", "Remaining (ETA)", "Age"]);
  const metrics = metricTiles();
  const chartBox = h("div", {class: "charts"}, Object.values(cards).map((card) => card.element));
  const metricCards = new MetricCards(chartBox, `tally-${id}`, "Metric by round");
  const noCharts = h("p", {class: "card empty awaiting"}, "\u00a0");
  const bits = bitsTable();
  const known = facts();
  const clients = clientsTable();
  const rounds = roundsTable();
  const documentBox = h("pre", {tabindex: "0"});
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
  const modelAsJson = h("button", {type: "button", onclick: save("/model", "model.json", "application/json")}, "model.json");
  const bestModel = h("button", {type: "button", hidden: true, onclick: save("/model?which=best", "best.npy", "application/x-npy")}, "best.npy");
  const feed = new JobFeed(id, {signal, onChange: schedule, onError});
  const actions = actionButtons(() => feed.job, (job) => feed.takeJob(job));
  main.append(
    h("div", {class: "page-head"}, h("div", {class: "title"}, heading, badge, h("code", {}, id), mode), actions.box),
    actions.error, reason, waiting.element, bar, numbers.element, metrics.element,
    h("div", {class: "strip"}, countSwitch((value) => { count = value; schedule(); }),
      axisChoice(axis, (name) => { axis = name; remember(axis === DEFAULT_AXIS ? [] : [["x", axis]]); schedule(); }),
      h("div", {class: "page-tools"},
        h("a", {class: "button", href: `#/submit/${encodeURIComponent(id)}`}, "Edit and submit again"),
        h("button", {type: "button", "data-save": "rounds", onclick: save("/rounds.csv", "rounds.csv", "text/csv")}, "rounds.csv"),
        modelAsJson,
        h("button", {type: "button", onclick: save("/model", "model.npy", "application/x-npy")}, "model.npy"),
        bestModel)),
    saveError,
    noCharts, chartBox,
    h("div", {class: "columns"},
      h("section", {class: "card bits"}, labelled("h2", {}, "Bits"), bits.element),
      h("section", {class: "card known"}, labelled("h2", {}, "Facts"), known.element),
      h("section", {class: "card"}, labelled("h2", {}, "Clients"), clients.element),
      h("section", {class: "card"}, labelled("h2", {}, "Latest rounds"), rounds.element)),
    h("details", {class: "card"}, h("summary", {}, "Job document"), documentBox));
  Object.values(cards).forEach((card) => card.open());

  function schedule() {
    pending ??= setTimeout(() => {
      pending = null;
      const begin = performance.now();
      if (!signal.aborted) {
        draw();
      }
      nextDraw = begin + Math.max(DRAW_MS, DRAW_SHARE * (performance.now() - begin));
    }, Math.max(0, nextDraw - performance.now()));
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
    setHidden(bestModel, !job.keep?.best);
    modelAsJson.disabled = job.dim > MAX_JSON_DIM;
    modelAsJson.title = modelAsJson.disabled ? `Only models of at most ${integer(MAX_JSON_DIM)} coordinates; this one has ${integer(job.dim)}` : "";
    drawNumbers(numbers, job, feed.points);
    metrics.update(newest(job, feed.points.at(-1)));
    bits.update(job);
    known.update(job);
    rounds.update(feed.tail, {epochs: hasEpochs(job), stages: hasStages(job)});
    setText(documentBox, documentText(job));
    const places = placesOf(feed.points, axis, count, job);
    drawCharts(cards, feed, count, axis, places);
    metricCards.draw(metricNames(feed.points), (card, name) => drawMetric(card, feed.points, places, name, axisSettings(axis)));
    setHidden(noCharts, [...chartBox.children].some((card) => !card.hidden));
    noCharts.classList.toggle("awaiting", feed.points.length === 0 && !isEnded(job));
    setText(noCharts, feed.points.length === 0 ? NO_ROUND : axis === "seconds" ? "The times of these rounds are not known." : "The rounds have no values to draw.");
  }

  feed.run();
  repeat(async () => {
    const answer = await getWorkers(signal);
    await feed.loaded;
    clients.update(feed.job, answer);
    drawPace(numbers, feed.job, feed.points);
    return !isEnded(feed.job);
  }, WORKERS_MS, signal, onError);
  const seconds = setInterval(() => feed.job !== null && waiting.update(feed.job), 1000);
  return () => {
    clearInterval(seconds);
    clearTimeout(pending);
    Object.values(cards).forEach((card) => card.close());
    metricCards.close();
  };
}

// The last value of each metric: the last point, if it is newer than the detail, may have some of them.
const newest = (job, last) => (last !== undefined && last.round > job.round ? {...job.metrics, ...last.metrics} : job.metrics);

// The numbers that change with the clock.
function drawPace(numbers, job, points) {
  const {perRound, remaining, took} = paceOf(job, points, Date.now());
  numbers.set(8, seconds(perRound), perRound === null ? "" : `${perRound} ms`);
  numbers.setLabel(9, took === null ? "Remaining (ETA)" : "Took", "", took === null ? "Remaining (ETA)" : "Took");
  numbers.set(9, span(took ?? remaining), "");
  numbers.set(10, jobAge(job), "");
}

// While rounds stream in, the last one is newer than the detail, which comes once a second.
function drawNumbers(numbers, job, points) {
  const last = points.at(-1);
  const isNewer = last !== undefined && last.round > job.round;
  const regret = isNewer ? last.regret : job.cumulative_regret;
  const up = isNewer ? last.uplink : job.bits.uplink;
  const downlink = isNewer ? last.downlink : job.bits.downlink;
  const each = {payload: up.payload / job.clients, formula: up.formula / job.clients};
  const loss = isNewer ? last.loss : job.loss;
  const isShown = [hasRegret(job), true, true, true, hasEpochs(job), hasStages(job), true, true, true, true, true];
  isShown.forEach((shown, i) => setHidden(numbers.element.children[i], !shown));
  numbers.set(0, regretText(regret), regret ?? "");
  numbers.set(1, lossText(loss), loss ?? "");
  numbers.setLabel(2, `Time step of ${compact(job.horizon)}`, `of ${integer(job.horizon)}`, "Time step");
  numbers.set(2, integer(isNewer ? last.timeStep : job.time_step));
  numbers.set(3, integer(isNewer ? last.round : job.round));
  numbers.set(4, integer(job.iterate));
  numbers.set(5, integer(job.stage));
  numbers.set(6, tenths(each.payload), `payload ${each.payload}, formula ${each.formula}`);
  numbers.set(7, integer(downlink.payload), `payload ${downlink.payload}, formula ${downlink.formula}`);
  numbers.setAlso(6, size(each.payload));
  numbers.setAlso(7, size(downlink.payload));
  drawPace(numbers, job, points);
}
