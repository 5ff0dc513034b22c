// What the dashboard draws against what, what it explains, how it groups seeds, and that it fits a phone.
//
// The plug-in `moody` reports `client`, the client's number, and `last`, a coordinate of its point.
import assert from "node:assert/strict";
import {readFile} from "node:fs/promises";
import path from "node:path";
import {after, before, test} from "node:test";

import {Stage, Window, closeAll, launch} from "./dashboard-support.mjs";
import {until} from "./programs.mjs";

const PLUGIN = path.resolve(process.env.TALLY_BIN, "../plugins/moody.so");
const PHONE = {viewport: {width: 360, height: 780}, hasTouch: true};
const MOODY = {
  name: "moody", algorithm: {type: "minibatch_sgd", step_size: 0.1, local_steps: 4}, clients: 4, horizon: 40, minibatch: 1, seed: 1,
  objective: {type: "plugin", name: "moody", dim: 7}, initial_point: {type: "random_sphere", radius: 1},
  reference: {type: "none"},
};
const CEAL = {
  name: "ceal", algorithm: {type: "ceal", step_size: 2, sigma: 4.47, sample_scale: 0.1, log_factor: false, first_stage: 3}, clients: 4,
  objective: {type: "least_squares", data: {type: "synthetic_linear", dim: 30, points: 2000, frobenius_norm: 100, noise_std: 1}},
  horizon: 1000, minibatch: 1, seed: 1, encoding: "unary", initial_point: {type: "random_sphere", radius: 1},
};

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

const done = async (document) => stage.ended(await stage.submit(document));
const roundsOf = async ({id}) => (await stage.get(`/v1/jobs/${id}/rounds?limit=1000`)).rounds;
const hash = () => new URL(page.url()).hash;

// The lines of the visible charts by title: {title: [{label, dash, fill, hidden, points: [{x, y}]}]}.
const charts = () => page.evaluate(() => Object.fromEntries([...document.querySelectorAll(".chart")].filter((card) => !card.hidden).map((card) => [
  card.querySelector("h2").textContent, Chart.getChart(card.querySelector("canvas")).data.datasets
    .map(({label, data, fill, borderDash, hidden}) => ({label, fill, dash: borderDash.join(), hidden: Boolean(hidden), points: data.map(({x, y}) => ({x, y}))})),
])));
const visible = async () => Object.keys(await charts());

test("every chart over a horizontal axis can be drawn against steps, rounds, seconds and bits up + down", async () => {
  const job = await done(MOODY);
  const rounds = await roundsOf(job);
  assert.equal(rounds.length, 10);
  let [up, down, latest] = [0, 0, 0];
  const places = {steps: [], rounds: [], seconds: [], bits: []};
  for (const {t, round, closed_ms: closed, bits} of rounds) {
    up += bits.uplink.payload;
    down += bits.downlink.payload;
    latest = Math.max(latest, (closed - job.started_ms) / 1000);
    places.steps.push(t);
    places.rounds.push(round);
    places.seconds.push(latest);
    places.bits.push(up / job.clients + down);
  }
  await window.go(`#/job/${job.id}`);
  await until("the charts", async () => (await visible()).length === 5);
  for (const [axis, xs] of Object.entries(places)) {
    await page.selectOption("#axis", axis);
    await until(axis, async () => String((await charts()).client[0].points.map(({x}) => x)) === String(xs));
    const shown = await charts();
    for (const [title, member] of [["client", "client"], ["last", "last"]]) {
      assert.deepEqual(shown[title][0].points, rounds.map(({metrics}, i) => ({x: xs[i], y: metrics[member].mean})));
    }
    assert.deepEqual(shown.Loss[0].points, rounds.map(({loss}, i) => ({x: xs[i], y: loss})));
    assert.deepEqual(shown["Cumulative bits (payload)"][0].points.map(({x}) => x), [0, ...xs]);
    assert.equal(hash(), axis === "steps" ? `#/job/${job.id}` : `#/job/${job.id}?x=${axis}`);
    const title = await page.evaluate(() => Chart.getChart(document.querySelector("[data-metric] canvas")).options.scales.x.title.text);
    assert.match(title, {steps: /Time steps/, rounds: /Rounds/, seconds: /Seconds/, bits: /Bits up per client \+ down/}[axis]);
  }
  await page.reload();
  await until("the axis of the address", async () => (await charts()).client?.[0].points.at(-1).x === places.bits.at(-1));
  await page.goBack();
  await until("the axis before", async () => (await charts()).client?.[0].points.at(-1).x === places.seconds.at(-1));
});

