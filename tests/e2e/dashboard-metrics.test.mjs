// Metrics reported by workers, in the dashboard: a chart and a headline value for each, and the comparison of jobs.
//
// The plug-in `moody` reports `client`, the client's number, and `last`, a coordinate of its point.
import assert from "node:assert/strict";
import path from "node:path";
import {after, before, test} from "node:test";

import {Stage, Window, closeAll, launch} from "./dashboard-support.mjs";
import {until} from "./programs.mjs";

const PLUGIN = path.resolve(process.env.TALLY_BIN, "../plugins/moody.so");
const MOODY = {
  name: "moody", algorithm: {type: "minibatch_sgd", step_size: 0.1, local_steps: 1}, clients: 4, horizon: 40, minibatch: 1, seed: 1,
  objective: {type: "plugin", name: "moody", dim: 7}, initial_point: {type: "random_sphere", radius: 1},
  reference: {type: "none"},
};
const SILENT = {...MOODY, name: "silent", objective: {type: "least_squares", data: {type: "synthetic_linear", dim: 7, points: 100}}};

let browser, stage, window, page;

before(async () => {
  [browser, stage] = await Promise.all([launch(), Stage.open()]);
  process.env.MOODY = "metrics good 0";
  stage.startWorker("moody", 4, "--plugin", PLUGIN);
  delete process.env.MOODY;
  window = await Window.open(browser, stage);
  page = window.page;
});

after(() => closeAll(window, browser, stage));

// Returns [{label, points: [{x, y}, ...], fill}] of a metric's chart; [] if there is none.
const linesOf = (name) => page.evaluate((metric) => {
  const canvas = document.querySelector(`[data-metric="${metric}"] canvas`);
  return canvas === null ? [] : Chart.getChart(canvas).data.datasets
    .map(({label, data, fill, hidden}) => ({label, fill, hidden: Boolean(hidden), points: data.map(({x, y}) => ({x, y}))}));
}, name);
const names = () => page.locator("[data-metric]").evaluateAll((cards) => cards.map((card) => card.dataset.metric));
const tiles = () => page.locator(".metric-tiles > div").evaluateAll((divs) => divs.map((div) => [div.firstChild.textContent, div.lastChild.textContent, div.lastChild.title]));

test("a chart for each metric has its mean, and the band between clients; the headline has the last values", async () => {
  const id = await stage.submit(MOODY);
  const job = await stage.ended(id);
  const {rounds} = await stage.get(`/v1/jobs/${id}/rounds?limit=1000`);
  assert.ok(rounds.every(({metrics}) => metrics !== undefined));
  const series = (await stage.get(`/v1/jobs/${id}/series`)).metrics;
  for (const name of ["client", "last"]) {
    for (const value of ["mean", "min", "max"]) {
      assert.deepEqual(series[name][value], rounds.map(({metrics}) => metrics[name][value]));
    }
  }
  await window.go(`#/job/${id}`);
  await until("the charts", async () => (await names()).join() === "client,last");
  await until("the lines", async () => (await linesOf("client")).length === 3);
  const over = (name, value) => rounds.map((round) => ({x: round.t, y: round.metrics[name][value]}));
  const [mean, min, max] = await linesOf("client");
  assert.deepEqual([mean.points, min.points, max.points], ["mean", "min", "max"].map((value) => over("client", value)));
  assert.deepEqual([mean.fill, min.fill, max.fill], [false, false, "-1"]);
  const last = await linesOf("last"); // all clients are at the same point
  assert.deepEqual(last.map(({label}) => label), ["Mean"]);
  assert.deepEqual(last[0].points, over("last", "mean"));
  const summary = page.locator('[data-metric="client"] .summary');
  assert.equal(await summary.textContent(), `client 1.5, clients 0 to 3, in round ${rounds.length}.`);
  assert.deepEqual((await tiles())[0], ["client", "1.5", "1.5, clients 0 to 3"]);
  assert.deepEqual((await tiles())[1].slice(0, 3), ["last", (await tiles())[1][1], String(job.metrics.last.mean)]);
  await page.click('[data-metric="client"] .legend button:has-text("Minimum")');
  assert.deepEqual((await linesOf("client")).map(({hidden}) => hidden), [false, true, false]);
  await window.picture("metrics");
  await window.assertNoOverflow("metrics");
});

test("the metrics of a live job grow without a reload", async () => {
  const id = await stage.submit({...MOODY, name: "live", horizon: 50_000_000});
  await window.go(`#/job/${id}`);
  await until("the chart", async () => (await linesOf("client")).length === 3);
  const n = (await linesOf("client"))[0].points.length;
  await until("more points", async () => (await linesOf("client"))[0].points.length > n + 5);
  assert.equal((await tiles()).length, 2);
  await fetch(`${stage.url}/v1/jobs/${id}/cancel`, {method: "POST"});
  await stage.ended(id);
});

test("the comparison has a chart for a metric that all jobs have, and none for others", async () => {
  const ids = [await stage.submit({...MOODY, name: "one"}), await stage.submit({...MOODY, name: "two", seed: 2}), await stage.submit(SILENT)];
  const jobs = [];
  for (const id of ids) {
    jobs.push(await stage.ended(id));
  }
  await window.go(`#/compare/${ids[0]},${ids[1]}?seeds=apart`);
  await until("the lines", async () => (await linesOf("last")).filter(({points}) => points.length > 1).length === 2);
  assert.deepEqual(await names(), ["client", "last"]);
  assert.deepEqual((await linesOf("last")).map(({points}) => points.at(-1).y), jobs.slice(0, 2).map(({metrics}) => metrics.last.mean));
  await page.click(".legend button >> nth=0");
  await until("a line less", async () => (await linesOf("last"))[0].hidden);
  await window.picture("compare-metrics");
  await window.go(`#/compare/${ids[0]},${ids[2]}`);
  await until("the losses", async () => (await window.lines(4)).filter((line) => line.length > 1).length === 2);
  assert.deepEqual(await names(), []);
});

test("a job without metrics has neither charts nor values for them", async () => {
  const id = await stage.submit({...SILENT, name: "says nothing"});
  await stage.ended(id);
  assert.equal((await stage.get(`/v1/jobs/${id}/series`)).metrics, undefined);
  await window.go(`#/job/${id}`);
  await until("the curve", async () => ((await window.lines(0))[0] ?? []).length > 1);
  assert.deepEqual(await names(), []);
  assert.ok(await page.isHidden(".metric-tiles"));
});
