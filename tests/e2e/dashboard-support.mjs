// What the tests of the dashboard share: programs, a browser, and a watch for anything that the
// page must not do.
import assert from "node:assert/strict";
import {mkdir, mkdtemp, rm} from "node:fs/promises";
import {tmpdir} from "node:os";
import path from "node:path";
import {setTimeout as pause} from "node:timers/promises";
import {fileURLToPath} from "node:url";

import {chromium} from "playwright-core";

import {HANG_MS, freePort, start, stop, until} from "./programs.mjs";
import {validator} from "./validate.mjs";

export const SCREENSHOTS = process.env.TALLY_SCREENSHOTS ??
  path.join(path.dirname(fileURLToPath(import.meta.url)), "screenshots");

// A coordinator with its folder and workers.
export class Stage {
  processes = [];

  static async open(...options) {
    const stage = new Stage();
    stage.folder = await mkdtemp(path.join(tmpdir(), "tally-dashboard-"));
    stage.port = await freePort();
    stage.url = `http://127.0.0.1:${stage.port}`;
    stage.options = options;
    await stage.startCoordinator();
    return stage;
  }

  start(program, ...args) {
    const child = start(this.folder, program, ...args);
    this.processes.push(child);
    return child;
  }

  async startCoordinator() {
    this.coordinator = this.start("tally-coordinator", "--listen", `127.0.0.1:${this.port}`,
      "--store", "sqlite:tally.db", ...this.options);
    await until("the coordinator", async () => {
      assert.equal(this.coordinator.exitCode, null, this.coordinator.log);
      return fetch(`${this.url}/readyz`).then((response) => response.ok, () => false);
    });
  }

  startWorker(name, clients, ...options) {
    return this.start("tally-worker", "--coordinator", this.url, "--name", name, "--clients", String(clients), ...options);
  }

  async end(child, signal) {
    await stop(child, signal);
  }

  async close() {
    for (const child of [...this.processes].reverse()) {
      await this.end(child, "SIGKILL");
    }
    await rm(this.folder, {recursive: true, force: true});
  }

  async get(where) {
    const response = await fetch(this.url + where);
    assert.equal(response.status, 200, where);
    return response.json();
  }

  async submit(document) {
    const response = await fetch(`${this.url}/v1/jobs`, {
      method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(document),
    });
    const answer = await response.json();
    assert.equal(response.status, 201, JSON.stringify(answer));
    return answer.id;
  }

  async ended(id) {
    return until(`job ${id} to end`, async () => {
      const job = await this.get(`/v1/jobs/${id}`);
      return ["completed", "failed", "cancelled"].includes(job.status) ? job : null;
    }, [], 10 * HANG_MS); // of 100,000 rounds, perhaps
  }
}

export function launch(...args) {
  return chromium.launch({
    timeout: HANG_MS,
    executablePath: process.env.TALLY_CHROMIUM ?? "/usr/bin/chromium",
    args: [...args, ...(process.getuid?.() === 0 ? ["--no-sandbox"] : [])],
  });
}

// Runs in the page before all other scripts.
function observe() {
  window.observed = {violations: [], shift: 0};
  document.addEventListener("securitypolicyviolation", (event) => {
    window.observed.violations.push(`${event.violatedDirective} ${event.blockedURI}`);
  });
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      window.observed.shift += entry.hadRecentInput ? 0 : entry.value;
    }
  }).observe({type: "layout-shift", buffered: true});
}

const checkAnswer = await validator();

// A browser window that collects its faults, including responses that api/openapi.yaml does not
// allow; `faults` must stay empty.
export class Window {
  faults = [];
  checks = []; // promises of checks of responses, some still pending
  nChecked = 0;
  expected = []; // texts of console errors that a test provokes
  nAsked = 0; // times that the browser asked whether to leave the page; the answer is no

