// Sweeps in the dashboard: a member is varied in the form, the jobs are one line of the list, and their page has a row and a dot for
// each variant.
import assert from "node:assert/strict";
import {after, before, test} from "node:test";

import {Stage, Window, closeAll, launch} from "./dashboard-support.mjs";
import {until} from "./programs.mjs";

const FEDAVG = {
  name: "base", algorithm: {type: "fedavg", step_size: 0.005, local_steps: 20}, clients: 4, horizon: 200, minibatch: 1, seed: 1,
  labels: {team: "edge"}, objective: {type: "least_squares", data: {type: "synthetic_linear", dim: 5, points: 200}},
};

let browser, stage, window, page;

before(async () => {
  [browser, stage] = await Promise.all([launch(), Stage.open()]);
  window = await Window.open(browser, stage);
  page = window.page;
});

after(() => closeAll(window, browser, stage));

const cells = (selector) => page.locator(selector).allTextContents();
const jobs = async () => (await stage.get("/v1/jobs?limit=1000")).jobs;
const TABLE = "section:has(h2:text-is('Variants')):not(.chart)";

async function vary(path, values, seeds) {
  await page.fill("#vary-path", path);
  await page.fill("#vary-values", values);
  await page.fill("#vary-seeds", seeds);
  await page.click("#vary-submit");
}

let address;

test("a member of an earlier job is varied over values and seeds", async () => {
  const first = await stage.submit(FEDAVG);
  await fetch(`${stage.url}/v1/jobs/${first}/cancel`, {method: "POST"});
  await window.go(`#/submit/${first}`);
  await until("its document", async () => (await page.inputValue("#editor")).includes('"base"'));
  await page.click("details.vary summary");
  assert.ok((await page.locator("#vary-paths option").evaluateAll((all) => all.map(({value}) => value))).includes("algorithm.step_size"));
  for (const [path, values, seeds, said] of [
    ["", "", "", "Name a member, or seeds."], ["algorithm.step_size", "0.1, {", "", "neither JSON nor words"],
    ["algorithm.step_size", "0.1", "9-1", "The seeds are"], ["algorithm.step_size", "0.1", "1-501", "at most 500"],
    ["algorithm.step_size", "", "", "Give values for the member"], ["seed", "1, 2", "1-2", "Give the seeds in one place"], ["algorithm..x", "1", "", "A member is a path"],
    ["name.x", "1", "", "name is no object"],
  ]) {
    await vary(path, values, seeds);
    await until(said, async () => (await window.text("#problem")).includes(said));
  }
  window.expected.push("400 (Bad Request)");
  await vary("algorithm.step_size", "0.05, -1", "");
  await until("the refusal", async () => (await window.text("#problem")).includes("1 of 2 variants were checked. The next one, algorithm.step_size -1, was not:"));
  assert.match(await window.text("#problem"), /algorithm\.step_size/);
  assert.equal((await jobs()).length, 1, "nothing is submitted unless all variants are valid");

  await page.fill("#vary-values", "0.005, 0.01, 0.002");
  await page.fill("#vary-seeds", "1-2");
  await page.press("#vary-seeds", "Enter");
  await until("their page", () => page.url().includes("#/sweep/sweep%3D"));
  address = page.url().slice(page.url().indexOf("#"));
  const made = (await jobs()).filter(({labels}) => labels.sweep !== undefined);
  assert.equal(made.length, 6);
  assert.deepEqual(new Set(made.map(({seed, algorithm}) => `${algorithm.step_size} ${seed}`)),
    new Set(["0.005 1", "0.005 2", "0.01 1", "0.01 2", "0.002 1", "0.002 2"]));
  assert.ok(made.every(({labels}) => labels.team === "edge"));
  await until("the rows", async () => (await cells(`${TABLE} tbody tr`)).length === 3);
  assert.match(await window.text("p.summary"), /^6 jobs in 3 variants; 6 not ended\./);
});

test("the jobs are one line of the list, unless it is filtered by them", async () => {
  await window.go("#/");
  await until("the line", async () => (await cells("table.jobs tbody a.name")).join() === "Sweep of 6 jobs,base");
  assert.equal(await page.locator("table.jobs tbody a.name").first().getAttribute("href"), address);
  assert.equal((await cells("table.jobs tbody tr:first-child .badge")).join(), "queued");
  await page.check("table.jobs tbody tr:first-child input");
  assert.equal(await window.text("a:has-text('Compare')"), "Compare (6)");
  await page.click("button:text-is('Clear')");
  await window.go(`#/?label=${decodeURIComponent(address.split("/").at(-1)).replace("=", "%3D")}`);
  await until("the jobs", async () => (await cells("table.jobs tbody a.name")).length === 6);
});

