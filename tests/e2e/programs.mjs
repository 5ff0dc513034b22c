// What the tests share: starting our programs, finding a free port, and waiting.
import assert from "node:assert/strict";
import {spawn} from "node:child_process";
import {createSocket} from "node:dgram";
import {once} from "node:events";
import {createServer} from "node:net";
import path from "node:path";
import {setTimeout as pause} from "node:timers/promises";

const BIN = process.env.TALLY_BIN;
export const HANG_MS = 120_000; // a safeguard, far longer than any single step takes

// Starts one of our programs, or that of an absolute path; its output is collected in `log`.
export function start(cwd, program, ...args) {
  const child = spawn(path.resolve(BIN, program), args, {cwd, stdio: ["ignore", "pipe", "pipe"]});
  child.log = "";
  child.stdout.on("data", (text) => (child.log += text));
  child.stderr.on("data", (text) => (child.log += text));
  return child;
}

// Ends the program if it has not ended; returns its exit status.
export async function stop(child, signal = "SIGTERM") {
  if (child.exitCode === null && child.signalCode === null) {
    const ended = once(child, "exit");
    child.kill(signal);
    await ended;
  }
  return child.exitCode;
}

const claims = []; // sockets, held as long as this process lives

// Below the range from which the kernel takes source ports. The UDP port of the same number is held as a claim, as the
// tests in Python do, which may run at the same time.
export async function freePort() {
  for (;;) {
    const port = 20000 + Math.floor(Math.random() * 10000);
    const claim = createSocket("udp4");
    const claimed = await new Promise((resolve) => {
      claim.once("error", () => resolve(false));
      claim.bind(port, "127.0.0.1", () => resolve(true));
    });
    if (!claimed) {
      continue;
    }
    claim.unref();
    claims.push(claim);
    const probe = createServer();
    const free = await new Promise((resolve) => {
      probe.once("error", () => resolve(false));
      probe.listen(port, "127.0.0.1", () => resolve(true));
    });
    if (free) {
      await new Promise((resolve) => probe.close(resolve));
      return port;
    }
  }
}

// Waits for a condition and returns its value. If it never holds, the error shows the logs of the
// processes in `logs`.
export async function until(what, condition, logs = [], most = HANG_MS) {
  const limit = Date.now() + most;
  for (;;) {
    const value = await condition();
    if (value) {
      return value;
    }
    assert.ok(Date.now() < limit, `waited too long for ${what}\n${logs.map(({log}) => log).join("\n")}`);
    await pause(20);
  }
}