  static async open(browser, stage, options = {}) {
    const window = new Window();
    window.stage = stage;
    window.context = await browser.newContext({viewport: {width: 1280, height: 900}, acceptDownloads: true, ...options});
    window.context.setDefaultTimeout(HANG_MS);
    window.page = await window.context.newPage();
    await window.page.addInitScript(observe);
    window.page.on("request", (request) => {
      if (!request.url().startsWith(`${stage.url}/`) && !request.url().startsWith("blob:") && !request.url().startsWith("data:")) {
        window.faults.push(`request to ${request.url()}`);
      }
    });
    window.page.on("response", (response) => window.checks.push(window.check(response)));
    window.page.on("pageerror", (error) => window.faults.push(`exception: ${error.stack}`));
    window.page.on("dialog", (dialog) => {
      if (dialog.type() === "beforeunload") {
        window.nAsked++;
      } else {
        window.faults.push(`dialog: ${dialog.message()}`);
      }
      dialog.dismiss();
    });
    window.page.on("console", (message) => {
      if (["error", "warning"].includes(message.type()) && !window.expected.some((text) => message.text().includes(text))) {
        window.faults.push(`console: ${message.text()}`);
      }
    });
    return window;
  }

  async check(response) {
    const url = response.url();
    const isStream = url.includes("/events");
    if (!url.startsWith(`${this.stage.url}/`) || (isStream && response.status() === 501)) {
      return; // not from a coordinator: made by the browser or by a test
    }
    let headers, body;
    try {
      headers = await response.allHeaders();
      delete headers.server; // added by a proxy
      if (response.status() === 200 && headers["content-type"] === undefined) {
        return; // a 304 that the browser shows as a 200 from its cache
      }
      // Chromium does not keep the bytes of a model, and Playwright would ask for it again, as JSON.
      const isKept = !isStream && response.status() !== 304 && headers["content-type"] !== "application/x-npy";
      body = isKept ? await response.body() : undefined;
    } catch {
      return; // the response was cut off, or the page is gone
    }
    try {
      const where = url.slice(this.stage.url.length); // without the prefix of a proxy
      checkAnswer({method: response.request().method(), path: where, status: response.status(), headers, body});
      this.nChecked++;
    } catch (error) {
      this.faults.push(error.message);
    }
  }

  // Changes the address of the current page; the first time, loads it.
  async go(hash) {
    if (this.page.url().startsWith(`${this.stage.url}/`)) {
      await this.page.evaluate((where) => { location.hash = where; }, hash);
    } else {
      await this.page.goto(`${this.stage.url}/${hash}`);
    }
  }

  // Opens the form with its first document, whatever an earlier test has typed there.
  async openForm() {
    await this.go("#/");
    await this.page.locator("table.jobs").waitFor();
    await this.go("#/submit");
    await until("the choice", async () => (await this.page.inputValue("#document-choice")) !== "");
    if ((await this.text("#problem")).includes("as you left it")) {
      await this.page.selectOption("#document-choice", "synthetic-ceal.json");
      await this.page.click("dialog [data-confirm]");
    }
    await until("the document", async () => (await this.page.inputValue("#editor")).includes('"synthetic-ceal"'));
  }

  async text(selector) {
    return (await this.page.locator(selector).first().textContent()).trim();
  }

  // Returns what chart number n draws: [[{x, y}, ...] per line].
  lines(n) {
    return this.page.evaluate((index) => {
      const canvas = document.querySelectorAll("canvas")[index];
      return canvas === undefined ? [] : Chart.getChart(canvas).data.datasets.map((set) => set.data.map(({x, y}) => ({x, y})));
    }, n);
  }

  shift() {
    return this.page.evaluate(() => window.observed.shift);
  }

  async picture(name) {
    await mkdir(SCREENSHOTS, {recursive: true});
    await this.page.screenshot({path: path.join(SCREENSHOTS, `${name}.png`), fullPage: true});
  }

  async assertNoOverflow(what) {
    const [content, room] = await this.page.evaluate(() => [document.scrollingElement.scrollWidth, window.innerWidth]);
    assert.ok(content <= room, `${what}: ${content} px wide, the window has ${room}`);
  }

  async close() {
    const violations = await this.page.evaluate(() => window.observed?.violations ?? []);
    await Promise.race([Promise.all(this.checks), pause(5000)]); // an event stream has no end of its own
    await this.context.close();
    assert.ok(this.nChecked > 0, "no answer was checked");
    assert.deepEqual([...this.faults, ...violations], []);
  }
}

// Whatever faults the window reports, the programs must be ended. Each may be undefined: it was not opened.
export async function closeAll(window, browser, stage) {
  try {
    await window?.close();
  } finally {
    await browser?.close();
    await stage?.close();
  }
}
