"""Metrics are exact, bounded and readable by Prometheus. Request ids appear in the log."""

import contextlib
import http.client
import json
import math
import re
import signal
import sqlite3
import subprocess
import time
import unittest
import urllib.parse
from pathlib import Path
from unittest import mock

import common
from common import (
    ENDLESS, HANG_S, REPO, Client, ConnectError, ForeignWorker, Process, TallyTestCase, free_port, job_document, messages,
    wait_until,
)
from databases import edited_database

HOSTILE_NAMES = ['a"b\\c', "{}=,# \\n", "<img src=x onerror=alert(1)>", "é\u00a0日本", "x" * 128]
CONTRACT_NAMES = {"tally_job_regret", "tally_job_bits_total", "tally_rounds_total", "tally_updates_total",
                  "tally_http_request_duration_seconds", "tally_workers"}
# The linter mistakes bits for a unit that should be bytes. The metric's name is public, and it counts bits. This must
# remain the linter's only remark.
KNOWN_LINT = ['tally_job_bits_total use base unit "bytes" instead of "bits"']
MAX_SERIES_SETS = 200  # METRICS_MAX_JOBS of metrics.h
MAX_ENDED = 1000  # METRICS_MAX_ENDED
SAMPLE = re.compile(r"([a-z_]+)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\["\\n])*)"(?:,|$)')
DRAWN_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]+")


def document(clients=1, **changes):
    """Returns a job for hands: gradients may be zero, and a few rounds do not end the job."""
    return job_document(clients=clients, quorum=clients, horizon=10**8, **changes)


def unescaped(text):
    return re.sub(r"\\(.)", lambda match: {"n": "\n"}.get(match[1], match[1]), text)


class Metrics:
    """A scrape, parsed strictly: {(name, ((label, value), ...)): number}."""

    def __init__(self, text):
        self.text = text
        self.values, self.types = {}, {}
        family = None
        lines = text.split("\n")
        assert lines.pop() == "", "the last line ends"
        for line in lines:
            if line.startswith("# "):
                _, what, name, rest = line.split(" ", 3)
                if what == "HELP":
                    assert name not in self.types, f"{name} comes twice"
                    family = name
                else:
                    assert (what, name) == ("TYPE", family), line
                    self.types[name] = rest
                continue
            name, labels, number = SAMPLE.fullmatch(line).groups()
            allowed = {family}
            if self.types[family] == "histogram":
                allowed = {family + suffix for suffix in ("_bucket", "_sum", "_count")}
            assert name in allowed, line
            read, at = [], 0
            while labels and at < len(labels):
                match = LABEL.match(labels, at)
                assert match, line
                read.append((match[1], unescaped(match[2])))
                at = match.end()
            key = (name, tuple(sorted(read)))
            assert key not in self.values, f"{line} comes twice"
            self.values[key] = float(number)

    def get(self, name, /, **labels):
        """Returns the value of a series, or None if it does not exist."""
        return self.values.get((name, tuple(sorted(labels.items()))))

    def all(self, name):
        """Returns [(labels, value)] of a family."""
        return [(dict(labels), value) for (each, labels), value in self.values.items() if each == name]

    def jobs(self):
        """Returns the ids of the jobs that have series."""
        return {dict(labels)["job"] for (_, labels) in self.values if "job" in dict(labels)}

    def updates(self):
        return {labels["result"]: value for labels, value in self.all("tally_updates_total") if value}

    def counters(self):
        return {key: value for key, value in self.values.items()
                if self.types.get(key[0]) == "counter" or key[0].endswith(("_bucket", "_count"))}


def scrape(client, **headers):
    answer = client.get("/metrics", **headers)
    assert answer.status == 200, answer
    return Metrics(answer.body.decode())


def job_samples(detail):
    """Returns the series that /metrics must have for a job with this detail."""
    job, bits = detail["id"], detail["bits"]
    samples = {
        ("tally_job_info", ("name", detail["name"]), ("algorithm", detail["algorithm"]["type"])): 1,
        ("tally_job_status", ("status", detail["status"])): 1,
        ("tally_job_clients",): detail["clients"],
        ("tally_job_horizon",): detail["horizon"],
        ("tally_job_time_step",): detail["time_step"],
        ("tally_job_iterate",): detail["iterate"],
        ("tally_job_rounds_total",): detail["round"],
        ("tally_job_regret",): detail["cumulative_regret"],
    }
    if detail["loss"] is not None:
        samples["tally_job_loss",] = detail["loss"]
    for name, values in detail.get("metrics", {}).items():
        samples["tally_job_metric", ("name", name)] = values["mean"]
    kinds = {"uplink": {**{kind: bits["uplink"][kind] for kind in ("formula", "payload")},
                        "telemetry": bits["telemetry"]},
             "downlink": {**{kind: bits["downlink"][kind] for kind in ("formula", "payload", "delivered_payload")},
                          "control": bits["control"], "recovery": bits["recovery"]}}
    for direction, values in kinds.items():
        way = ("direction", direction)
        for kind, value in values.items():
            samples["tally_job_bits_total", way, ("kind", kind)] = value
        samples["tally_job_messages_total", way] = bits[direction]["messages"]
        samples["tally_job_clipped_total", way] = bits[direction]["clipped"]
        samples["tally_job_wire_bytes_total", way] = bits["wire_bytes"]["in" if direction == "uplink" else "out"]
    if detail["status"] in ("queued", "running", "paused"):
        samples["tally_job_missing_clients",] = n_clients((detail["waiting"] or {"clients": ""})["clients"])
    return {(name, tuple(sorted([("job", job), *labels]))): value
            for (name, *labels), value in samples.items()}


def n_clients(text):
    """Returns the number of clients in a list such as "3 17 20-25"."""
    ranges = [[int(end) for end in each.split("-")] for each in text.split()]
    return sum(each[-1] - each[0] + 1 for each in ranges)


def promtool(*arguments, text=None):
    return subprocess.run(["promtool", *map(str, arguments)], input=text, capture_output=True, text=True,
                          timeout=HANG_S, check=False)


