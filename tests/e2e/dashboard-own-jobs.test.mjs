// What the dashboard offers to somebody who runs jobs of his own: the workers, an earlier job as a start, help beside the editor,
// and the parameters in which jobs differ.
import assert from "node:assert/strict";
import {after, before, test} from "node:test";

import {Stage, Window, launch} from "./dashboard-support.mjs";
import {until} from "./programs.mjs";

const FEDAVG = {
  name: "first", algorithm: {type: "fedavg", step_size: 0.05, local_steps: 20}, clients: 4, horizon: 200, minibatch: 1, seed: 1,
  objective: {type: "least_squares", data: {type: "synthetic_linear", dim: 5, points: 200}},
};

let browser, stage, window, page;

before(async () => {
  [browser, stage] = await Promise.all([launch(), Stage.open()]);
  window = await Window.open(browser, stage);
  page = window.page;
});

// What the window has to complain of must not keep the programs alive.
after(async () => {
  try {
    await window?.close();
  } finally {
    await browser?.close();
    await stage?.close();
  }
});

const cells = (selector) => page.locator(selector).allTextContents();

test("the workers' page says how to start one, and then what each does", async () => {
  await window.go("#/workers");
  await until("the command", async () => page.isVisible(".empty pre"));
  assert.equal(await window.text(".empty pre"), `tally-worker --coordinator ${stage.url} --clients 10`);
  assert.equal(await window.text(".summary"), "0 workers; 0 of 0 slots free");
  stage.startWorker("edge-7", 5);
  await until("the worker", async () => (await cells(".workers tbody th")).join() === "edge-7");
  assert.equal((await cells(".workers tbody td"))[1], "0 of 5");
  assert.ok(await page.isHidden(".empty"));
  const id = await stage.submit({...FEDAVG, algorithm: {...FEDAVG.algorithm, local_steps: 1}, horizon: 50_000_000});
  await until("its clients", async () => (await cells(".workers tbody td"))[2] === `${id}: 0\u20133`);
  assert.equal((await cells(".workers tbody td"))[1], "4 of 5");
  assert.equal(await window.text(".summary"), "1 worker; 1 of 5 slots free");
  await window.picture("workers");
  await fetch(`${stage.url}/v1/jobs/${id}/cancel`, {method: "POST"});
  await until("no job", async () => (await cells(".workers tbody td"))[2] === "\u2013");
  await window.assertNoOverflow("workers");
});

test("without tokens there is no button for one", async () => {
  await until("the page", async () => page.isVisible("h1"));
  assert.ok(await page.isHidden("#token"));
});

test("an earlier job is edited and submitted again", async () => {
  const first = await stage.submit(FEDAVG);
  await stage.ended(first);
  await window.go(`#/job/${first}`);
  await page.click("a:text-is('Edit and submit again')");
  await until("its document", async () => (await page.inputValue("#editor")).includes('"name": "first"'));
  assert.equal(await page.inputValue("#document-choice"), `job ${first}`);
  const text = await page.inputValue("#editor");
  const document = JSON.parse(text);
  assert.deepEqual(document.algorithm, FEDAVG.algorithm);
  assert.equal(document.id, undefined);
  await page.fill("#editor", text.replace('"step_size": 0.05', '"step_size": 0.1').replace('"first"', '"second"'));
  await page.click("button[type=submit]");
  await until("the job's page", () => page.url().includes("#/job/") && !page.url().endsWith(first));
  const second = page.url().split("/").at(-1);
  const job = await stage.ended(second);
  assert.equal(job.algorithm.step_size, 0.1);

  await window.go(`#/compare/${first},${second}`);
  await until("the difference", async () => (await cells("section:has-text('Parameters that differ') tbody td")).length > 0);
  const rows = "section:has(h2:text-is('Parameters that differ')) tbody";
  assert.deepEqual(await cells(`${rows} th`), ["algorithm.step_size"]);
  assert.deepEqual(await cells(`${rows} td`), ["0.05", "0.1"]);
  await window.picture("compare-parameters");
  await window.go(`#/compare/${first}`);
  await until("no difference", async () => (await cells("section .summary")).includes("All parameters are equal."));
});

test("a job that is not there leaves an explanation and the other documents", async () => {
  window.expected.push("404 (Not Found)");
  await window.go("#/submit/0123456789ab");
  await until("the explanation", async () => (await window.text("#problem")).includes("no job 0123456789ab"));
  await page.selectOption("#document-choice", "synthetic-fedavg.json");
  await until("another document", async () => (await page.inputValue("#editor")).includes("fedavg"));
});

// Puts the cursor behind the first occurrence of a text.
const cursorTo = (text) => page.evaluate((wanted) => {
  const editor = document.getElementById("editor");
  editor.focus();
  const at = editor.value.indexOf(wanted) + wanted.length;
  editor.setSelectionRange(at, at);
  editor.dispatchEvent(new MouseEvent("click"));
}, text);

test("help tells what the member under the cursor means, for the types that the document has", async () => {
  await window.go("#/submit");
  await until("the help", async () => (await cells("#member-help h3")).join() === "The document");
  await page.selectOption("#document-choice", "synthetic-ceal.json");
  await until("the document", async () => (await page.inputValue("#editor")).includes("synthetic-ceal"));
  await cursorTo('"first_stage"');
  const help = () => page.textContent("#member-help");
  await until("a member", async () => (await cells("#member-help h3")).join() === "algorithm.first_stage");
  assert.match(await help(), /stage j that the job starts with.*integer.*\[1, 60\]/);
  await cursorTo('"dim":');
  await until("a member of an inner object", async () => (await cells("#member-help h3")).join() === "objective.data.dim");
  await page.fill("#editor", '{"algorithm": {"type": "calm", "step');
  await cursorTo('"type"');
  await until("a type", async () => (await help()).includes("which algorithm"));
  assert.match(await help(), /minibatch_sgd/);
  const others = await cells("#member-help .members code");
  assert.ok(others.includes("noise_growth") && !others.includes("local_steps") && !others.includes("type"), String(others));
  await window.picture("submit-help");
  await page.fill("#editor", "");
  await until("the whole", async () => (await cells("#member-help h3")).join() === "The document");
});
