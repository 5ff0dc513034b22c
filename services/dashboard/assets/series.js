// series: converts a job's rounds to points of charts.
//
// A point: {round, timeStep, iterate, stage, samples, norm, passed, cut, loss, regret,
//           uplink: {formula, payload}, downlink: {formula, payload}, metrics: {name: {mean, min, max}} or undefined,
//           closedMs: when the round closed, or null}
// where regret and the bits are the job's totals after that round; the uplink is the sum of all clients.

const MAX_POINTS = 4000; // per job on the page; if exceeded, the points are thinned to half

// Converts GET /v1/jobs/{id}/series.
export function pointsOfSeries(answer) {
  const at = Object.fromEntries(answer.columns.map((name, index) => [name, index]));
  return answer.rows.map((row, index) => ({...pointOf((name) => row[at[name]]), metrics: metricsAt(answer.metrics, index)}));
}

// A metric of a point or a job; undefined if it has none of this name, which may be "constructor".
export const metricOf = (metrics, name) => (metrics && Object.hasOwn(metrics, name) ? metrics[name] : undefined);

// Converts one row; the series has a list per value, with null for rounds that lack it.
function metricsAt(metrics, index) {
  const found = Object.entries(metrics ?? {}).filter(([, {mean}]) => mean[index] !== null)
    .map(([name, {mean, min, max}]) => [name, {mean: mean[index], min: min[index], max: max[index]}]);
  return found.length > 0 ? Object.fromEntries(found) : undefined;
}

// Converts a `round` event of GET /v1/jobs/{id}/events, or a record of GET /rounds, whose only total
// is the regret.
export function pointOfRound(record) {
  const own = {
    round: record.round, time_step: record.t, iterate: record.k, stage: record.j, samples: record.samples,
    norm: record.norm, passed: record.passed, cut: record.cut, loss: record.loss,
    cumulative_regret: record.regret, closed_ms: record.closed_ms,
  };
  return {...pointOf((name) => own[name] ?? record.totals?.[name]), metrics: record.metrics};
}

function pointOf(get) {
  return {
    round: get("round"), timeStep: get("time_step"), iterate: get("iterate"), stage: get("stage"),
    samples: get("samples"), norm: get("norm"), passed: get("passed"), cut: get("cut"), loss: get("loss"),
    regret: get("cumulative_regret"),
    uplink: {formula: get("uplink_formula"), payload: get("uplink_payload")},
    downlink: {formula: get("downlink_formula"), payload: get("downlink_payload")},
    closedMs: get("closed_ms") || null, // 0: the round was stored by a coordinator that kept no times
  };
}

// Thins the points in place if there are too many. Each bucket keeps its last point, so that totals
// stay exact there, and the points of least and greatest norm and loss.
export function thin(points, max = MAX_POINTS) {
  if (points.length <= max) {
    return false;
  }
  const nBuckets = Math.floor(max / 10);
  const keep = new Set([0, points.length - 1]);
  for (let b = 0; b < nBuckets; b++) {
    const from = Math.floor((b * points.length) / nBuckets);
    const to = Math.floor(((b + 1) * points.length) / nBuckets);
    for (const name of ["norm", "loss"]) {
      let least = from;
      let greatest = from;
      for (let i = from; i < to; i++) {
        least = points[i][name] < points[least][name] ? i : least;
        greatest = points[i][name] > points[greatest][name] ? i : greatest;
      }
      keep.add(least).add(greatest);
    }
    keep.add(to - 1);
  }
  const kept = points.filter((_, index) => keep.has(index));
  points.length = 0;
  for (const point of kept) {
    points.push(point);
  }
  return true;
}

// Epoch length: the time steps spent at each iterate, [{x: iterate, y: time steps}]. If the rounds in between were thinned out,
// the mean over those iterates, at the last of them.
export function epochs(points) {
  const result = [];
  let end = {iterate: null, timeStep: 0}; // of the previous epoch
  for (let i = 0; i < points.length; i++) {
    const point = points[i];
    if (i + 1 < points.length && points[i + 1].iterate === point.iterate) {
      continue;
    }
    const passed = end.iterate === null ? 1 : Math.max(1, point.iterate - end.iterate);
    result.push({x: point.iterate, y: (point.timeStep - end.timeStep) / passed});
    end = point;
  }
  return result;
}