class MetricsTestCase(TallyTestCase):
    def run_round(self, worker, n=1, clients=1, metrics=()):
        """Serves all clients for n rounds and returns the last task. Each update reports the metrics, pairs of name and
        value."""
        for _ in range(n):
            task = worker.poll_task()
            for client in range(clients):
                update = worker.update(task, client)
                for name, value in metrics:
                    update.updates[0].metrics.add(name=name, value=value)
                worker.post(update)
        return task

    def assert_job_is_shown(self, metrics, detail):
        shown = {key: value for key, value in metrics.values.items() if ("job", detail["id"]) in key[1]}
        shown.pop(("tally_job_vacant_clients", (("job", detail["id"]),)), None)
        waiting_s = shown.pop(("tally_job_waiting_seconds", (("job", detail["id"]),)), 0)
        self.assertEqual(waiting_s > 0, detail["waiting"] is not None)
        self.assertEqual(shown, job_samples(detail))


class Content(MetricsTestCase):
    def test_values_are_those_of_rest(self):
        coordinator = self.start_coordinator()
        client = coordinator.client
        completed = client.submit(job_document(name="completed"))
        worker = self.start_worker(coordinator, "w", clients=10)
        client.wait_status(completed, "completed")
        self.assert_ends_well(worker)
        running = client.submit(document(name="running"))
        foreign = ForeignWorker(client)
        self.run_round(foreign, 3)
        queued = client.submit(document(100, name="queued"))
        details = [client.job(job) for job in (completed, running, queued)]
        self.assertEqual([detail["status"] for detail in details], ["completed", "running", "queued"])

        def settled():
            """Wire bytes are stored once a second."""
            before = [client.job(detail["id"]) for detail in details]
            if any(detail["waiting"] and time.time() * 1000 < detail["waiting"]["since_ms"] + 50 for detail in before):
                return None  # waits too briefly to be told from not waiting
            metrics = scrape(client)
            after = [client.job(detail["id"]) for detail in details]
            return (metrics, after) if before == after else None

        metrics, details = wait_until(settled, "a scrape between two equal details")
        for detail in details:
            self.assert_job_is_shown(metrics, detail)
        self.assertGreater(metrics.get("tally_job_regret", job=completed), 0)
        self.assertEqual(metrics.jobs(), {completed, running, queued})
        self.assertEqual(metrics.get("tally_job_vacant_clients", job=queued), 100)
        self.assertEqual(metrics.get("tally_job_vacant_clients", job=running), 0)
        by_status = {labels["status"]: value for labels, value in metrics.all("tally_jobs")}
        self.assertEqual(by_status, {"queued": 1, "running": 1, "paused": 0, "completed": 1, "failed": 0,
                                     "cancelled": 0})
        self.assertEqual(metrics.get("tally_jobs_ended_total", status="completed"), 1)
        self.assertEqual(metrics.get("tally_rounds_total"), details[0]["round"] + 3)
        self.assertEqual(sum(value for _, value in metrics.all("tally_workers")), 1)
        self.assertEqual(metrics.get("tally_worker_slots", state="assigned"), 1)
        self.assertEqual(metrics.get("tally_workers_joined_total"), 2)
        self.assertLessEqual(CONTRACT_NAMES, set(metrics.types))

    def test_histograms(self):
        coordinator = self.start_coordinator()
        client = coordinator.client
        client.submit(document())
        worker = ForeignWorker(client)
        self.run_round(worker, 5)
        self.assertEqual(worker.poll(wait_ms=0).WhichOneof("kind"), "task")  # the sixth
        metrics = scrape(client)
        families = [name for name, kind in metrics.types.items() if kind == "histogram"]
        self.assertEqual(len(families), 4)
        for family in families:
            totals = metrics.all(family + "_count")
            self.assertGreater(len(totals), 0, family)
            for labels, total in totals:
                buckets = [(float(of["le"]), value) for of, value in metrics.all(family + "_bucket")
                           if {**labels, "le": of["le"]} == of]
                bounds, values = zip(*buckets)
                self.assertEqual(list(bounds), sorted(bounds))
                self.assertEqual(bounds[-1], math.inf)
                self.assertEqual(list(values), sorted(values), "buckets are cumulative")
                self.assertEqual(values[-1], total)
        latency, updates = "tally_http_request_duration_seconds_count", "/tally.v1.WorkerService/PostUpdate"
        self.assertEqual(metrics.get(latency, method="POST", route=updates), 5)
        self.assertEqual(metrics.get("tally_http_requests_total", method="POST", route=updates, code="200"), 5)
        # Commits took some time, and stored six requests: the five updates and the job.
        self.assertGreater(metrics.get("tally_store_commit_duration_seconds_sum"), 0)
        self.assertEqual(metrics.get("tally_store_commit_requests_sum"), 6)

    def test_waiting_is_not_latency(self):
        coordinator = self.start_coordinator()
        client = coordinator.client
        worker = ForeignWorker(client)
        self.assertEqual(worker.poll(wait_ms=600).WhichOneof("kind"), "idle")
        metrics = scrape(client)
        waited = "tally_worker_poll_duration_seconds"
        self.assertEqual(metrics.get(waited + "_count", outcome="idle"), 1)
        self.assertGreaterEqual(metrics.get(waited + "_sum", outcome="idle"), 0.5)
        route = {"method": "POST", "route": "/tally.v1.WorkerService/PollTask"}
        self.assertEqual(metrics.get("tally_http_requests_total", code="200", **route), 1)
        self.assertIsNone(metrics.get("tally_http_request_duration_seconds_count", **route))

    def test_routes_are_patterns(self):
        """Routes are labels from a fixed set: arbitrary paths requested by clients create no series."""
        client = self.start_coordinator().client
        before = len(scrape(client).values)
        for i in range(50):
            client.get(f"/v1/jobs/{i:012x}")
            client.get(f"/nothing/{i}")
            client.request("BREW", f"/coffee/{i}")
        metrics = scrape(client)
        requests = {tuple(sorted(labels.items())): value for labels, value in metrics.all("tally_http_requests_total")
                    if labels["route"] not in ("/readyz", "/metrics")}
        self.assertEqual(requests, {
            (("code", "404"), ("method", "GET"), ("route", "/v1/jobs/{id}")): 50,
            (("code", "404"), ("method", "other"), ("route", "unmatched")): 100,
        })
        self.assertLess(len(metrics.values), before + 60)

    def test_every_result_of_an_update(self):
        client = self.start_coordinator().client
        job_id = client.submit(document(2))
        worker = ForeignWorker(client, slots=2)
        task = worker.poll_task()
        update = worker.update(task, 0)
        expected = {}

        def expect(result, code, message):
            expected[result] = expected.get(result, 0) + 1
            if code is None:
                worker.post(message)
            else:
                self.assert_connect_error(code, worker.post, message)
            self.assertEqual(scrape(client).updates(), expected)

        expect("accepted", None, update)
        expect("repeated", None, update)
        expect("repeated", None, update)
        # The first level is 1 instead of 0: one bit more, and its sign.
        other = worker.update(task, 0, payload=bytes([1, 0, 0, 0]), payload_bits=32)
        expect("conflicting", "already_exists", other)
        expect("late", "failed_precondition", worker.update(task, 1, round=task.round + 1))
        expect("invalid", "invalid_argument", worker.update(task, 1, payload=b"", payload_bits=0))
        expect("not_played", "permission_denied", worker.update(task, 7))
        expect("unknown", "not_found", worker.update(task, 1, session=12345))
        expect("unknown", "not_found", worker.update(task, 1, job_id="nobody"))
        for junk in (b"\xff\xff\xff", b""):
            self.assertGreaterEqual(client.call_raw("PostUpdate", junk).status, 400)
            expected["invalid"] += 1  # an empty body is a message without updates
        self.assertEqual(client.call_raw("PostUpdate", update.SerializeToString(),
                                         {"Content-Type": "text/plain"}).status, 415)
        expected["invalid"] += 1
        self.assertEqual(scrape(client).updates(), expected)
        self.assertEqual(scrape(client).get("tally_rounds_total"), 0)
        expect("accepted", None, worker.update(task, 1))
        self.assertEqual(scrape(client).get("tally_rounds_total"), 1)
        expect("repeated", None, worker.update(task, 1))
        task = self.run_round(worker, 2, clients=2)
        expected["accepted"] += 4
        expect("late", "failed_precondition", worker.update(task, 0, round=1))
        self.assertEqual(scrape(client).get("tally_rounds_total"), 3)
        task = worker.poll_task()
        expect("refusal", None, worker.update(task, 0, refusal="no data"))
        worker = ForeignWorker(client, slots=2)
        task = worker.poll_task()
        expect("failure", None, worker.update(task, 0, failure="no memory"))
        self.assertEqual(client.job(job_id)["status"], "failed")
        expect("late", "failed_precondition", worker.update(task, 1))
        metrics = scrape(client)
        self.assertEqual(metrics.get("tally_jobs_ended_total", status="failed"), 1)
        self.assertEqual(metrics.get("tally_jobs", status="failed"), 1)

    def test_silent_workers_are_counted(self):
        client = self.start_coordinator(options=("--session-timeout-ms", "100")).client
        ForeignWorker(client)
        wait_until(lambda: scrape(client).get("tally_workers_lost_total") == 1, "the worker to be lost")
        self.assertEqual(scrape(client).get("tally_workers", state="working"), 0)

    def test_what_is_not_stored_is_not_counted(self):
        """On a full disk the engine is ahead of the store, but the metrics never are."""
        coordinator = self.start_with_a_disk_that_fills()
        client = coordinator.client
        job_id = client.submit(document())
        worker = ForeignWorker(client)
        self.run_round(worker, 2)
        task = worker.poll_task()
        before = scrape(client)
        with self.full_disk(coordinator):
            self.assert_connect_error("unavailable", worker.post, worker.update(task, 0))
            metrics = scrape(client)
        self.assertEqual(metrics.updates(), {"accepted": 2, "unavailable": 1})
        self.assertEqual(metrics.get("tally_rounds_total"), 2)
        self.assertEqual(metrics.get("tally_job_rounds_total", job=job_id), 2)
        self.assertEqual(metrics.get("tally_job_bits_total", job=job_id, direction="uplink", kind="payload"),
                         before.get("tally_job_bits_total", job=job_id, direction="uplink", kind="payload"))
        errors = {labels["operation"]: value for labels, value in metrics.all("tally_store_errors_total")}
        self.assertGreaterEqual(errors["commit"] + errors["write"], 1)
        lines = [line for line in coordinator.log().splitlines() if "PostUpdate" in line]
        self.assertEqual(len(lines), 1)
        self.assertIn("level=warn", lines[0])
        self.assertIn("status=503", lines[0])
        self.assertIn("request_id=", lines[0])
        self.assertIn("error=", lines[0])
        worker.post(worker.update(task, 0))
        metrics = scrape(client)
        self.assertEqual(metrics.updates(), {"accepted": 3, "unavailable": 1})
        self.assertEqual(metrics.get("tally_rounds_total"), 3)
        self.assertEqual(metrics.get("tally_job_rounds_total", job=job_id), 3)

    def test_a_job_that_cannot_be_read_back_is_left_out(self):
        """If the job in memory is ahead of the store and cannot be read back, it has no series, rather than series that
        decrease."""
        coordinator = self.start_with_a_disk_that_fills()
        client = coordinator.client
        job_id = client.submit(document())
        worker = ForeignWorker(client)
        self.run_round(worker, 2)
        task = worker.poll_task()
        with contextlib.closing(sqlite3.connect(f"{self.folder}/tally.db")) as database:
            ((state,),) = database.execute("SELECT state FROM job_states").fetchall()
            with database:
                database.execute("UPDATE job_states SET state = x'00'")
            with self.full_disk(coordinator):
                self.assert_connect_error("unavailable", worker.post, worker.update(task, 0))
                metrics = scrape(client)
                self.assertEqual(metrics.jobs(), set())
                self.assertEqual(metrics.get("tally_jobs_left_out"), 1)
                self.assertEqual(metrics.get("tally_jobs", status="running"), 1)
            with database:
                database.execute("UPDATE job_states SET state = ?", (state,))
        metrics = wait_until(lambda: (lambda found: found.jobs() and found)(scrape(client)), "the job to be back")
        self.assertEqual(metrics.get("tally_job_rounds_total", job=job_id), 2)
        self.assertEqual(metrics.get("tally_jobs_left_out"), 0)

    def test_counters_survive_kill(self):
        """The counters of jobs never decrease, whatever is killed and when. Those of the process start at zero."""
        coordinator = self.start_coordinator()
        done = coordinator.client.submit(job_document(name="done"))
        cancelled = coordinator.client.submit(document(50, name="cancelled"))
        coordinator.client.post(f"/v1/jobs/{cancelled}/cancel")
        worker = self.start_worker(coordinator, "w", clients=10)
        coordinator.client.wait_status(done, "completed")
        job_id = coordinator.client.submit(job_document("synthetic-ceal-long", horizon=ENDLESS))
        coordinator.client.wait_status(job_id, "running")
        seen, round_seen = {}, 0
        for _ in range(3):
            wanted = round_seen + 100
            while round_seen < wanted:
                metrics = scrape(coordinator.client)
                of_jobs = {key: value for key, value in metrics.counters().items() if "job" in dict(key[1])}
                for key, value in seen.items():
                    self.assertGreaterEqual(of_jobs[key], value, key)
                seen = of_jobs
                round_seen = metrics.get("tally_job_rounds_total", job=job_id)
            coordinator.kill()
            worker.popen.send_signal(signal.SIGSTOP)  # or the new process might count that many before the scrape
            coordinator = self.start_coordinator(port=coordinator.port, store=coordinator.store)
            metrics = scrape(coordinator.client)
            for key, value in seen.items():
                self.assertGreaterEqual(metrics.values[key], value, key)
            self.assertEqual(metrics.jobs(), {done, cancelled, job_id}, "ended jobs are kept across a restart")
            self.assertLess(metrics.get("tally_rounds_total"), round_seen)
            self.assert_job_is_shown(metrics, coordinator.client.job(done))
            worker.popen.send_signal(signal.SIGCONT)
        coordinator.client.post(f"/v1/jobs/{job_id}/cancel")
        self.assert_ends_well(worker)


