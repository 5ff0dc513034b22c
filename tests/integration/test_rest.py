"""The REST interface behaves as api/README.md describes."""

import contextlib
import csv
import io
import json
import re
import select
import socket
import struct
import subprocess
import unittest

from common import (
    BIN, ENDLESS, HANG_S, Client, ForeignWorker, Process, TallyTestCase, essence, free_port, job_document, simulate,
    wait_until,
)

CALM = {"type": "calm", "step_size": 3.0, "noise": 0.6667, "noise_growth": 3.333, "client_spread": 0.03,
        "curvature_spread": 0.0144, "initial_variance": 0.06667, "local_step_limit": 0.1}
DETAIL_KEYS = {"id", "status", "time_step", "round", "iterate", "stage", "cumulative_regret", "loss", "f_star",
               "x_checksum", "bits"}
BITS_KEYS = {"uplink", "downlink", "uplink_per_client", "control", "telemetry", "wire_bytes"}


def read_npy(data):
    """Values of a one-dimensional float64 .npy file (NEP 1)."""
    assert data[:6] == b"\x93NUMPY", data[:16]
    assert data[6:8] == b"\x01\x00"
    (length,) = struct.unpack("<H", data[8:10])
    assert (10 + length) % 64 == 0
    header = eval(data[10 : 10 + length], {"__builtins__": {}}, {})  # as NumPy defines the format
    assert header["descr"] == "<f8" and header["fortran_order"] is False
    (n,) = header["shape"]
    values = data[10 + length :]
    assert len(values) == 8 * n
    return list(struct.unpack(f"<{n}d", values))


