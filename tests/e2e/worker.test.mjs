// A worker in foreign software. It knows Tally only from worker.proto, through a Connect client and
// generated code that are not ours: @connectrpc/connect-node and @bufbuild/protobuf.
//
// tests/run copies this file to build/e2e, beside node_modules and the generated gen/.
import assert from "node:assert/strict";
import {mkdtemp, readFile, rm} from "node:fs/promises";
import {tmpdir} from "node:os";
import path from "node:path";
import {after, before, test} from "node:test";

import {create, toBinary} from "@bufbuild/protobuf";
import {Code, ConnectError, createClient} from "@connectrpc/connect";
import {createConnectTransport} from "@connectrpc/connect-node";

import {PostUpdateRequestSchema, WorkerService} from "./gen/tally/v1/worker_pb.js";
import * as programs from "./programs.mjs";
import {validator} from "./validate.mjs";


const FORMAT = 3; // codec/FORMAT.md
const DIM = 30;
const ZEROS = new Uint8Array(Math.ceil(DIM / 8)); // unary: level 0 is one bit 0
const JOB = {
  name: "from node",
  algorithm: {
    type: "ceal", step_size: 2.0, sigma: 4.47, delta: 0.1, gamma0: 2.0, phi0: 2.0,
    sample_scale: 0.1, log_factor: false, first_stage: 3, gradient_bound: 1.0,
  },
  objective: {
    type: "least_squares",
    data: {type: "synthetic_linear", dim: DIM, points: 2000, frobenius_norm: 100, noise_std: 1},
  },
  clients: 2, horizon: 2000, minibatch: 1, seed: 1, encoding: "unary",
  initial_point: {type: "random_sphere", radius: 1.0}, reference: {type: "solve"},
};

let folder, url, coordinator, client, check; // `check` compares REST responses with api/openapi.yaml
const processes = [];

function start(program, ...args) {
  const child = programs.start(folder, program, ...args);
  processes.push(child);
  return child;
}

const until = (what, condition) => programs.until(what, condition, [coordinator]);

async function getJson(where) {
  const {status, text} = await check.fetch(url + where);
  assert.equal(status, 200, where);
  return JSON.parse(text);
}

async function submit(document) {
  const {status, text} = await check.fetch(`${url}/v1/jobs`, {
    method: "POST",
    headers: {"Content-Type": "application/json"},
    body: JSON.stringify(document),
  });
  assert.equal(status, 201, text);
  return JSON.parse(text).id;
}

const ended = async (id) => {
  const job = await getJson(`/v1/jobs/${id}`);
  return ["completed", "failed", "cancelled"].includes(job.status) ? job : null;
};

async function pollTask(session, cursors = []) {
  return until("a task", async () => {
    const {kind} = await client.pollTask({session, waitMs: 5000, cursors});
    return kind.case === "task" ? kind.value : null;
  });
}

// Returns a request with a correct update of a task whose levels are all zero. `changes` are of the update, `rest` of the
// request.
const updateOf = (session, task, index, changes = {}, rest = {}) => ({
  session,
  jobId: task.jobId,
  round: task.round,
  updates: [{
    client: index,
    payload: task.cut ? new Uint8Array() : ZEROS,
    payloadBits: task.cut ? 0n : BigInt(DIM),
    loss: task.evaluate ? 0.5 : undefined,
    ...changes,
  }],
  ...rest,
});

// Asserts that the call fails with a Connect error of this code, or of one of these codes.
const fails = (code, call) =>
  assert.rejects(call, (error) => {
    assert.ok(error instanceof ConnectError, String(error));
    assert.ok([code].flat().includes(error.code), `${Code[error.code]}: ${error.message}`);
    assert.ok(error.rawMessage.length > 0);
    return true;
  });

before(async () => {
  check = await validator();
  folder = await mkdtemp(path.join(tmpdir(), "tally-e2e-"));
  const port = await programs.freePort();
  url = `http://127.0.0.1:${port}`;
  coordinator = start("tally-coordinator", "--listen", `127.0.0.1:${port}`,
    "--store", `sqlite:${folder}/tally.db`);
  await until("the coordinator", async () => {
    assert.equal(coordinator.exitCode, null, coordinator.log);
    return fetch(`${url}/readyz`).then((response) => response.ok, () => false);
  });
  const transport = createConnectTransport({baseUrl: url, httpVersion: "1.1", useBinaryFormat: true});
  client = createClient(WorkerService, transport);
});