class Bounds(MetricsTestCase):
    def cancel_new(self, client, name):
        job_id = client.submit(document(100, name=name))
        client.post(f"/v1/jobs/{job_id}/cancel")
        return job_id

    def test_series_sets(self):
        coordinator = self.start_coordinator(store="memory:")
        client = coordinator.client
        running = client.submit(document())
        worker = ForeignWorker(client)
        worker.poll_task()
        queued = [client.submit(document(100)) for _ in range(MAX_SERIES_SETS + 30)]
        metrics = scrape(client)
        # The running job is older than all queued ones.
        self.assertEqual(metrics.jobs(), {running, *queued[-(MAX_SERIES_SETS - 1):]})
        self.assertEqual(metrics.get("tally_jobs_left_out"), 31)
        self.assertEqual(metrics.get("tally_jobs", status="queued"), MAX_SERIES_SETS + 30)
        self.assertEqual(len(metrics.all("tally_job_regret")), MAX_SERIES_SETS)

        ended = [self.cancel_new(client, f"ended {i}") for i in range(5)]
        metrics = scrape(client)
        self.assertEqual(metrics.jobs(), {running, *ended, *queued[-(MAX_SERIES_SETS - 6):]})
        ended += [self.cancel_new(client, f"ended {i}") for i in range(5, MAX_ENDED + 10)]
        metrics = scrape(client)
        self.assertEqual(metrics.jobs(), {running, *ended[-(MAX_SERIES_SETS - 1):]})
        self.assertEqual(metrics.get("tally_jobs", status="cancelled"), MAX_ENDED)
        self.assertEqual(metrics.get("tally_jobs_ended_total", status="cancelled"), MAX_ENDED + 10)
        self.assertEqual(metrics.get("tally_jobs_left_out"), MAX_ENDED - (MAX_SERIES_SETS - 1) + len(queued))
        self.assertEqual(promtool("check", "metrics", text=metrics.text).stderr.splitlines(), KNOWN_LINT)

    def test_ended_jobs_leave(self):
        client = self.start_coordinator(options=("--metrics-keep-s", "5")).client
        job_id = self.cancel_new(client, "short")
        self.assertEqual(scrape(client).jobs(), {job_id})
        live = client.submit(document(100))
        wait_until(lambda: scrape(client).jobs() == {live}, "the job to leave")
        metrics = scrape(client)
        self.assertEqual(metrics.get("tally_jobs", status="cancelled"), 0)
        self.assertEqual(metrics.get("tally_jobs_ended_total", status="cancelled"), 1)
        self.assertEqual(metrics.get("tally_jobs_left_out"), 0)

    def test_ended_jobs_of_long_ago_do_not_come_back(self):
        coordinator = self.start_coordinator()
        old, new = (self.cancel_new(coordinator.client, name) for name in ("old", "new"))
        coordinator.kill()
        with edited_database(f"{self.folder}/tally.db") as database:
            database.execute("UPDATE jobs SET finished_ms = finished_ms - 601000 WHERE id = ?", (old,))
        coordinator = self.start_coordinator(port=coordinator.port)
        self.assertEqual(scrape(coordinator.client).jobs(), {new})

    def test_kept_for_no_time(self):
        client = self.start_coordinator(options=("--metrics-keep-s", "0")).client
        self.cancel_new(client, "gone")
        self.assertEqual(scrape(client).jobs(), set())

    def test_bad_options(self):
        for options in (("--metrics-keep-s", "-1"), ("--metrics-keep-s", "soon"), ("--metrics-token-file", "/nowhere")):
            process = Process(self.folder, "refused", [common.BIN / "tally-coordinator", "--store", "memory:",
                                                       "--listen", f"127.0.0.1:{free_port()}", *options])
            self.assertEqual(process.wait(), 2, options)
            self.assertIn(options[1], process.log())