class Rest(TallyTestCase):
    def setUp(self):
        super().setUp()
        self.coordinator = self.start_coordinator()
        self.client = self.coordinator.client

    def run_job(self, document):
        self.start_worker(self.coordinator, "w", clients=10)
        job_id = self.client.submit(document)
        return self.client.wait_status(job_id, "completed")

    def test_submission(self):
        document = job_document()
        answer = self.client.post_job(document)
        self.assertEqual(answer.status, 201)
        self.assertEqual(answer.type, "application/json")
        detail = answer.json()
        self.assertEqual(answer.headers["Location"], f"/v1/jobs/{detail['id']}")
        self.assertEqual(detail["status"], "queued")
        shown = self.client.get_json(answer.headers["Location"])
        self.assertEqual(shown["id"], detail["id"])
        # The detail contains the document, as submitted or with defaults filled in.
        document["objective"].update(l2=0.0, bias=False)
        for key, value in document.items():
            self.assertEqual(shown[key], value)

    def test_defaults_are_written_out(self):
        document = job_document(
            quorum=None, minibatch=None, seed=None, encoding=None, reference=None,
            algorithm__gradient_bound=None, round_deadline_ms=None, name=None,
        )
        detail = self.client.post_job(document).json()
        self.assertEqual(detail["quorum"], 10)
        for key in ("minibatch", "seed", "encoding", "reference", "round_deadline_ms"):
            self.assertIn(key, detail)
        self.assertEqual(detail["algorithm"]["gradient_bound"], 1.0)

    def test_curvature_and_what_it_warns_of(self):
        """The curvature is stored together with f(x*), even while the job waits for workers, and equals that of the
        simulation."""
        document = job_document(algorithm__step_size=50.0)
        expected = simulate(document)
        limit = 1 / expected["smoothness"]
        warning = f"step_size 50 is above {limit:.4g} = 1 / smoothness: the iterates may diverge"
        self.assertEqual(expected["warnings"], [warning])
        job_id = self.client.submit(document)
        queued = wait_until(lambda: (job := self.client.job(job_id))["warnings"] and job, "the curvature")
        self.assertEqual(queued["status"], "queued")
        self.assertIn("job has questionable parameters", self.coordinator.log())
        self.coordinator.kill()
        self.coordinator = self.start_coordinator(port=self.coordinator.port, store=self.coordinator.store)
        self.client = self.coordinator.client
        self.start_worker(self.coordinator, "w", clients=10)
        ended = wait_until(lambda: (job := self.client.job(job_id))["status"] in ("completed", "failed") and job,
                           "the end")
        calm = self.run_job(job_document(algorithm__step_size=0.1))
        given = self.run_job(job_document(reference={"type": "value", "value": 0.9}))
        for key in ("smoothness", "strong_convexity", "warnings"):
            self.assertEqual(queued[key], expected[key])
            self.assertEqual(ended[key], expected[key])
        self.assertEqual(calm["smoothness"], expected["smoothness"])  # the data are the same
        self.assertEqual(calm["warnings"], [])
        self.assertEqual([given[key] for key in ("smoothness", "strong_convexity", "warnings")], [None, None, []])

    def test_planned(self):
        """The prediction of `tally plan` is stored before the job starts and kept after it has ended; null without a
        plan."""
        document = job_document(
            algorithm=CALM, budget={"uplink_bits": 263, "downlink_bits": 289}, encoding="dithered", horizon=400,
            reference={"type": "value", "value": 0.9})  # so that nothing else is computed before the start
        done = subprocess.run([BIN / "tally", "plan", "-", "--json"], input=json.dumps(document), text=True,
                              capture_output=True, timeout=HANG_S, check=True)
        [expected] = json.loads(done.stdout)["plans"]
        job_id = self.client.submit(document)
        queued = wait_until(lambda: (job := self.client.job(job_id))["planned"] and job, "the plan")
        self.assertEqual(queued["status"], "queued")
        self.assertEqual(queued["planned"], {key: expected[key] for key in queued["planned"]})
        self.assertEqual(sum(epoch["samples"] for epoch in queued["planned"]["epochs"]), 400)
        self.coordinator.kill()
        self.coordinator = self.start_coordinator(port=self.coordinator.port, store=self.coordinator.store)
        self.client = self.coordinator.client
        self.start_worker(self.coordinator, "w", clients=10)
        ended = self.client.wait_status(job_id, "completed")
        self.assertEqual(ended["planned"], queued["planned"])
        self.assertEqual(essence(ended), essence(simulate(document)))
        lengths = [record["samples"] for record in self.client.rounds(job_id)]
        self.assertEqual(lengths, [epoch["samples"] for epoch in ended["planned"]["epochs"]])
        self.assertIsNone(self.run_job(job_document())["planned"])
        del document["budget"]
        self.assertIsNone(self.run_job(document)["planned"])

    def test_detail_keys(self):
        detail = self.run_job(job_document())
        self.assertLessEqual(DETAIL_KEYS, set(detail))
        bits = detail["bits"]
        self.assertLessEqual(BITS_KEYS, set(bits))
        self.assertEqual(set(bits["uplink"]), {"formula", "payload", "messages", "clipped"})
        self.assertLessEqual({"formula", "payload", "messages", "delivered_payload"}, set(bits["downlink"]))
        self.assertEqual(set(bits["uplink_per_client"]), {"formula", "payload"})
        self.assertEqual(set(bits["wire_bytes"]), {"in", "out"})
        for counters in (bits["uplink"], bits["downlink"], bits["wire_bytes"]):
            for value in counters.values():
                self.assertIs(type(value), int)
        self.assertRegex(detail["x_checksum"], "^[0-9a-f]{16}$")
        self.assertEqual((detail["status"], detail["time_step"]), ("completed", 2000))
        self.assertGreater(detail["finished_ms"], 0)

    def test_idempotency_key(self):
        document = job_document()
        first = self.client.post_job(document, {"Idempotency-Key": "key-1"})
        again = self.client.post_job(document, {"Idempotency-Key": "key-1"})
        self.assertEqual((first.status, again.status), (201, 201))
        self.assertEqual(again.json()["id"], first.json()["id"])
        self.assertEqual(again.headers["Location"], first.headers["Location"])
        other = self.client.post_job(job_document(seed=2), {"Idempotency-Key": "key-1"})
        self.assert_problem(other, 409)
        new = self.client.post_job(document, {"Idempotency-Key": "key-2"})
        self.assertNotEqual(new.json()["id"], first.json()["id"])
        without = self.client.post_job(document)
        self.assertEqual(len({first.json()["id"], new.json()["id"], without.json()["id"]}), 3)
        self.assertEqual(len(self.client.get_json("/v1/jobs")["jobs"]), 3)
        for bad in ("", "x" * 1000):
            self.assert_problem(self.client.post_job(document, {"Idempotency-Key": bad}), 400)
        # The key survives the process.
        self.coordinator.kill()
        self.coordinator = self.start_coordinator(
            port=self.coordinator.port, store=self.coordinator.store
        )
        again = self.client.post_job(document, {"Idempotency-Key": "key-1"})
        self.assertEqual(again.json()["id"], first.json()["id"])

    def test_list(self):
        ids = [self.client.submit(job_document(name=f"job {i}")) for i in range(7)]
        self.client.post(f"/v1/jobs/{ids[2]}/cancel")
        listed = self.client.get_json("/v1/jobs")["jobs"]
        self.assertEqual([job["id"] for job in listed], ids[::-1], "newest first")
        self.assertEqual(listed[0]["name"], "job 6")
        for status, expected in (("cancelled", [ids[2]]), ("running", []), ("completed", [])):
            jobs = self.client.get_json(f"/v1/jobs?status={status}")["jobs"]
            self.assertEqual([job["id"] for job in jobs], expected)
        self.assertEqual(len(self.client.get_json("/v1/jobs?status=queued")["jobs"]), 6)
        # Page by page, while a new job is submitted.
        seen, cursor, pages = [], "", 0
        while cursor is not None:
            page = self.client.get_json(f"/v1/jobs?limit=3{cursor and '&cursor=' + cursor}")
            self.assertLessEqual(len(page["jobs"]), 3)
            seen += [job["id"] for job in page["jobs"]]
            cursor = page.get("next_cursor")
            pages += 1
            if pages == 1:
                self.client.submit(job_document(name="late"))
        self.assertEqual(seen, ids[::-1])
        self.assertEqual(pages, 3)

    def test_rounds(self):
        detail = self.run_job(job_document())
        path = f"/v1/jobs/{detail['id']}/rounds"
        records = self.client.rounds(detail["id"])
        self.assertEqual(len(records), detail["round"])
        for record in records:
            self.assertLessEqual(
                {"t", "k", "j", "samples", "norm", "passed", "regret", "bits"}, set(record)
            )
        times = [record["closed_ms"] for record in records]
        self.assertEqual(times, sorted(times))
        self.assertLessEqual(detail["started_ms"], times[0])
        self.assertEqual(times[-1], detail["finished_ms"])
        self.assertEqual(self.client.get_json(f"{path}?after=2")["rounds"], records[2:])
        self.assertEqual(self.client.get_json(f"{path}?after={len(records)}")["rounds"], [])
        page = self.client.get_json(f"{path}?after=1&limit=2")
        self.assertEqual(page["rounds"], records[1:3])
        self.assertEqual(page["next_after"], 3)

        answer = self.client.get(path + ".csv")
        self.assertEqual((answer.status, answer.type), (200, "text/csv"))
        rows = list(csv.DictReader(io.StringIO(answer.body.decode())))
        self.assertEqual(len(rows), len(records))
        for row, record in zip(rows, records):
            for key in ("t", "k", "j", "samples", "closed_ms"):
                self.assertEqual(int(row[key]), record[key])
            for key in ("norm", "regret"):
                self.assertEqual(float(row[key]), record[key])
            self.assertEqual(int(row["uplink_formula_bits"]), record["bits"]["uplink"]["formula"])
            self.assertEqual(int(row["downlink_payload_bits"]), record["bits"]["downlink"]["payload"])
        after = self.client.get(path + ".csv?after=2").body.decode().splitlines()
        self.assertEqual(after, answer.body.decode().splitlines()[:1] + answer.body.decode().splitlines()[3:])

    def test_model(self):
        detail = self.run_job(job_document())
        path = f"/v1/jobs/{detail['id']}/model"
        answer = self.client.get(path)
        self.assertEqual((answer.status, answer.type), (200, "application/json"))
        model = answer.json()
        self.assertEqual(len(model["x"]), 30)
        self.assertEqual(model["x_checksum"], detail["x_checksum"])
        for accept in ("application/x-npy", "application/x-npy, application/json;q=0.5"):
            answer = self.client.get(path, Accept=accept)
            self.assertEqual((answer.status, answer.type), (200, "application/x-npy"))
            self.assertEqual(read_npy(answer.body), model["x"])
        for accept in ("application/json", "*/*", "application/*"):
            self.assertEqual(self.client.get(path, Accept=accept).type, "application/json")
        self.assert_problem(self.client.get(path, Accept="image/png"), 406)

    def test_model_of_a_waiting_job_is_the_initial_point(self):
        job_id = self.client.submit(job_document(initial_point={"type": "random_sphere", "radius": 2.0}))
        model = self.client.get_json(f"/v1/jobs/{job_id}/model")
        self.assertAlmostEqual(sum(x * x for x in model["x"]) ** 0.5, 2.0, places=9)
        self.assertEqual(model["iterate"], 1)

    def vector_job(self, dim):
        """A job that never starts, so that its model is the initial point."""
        return self.client.submit({
            "algorithm": {"type": "minibatch_sgd", "step_size": 0.1, "local_steps": 1}, "clients": 1, "horizon": 10,
            "objective": {"type": "plugin", "name": "bowl", "dim": dim}, "reference": {"type": "none"},
            "initial_point": {"type": "random_sphere", "radius": 2.0}})

    def test_layout_of_a_model(self):
        """Also holds for models that are sent in several pieces of 4,096 coordinates each."""
        for dim in (1, 4096, 4097, 8192, 10_000):
            with self.subTest(dim=dim):
                path = f"/v1/jobs/{self.vector_job(dim)}/model"
                answer = self.client.get(path)
                self.assertEqual(answer.headers["Content-Length"], str(len(answer.body)))
                model = answer.json()
                self.assertEqual(model["x"], read_npy(self.client.get(path, Accept="application/x-npy").body))
                numbers = re.findall(rb"(?m)^    (-?[0-9.e-]+),?$", answer.body)
                self.assertEqual([float(number) for number in numbers], model["x"])
                self.assertEqual(answer.body, (
                    f'{{\n  "job_id": "{model["job_id"]}",\n  "round": 0,\n  "iterate": 1,\n'
                    f'  "x_checksum": "{model["x_checksum"]}",\n  "x": [\n    '
                    + ",\n    ".join(number.decode() for number in numbers) + "\n  ]\n}\n").encode())

    def test_long_models_do_not_hold_others_up(self):
        """Each model takes a second of processor time. Models are produced one after the other, other requests are
        answered between their pieces, and a model that nobody waits for any more is skipped."""
        path = f"/v1/jobs/{self.vector_job(1_000_000)}/model"
        with contextlib.ExitStack() as readers, contextlib.closing(self.client.connect(HANG_S)) as other:
            models = [readers.enter_context(contextlib.closing(self.client.connect(HANG_S))) for _ in range(8)]
            for model in models:
                model.request("GET", path)
            for _ in range(3):
                other.request("GET", "/healthz")
                self.assertIn(b"ok", other.getresponse().read())
            self.assertFalse(select.select([models[-1].sock], [], [], 0)[0])
            first = models[0].getresponse().read()
            self.assertEqual(len(json.loads(first)["x"]), 1_000_000)
        self.assertEqual(self.client.get_json(f"/v1/jobs/{self.vector_job(10)}/model")["iterate"], 1)

    def test_workers(self):
        self.assertEqual(self.client.get_json("/v1/workers")["workers"], [])
        worker = self.start_worker(self.coordinator, "alpha", clients=3)

        def workers():
            return self.client.get_json("/v1/workers")["workers"]

        wait_until(workers, "the worker to join")
        (shown,) = workers()
        self.assertEqual((shown["name"], shown["slots"]), ("alpha", 3))
        self.assert_ends_well(worker)
        wait_until(lambda: workers() == [], "the worker to have left")

    def test_pages_of_workers(self):
        workers = [ForeignWorker(self.client, name=f"w{i}", slots=i + 1) for i in range(5)]
        whole = self.client.get_json("/v1/workers")
        newest_first = ["w4", "w3", "w2", "w1", "w0"]
        self.assertEqual([each["name"] for each in whole["workers"]], newest_first)
        self.assertIsNone(whole["next_cursor"])
        counts = {"workers_total": 5, "slots_total": 15, "slots_free": 15}
        first = self.client.get_json("/v1/workers?limit=2")
        self.assertEqual([each["name"] for each in first["workers"]], newest_first[:2])
        # Workers that join or leave in the meantime do not shift any page, even if one was the last on its page.
        workers[3].leave()
        ForeignWorker(self.client, name="new", slots=4)
        second = self.client.get_json(f"/v1/workers?limit=2&cursor={first['next_cursor']}")
        third = self.client.get_json(f"/v1/workers?limit=2&cursor={second['next_cursor']}")
        self.assertEqual([each["name"] for each in second["workers"] + third["workers"]], newest_first[2:])
        self.assertIsNone(third["next_cursor"])
        full = self.client.get_json(f"/v1/workers?limit=3&cursor={first['next_cursor']}")
        self.assertEqual((len(full["workers"]), full["next_cursor"]), (3, None))
        for page in (whole, first, second, third, full):
            self.assertEqual({name: page[name] for name in counts}, counts)
        for query, field in (("limit=0", "limit"), ("limit=1001", "limit"), ("limit=x", "limit"), ("cursor=", "cursor"),
                             ("cursor=1", "cursor"), ("cursor=1-", "cursor"), ("cursor=-1-2", "cursor"),
                             ("cursor=1-2-3", "cursor"), ("cursor=1-99999999999999999999", "cursor"),
                             ("cursor=%201-2", "cursor"), ("cursor=1-%2B2", "cursor")):
            with self.subTest(query):
                self.assert_problem(self.client.get(f"/v1/workers?{query}"), 400, field)

    def test_health(self):
        for path in ("/healthz", "/readyz"):
            answer = self.client.get(path)
            self.assertEqual((answer.status, answer.type), (200, "application/json"))

    def test_head(self):
        job_id = self.client.submit(job_document())
        wait_until(lambda: self.client.job(job_id)["waiting"]["for"] == "workers", "f(x*)")  # or it would grow
        for path in ("/healthz", "/v1/jobs", f"/v1/jobs/{job_id}", f"/v1/jobs/{job_id}/rounds.csv"):
            get = self.client.get(path)
            head = self.client.request("HEAD", path)
            self.assertEqual(head.status, 200)
            self.assertEqual(head.body, b"")
            self.assertEqual(head.headers["Content-Type"], get.headers["Content-Type"])
            self.assertEqual(head.headers["Content-Length"], str(len(get.body)))
        self.assertEqual(self.client.request("HEAD", "/v1/jobs/nobody").status, 404)

    def act(self, job_id, action):
        return self.client.post(f"/v1/jobs/{job_id}/{action}")

    def test_cancel_a_queued_job(self):
        job_id = self.client.submit(job_document())
        answer = self.act(job_id, "cancel")
        self.assertEqual((answer.status, answer.json()["status"]), (200, "cancelled"))
        for action in ("cancel", "pause", "resume"):
            self.assert_problem(self.act(job_id, action), 409)
        detail = self.client.job(job_id)
        self.assertEqual((detail["status"], detail["reason"], detail["reason_code"]),
                         ("cancelled", None, "cancelled_by_request"))

    def test_pause_and_resume(self):
        document = job_document(clients=1, quorum=1)
        job_id = self.client.submit(document)
        self.assert_problem(self.act(job_id, "resume"), 409)
        worker = ForeignWorker(self.client)
        task = worker.poll_task()
        self.assertEqual(self.client.job(job_id)["status"], "running")
        self.assert_problem(self.act(job_id, "resume"), 409)

        answer = self.act(job_id, "pause")
        self.assertEqual((answer.status, answer.json()["status"]), (200, "paused"))
        self.assert_problem(self.act(job_id, "pause"), 409)
        # While a job is paused, there are no new tasks, but results that were already computed are accepted.
        self.assertEqual(worker.poll(wait_ms=100).WhichOneof("kind"), "idle")
        worker.post(worker.update(task, 0))
        self.assertEqual(self.client.job(job_id)["round"], 1)
        self.assertEqual(worker.poll(wait_ms=100).WhichOneof("kind"), "idle")

        answer = self.act(job_id, "resume")
        self.assertEqual((answer.status, answer.json()["status"]), (200, "running"))
        self.assertEqual(worker.poll_task().round, 2)
        answer = self.act(job_id, "cancel")
        self.assertEqual((answer.status, answer.json()["status"]), (200, "cancelled"))
        worker.cursors = {job_id: 1}
        self.assertEqual(worker.poll().released.job_id, job_id)

    def test_paused_job_stays_paused_through_a_crash(self):
        job_id = self.client.submit(job_document())
        self.start_worker(self.coordinator, "w", clients=10)
        self.client.wait_status(job_id, "running", "completed")
        # A second job, too long to end before the pause.
        job_id = self.client.submit(job_document("synthetic-ceal-long", horizon=ENDLESS))
        self.client.wait_status(job_id, "running")
        self.assertEqual(self.act(job_id, "pause").status, 200)
        self.coordinator.kill()
        self.coordinator = self.start_coordinator(
            port=self.coordinator.port, store=self.coordinator.store
        )
        self.assertEqual(self.client.job(job_id)["status"], "paused")
        self.assertEqual(self.act(job_id, "resume").status, 200)
        self.client.wait_rounds(job_id, 20)

    def test_pinned_worker(self):
        """A worker started for one job serves no other."""
        first = self.client.submit(job_document(clients=1, quorum=1, name="first"))
        second = self.client.submit(job_document(clients=1, quorum=1, name="second"))
        pinned = ForeignWorker(self.client, "pinned", job_id=second)
        self.assertEqual(pinned.poll_task().job_id, second)
        self.assertEqual(self.client.job(first)["status"], "queued")

    def test_second_session_of_a_name_replaces_the_first(self):
        job_id = self.client.submit(job_document(clients=1, quorum=1))
        first = ForeignWorker(self.client, "twin")
        task = first.poll_task()
        second = ForeignWorker(self.client, "twin")
        self.assert_connect_error("not_found", first.post, first.update(task, 0))
        self.assertEqual(second.poll_task().job_id, job_id)
        self.assertEqual(len(self.client.get_json("/v1/workers")["workers"]), 1)

    def test_sigterm_drains(self):
        """A long poll is answered, the exit status is 0, and the job continues in the next process."""
        job_id = self.client.submit(job_document("synthetic-ceal-long", horizon=ENDLESS))
        worker = self.start_worker(self.coordinator, "w", clients=10)
        self.client.wait_status(job_id, "running")
        self.assert_ends_well(self.coordinator)
        self.coordinator = self.start_coordinator(
            port=self.coordinator.port, store=self.coordinator.store
        )
        self.client.wait_rounds(job_id, 20)
        self.assert_ends_well(worker, self.coordinator)

    def test_idle_connections_do_not_hold_it(self):
        """Silent connections do not keep the process from ending."""
        idle = Client(self.coordinator.port)
        idle.get("/healthz")
        connections = [
            socket.create_connection(("127.0.0.1", self.coordinator.port)) for _ in range(5)
        ]
        self.addCleanup(lambda: [connection.close() for connection in connections])
        self.assert_ends_well(self.coordinator)

    def test_port_taken(self):
        """A second coordinator on the same port reports that the port is taken, and exits with an error."""
        second = Process(
            self.folder, "second",
            [BIN / "tally-coordinator", "--listen", f"127.0.0.1:{self.coordinator.port}", "--store", "memory:"],
        )
        self.processes.append(second)
        self.assertNotIn(second.wait(), (0, -9))
        self.assertIn(str(self.coordinator.port), second.log())

    def test_one_database_one_coordinator(self):
        second = Process(
            self.folder, "second",
            [BIN / "tally-coordinator", "--listen", f"127.0.0.1:{free_port()}", "--store", self.coordinator.store],
        )
        self.processes.append(second)
        self.assertNotIn(second.wait(), (0, -9))
        self.assertEqual(self.client.get("/readyz").status, 200)

    def test_json_is_json(self):
        """Every JSON response is strictly valid: no NaN, no Infinity."""

        def refuse(text):
            raise AssertionError(text)

        job_id = self.client.submit(job_document())
        for path in ("/v1/jobs", f"/v1/jobs/{job_id}", f"/v1/jobs/{job_id}/rounds", "/v1/workers", "/nothing"):
            json.loads(self.client.get(path).body, parse_constant=refuse)


if __name__ == "__main__":
    unittest.main()
