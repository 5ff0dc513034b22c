// The dashboard in a real browser, against a real coordinator and real workers.
//
// tests/run copies this file to build/e2e, beside node_modules. Screenshots are written to
// $TALLY_SCREENSHOTS, or to screenshots/ beside this file.
import assert from "node:assert/strict";
import {readFile, writeFile} from "node:fs/promises";
import http from "node:http";
import path from "node:path";
import {after, afterEach, before, test} from "node:test";
import {gunzipSync} from "node:zlib";

import {Stage, Window, launch} from "./dashboard-support.mjs";
import {until} from "./programs.mjs";

const MARKUP = "<img src=x onerror=alert(1)>";
const N_MANY = 100_000;

const LEAST_SQUARES = {
  type: "least_squares",
  data: {type: "synthetic_linear", dim: 30, points: 2000, frobenius_norm: 100, noise_std: 1},
};
const CEAL = {
  name: "ceal",
  algorithm: {
    type: "ceal", step_size: 2.0, sigma: 4.47, delta: 0.1, gamma0: 2.0, phi0: 2.0,
    sample_scale: 0.1, log_factor: false, first_stage: 3, gradient_bound: 1.0,
  },
  objective: LEAST_SQUARES, clients: 10, horizon: 2000, minibatch: 1, seed: 1, encoding: "unary",
  initial_point: {type: "random_sphere", radius: 1.0}, reference: {type: "solve"},
};
// One round per time step: runs for as long as a test looks at it.
const LONG = {
  name: "long", algorithm: {type: "minibatch_sgd", step_size: 0.01, local_steps: 1},
  objective: LEAST_SQUARES, clients: 10, horizon: 50_000_000, minibatch: 1, seed: 1,
  initial_point: {type: "random_sphere", radius: 1.0}, reference: {type: "solve"},
};

// Has a plan for its budget before it starts.
const CALM = {
  ...CEAL, name: "calm", encoding: "dithered", budget: {uplink_bits: 263, downlink_bits: 289},
  algorithm: {
    type: "calm", step_size: 3.0, noise: 0.6667, noise_growth: 3.333, client_spread: 0.03,
    curvature_spread: 0.0144, initial_variance: 0.06667, local_step_limit: 0.1,
  },
};

let browser, stage, window, page;

before(async () => {
  [browser, stage] = await Promise.all([launch(), Stage.open()]);
  stage.startWorker("one", 10);
  window = await Window.open(browser, stage);
  page = window.page;
});

after(async () => {
  await browser?.close();
  await stage?.close();
});

// A failed test must not keep the worker from the next one.
afterEach(async () => {
  for (const state of ["running", "paused"]) {
    for (const {id} of (await stage.get(`/v1/jobs?status=${state}`)).jobs) {
      await fetch(`${stage.url}/v1/jobs/${id}/cancel`, {method: "POST"});
    }
  }
});

const status = () => window.text(".badge");
const mode = () => window.text(".mode");

async function press(action, where = page) {
  await where.click(`button[data-action=${action}]`);
  await where.click("dialog [data-confirm]");
}

const lastOf = (list) => list.at(-1);
const drawnRegret = async () => (await window.lines(0))[0] ?? [];

test("a job submitted through the form; its curve grows without reload; values are those of REST", async () => {
  await window.openForm();
  const options = await page.locator("#document-choice option").allTextContents();
  assert.ok(options.includes("mnist-fedpaq.json") && options.includes("synthetic-ceal.json"), String(options));
  await page.fill("#editor", JSON.stringify(LONG, null, 2));
  await page.evaluate(() => { window.sameDocument = true; });
  await page.click("button[type=submit]");
  await until("the job's page", () => page.url().includes("#/job/"));
  const id = lastOf(page.url().split("/"));

  await until("points", async () => (await drawnRegret()).length > 10);
  assert.equal(await until("the stream", async () => (await mode()) === "live" && "live"), "live");
  const first = lastOf(await drawnRegret());
  await until("more points", async () => lastOf(await drawnRegret()).x > 2 * first.x);
  const shiftBefore = await window.shift();
  const second = lastOf(await drawnRegret());
  await until("more points", async () => lastOf(await drawnRegret()).x > 2 * second.x);
  const shift = (await window.shift()) - shiftBefore;
  assert.ok(shift < 0.001, `layout shift ${shift} while data streamed`);
  assert.ok(await page.evaluate(() => window.sameDocument), "the page was not loaded again");

  await press("pause");
  await until("the pause", async () => (await status()) === "paused");
  assert.equal((await stage.get(`/v1/jobs/${id}`)).status, "paused");
  await assertShowsRest(id);
  await press("resume");
  await until("the resumption", async () => (await status()) === "running");
  const third = lastOf(await drawnRegret());
  await until("points after the pause", async () => lastOf(await drawnRegret()).x > third.x);
  await press("cancel");
  await until("the end", async () => (await mode()) === "final");
  assert.equal(await status(), "cancelled");
  for (const action of ["pause", "resume", "cancel"]) {
    assert.ok(await page.isDisabled(`button[data-action=${action}]`), action);
  }
  await assertShowsRest(id);
});