test("mean, minimum and maximum have three styles, in the chart and in its legend", async () => {
  await window.go(`#/job/${(await done(MOODY)).id}`);
  await until("the lines", async () => (await charts()).client?.length === 3);
  const [mean, min, max] = (await charts()).client;
  assert.equal(new Set([mean.dash, min.dash, max.dash]).size, 3);
  assert.equal(max.fill, "-1");
  const legend = await page.locator('[data-metric="client"] .legend line').evaluateAll((lines) => lines.map((line) => line.getAttribute("stroke-dasharray").replaceAll(" ", ",")));
  assert.deepEqual(legend, [mean.dash, min.dash, max.dash]);
});

test("a chart without data is not drawn", async () => {
  const job = await done({...CEAL, name: "regret"});
  await window.go(`#/job/${job.id}`);
  await until("the charts", async () => (await visible()).includes("Epoch length"));
  assert.deepEqual(await visible(), ["Cumulative regret", "Cumulative bits (payload)", "Regret against bits (payload)", "Epoch length", "Loss"]);
  // A job of which nothing is known but the bits: neither a loss nor a regret.
  await page.route("**/series?**", async (route) => {
    const response = await route.fetch();
    const series = await response.json();
    const at = (name) => series.columns.indexOf(name);
    series.rows.forEach((row) => { row[at("loss")] = null; row[at("cumulative_regret")] = null; });
    await route.fulfill({response, json: series});
  });
  await window.go("#/");
  await window.go(`#/job/${job.id}`);
  await until("the other charts", async () => (await visible()).length > 0);
  assert.deepEqual(await visible(), ["Cumulative bits (payload)", "Epoch length"]);
  await page.unroute("**/series?**");
  const queued = await stage.submit({...MOODY, clients: 50});
  await window.go(`#/job/${queued}`);
  await until("the words", async () => (await window.text("main .empty")) === "No round has closed yet.");
  assert.deepEqual(await visible(), []);
  await fetch(`${stage.url}/v1/jobs/${queued}/cancel`, {method: "POST"});
});

test("seconds per round, the time that remains or that the job took, and bits as bytes", async () => {
  const job = await done({...CEAL, name: "paced"});
  await window.go(`#/job/${job.id}`);
  const tile = (name) => page.locator(`.tiles dt:text-is("${name}") + dd`);
  await until("the pace", async () => (await tile("Seconds per round").getAttribute("title")) === `${(job.finished_ms - job.started_ms) / job.round} ms`);
  assert.match(await tile("Took").textContent(), /^[\d.]+\ss$|min/);
  const bytes = job.bits.uplink_per_client.payload / 8;
  assert.equal((await page.locator(".tiles dd.also").first().textContent()).replace("\u00a0", " "), `${Number(bytes.toPrecision(3))} B`);
  const [paces, sizes] = await page.evaluate(async () => {
    const {paceOf} = await import("/assets/pace.js");
    const {size, span} = await import("/assets/format.js");
    const running = {status: "running", started_ms: 1000, finished_ms: null, horizon: 100, round: 20};
    const points = Array.from({length: 20}, (_, i) => ({round: i + 1, timeStep: 2 * (i + 1), closedMs: 1000 + 500 * (i + 1)}));
    const text = (value) => String(value).replaceAll("\u00a0", " ");
    return [
      [paceOf(running, points, 11_000), paceOf(running, points, 0), paceOf({...running, status: "paused"}, points, 11_000),
        paceOf(running, [], 11_000), paceOf(running, points.map((point) => ({...point, closedMs: null})), 11_000),
        paceOf(running, points.map((point, i) => ({...point, closedMs: i < 18 ? 9_000_000 : point.closedMs})), 11_000)],
      [[0, 7999, 8000, 323_483_200, 7_999_999, 8e9, 8e12, 8e15, NaN].map((bits) => text(size(bits))), [0, 900, 65_000, 3_900_000, 90_000_000].map((ms) => text(span(ms)))],
    ];
  });
  const known = {perRound: 500, remaining: 15_000, took: null};
  assert.deepEqual(paces, [known, known, {...known, remaining: null}, {perRound: null, remaining: null, took: null}, {perRound: null, remaining: null, took: null}, known]);
  assert.deepEqual(sizes, [["0 B", "1 KB", "1 KB", "40.4 MB", "1 MB", "1 GB", "1 TB", "1,000 TB", "\u2013"], ["0 s", "0.9 s", "1 min 5 s", "1 h 5 min", "1 d 1 h"]]);
});