test("the page has a row and a dot for each variant, the best first", async () => {
  stage.startWorker("w", 8);
  await window.go(address);
  await until("the end", async () => (await window.text("p.summary")).includes("all have ended"));
  await until("the results", async () => (await cells(`${TABLE} tbody td`)).includes("2 completed"));
  assert.deepEqual((await cells(`${TABLE} thead th`)).map((text) => text.replace(/\?$/, "")).slice(0, 5),
    ["Job", "algorithm.step_size", "Seeds", "Status", "Regret"]);
  const sizes = await cells(`${TABLE} tbody td:nth-child(2)`);
  const made = (await jobs()).filter(({labels}) => labels.sweep !== undefined);
  const mean = (size) => made.filter(({algorithm}) => String(algorithm.step_size) === size).reduce((sum, job) => sum + job.cumulative_regret / 2, 0);
  assert.deepEqual(sizes, [...sizes].sort((a, b) => mean(a) - mean(b)));
  assert.match(await window.text("p.summary"), new RegExp(`Least mean regret: step_size ${sizes[0]}\\.$`));
  const [dots] = await window.lines(0);
  assert.deepEqual(dots.map(({x}) => x), [0.002, 0.005, 0.01]);
  dots.forEach(({x, y}) => assert.ok(Math.abs(y / mean(String(x)) - 1) < 1e-9));
  await page.selectOption("#sweep-x", "bits up per client");
  assert.match(page.url(), /x=bits\+up\+per\+client/);
  await until("the bits", async () => (await window.lines(0))[0].every(({x}) => x > 1000));
  await page.reload();
  await until("the same choice", async () => (await page.inputValue("#sweep-x")) === "bits up per client");
  await window.picture("sweep");
  await window.assertNoOverflow("sweep");
  const phone = await Window.open(browser, stage, {viewport: {width: 360, height: 780}, hasTouch: true});
  for (const [where, ready] of [[address, `${TABLE} tbody tr`], ["#/", "table.jobs tbody tr"]]) {
    await phone.go(where);
    await phone.page.locator(ready).first().waitFor();
    await phone.assertNoOverflow(where);
  }
  await phone.close();
});

test("a click on a dot opens the jobs of its variant", async () => {
  await window.go("#/workers");
  await until("another page", async () => (await page.locator("canvas").count()) === 0);
  await window.go(address);
  await until("the dots", async () => (await window.lines(0))[0]?.length === 3);
  const place = () => page.evaluate(() => {
    const canvas = document.querySelector("canvas");
    canvas.scrollIntoView({block: "center"});
    const {x, y} = Chart.getChart(canvas).getDatasetMeta(0).data[0];
    const box = canvas.getBoundingClientRect();
    return {x: box.x + x, y: box.y + y};
  });
  let first = await place();
  await until("the layout", async () => {
    const before = first;
    first = await place();
    return first.x === before.x && first.y === before.y;
  });
  await page.mouse.click(first.x, first.y);
  await until("the comparison", () => page.url().includes("#/compare/"));
  const ids = page.url().split("/").at(-1).split(",");
  const made = (await jobs()).filter(({id}) => ids.includes(id));
  assert.deepEqual(made.map(({algorithm}) => algorithm.step_size), [0.002, 0.002]);
});

test("all jobs of a sweep are cancelled at once", async () => {
  const document = {...FEDAVG, horizon: 50_000_000, algorithm: {...FEDAVG.algorithm, local_steps: 1}, labels: {sweep: "endless"}};
  for (const seed of [1, 2, 3]) {
    await stage.submit({...document, seed});
  }
  await window.go("#/sweep/sweep%3Dendless");
  await until("their page", async () => /^3 jobs in 1 variant; 3 not ended/.test(await window.text("p.summary")));
  await page.click("button:text-is('Cancel all')");
  await page.click("dialog [data-confirm]");
  await until("the end", async () => (await window.text("p.summary")).includes("all have ended"));
  assert.ok((await cells(`${TABLE} tbody td`)).includes("3 cancelled"));
  assert.ok(await page.isDisabled("button:text-is('Cancel all')"));
});

test("a label that no job has leaves an empty page, and a word that is none another one", async () => {
  await window.go("#/sweep/nobody");
  await until("the page", async () => (await window.text("p.summary")) === "No job has this label.");
  await window.go("#/sweep/%20");
  await until("no page", async () => (await window.text("h1")) === "No such page");
});