test("a planned job: the regret that is expected is drawn, named and told beside the measured", async () => {
  const [id, unplanned] = [await stage.submit(CALM), await stage.submit(CEAL)];
  const job = await stage.ended(id);
  await stage.ended(unplanned);
  const expected = [{x: 0, y: 0}];
  for (const epoch of job.planned.epochs) {
    expected.push({x: lastOf(expected).x + epoch.samples, y: lastOf(expected).y + epoch.regret});
  }
  await window.go(`#/job/${id}`);
  await until("the curve", async () => lastOf(await drawnRegret())?.x === job.horizon);
  const [regret, planned] = await window.lines(0);
  assert.deepEqual(lastOf(regret), {x: job.horizon, y: job.cumulative_regret});
  assert.deepEqual(planned, expected);
  assert.ok(Math.abs(lastOf(planned).y / job.planned.regret - 1) < 1e-9);
  const dashes = await page.evaluate(() => Chart.getChart(document.querySelector("canvas")).data.datasets.map((set) => set.borderDash.length));
  assert.deepEqual(dashes, [0, 2]);
  const card = page.locator(".chart").first();
  assert.deepEqual(await card.locator(".legend-item").allTextContents(), ["Regret", "Planned regret"]);
  const label = await page.locator("canvas").first().getAttribute("aria-label");
  assert.match(label, /Planned: [\d.,]+ for [\d.]+ bits up per client and [\d.]+ down\./);
  assert.ok(label.includes(await window.text(".chart .summary")));
  await window.picture("planned");

  await window.go(`#/job/${unplanned}`);
  await until("the other curve", async () => (await window.lines(0)).length === 1 && (await drawnRegret()).length > 1);
  assert.ok(!(await page.locator("canvas").first().getAttribute("aria-label")).includes("Planned"));
});

// Compares the page of a job that does not change with the detail and the series.
async function assertShowsRest(id) {
  const job = await stage.get(`/v1/jobs/${id}`);
  await until("the last round", async () => lastOf(await drawnRegret()).x === job.time_step);
  const rounds = new Map((await stage.get(`/v1/jobs/${id}/series?points=10000`)).rows.map((row) => [row[1], row]));
  const [regret] = await window.lines(0);
  const [up, down] = await window.lines(1);
  assert.deepEqual(lastOf(regret), {x: job.time_step, y: job.cumulative_regret});
  assert.deepEqual(lastOf(up), {x: job.time_step, y: job.bits.uplink.payload / job.clients});
  assert.deepEqual(lastOf(down), {x: job.time_step, y: job.bits.downlink.payload});
  let compared = 0;
  regret.forEach((point, index) => {
    const row = rounds.get(point.x); // the two are thinned differently
    if (row !== undefined) {
      compared++;
      assert.deepEqual([point.y, up[index].y, down[index].y], [row[9], row[11] / job.clients, row[13]]);
    }
  });
  assert.ok(compared >= 2, `${compared} points in common`);
  await until("the numbers", async () =>
    (await page.locator(".tiles dd").first().getAttribute("title")) === String(job.cumulative_regret));
  const text = new Intl.NumberFormat("en-US");
  const wanted = [job.bits.uplink.formula, job.bits.uplink.payload].map((bits) => text.format(bits)).join();
  await until("the table of bits", async () => (await page.locator("section:has(> h2:text-is('Bits')) tbody tr").first()
    .locator("td").allTextContents()).slice(0, 2).join() === wanted);
}

test("the epoch lengths add up to the time steps", async () => {
  const id = await stage.submit({...CEAL, name: "epochs"});
  const job = await stage.ended(id);
  await window.go(`#/job/${id}`);
  await until("the bars", async () => (await window.lines(3))[0]?.length > 0);
  const [bars] = await window.lines(3);
  assert.equal(lastOf(bars).x, job.iterate);
  assert.equal(bars.reduce((sum, bar) => sum + bar.y, 0), job.time_step);
});

