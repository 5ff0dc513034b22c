// page-compare: several jobs in the same charts, optionally with the paper's Table I.

import {ChartCard, Legend} from "./cards.js";
import {h, setText} from "./dom.js";
import {JobFeed} from "./feed.js";
import {NOTHING, integer, plural, quality, real, tenths} from "./format.js";
import {table} from "./job-parts.js";
import {MetricCards, commonNames, metricLine} from "./metric-cards.js";
import {documentOf} from "./page-job.js";
import {REFERENCES, referenceLines} from "./reference.js";

const DRAW_MS = 250;

function charts(hidden) {
  const log = {y: true};
  return {
    regret: new ChartCard({title: "Cumulative regret", xTitle: "Time steps", yTitle: "Cumulative regret", file: "tally-compare-regret", hidden}),
    tradeoff: new ChartCard({title: "Regret against uplink", xTitle: "Bits up per client", yTitle: "Cumulative regret", file: "tally-compare-regret-bits", log: {x: true}, hidden}),
    uplink: new ChartCard({title: "Uplink per client", xTitle: "Time steps", yTitle: "Bits up per client", file: "tally-compare-uplink", log, hidden}),
    downlink: new ChartCard({title: "Downlink", xTitle: "Time steps", yTitle: "Bits down", file: "tally-compare-downlink", log, hidden}),
    loss: new ChartCard({title: "Loss", xTitle: "Time steps", yTitle: "Loss", file: "tally-compare-loss", hidden}),
  };
}

// A straight line across the chart at one of the paper's figures.
function referencesOver(lines, key, direction) {
  const xs = lines.flatMap((line) => line.points.map((point) => point.x));
  const end = Math.max(1, ...xs.slice(-20_000));
  const start = Math.min(...xs.filter((x) => x > 0).slice(0, 20_000), end);
  return referenceLines(key, direction).map(({name, value}) => ({
    key: `table-${value}`, label: `${name} ${tenths(value)}`, color: -1, isReference: true,
    points: [{x: 0, y: value}, {x: start, y: value}, {x: end, y: value}],
  }));
}

// The properties that a job's lines share in all charts.
const identity = (feed, index) => ({
  key: feed.id, label: `${feed.job?.name || "job"} (${feed.id})`, color: index, dash: index % 4,
});

const leastOf = (feeds, name) => feeds.filter((feed) => Number.isFinite(feed.points.at(-1)?.[name]))
  .sort((a, b) => a.points.at(-1)[name] - b.points.at(-1)[name])[0];

function drawCharts(cards, feeds, count, reference) {
  const lines = (pointOf, more) => feeds.map((feed, index) => ({
    ...identity(feed, index), ...more,
    points: feed.job === null ? [] : feed.points.map((point) => pointOf(point, feed.job)),
  }));
  const up = (point, job) => point.uplink[count] / job.clients;
  const best = leastOf(feeds, "regret");
  cards.regret.set(lines((p) => ({x: p.timeStep, y: p.regret})),
    best === undefined ? "" : `Least regret now: ${best.job.name} (${best.id}), ${real(best.points.at(-1).regret)}.`);
  cards.tradeoff.set(lines((p, job) => ({x: up(p, job), y: p.regret})),
    "Lower and further left is better: less regret for fewer bits.",
    {title: `Regret against uplink (${count})`});
  for (const [direction, title, value] of [["uplink", "Uplink per client", up], ["downlink", "Downlink", (p) => p.downlink[count]]]) {
    const own = lines((p, job) => ({x: p.timeStep, y: value(p, job)}), {stepped: true});
    cards[direction].set([...own, ...referencesOver(own, reference, direction)],
      reference === "" ? `Bits by ${count}.` : `Bits by ${count}; grey lines are totals of the paper's Table I, ${REFERENCES[reference].title}, by formula.`,
      {title: `${title} (${count})`});
  }
  const lowest = leastOf(feeds, "loss");
  cards.loss.set(lines((p) => ({x: p.timeStep, y: p.loss})),
    lowest === undefined ? "" : `Least loss now: ${lowest.job.name} (${lowest.id}), ${real(lowest.points.at(-1).loss)}.`);
}

// One chart per metric that all jobs have.
function drawMetrics(metricCards, feeds) {
  metricCards.draw(commonNames(feeds.map((feed) => feed.points)), (card, name) => card.set(
    feeds.map((feed, index) => ({...identity(feed, index), points: metricLine(feed.points, name, "mean")})), "Mean over the clients."));
}

