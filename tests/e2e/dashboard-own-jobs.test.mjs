// What the dashboard offers to users with jobs of their own: the workers, an earlier job as a starting point, help next to the
// editor, and the parameters in which jobs differ.
import assert from "node:assert/strict";
import {after, before, test} from "node:test";

import {Stage, Window, closeAll, launch} from "./dashboard-support.mjs";
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

after(() => closeAll(window, browser, stage));

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

test("a document that comes late replaces neither a later choice nor what was typed", async () => {
  const held = [];
  const {documents} = await page.evaluate(async () => (await fetch("/assets/jobs.json")).json());
  const path = `**${documents.find(({name}) => name === "synthetic-fedavg.json").path}`;
  await page.route(path, (route) => held.push(route));
  const letGo = async (n) => {
    await until("the request", () => held.length === n);
    await Promise.all([page.waitForResponse(path), held[n - 1].continue()]);
    await page.evaluate(() => new Promise((resolve) => setTimeout(resolve)));
  };
  await window.openForm();
  await page.selectOption("#document-choice", "synthetic-fedavg.json");
  await page.selectOption("#document-choice", "synthetic-fedpaq.json");
  await until("the later choice", async () => (await page.inputValue("#editor")).includes("fedpaq"));
  await letGo(1);
  assert.match(await page.inputValue("#editor"), /fedpaq/);
  await page.selectOption("#document-choice", "synthetic-fedavg.json");
  await page.fill("#editor", "{}");
  await letGo(2);
  assert.equal(await page.inputValue("#editor"), "{}");
  assert.equal(await page.inputValue("#document-choice"), "synthetic-fedpaq.json");
  await page.unroute(path);
});

// Puts the cursor after the first occurrence of a text.
const cursorTo = (text) => page.evaluate((wanted) => {
  const editor = document.getElementById("editor");
  editor.focus();
  const at = editor.value.indexOf(wanted) + wanted.length;
  editor.setSelectionRange(at, at);
  editor.dispatchEvent(new MouseEvent("click"));
}, text);

