// page-compare: several jobs in the same charts, optionally with the paper's Table I. Jobs that differ only in their seed may be
// drawn as one line, their mean, with a band.

import {DEFAULT_AXIS, axisChoice, axisOf, axisSettings, placesOf} from "./axis.js";
import {ChartCard, Legend} from "./cards.js";
import {h, setHidden, setText} from "./dom.js";
import {JobFeed} from "./feed.js";
import {NOTHING, bitsAndSize, integer, plural, quality, real, size, tenths} from "./format.js";
import {groupsOf, meanLine, spreadText} from "./groups.js";
import {parametersOf} from "./job-document.js";
import {changingTable} from "./job-parts.js";
import {MetricCards, commonNames, metricLine} from "./metric-cards.js";
import {REFERENCES, referenceLines} from "./reference.js";
import {metricOf} from "./series.js";
import {labelled, sign} from "./terms.js";

const DRAW_MS = 250;
const DRAW_SHARE = 4; // as on the page of a job
const N_LOADING = 3; // jobs that are requested at a time: a browser has six connections per server
const MAX_POINTS = 600; // of a job
const ALL_POINTS = 30_000; // of all jobs together, but at least MIN_POINTS each
const MIN_POINTS = 60;
const N_COLORS = 8;

function charts(hidden) {
  const log = {y: true};
  const card = (settings) => new ChartCard({...settings, hidden, about: settings.about ?? settings.title});
  return {
    regret: card({title: "Cumulative regret", xTitle: "Time steps", yTitle: "Cumulative regret", file: "tally-compare-regret"}),
    tradeoff: card({title: "Regret against uplink", xTitle: "Bits up per client", xText: bitsAndSize, yTitle: "Cumulative regret", file: "tally-compare-regret-bits", log: {x: true}}),
    uplink: card({title: "Uplink per client", xTitle: "Time steps", yTitle: "Bits up per client", yText: bitsAndSize, file: "tally-compare-uplink", log}),
    downlink: card({title: "Downlink", xTitle: "Time steps", yTitle: "Bits down", yText: bitsAndSize, file: "tally-compare-downlink", log}),
    loss: card({title: "Loss", about: "Loss by round", xTitle: "Time steps", yTitle: "Loss", file: "tally-compare-loss"}),
  };
}

// A straight line across the chart at one of the paper's figures.
function referencesOver(lines, key, direction) {
  let [start, end] = [Infinity, 1];
  for (const {x} of lines.flatMap(({points}) => points)) {
    start = x > 0 ? Math.min(start, x) : start;
    end = Math.max(end, x ?? 0);
  }
  start = Math.min(start, end);
  return referenceLines(key, direction).map(({name, value}) => ({
    key: `table-${value}`, label: `${name} ${tenths(value)}`, color: -1, isReference: true,
    points: [{x: 0, y: value}, {x: start, y: value}, {x: end, y: value}],
  }));
}

const nameOf = ({job, id}) => job?.name || id;

// The properties that a group's lines share in all charts. Colour and dash together repeat after 32 groups.
function identity({key, feeds, index}) {
  const [first] = feeds;
  return {
    key, color: index, dash: (index + Math.floor(index / N_COLORS)) % 4,
    label: feeds.length > 1 ? `${nameOf(first)} (${feeds.length} seeds)` : `${first.job?.name || "job"} (${first.id})`,
  };
}

// The lines of all groups: pointsOf(feed) gives those of a job, in `more` are properties of the lines of single jobs.
function linesOf(groups, pointsOf, more = {}) {
  return groups.flatMap((group) => {
    const shared = identity(group);
    const each = group.feeds.map((feed) => (feed.job === null ? [] : pointsOf(feed)));
    if (each.length === 1) {
      return [{...shared, ...more, points: each[0]}];
    }
    const mean = meanLine(each);
    const edge = (direction, name) => ({...shared, key: `${group.key} ${name}`, group: group.key, label: `${shared.label} ${name}`, isEdge: true,
      points: mean.map(({x, y, deviation}) => ({x, y: y + direction * deviation}))});
    return [{...shared, points: mean},
      edge(-1, "mean \u2212 deviation"), {...edge(1, "mean + deviation"), fillsTo: "-1"}];
  });
}