class Access(MetricsTestCase):
    def token_file(self, name):
        path = Path(self.folder) / name
        path.write_text(name * 4 + "\n")
        return path

    def status_with(self, client, token):
        return client.get("/metrics", **({} if token is None else {"Authorization": f"Bearer {token}"})).status

    def test_tokens(self):
        admin, worker, metrics = (self.token_file(name) for name in ("admin", "worker", "metrics"))
        # The options, and the status with no token, an invalid one, and those for admin, worker and metrics.
        cases = [
            ((), (200, 200, 200, 200, 200)),
            (("--worker-token-file", worker), (200, 200, 200, 200, 200)),
            (("--admin-token-file", admin), (401, 401, 200, 401, 401)),
            (("--admin-token-file", admin, "--metrics-token-file", metrics), (401, 401, 200, 401, 200)),
            (("--admin-token-file", admin, "--worker-token-file", worker), (401, 401, 200, 403, 401)),
            (("--metrics-token-file", metrics), (401, 401, 401, 401, 200)),
        ]
        for options, expected in cases:
            with self.subTest(options=options):
                coordinator = self.start_coordinator(store="memory:", options=options)
                tokens = (None, "nonsense", "admin" * 4, "worker" * 4, "metrics" * 4)
                found = tuple(self.status_with(coordinator.client, token) for token in tokens)
                self.assertEqual(found, expected)
                if "--admin-token-file" in options:  # a metrics token grants nothing else
                    answer = coordinator.client.get("/v1/jobs", Authorization="Bearer " + "metrics" * 4)
                    self.assert_problem(answer, 403 if "--metrics-token-file" in options else 401)
                self.assert_ends_well(coordinator)

    def requests_in_log(self, process):
        lines = [json.loads(line) for line in process.log().splitlines()]
        return [line for line in lines if line["event"] == "request"]

    def test_request_ids(self):
        coordinator = self.start_coordinator(options=("--log-format", "json", "--log-level", "debug"))
        client = coordinator.client
        told, drawn = {}, []
        answers = [
            ("GET", "/v1/jobs", b"", {}), ("POST", "/v1/jobs", b"{", {"Content-Type": "application/json"}),
            ("GET", "/nothing", b"", {}), ("DELETE", "/v1/jobs", b"", {}), ("GET", "/metrics", b"", {}),
            ("POST", "/tally.v1.WorkerService/Join", b"\xff", {"Content-Type": "application/proto"}),
        ]
        for method, path, body, headers in answers:
            answer = client.request(method, path, body, headers)
            self.assertRegex(answer.headers["X-Request-Id"], DRAWN_ID)
            drawn.append((answer.headers["X-Request-Id"], method, path, answer.status))
        self.assertEqual(len({name for name, *_ in drawn}), len(drawn), "no id is given twice")
        self.assertEqual(len({name.split("-")[0] for name, *_ in drawn}), 1)
        for good in ("a", "x" * 64, "A-Z_0.9", "-", "trace.1_2-3"):
            answer = client.get("/healthz", **{"X-Request-Id": good})
            self.assertEqual(answer.headers["X-Request-Id"], good)
            self.assertEqual(len(answer.headers.get_all("X-Request-Id")), 1)
            told[good] = answer.status
        for bad in ("", "x" * 65, "a b", "a\tb", "<b>", "é", 'a"b', "a,b", "a=b", "%0a"):
            answer = client.get("/healthz", **{"X-Request-Id": bad.encode()})
            self.assertRegex(answer.headers["X-Request-Id"], DRAWN_ID, bad)
        log = {line["request_id"]: line for line in self.requests_in_log(coordinator)}
        for name, method, path, status in drawn:
            line = log[name]
            self.assertEqual((line["method"], line["path"], line["status"]), (method, path, status))
            self.assertGreaterEqual(line["duration_ms"], 0)
            self.assertGreater(line["bytes"], 50)
            self.assertEqual("error" in line, status >= 400)
        self.assertLessEqual(set(told), set(log))

    def test_workers_pay_no_bytes_for_it(self):
        client = self.start_coordinator().client
        client.submit(document())
        worker = ForeignWorker(client)
        task = worker.poll_task()
        update = worker.update(task, 0).SerializeToString()
        poll = common.messages.PollTaskRequest(session=worker.session).SerializeToString()
        for method, body in (("PostUpdate", update), ("PollTask", poll)):
            answer = client.call_raw(method, body)
            self.assertEqual((answer.status, answer.headers["X-Request-Id"]), (200, None))
            answer = client.call_raw(method, body, {"X-Request-Id": "mine"})
            self.assertEqual((answer.status, answer.headers["X-Request-Id"]), (200, "mine"))

    def test_drained_polls_have_ids(self):
        """Errors have a request id, even those of long polls that end when the coordinator drains."""
        coordinator = self.start_coordinator()
        worker = ForeignWorker(coordinator.client)
        connection = http.client.HTTPConnection("127.0.0.1", coordinator.port, timeout=HANG_S)
        self.addCleanup(connection.close)
        poll = common.messages.PollTaskRequest(session=worker.session, wait_ms=30000).SerializeToString()
        connection.request("POST", "/tally.v1.WorkerService/PollTask", poll, {"Content-Type": "application/proto"})
        wait_until(lambda: scrape(coordinator.client).get("tally_workers", state="waiting") == 1, "the poll to wait")
        self.assert_ends_well(coordinator)
        response = connection.getresponse()
        self.assertEqual(response.status, 503)
        self.assertRegex(response.headers["X-Request-Id"], DRAWN_ID)

    def test_levels(self):
        """By default the log contains writes and errors, but no reads and worker calls."""
        coordinator = self.start_coordinator(options=("--log-format", "json"))
        client = coordinator.client
        job_id = client.submit(document())
        worker = ForeignWorker(client)
        self.run_round(worker, 3)
        client.job(job_id)
        scrape(client)
        client.get("/v1/jobs/nobody")
        client.post(f"/v1/jobs/{job_id}/pause")
        with self.assertRaises(ConnectError):
            worker.post(worker.update(common.messages.Task(job_id=job_id, round=99), 0))
        shown = [(line["level"], line["method"], line["route"], line["status"])
                 for line in self.requests_in_log(coordinator) if line["route"] != "/readyz"]
        self.assertEqual(shown, [("info", "POST", "/v1/jobs", 201), ("info", "GET", "/v1/jobs/{id}", 404),
                                 ("info", "POST", "/v1/jobs/{id}/pause", 200)])

    def test_hostile_paths_stay_on_their_line(self):
        coordinator = self.start_coordinator(options=("--log-format", "json"))
        paths = ['/a%0ab', '/%22%2c%22level%22:%22x', '/' + 'y' * 5000, '/%ff%fe', '/%e2%80%a8', '/%1b[31m']
        for path in paths:
            coordinator.client.get(path)
        lines = self.requests_in_log(coordinator)
        self.assertEqual(len([line for line in lines if line["route"] == "unmatched"]), len(paths))
        for line in lines:
            self.assertLess(len(line["path"]), 257)
            self.assertIn("error", line)
            self.assertNotIn("truncated", line)

    def keys_of_text(self, line):
        pair = re.compile(r' ([a-z0-9_]+)=(?:"(?:[^"\\]|\\.)*"|[^ "]+)')
        stamp, rest = line.split(" ", 1)
        self.assertRegex(stamp, r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        matches = list(pair.finditer(" " + rest))
        self.assertEqual("".join(match[0] for match in matches), " " + rest)
        keys = tuple(match[1] for match in matches)
        return re.search(r' event=("[^"]*"|\S+)', " " + rest)[1].strip('"'), keys

    def test_json_is_the_text_form(self):
        """Whole runs of both programs: every line is JSON, with the keys that the text has."""
        seen = {}
        for form in ("text", "json"):
            options = ("--log-level", "debug", "--log-format", form)
            folder = Path(self.folder) / form
            folder.mkdir()
            with mock.patch.object(self, "folder", str(folder)):
                coordinator = self.start_coordinator(options=options)
                worker = self.start_worker(coordinator, "w", clients=10, options=options)
                client = coordinator.client
                done = client.submit(job_document(name='quoted " name'))
                client.wait_status(done, "completed")
                client.get("/nothing/%22%0a")
                client.post(f"/v1/jobs/{client.submit(document(99))}/cancel")
                self.assert_ends_well(worker, coordinator)
            for process in (coordinator, worker):
                lines = process.log().splitlines()
                self.assertGreater(len(lines), 1)
                for line in lines:
                    if form == "text":
                        event, keys = self.keys_of_text(line)
                    else:
                        read = json.loads(line, parse_constant=self.fail)
                        self.assertRegex(read.pop("time"), r"Z$")
                        event, keys = read["event"], tuple(read)
                    seen.setdefault((process.name, event), {}).setdefault(form, set()).add(keys)
        for what, keys in seen.items():
            if len(keys) == 2:  # rare events (a worker that found no coordinator yet) may occur in only one of the runs
                self.assertEqual(keys["text"], keys["json"], what)
        in_both = {what for what, keys in seen.items() if len(keys) == 2}
        for event in ("listening", "worker joined", "job started", "job ended", "request", "stopping"):
            self.assertIn(("coordinator", event), in_both)
        self.assertGreaterEqual(len([name for name, _ in in_both if name == "worker-w"]), 2)


def grafana_expressions():
    """Returns [(panel title, expression)] of the dashboard, with variables replaced as Grafana would."""
    dashboard = json.loads((REPO / "deploy/grafana/dashboards/tally.json").read_text())
    found, panels = [], list(dashboard["panels"])
    while panels:
        panel = panels.pop(0)
        panels += panel.get("panels", [])
        for target in panel.get("targets", []):
            expression = target["expr"]
            for variable, value in (("$__rate_interval", "1m"), ("$job", ".*"), ("$instance", ".*")):
                expression = expression.replace(variable, value)
            found.append((panel["title"], expression))
    return found


class Linted(MetricsTestCase):
    def test_check_metrics(self):
        coordinator = self.start_coordinator()
        client = coordinator.client
        names = dict((client.submit(job_document(name=name)), name) for name in HOSTILE_NAMES)
        self.start_worker(coordinator, "w", clients=10)
        for job_id in names:
            client.wait_status(job_id, "completed")
        running = client.submit(job_document("synthetic-ceal-long", name='run"ning'))
        client.wait_status(running, "running")
        text = client.get("/metrics").body.decode()
        client.post(f"/v1/jobs/{running}/cancel")
        self.check(text)
        metrics = Metrics(text)
        for job_id, name in names.items():
            self.assertEqual(metrics.get("tally_job_info", job=job_id, name=name, algorithm="ceal"), 1)

    def check(self, text):
        done = promtool("check", "metrics", text=text)
        self.assertEqual(done.stderr.splitlines(), KNOWN_LINT)
        without = "\n".join(line for line in text.split("\n") if "tally_job_bits_total" not in line)
        done = promtool("check", "metrics", text=without)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_names_that_only_a_damaged_store_has(self):
        coordinator = self.start_coordinator()
        ids = [coordinator.client.submit(document(100)) for _ in range(3)]
        coordinator.kill()
        names = [b'a"b\\c\n', b"line\r\nend\n# TYPE x counter", b"\xff\xfe\xc3(\xed\xa0\x80ok"]
        with edited_database(f"{self.folder}/tally.db") as database:
            for job_id, name in zip(ids, names):
                database.execute("UPDATE jobs SET name = CAST(? AS TEXT) WHERE id = ?", (name, job_id))
        coordinator = self.start_coordinator(port=coordinator.port)
        answer = coordinator.client.get("/metrics")
        text = answer.body.decode()  # must stay valid UTF-8: Prometheus would discard the whole scrape otherwise
        self.check(text)
        shown = {labels["job"]: labels["name"] for labels, _ in Metrics(text).all("tally_job_info")}
        self.assertEqual(shown[ids[0]], names[0].decode())
        self.assertEqual(shown[ids[1]], names[1].decode())
        self.assertRegex(shown[ids[2]], "^\ufffd+\\(\ufffd+ok$")

    def test_content_type(self):
        answer = self.start_coordinator().client.get("/metrics")
        self.assertEqual(answer.headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")

    def test_deployed_files(self):
        done = promtool("check", "config", REPO / "deploy/prometheus/prometheus.yml")
        self.assertEqual(done.returncode, 0, done.stderr)
        done = promtool("check", "rules", REPO / "deploy/prometheus/rules.yml")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_alerts_fire(self):
        """On synthetic series, each alert fires exactly when it should."""
        rules = REPO / "deploy/prometheus/rules.yml"
        good = {
            'up{job="tally",instance="c"}': "1x40",
            'tally_store_errors_total{job="tally",instance="c",operation="commit"}': "0x40",
            'tally_workers{job="tally",instance="c",state="waiting"}': "1x40",
            'tally_jobs{job="tally",instance="c",status="running"}': "1x40",
            'tally_job_status{job="j1",instance="c",status="running"}': "1x40",
            'tally_job_rounds_total{job="j1",instance="c"}': "0+5x40",
            'tally_job_waiting_seconds{job="j1",instance="c"}': "0x40",
            'tally_job_missing_clients{job="j1",instance="c"}': "0x40",
            'tally_job_waiting_seconds{job="j2",instance="c"}': "0+60x40",  # paused
            'tally_job_missing_clients{job="j2",instance="c"}': "0x40",
            'tally_jobs_ended_total{job="tally",instance="c",status="failed"}': "0x40",
            'tally_workers_lost_total{job="tally",instance="c"}': "0x40",
            'tally_store_commit_duration_seconds_bucket{job="tally",instance="c",le="0.5"}': "0+10x40",
            'tally_store_commit_duration_seconds_bucket{job="tally",instance="c",le="1"}': "0+10x40",
            'tally_store_commit_duration_seconds_bucket{job="tally",instance="c",le="+Inf"}': "0+10x40",
            'tally_replicas{job="tally",instance="c",state="alive"}': "2x40",
            'tally_replicas{job="tally",instance="c",state="dead"}': "0x40",
            'tally_replica_serves{job="tally",instance="c"}': "1x40",
            'tally_store_fenced_writes_total{job="tally",instance="c"}': "3x40",
            'tally_store_reconnects_total{job="tally",instance="c"}': "0x30 1x10",
            'tally_store_retried_conflicts_total{job="tally",instance="c"}': "0+6x40",
        }
        bad = {
            "TallyDown": {'up{job="tally",instance="c"}': "0x40"},
            "TallyStoreErrors": {'tally_store_errors_total{job="tally",instance="c",operation="commit"}': "0x38 1 1"},
            "TallyNoWorkers": {'tally_workers{job="tally",instance="c",state="waiting"}': "0x40"},
            "TallyJobStalled": {'tally_job_rounds_total{job="j1",instance="c"}': "7x40"},
            "TallyJobWaits": {'tally_job_status{job="j1",instance="c",status="queued"}': "1x40"},
            "TallyJobWaitsForClients": {'tally_job_waiting_seconds{job="j1",instance="c"}': "0x37 59 121 181",
                                        'tally_job_missing_clients{job="j1",instance="c"}': "0x37 1x3"},
            "TallyJobFailed": {'tally_jobs_ended_total{job="tally",instance="c",status="failed"}': "0x35 1x5"},
            "TallyWorkersLost": {'tally_workers_lost_total{job="tally",instance="c"}': "0x35 6x5"},
            "TallySlowCommits": {
                'tally_store_commit_duration_seconds_bucket{job="tally",instance="c",le="0.5"}': "0x40"},
            "TallyReplicaSilent": {'tally_replicas{job="tally",instance="c",state="dead"}': "1x40"},
            "TallyReplicaSteppedDown": {'tally_replica_serves{job="tally",instance="c"}': "0x40"},
            "TallyReplicaFenced": {'tally_store_fenced_writes_total{job="tally",instance="c"}': "3x35 4x5"},
            "TallyStoreReconnects": {'tally_store_reconnects_total{job="tally",instance="c"}': "0x35 6x5"},
            "TallyStoreConflicts": {'tally_store_retried_conflicts_total{job="tally",instance="c"}': "0+90x40"},
        }
        alerts = re.findall(r"- alert: (\w+)", rules.read_text())
        self.assertEqual(set(alerts), set(bad))
        tests = []
        gone = ("TallyDown", {'up{job="tally",instance="c"}': "_x40"})  # the target does not exist
        for broken, changes in ((None, {}), *bad.items(), gone):
            series = {**good, **changes}
            checks = []
            for alert in alerts:
                checks.append((alert, alert == broken))
            tests.append((series, checks))
        # promtool would compare labels and annotations of a firing alert word for word. All that matters here is
        # whether it fires, which the series ALERTS shows.
        groups = []
        for series, checks in tests:
            groups.append({
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": [
                    {"expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})', "eval_time": "40m",
                     "exp_samples": [{"labels": "{}", "value": 1}] if fires else []}
                    for alert, fires in checks],
            })
        path = Path(self.folder) / "alerts.json"  # JSON is YAML
        path.write_text(json.dumps({"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": groups}))
        done = promtool("test", "rules", path)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_grafana_files(self):
        folder = REPO / "deploy/grafana"
        source = (folder / "provisioning/datasources/tally.yml").read_text()
        uid = re.search(r"^    uid: (\S+)$", source, re.MULTILINE)[1]
        dashboard = json.loads((folder / "dashboards/tally.json").read_text())
        self.assertEqual(dashboard["uid"], "tally")
        self.assertIsNone(dashboard.get("id"), "Grafana gives it")
        panels, ids, places = [], set(), []
        for panel in dashboard["panels"]:
            panels += [panel, *panel.get("panels", [])]
            places.append(panel["gridPos"])
        # Nothing but the menu's first choice names the data source that we provide; Grafana takes its default
        # if there is no such source.
        choice, *variables = dashboard["templating"]["list"]
        self.assertEqual((choice["name"], choice["type"], choice["query"], choice["current"]["value"]),
                         ("datasource", "datasource", "prometheus", uid))
        chosen = {"type": "prometheus", "uid": "${datasource}"}
        for panel in panels:
            self.assertNotIn(panel["id"], ids)
            ids.add(panel["id"])
            self.assertTrue(panel["title"])
            for asking in [panel] * ("datasource" in panel) + panel.get("targets", []):
                self.assertEqual(asking["datasource"], chosen)
        self.assertEqual({variable["name"]: variable["datasource"] for variable in variables},
                         {"instance": chosen, "job": chosen})
        for i, a in enumerate(places):
            self.assertLessEqual(a["x"] + a["w"], 24)
            for b in places[:i]:
                apart = (a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
                         or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"])
                self.assertTrue(apart, (a, b))
        kinds = {panel["type"] for panel in panels}
        self.assertLessEqual({"timeseries", "stat", "heatmap", "xychart"}, kinds)
        provider = (folder / "provisioning/dashboards/tally.yml").read_text()
        self.assertIn("path: /etc/grafana/dashboards", provider)


class Prometheus(Process):
    """A private Prometheus with its own port and data, and our configuration for another target."""

    def __init__(self, folder, coordinator_port):
        deployed = (REPO / "deploy/prometheus/prometheus.yml").read_text()
        config = deployed.replace('targets: ["localhost:8080"]', f'targets: ["127.0.0.1:{coordinator_port}"]')
        config = config.replace("scrape_interval: 5s", "scrape_interval: 200ms")
        config = config.replace("- rules.yml", f"- {REPO}/deploy/prometheus/rules.yml")
        assert config.count(str(coordinator_port)) == 1 and "200ms" in config and str(REPO) in config
        path = Path(folder) / "prometheus.yml"
        path.write_text(config)
        self.port = free_port()
        super().__init__(folder, "prometheus", [
            "prometheus", f"--config.file={path}", f"--storage.tsdb.path={folder}/prometheus-data",
            f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=warn"])
        self.client = Client(self.port)

    def query(self, expression):
        """Returns [(labels, value)] of an instant query."""
        answer = self.client.get("/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
        if answer.status != 200:
            raise AssertionError(f"{expression}: {answer}")
        result = answer.json()["data"]["result"]
        return [(each["metric"], float(each["value"][1])) for each in result]

    def is_ready(self):
        if not self.is_alive():
            raise AssertionError(self.log())
        with contextlib.suppress(OSError):
            return self.client.get("/-/ready").status == 200
        return False


class Scraped(MetricsTestCase):
    def test_prometheus(self):
        """A real Prometheus scrapes running, waiting and ended jobs, and agrees with REST."""
        coordinator = self.start_coordinator()
        client = coordinator.client
        prometheus = Prometheus(self.folder, coordinator.port)
        self.processes.append(prometheus)
        wait_until(prometheus.is_ready, "Prometheus to be ready")
        worker = self.start_worker(coordinator, "w", clients=10)
        completed = client.submit(job_document(name=HOSTILE_NAMES[0]))
        client.wait_status(completed, "completed")
        self.assert_ends_well(worker)
        running = client.submit(document(name="runs"))
        foreign = ForeignWorker(client)
        self.run_round(foreign)
        seen = f'tally_job_rounds_total{{job="{running}"}}'
        wait_until(lambda: [value for _, value in prometheus.query(seen)] == [1], "a scrape of the first round")
        self.run_round(foreign, 4, metrics=[("accuracy", 0.75)])
        waits = client.submit(document(100, name=HOSTILE_NAMES[2]))

        def scraped():
            details = [client.job(job) for job in (completed, running, waits)]
            ids = {detail["id"] for detail in details}
            found = {}
            for metric, value in prometheus.query('{__name__=~"tally_job_.*"}'):
                name = metric.pop("__name__")
                instance = metric.pop("instance")
                self.assertEqual(instance, f"127.0.0.1:{coordinator.port}")
                if metric["job"] in ids and name not in ("tally_job_vacant_clients", "tally_job_waiting_seconds"):
                    found[name, tuple(sorted(metric.items()))] = value
            expected = {}
            for detail in details:
                expected.update(job_samples(detail))
            # A series of a past status disappears at the next scrape; it would stay only if that scrape failed.
            return found == expected

        wait_until(scraped, "Prometheus to have what REST shows")
        self.assertEqual(prometheus.query('up{job="tally"}')[0][1], 1)
        self.assertEqual(prometheus.query("scrape_samples_scraped")[0][1],
                         prometheus.query("scrape_samples_post_metric_relabeling")[0][1])
        self.assertEqual([value for _, value in prometheus.query("tally_rounds_total")],
                         [client.job(completed)["round"] + 5])
        self.check_dashboard(prometheus)
        groups = prometheus.client.get_json("/api/v1/rules")["data"]["groups"]
        self.assertEqual([group["name"] for group in groups], ["tally"])
        self.assertEqual(prometheus.client.get_json("/api/v1/alerts")["data"]["alerts"], [alert for alert in
                         prometheus.client.get_json("/api/v1/alerts")["data"]["alerts"] if alert["state"] == "pending"])
        self.assertEqual(prometheus.terminate(), 0)

    def check_dashboard(self, prometheus):
        """Checks that every expression of the dashboard is valid PromQL and returns data."""
        expressions = grafana_expressions()
        self.assertGreater(len(expressions), 20)
        for title, expression in expressions:
            with self.subTest(panel=title, expression=expression):
                self.assertGreater(len(prometheus.query(expression)), 0)
        regret = dict(expressions)["Cumulative regret"]
        names = {labels["name"] for labels, _ in prometheus.query(regret)}
        self.assertLessEqual({HOSTILE_NAMES[0], "runs", HOSTILE_NAMES[2]}, names)


if __name__ == "__main__":
    unittest.main()