test("the curvature stands beside the parameters, and what it warns of stands out", async () => {
  const fact = (name) => page.locator(`.facts dt:text-is("${name}") + dd`);
  const six = new Intl.NumberFormat("en-US", {maximumSignificantDigits: 6});
  for (const [stepSize, warned] of [[50, true], [0.01, false]]) {
    const id = await stage.submit({...LONG, name: "steps", horizon: 5, algorithm: {...LONG.algorithm, step_size: stepSize}});
    const job = await stage.ended(id);
    assert.equal(job.warnings.length, warned ? 1 : 0);
    await window.go(`#/job/${id}`);
    await until("the smoothness", async () => (await fact("Smoothness").textContent()) === six.format(job.smoothness));
    assert.equal(await fact("Strong convexity").textContent(), six.format(job.strong_convexity));
    assert.equal(await fact("Warnings").textContent(), warned ? job.warnings[0] : "none");
    assert.equal(await fact("Warnings").getAttribute("class"), warned ? "warning" : "");
  }
});

test("the coordinator's complaint stands beside the editor, with the line", async () => {
  await window.openForm();
  window.expected.push("400 (Bad Request)");
  const wrong = JSON.stringify({...CEAL, objective: {...LEAST_SQUARES, data: {...LEAST_SQUARES.data, dim: 0}}}, null, 2);
  const n = wrong.split("\n").findIndex((line) => line.includes('"dim"')) + 1;
  const answer = await fetch(`${stage.url}/v1/jobs`, {method: "POST", headers: {"Content-Type": "application/json"}, body: wrong});
  const problem = await answer.json();
  await page.fill("#editor", wrong);
  await page.press("#editor", "Control+Enter");
  await until("the complaint", async () => (await page.locator("#problem .field").count()) > 0);
  assert.equal(await window.text("#problem .field"), problem.field);
  assert.equal(await window.text("#problem .detail"), problem.detail);
  assert.ok((await window.text("#problem")).includes(`line ${n}`), await window.text("#problem"));
  const chosen = await page.evaluate(() => {
    const editor = document.getElementById("editor");
    return editor.value.slice(editor.selectionStart, editor.selectionEnd);
  });
  assert.ok(chosen.includes('"dim": 0'), chosen);
  assert.ok(await page.isVisible(".mark"));
  await window.picture("submit");

  await page.fill("#editor", '{\n  "name": "x",\n  "clients" 3\n}');
  await page.press("#editor", "Control+Enter");
  await until("the other complaint", async () => (await window.text("#problem")).includes("line 3 column"));
  await page.fill("#editor", "{}");
  assert.ok(await page.isHidden(".mark"), "the mark goes with the first change");
});

test("the coordinator dies and comes back under an open page", async () => {
  const id = await stage.submit({...LONG, name: "survivor"});
  await window.go(`#/job/${id}`);
  await until("points", async () => (await drawnRegret()).length > 10 && (await mode()) === "live");
  window.expected.push("ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE", "ERR_INCOMPLETE_CHUNKED_ENCODING");
  await stage.end(stage.coordinator, "SIGKILL");
  await until("the banner", async () => (await window.text("#banner")).includes("Connection lost"));
  await window.picture("connection-lost");
  const known = lastOf(await drawnRegret());
  await stage.startCoordinator();
  await until("the page's recovery", async () => (await window.text("#banner")) === "" && (await mode()) === "live");
  await until("new points", async () => lastOf(await drawnRegret()).x > known.x);
  const xs = (await drawnRegret()).map(({x}) => x);
  assert.ok(xs.every((x, i) => i === 0 || x > xs[i - 1]), "each round once, in order");
  await press("cancel");
  await until("the end", async () => (await mode()) === "final");
  await assertShowsRest(id);
});

test("without a stream the page asks", async () => {
  const id = await stage.submit({...LONG, name: "asked for"});
  await page.route("**/events?**", (route) => route.fulfill({status: 501, contentType: "application/problem+json", body: "{}"}));
  window.expected.push("501 (Not Implemented)");
  await window.go(`#/job/${id}`);
  await until("polling", async () => (await mode()).startsWith("polling"));
  const known = lastOf(await drawnRegret()) ?? {x: 0};
  await until("more points", async () => (lastOf(await drawnRegret())?.x ?? 0) > known.x);
  await press("cancel");
  await until("the end", async () => (await mode()) === "final");
  await page.unroute("**/events?**");
  await assertShowsRest(id);
});

test("a name that is markup is text everywhere", async () => {
  const ids = [await stage.submit({...CEAL, name: MARKUP}), await stage.submit({...CEAL, name: MARKUP, seed: 2})];
  await Promise.all(ids.map((id) => stage.ended(id)));
  const noImage = async (where) => assert.equal(await page.locator("img").count(), 0, where);
  await window.go("#/");
  await until("the list", async () => (await page.locator("a.name").allTextContents()).filter((name) => name === MARKUP).length === 2);
  await noImage("list");
  await window.go(`#/job/${ids[0]}`);
  await until("the heading", async () => (await window.text("h1")) === MARKUP);
  await until("the title", async () => (await page.title()).startsWith(MARKUP));
  await noImage("job");
  await window.go(`#/compare/${ids.join(",")}`);
  await until("the comparison", async () => (await window.text(".legend")).includes(MARKUP));
  assert.ok((await window.text("tbody")).includes(MARKUP));
  await noImage("comparison");
  const id = await stage.submit({...LONG, name: MARKUP});
  await window.go(`#/job/${id}`);
  await until("the job", async () => (await status()) === "running");
  await page.click("button[data-action=cancel]");
  assert.ok((await window.text("dialog")).includes(MARKUP));
  await noImage("dialog");
  await page.click("dialog [data-confirm]");
  await stage.ended(id);
});