const leastOf = (feeds, name) => feeds.filter((feed) => Number.isFinite(feed.points.at(-1)?.[name]))
  .sort((a, b) => a.points.at(-1)[name] - b.points.at(-1)[name])[0];

const GROUPED = "Bands reach one standard deviation over the seeds to each side of the mean.";

function drawCharts(cards, metricCards, {feeds, groups, count, axis, reference}) {
  const places = new Map(feeds.map((feed) => [feed, feed.job === null ? [] : placesOf(feed.points, axis, count, feed.job)]));
  const over = (value) => (feed) => feed.points.map((point, i) => ({at: point.timeStep, x: places.get(feed)[i], y: value(point, feed.job)}));
  const settings = axisSettings(axis);
  const up = (point, job) => point.uplink[count] / job.clients;
  const bands = groups.some((group) => group.feeds.length > 1) ? ` ${GROUPED}` : "";
  const best = leastOf(feeds, "regret");
  cards.regret.set(linesOf(groups, over((p) => p.regret)),
    `${best === undefined ? "" : `Least regret now: ${best.job.name} (${best.id}), ${real(best.points.at(-1).regret)}.`}${bands}`, settings);
  cards.tradeoff.set(linesOf(groups, ({points, job}) => points.map((p) => ({at: p.timeStep, x: up(p, job), y: p.regret}))),
    `Lower and further left is better: less regret for fewer bits.${bands}`,
    {title: `Regret against uplink (${count})`});
  for (const [direction, title, value] of [["uplink", "Uplink per client", up], ["downlink", "Downlink", (p) => p.downlink[count]]]) {
    const own = linesOf(groups, over(value), {stepped: true});
    const grey = axis === "steps" || axis === "rounds" ? referencesOver(own, reference, direction) : [];
    cards[direction].set([...own, ...grey],
      `${grey.length === 0 ? `Bits by ${count}.` : `Bits by ${count}; grey lines are totals of the paper's Table I, ${REFERENCES[reference].title}, by formula.`}${bands}`,
      {...settings, title: `${title} (${count})`});
  }
  const lowest = leastOf(feeds, "loss");
  cards.loss.set(linesOf(groups, over((p) => p.loss)),
    `${lowest === undefined ? "" : `Least loss now: ${lowest.job.name} (${lowest.id}), ${real(lowest.points.at(-1).loss)}.`}${bands}`, settings);
  // One chart per metric that all jobs have.
  metricCards.draw(commonNames(feeds.map((feed) => feed.points)), (card, name) => card.set(
    linesOf(groups, (feed) => metricLine(feed.points, places.get(feed), name, "mean")), `Mean over the clients.${bands}`, settings));
}

// Lets at most `n` of the given functions run at a time.
function gateOf(n) {
  let nRunning = 0;
  const waiting = [];
  return async (work) => {
    if (nRunning >= n) {
      await new Promise((resolve) => { waiting.push(resolve); });
    } else {
      nRunning++;
    }
    try {
      return await work();
    } finally {
      const next = waiting.shift(); // takes the place over
      if (next === undefined) {
        nRunning--;
      } else {
        next();
      }
    }
  };
}

