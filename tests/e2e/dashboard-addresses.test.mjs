// The addresses of the dashboard: what Back restores, what leaving a page must not lose, and a proxy that serves the coordinator
// below a prefix.
import assert from "node:assert/strict";
import {readFile, writeFile} from "node:fs/promises";
import path from "node:path";
import {after, before, test} from "node:test";

import {Stage, Window, closeAll, launch} from "./dashboard-support.mjs";
import {freePort, until} from "./programs.mjs";
import {OPENAPI} from "./validate.mjs";

const N_JOBS = 30; // more than a page of the list
const PHONE = {width: 390, height: 844};
const JOB = {
  name: "first", algorithm: {type: "fedavg", step_size: 0.002, local_steps: 20}, clients: 4, horizon: 200, minibatch: 1, seed: 1,
  objective: {type: "least_squares", data: {type: "synthetic_linear", dim: 5, points: 200}},
};

let browser, stage, window, page;

before(async () => {
  [browser, stage] = await Promise.all([launch(), Stage.open()]);
  window = await Window.open(browser, stage);
  page = window.page;
});

after(() => closeAll(window, browser, stage));

const shown = (where = page) => where.locator("tbody a.name").allTextContents();
const hash = () => new URL(page.url()).hash;
const editor = () => page.inputValue("#editor");
const namesOf = async (query) => (await stage.get(`/v1/jobs?${query}`)).jobs.map(({name}) => name);

test("the page without workers fits a phone, and its command names the whole address", async () => {
  const phone = await Window.open(browser, stage, {viewport: PHONE});
  await phone.go("#/workers");
  await until("the command", async () => phone.page.isVisible(".empty pre"));
  await phone.assertNoOverflow("workers");
  assert.equal(await phone.text(".empty pre"), `tally-worker --coordinator ${stage.url} --clients 10`);
  await phone.picture("workers-empty-390");
  await phone.close();
});

test("Back restores filter, order and page of the list, and so does the address alone", async () => {
  for (let n = 0; n < N_JOBS; n++) {
    await stage.submit({...JOB, name: `job ${n}`, labels: n % 10 === 0 ? {team: "a/b", tenth: ""} : {}});
  }
  const queued = `${stage.url}/v1/jobs/${(await stage.get("/v1/jobs?limit=1")).jobs[0].id}/cancel`;
  await fetch(queued, {method: "POST"}); // one job of another status
  const [byName, last] = [await namesOf("limit=25&status=queued&sort=-name"), await namesOf("limit=100&status=queued&sort=-name")];
  const isShown = (names) => until(`${names.length} jobs`, async () => (await shown()).join() === names.join());

  await window.go("#/");
  await isShown(await namesOf("limit=25"));
  assert.equal(hash(), "#/", "defaults need no words");
  await page.selectOption("#status-filter", "queued");
  await page.click("button.head:text-is('Job')");
  await page.click("button.head:text-is('Job')");
  await isShown(byName);
  await page.click("button:text-is('Next')");
  await isShown(last.slice(25));
  const address = page.url();

  await page.click("tbody a.name >> nth=1");
  await until("the job's page", async () => (await window.text("h1")) === last[26]);
  await page.goBack();
  await isShown(last.slice(25));
  assert.equal(page.url(), address);
  assert.equal(await page.inputValue("#status-filter"), "queued");
  assert.equal(await window.text(".place"), `Page 2, ${last.length - 25} jobs`);
  assert.equal(await page.getAttribute("th:has-text('Job')", "aria-sort"), "descending");
  await page.goBack();
  await isShown(byName);
  await page.goBack();
  await isShown(await namesOf("limit=25&status=queued&sort=name"));
  await page.goBack();
  await isShown(await namesOf("limit=25&status=queued"));
  await page.goBack();
  await isShown(await namesOf("limit=25"));
  assert.equal(await page.inputValue("#status-filter"), "");

  const other = await Window.open(browser, stage);
  await other.page.goto(address);
  await until("the same list", async () => (await shown(other.page)).join() === last.slice(25).join());
  await other.page.click("button:text-is('Back')");
  await until("the page before", async () => (await shown(other.page)).join() === byName.join());
  await other.close();

  await page.fill("#label-filter", "team=a/b");
  await page.press("#label-filter", "Enter");
  await isShown(await namesOf("limit=25&label=team%3Da%2Fb"));
  await page.reload();
  await isShown(await namesOf("limit=25&label=team%3Da%2Fb"));
  await page.click("nav a:text-is('Jobs')");
  await isShown(await namesOf("limit=25"));
});

