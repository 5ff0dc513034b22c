"""Initial points that a job is given: a .npy file, the model of an earlier job, what the first worker offers."""

import contextlib
import http.client
import io
import json
import socket
import subprocess
import threading
import unittest
from pathlib import Path

import numpy as np

from common import (
    BIN, FORMAT, HANG_S, IS_SANITIZED, ForeignWorker, TallyTestCase, Worker, essence, job_document, messages, simulate,
    wait_until,
)

DIM = 30
START = np.linspace(-1, 1, DIM)


def npy_bytes(array, **options):
    out = io.BytesIO()
    np.lib.format.write_array(out, array, **options)
    return out.getvalue()


class Case(TallyTestCase):
    def setUp(self):
        super().setUp()
        self.data = Path(self.folder, "data")
        self.data.mkdir()
        np.save(self.data / "start.npy", START)

    def start(self, clients=10, **options):
        coordinator = self.start_coordinator(options=("--data-dir", self.data), **options)
        if clients > 0:
            self.start_worker(coordinator, clients)
        return coordinator

    def start_worker(self, coordinator, clients=10, name="a"):
        worker = Worker(self.folder, coordinator.url, name, clients=clients, options=("--data-dir", self.data))
        self.processes.append(worker)
        return worker

    def document(self, base="synthetic-fedavg", file="start.npy", **changes):
        changes.setdefault("horizon", 400)
        return job_document(base, initial_point={"type": "npy", "file": file}, **changes)

    def simulate(self, document):
        return simulate(document, ("--data-dir", self.data))

    def model(self, coordinator, job_id):
        return np.array(coordinator.client.get_json(f"/v1/jobs/{job_id}/model")["x"])