export function mount(main, {signal, ids, onError, setTitle}) {
  let count = "payload";
  let reference = "";
  let drawn = 0;
  let pending = null;
  const hidden = new Set(); // jobs hidden by means of the legend
  const cards = charts(hidden);
  const chartBox = h("div", {class: "charts"}, Object.values(cards).map((card) => card.element));
  const metricCards = new MetricCards(chartBox, "tally-compare", hidden);
  const legend = new Legend(hidden, schedule);
  const view = table("Compared jobs", [{text: "Job"}, {text: "Algorithm"}, {text: "Status"}, {text: "Time step", num: true}, {text: "Regret", num: true},
    {text: "Up per client, formula", num: true}, {text: "payload", num: true}, {text: "Down, formula", num: true}, {text: "payload", num: true}]);
  const differing = table("Parameters in which the jobs differ", [{text: "Parameter"}, ...ids.map((id) => ({text: id}))]);
  const alike = h("p", {class: "summary"}, "\u00a0");
  const radio = (value) => h("label", {}, h("input", {type: "radio", name: "count", value, checked: value === "payload",
    onchange: () => { count = value; schedule(); }}), ` ${value}`);
  const choice = h("select", {id: "reference", onchange: (event) => { reference = event.target.value; schedule(); }},
    h("option", {value: ""}, "none"), Object.entries(REFERENCES).map(([key, {title}]) => h("option", {value: key}, title)));
  main.append(
    h("div", {class: "page-head"}, h("h1", {}, `Comparison of ${plural(ids.length, "job")}`)),
    h("div", {class: "strip"}, h("fieldset", {class: "segments"}, h("legend", {}, "Bits counted as"), radio("payload"), radio("formula")),
      h("div", {class: "page-tools"}, h("label", {for: "reference"}, "Table I reference "), choice)),
    legend.element,
    chartBox,
    h("section", {class: "card"}, h("h2", {}, "Now"), view.element),
    h("section", {class: "card"}, h("h2", {}, "Parameters that differ"), alike, differing.element));
  setTitle("Comparison");
  Object.values(cards).forEach((card) => card.open());
  // Polls instead of using streams: a browser has six connections per server, shared by all pages.
  const feeds = ids.map((id) => new JobFeed(id, {signal, onChange: schedule, onError, stream: false, points: 600}));
  view.set(rowsOf(feeds));

  function schedule() {
    pending ??= setTimeout(() => {
      pending = null;
      drawn = performance.now();
      if (!signal.aborted) {
        view.set(rowsOf(feeds));
        linkNames(view.element, feeds);
        const rows = differences(feeds);
        differing.set(rows);
        setText(alike, feeds.some(({job}) => job === null) ? "\u00a0" : rows.length === 0 ? "All parameters are equal." : `${plural(rows.length, "parameter")}; all others are equal.`);
        legend.draw(feeds.map(identity));
        drawCharts(cards, feeds, count, reference);
        drawMetrics(metricCards, feeds);
      }
    }, Math.max(0, drawn + DRAW_MS - performance.now()));
  }

  legend.draw(feeds.map(identity));
  feeds.forEach((feed) => feed.run());
  return () => {
    clearTimeout(pending);
    Object.values(cards).forEach((card) => card.close());
    metricCards.close();
  };
}

function rowsOf(feeds) {
  return feeds.map(({id, job}) => ({key: id, cells: job === null
    ? [id, "", "", "", "", "", "", "", ""]
    : [job.name, job.algorithm.type, job.status, integer(job.time_step), quality(job),
      tenths(job.bits.uplink_per_client.formula), tenths(job.bits.uplink_per_client.payload),
      integer(job.bits.downlink.formula), integer(job.bits.downlink.payload)]}));
}

// Flattens a job's document: {"algorithm.step_size": 2, ...}.
function parametersOf(job) {
  const parameters = {};
  const add = (value, path) => {
    if (value !== null && typeof value === "object" && !Array.isArray(value)) {
      Object.entries(value).forEach(([key, inner]) => add(inner, path === "" ? key : `${path}.${key}`));
    } else {
      parameters[path] = typeof value === "string" ? value : JSON.stringify(value);
    }
  };
  add(JSON.parse(documentOf(job)), "");
  delete parameters.name;
  return parameters;
}

// Returns rows of the parameters that differ between the jobs.
function differences(feeds) {
  if (feeds.some(({job}) => job === null)) {
    return [];
  }
  const each = feeds.map(({job}) => parametersOf(job));
  const paths = [...new Set(each.flatMap((parameters) => Object.keys(parameters)))];
  return paths.filter((path) => each.some((parameters) => parameters[path] !== each[0][path]))
    .map((path) => ({key: path, cells: [path, ...each.map((parameters) => ({text: parameters[path] ?? NOTHING, title: parameters[path] ?? ""}))]}));
}

// The names link to the jobs.
function linkNames(element, feeds) {
  feeds.forEach(({id, job}, index) => {
    const cell = element.querySelectorAll("tbody tr")[index].firstChild;
    if (job !== null && cell.firstElementChild === null) {
      const link = h("a", {href: `#/job/${encodeURIComponent(id)}`});
      setText(link, job.name || id, `${job.name} (${id})`);
      cell.replaceChildren(link);
    }
  });
}