test("models are saved as .npy, the best one as well; what stopped the job is told", async () => {
  const plain = await done(MOODY);
  const job = await done({...MOODY, name: "keeps", keep: {best: "last", better: "higher"}, stop: {metric: "last", at_least: -1000}});
  const fact = page.locator('.facts dt:text-is("Stopped by") + dd');
  const best = page.locator("button:text-is('best.npy')");
  for (const [{id}, isKept] of [[plain, false], [job, true]]) {
    await window.go(`#/job/${id}`);
    await until("the job", async () => (await window.text(".title code")) === id && (await window.text(".badge")) === "completed");
    assert.equal(await best.isVisible(), isKept);
    const button = isKept ? best : page.locator("button:text-is('model.npy')");
    const [file] = await Promise.all([page.waitForEvent("download"), button.click()]);
    assert.equal(file.suggestedFilename(), `tally-${id}-${isKept ? "best" : "model"}.npy`);
    const wanted = await fetch(`${stage.url}/v1/jobs/${id}/model${isKept ? "?which=best" : ""}`, {headers: {Accept: "application/x-npy"}});
    assert.ok((await readFile(await file.path())).equals(Buffer.from(await wanted.arrayBuffer())));
  }
  assert.equal(job.stopped_by.rule, "metric");
  assert.match(await fact.textContent(), /^metric: -?[\d.]+ in round 1$/);
});

// Labels of what is visible and has no explanation.
const unexplained = (where) => where.evaluate(() => [...document.querySelectorAll("main dt, main th[scope=col], main h2, main .bits tbody th")]
  .filter((element) => element.checkVisibility() && element.textContent.trim() !== "" && element.querySelector(".ask") === null).map((element) => element.textContent));

test("every term and every chart has an explanation, for the keyboard and for fingers", async () => {
  const [moody, ceal] = [await done(MOODY), await done(CEAL)];
  const phone = await Window.open(browser, stage, PHONE);
  for (const viewer of [window, phone]) {
    for (const [where, ready] of [[`#/job/${ceal.id}`, ".chart"], [`#/job/${moody.id}`, "[data-metric]"], ["#/workers", ".workers tbody tr"]]) {
      await viewer.go(where);
      await viewer.page.locator(`main ${ready}`).first().waitFor();
      await until("the charts", async () => where === "#/workers" || (await viewer.page.locator(".chart:not([hidden])").count()) > 2);
      assert.deepEqual(await unexplained(viewer.page), [], where);
    }
    await viewer.go("#/");
    await viewer.page.locator("a.name").first().waitFor();
    assert.equal(await viewer.page.locator("thead .ask").evaluateAll((all) => all.filter((each) => each.checkVisibility()).length), 7);
  }
  const said = (viewer) => viewer.page.locator("#explanation");
  await window.go(`#/job/${moody.id}`);
  await page.locator('[data-metric="client"] h2 .ask').focus();
  await page.keyboard.press("Enter");
  await until("the explanation", async () => /band reaches from the minimum/.test(await said(window).textContent()));
  assert.equal(await page.locator(":focus").getAttribute("aria-expanded"), "true");
  assert.equal(await page.locator(":focus").getAttribute("aria-describedby"), "explanation");
  await page.keyboard.press("Escape");
  assert.ok(await said(window).isHidden());
  await page.keyboard.press("Enter");
  assert.ok(await said(window).isVisible());
  await page.keyboard.press("Tab");
  assert.ok(await said(window).isHidden(), "the focus is elsewhere");

  await phone.go(`#/job/${ceal.id}`);
  await phone.page.locator(".tiles").waitFor();
  for (const [term, text] of [["Iterate", /moved the point/], ["Stage", /precision/], ["Regret", /sum of f\(w\)/]]) {
    await phone.page.locator(`.tiles dt:text-is("${term}") .ask`).tap();
    await until(term, async () => text.test(await said(phone).textContent()));
    const box = await said(phone).boundingBox();
    assert.ok(box.x >= 0 && box.x + box.width <= PHONE.viewport.width, JSON.stringify(box));
  }
  await phone.page.locator("fieldset .sign").last().tap();
  await until("formula", async () => /the paper counts/.test(await said(phone).textContent()));
  await phone.close();
});