test("what a job waits for is said while it waits, on its page and in the list", async () => {
  const other = await Stage.open();
  const viewer = await Window.open(browser, other);
  const line = () => viewer.text(".waiting");
  try {
    const id = await other.submit({...LONG, clients: 2, name: "waits"});
    await viewer.go(`#/job/${id}`);
    await until("the wait for workers", async () => /^waits for 2 clients, 0 slots are free, since \d+\ss$/.test(await line()));
    const seconds = async () => Number(/since (\d+)/.exec(await line())[1]);
    const before = await seconds();
    await until("the seconds to pass", async () => (await seconds()) > before);
    other.startWorker("here", 1);
    const away = other.startWorker(MARKUP, 1);
    await until("the job to run", async () => (await viewer.text(".badge")) === "running");
    await until("the line to be empty", async () => (await line()) === "");
    const shift = await viewer.shift();
    away.kill("SIGSTOP");
    await until("the wait for the client", async () => (await line()).includes(`(${MARKUP}): round`));
    assert.match(await line(), /^waits for client [01] \(/);
    assert.ok((await viewer.shift()) - shift < 0.001, "nothing jumps");
    assert.equal(await viewer.page.locator(".waiting img").count(), 0);
    await viewer.picture("waiting");
    await viewer.go("#/");
    await until("the list's line", async () => (await viewer.text(".jobs .waits")).includes(MARKUP));
    assert.match(await viewer.text(".jobs .waits"), /^since \d+\ss: waits for client [01] \(/);
    await viewer.picture("waiting-list");
    away.kill("SIGCONT");
    await until("the list's line to be empty", async () => (await viewer.text(".jobs .waits")) === "");
    await viewer.go(`#/job/${id}`);
    await press("pause", viewer.page);
    await until("the wait for its owner", async () => (await line()).startsWith("is paused and waits to be resumed, since"));
  } finally {
    await viewer.close();
    await other.close();
  }
});

test("list and comparison", async () => {
  await stage.ended(await stage.submit({...CEAL, name: "ceal of seed 3", seed: 3}));
  await stage.ended(await stage.submit({...LONG, name: "minibatch", horizon: 2000,
    algorithm: {type: "minibatch_sgd", step_size: 1, local_steps: 50}}));
  await window.go("#/");
  const row = page.locator("tr", {hasText: "ceal of seed 3"});
  await row.waitFor();
  const job = (await stage.get("/v1/jobs?limit=10")).jobs.find(({name}) => name === "ceal of seed 3");
  const cells = await row.locator("td").allTextContents();
  assert.equal(cells[2], "completed");
  assert.equal(await row.locator("td").nth(4).getAttribute("title"), String(job.cumulative_regret));
  assert.equal(await row.locator("td").nth(6).locator("span").first().textContent(), new Intl.NumberFormat("en-US").format(job.bits.downlink.payload));
  await window.picture("list");
  assert.equal(await page.getAttribute("a.button:has-text('Compare')", "href"), null);
  await row.locator("input").check();
  await page.locator("tr", {hasText: "minibatch"}).locator("input").check();
  await page.click("a.button:has-text('Compare')");
  await until("the lines", async () => (await window.lines(0)).filter((line) => line.length > 1).length === 2);
  await page.selectOption("#reference", "synthetic");
  await until("the reference", async () => (await window.lines(2)).length === 6);
  const values = (await window.lines(2)).slice(2).map((line) => line[0].y);
  assert.deepEqual(values, [38400, 19200, 2440, 263.3]);
  await page.click(".chart:nth-child(1) button[data-log=y]");
  assert.equal(await page.evaluate(() => Chart.getChart(document.querySelector("canvas")).scales.y.type), "logarithmic");
  await page.click(".chart:nth-child(1) button[data-log=y]");
  assert.equal(await page.evaluate(() => Chart.getChart(document.querySelector("canvas")).scales.y.type), "linear");
  await window.picture("compare");
  await page.click(".legend-item >> nth=0");
  await until("one line less", () => page.evaluate(() => !Chart.getChart(document.querySelector("canvas")).isDatasetVisible(0)));
});

test("what a job does not know is said to be unknown, and what it found out is shown", async () => {
  const {sigma, gradient_bound: bound, ...algorithm} = CEAL.algorithm;
  assert.ok(sigma && bound);
  const id = await stage.submit({...CEAL, name: "knows little", algorithm: {...algorithm, sigma: "auto"},
    reference: {type: "none"}, domain: {type: "ball", radius: 0.5}});
  await stage.ended(id);
  const job = await stage.get(`/v1/jobs/${id}`);
  assert.equal(job.cumulative_regret, null);
  await window.go(`#/job/${id}`);
  const fact = (name) => page.locator(`.facts dt:text-is("${name}") + dd`).textContent();
  await until("the tile", async () => (await tile("Loss")) === String(job.loss));
  assert.ok(job.loss > 0);
  assert.ok(!(await page.locator(".tiles").innerText()).includes("Regret"), "no tile without a value");
  assert.equal(await fact("f(x*)"), "unknown");
  assert.equal(await fact("Domain"), "type ball, radius 0.5");
  assert.match(await fact("Estimates"), /^sigma [0-9.]+, gradient_bound [0-9.]+$/);
  await until("the bits", async () => (await window.lines(1))[0]?.length > 1);
  await assertDrawsLoss(job, "Loss", "Loss against bits (payload)");
  assert.ok(!JSON.parse(await page.locator("details pre").textContent()).estimates, "no part of the document");
  await window.go("#/");
  const row = page.locator("tr", {hasText: "knows little"});
  await row.waitFor();
  assert.equal((await row.locator("td").allTextContents())[4],
    `loss ${new Intl.NumberFormat("en-US", {maximumSignificantDigits: 6}).format(job.loss)}`);
  assert.equal(await row.locator("td").nth(4).getAttribute("title"), String(job.loss));
});

const tile = (name) => page.locator(`.tiles dt:text-is("${name}") + dd`).getAttribute("title");

// Returns the points of the lines of a visible chart, given its title.
const linesOf = (title) => page.evaluate((wanted) => {
  const cards = [...document.querySelectorAll(".chart")].filter((card) => !card.hidden && card.querySelector("h2").textContent === wanted);
  return cards.map((card) => Chart.getChart(card.querySelector("canvas")).data.datasets.map((set) => set.data.map(({x, y}) => ({x, y}))));
}, title);

// Compares the charts of the loss over time and, if there is one, over bits with the records.
async function assertDrawsLoss(job, title, against) {
  const {rounds} = await stage.get(`/v1/jobs/${job.id}/rounds`);
  const wanted = rounds.map((round) => ({x: round.t, y: round.loss}));
  assert.equal(lastOf(wanted).y, job.loss);
  await until("the loss", async () => lastOf((await linesOf(title))[0]?.[0] ?? [])?.x === job.horizon);
  assert.deepEqual(await linesOf(title), [[wanted]]);
  if (against !== undefined) {
    const [[up]] = await linesOf(against);
    assert.deepEqual(up.map(({y}) => y), wanted.map(({y}) => y));
    assert.equal(lastOf(up).x, job.bits.uplink.payload / job.clients);
  }
}

test("the loss is drawn and told beside the regret, and compared", async () => {
  const [id, other] = [await stage.submit({...CEAL, name: "loses"}), await stage.submit({...CEAL, name: "loses less", seed: 2, reference: {type: "none"}})];
  const jobs = [await stage.ended(id), await stage.ended(other)];
  await window.go(`#/job/${id}`);
  await until("the tile", async () => (await tile("Loss")) === String(jobs[0].loss));
  assert.equal(await tile("Regret"), String(jobs[0].cumulative_regret));
  await assertDrawsLoss(jobs[0], "Loss");
  assert.equal((await linesOf("Cumulative regret")).length, 1);
  await window.picture("loss");
  await window.go(`#/compare/${id},${other}`);
  await until("both lines", async () => ((await linesOf("Loss"))[0] ?? []).filter((line) => line.length > 1).length === 2);
  assert.deepEqual((await linesOf("Loss"))[0].map((line) => lastOf(line).y), jobs.map((job) => job.loss));
  const least = jobs[0].loss < jobs[1].loss ? "loses" : "loses less";
  assert.ok((await page.locator(".chart", {has: page.locator("h2:text-is('Loss')")}).locator(".summary").textContent()).startsWith(`Least loss now: ${least} (`));
});

test("the list turns its pages", async () => {
  const {jobs} = await stage.get("/v1/jobs?limit=1000");
  for (let n = jobs.length; n < 27; n++) {
    await stage.submit({...CEAL, name: `page filler ${n}`});
  }
  const all = (await stage.get("/v1/jobs?limit=1000")).jobs.map(({id}) => id);
  const shown = () => page.locator("tbody code").allTextContents();
  await window.go("#/submit");
  await window.go("#/");
  await until("the first page", async () => (await shown()).join() === all.slice(0, 25).join());
  await page.click("button:text-is('Older')");
  await until("the second page", async () => (await shown()).join() === all.slice(25, 50).join());
  await page.click("button:text-is('Newer')");
  await until("the first page again", async () => (await shown()).join() === all.slice(0, 25).join());
});

async function download(click) {
  const [file] = await Promise.all([page.waitForEvent("download"), click()]);
  return {name: file.suggestedFilename(), bytes: await readFile(await file.path())};
}

test("values and pictures can be saved", async () => {
  const id = await stage.submit({...CEAL, name: "=saved"});
  const job = await stage.ended(id);
  await window.go(`#/job/${id}`);
  await until("the curve", async () => (await drawnRegret()).length > 2);
  const csv = await download(() => page.click(".chart:nth-child(1) [data-save=csv]"));
  assert.equal(csv.name, `tally-${id}-regret.csv`);
  const last = lastOf(csv.bytes.toString().trim().split("\n")).split(",");
  assert.deepEqual(last.slice(2).map(Number), [job.time_step, job.cumulative_regret]);
  const rounds = await download(() => page.click("[data-save=rounds]"));
  assert.equal(rounds.bytes.toString(), await (await fetch(`${stage.url}/v1/jobs/${id}/rounds.csv`)).text());
  const png = await download(() => page.click(".chart:nth-child(2) [data-save=png]"));
  assert.equal(png.bytes.subarray(1, 4).toString(), "PNG");
  assert.ok(png.bytes.length > 5000, `${png.bytes.length} bytes`);
  const corner = await page.evaluate(async (base64) => {
    const picture = await createImageBitmap(new Blob([Uint8Array.from(atob(base64), (c) => c.charCodeAt(0))], {type: "image/png"}));
    const canvas = new OffscreenCanvas(picture.width, picture.height).getContext("2d");
    canvas.drawImage(picture, 0, 0);
    return canvas.getImageData(picture.width - 2, picture.height - 2, 1, 1).data[3];
  }, png.bytes.toString("base64"));
  assert.equal(corner, 255, "the ground is opaque");
});

test("everything is in reach of the keyboard", async () => {
  const id = (await stage.get("/v1/jobs?status=completed&limit=1")).jobs[0].id;
  await window.close();
  window = await Window.open(browser, stage);
  page = window.page;
  await window.go("#/");
  await page.locator("a.name").first().waitFor();
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.className), "skip");
  await page.keyboard.press("Enter");
  await until("focus", () => page.evaluate(() => document.activeElement.id === "main"));
  const reached = [];
  for (let i = 0; i < 40 && !reached.includes("name"); i++) {
    await page.keyboard.press("Tab");
    reached.push(await page.evaluate(() => document.activeElement.className || document.activeElement.type || document.activeElement.tagName));
    const ring = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
    assert.notEqual(ring, "none", `focus is visible on ${lastOf(reached)}`);
  }
  assert.ok(reached.includes("checkbox") && reached.includes("name"), String(reached));
  await page.keyboard.press("Enter");
  await until("a job's page", () => page.url().includes("#/job/"));
  await until("focus", () => page.evaluate(() => document.activeElement.id === "main"));

  await window.go(`#/job/${id}`);
  await until("the curve", async () => (await drawnRegret()).length > 2);
  await page.locator("canvas").first().focus();
  await page.keyboard.press("End");
  const job = await stage.get(`/v1/jobs/${id}`);
  const text = new Intl.NumberFormat("en-US", {maximumSignificantDigits: 6}).format(job.cumulative_regret);
  await until("the value read out", async () => (await page.textContent("#announcer")).includes(text));
  assert.ok((await page.getAttribute("canvas", "aria-label")).includes(text), "the chart says what it shows");

  const live = await stage.submit({...LONG, name: "keyboard"});
  await window.go(`#/job/${live}`);
  await until("the job", async () => (await status()) === "running");
  await page.locator("button[data-action=cancel]").focus();
  await page.keyboard.press("Enter");
  await page.locator("dialog").waitFor();
  await page.keyboard.press("Escape");
  await until("the dialog's end", async () => (await page.locator("dialog").count()) === 0);
  assert.equal((await stage.get(`/v1/jobs/${live}`)).status, "running");
  await page.keyboard.press("Enter");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  assert.equal((await stage.ended(live)).status, "cancelled");
});

