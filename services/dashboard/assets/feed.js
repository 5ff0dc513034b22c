// feed: keeps the detail and the points of one job up to date.
//
// First it requests the detail and GET /series, then the event stream from the last round on. If
// the stream breaks, it is resumed where it ended. If there is no stream (501, or three failures in
// a row), the detail and the series are polled every two seconds. A page in the background closes
// its connection, since a browser has only six per server.

import {ApiError, ConnectionError, backoff, getJson, isRefused, jobPath, pause, request, tokenEntered} from "./api.js";
import {pointOfRound, pointsOfSeries, thin} from "./series.js";
import {EventParser} from "./sse.js";

const POLL_MS = 2000;
const SILENCE_MS = 40_000; // the coordinator's heartbeat comes every 15 s
const CATCH_UP_MS = 1500; // details come once a second while a job runs
const TAIL = 10;
const MAX_STREAM_FAILURES = 3;
const ENDED = ["completed", "failed", "cancelled"];

export const isEnded = (job) => ENDED.includes(job.status);

function becomesHidden(signal) {
  return new Promise((resolve) => {
    const look = () => {
      if (document.hidden || signal.aborted) {
        document.removeEventListener("visibilitychange", look);
        signal.removeEventListener("abort", look);
        resolve();
      }
    };
    document.addEventListener("visibilitychange", look);
    signal.addEventListener("abort", look);
    look();
  });
}

function becomesVisible(signal) {
  return new Promise((resolve) => {
    const look = () => {
      if (!document.hidden || signal.aborted) {
        document.removeEventListener("visibilitychange", look);
        signal.removeEventListener("abort", look);
        resolve();
      }
    };
    document.addEventListener("visibilitychange", look);
    signal.addEventListener("abort", look);
    look();
  });
}

export class JobFeed {
  job = null;
  points = [];
  tail = []; // the last rounds
  reduced = false; // some rounds are missing from the points
  mode = "connecting"; // "live", "polling", "retrying", "ended"

  // onChange() is called after each change; onError(error) once, if the feed cannot continue.
  // gate(work) calls `work` when there is room for its requests.
  constructor(id, {signal, onChange, onError, stream = true, points = 1000, gate = (work) => work()}) {
    this.id = id;
    this.signal = signal;
    this.onChange = onChange;
    this.onError = onError;
    this.canStream = stream;
    this.nPoints = points;
    this.gate = gate;
    this.stale = true; // the detail and the series must be requested
    this.streamFailures = 0;
    this.failures = 0; // in a row, without any response
    this.loaded = new Promise((resolve) => {
      this.onLoaded = resolve; // resolved with the first detail
    });
  }

  get lastRound() {
    return this.points.length > 0 ? this.points.at(-1).round : 0;
  }

  async run() {
    while (!this.signal.aborted) {
      try {
        if (this.stale) {
          await this.gate(() => this.refresh());
        }
        if (isEnded(this.job) && !this.stale) {
          this.setMode("ended");
          return;
        }
        if (!this.canStream || this.streamFailures >= MAX_STREAM_FAILURES) {
          this.setMode("polling");
          this.stale = true;
          this.streamFailures = 0; // after the next poll, the stream is tried again
          await pause(POLL_MS, this.signal);
        } else {
          await this.follow();
        }
        this.failures = 0;
        await becomesVisible(this.signal);
      } catch (error) {
        if (!(await this.recover(error))) {
          return;
        }
      }
    }
  }

  // Whether to continue.
  async recover(error) {
    if (this.signal.aborted) {
      return false;
    }
    if (error instanceof ConnectionError) {
      this.setMode("retrying");
      await pause(backoff(++this.failures), this.signal);
      return true;
    }
    if (error instanceof ApiError && isRefused(error.status)) {
      this.setMode("retrying");
      await tokenEntered(this.signal);
      return true;
    }
    this.onError(error);
    return false;
  }

  async refresh() {
    const job = await getJson(jobPath(this.id), this.signal);
    const series = await getJson(jobPath(this.id, `/series?points=${this.nPoints}`), this.signal);
    this.job = job;
    this.onLoaded();
    this.points = pointsOfSeries(series);
    this.tail = series.reduced ? await this.latest(series.rounds) : this.points.slice(-TAIL);
    this.reduced = series.reduced;
    this.stale = isEnded({status: series.status}) && !isEnded(job); // the job ended between the two requests
    this.onChange();
  }