// The texts of elements whose content is wider than they are.
const cutOff = (where) => where.evaluate(() => [...document.querySelectorAll("main dd, main td, main th, main .summary, main h2")]
  .filter((element) => element.checkVisibility() && element.scrollWidth > element.clientWidth + 1 && getComputedStyle(element).overflowX !== "visible")
  .map((element) => element.textContent));
const tooWide = (where) => where.evaluate(() => [...document.querySelectorAll("main .scroll")]
  .filter((element) => element.checkVisibility() && element.scrollWidth > element.clientWidth + 1).map((element) => element.getAttribute("aria-label")));

test("no number is cut off on a phone", async () => {
  const jobs = [await done({...MOODY, name: "one"}), await done({...MOODY, name: "two", seed: 2}), await done(CEAL)];
  const phone = await Window.open(browser, stage, PHONE);
  const huge = (job) => {
    const bits = job.bits;
    for (const way of [bits.uplink, bits.downlink, bits.uplink_per_client]) {
      Object.keys(way).forEach((key) => { way[key] = key.includes("formula") ? way[key] : 98_765_432_109_876; });
    }
    return Object.assign(job, {loss: -1.234567e-100, horizon: 2 ** 31 - 1});
  };
  await phone.page.route(/\/v1\/jobs(\?|\/[0-9a-f]+$)/, async (route) => {
    const response = await route.fetch();
    const answer = await response.json();
    (answer.jobs ?? [answer]).forEach(huge);
    await route.fulfill({response, json: answer});
  });
  for (const [name, where] of [["list", "#/?metric=client"], ["job", `#/job/${jobs[0].id}?x=bits`], ["ceal", `#/job/${jobs[2].id}`],
    ["compare", `#/compare/${jobs.map(({id}) => id).join()}`], ["workers", "#/workers"]]) {
    await phone.go(where);
    await until(name, async () => name === "list" ? (await phone.page.locator("a.name").count()) > 2 : (await phone.page.locator("main tbody tr").count()) > 0);
    await phone.page.waitForTimeout(600); // until the first drawing
    assert.deepEqual([await cutOff(phone.page), await tooWide(phone.page)], [[], []], name);
    await phone.assertNoOverflow(name);
    await phone.picture(`look-${name}-360`);
  }
  await phone.close();
});

test("the list has a column for a metric, sorted by the coordinator, and tells it in its address", async () => {
  const jobs = [];
  for (const [name, seed] of [["m1", 11], ["m2", 12], ["m3", 13]]) {
    jobs.push(await done({...MOODY, name, seed, labels: {sorted: "metric"}}));
  }
  const without = await done({...CEAL, name: "has none", labels: {sorted: "metric"}});
  const shown = () => page.locator("tbody code").allTextContents();
  await window.go("#/?label=sorted");
  await until("the jobs", async () => (await shown()).length === 4);
  assert.ok(await page.isHidden("th:last-child"));
  assert.deepEqual(await page.locator("#metric-column option").allTextContents(), ["none", "client", "last"]);
  await page.selectOption("#metric-column", "last");
  const six = new Intl.NumberFormat("en-US", {maximumSignificantDigits: 6});
  const cells = () => page.locator("tbody td:last-child").allTextContents();
  const column = (list) => list.map(({metrics}) => (metrics === undefined ? "\u2013" : six.format(metrics.last.mean)));
  await until("the values", async () => String(await cells()) === String(column([without, ...jobs.toReversed()])));
  const falling = [...jobs].sort((a, b) => b.metrics.last.mean - a.metrics.last.mean);
  await page.click("th button.head:text-is('last')");
  await until("the greatest first", async () => String(await shown()) === String([...falling, without].map(({id}) => id)));
  assert.equal(await page.getAttribute("th:last-child", "aria-sort"), "descending");
  await page.click("th button.head:text-is('last')");
  await until("the least first", async () => String(await shown()) === String([...falling.toReversed(), without].map(({id}) => id)));
  assert.equal(await page.getAttribute("th:last-child", "aria-sort"), "ascending");
  assert.equal(new URLSearchParams(hash().split("?")[1]).get("sort"), "metric:last");
  await page.reload();
  await until("the same", async () => String(await shown()) === String([...falling.toReversed(), without].map(({id}) => id)));
  await page.selectOption("#metric-column", "client");
  await until("another metric", async () => hash().includes("sort=metric%3Aclient") && String(await cells()) === "1.5,1.5,1.5,\u2013");
  await page.selectOption("#metric-column", "");
  await until("no metric", async () => hash() === "#/?label=sorted" && String(await shown()) === String([without, ...jobs.toReversed()].map(({id}) => id)));
  await window.go("#/?metric=%3Cb%3E&sort=metric%3A%3Cb%3E");
  await until("the list", async () => (await shown()).length >= 4);
  assert.ok(await page.isHidden("th:last-child"));
});