test("an address with an unknown filter or order shows the list", async () => {
  await window.go("#/?status=nonsense&sort=nonsense&other=1");
  const names = await namesOf("limit=25");
  await until("the list", async () => (await shown()).join() === names.join());
  await window.go("#/");
});

test("Back restores the page of the workers", async () => {
  const workers = (n) => ({name: `w${n}`, state: "idle", silent: false, slots: 1, free_slots: 1, assignments: [], refuses: [],
    pinned_job: null, token_name: null, last_contact_age_ms: 0, joined_ms: 1});
  const other = await Window.open(browser, stage);
  await other.page.route("**/v1/workers?**", (route) => {
    const n = Number(new URL(route.request().url()).searchParams.get("cursor") ?? 0);
    const answer = {workers: [workers(n)], next_cursor: n < 2 ? String(n + 1) : null, workers_total: 3, slots_total: 3, slots_free: 3};
    return route.fulfill({json: answer, headers: {"X-Request-Id": "x"}});
  });
  other.check = () => {}; // these responses are ours
  const name = (wanted) => until(wanted, async () => (await other.text(".workers tbody th")) === wanted);
  await other.go("#/workers");
  await name("w0");
  await other.page.click("button:text-is('Older')");
  await name("w1");
  await other.page.click("button:text-is('Older')");
  await name("w2");
  await other.page.click("nav a:text-is('Submit')");
  await until("the form", () => other.page.isVisible("#editor"));
  await other.page.goBack();
  await name("w2");
  assert.equal(await other.text(".place"), "Page 3, 1 worker");
  await other.page.goBack();
  await name("w1");
  other.nChecked = 1;
  await other.close();
});

test("an edited document outlives its page, and the browser asks before it is lost", async () => {
  await window.go("#/submit");
  await until("the document", async () => (await editor()).includes("synthetic-ceal"));
  const original = await editor();
  const edited = original.replace("synthetic-ceal", "edited");
  await page.fill("#editor", edited);
  const reload = () => page.evaluate(() => { location.reload(); });
  for (const leave of [() => page.click("nav a:text-is('Jobs')"), () => window.go("#/workers"), () => page.goBack()]) {
    await leave();
    await until("another page", async () => (await page.locator("#editor").count()) === 0);
    await reload();
    await until("the question", () => window.nAsked === 1);
    window.nAsked = 0;
    await window.go("#/submit");
    await until("what was typed", async () => (await page.inputValue("#document-choice")) === "synthetic-ceal.json");
    assert.equal(await editor(), edited);
    assert.match(await window.text("#problem"), /as you left it/);
  }
  await window.picture("submit-draft");

  const id = (await stage.get("/v1/jobs?limit=1")).jobs[0].id; // its document has a draft of its own
  await window.go(`#/submit/${id}`);
  await until("the other document", async () => JSON.parse(await editor() || "{}").name !== undefined);
  assert.ok(!(await editor()).includes("edited"));

  await window.go("#/submit");
  await until("what was typed", async () => (await page.inputValue("#document-choice")) === "synthetic-ceal.json");
  await page.click("button:text-is('Reload')");
  await page.click("dialog [data-confirm]");
  await until("the original", async () => (await editor()) === original);
  await page.fill("#editor", edited);
  await page.fill("#editor", original);
  await reload();
  await until("the page anew", async () => page.isVisible("#editor") && (await editor()) === original);
  assert.equal(window.nAsked, 0, "nothing was to be lost");

  await page.fill("#editor", edited);
  await page.click("button[type=submit]");
  await until("the job's page", async () => (await window.text("h1")) === "edited");
  await page.goBack();
  await until("the original again", async () => (await editor()) === original);
});