test("nothing is wider than a window of 400 px", async () => {
  const {jobs} = await stage.get("/v1/jobs?limit=3");
  const long = await stage.submit({...CEAL, name: "n".repeat(60)});
  await stage.ended(long);
  const narrow = await Window.open(browser, stage, {viewport: {width: 400, height: 800}});
  const pages = {
    list: ["#/", "a.name"], job: [`#/job/${long}`, ".badge[data-status]"],
    compare: [`#/compare/${[long, ...jobs.map(({id}) => id)].join(",")}`, "tbody a"], submit: ["#/submit", "option"],
    workers: ["#/workers", ".workers tbody tr"], none: ["#/nothing/here", ".error"],
  };
  for (const [name, [hash, selector]] of Object.entries(pages)) {
    await narrow.go(hash);
    await narrow.page.locator(selector).first().waitFor({state: "attached"});
    await narrow.page.waitForTimeout(400); // until the first drawing
    await narrow.page.evaluate(() => { // names of documents, jobs and metrics are as long as people like
      document.querySelectorAll("select").forEach((select) => select.append(new Option("n".repeat(60))));
    });
    await narrow.assertNoOverflow(name);
    await narrow.picture(`${name}-400`);
  }
  await narrow.close();
});

test("dark", async () => {
  const {jobs} = await stage.get("/v1/jobs?status=completed&limit=1");
  const dark = await Window.open(browser, stage, {colorScheme: "dark"});
  const ground = () => dark.page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  for (const [name, hash] of [["list", "#/"], ["job", `#/job/${jobs[0].id}`], ["submit", "#/submit"]]) {
    await dark.go(hash);
    await dark.page.locator("h1").waitFor();
    await dark.page.waitForTimeout(600);
    await dark.picture(`${name}-dark`);
  }
  const night = await ground();
  await dark.page.click("#theme");
  const day = await ground();
  assert.notEqual(day, night);
  await dark.page.reload();
  assert.equal(await ground(), day, "the choice outlives the page");
  await dark.page.click("#theme");
  assert.equal(await ground(), night);
  await dark.close();
});

