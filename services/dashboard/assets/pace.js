// pace: how fast a job runs, from the times of its rounds.

const ORIGIN = (job) => ({round: 0, timeStep: 0, closedMs: job.started_ms});

// The point where the window begins over which the speed is taken: the latest quarter of the points, or the job's start if there
// are few.
function beginOf(job, points) {
  return points.length < 8 ? ORIGIN(job) : points[Math.floor(0.75 * (points.length - 1))];
}

// Returns {perRound, remaining, took} in ms, each null if it is unknown. `now` is the clock of the browser, which may differ from
// the coordinator's: it makes the remaining time shorter by one round at most.
export function paceOf(job, points, now) {
  const took = job.started_ms !== null && job.finished_ms !== null ? Math.max(0, job.finished_ms - job.started_ms) : null;
  const whole = job.round > 0 && took !== null ? took / job.round : null;
  const last = points.at(-1);
  if (job.status !== "running" && job.status !== "paused") {
    return {perRound: whole, remaining: null, took};
  }
  if (last === undefined || last.closedMs === null || job.started_ms === null) {
    return {perRound: null, remaining: null, took};
  }
  let begin = beginOf(job, points);
  if (begin.closedMs === null || begin.closedMs > last.closedMs) { // the clock was set back
    begin = ORIGIN(job);
  }
  const ms = Math.max(0, last.closedMs - begin.closedMs);
  const perRound = ms / (last.round - begin.round);
  const left = ((job.horizon - last.timeStep) * ms) / (last.timeStep - begin.timeStep);
  const since = Math.max(0, Math.min(perRound, now - last.closedMs));
  return {perRound, remaining: job.status === "running" && Number.isFinite(left) ? Math.max(0, left - since) : null, took};
}