class Files(Case):
    def test_the_job_starts_there_in_the_service_as_in_the_simulation(self):
        coordinator = self.start()
        for base in ("synthetic-fedavg", "synthetic-ceal", "synthetic-calm-auto", "synthetic-scaffold",
                     "synthetic-diana", "synthetic-ef21", "synthetic-fedadam"):
            with self.subTest(base):
                document = self.document(base)
                expected = self.simulate(document)
                detail = coordinator.client.wait_status(coordinator.client.submit(document), "completed")
                self.assertEqual(essence(detail), essence(expected))
                self.assertEqual(detail["initial_point"], expected["initial_point"])
                other = simulate({**document, "initial_point": {"type": "zeros"}})
                self.assertNotEqual(detail["x_checksum"], other["x_checksum"])
                # Every worker, here one, is sent the point once.
                self.assertEqual(detail["bits"]["recovery"], 64 * DIM)

    def test_the_point_is_that_of_the_file(self):
        coordinator = self.start(clients=0)
        worker = ForeignWorker(coordinator.client, slots=10)
        for array in (START, START.astype(np.float32), START.reshape(5, 6), START.reshape(5, 3, 2)):
            np.save(self.data / "shaped.npy", array)
            with self.subTest(array.dtype, shape=array.shape):
                job_id = coordinator.client.submit(self.document(file="shaped.npy"))
                task = worker.poll_task()
                self.assertEqual(task.job_id, job_id)
                wanted = array.ravel().astype(np.float64)
                np.testing.assert_array_equal(np.frombuffer(task.snapshot, "<f8"), wanted)
                np.testing.assert_array_equal(self.model(coordinator, job_id), wanted)
                detail = coordinator.client.job(job_id)
                self.assertEqual(detail["initial_point"]["checksum"], detail["x_checksum"])
                wait_until(lambda job_id=job_id: coordinator.client.job(job_id)["bits"]["recovery"] == 64 * DIM,
                           "the bits of the point")
                coordinator.client.post(f"/v1/jobs/{job_id}/cancel")

    def test_a_domain_holds_for_it(self):
        coordinator = self.start(clients=0)
        worker = ForeignWorker(coordinator.client, slots=10)
        document = self.document(domain={"type": "box", "lower": -0.5, "upper": 0.25})
        job_id = coordinator.client.submit(document)
        np.testing.assert_array_equal(np.frombuffer(worker.poll_task().snapshot, "<f8"), np.clip(START, -0.5, 0.25))
        worker.leave()
        self.start_worker(coordinator)
        self.assertEqual(essence(coordinator.client.wait_status(job_id, "completed")),
                         essence(self.simulate(document)))

    def test_what_is_wrong_with_a_file_is_named(self):
        coordinator = self.start(clients=0)
        nan, inf = START.copy(), START.astype(np.float32)
        nan[7], inf[29] = np.nan, -np.inf
        good = npy_bytes(START)
        wide = b"{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296), }".ljust(117) + b"\n"
        cases = {
            "long.npy": (npy_bytes(np.zeros(31)), "has shape (31,), not (30,) or another of 30 values"),
            "square.npy": (npy_bytes(np.zeros((30, 30))), "has shape (30, 30), not (30,)"),
            "cube.npy": (npy_bytes(np.zeros((3, 10, 2))), "has 3 dimensions, not (30,)"),
            "int.npy": (npy_bytes(np.zeros(30, dtype=np.int32)), "has dtype <i4, not float32 or float64"),
            "half.npy": (npy_bytes(np.zeros(30, dtype=np.float16)), "has dtype <f2, not float32 or float64"),
            "big.npy": (npy_bytes(START.astype(">f8")), "dtype >f8 is not a little-endian"),
            "objects.npy": (npy_bytes(np.array([None] * 30), allow_pickle=True), "dtype |O is not"),
            "nan.npy": (npy_bytes(nan), "coordinate 7 is NaN"),
            "inf.npy": (npy_bytes(inf), "coordinate 29 is infinite"),
            "fortran.npy": (npy_bytes(np.asfortranarray(START.reshape(5, 6))), "is in Fortran order"),
            "short.npy": (good[:-9], "ends after 28 of 30 values"),
            "more.npy": (good + b"\0", "has data after its 30 values"),
            "text.npy": (b"1 2 3", "not a .npy file"),
            "empty.npy": (b"", "not a .npy file"),
            "header.npy": (good[:20], "ends in its header"),
            "huge.npy": (good[:6] + b"\2\0\xff\xff\xff\x7f" + good[10:], "a header of 2147483659 bytes, more than"),
            "wide.npy": (good[:10] + wide + good[128:], "has shape (4294967296, 4294967296), not (30,)"),
        }
        Path(self.folder, "outside.npy").write_bytes(good)
        (self.data / "link.npy").symlink_to(Path(self.folder, "outside.npy"))
        (self.data / "folder.npy").mkdir()
        cases |= {"missing.npy": (None, "missing.npy"), "../outside.npy": (None, "outside.npy"),
                  "link.npy": (None, "link.npy"), "folder.npy": (None, "folder.npy"),
                  str(self.data / "start.npy"): (None, "start.npy")}
        for name, (content, said) in cases.items():
            with self.subTest(name):
                if content is not None:
                    (self.data / name).write_bytes(content)
                answer = coordinator.client.post_job(self.document(file=name))
                self.assertEqual(answer.status, 400)
                self.assertEqual([error["field"] for error in answer.json()["errors"]], ["initial_point.file"])
                self.assertIn(said, answer.json()["errors"][0]["detail"])
                path = Path(self.folder, "job.json")
                path.write_text(json.dumps(self.document(file=name)))
                done = subprocess.run([BIN / "tally", "simulate", path, "--data-dir", self.data], capture_output=True,
                                      text=True)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(said, done.stderr)
        self.assertEqual(coordinator.client.get_json("/v1/jobs")["jobs"], [])

    def test_a_file_that_has_changed_since_is_named(self):
        coordinator = self.start(clients=0)
        client = coordinator.client
        job_id = client.submit(self.document())
        stored = client.job(job_id)["initial_point"]
        np.save(self.data / "start.npy", START.astype(np.float32))  # other values
        said = f"file start.npy has changed: its checksum is [0-9a-f]{{16}}, not {stored['checksum']}"
        answer = client.post_job(job_document("synthetic-fedavg", initial_point=stored))
        self.assertEqual(answer.status, 400)
        self.assertEqual(answer.json()["errors"][0]["field"], "initial_point.checksum")
        self.assertRegex(answer.json()["errors"][0]["detail"], said)
        self.start_worker(coordinator)
        detail = client.wait_status(job_id, "failed")
        self.assertEqual(detail["reason_code"], "preparation_failed")
        self.assertRegex(detail["reason"], "initial_point.checksum: " + said)
        self.assertEqual(client.get(f"/v1/jobs/{job_id}/model").status, 409)
        np.save(self.data / "start.npy", START)
        detail = client.wait_status(client.submit(job_document("synthetic-fedavg", horizon=400, initial_point=stored)),
                                    "completed")
        (self.data / "start.npy").unlink()
        self.assertEqual(detail["initial_point"], stored)

    def test_a_queued_job_whose_file_is_gone_fails_and_stops_no_other(self):
        coordinator = self.start(clients=0)
        gone = coordinator.client.submit(self.document())
        other = coordinator.client.submit(job_document("synthetic-fedavg", horizon=400))
        (self.data / "start.npy").unlink()
        self.start_worker(coordinator)
        self.assertRegex(coordinator.client.wait_status(gone, "failed")["reason"], "initial_point.file: start.npy")
        coordinator.client.wait_status(other, "completed")

    def test_the_point_is_durable_from_the_start(self):
        document = self.document(horizon=40000)
        expected = self.simulate(document)
        coordinator = self.start()
        job_id = coordinator.client.submit(document)
        wait_until(lambda: coordinator.client.job(job_id)["status"] == "running", "the start", pause_s=0.0005)
        coordinator.kill()
        (self.data / "start.npy").unlink()
        coordinator = self.start_coordinator(port=coordinator.port, store=coordinator.store)
        self.assertEqual(essence(coordinator.client.wait_status(job_id, "completed")), essence(expected))

    def test_it_is_durable_before_the_first_round(self):
        """No worker answers before the kill, so the state in the store is that of the start alone."""
        coordinator = self.start(clients=0)
        worker = ForeignWorker(coordinator.client, slots=10)
        job_id = coordinator.client.submit(self.document())
        task = worker.poll_task()
        np.testing.assert_array_equal(np.frombuffer(task.snapshot, "<f8"), START)
        coordinator.kill()
        (self.data / "start.npy").unlink()
        coordinator = self.start_coordinator(port=coordinator.port, store=coordinator.store)
        np.testing.assert_array_equal(self.model(coordinator, job_id), START)
        worker = ForeignWorker(coordinator.client, slots=10)
        np.testing.assert_array_equal(np.frombuffer(worker.poll_task().snapshot, "<f8"), START)

    def test_a_job_that_is_cancelled_in_the_queue_has_no_model(self):
        coordinator = self.start(clients=0)
        job_id = coordinator.client.submit(self.document())
        for again in range(2):
            answer = coordinator.client.get(f"/v1/jobs/{job_id}/model")
            self.assertEqual(answer.status, 409)
            self.assertIn("is of type npy and is not known before the job starts", answer.json()["detail"])
            coordinator.client.post(f"/v1/jobs/{job_id}/cancel")
        coordinator.kill()
        coordinator = self.start_coordinator(port=coordinator.port, store=coordinator.store)
        self.assertEqual(coordinator.client.get(f"/v1/jobs/{job_id}/model").status, 409)

    def test_members_that_do_not_belong_are_named(self):
        coordinator = self.start(clients=0)
        for initial, field, said in (
            ({"type": "npy"}, "file", "file is missing"),
            ({"type": "npy", "file": "start.npy", "radius": 1}, "radius", "unknown key"),
            ({"type": "zeros", "file": "start.npy"}, "file", "unknown key"),
            ({"type": "npy", "file": "start.npy", "checksum": "abc"}, "checksum", "16 digits"),
            ({"type": "npy", "file": "x" * 256}, "file", "255"),
            ({"type": "job"}, "job", "job is missing"),
            ({"type": "job", "job": "0123456789ab", "which": "first"}, "which", "last"),
            ({"type": "first"}, "type", "type training or plugin"),
            ({"type": "first", "file": "start.npy"}, "file", "unknown key"),
        ):
            with self.subTest(initial):
                answer = coordinator.client.post_job(job_document("synthetic-fedavg", initial_point=initial))
                self.assertEqual(answer.status, 400)
                errors = {error["field"]: error["detail"] for error in answer.json()["errors"]}
                self.assertIn(said, errors["initial_point." + field])