test("a token is refused, accepted, kept in the session only, and forgotten", async () => {
  const closed = await Stage.open(
    "--admin-token-file", await tokenFile(stage.folder, "correct-horse-battery"),
    "--worker-token-file", await tokenFile(stage.folder, "token-of-the-workers"));
  const visitor = await Window.open(browser, closed);
  visitor.expected.push("401 (Unauthorized)", "403 (Forbidden)");
  try {
    await visitor.go("#/");
    await visitor.page.locator("#token-input").waitFor();
    await visitor.picture("token");
    for (const token of ["wrong", "token-of-the-workers"]) {
      await visitor.page.fill("#token-input", token);
      await visitor.page.keyboard.press("Enter");
      await until("the refusal", async () => (await visitor.page.locator("dialog .error").textContent()).includes("refused")
        && await visitor.page.inputValue("#token-input") === "");
    }
    await visitor.page.fill("#token-input", "correct-horse-battery");
    await visitor.page.keyboard.press("Enter");
    await until("the list", async () => (await visitor.page.locator("dialog").count()) === 0 && visitor.page.isVisible(".empty"));
    const kept = await visitor.page.evaluate(() => [Object.values(sessionStorage), JSON.stringify(localStorage), document.cookie]);
    assert.deepEqual(kept[0], ["correct-horse-battery"]);
    assert.ok(!kept[1].includes("correct") && kept[2] === "");
    await visitor.page.reload();
    await until("the list again", () => visitor.page.isVisible(".empty"));
    assert.equal(await visitor.text("#token"), "Forget token");
    await visitor.page.click("#token");
    await visitor.page.locator("#token-input").waitFor();
    assert.equal(await visitor.page.evaluate(() => sessionStorage.length), 0);
    await visitor.page.keyboard.press("Escape");
    await until("the dialog's end", async () => (await visitor.page.locator("dialog").count()) === 0);
    assert.equal(await visitor.text("#token"), "Enter token");
    await visitor.page.waitForTimeout(2500); // longer than the list's interval: it must not send requests without a token
    assert.equal(await visitor.page.locator("dialog").count(), 0);
    await visitor.close();
  } finally {
    await closed.close();
  }
});

