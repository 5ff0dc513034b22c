// groups: jobs that differ only in their seed as one: mean and spread.

import {real, tenths} from "./format.js";
import {parametersOf} from "./job-document.js";

const GRID_POINTS = 300; // of a mean line, if its jobs have more points

// What must be equal for two jobs to be of one group: all parameters but the seed. Labels are words about a job, not a part of it.
export const isOfKind = (path) => path !== "seed" && !path.startsWith("labels.");
const kindOf = (job) => JSON.stringify(Object.entries(parametersOf(job)).filter(([path]) => isOfKind(path))
  .sort(([a], [b]) => (a < b ? -1 : 1)));

// Returns [{key, feeds: of its jobs, index: of the group}] in the order of the first job of each; with `isGrouped` false, and for a
// job that has not been loaded yet, a group for each job.
export function groupsOf(feeds, isGrouped) {
  const groups = new Map();
  for (const feed of feeds) {
    const kind = isGrouped && feed.job !== null ? kindOf(feed.job) : feed.id;
    if (!groups.has(kind)) {
      groups.set(kind, {key: feed.id, feeds: []});
    }
    groups.get(kind).feeds.push(feed);
  }
  return [...groups.values()].map((group, index) => ({...group, index}));
}

// Mean and standard deviation (of the sample: divided by n - 1; 0 for a single value).
export function spreadOf(values) {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  return {mean, deviation: values.length > 1 ? Math.sqrt(squares / (values.length - 1)) : 0};
}

// "0.97 ± 0.002" of several values, one of which may be unknown: then of the others, with their number.
export function spreadText(values, text = real) {
  const known = values.filter((value) => Number.isFinite(value));
  if (known.length === 0) {
    return text(null);
  }
  const {mean, deviation} = spreadOf(known);
  const among = known.length < values.length ? ` (${known.length} of ${values.length})` : "";
  return deviation === 0 && among === "" ? text(mean) : `${text(mean)} \u00b1 ${text === tenths ? tenths(deviation) : real(Number(deviation.toPrecision(3)))}${among}`;
}

// One member of a line's points at ascending time steps within the line, between the points in proportion.
function valuesAt(points, member, steps) {
  let i = 1;
  return steps.map((at) => {
    while (i < points.length - 1 && points[i].at < at) {
      i++;
    }
    const [a, b] = [points[Math.max(0, i - 1)], points[Math.min(i, points.length - 1)]];
    return b.at > a.at && at < b.at ? a[member] + ((b[member] - a[member]) * (at - a.at)) / (b.at - a.at) : b[member];
  });
}

// The mean of several lines of points {at: time step, x, y}: [{x, y, deviation: of y}] at the time steps that all lines reach. Both
// x and y are means at the same time step: at the same second, or after the same bits, jobs need not have anything in common.
export function meanLine(lines) {
  const known = lines.map((points) => points.filter(({x, y}) => Number.isFinite(x) && Number.isFinite(y))).filter((points) => points.length > 0);
  if (known.length === 0) {
    return [];
  }
  const from = Math.max(...known.map((points) => points[0].at));
  const to = Math.min(...known.map((points) => points.at(-1).at));
  let steps = [...new Set(known.flatMap((points) => points.map(({at}) => at)))].filter((at) => at >= from && at <= to).sort((a, b) => a - b);
  if (steps.length > GRID_POINTS) {
    const every = (steps.length - 1) / (GRID_POINTS - 1);
    steps = Array.from({length: GRID_POINTS}, (_, i) => steps[Math.round(i * every)]);
  }
  const [xs, ys] = ["x", "y"].map((member) => known.map((points) => valuesAt(points, member, steps)));
  return steps.map((_, i) => {
    const {mean, deviation} = spreadOf(ys.map((each) => each[i]));
    return {x: spreadOf(xs.map((each) => each[i])).mean, y: mean, deviation};
  });
}