test("jobs that differ only in their seed are one line: mean and deviation, in charts and in the table", async () => {
  const jobs = [];
  for (let seed = 1; seed <= 3; seed++) {
    jobs.push(await done({...MOODY, name: `seed ${seed}`, seed, labels: {run: String(seed)}}));
  }
  const other = await done({...MOODY, name: "other", algorithm: {...MOODY.algorithm, step_size: 0.05}});
  const rounds = await Promise.all(jobs.map(roundsOf));
  const spread = (values) => {
    const mean = values.reduce((a, b) => a + b) / values.length;
    return {mean, deviation: Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (values.length - 1))};
  };
  const near = (a, b) => assert.ok(Math.abs(a - b) <= 1e-9 * Math.max(1, Math.abs(b)), `${a} is not ${b}`);
  const where = `#/compare/${[...jobs, other].map(({id}) => id).join()}`;
  await window.go(`${where}?x=seconds`);
  await until("the lines", async () => (await charts()).last?.length === 4 && (await charts()).last[3].points.length === 10);
  const [mean, low, high, single] = (await charts()).last;
  assert.deepEqual([mean.label, single.label], ["seed 1 (3 seeds)", `other (${other.id})`]);
  assert.equal(high.fill, "-1");
  rounds[0].forEach((_, i) => {
    const expected = spread(rounds.map((each) => each[i].metrics.last.mean));
    near(mean.points[i].y, expected.mean);
    near(low.points[i].y, expected.mean - expected.deviation);
    near(high.points[i].y, expected.mean + expected.deviation);
    near(mean.points[i].x, spread(rounds.map((each, k) => (each[i].closed_ms - jobs[k].started_ms) / 1000)).mean);
  });
  const rows = await page.locator("section:has(h2:text-is('Now')) tbody tr").allInnerTexts();
  assert.equal(rows.length, 5);
  const {mean: last, deviation} = spread(jobs.map(({metrics}) => metrics.last.mean));
  const six = new Intl.NumberFormat("en-US", {maximumSignificantDigits: 6});
  assert.ok(rows[0].includes("seed 1: 3 seeds") && rows[0].includes(`${six.format(last)} \u00b1 ${six.format(Number(deviation.toPrecision(3)))}`), rows[0]);
  assert.deepEqual(await page.locator("section:has(h2:text-is('Now')) tbody a").allTextContents(), ["seed 1", "seed 2", "seed 3", "other"]);
  const differing = page.locator("section:has(h2:text-is('Parameters that differ')) tbody tr");
  assert.deepEqual((await differing.allTextContents()).sort(), ["algorithm.step_size0.10.05", "labels.run1, 2, 3\u2013", "seed1, 2, 31"].sort());
  await window.picture("look-compare-seeds");
  await page.click(".legend-item >> nth=0");
  await until("the group hidden", async () => String((await charts()).last.map(({hidden}) => hidden)) === "true,true,true,false");
  await page.click(".legend-item >> nth=0");
  await page.uncheck("#group-seeds");
  await until("each by itself", async () => (await charts()).last.length === 4 && (await charts()).last.every(({label, fill}) => !fill && label.includes("(")));
  assert.equal(hash(), `${where}?x=seconds&seeds=apart`);
});