after(async () => {
  for (const child of processes.reverse()) {
    await programs.stop(child);
  }
  await rm(folder, {recursive: true, force: true});
});

test("an idle worker waits, then gets the task of a new job", async () => {
  const {session, sessionTimeoutMs} = await client.join({name: "node", slots: 2, format: FORMAT});
  assert.notEqual(session, 0n);
  assert.ok(sessionTimeoutMs > 0);

  const idle = await client.pollTask({session, waitMs: 50});
  assert.equal(idle.kind.case, "idle");
  assert.equal(idle.kind.value.jobsPending, 0);

  // The poll waits in the coordinator before the job exists.
  const waiting = pollTask(session);
  const id = await submit(JOB);
  const task = await waiting;
  assert.equal(task.jobId, id);
  const document = JSON.parse(new TextDecoder().decode(task.jobDocument));
  assert.equal(document.objective.data.dim, DIM);
  assert.equal(document.horizon, JOB.horizon);
  assert.deepEqual([...task.clients].sort(), [0, 1]);
  assert.equal(task.round, 1);
  assert.equal(task.stage, JOB.algorithm.first_stage);
  assert.equal(task.iterate, 1n);
  assert.ok(task.samples > 0n);
  assert.equal(task.cut, false);
  assert.equal(task.encoding, "unary");
  assert.ok(task.quantizerStep > 0);
  assert.ok(task.quantizerIntervals > 0 && task.quantizerIntervals % 2 === 0);
  assert.deepEqual(task.broadcasts, []);
  const job = await getJson(`/v1/jobs/${id}`);
  assert.equal(task.xChecksum.toString(16).padStart(16, "0"), job.x_checksum);

  const post = (changes, rest) => () => client.postUpdate(updateOf(session, task, 0, changes, rest));
  await fails(Code.InvalidArgument, post({payload: new Uint8Array([255, 255, 255, 255])}));
  await fails(Code.InvalidArgument, post({payload: new Uint8Array(5000).fill(255), payloadBits: 40000n}));
  await fails(Code.InvalidArgument, post({payload: new Uint8Array(), payloadBits: 0n}));
  await fails(Code.InvalidArgument, post({loss: NaN}));
  await fails(Code.NotFound, post({}, {session: session ^ 1n}));
  await fails(Code.NotFound, post({}, {jobId: "nobody"}));
  await fails(Code.FailedPrecondition, post({}, {round: task.round + 1}));
  await fails(Code.PermissionDenied, post({client: 2}));
  await fails(Code.NotFound, () => client.pollTask({session: session ^ 1n, waitMs: 1}));
  await fails(Code.InvalidArgument, () => client.join({name: "node", slots: 0, format: FORMAT}));
  await fails(Code.NotFound, () => client.join({name: "node-2", slots: 1, format: FORMAT, jobId: "nobody"}));

  // Bytes that are no message at all, in a valid Connect envelope.
  const junk = await fetch(`${url}/tally.v1.WorkerService/PostUpdate`, {
    method: "POST",
    headers: {"Content-Type": "application/proto", "Connect-Protocol-Version": "1"},
    body: toBinary(PostUpdateRequestSchema, create(PostUpdateRequestSchema, updateOf(session, task, 0)))
      .map((byte) => byte ^ 0xff),
  });
  assert.equal(junk.status, 400);
  assert.equal((await junk.json()).code, "invalid_argument");

  const untouched = await getJson(`/v1/jobs/${id}`);
  assert.equal(untouched.round, 0);
  assert.equal(untouched.bits.uplink.messages, 0);

  // One valid message, twice, and then a different one in its place.
  const answer = await post({})();
  assert.equal(answer.formulaBits, BigInt(DIM));
  assert.equal(answer.payloadBits, BigInt(DIM));
  assert.deepEqual(await post({})(), answer);
  await fails(Code.AlreadyExists, post({payload: new Uint8Array([1, 0, 0, 0]), payloadBits: BigInt(DIM + 2)}));

  // The worker leaves; a worker of ours takes over the clients and completes the job.
  await client.leave({session});
  await client.leave({session});
  await fails(Code.NotFound, () => client.pollTask({session, waitMs: 1}));
  const worker = start("tally-worker", "--coordinator", url, "--name", "c", "--clients", "2");
  const job2 = await until("the job's end", () => ended(id));
  assert.equal(job2.status, "completed");
  assert.equal(job2.time_step, JOB.horizon);
  assert.equal(await programs.stop(worker), 0, worker.log);
});