@unittest.skipIf(IS_SANITIZED, "a program with a sanitizer takes no library before it")
class SlowFiles(Case):
    """Reading a file waits as long as the test likes (slow_file.c). Only the jobs that it belongs to wait with it."""

    def setUp(self):
        super().setUp()
        self.slow = self.data / "slow"
        self.slow.mkdir()
        np.save(self.slow / "start.npy", START)
        self.coordinator = None

    def start_slow(self, **options):
        library = BIN.parent / "plugins" / "slow_file.so"
        self.coordinator = self.start_coordinator(
            options=("--data-dir", self.data), launcher=("env", f"LD_PRELOAD={library}", f"TALLY_SLOW_FOLDER={self.slow}"),
            **options)
        return self.coordinator.client

    def hold(self):
        (self.slow / "reading").unlink(missing_ok=True)
        (self.slow / "hold").touch()

    def let_go(self):
        (self.slow / "hold").unlink()

    def wait_reading(self):
        wait_until((self.slow / "reading").exists, "the file to be read")

    def slow_document(self, **changes):
        return self.document(file="slow/start.npy", **changes)

    def in_threads(self, n, submit):
        """Begins n calls of submit(), and returns the list of their answers to come, and what waits for them."""
        answers = []

        def call():
            with contextlib.suppress(http.client.HTTPException, OSError):  # the coordinator ends
                answers.append(submit())

        threads = [threading.Thread(target=call, daemon=True) for _ in range(n)]
        for thread in threads:
            thread.start()

        def join():
            for thread in threads:
                thread.join(HANG_S)
        return answers, join

    def run_another(self, client):
        """Runs a job from its submission to its end."""
        return client.wait_status(client.submit(job_document("synthetic-fedavg", horizon=100)), "completed")

    def test_submissions_wait_and_nothing_else(self):
        client = self.start_slow()
        self.start_worker(self.coordinator)
        document = self.slow_document()
        self.hold()
        jobs, join_jobs = self.in_threads(2, lambda: client.post_job(document, {"Idempotency-Key": "a"}))
        plans, join_plans = self.in_threads(1, lambda: client.post(
            "/v1/jobs?dry_run=1", json.dumps(document).encode(), **{"Content-Type": "application/json"}))
        wrong, join_wrong = self.in_threads(1, lambda: client.post_job(self.slow_document(objective__data__dim=29)))
        self.wait_reading()
        other = self.run_another(client)
        self.assertEqual([job["id"] for job in client.get_json("/v1/jobs")["jobs"]], [other["id"]])
        self.assertEqual((jobs, plans, wrong), ([], [], []))
        self.let_go()
        for join in (join_jobs, join_plans, join_wrong):
            join()
        self.assertEqual([answer.status for answer in jobs + plans + wrong], [201, 201, 200, 400])
        self.assertEqual(jobs[0].json()["id"], jobs[1].json()["id"])
        self.assertEqual(plans[0].json()["document"]["initial_point"], jobs[0].json()["initial_point"])
        self.assertEqual(wrong[0].json()["errors"][0]["field"], "initial_point.file")
        self.assertIn("has shape (30,), not (29,)", wrong[0].json()["errors"][0]["detail"])
        detail = client.wait_status(jobs[0].json()["id"], "completed")
        self.assertEqual(essence(detail), essence(self.simulate(document)))
        self.assertEqual(len(client.get_json("/v1/jobs")["jobs"]), 2)

    def test_there_is_a_limit_for_submissions_that_wait(self):
        client = self.start_slow()
        self.hold()
        answers, join = self.in_threads(64 + 3, lambda: client.post_job(self.slow_document()))
        wait_until(lambda: len(answers) == 3, "submissions to be refused")
        self.assertEqual({answer.status for answer in answers}, {429})
        self.assertIn("64 files of other jobs are being read", answers[0].json()["detail"])
        self.let_go()
        join()
        self.assertEqual([answer.status for answer in answers[3:]], 64 * [201])

    def test_a_client_that_disconnects_submits_nothing(self):
        client = self.start_slow()
        self.hold()
        body = json.dumps(self.slow_document()).encode()
        with socket.create_connection(("127.0.0.1", self.coordinator.port)) as connection:
            connection.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                               b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
            self.wait_reading()
            connection.shutdown(socket.SHUT_WR)
            self.assertEqual(connection.recv(1), b"")  # the coordinator has noticed
        self.let_go()
        wait_until(lambda: "status=499" in self.coordinator.log(), "the end of the request")
        self.assertEqual(client.get_json("/v1/jobs")["jobs"], [])

    def test_starts_wait_and_nothing_else(self):
        client = self.start_slow()
        document = self.slow_document()
        job_id, cancelled = client.submit(document), client.submit(document)
        self.hold()
        worker = self.start_worker(self.coordinator)
        self.wait_reading()
        self.run_another(client)
        self.assertIn("waits for file slow/start.npy to be read", client.job(job_id)["waiting"]["text"])
        client.post(f"/v1/jobs/{cancelled}/cancel")
        self.let_go()
        detail = client.wait_status(job_id, "completed")
        self.assertEqual(essence(detail), essence(self.simulate(document)))
        self.assertEqual(client.job(cancelled)["status"], "cancelled")
        worker.terminate()

    def test_the_coordinator_ends_while_it_reads(self):
        for at_start in (False, True):
            with self.subTest(at_start=at_start):
                client = self.start_slow(name=f"c{at_start}", store=f"sqlite:{self.folder}/{at_start}.db")
                job_id = client.submit(self.slow_document())
                self.hold()
                if at_start:
                    worker = self.start_worker(self.coordinator, name=f"w{at_start}")
                else:
                    self.in_threads(1, lambda: self.coordinator.client.post_job(self.slow_document()))
                self.wait_reading()
                self.assertEqual(self.coordinator.terminate(), 0)
                self.let_go()
                client = self.start_slow(name=f"d{at_start}", store=self.coordinator.store, port=self.coordinator.port)
                if not at_start:
                    worker = self.start_worker(self.coordinator, name=f"w{at_start}")
                client.wait_status(job_id, "completed")
                worker.terminate()
                self.coordinator.terminate()