export function mount(main, {signal, ids, query, remember, onError, setTitle}) {
  let count = "payload";
  let reference = "";
  let axis = axisOf(query.get("x"));
  let isGrouped = query.get("seeds") !== "apart";
  let nextDraw = 0;
  let pending = null;
  const hidden = new Set(); // jobs hidden by means of the legend
  const cards = charts(hidden);
  const chartBox = h("div", {class: "charts"}, Object.values(cards).map((card) => card.element));
  const metricCards = new MetricCards(chartBox, "tally-compare", "Metric of each job", hidden);
  const noCharts = h("p", {class: "card empty"}, "\u00a0");
  const legend = new Legend(hidden, schedule);
  const now = changingTable("Compared jobs");
  const differing = changingTable("Parameters in which the jobs differ");
  const alike = h("p", {class: "summary"}, "\u00a0");
  const radio = (value) => h("label", {}, h("input", {type: "radio", name: "count", value, checked: value === "payload",
    onchange: () => { count = value; schedule(); }}), ` ${value}`, sign(value));
  const choice = h("select", {id: "reference", onchange: (event) => { reference = event.target.value; schedule(); }},
    h("option", {value: ""}, "none"), Object.entries(REFERENCES).map(([key, {title}]) => h("option", {value: key}, title)));
  const keepAddress = () => remember([...(axis === DEFAULT_AXIS ? [] : [["x", axis]]), ...(isGrouped ? [] : [["seeds", "apart"]])]);
  const grouping = h("div", {class: "page-tools", hidden: true}, h("label", {class: "choice"}, h("input", {type: "checkbox", id: "group-seeds", checked: isGrouped,
    onchange: (event) => { isGrouped = event.target.checked; keepAddress(); schedule(); }}), " Group seeds"), sign("Group seeds"));
  main.append(
    h("div", {class: "page-head"}, h("h1", {}, `Comparison of ${plural(ids.length, "job")}`)),
    h("div", {class: "strip"}, h("fieldset", {class: "segments"}, h("legend", {}, "Bits counted as"), radio("payload"), radio("formula")),
      axisChoice(axis, (name) => { axis = name; keepAddress(); schedule(); }), grouping,
      h("div", {class: "page-tools"}, h("label", {for: "reference"}, "Table I reference "), sign("Table I reference"), choice)),
    legend.element,
    noCharts, chartBox,
    h("section", {class: "card"}, labelled("h2", {}, "Now"), now.element),
    h("section", {class: "card"}, labelled("h2", {}, "Parameters that differ"), alike, differing.element));
  setTitle("Comparison");
  Object.values(cards).forEach((card) => card.open());
  // Polls instead of using streams, which would each hold a connection.
  const gate = gateOf(N_LOADING);
  const points = Math.max(MIN_POINTS, Math.min(MAX_POINTS, Math.floor(ALL_POINTS / ids.length)));
  const feeds = ids.map((id) => new JobFeed(id, {signal, onChange: schedule, onError, stream: false, points, gate}));
  drawWords();

  function drawWords() {
    const groups = groupsOf(feeds, isGrouped);
    drawNow(now, groups, feeds);
    drawDifferences(differing, alike, groups, feeds);
    legend.draw(groups.map(identity));
    setHidden(grouping, feeds.length === groupsOf(feeds, true).length);
    return groups;
  }

  function schedule() {
    pending ??= setTimeout(() => {
      pending = null;
      const begin = performance.now();
      if (!signal.aborted) {
        const groups = drawWords();
        drawCharts(cards, metricCards, {feeds, groups, count, axis, reference});
        setHidden(noCharts, [...chartBox.children].some((card) => !card.hidden));
        setText(noCharts, feeds.some(({job}) => job === null) ? "\u00a0" : "There is nothing to draw yet.");
      }
      nextDraw = begin + Math.max(DRAW_MS, DRAW_SHARE * (performance.now() - begin));
    }, Math.max(0, nextDraw - performance.now()));
  }

  feeds.forEach((feed) => feed.run());
  return () => {
    clearTimeout(pending);
    Object.values(cards).forEach((card) => card.close());
    metricCards.close();
  };
}

const HEADS = [{text: "Job"}, {text: "Algorithm"}, {text: "Status"}, {text: "Time step", num: true}, {text: "Regret", num: true}];
const BIT_HEADS = [{text: "Up, formula", num: true}, {text: "Up, payload", num: true},
  {text: "Down, formula", num: true}, {text: "Down, payload", num: true}, {text: "Up + down", num: true}];