test("a whole job played from Node", async () => {
  const {session} = await client.join({name: "node player", slots: 2, format: FORMAT});
  const id = await submit({...JOB, name: "zeros", horizon: 700});
  const cursors = [];
  let messages = 0;
  let job = null;
  for (;;) {
    const {kind} = await client.pollTask({session, waitMs: 5000, cursors});
    if (kind.case === "released") {
      assert.equal(kind.value.jobId, id);
      break;
    }
    if (kind.case !== "task") {
      continue;
    }
    const task = kind.value;
    assert.equal(task.jobDocument.length > 0, cursors.length === 0);
    for (const index of task.clients) {
      await client.postUpdate(updateOf(session, task, index));
      messages += task.cut ? 0 : 1;
    }
    cursors.splice(0, 1, {jobId: id, iterate: task.iterate});
  }
  job = await getJson(`/v1/jobs/${id}`);
  assert.equal(job.status, "completed");
  assert.equal(job.time_step, 700);
  assert.equal(job.iterate, 1); // a zero gradient never passes the norm test
  assert.ok(messages > 0);
  assert.deepEqual(job.bits.uplink,
    {formula: DIM * messages, payload: DIM * messages, messages, clipped: 0});
  await client.leave({session});
});

test("a job whose horizon cuts the first round asks for losses alone", async () => {
  const {session} = await client.join({name: "node losses", slots: 2, format: FORMAT});
  const id = await submit({...JOB, name: "cut", horizon: 5});
  const task = await pollTask(session);
  assert.equal(task.jobId, id);
  assert.equal(task.cut, true);
  assert.equal(task.samples, 5n);
  assert.equal(task.evaluate, true);
  const unnamed = [{name: "No name", value: 1}];
  await fails(Code.InvalidArgument, () => client.postUpdate(updateOf(session, task, 0, {metrics: unnamed})));
  for (const index of task.clients) { // what is not finite is dropped
    const metrics = [{name: "accuracy", value: 0.25}, {name: "seconds", value: index === 0 ? NaN : 2}];
    await client.postUpdate(updateOf(session, task, index, {metrics}));
  }
  const job = await until("the job's end", () => ended(id));
  assert.equal(job.status, "completed");
  assert.equal(job.bits.uplink.messages, 0);
  assert.deepEqual(job.metrics, {accuracy: {mean: 0.25, min: 0.25, max: 0.25}, seconds: {mean: 2, min: 2, max: 2}});
  assert.ok(Math.abs(job.cumulative_regret - 2 * 5 * (0.5 - job.f_star)) < 1e-9);
  await client.leave({session});
});

test("a client's own timeout ends a long poll", async () => {
  const {session} = await client.join({name: "node waiting", slots: 1, format: FORMAT});
  // Much less time than the server needs, so the client itself gives up.
  const signal = AbortSignal.timeout(100);
  await fails(Code.Canceled, () => client.pollTask({session, waitMs: 30000}, {signal}).catch((error) => {
    throw ConnectError.from(error, Code.Canceled);
  }));
  // A coordinator that is stopped (SIGSTOP) does not respond.
  coordinator.kill("SIGSTOP");
  try {
    await fails(Code.DeadlineExceeded, () => client.pollTask({session, waitMs: 30000}, {timeoutMs: 200}));
  } finally {
    coordinator.kill("SIGCONT");
  }
  // If the timeout is announced, however, the server keeps it, and responds a quarter earlier.
  const answer = await client.pollTask({session, waitMs: 30000}, {timeoutMs: 24000});
  assert.equal(answer.kind.case, "idle");
  await client.leave({session});
});

test("the coordinator drains while a poll waits", async () => {
  const {session} = await client.join({name: "node last", slots: 1, format: FORMAT});
  const waiting = client.pollTask({session, waitMs: 30000}).then(
    (answer) => answer.kind.case, (error) => error.code);
  await until("the poll to wait", async () =>
    (await getJson("/v1/workers")).workers.some(({name, state}) => name === "node last" && state === "waiting"));
  assert.equal(await programs.stop(coordinator), 0, coordinator.log);
  assert.ok(["idle", Code.Unavailable, Code.Aborted].includes(await waiting), String(await waiting));
  // Node may send the call over a kept connection before it sees that the connection was closed.
  await fails([Code.Unavailable, Code.Aborted], () => client.pollTask({session, waitMs: 1}));
});