test("any number of jobs is compared, and the list chooses them", async () => {
  const ids = (await stage.get("/v1/jobs?limit=1000&status=completed")).jobs.map(({id}) => id);
  assert.ok(ids.length > 12, `${ids.length} jobs`);
  let [nNow, nMost] = [0, 0];
  const counts = (by) => (request) => {
    if (/\/(series|jobs\/[0-9a-f]+$)/.test(request.url())) {
      nNow += by;
      nMost = Math.max(nMost, nNow);
    }
  };
  const [begin, end] = [counts(1), counts(-1)];
  page.on("request", begin);
  page.on("requestfinished", end);
  await window.go("#/?status=completed");
  await page.click("thead input");
  await page.click("a.button:has-text('Compare')");
  await until("all names", async () => (await page.locator("section:has(h2:text-is('Now')) tbody a").count()) === Math.min(25, ids.length));
  assert.match(await window.text("h1"), new RegExp(`Comparison of ${Math.min(25, ids.length)} jobs`));
  assert.ok(nMost >= 1 && nMost <= 4, `${nMost} requests at a time`);
  page.off("request", begin);
  page.off("requestfinished", end);
});

test("sixteen metrics of long jobs: charts out of view are drawn when they come into view", async () => {
  const names = ["constructor", ...Array.from({length: 15}, (_, i) => `metric_${i}`)];
  const job = await done({...CEAL, name: "large"});
  const n = 3000;
  const other = await Window.open(browser, stage);
  other.check = () => {}; // these series are ours
  await other.page.route("**/series?**", async (route) => {
    const response = await route.fetch();
    const series = await response.json();
    const at = (name) => series.columns.indexOf(name);
    const rows = Array.from({length: n}, (_, i) => Object.assign([...series.rows[0]], {[at("round")]: i + 1, [at("time_step")]: i + 1}));
    const metrics = Object.fromEntries(names.map((name, k) => [name, Object.fromEntries(["mean", "min", "max"].map((value, v) =>
      [value, rows.map((_, i) => (name === "constructor" && i % 2 === 0 ? null : Math.sin(i / 100) + 10 * v * k))]))]));
    await route.fulfill({response, json: {...series, rounds: n, rows, metrics}});
  });
  await other.go(`#/job/${job.id}`);
  const drawn = (name) => other.page.evaluate((wanted) => Chart.getChart(document.querySelector(`[data-metric="${wanted}"] canvas`)).data.datasets.map(({data}) => data.length), name);
  await until("the cards", async () => (await other.page.locator("[data-metric]:not([hidden])").count()) === 16);
  assert.deepEqual(await drawn("metric_14"), []);
  assert.match(await other.page.locator('[data-metric="metric_14"] .summary').textContent(), /^metric_14 -?[\d.]+, clients .* in round 3,000\.$/);
  await other.page.locator('[data-metric="metric_14"]').scrollIntoViewIfNeeded();
  await until("the chart", async () => String(await drawn("metric_14")) === [n, n, n].join());
  await other.page.locator('[data-metric="constructor"]').scrollIntoViewIfNeeded();
  await until("the chart of rounds that lack the metric", async () => String(await drawn("constructor")) === String(n / 2));
  other.nChecked = 1;
  await other.close();
});

test("interpolation of seeds whose rounds end at different time steps", async () => {
  await window.go("#/");
  const mean = await page.evaluate(async () => {
    const {meanLine} = await import("/assets/groups.js");
    const line = (...points) => points.map(([at, x, y]) => ({at, x, y}));
    return [
      meanLine([line([0, 0, 0], [10, 100, 10]), line([5, 7, 6], [10, 9, 8])]),
      meanLine([line([1, 1, 1]), line([2, 2, null])]),
      meanLine([[], []]),
    ];
  });
  const deviation = (a, b) => Math.abs(a - b) / Math.SQRT2;
  assert.deepEqual(mean[0].map(({x, y}) => [x, y]), [[28.5, 5.5], [54.5, 9]]);
  mean[0].forEach((point, i) => assert.ok(Math.abs(point.deviation - deviation(...[[5, 6], [10, 8]][i])) < 1e-12));
  assert.deepEqual(mean.slice(1), [[{x: 1, y: 1, deviation: 0}], []]);
});