// The newest values: a row for each group of several jobs, and below it one for each of its jobs.
function drawNow(view, groups, feeds) {
  const names = [...new Set(feeds.flatMap(({job}) => Object.keys(job?.metrics ?? {})))].sort();
  const heads = [...HEADS, ...names.map((name) => ({text: name, num: true, term: "metric"})), ...BIT_HEADS];
  view.set(heads, groups.flatMap((group) => [...(group.feeds.length > 1 ? [groupRow(group, names)] : []), ...group.feeds.map((feed) => jobRow(feed, names))]));
  linkNames(view.element, feeds);
}

const sizeOf = ({bits}) => bits.uplink_per_client.payload + bits.downlink.payload;

function jobRow({id, job}, names) {
  return {key: id, cells: job === null
    ? [id, ...Array(HEADS.length + names.length + BIT_HEADS.length - 1).fill("")]
    : [job.name ? `${job.name} ${id}` : id, job.algorithm.type, job.status, integer(job.time_step), quality(job),
      ...names.map((name) => ({text: real(metricOf(job.metrics, name)?.mean), title: metricOf(job.metrics, name)?.mean ?? ""})),
      tenths(job.bits.uplink_per_client.formula), tenths(job.bits.uplink_per_client.payload),
      integer(job.bits.downlink.formula), integer(job.bits.downlink.payload), size(sizeOf(job))]};
}

function groupRow({key, feeds}, names) {
  const jobs = feeds.map(({job}) => job);
  const over = (value, text) => spreadText(jobs.map(value), text);
  const nEnded = jobs.filter(({status}) => status === "completed").length;
  const isRegret = jobs.some((job) => job.cumulative_regret !== null);
  return {key: `group ${key}`, cells: [`${nameOf(feeds[0])}: ${plural(jobs.length, "seed")}`, jobs[0].algorithm.type, `${nEnded} of ${jobs.length} completed`,
    over((job) => job.time_step, tenths),
    isRegret || jobs.every((job) => job.loss === null) ? over((job) => job.cumulative_regret) : `loss ${over((job) => job.loss)}`,
    ...names.map((name) => over((job) => metricOf(job.metrics, name)?.mean)),
    over((job) => job.bits.uplink_per_client.formula, tenths), over((job) => job.bits.uplink_per_client.payload, tenths),
    over((job) => job.bits.downlink.formula, tenths), over((job) => job.bits.downlink.payload, tenths),
    size(jobs.reduce((sum, job) => sum + sizeOf(job), 0) / jobs.length)]};
}

// The names link to the jobs.
function linkNames(element, feeds) {
  const rows = new Map([...element.querySelectorAll("tbody tr")].map((row) => [row.dataset.key, row]));
  feeds.forEach(({id, job}) => {
    const cell = rows.get(id).firstChild;
    if (job !== null && cell.firstElementChild === null) {
      const link = h("a", {href: `#/job/${encodeURIComponent(id)}`});
      setText(link, job.name || id, `${job.name} (${id})`);
      cell.replaceChildren(link, job.name ? h("code", {}, ` ${id}`) : "");
    }
  });
}

// The parameters that differ between the groups; within a group, seeds and labels do.
function drawDifferences(view, note, groups, feeds) {
  if (feeds.some(({job}) => job === null)) {
    setText(note, "\u00a0");
    return;
  }
  const each = groups.map((group) => group.feeds.map(({job}) => parametersOf(job)));
  const all = each.flat();
  const paths = [...new Set(all.flatMap((parameters) => Object.keys(parameters)))];
  const valueOf = (jobs, path) => [...new Set(jobs.map((parameters) => parameters[path] ?? NOTHING))].join(", ");
  const rows = paths.filter((path) => all.some((parameters) => parameters[path] !== all[0][path]))
    .map((path) => ({key: path, cells: [path, ...each.map((jobs) => ({text: valueOf(jobs, path), title: valueOf(jobs, path)}))]}));
  view.set([{text: "Parameter"}, ...groups.map(({key, feeds: {length}}) => ({text: length > 1 ? `${key} and ${plural(length - 1, "other seed")}` : key, term: ""}))], rows);
  setText(note, rows.length === 0 ? "All parameters are equal." : `${plural(rows.length, "parameter")}; all others are equal.`);
}