test("a model too large for JSON is saved as .npy", async () => {
  const dim = 1_000_001;
  const small = await stage.submit(JOB);
  const large = await stage.submit({...JOB, name: "large", reference: {type: "none"},
    objective: {type: "least_squares", data: {type: "synthetic_linear", dim, points: 4}}});
  const json = page.locator("button:text-is('model.json')");
  const saved = async (name) => {
    const [file] = await Promise.all([page.waitForEvent("download"), page.click(`button:text-is('${name}')`)]);
    return {name: file.suggestedFilename(), bytes: await readFile(await file.path())};
  };
  for (const [id, n] of [[small, 5], [large, dim]]) {
    await window.go(`#/job/${id}`);
    await until("the job", async () => (await page.locator(".badge[data-status=queued]").count()) > 0);
    assert.equal(await json.isDisabled(), id === large);
    const {name, bytes} = await saved("model.npy");
    assert.equal(name, `tally-${id}-model.npy`);
    assert.equal(bytes.subarray(1, 6).toString(), "NUMPY");
    assert.equal(bytes.length, 10 + bytes.readUInt16LE(8) + 8 * n);
  }
  assert.match(await json.getAttribute("title"), /1,000,000 coordinates; this one has 1,000,001/);
  await window.picture("model");
  await window.go(`#/job/${small}`);
  await until("the button", async () => !(await json.isDisabled()));
  assert.equal(JSON.parse((await saved("model.json")).bytes.toString()).x.length, 5);
  const phone = await Window.open(browser, stage, {viewport: PHONE});
  await phone.go(`#/job/${large}`);
  await phone.page.locator(".badge[data-status=queued]").waitFor();
  await phone.assertNoOverflow("job");
  await phone.picture("model-390");
  await phone.close();
});

// Starts nginx with the location that deploy/README.md shows, in front of a coordinator.
async function startProxy(stage) {
  const readme = await readFile(path.join(path.dirname(OPENAPI), "../deploy/README.md"), "utf8");
  const location = /```nginx\n([\s\S]*?)```/.exec(readme)[1];
  assert.ok(location.includes("http://127.0.0.1:8080/"), location);
  const port = await freePort();
  const config = path.join(stage.folder, "nginx.conf");
  const folders = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map((name) => `${name}_temp_path ${stage.folder}/${name};`).join("\n");
  await writeFile(config, `daemon off;
master_process off;
pid ${stage.folder}/nginx.pid;
events {}
http {
access_log off;
${folders}
  proxy_pass_header X-Accel-Buffering; # which nginx would keep to itself, and a check would miss
server {
listen 127.0.0.1:${port};
${location.replace("127.0.0.1:8080", `127.0.0.1:${stage.port}`)}
}
}
`);
  const nginx = stage.start("/usr/sbin/nginx", "-e", "stderr", "-c", config);
  const url = `http://127.0.0.1:${port}/tally`;
  await until("nginx", async () => {
    assert.equal(nginx.exitCode, null, nginx.log);
    return fetch(`${url}/readyz`).then((response) => response.ok, () => false);
  });
  return url;
}

test("every page works below a prefix, and so do workers", async () => {
  const other = await Stage.open();
  const url = await startProxy(other);
  const visitor = await Window.open(browser, {url}); // a request outside the prefix is a fault
  try {
    await visitor.go("#/workers");
    await until("the command", async () => (await visitor.text(".empty pre")) === `tally-worker --coordinator ${url} --clients 10`);
    other.start("tally-worker", "--coordinator", url, "--name", "behind", "--clients", "4");
    await until("the worker", async () => (await visitor.text(".workers tbody th")) === "behind");
    await visitor.page.click("nav a:text-is('Submit')");
    await until("the document", async () => (await visitor.page.inputValue("#editor")).includes("synthetic-ceal"));
    await visitor.page.selectOption("#document-choice", "synthetic-fedavg.json");
    await until("another document", async () => (await visitor.page.inputValue("#editor")).includes("fedavg"));
    await visitor.page.fill("#editor", JSON.stringify(JOB, null, 2));
    await until("the help", async () => (await visitor.page.locator("#member-help h3").count()) > 0);
    await visitor.page.click("button:text-is('Check')");
    await until("the answer", async () => (await visitor.text("#problem")).includes("The document is valid"));
    await visitor.page.click("button[type=submit]");
    await until("the end", async () => (await visitor.text(".mode")) === "final");
    assert.equal(await visitor.text(".badge"), "completed");
    assert.ok((await visitor.lines(0))[0].length > 1);
    for (const name of ["rounds.csv", "model.json", "model.npy"]) {
      await Promise.all([visitor.page.waitForEvent("download"), visitor.page.click(`button:text-is('${name}')`)]);
    }
    const id = visitor.page.url().split("/").at(-1);
    await visitor.go(`#/compare/${id}`);
    await until("the comparison", async () => (await visitor.lines(0))[0]?.length > 1);
    await visitor.page.click("nav a:text-is('Jobs')");
    await until("the list", async () => (await shown(visitor.page)).join() === "first");
    for (const link of ["openapi.yaml", "Licences"]) {
      const address = await visitor.page.locator(`footer a:text-is('${link}')`).evaluate((element) => element.href);
      assert.ok(address.startsWith(`${url}/`), address);
      assert.equal((await fetch(address)).status, 200);
    }
    await visitor.close();
  } finally {
    await other.close();
  }
});