TRAINER = BIN.parent / "plugins" / "trainer.so"
OFFERED = (-1 / np.arange(1, 6, dtype=np.float32)).astype(np.float32)


def first_job(**changes):
    return {"objective": {"type": "training", "name": "trainer", "dim": 5}, "algorithm": {"type": "fedavg"},
            "clients": 3, "horizon": 6, "initial_point": {"type": "first"}, **changes}


class Offers(TallyTestCase):
    """trainer.c offers a start."""

    def start_trainer(self, coordinator, name, clients, *options):
        worker = Worker(self.folder, coordinator.url, name, clients=clients, options=("--plugin", TRAINER, *options))
        self.processes.append(worker)
        return worker

    def test_the_service_equals_the_simulation(self):
        expected = simulate(first_job(), ("--plugin", TRAINER))
        self.assertEqual(expected["status"], "completed")
        self.assertNotEqual(expected["x_checksum"], simulate(first_job(initial_point={"type": "zeros"}),
                                                             ("--plugin", TRAINER))["x_checksum"])
        for options in ((), ("--plugin-isolated",)):
            with self.subTest(options):
                coordinator = self.start_coordinator(name=f"coordinator{len(options)}",
                                                     store=f"sqlite:{self.folder}/{len(options)}.db")
                self.start_trainer(coordinator, f"a{len(options)}", 3, *options)
                detail = coordinator.client.wait_status(coordinator.client.submit(first_job()), "completed")
                self.assertEqual(essence(detail), essence(expected))
                self.assertEqual(detail["initial_point"], {"type": "first"})
                # It came as float32, and the worker that has sent it needs no copy.
                self.assertEqual(detail["bits"]["recovery"], 32 * 5)

    def test_it_is_compressed_like_any_other(self):
        document = first_job(algorithm={"type": "fedavg", "compression": "auto"}, horizon=10)
        coordinator = self.start_coordinator()
        for name in "ab":
            self.start_trainer(coordinator, name, 2)
        detail = coordinator.client.wait_status(coordinator.client.submit(document), "completed")
        self.assertEqual(essence(detail), essence(simulate(document, ("--plugin", TRAINER))))
        self.assertEqual(detail["bits"]["recovery"], 32 * 5 + 64 * 5)
        model = coordinator.client.get_json(f"/v1/jobs/{detail['id']}/model")
        document["initial_point"] = {"type": "job", "job": detail["id"]}
        continued = coordinator.client.wait_status(coordinator.client.submit(document), "completed")
        self.assertEqual(continued["initial_point"]["checksum"], detail["x_checksum"])
        self.assertEqual(model["x_checksum"], detail["x_checksum"])

    def test_one_worker_is_asked_and_the_others_get_the_point(self):
        coordinator = self.start_coordinator()
        for name in "abc":
            self.start_trainer(coordinator, name, 1)
        detail = coordinator.client.wait_status(coordinator.client.submit(first_job()), "completed")
        self.assertEqual(essence(detail), essence(simulate(first_job(), ("--plugin", TRAINER))))
        self.assertEqual(detail["bits"]["recovery"], 32 * 5 + 2 * 64 * 5)
        self.assertEqual(coordinator.log().count('event="worker offered the initial point"'), 1)

    def test_a_domain_holds_for_it(self):
        document = first_job(domain={"type": "box", "lower": -0.4, "upper": 1})
        coordinator = self.start_coordinator()
        worker = self.start_trainer(coordinator, "a", 3)
        detail = coordinator.client.wait_status(coordinator.client.submit(document), "completed")
        self.assertEqual(essence(detail), essence(simulate(document, ("--plugin", TRAINER))))
        self.assertNotIn("point lost", worker.log())

    def test_it_waits_for_a_worker_that_offers_and_stops_no_other_job(self):
        coordinator = self.start_coordinator()
        client = coordinator.client
        job_id = client.submit(first_job(clients=2))
        other = client.submit(job_document("synthetic-fedavg", horizon=200, clients=3, quorum=3))
        plain = Worker(self.folder, coordinator.url, "plain", clients=3)
        self.processes.append(plain)
        client.wait_status(other, "completed")
        self.assertIn("waits for a worker that offers an initial point (plug-in trainer)",
                      client.job(job_id)["waiting"]["text"])
        self.assertEqual(client.get(f"/v1/jobs/{job_id}/model").status, 409)
        self.start_trainer(coordinator, "a", 1)
        client.wait_status(job_id, "running")  # plain refuses it, because it has no plug-in
        np.testing.assert_array_equal(client.get_json(f"/v1/jobs/{job_id}/model")["x"], OFFERED)
        self.start_trainer(coordinator, "b", 1)
        client.wait_status(job_id, "completed")

    def test_what_is_wrong_with_an_offer_is_named(self):
        coordinator = self.start_coordinator()
        for mood, said in (("infinite_start", "weight 1 is infinite"), ("short_start", "weight 4 is NaN"),
                           ("no_start", "there is nowhere to start"), ("crash_at_start", "killed by signal 6")):
            with self.subTest(mood):
                options = ("--plugin-isolated",) if mood == "crash_at_start" else ()
                worker = self.start_trainer(coordinator, mood.replace("_", "-"), 3, *options)
                job_id = coordinator.client.submit(
                    first_job(objective={"type": "training", "name": "trainer", "dim": 5, "options": mood}))
                detail = coordinator.client.wait_status(job_id, "failed", "completed")
                self.assertEqual(detail["reason_code"], "no_worker_can_serve")
                self.assertIn("plug-in trainer: initial point: " + said, detail["reason"])
                worker.terminate()

    def test_the_next_worker_is_asked(self):
        """Whoever is asked first leaves, or sends what is no point; the second offer counts."""
        coordinator = self.start_coordinator()
        client = coordinator.client
        leaves, errs = (Offerer(client, name, slots=1) for name in ("leaves", "errs"))
        job_id = client.submit(first_job(clients=1))
        self.assertTrue(leaves.poll_task().wants_start)
        for _ in range(2):  # the response may have been lost
            task = leaves.poll_task()
            self.assertTrue(task.wants_start)
            self.assertEqual((task.job_id, task.round, list(task.clients)), (job_id, 0, []))
            self.assertEqual(json.loads(task.job_document)["initial_point"], {"type": "first"})
        self.assert_connect_error("permission_denied", errs.offer, job_id, OFFERED)
        leaves.leave()
        errs.poll_task()
        bad = OFFERED.copy()
        bad[3] = np.nan
        error = self.assert_connect_error("invalid_argument", errs.offer, job_id, bad)
        self.assertIn("coordinate 3 of the initial point is NaN", str(error))
        detail = client.wait_status(job_id, "failed")  # there is no other worker
        self.assertIn("coordinate 3 of the initial point is NaN", detail["reason"])
        job_id = client.submit(first_job(clients=1))
        errs.poll_task()
        self.assert_connect_error("invalid_argument", errs.offer, job_id, OFFERED[1:])
        client.wait_status(job_id, "failed")
        job_id = client.submit(first_job(clients=1))
        errs.poll_task()
        errs.offer(job_id, OFFERED)
        errs.offer(job_id, OFFERED)  # the response may have been lost
        client.wait_status(job_id, "running")
        errs.offer(job_id, 2 * OFFERED)
        np.testing.assert_array_equal(client.get_json(f"/v1/jobs/{job_id}/model")["x"], OFFERED)
        wait_until(lambda: client.job(job_id)["bits"]["recovery"] == 32 * 5, "the bits of the offer, once")

    def test_it_is_durable_from_the_start(self):
        coordinator = self.start_coordinator()
        worker = Offerer(coordinator.client, "a", slots=3)
        job_id = coordinator.client.submit(first_job())
        worker.poll_task()
        worker.offer(job_id, OFFERED)
        coordinator.client.wait_status(job_id, "running")
        coordinator.kill()
        coordinator = self.start_coordinator(port=coordinator.port, store=coordinator.store)
        np.testing.assert_array_equal(coordinator.client.get_json(f"/v1/jobs/{job_id}/model")["x"], OFFERED)
        self.start_trainer(coordinator, "b", 3)
        self.assertEqual(essence(coordinator.client.wait_status(job_id, "completed")),
                         essence(simulate(first_job(), ("--plugin", TRAINER))))

    def test_a_worker_that_is_killed_when_it_is_asked(self):
        coordinator = self.start_coordinator(options=("--session-timeout-ms", "500"))
        silent = Offerer(coordinator.client, "silent", slots=3)
        job_id = coordinator.client.submit(first_job())
        silent.poll_task()
        self.start_trainer(coordinator, "b", 3)
        self.assertEqual(essence(coordinator.client.wait_status(job_id, "completed")),
                         essence(simulate(first_job(), ("--plugin", TRAINER))))


