// In a real browser, evil.test resolves to 127.0.0.1. A page there can neither list jobs nor write.
//
// tests/run copies this file to build/e2e, beside node_modules.
import assert from "node:assert/strict";
import {once} from "node:events";
import {readFile} from "node:fs/promises";
import {createServer} from "node:http";
import path from "node:path";
import {after, before, test} from "node:test";

import {Stage, launch} from "./dashboard-support.mjs";
import {OPENAPI} from "./validate.mjs";

let browser, stage, evil, job;

before(async () => {
  [browser, stage] = await Promise.all([
    launch("--host-resolver-rules=MAP evil.test 127.0.0.1"), Stage.open()]);
  const file = path.resolve(path.dirname(OPENAPI), "../deploy/jobs/synthetic-ceal.json");
  job = await stage.submit(JSON.parse(await readFile(file, "utf8")));
  evil = createServer((request, response) => {
    response.setHeader("Content-Type", "text/html");
    response.end("<!doctype html><title>evil</title>");
  }).listen(0, "127.0.0.1");
  await once(evil, "listening");
});

after(async () => {
  await browser?.close();
  evil?.close();
  await stage?.close();
});

const statusOf = async () => (await stage.get(`/v1/jobs/${job}`)).status;

test("with DNS rebinding its own name leads here, and nothing is answered", async () => {
  const page = await browser.newPage();
  // The page's own origin, as after DNS rebinding.
  const first = await page.goto(`http://evil.test:${stage.port}/v1/jobs`);
  assert.equal(first.status(), 421);
  const answers = await page.evaluate(async (id) => {
    const ask = async (where, method) => {
      const response = await fetch(where, {method});
      return {status: response.status, text: await response.text()};
    };
    return [await ask("/v1/jobs", "GET"), await ask(`/v1/jobs/${id}`, "GET"), await ask("/metrics", "GET"),
      await ask(`/v1/jobs/${id}/cancel`, "POST")];
  }, job);
  for (const {status, text} of answers) {
    assert.equal(status, 421, text);
    assert.ok(!text.includes("synthetic-ceal"), text);
  }
  assert.equal(await statusOf(), "queued");
  await page.close();
});

test("a page of another origin cannot write, by fetch() or by a form", async () => {
  for (const verb of ["pause", "cancel"]) {
    const page = await browser.newPage();
    await page.goto(`http://evil.test:${evil.address().port}/`);
    const where = `${stage.url}/v1/jobs/${job}/${verb}`;
    // A "simple" request: the browser sends it without a preflight and only hides the response.
    const kind = await page.evaluate(async (address) =>
      (await fetch(address, {method: "POST", mode: "no-cors"})).type, where);
    assert.equal(kind, "opaque");
    assert.equal(await statusOf(), "queued", verb);
    const [response] = await Promise.all([
      page.waitForNavigation(),
      page.evaluate((address) => {
        const form = document.body.appendChild(document.createElement("form"));
        form.method = "POST";
        form.action = address;
        form.submit();
      }, where),
    ]);
    assert.equal(response.status(), 403, verb);
    assert.equal(await statusOf(), "queued", verb);
    await page.close();
  }
});

test("the coordinator's own page can", async () => {
  const page = await browser.newPage();
  await page.goto(stage.url);
  const status = await page.evaluate(async (id) =>
    (await fetch(`/v1/jobs/${id}/cancel`, {method: "POST"})).status, job);
  assert.equal(status, 200);
  assert.equal(await statusOf(), "cancelled");
  await page.close();
});
