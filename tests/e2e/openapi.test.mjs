// api/openapi.yaml is correct: it passes a linter, its paths are those of routes.c, its examples
// are replayed, and every limit in it is tried on the schema and on the server, one step inside and
// one step outside, so that neither can change without the other.
//
// tests/run copies this file to build/e2e, beside node_modules.
import assert from "node:assert/strict";
import {once} from "node:events";
import {mkdir, mkdtemp, readFile, readdir, rm, writeFile} from "node:fs/promises";
import http from "node:http";
import {tmpdir} from "node:os";
import path from "node:path";
import {after, before, test} from "node:test";

import {createConfig, lint} from "@redocly/openapi-core";
import spectral from "@stoplight/spectral-core";
import parsers from "@stoplight/spectral-parsers";
import rulesets from "@stoplight/spectral-rulesets";

import * as programs from "./programs.mjs";
import {OPENAPI, readEvents, validator} from "./validate.mjs";

const SOURCE = path.resolve(path.dirname(OPENAPI), "..");
const NOBODY = "000000000000";
const TOKEN = "open-sesame-open-sesame";
const OLD_TOKEN = "open-sesame-of-old";
const METRICS_TOKEN = "open-barley-open-barley";
const WORKER_TOKEN = "open-wheat-open-wheat";

let folder, check, open, guarded, finished; // `finished` is a completed job
const processes = [];

function start(program, ...args) {
  const child = programs.start(folder, program, ...args);
  processes.push(child);
  return child;
}

const until = (what, condition) => programs.until(what, condition, processes);

// Starts a coordinator that stores nothing; returns its address.
async function coordinate(...options) {
  const child = start("tally-coordinator", "--listen", "127.0.0.1:0", "--store", "memory:", ...options);
  const port = await until("the coordinator", () => {
    assert.equal(child.exitCode, null, child.log);
    return /event=listening .*\bport=(\d+)/.exec(child.log)?.[1];
  });
  return `http://127.0.0.1:${port}`;
}

const examplesOf = (owner) => Object.entries(owner.examples ?? {})
  .map(([name, example]) => ({name, value: check.resolve(example).value}));
const requestExamples = () => Object.fromEntries(
  examplesOf(check.document.paths["/v1/jobs"].post.requestBody.content["application/json"])
    .map(({name, value}) => [name, value]));

// Returns an example of a successful response, which the caller compares with a real one.
const replayed = new Set();
function example(template, name, {method = "get", status = 200, type = "application/json"} = {}) {
  const {content} = check.resolve(check.document.paths[template][method].responses[status]);
  replayed.add(`${method} ${template} ${status} ${type} ${name}`);
  return check.resolve(content[type].examples[name]).value;
}

const post = (where, body, headers = {}) => check.fetch(where, {
  method: "POST",
  headers: {"Content-Type": "application/json", ...headers},
  body: body === undefined || typeof body === "string" ? body : JSON.stringify(body),
});

async function submit(base, document) {
  const answer = await post(`${base}/v1/jobs`, document);
  assert.equal(answer.status, 201, answer.text);
  return JSON.parse(answer.text);
}

// Sends what fetch() refuses to send: a bare header section. Checks the response.
async function sendHead(base, method, where, headers) {
  const {hostname, port} = new URL(base);
  const request = http.request({hostname, port, method, path: where, headers});
  request.on("error", () => {}); // the server closes the connection after its response
  request.flushHeaders();
  const [response] = await once(request, "response");
  const chunks = [];
  for await (const chunk of response) {
    chunks.push(chunk);
  }
  request.destroy();
  const body = Buffer.concat(chunks);
  check({method, path: where, status: response.statusCode, headers: response.headers, body});
  return {status: response.statusCode, text: body.toString()};
}

// Returns all operations of the document: {method, template, item, operation}.
function operations() {
  const all = [];
  for (const [template, item] of Object.entries(check.document.paths)) {
    for (const method of ["get", "post", "delete"]) {
      if (item[method]) {
        all.push({method: method.toUpperCase(), template, item, operation: item[method]});
      }
    }
  }
  return all;
}
const parametersOf = ({item, operation}) =>
  [...(item.parameters ?? []), ...(operation.parameters ?? [])].map(check.resolve);
const isGuarded = ({operation}) => (operation.security ?? check.document.security).length > 0;
const pathFor = (template, id) => template.replace("{id}", id).replace("{name}", "nothing");

before(async () => {
  folder = await mkdtemp(path.join(tmpdir(), "tally-openapi-"));
  await writeFile(path.join(folder, "token"), `${TOKEN}\n${OLD_TOKEN} until=2026-01-01T00:00:00Z\n`, {mode: 0o600});
  await writeFile(path.join(folder, "metrics-token"), `${METRICS_TOKEN}\n`, {mode: 0o600});
  await writeFile(path.join(folder, "worker-token"), `${WORKER_TOKEN}\n`, {mode: 0o600});
  check = await validator();
  open = await coordinate("--max-jobs", "1000000");
  guarded = await coordinate("--admin-token-file", "token", "--metrics-token-file", "metrics-token",
    "--worker-token-file", "worker-token",
    "--max-jobs", "1", "--max-streams", "1");
});

after(async () => {
  for (const child of processes.reverse()) {
    await programs.stop(child);
  }
  await rm(folder, {recursive: true, force: true});
});

test("a linter has nothing to say", async () => {
  const config = await createConfig({extends: ["recommended-strict"]});
  const problems = await lint({ref: OPENAPI, config});
  assert.deepEqual(problems.map(({ruleId, message, location}) =>
    `${ruleId}: ${message} at ${location[0].pointer}`), []);
});

test("Spectral has nothing to say", async () => {
  const linter = new spectral.Spectral();
  linter.setRuleset({
    extends: [rulesets.oas],
    rules: {"info-contact": "off", "operation-description": "off"}, // no contact to name; a summary may say everything
  });
  const text = await readFile(OPENAPI, "utf8");
  const problems = await linter.run(new spectral.Document(text, parsers.Yaml, OPENAPI));
  assert.deepEqual(problems.map(({code, message, path: where}) => `${code}: ${message} at ${where.join(".")}`), []);
});