class Offerer(ForeignWorker):
    """A worker that offers a start for the plug-in `trainer`."""

    def __init__(self, client, name, slots):
        super().__init__(client, name, slots)
        request = messages.JoinRequest(name=name, slots=slots, format=FORMAT, starts="other-trainer trainer")
        self.session = client.call("Join", request, messages.JoinResponse).session

    def offer(self, job_id, weights):
        payload = np.asarray(weights, "<f4").tobytes()
        update = messages.ClientUpdate(payload=payload, payload_bits=8 * len(payload))
        return self.post(messages.PostUpdateRequest(session=self.session, job_id=job_id, updates=[update]))


class Jobs(Case):
    def earlier(self, coordinator, **changes):
        document = job_document("synthetic-fedavg", horizon=400, **changes)
        return coordinator.client.wait_status(coordinator.client.submit(document), "completed")

    def test_a_job_continues_from_the_model_of_an_earlier_one(self):
        coordinator = self.start()
        earlier = self.earlier(coordinator)
        np.save(self.data / "model.npy", self.model(coordinator, earlier["id"]))
        document = job_document("synthetic-ceal", initial_point={"type": "job", "job": earlier["id"]})
        detail = coordinator.client.wait_status(coordinator.client.submit(document), "completed")
        self.assertEqual(essence(detail), essence(self.simulate(self.document("synthetic-ceal", "model.npy",
                                                                              horizon=document["horizon"]))))
        self.assertEqual(detail["initial_point"], {"type": "job", "job": earlier["id"], "which": "last",
                                                   "checksum": earlier["x_checksum"]})
        coordinator.client.request("DELETE", f"/v1/jobs/{earlier['id']}")  # it is no longer needed
        coordinator.kill()
        coordinator = self.start_coordinator(port=coordinator.port, store=coordinator.store)
        self.assertEqual(coordinator.client.job(detail["id"])["x_checksum"], detail["x_checksum"])

    def test_what_is_wrong_with_the_earlier_job_is_named(self):
        coordinator = self.start()
        client = coordinator.client
        earlier = self.earlier(coordinator)["id"]
        small = self.earlier(coordinator, objective__data__dim=29)["id"]
        running = client.submit(job_document("synthetic-fedavg", horizon=10**9))
        client.wait_status(running, "running")
        queued = client.submit(job_document("synthetic-fedavg"))
        cancelled = client.submit(job_document("synthetic-fedavg"))
        client.post(f"/v1/jobs/{cancelled}/cancel")
        for job, field, said in (("0123456789ab", "job", "there is no job 0123456789ab"),
                                 ("../../etc", "job", "there is no job ../../etc"),
                                 (running, "job", f"job {running} is running; it has not ended"),
                                 (queued, "job", f"job {queued} is queued; it has not ended"),
                                 (cancelled, "job", "has ended before it started and has no model"),
                                 (small, "job", f"job {small} has dim 29, this one 30")):
            with self.subTest(job):
                answer = client.post_job(job_document("synthetic-fedavg", initial_point={"type": "job", "job": job}))
                self.assertEqual(answer.status, 400)
                self.assertEqual(answer.json()["errors"][0]["field"], "initial_point." + field)
                self.assertIn(said, answer.json()["errors"][0]["detail"])
        late = client.submit(job_document("synthetic-fedavg", initial_point={"type": "job", "job": earlier}))
        client.request("DELETE", f"/v1/jobs/{earlier}")
        client.post(f"/v1/jobs/{running}/cancel")
        self.assertRegex(client.wait_status(late, "failed")["reason"],
                         f"initial_point.job: there is no job {earlier}")
        client.wait_status(queued, "completed")

    def test_the_simulation_has_no_earlier_jobs(self):
        path = Path(self.folder, "job.json")
        path.write_text(json.dumps(job_document("synthetic-fedavg", initial_point={"type": "job", "job": "x"})))
        done = subprocess.run([BIN / "tally", "simulate", path], capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("only a coordinator has earlier jobs", done.stderr)


if __name__ == "__main__":
    unittest.main()