  // Takes a detail, whatever its source, if it is newer; responses may overtake each other.
  takeJob(job) {
    if (this.job === null || job.round >= this.job.round) {
      this.job = job;
      this.onChange();
    }
  }

  // Rounds may still close without a further detail being sent, as after a pause.
  catchUp() {
    this.catching ??= pause(CATCH_UP_MS, this.signal).then(async () => {
      this.catching = null;
      if (!this.signal.aborted && this.lastRound > this.job.round) {
        const job = await getJson(jobPath(this.id), this.signal);
        if (job.round > this.job.round) { // otherwise the stream was faster and may have a newer status
          this.takeJob(job);
        }
      }
    }).catch(() => {}); // the reader of the stream will notice the error as well
  }

  // Returns the last rounds without gaps; a reduced series has gaps.
  async latest(nRounds) {
    const query = `/rounds?after=${Math.max(0, nRounds - TAIL)}&limit=${TAIL}`;
    return (await getJson(jobPath(this.id, query), this.signal)).rounds.map(pointOfRound);
  }

  setMode(mode) {
    if (this.mode !== mode) {
      this.mode = mode;
      this.onChange();
    }
  }

  // Reads a stream until it ends.
  async follow() {
    const ours = new AbortController();
    const end = () => ours.abort();
    this.signal.addEventListener("abort", end, {once: true});
    becomesHidden(ours.signal).then(end);
    try {
      const response = await request(jobPath(this.id, `/events?after=${this.lastRound}`), {
        signal: ours.signal, keepSignal: true, headers: {Accept: "text/event-stream"},
      });
      if (response.status === 204) {
        this.stale = !isEnded(this.job);
        return;
      }
      await this.read(response.body, ours);
      if (!isEnded(this.job) && !this.stale) {
        this.streamFailures++; // the stream may have ended along with the job
        await pause(backoff(this.streamFailures), this.signal);
      }
    } catch (error) {
      if (error instanceof ApiError && error.status === 501) {
        this.canStream = false;
        return;
      }
      if (ours.signal.aborted && !this.signal.aborted) {
        return; // hidden, or silent for too long
      }
      if (error instanceof ApiError && !isRefused(error.status) && error.status !== 404) {
        this.streamFailures = MAX_STREAM_FAILURES;
        return;
      }
      throw error;
    } finally {
      this.signal.removeEventListener("abort", end);
      ours.abort();
    }
  }

  async read(body, ours) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    const parser = new EventParser();
    this.isFresh = true; // the stream's first detail is still to come and is no older than ours
    let watch = setTimeout(() => ours.abort(), SILENCE_MS);
    try {
      for (;;) {
        const {value, done} = await reader.read();
        if (done) {
          return;
        }
        clearTimeout(watch);
        watch = setTimeout(() => ours.abort(), SILENCE_MS);
        parser.push(value).forEach((event) => this.take(event));
        if (this.stale) {
          return;
        }
      }
    } catch (error) {
      if (ours.signal.aborted) {
        throw error;
      }
      this.streamFailures++;
      throw new ConnectionError("the stream broke off");
    } finally {
      clearTimeout(watch);
      reader.cancel().catch(() => {});
    }
  }

  take(event) {
    const value = JSON.parse(event.data);
    if (event.type === "job") {
      if (this.isFresh && value.round < this.lastRound) {
        this.stale = true; // the history differs from ours: the store was restored from a backup
      }
      this.isFresh = false;
      this.takeJob(value);
    } else if (event.type === "round") {
      if (value.round <= this.lastRound) {
        return;
      }
      const point = pointOfRound(value);
      this.points.push(point);
      this.tail = [...this.tail, point].slice(-TAIL);
      this.reduced = thin(this.points) || this.reduced;
      this.catchUp();
    } else if (event.type === "evaluation") { // of a round whose point we have, or of an older one
      for (const point of [...this.points, ...this.tail].filter((each) => each.round === value.round)) {
        point.metrics = value.metrics;
      }
    }
    this.streamFailures = 0;
    this.mode = "live";
    this.onChange();
  }
}