test("its paths, methods and tokens are those of routes.c", async () => {
  const routes = await readFile(path.join(SOURCE, "services/coordinator/rest_routes.c"), "utf8");
  const inCode = [...routes.matchAll(/^ *\{"([A-Z]+)", *"([^"]+)", *(ROUTE_[A-Z]+),/gm)]
    .filter(([, , , kind]) => kind !== "ROUTE_WORKER")
    .map(([, method, where, kind]) => `${method} ${where.replace(/\{[^}]*\}/g, "{}")} ${kind}`);
  assert.ok(inCode.length >= 18, "routes.c was not understood");
  const documented = operations().map(({method, template, operation}) => {
    const security = operation.security ?? check.document.security;
    const kind = security.length === 0 ? "ROUTE_PUBLIC"
      : security.some((each) => each.metricsToken) ? "ROUTE_METRICS" : "ROUTE_ADMIN";
    return `${method} ${template.replace(/\{[^}]*\}/g, "{}")} ${kind}`;
  });
  assert.deepEqual(documented.sort(), inCode.sort());
  const program = start("tally-coordinator", "--version");
  await once(program, "close");
  assert.ok(program.log.split(/\s/).includes(check.document.info.version), program.log);
});

// ---- Examples ----

const schemaOf = (document) => document.objective?.type === "training" ? "TrainingDocument" : "JobDocument";

test("request examples are valid and accepted, and so are the documents in deploy/jobs", async () => {
  const documents = Object.entries(requestExamples());
  for (const file of (await readdir(path.join(SOURCE, "deploy/jobs"), {recursive: true})).filter((name) => name.endsWith(".json"))) {
    documents.push([file, JSON.parse(await readFile(path.join(SOURCE, "deploy/jobs", file), "utf8"))]);
  }
  assert.ok(documents.length > 10);
  for (const [name, document] of documents) {
    assert.deepEqual(check.schema(schemaOf(document))(document), [], name);
    const answer = await post(`${open}/v1/jobs`, document);
    assert.equal(answer.status, 201, `${name}: ${answer.text}`);
    const detail = JSON.parse(answer.text);
    assert.equal(answer.headers.get("location"), `/v1/jobs/${detail.id}`);
    for (const [key, value] of Object.entries(document)) {
      if (typeof value !== "object") {
        assert.equal(detail[key], value, `${name}: ${key}`);
      }
    }
    await post(`${open}/v1/jobs/${detail.id}/cancel`);
  }
});

test("a job has no model before its initial point is known", async () => {
  const {training} = requestExamples();
  const {id} = await submit(open, training);
  const answer = await check.fetch(`${open}/v1/jobs/${id}/model`);
  assert.equal(answer.status, 409);
  assert.match(answer.text, /the initial point is of type first and is not known before the job starts/);
  await post(`${open}/v1/jobs/${id}/cancel`);
});

test("defaults are those of the server", async () => {
  const {resolve} = check;
  const compare = (schema, given, stored, where) => {
    for (const [key, member] of Object.entries(resolve(schema).properties)) {
      const fallback = resolve(member).default;
      if (fallback !== undefined && !(key in given)) {
        assert.deepEqual(stored[key], fallback, `${where}${key}`);
      }
    }
  };
  const schemas = check.document.components.schemas;
  const document = {
    algorithm: {type: "ceal", step_size: 1, sigma: 1},
    objective: {type: "least_squares", data: {type: "synthetic_linear", dim: 3, points: 20}},
    clients: 2, horizon: 10,
  };
  const ceal = await submit(open, document);
  compare(schemas.JobDocument, document, ceal, "");
  compare(schemas.Ceal, document.algorithm, ceal.algorithm, "ceal.");
  compare(schemas.SyntheticLinear, document.objective.data, ceal.objective.data, "data.");
  compare(schemas.InitialZeros, {type: ""}, ceal.initial_point, "initial_point.");
  assert.equal(ceal.initial_point.type, "zeros");
  assert.deepEqual(ceal.reference, {type: "solve"});
  assert.equal(ceal.quorum, 2);
  const {fedcom, images} = requestExamples();
  const stored = await submit(open, {...fedcom, algorithm: {...fedcom.algorithm, server_step_size: undefined}});
  compare(schemas.FedCom, {}, stored.algorithm, "fedcom.");
  const softmax = await submit(open, {...images, objective: {...images.objective, l2: undefined}});
  compare(schemas.SoftmaxRegression, {}, softmax.objective, "softmax_regression.");
  const {plugin} = requestExamples();
  const mine = await submit(open, {...plugin, objective: {...plugin.objective, options: undefined}, reference: undefined});
  compare(schemas.Plugin, {}, mine.objective, "plugin.");
  assert.deepEqual(mine.reference, {type: "none"}, "nobody here can solve for it");
});

// Integers of a run are the same on every machine. Reals may differ in their last digits with the
// mathematics library. Ids, times, traffic and the current state of workers are not compared.
const OWN = new Set(["id", "job_id", "job", "x_checksum", "created_ms", "started_ms", "finished_ms",
  "closed_ms", "joined_ms", "last_contact_age_ms", "since_ms", "state", "in", "out"]);
function assertLike(actual, expected, where = "") {
  const key = where.split(".").pop();
  if (Array.isArray(expected) || (expected !== null && typeof expected === "object")) {
    assert.deepEqual(Object.keys(actual).sort(), Object.keys(expected).sort(), where);
    for (const [name, value] of Object.entries(expected)) {
      assertLike(actual[name], value, `${where}.${name}`);
    }
  } else if (OWN.has(key)) {
    assert.equal(typeof actual, typeof expected, where);
  } else if (typeof expected === "number" && !Number.isInteger(expected)) {
    assert.ok(Math.abs(actual - expected) <= 1e-9 * Math.abs(expected), `${where}: ${actual}, not ${expected}`);
  } else {
    assert.equal(actual, expected, where);
  }
}

test("the example job runs and answers as its examples say", async () => {
  await until("earlier jobs to be prepared", async () => JSON.parse((await check.fetch(`${open}/v1/jobs`)).text)
    .jobs.every(({waiting}) => waiting?.for !== "reference")); // otherwise it would wait behind them
  const queued = await submit(open, requestExamples().ceal);
  assertLike(queued, example("/v1/jobs", "queued", {method: "post", status: 201}));
  const where = `${open}/v1/jobs/${queued.id}`;

  const worker = start("tally-worker", "--coordinator", open, "--name", "w", "--clients", "2", "--job", queued.id);
  const stream = await check.fetch(`${where}/events?after=0`);
  assert.equal(stream.status, 200);
  const {provenance, ...detail} = JSON.parse((await check.fetch(where)).text); // it differs from machine to machine
  assert.equal(provenance.coordinators.length, 1);
  assert.equal(await programs.stop(worker), 0, worker.log);
  finished = detail;
  assertLike(detail, example("/v1/jobs/{id}", "completed"));

  const document = JSON.parse((await check.fetch(`${where}/document`)).text); // every member of it is in the detail
  assertLike(document, Object.fromEntries(Object.keys(document).map((key) => [key, detail[key]])));
  assert.equal(document.id, undefined);

  const {rounds} = JSON.parse((await check.fetch(`${where}/rounds`)).text);
  const page = JSON.parse((await check.fetch(`${where}/rounds?after=0&limit=1`)).text);
  assertLike(page, example("/v1/jobs/{id}/rounds", "page"));
  const csv = (await check.fetch(`${where}/rounds.csv`)).text;
  const [header, line] = csv.split("\n");
  const [exampleHeader, exampleLine] = example("/v1/jobs/{id}/rounds.csv", "one_round",
    {type: "text/csv; charset=utf-8"}).split("\n");
  assert.equal(header, exampleHeader);
  const numbersOf = (text) => text.split(",").map(Number).slice(0, -1); // without closed_ms
  assertLike(numbersOf(line), numbersOf(exampleLine));
  const model = JSON.parse((await check.fetch(`${where}/model`)).text);
  assertLike(model, example("/v1/jobs/{id}/model", "three_coordinates"));
  const {models} = JSON.parse((await check.fetch(`${where}/models`)).text);
  assert.deepEqual(models, [{which: "last", round: model.round, iterate: model.iterate, bytes: 8 * model.x.length,
    x_checksum: model.x_checksum}]);
  const npy = await check.fetch(`${where}/model`, {headers: {Accept: "application/x-npy"}});
  assert.equal(npy.headers.get("content-type"), "application/x-npy");
  assert.equal(npy.body.readDoubleLE(npy.body.length - 8), model.x.at(-1));

  // Events: the detail comes first and last, every round once, with the totals of the series.
  const events = readEvents(stream.text);
  assert.equal(events[0].event, "job");
  assert.equal(events.at(-1).event, "job");
  assert.deepEqual(events.at(-1).data, detail);
  const ofRounds = events.filter(({event}) => event === "round");
  assert.deepEqual(ofRounds.map(({id}) => Number(id)), rounds.map(({round}) => round));
  const series = JSON.parse((await check.fetch(`${where}/series`)).text);
  assert.equal(series.rounds, rounds.length);
  ofRounds.forEach(({data: {totals, ...record}}, index) => {
    assert.deepEqual(record, rounds[index]);
    const row = Object.fromEntries(series.columns.map((name, at) => [name, series.rows[index][at]]));
    for (const [name, value] of Object.entries(totals)) {
      assert.equal(row[name], value, name);
    }
  });
  const two = example("/v1/jobs/{id}/series", "two_rounds");
  assert.deepEqual(series.columns, two.columns);
  const untimed = (rows) => rows.slice(0, 2).map((row) => row.slice(0, -1));
  assertLike(untimed(series.rows), untimed(two.rows));
  assert.deepEqual(series.rows.map((row) => row.at(-1)), rounds.map(({closed_ms}) => closed_ms));
  const last = {headers: {"Last-Event-ID": String(detail.round)}};
  assert.equal((await check.fetch(`${where}/events`, last)).status, 204);
});

test("a bundle is imported as its example says", async () => {
  const bundle = path.join(folder, "job.tar");
  const exporting = start("tally", "export", finished.id, "--bundle", bundle, "--coordinator", open);
  await once(exporting, "close");
  const body = await readFile(bundle);
  const send = (base, bytes) => check.fetch(`${base}/v1/jobs/import`,
    {method: "POST", headers: {"Content-Type": "application/x-tar"}, body: bytes});
  const other = await coordinate();
  const first = await send(other, body);
  assert.equal(first.status, 201, first.text);
  const {provenance, ...detail} = JSON.parse(first.text); // it differs from machine to machine
  assert.equal(provenance.coordinators.length, 1);
  const {provenance: _, imported, ...expected} = example("/v1/jobs/import", "imported", {method: "post", status: 201});
  assertLike({...detail, imported: {...detail.imported, bundle_sha256: ""}}, {...expected,
    imported: {...imported, imported_ms: detail.imported.imported_ms, bundle_sha256: ""}});
  const {imported: __, ...here} = detail;
  assert.deepEqual(here, finished);
  assert.equal((await send(other, body)).text, first.text);
  assert.equal((await send(open, body)).status, 200);
  // It ended more than a second ago.
  await until("its time to be over", async () => Date.now() > finished.finished_ms + 1000);
  assert.equal((await send(await coordinate("--keep-ended-s", "1"), body)).status, 409);
  await until("too many at once", async () => (await Promise.all(Array.from({length: 64}, () => send(other, body))))
    .some(({status}) => status === 429));
});

test("the models that a job keeps are as their example says", async () => {
  const {id} = await submit(open, {...requestExamples().ceal, keep: {best: "loss"}});
  const worker = start("tally-worker", "--coordinator", open, "--name", "keeper", "--clients", "2", "--job", id);
  await until("the job to complete", async () =>
    JSON.parse((await check.fetch(`${open}/v1/jobs/${id}`)).text).status === "completed");
  assert.equal(await programs.stop(worker), 0, worker.log);
  assertLike(JSON.parse((await check.fetch(`${open}/v1/jobs/${id}/models`)).text),
    example("/v1/jobs/{id}/models", "best_and_last"));
});

test("the metrics and the traffic of single clients are as their examples say", async () => {
  await mkdir(path.join(folder, "data"), {recursive: true});
  await writeFile(path.join(folder, "data/points.csv"), "a,y\n1,0\n2,1\n3,0\n4,0\n5,0\n6,1\n");
  const job = await submit(open, {
    algorithm: {type: "minibatch_sgd", step_size: 0.1, local_steps: 10},
    objective: {type: "logistic_regression", accuracy: true,
      data: {type: "csv", file: "points.csv", label: "y", features: 1, sharding: "contiguous"}},
    reference: {type: "none"}, clients: 3, horizon: 10,
  });
  const where = `${open}/v1/jobs/${job.id}/metrics`;
  const metrics = async (query) => JSON.parse((await check.fetch(where + query)).text);
  const traffic = async (query) => JSON.parse((await check.fetch(`${open}/v1/jobs/${job.id}/traffic${query}`)).text);
  assertLike(await metrics(""), example("/v1/jobs/{id}/metrics", "none"));
  assertLike(await traffic(""), example("/v1/jobs/{id}/traffic", "none"));
  const worker = start("tally-worker", "--coordinator", open, "--name", "w", "--clients", "3", "--job", job.id);
  const ended = () => check.fetch(`${open}/v1/jobs/${job.id}`).then(({text}) => JSON.parse(text).status === "completed");
  await until("its end", ended);
  assert.equal(await programs.stop(worker), 0, worker.log);
  assertLike(await metrics("?limit=2"), example("/v1/jobs/{id}/metrics", "page"));
  assertLike(await traffic("?limit=1"), example("/v1/jobs/{id}/traffic", "page"));
});

test("the scaling of a surveyed job is as its example says", async () => {
  await mkdir(path.join(folder, "data"), {recursive: true});
  await writeFile(path.join(folder, "data/part-0.csv"), "a,b,y\n1,0.5,0\n3,0.5,1\n");
  await writeFile(path.join(folder, "data/part-1.csv"), "a,b,y\n5,0.5,0\n7,0.5,1\n");
  const job = await submit(open, {
    algorithm: {type: "minibatch_sgd", step_size: 0.1, local_steps: 1},
    objective: {type: "logistic_regression", data: {type: "csv", file: "part-{client}.csv", label: "y", features: 2,
      classes: 2, sharding: "local", standardize: true}},
    reference: {type: "none"}, clients: 2, horizon: 4,
  });
  const where = `${open}/v1/jobs/${job.id}`;
  assert.equal((await check.fetch(`${where}/scaling`)).status, 404);
  const worker = start("tally-worker", "--coordinator", open, "--name", "surveyor", "--clients", "2", "--job", job.id);
  await until("its end", async () => JSON.parse((await check.fetch(where)).text).status === "completed");
  assert.equal(await programs.stop(worker), 0, worker.log);
  assertLike(JSON.parse((await check.fetch(`${where}/scaling`)).text), example("/v1/jobs/{id}/scaling", "two_features"));
  const npy = await check.fetch(`${where}/scaling`, {headers: {Accept: "application/x-npy"}});
  assert.equal(npy.headers.get("content-type"), "application/x-npy");
  assert.equal((await check.fetch(`${where}/scaling`, {headers: {Accept: "image/png"}})).status, 406);
});

test("workers, health, metrics and pages answer as documented", async () => {
  // It serves two clients of an endless job, like the one of the example.
  const worker = start("tally-worker", "--coordinator", open, "--name", "w", "--clients", "3");
  const {ceal} = requestExamples();
  const job = await submit(open, {...ceal, horizon: 2_000_000_000});
  const shown = await until("its clients", async () => {
    const all = JSON.parse((await check.fetch(`${open}/v1/workers`)).text);
    return all.workers[0]?.assignments.filter((each) => each.job === job.id).length === 2 && all;
  });
  assertLike(shown, example("/v1/workers", "one_worker"));
  const none = JSON.parse((await check.fetch(`${open}/v1/jobs?status=paused`)).text);
  assert.deepEqual(none, example("/v1/jobs", "empty"));
  for (const [where, name] of [["/healthz", "ok"], ["/readyz", "ready"]]) {
    assert.deepEqual(JSON.parse((await check.fetch(open + where)).text), example(where, name));
  }
  for (const where of ["/v1/jobs", "/v1/jobs?limit=1", "/v1/jobs?status=running", "/healthz", "/readyz",
    `/v1/jobs/${job.id}/series?points=10`, "/metrics", "/", "/openapi.yaml"]) {
    const answer = await check.fetch(open + where);
    assert.equal(answer.status, 200, `${where} ${answer.text}`);
    const head = await check.fetch(open + where, {method: "HEAD"});
    assert.equal(head.status, 200, where);
  }
  for (const [verb, status] of [["pause", "paused"], ["resume", "running"], ["cancel", "cancelled"]]) {
    const changed = await post(`${open}/v1/jobs/${job.id}/${verb}`);
    assert.equal(changed.status, 200, changed.text);
    assert.equal(JSON.parse(changed.text).status, status);
  }
  assert.equal(await programs.stop(worker), 0, worker.log);
});

test("/openapi.yaml is this very file", async () => {
  const answer = await check.fetch(`${open}/openapi.yaml`);
  assert.equal(answer.status, 200);
  const again = await check.fetch(`${open}/openapi.yaml`, {headers: {"If-None-Match": answer.headers.get("etag")}});
  assert.equal(again.status, 304);
  assert.ok(answer.body.equals(await readFile(OPENAPI)), "the coordinator was built with another one");
});

test("the dashboard's files answer as documented, and are sent once", async () => {
  // Follows every file that the page or one of its files names, until there are no new ones.
  const names = [""];
  const seenTypes = new Set();
  for (const name of names) {
    const where = `${open}/${name}`;
    const answer = await check.fetch(where);
    assert.equal(answer.status, 200, where);
    seenTypes.add(answer.headers.get("content-type"));
    const again = await check.fetch(where, {headers: {"If-None-Match": answer.headers.get("etag")}});
    assert.equal(again.status, 304, where);
    assert.equal((await check.fetch(where, {headers: {"If-None-Match": '"other"'}})).status, 200);
    if (/html|javascript/.test(answer.headers.get("content-type"))) {
      for (const [, file] of answer.text.matchAll(/["'](?:assets|\.)\/([\w-]+\.[a-z]+)/g)) {
        if (!names.includes(`assets/${file}`)) {
          names.push(`assets/${file}`);
        }
      }
    } else if (name === "assets/jobs.json") {
      names.push(...JSON.parse(answer.text).documents.map((file) => file.path.slice(1)));
    }
  }
  assert.ok(names.length > 20, `the page names ${names}`);
  const types = check.document.paths["/assets/{name}"].get.responses[200].content;
  for (const type of Object.keys(types)) {
    assert.ok(seenTypes.has(type), `no file is ${type}`);
  }
});

// ---- Errors ----

// How to provoke the error of each example, by name of response and example.
async function provocations() {
  const {ceal} = requestExamples();
  const job = await submit(open, ceal);
  await post(`${open}/v1/jobs/${job.id}/cancel`);
  const jobs = `${open}/v1/jobs`;
  const bad = (algorithm) => ({...ceal, algorithm});
  const {step_size: _, ...noStep} = ceal.algorithm;
  const token = {Authorization: `Bearer ${TOKEN}`};
  return {
    "BadDocument out_of_range": () => post(jobs, {...ceal, quorum: undefined, clients: 0}),
    "BadDocument unknown_member": () => post(jobs, bad({...ceal.algorithm, eta: 1})),
    "BadDocument missing_member": () => post(jobs, bad(noStep)),
    "BadDocument malformed": () => post(jobs, '{"clients":'),
    "BadDocument empty_key": () => post(jobs, ceal, {"Idempotency-Key": ""}),
    "BadBundle other_file": () => check.fetch(`${jobs}/import`,
      {method: "POST", headers: {"Content-Type": "application/x-tar"}, body: "hello"}),
    "BadQuery bad_limit": () => check.fetch(`${jobs}?limit=0`),
    "BadQuery bad_status": () => check.fetch(`${jobs}?status=asleep`),
    "Unauthorized no_token": () => check.fetch(`${guarded}/v1/jobs`),
    "Unauthorized wrong_token": () => check.fetch(`${guarded}/v1/jobs`, {headers: {Authorization: "Bearer x"}}),
    "Unauthorized expired_token": () =>
      check.fetch(`${guarded}/v1/jobs`, {headers: {Authorization: `Bearer ${OLD_TOKEN}`}}),
    "Forbidden workers_token": () =>
      check.fetch(`${guarded}/v1/jobs`, {headers: {Authorization: `Bearer ${WORKER_TOKEN}`}}),
    "Forbidden foreign_page": () => post(jobs, ceal, {Origin: "http://evil.test"}),
    "Misdirected rebound_name": () => sendHead(open, "GET", "/v1/jobs", {Host: "evil.test"}),
    "NotFound no_job": () => check.fetch(`${jobs}/${NOBODY}`),
    "NotFound nothing_there": () => check.fetch(`${open}/v2/jobs`),
    "MethodNotAllowed put": () => check.fetch(jobs, {method: "PUT"}),
    "NotAcceptable picture": () => check.fetch(`${jobs}/${job.id}/model`, {headers: {Accept: "image/png"}}),
    "KeyConflict other_document": async () => {
      const first = await post(jobs, ceal, {"Idempotency-Key": "key"});
      const again = await post(jobs, ceal, {"Idempotency-Key": "key"});
      assert.equal(JSON.parse(again.text).id, JSON.parse(first.text).id);
      return post(jobs, {...ceal, seed: 2}, {"Idempotency-Key": "key"});
    },
    "StateConflict cancelled": () => post(`${jobs}/${job.id}/cancel`),
    "TooLarge body": () => sendHead(open, "POST", "/v1/jobs",
      {"Content-Type": "application/json", "Content-Length": 67108865}),
    "QueryTooLong many_parameters": () => check.fetch(`${jobs}?${"a&".repeat(100)}`),
    "HeadersTooLarge long": () => sendHead(open, "GET", "/healthz", {"X-Long": "x".repeat(9000)}),
    "UnsupportedMediaType text": () => post(jobs, "hello", {"Content-Type": "text/plain"}),
    "UnsupportedMediaType compressed": () => post(jobs, "{}", {"Content-Encoding": "gzip"}),
    "TooManyJobs full": async () => {
      const first = await post(`${guarded}/v1/jobs`, ceal, token);
      assert.equal(first.status, 201, first.text);
      return post(`${guarded}/v1/jobs`, ceal, token);
    },
    "TooManyStreams full": async () => {
      const {id} = JSON.parse((await check.fetch(`${guarded}/v1/jobs`, {headers: token})).text).jobs[0];
      const where = `${guarded}/v1/jobs/${id}/events`;
      const ended = new AbortController();
      const first = await fetch(where, {headers: token, signal: ended.signal});
      const second = await check.fetch(where, {headers: token});
      ended.abort();
      assert.equal(first.status, 200);
      return second;
    },
    "NotImplemented gzip": () => sendHead(open, "POST", "/v1/jobs", {"Transfer-Encoding": "gzip"}),
  };
}
// These need a full disk, a damaged file, another job of the same id, a moment during shutdown, or a minute.
const NOT_PROVOKED = ["ImportConflict other_job", "InternalError damaged", "TooManyImports full", "RequestTimeout slow", "Unavailable draining", "Unavailable store"];

test("the examples of problems are what the server says", async () => {
  const replay = await provocations();
  const documented = [];
  for (const [name, response] of Object.entries(check.document.components.responses)) {
    const media = response.content?.["application/problem+json"];
    for (const example of media ? examplesOf(media) : []) {
      documented.push(`${name} ${example.name}`);
      const provoke = replay[`${name} ${example.name}`];
      if (provoke) {
        const {status, text} = await provoke();
        const withoutId = (problem) => ({...problem, detail: problem.detail.replace(/job [0-9a-f]{12}$/, "job ID")});
        assert.deepEqual(withoutId(JSON.parse(text)), withoutId(example.value));
        assert.equal(status, example.value.status);
      }
    }
  }
  assert.deepEqual(documented.sort(), [...Object.keys(replay), ...NOT_PROVOKED].sort());
});

test("every operation refuses as documented", async () => {
  const {ceal} = requestExamples();
  const {id} = await submit(open, ceal);
  for (const each of operations()) {
    const {method, template} = each;
    const what = `${method} ${template}`;
    const where = pathFor(template, id);
    if (isGuarded(each)) {
      for (const authorization of [undefined, "Bearer ", "Bearer wrong", `Basic ${TOKEN}`, `Bearer ${OLD_TOKEN}`]) {
        const headers = authorization ? {Authorization: authorization} : {};
        assert.equal((await check.fetch(guarded + where, {method, headers})).status, 401, what);
      }
      for (const token of template === "/metrics" ? [WORKER_TOKEN] : [WORKER_TOKEN, METRICS_TOKEN]) {
        const headers = {Authorization: `Bearer ${token}`};
        assert.equal((await check.fetch(guarded + where, {method, headers})).status, 403, what);
      }
    }
    for (const token of template === "/metrics" ? [METRICS_TOKEN, TOKEN] : [TOKEN]) {
      const welcome = await check.fetch(guarded + pathFor(template, NOBODY),
        {method, headers: {Authorization: `Bearer ${token}`}});
      assert.ok(welcome.status !== 401 && welcome.status !== 403, what);
    }
    if (template.includes("{")) {
      const missing = await check.fetch(open + pathFor(template, NOBODY), {method});
      assert.equal(missing.status, 404, what);
    }
    const methods = Object.keys(each.item).map((key) => key.toUpperCase());
    const allowed = ["GET", "HEAD", "POST", "DELETE"]
      .filter((name) => methods.includes(name === "HEAD" ? "GET" : name)).join(", ");
    for (const wrong of ["PUT", "DELETE", "PATCH", "OPTIONS", "POST", "GET"].filter((name) => !methods.includes(name))) {
      const refused = await check.fetch(open + where, {method: wrong});
      assert.equal(refused.status, 405, `${wrong} ${where}`);
      assert.equal(refused.headers.get("allow"), allowed);
    }
    const long = await sendHead(open, method, where, {"X-Long": "x".repeat(9000)});
    assert.equal(long.status, 431, what);
    const query = await check.fetch(`${open}${where}?${"a&".repeat(100)}`, {method});
    assert.equal(query.status, 414, what);
    const rebound = await sendHead(open, method, where, {Host: "evil.test", "Content-Length": 0});
    assert.equal(rebound.status, 421, what);
    if (method !== "GET") {
      const foreign = await check.fetch(open + where, {method, headers: {Origin: "http://evil.test"}});
      assert.equal(foreign.status, 403, what);
      const large = await sendHead(open, method, where, {"Content-Length": 67108865});
      assert.equal(large.status, 413, what);
      assert.equal((await sendHead(open, method, where, {"Transfer-Encoding": "gzip"})).status, 501, what);
    }
  }
  assert.equal((await check.fetch(`${open}/v1/jobs/${id}`, {method: "DELETE"})).status, 409);
  await post(`${open}/v1/jobs/${id}/cancel`);
  for (const verb of ["cancel", "pause", "resume"]) {
    assert.equal((await post(`${open}/v1/jobs/${id}/${verb}`)).status, 409);
  }
});

test("request ids come back, or are drawn", async () => {
  const {schema} = check.document.components.parameters.RequestId;
  const valid = (text) => check.schema("RequestId")(text).length === 0;
  assert.ok(schema);
  const seen = new Set();
  for (const id of ["a", "x".repeat(64), "A-z.0_9", "x".repeat(65), "a b", "a/b", "\u00e9", undefined]) {
    for (const where of ["/healthz", "/v1/jobs/nobody", "/nothing", "/v1/jobs?limit=0"]) {
      const headers = id === undefined ? {} : {"X-Request-Id": id};
      const answer = (await check.fetch(open + where, {headers})).headers.get("x-request-id");
      if (id !== undefined && valid(id)) {
        assert.equal(answer, id);
      } else {
        assert.ok(!seen.has(answer), "drawn twice");
        seen.add(answer);
      }
    }
  }
});

// ---- Limits ----

const clone = (value) => structuredClone(value);
function setAt(document, at, value) {
  const copy = clone(document);
  const parent = at.slice(0, -1).reduce((object, key) => object[key], copy);
  if (value === undefined) {
    delete parent[at.at(-1)];
  } else {
    parent[at.at(-1)] = value;
  }
  return copy;
}

// Returns the next double in the direction of `sign`.
function neighbour(value, sign) {
  if (value === 0) {
    return sign * Number.MIN_VALUE;
  }
  const bits = new BigInt64Array(new Float64Array([value]).buffer);
  bits[0] += BigInt(value > 0 ? sign : -sign);
  return new Float64Array(bits.buffer)[0];
}

// Returns values to try for a member, all those that its schema suggests: [value, is good].
function trials(schema) {
  const bad = (...values) => values.map((value) => [value, false]);
  const good = (...values) => values.map((value) => [value, true]);
  if (schema.const !== undefined || schema.enum) {
    return [...good(...(schema.enum ?? [])), ...bad("zzz", "", 5, null)];
  }
  if (schema.oneOf?.some(({type}) => type === "array")) { // a number, names or "auto"
    return [...trials(check.resolve(schema.oneOf[0])).filter(([value]) => !Array.isArray(value)),
      ...good(["a", "b"], "auto"), ...bad([], ["a", "a"], "AUTO", "")];
  }
  if (schema.oneOf && !schema.discriminator) { // a number or a word
    const [number, word] = schema.oneOf.map((each) => check.resolve(each));
    if (word.const === undefined) { // a word or an object
      return schema.oneOf.some(({enum: words}) => words) ? [...good(...schema.oneOf.flatMap(({enum: words}) => words ?? [])), ...bad("zzz", "", 5, null)] : bad("zzz", 5, null);
    }
    return [...trials(number), ...good(word.const), ...bad(word.const.toUpperCase(), "")];
  }
  switch (schema.type) {
  case "integer":
    return [...good(schema.minimum, schema.maximum), ...bad(schema.minimum - 1, schema.maximum + 1,
      schema.minimum + 0.5, "1", true, null, [])];
  case "number": {
    const all = bad("1", false, null, {});
    if (schema.exclusiveMinimum !== undefined) {
      all.push([schema.exclusiveMinimum, false], [-1, false], [schema.exclusiveMinimum + 1e-3, true]);
    } else {
      all.push([neighbour(schema.minimum, -1), false], [schema.minimum, true]);
    }
    if (schema.exclusiveMaximum !== undefined) {
      all.push([schema.exclusiveMaximum, false], [neighbour(schema.exclusiveMaximum, -1), true]);
    } else {
      all.push([neighbour(schema.maximum, 1), false], [schema.maximum, true]);
    }
    return all;
  }
  case "string":
    if (schema.pattern?.startsWith("^[a-z")) { // a name
      return [...good("x".repeat(schema.maxLength), "a-1_z", "0"), ...bad("", "A", "a b", "a.b", "\u00e9",
        "x".repeat(schema.maxLength + 1), 5, null)];
    }
    if (schema.pattern?.includes("https?:")) { // a URL that the operator has to allow
      return [...good(""), ...bad("x", "ftp://a/", "http://", "http://a/ b", "http://a/\u00e9", `http://a/${"x".repeat(schema.maxLength)}`, 5, null)];
    }
    return [...good("x".repeat(schema.maxLength), "\u00a0\u{1F600}<img src=x>"),
      ...(schema.minLength > 0 ? bad("", "/x", "..", "../x", "x/..", "x/../y") : good("")),
      ...bad("x".repeat(schema.maxLength + 1), "\u0001", "\u001f", "\u007f", "\u0080", "a\u009f", 5, null)];
  case "boolean":
    return [...good(true, false), ...bad(1, "true", null)];
  default:
    assert.equal(schema.type, "object");
    return bad("text", 5, null, []);
  }
}

// Yields every mutation of `value`, an object at `at` in a document, about which `schema` makes a
// statement.
function* mutations(schema, value, at) {
  let object = check.resolve(schema);
  if (object.discriminator) {
    const types = object.discriminator.mapping;
    yield {at: [...at, "type"], value: "magic", good: false};
    yield {at: [...at, "type"], value: 5, good: false};
    object = check.resolve({$ref: types[value.type]});
  }
  if (typeof object.additionalProperties === "object") { // labels
    const many = (n) => Object.fromEntries(Array.from({length: n}, (_, i) => [`k${i}`, "v"]));
    yield {at, value: many(object.maxProperties), good: true};
    yield {at, value: many(object.maxProperties + 1), good: false};
    for (const [key, good] of [["x".repeat(63), true], ["0", true], ["A.b_c/d-e", true], ["x".repeat(64), false],
      ["-a", false], [".a", false], ["a b", false], ["a=b", false], ["\u00e9", false]]) {
      yield {at: [...at, key], value: "v", good};
    }
    for (const [trial, good] of trials(check.resolve(object.additionalProperties))) {
      yield {at: [...at, "key"], value: trial, good};
    }
    return;
  }
  assert.equal(object.additionalProperties, false, at.join("."));
  yield {at: [...at, "surprise"], value: 1, good: false};
  for (const [name, member] of Object.entries(object.properties)) {
    const inside = [...at, name];
    const target = check.resolve(member);
    if ((object.required ?? []).includes(name)) {
      yield {at: inside, value: undefined, good: false};
    } else if (name in value) {
      yield {at: inside, value: undefined, good: true};
    }
    for (const [trial, good] of trials(target)) {
      yield {at: inside, value: trial, good};
    }
    if (target.type === "object" && value[name] !== undefined) {
      yield* mutations(target, value[name], inside);
    }
  }
}

// Returns the member of an ajv error, as the server writes it.
function fieldOf({instancePath, keyword, params, propertyName}) {
  const at = instancePath.split("/").slice(1).map((key) => key.replaceAll("~1", "/").replaceAll("~0", "~"));
  if (propertyName !== undefined || keyword === "propertyNames") {
    at.push(propertyName ?? params.propertyName);
  } else if (keyword === "required") {
    at.push(params.missingProperty);
  } else if (keyword === "additionalProperties") {
    at.push(params.additionalProperty);
  } else if (keyword === "discriminator") {
    at.push(params.tag);
  }
  return at.join(".");
}

// Extremes that violate a rule between members, which no schema can express. With these other
// members, they are valid.
const COMPANY = {
  "clients 100000": {"objective.data.points": 100000, "objective.data.points_per_class": 10000},
  "objective.data.dim 10000000": {"objective.data.points": 13},
  "objective.data.points 1": {clients: 1},
  "objective.data.points 100000000": {"objective.data.dim": 1},
  "objective.data.features 1000000": {"objective.data.classes": 2, "objective.data.points_per_class": 500},
  "objective.data.points_per_class 1": {clients: 1},
  "objective.data.features 10000000": {"objective.data.classes": 0, "objective.bias": false,
    "objective.type": "logistic_regression"},
  ...Object.fromEntries(["undefined", ""].flatMap((absent) => [["images", ["labels"]], ["points", ["labels"]], ["labels", ["images", "points"]]]
    .map(([name, others]) => [`objective.data.test_${name} ${absent}`, Object.fromEntries(others.map((other) => [`objective.data.test_${other}`, ""]))]))),
  "objective.data.sharding dirichlet": {"objective.data.alpha": 1, "objective.type": "logistic_regression"},
  "objective.data.alpha 1000000": {"objective.data.sharding": "dirichlet", "objective.type": "logistic_regression"},
  "objective.data.test_fraction 0.9999999999999999": {"objective.data.test_points": "", "objective.data.test_labels": ""},
  "objective.data.classes a,b": {"objective.type": "logistic_regression"},
  "objective.data.classes auto": {"objective.type": "logistic_regression"},
  "objective.data.classes 0": {"objective.type": "logistic_regression"},
  "objective.data.classes 1000000": {"objective.data.features": 2, "objective.bias": false},
  "objective.data.classes undefined": {"objective.type": "logistic_regression"},
  "objective.data.points_per_class 10000000": {"objective.data.classes": 2, "objective.data.features": 1},
  "algorithm.k 10000000": {"objective.data.dim": 10000000, "objective.data.points": 13},
  "algorithm.sigma 0.001": {"algorithm.gamma0": 1000},
  "algorithm.sigma 1000000000": {},
  "algorithm.gradient_bound 1000000000": {"algorithm.sigma": 1e9},
  "algorithm.gradient_bound 0.001": {},
  "algorithm.shifts true": {algorithm: {type: "calm", step_size: 1, noise: 1, client_spread: 1, initial_variance: 1, shifts: true}},
  "encoding dithered": {algorithm: {type: "calm", step_size: 1}},
};

// These are set even if the document lacks them.
const ADDED = new Set(["objective.data.alpha", "objective.data.sharding"]);

function withCompany(document, at, value) {
  let changed = setAt(document, at, value);
  for (const [where, other] of Object.entries(COMPANY[`${at.join(".")} ${value}`] ?? {})) {
    const keys = where.split(".");
    const parent = keys.slice(0, -1).reduce((object, key) => object?.[key], changed);
    if (parent && (keys.at(-1) in parent || ADDED.has(where))) {
      changed = setAt(changed, keys, other);
    }
  }
  return changed;
}

test("schema and server draw the same limits around a document", async (context) => {
  // For documents that leave the features and classes of a CSV file open.
  await mkdir(path.join(folder, "data"), {recursive: true});
  await writeFile(path.join(folder, "data/prices.csv"), "a,b,c,d,e,f,g,h,price\n1,2,3,4,5,6,7,8,0\n1,2,3,4,5,6,7,8,1\n");
  let tried = 0;
  const done = new Set();
  for (const [name, example] of Object.entries(requestExamples())) {
    // f(x*) is given, so that nothing is computed; quorum defaults to the number of clients.
    const trains = example.objective.type === "training";
    const base = {name: "x", seed: 1, ...clone(example), reference: trains ? {type: "none"} : {type: "value", value: 1}};
    delete base.quorum;
    for (const {at, value, good} of mutations({$ref: `#/components/schemas/${schemaOf(base)}`}, base, [])) {
      const own = at[0] === "algorithm" ? `${trains ? "training " : ""}${base.algorithm.type}` : at[0] === "objective" ? base.objective.type : "";
      const shown = typeof value === "string" && value.length > 40 ? `${value.length} letters` : JSON.stringify(value);
      const what = `${own} ${at.join(".")} = ${shown}`;
      if (done.has(what)) {
        continue;
      }
      done.add(what);
      // Without a type, the objective is not one that trains, and the algorithm lacks its steps.
      if (trains && !good && ["objective", "objective.type"].includes(at.join("."))) {
        continue;
      }
      let document = good ? withCompany(base, at, value) : setAt(base, at, value);
      if (good && at[0] === "quorum") {
        document = {...document, clients: value, objective: {...document.objective,
          data: {...document.objective.data, points: 100000}}};
      }
      if (good && ["cohort", "over_selection", "weighting"].includes(at[0])) { // with an algorithm that accepts it
        document = {...clone(requestExamples().fedavg), cohort: 10, [at[0]]: value, clients: 100000,
          reference: {type: "value", value: 1}};
        document.objective.data.points = 100000;
        delete document.quorum;
      }
      const errors = check.schema(good ? schemaOf(document) : schemaOf(base))(document);
      const answer = await post(`${open}/v1/jobs`, document);
      tried++;
      const told = `${name}: ${what}: ${answer.status} ${answer.text.slice(0, 300)}`;
      if (good) {
        assert.deepEqual(errors, [], told);
        assert.equal(answer.status, 201, told);
        const {id} = JSON.parse(answer.text);
        assert.equal((await post(`${open}/v1/jobs/${id}/cancel`)).status, 200);
      } else {
        assert.equal(answer.status, 400, told);
        assert.deepEqual([...new Set(errors.map(fieldOf))], [at.join(".")], told);
        assert.equal(JSON.parse(answer.text).field, at.join("."), told);
      }
    }
  }
  assert.ok(tried > 400, `only ${tried} mutations`);
  context.diagnostic(`${tried} documents`);
});

// Rules that the descriptions of submitJob and of the numbers state in words, and that the schema
// does not check.
test("rules that no schema can say are the server's, and named", async () => {
  const {calm, ceal, ef21, images, libsvm, npy, plugin, training} = requestExamples();
  const inData = (base, data) => ({...base, objective: {...base.objective, data: {...base.objective.data, ...data}}});
  for (const [document, field] of [
    [{...ef21, algorithm: {...ef21.algorithm, k: 9}}, "algorithm.k"],
    [{...ceal, quorum: 3}, "quorum"],
    [{...ceal, cohort: 1}, "cohort"],
    [{...ceal, cohort: 3}, "cohort"],
    [{...ceal, algorithm: {type: "fedavg", step_size: 0.01, local_steps: 2}, cohort: 1.5}, "cohort"],
    [{...ceal, over_selection: 0.3}, "over_selection"],
    [{...ceal, algorithm: {type: "fedavg", step_size: 0.01, local_steps: 2}, cohort: 2, policy: "wait", over_selection: 1}, "over_selection"],
    [{...ceal, weighting: "points"}, "weighting"],
    [{...plugin, algorithm: {type: "fedavg", step_size: 0.01, local_steps: 2}, weighting: "points"}, "weighting"],
    [{...ceal, policy: "drop", round_deadline_ms: 0}, "round_deadline_ms"],
    [{...ceal, policy: "fail", round_deadline_ms: 0}, "round_deadline_ms"],
    [inData(ceal, {points: 1}), "objective.data.points"],
    [inData(ceal, {points: 100000, dim: 10000}), "objective.data.points"],
    [inData(images, {points_per_class: 10000000}), "objective.data.points_per_class"],
    [inData(images, {points_per_class: 1, classes: 2}), "objective.data.points_per_class"],
    [inData(images, {features: 100000, classes: 256, points_per_class: 1}), "objective.data.features"],
    [inData(libsvm, {file: "a-{client}"}), "objective.data.file"],
    [inData(libsvm, {sharding: "local"}), "reference.type"],
    [inData(npy, {labels: "y-{client}.npy", sharding: "local"}), "objective.data.labels"],
    [inData(npy, {classes: 1}), "objective.data.classes"],
    [inData(npy, {test_points: ""}), "objective.data.test_points"],
    [inData(images, {test_labels: ""}), "objective.data.test_labels"],
    [inData(libsvm, {test_file: "a-{client}"}), "objective.data.test_file"],
    [{...plugin, reference: {type: "solve"}}, "reference.type"],
    [{...ceal, algorithm: {...ceal.algorithm, sigma: 1e-9}}, "algorithm"],
    [{...ceal, name: "\u00e9".repeat(65)}, "name"],
    [{...ceal, encoding: "dithered"}, "encoding"],
    [{...calm, encoding: "entropy"}, "encoding"],
    [{...ceal, budget: {uplink_bits: 100}}, "budget"],
    [{...calm, budget: {uplink_bits: 19}}, "budget.uplink_bits"],
    [{...calm, budget: {downlink_bits: 19}}, "budget.downlink_bits"],
    [{...training, over_selection: 0.5}, "over_selection"],
  ]) {
    assert.deepEqual(check.schema(schemaOf(document))(document), [], field);
    const answer = await post(`${open}/v1/jobs`, document);
    assert.equal(answer.status, 400, `${field}: ${answer.text}`);
    assert.equal(JSON.parse(answer.text).field, field);
  }
  // To a schema 2.0 is an integer, and so it is to the server.
  const real = JSON.stringify(ceal).replace('"clients":2', '"clients":2.0');
  const answer = await post(`${open}/v1/jobs?dry_run=1`, real);
  assert.equal(answer.status, 200, answer.text);
  // Data of another kind: the schema reports several errors, the server the essential one.
  const mixed = {...ceal, objective: {...images.objective, type: "quadratic", l2: undefined}};
  const refused = JSON.parse((await post(`${open}/v1/jobs`, mixed)).text);
  assert.equal(refused.field, "objective.data.type");
  assert.ok(check.schema("JobDocument")(JSON.parse(JSON.stringify(mixed))).map(fieldOf).includes(refused.field));
});

test("schema and server draw the same limits around parameters", async (context) => {
  const {ceal} = requestExamples();
  const {id} = finished; // a job that has ended, so that its event stream ends
  const big = "9223372036854775807"; // INT64_MAX, which a number of JavaScript cannot represent
  let tried = 0;
  for (const each of operations()) {
    for (const parameter of parametersOf(each)
      .filter(({name, in: place}) => place !== "path" && !["X-Request-Id", "If-None-Match"].includes(name))) {
      const schema = check.resolve(parameter.schema);
      const tries = [];
      if (schema.anyOf) { // an order of jobs: a column, or a metric
        const [columns, metric] = schema.anyOf;
        const texts = ["metric:accuracy", "-metric:a_1", `metric:${"x".repeat(32)}`, `metric:${"x".repeat(33)}`, "metric:", "metric", "metric:A",
          "metric:1", "metric:a.b", "--metric:a", "zzz", ""];
        tries.push(...columns.enum.map((value) => [value, true]), ...texts.map((value) => [value, new RegExp(metric.pattern).test(value)]));
      } else if (schema.enum) {
        tries.push(...schema.enum.map((value) => [value, true]), ["zzz", false], ["", false]);
      } else if (schema.pattern?.includes("a-z_")) { // a cursor of jobs, in the default order
        tries.push(["", false], ["x", false], ["0", false], ["-1", false], ["1e1", false], ["1", true], [big, true],
          ["9223372036854775808", false], ["name.1.61", false]);
      } else if (parameter.name === "which") { // a model; a round that no model is kept of is a 404
        tries.push(["last", true], ["first", false], ["", false], ["-1", false], ["1e1", false], ["1".repeat(19), false]);
      } else if (schema.pattern) { // a cursor of two numbers
        const bad = ["", "x", "1", "1-", "-1", "1--1", "1-x", "0x1-1", "1-1-1"];
        tries.push(...bad.map((value) => [value, new RegExp(schema.pattern).test(value)]), ["0-1", true]);
      } else if (schema.type === "array") { // labels
        const item = new RegExp(schema.items.pattern);
        tries.push(...["a", "a=", "a=b=c", "A.b_c/d-e=\u00e9", `${"x".repeat(63)}=${"x".repeat(63)}`, "", "=a", "-a=b", "a b", "x".repeat(64)]
          .map((value) => [value, item.test(value) && value.length <= schema.items.maxLength]), [`a=${"x".repeat(64)}`, false]);
      } else if (schema.type === "string") {
        tries.push(["x".repeat(schema.minLength), true], ["x".repeat(schema.maxLength), true],
          ["x".repeat(schema.minLength - 1), false], ["x".repeat(schema.maxLength + 1), false]);
      } else {
        assert.equal(schema.type, "integer", parameter.name);
        // The limit of events is the last round; other limits that are missing in the schema are
        // those of int64.
        const isLimited = each.template.endsWith("/events");
        const most = schema.maximum ?? (isLimited ? finished.round : big);
        const tooMuch = most === big ? "9223372036854775808" : most + 1;
        tries.push([schema.minimum, true], [schema.minimum - 1, false], ["x", false], ["", false], ["1e1", false],
          [most, true], [tooMuch, false]);
      }
      tries.push([parameter.example, true]);
      for (const [value, good] of tries) {
        const own = each.method === "DELETE" ? (await submit(open, ceal)).id : id;
        if (own !== id) {
          await post(`${open}/v1/jobs/${own}/cancel`);
        }
        const where = open + pathFor(each.template, own);
        const inHeader = parameter.in === "header";
        const headers = inHeader ? {[parameter.name]: String(value)} : {};
        const target = inHeader ? where : `${where}?${parameter.name}=${encodeURIComponent(value)}`;
        const answer = each.method === "POST" ? await post(target, ceal, headers)
          : await check.fetch(target, {method: each.method, headers});
        tried++;
        const told = `${each.method} ${target} ${JSON.stringify(headers)}: ${answer.status} ${answer.text.slice(0, 300)}`;
        if (good) {
          assert.ok(answer.status < 300, told);
        } else {
          assert.equal(answer.status, 400, told);
          assert.equal(JSON.parse(answer.text).field, parameter.name, told);
        }
      }
    }
  }
  context.diagnostic(`${tried} parameters`);
});

// The last test: checks what the others have covered.
test("every documented answer was seen, every example replayed", () => {
  const rare = new Set(["408", "500", "503"]); // see NOT_PROVOKED
  const missing = operations().flatMap(({method, template, operation}) => Object.keys(operation.responses)
    .filter((status) => !rare.has(status))
    .map((status) => `${method} ${template} ${status}`)
    .filter((key) => !check.used.has(key)));
  assert.deepEqual(missing, []);
  const examples = operations().flatMap(({method, template, operation}) =>
    Object.entries(operation.responses).flatMap(([status, response]) =>
      Object.entries(check.resolve(response).content ?? {})
        .filter(([type]) => type !== "application/problem+json")
        .flatMap(([type, media]) => examplesOf(media)
          .map(({name}) => `${method.toLowerCase()} ${template} ${status} ${type} ${name}`))));
  assert.deepEqual([...replayed].sort(), examples.sort());
});