test("help tells what the member under the cursor means, for the types that the document has", async () => {
  await window.openForm();
  await until("the help", async () => (await cells("#member-help h3")).join() === "The document");
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

test("a document is checked without being submitted, and all of its errors are listed with their lines", async () => {
  const before = (await stage.get("/v1/jobs?limit=1000")).jobs.length;
  await window.openForm();
  await page.fill("#editor", JSON.stringify(FEDAVG, null, 2));
  await page.click("button:text-is('Check')");
  await until("the answer", async () => (await window.text("#problem")).includes("The document is valid"));
  const preview = await (await fetch(`${stage.url}/v1/jobs?dry_run=1`, {method: "POST", headers: {"Content-Type": "application/json"},
    body: JSON.stringify(FEDAVG)})).json();
  assert.equal((await cells("#problem dd"))[0], preview.expected_bits.uplink_per_client.toLocaleString("en-US"));
  assert.ok(preview.suggested_step_size > 0);
  assert.equal(await window.text("#suggested"), String(preview.suggested_step_size));
  await window.picture("submit-checked");

  await page.selectOption("#document-choice", "synthetic-calm-paper-bits.json");
  await page.click("dialog [data-confirm]");
  await until("the document of CALM", async () => (await page.inputValue("#editor")).includes("uplink_bits"));
  await page.click("button:text-is('Check')");
  await until("the plan", async () => (await page.locator("#planned").count()) === 1);
  assert.match(await window.text("#planned"), /^5\d\d(\.\d+)? for 2\d\d\.\d bits up per client and 2\d\d\.\d down$/);
  await window.picture("submit-planned");

  window.expected.push("400 (Bad Request)");
  const wrong = {...FEDAVG, clients: 0, algorithm: {...FEDAVG.algorithm, step_sise: 1}};
  await page.fill("#editor", JSON.stringify(wrong, null, 2));
  await page.click("button:text-is('Check')");
  await until("the errors", async () => (await page.locator("#problem .errors li").count()) === 2);
  const line = (text) => JSON.stringify(wrong, null, 2).split("\n").findIndex((each) => each.includes(text)) + 1;
  assert.deepEqual((await cells("#problem .errors button")).sort(), [`Line ${line('"clients"')}`, `Line ${line("step_sise")}`].sort());
  await page.click(`#problem .errors button:text-is('Line ${line('"clients"')}')`);
  assert.equal(await page.evaluate(() => {
    const editor = document.getElementById("editor");
    return editor.value.slice(editor.selectionStart, editor.selectionEnd).trim();
  }), '"clients": 0,');
  await until("its help", async () => (await cells("#member-help h3")).join() === "clients");
  await window.picture("submit-errors");
  assert.equal((await stage.get("/v1/jobs?limit=1000")).jobs.length, before);
});

test("stages, iterates and epochs are shown for the algorithms that have them", async () => {
  const hidden = async () => ({
    tiles: await page.evaluate(() => [...document.querySelectorAll(".tiles div")].filter((tile) => tile.hidden).map((tile) => tile.firstChild.textContent)),
    epochs: await page.locator(".chart:has-text('Epoch length')").isHidden(),
    columns: await page.evaluate(() => [...document.querySelectorAll(".rounds th[scope=col]")].filter((head) => getComputedStyle(head).display === "none")
      .map((head) => head.textContent)),
  });
  const ceal = {...FEDAVG, name: "ceal", algorithm: {type: "ceal", step_size: 0.05, sigma: "auto"}};
  for (const [document, expected] of [
    [FEDAVG, {tiles: ["Iterate", "Stage"], epochs: true, columns: ["Iterate", "Stage", "Passed"]}],
    [ceal, {tiles: [], epochs: false, columns: []}],
    [{...FEDAVG, name: "calm", algorithm: {type: "calm", step_size: 0.05}}, {tiles: ["Stage"], epochs: false, columns: ["Stage", "Passed"]}],
  ]) {
    const id = await stage.submit(document);
    await stage.ended(id);
    await window.go(`#/job/${id}`);
    await until("the rounds", async () => (await page.locator(".rounds tbody tr").count()) > 0 && (await window.text("h1")) === document.name);
    assert.deepEqual(await hidden(), expected, document.name);
  }
});

test("an ended job is deleted, and the list no longer has it", async () => {
  const id = await stage.submit({...FEDAVG, name: "to be deleted"});
  await stage.ended(id);
  await window.go(`#/job/${id}`);
  await until("the button", async () => page.isEnabled("button[data-action=delete]"));
  await page.click("button[data-action=delete]");
  await page.locator("dialog").waitFor();
  assert.match(await page.textContent("dialog"), /to be deleted.*gone for good/);
  await page.click("dialog [data-confirm]");
  await until("the list", () => page.url().endsWith("#/"));
  assert.equal((await fetch(`${stage.url}/v1/jobs/${id}`)).status, 404);
  await until("the rest of the list", async () => (await page.locator("tbody code").count()) > 0);
  assert.ok(!(await page.locator("tbody code").allTextContents()).includes(id));
});

test("jobs show their labels, and the list is filtered by them", async () => {
  const [a, b, c] = [await stage.submit({...FEDAVG, name: "a", labels: {team: "x & y", run: "1"}}),
    await stage.submit({...FEDAVG, name: "b", labels: {team: "z"}}), await stage.submit({...FEDAVG, name: "c"})];
  const shown = () => page.locator("tbody code").allTextContents();
  const expectShown = (...ids) => until(`only ${ids}`, async () => (await shown()).join() === ids.join());
  await window.go("#/submit");
  await window.go("#/");
  await until("the jobs", async () => (await shown()).slice(0, 3).join() === [c, b, a].join());
  assert.deepEqual(await page.locator(`tr:has(code:text-is("${a}")) .chip`).allTextContents(), ["run=1", "team=x & y"]);
  await page.click('tbody .chip:text-is("team=x & y")');
  await expectShown(a);
  await page.click('.page-tools .chip:text-is("team=x & y")');
  await until("all jobs", async () => (await shown()).length > 3);
  await page.fill("#label-filter", "team");
  await page.press("#label-filter", "Enter");
  await expectShown(b, a);
  await page.fill("#label-filter", "run=1");
  await page.press("#label-filter", "Enter");
  await expectShown(a);
  await page.fill("#label-filter", "run=2");
  await page.press("#label-filter", "Enter");
  await until("that there is none", async () => /No job here has these labels/.test(await window.text(".empty")));
  await page.fill("#label-filter", "no key=1");
  await page.press("#label-filter", "Enter");
  assert.equal(await page.locator(".page-tools .chip").count(), 3);
});

test("a click on the head of a column sorts the list, a second one turns the order", async () => {
  const ids = [];
  for (const [name, seed] of [["m", 1], ["A", 2], ["z", 3]]) {
    ids.push(await stage.submit({...FEDAVG, name, seed, labels: {sorted: "yes"}}));
  }
  const jobs = await Promise.all(ids.map((id) => stage.ended(id)));
  const shown = () => page.locator("tbody code").allTextContents();
  const expectShown = (what, list) => until(what, async () => (await shown()).join() === list.join());
  await window.go("#/submit");
  await window.go("#/");
  await page.fill("#label-filter", "sorted");
  await page.press("#label-filter", "Enter");
  const [m, a, z] = ids;
  await expectShown("the newest first", [z, a, m]);
  const sortedBy = () => page.locator("th[aria-sort=ascending], th[aria-sort=descending]")
    .evaluateAll((heads) => heads.map((head) => `${head.textContent} ${head.getAttribute("aria-sort")}`));
  assert.deepEqual(await sortedBy(), ["Age ascending"]);
  await page.click("th button:text-is('Job')");
  await expectShown("the names", [a, m, z]);
  assert.deepEqual(await sortedBy(), ["Job ascending"]);
  await page.click("th button:text-is('Job')");
  await expectShown("the names, last first", [z, m, a]);
  assert.deepEqual(await sortedBy(), ["Job descending"]);
  await page.click("th button:text-is('Regret')");
  await expectShown("the regret", [...jobs].sort((x, y) => x.cumulative_regret - y.cumulative_regret).map(({id}) => id));
  await page.click("th button:text-is('Age')");
  await expectShown("the newest first again", [z, a, m]);
  await page.click("th button:text-is('Age')");
  await expectShown("the oldest first", [m, a, z]);
  assert.deepEqual(await sortedBy(), ["Age descending"]);
});

test("a job that runs cannot be deleted from its page", async () => {
  const id = await stage.submit({...FEDAVG, algorithm: {...FEDAVG.algorithm, local_steps: 1}, horizon: 50_000_000});
  await window.go(`#/job/${id}`);
  await until("the page", async () => page.isEnabled("button[data-action=cancel]"));
  assert.ok(await page.isDisabled("button[data-action=delete]"));
  await fetch(`${stage.url}/v1/jobs/${id}/cancel`, {method: "POST"});
});