async function tokenFile(folder, token) {
  const file = path.join(folder, token);
  await writeFile(file, `${token}\n`, {mode: 0o600});
  return file;
}

test("a job of 100,000 rounds", async (t) => {
  const id = await stage.submit({...LONG, name: "many rounds", clients: 1, horizon: N_MANY});
  const job = await stage.ended(id);
  assert.equal(job.round, N_MANY);
  const visitor = await Window.open(browser, stage);
  const started = Date.now();
  await visitor.go(`#/job/${id}`);
  await until("the curve", async () => lastOf((await visitor.lines(0))[0] ?? [])?.x === N_MANY);
  t.diagnostic(`opened in ${Date.now() - started} ms`);
  const [regret] = await visitor.lines(0);
  assert.ok(regret.length <= 4001, `${regret.length} points`);
  assert.deepEqual(lastOf(regret), {x: N_MANY, y: job.cumulative_regret});
  await visitor.picture("job");
  await visitor.close();
});

test("what the coordinator says with the files", async () => {
  const answer = await fetch(`${stage.url}/`);
  const policy = answer.headers.get("content-security-policy");
  assert.ok(policy.includes("default-src 'none'") && !policy.includes("unsafe"), policy);
  assert.equal(answer.headers.get("x-content-type-options"), "nosniff");
  const tag = answer.headers.get("etag");
  const again = (value) => fetch(`${stage.url}/`, {headers: {"If-None-Match": value}, cache: "no-store"});
  for (const value of [tag, `W/${tag}`, `"x", ${tag}`, "*"]) {
    assert.equal((await again(value)).status, 304, value);
  }
  for (const value of ['"x"', "x", `${tag.slice(0, -1)}`, '"', "W/"]) {
    assert.equal((await again(value)).status, 200, value);
  }
  const page = await answer.text();
  assert.ok(!/<script>|<style|\sstyle=|\son[a-z]+=|https?:/.test(page), "nothing inline, nothing from elsewhere");
  assert.equal((await fetch(`${stage.url}/assets/nothing.js`)).status, 404);
  assert.match(await (await fetch(`${stage.url}/assets/licenses.txt`)).text(), /Chart\.js[\s\S]*MIT License/);
  assert.match(await (await fetch(`${stage.url}/openapi.yaml`)).text(), /openapi: ["']?3\.1/);
});

// Uses node:http, since fetch() decompresses silently.
function rawGet(url, headers) {
  return new Promise((resolve, reject) => {
    http.get(url, {headers}, (response) => {
      const pieces = [];
      response.on("data", (piece) => pieces.push(piece));
      response.on("end", () => resolve({status: response.statusCode, headers: response.headers, body: Buffer.concat(pieces)}));
    }).on("error", reject);
  });
}

test("files are compressed for those who accept that", async () => {
  const url = `${stage.url}/assets/chart.js`;
  const plain = await rawGet(url, {});
  assert.equal(plain.headers["content-encoding"], undefined);
  assert.equal(plain.headers.vary, "Accept-Encoding");
  for (const accepted of ["gzip", "br, gzip;q=0.5", "GZIP"]) {
    const packed = await rawGet(url, {"Accept-Encoding": accepted});
    assert.equal(packed.headers["content-encoding"], "gzip", accepted);
    assert.ok(packed.body.length < 0.4 * plain.body.length, `${packed.body.length} of ${plain.body.length} bytes`);
    assert.ok(gunzipSync(packed.body).equals(plain.body));
    assert.notEqual(packed.headers.etag, plain.headers.etag);
    const known = {"Accept-Encoding": accepted, "If-None-Match": packed.headers.etag};
    assert.equal((await rawGet(url, known)).status, 304);
    assert.equal((await rawGet(url, {...known, "If-None-Match": plain.headers.etag})).status, 200);
  }
  for (const refused of ["gzip;q=0", "br", "xgzip", ""]) {
    const answer = await rawGet(url, {"Accept-Encoding": refused});
    assert.equal(answer.headers["content-encoding"], undefined, refused);
    assert.ok(answer.body.equals(plain.body));
  }
});

test("the event parser takes any pieces", async () => {
  await window.go("#/");
  const stream = ": heartbeat\r\nretry: 1000\n\nevent: round\nid: 7\ndata: {\"a\":\ndata: 1}\n\n\revent: job\r\ndata:x\r\n\r\ndata\n\nevent: half\ndata: lost";
  const results = await page.evaluate(async (text) => {
    const {EventParser} = await import("/assets/sse.js");
    const whole = JSON.stringify(new EventParser().push(text));
    const different = [];
    for (let size = 1; size < text.length; size++) {
      const parser = new EventParser();
      const events = [];
      for (let at = 0; at < text.length; at += size) {
        events.push(...parser.push(text.slice(at, at + size)));
      }
      if (JSON.stringify(events) !== whole) {
        different.push(size);
      }
    }
    return [whole, different];
  }, stream);
  assert.deepEqual(JSON.parse(results[0]), [
    {type: "round", data: '{"a":\n1}', id: "7"}, {type: "job", data: "x", id: "7"}, {type: "message", data: "", id: "7"},
  ]);
  assert.deepEqual(results[1], []);
});

test("thinning keeps the ends and the extremes", async () => {
  const [n, first, last, greatest] = await page.evaluate(async () => {
    const {thin} = await import("/assets/series.js");
    const points = Array.from({length: 5000}, (_, round) => ({round, norm: round === 2345 ? 99 : 1, loss: 1}));
    thin(points);
    return [points.length, points[0].round, points.at(-1).round, Math.max(...points.map(({norm}) => norm))];
  });
  assert.ok(n <= 4000, String(n));
  assert.deepEqual([first, last, greatest], [0, 4999, 99]);
});

test("no page did what it must not", async () => {
  await window.close();
});
