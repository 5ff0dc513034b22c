// metric-cards: charts of the metrics that workers report, one per name.

import {ChartCard} from "./cards.js";
import {integer, real} from "./format.js";
import {metricOf} from "./series.js";

const MAX_NAMES = 16; // the maximum per round
const COLOR = 5;

// Returns the names that occur in the points, in order of appearance.
export function metricNames(points) {
  const names = new Set();
  for (const {metrics} of points) {
    Object.keys(metrics ?? {}).forEach((name) => names.add(name));
  }
  return [...names].slice(0, MAX_NAMES);
}

// Returns the names that occur in all lists of points.
export const commonNames = (lists) => lists.map(metricNames)
  .reduce((common, names) => common.filter((name) => names.includes(name)));

// Returns one value of a metric over the places of the points on the horizontal axis.
export const metricLine = (points, places, name, value) => points.flatMap(({timeStep, metrics}, i) =>
  (metricOf(metrics, name) === undefined ? [] : [{at: timeStep, x: places[i], y: metrics[name][value]}]));

export class MetricCards {
  // Cards are appended to `parent`, which must be in the document. `file` is the stem of file
  // names, `about` and `hidden` as in ChartCard.
  constructor(parent, file, about, hidden) {
    this.parent = parent;
    this.file = file;
    this.about = about;
    this.hidden = hidden;
    this.cards = new Map(); // by name
  }

  // Shows one card per name and calls draw(card, name) for each.
  draw(names, draw) {
    for (const [name, card] of this.cards) {
      if (!names.includes(name)) {
        card.close();
        card.element.remove();
        this.cards.delete(name);
      }
    }
    names.forEach((name) => {
      if (!this.cards.has(name)) {
        const card = new ChartCard({title: name, xTitle: "Time steps", yTitle: name, about: this.about, fromZero: false,
          file: `${this.file}-metric-${name}`, hidden: this.hidden});
        card.element.dataset.metric = name;
        this.parent.append(card.element);
        card.open();
        this.cards.set(name, card);
      }
      draw(this.cards.get(name), name);
    });
  }

  close() {
    this.cards.forEach((card) => card.close());
    this.cards.clear();
  }
}

// A metric of one job: the mean and, if clients differ, the band from the minimum to the maximum.
export function drawMetric(card, points, places, name, settings) {
  const line = (value, label, more) => ({key: value, label, color: COLOR, points: metricLine(points, places, name, value), ...more});
  const last = points.findLast(({metrics}) => metricOf(metrics, name) !== undefined);
  const differ = points.some(({metrics}) => metricOf(metrics, name) !== undefined && metrics[name].min < metrics[name].max);
  const {mean, min, max} = last.metrics[name];
  card.set([line("mean", "Mean"), ...(differ ? [line("min", "Minimum", {isEdge: true, dash: 2}), line("max", "Maximum", {isEdge: true, dash: 1, fillsTo: "-1"})] : [])],
    `${name} ${real(mean)}${differ ? `, clients ${real(min)} to ${real(max)},` : ""} in round ${integer(last.round)}.`, settings);
}
