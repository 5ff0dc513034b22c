"""Jobs from Python: lists, changes, rounds as arrays, and whole jobs in a single call."""

import importlib.util
import os
import random
import subprocess
import sys
import unittest
from pathlib import Path
from unittest import mock

import numpy as np

from common import BIN, HANG_S, IS_SANITIZED, ForeignWorker, TallyTestCase, essence, job_document, simulate, wait_until
from test_python import PACKAGE, PythonCase, plugin_job, pull, squares

if not IS_SANITIZED:
    import tally

os.environ.setdefault("TALLY_BIN", str(BIN))


def setUpModule():
    if IS_SANITIZED:
        raise unittest.SkipTest("an interpreter cannot load a library with a sanitizer")


class Lists(PythonCase):
    def test_jobs_are_listed_page_by_page_and_by_status(self):
        coordinator = self.start_coordinator()
        client = tally.Client(coordinator.url)
        self.assertEqual(client.jobs(), [])
        ids = [client.submit(job_document(name=f"job {n}")) for n in range(5)]
        self.assertEqual([job["id"] for job in client.jobs()], ids[::-1])
        with mock.patch("tally._client._PAGE", 2):
            self.assertEqual([job["id"] for job in client.jobs()], ids[::-1])
            self.assertEqual([job["id"] for job in client.jobs(limit=3)], ids[:1:-1])
        self.assertEqual(client.jobs(limit=0), [])
        self.assertEqual(client.cancel(ids[1])["status"], "cancelled")
        self.assertEqual([job["id"] for job in tally.jobs(status="cancelled", url=coordinator.url)], [ids[1]])
        self.assertEqual(len(client.jobs(status="queued")), 4)
        with self.assertRaises(tally.Error) as caught:
            client.jobs(status="asleep")
        self.assertEqual((caught.exception.field, caught.exception.status), ("status", 400))
        with self.assertRaises(ValueError):
            client.jobs(limit=-1)

    def test_jobs_are_listed_by_name_and_label(self):
        client = tally.Client(self.start_coordinator().url)
        ids = [client.submit(job_document(name=f"job {n % 2}", labels={"run": str(n), "team": "a"})) for n in range(3)]
        for label, expected in [("run=1", [1]), ("team", [2, 1, 0]), (["team=a", "run=2"], [2]), ({"run": None, "team": "a"}, [2, 1, 0]),
                                ({"run": "0"}, [0]), ({"run": "0", "team": "b"}, []), ((), [2, 1, 0]), ({}, [2, 1, 0])]:
            with mock.patch("tally._client._PAGE", 2):
                self.assertEqual([job["id"] for job in client.jobs(label=label)], [ids[n] for n in expected], label)
        self.assertEqual([job["id"] for job in tally.jobs(name="job 0", label="run", url=client.url)], [ids[2], ids[0]])
        for sort, expected in [("created", [0, 1, 2]), ("-name", [1, 2, 0])]:
            self.assertEqual([job["id"] for job in tally.jobs(sort=sort, label="run", url=client.url)], [ids[n] for n in expected])
        self.assertEqual(client.show(ids[0])["labels"], {"run": "0", "team": "a"})
        with self.assertRaises(tally.Error) as caught:
            client.jobs(label="a b")
        self.assertEqual(caught.exception.field, "label")

    def test_workers_are_listed(self):
        coordinator = self.start_coordinator()
        self.assertEqual(tally.workers(url=coordinator.url), [])
        self.play_in_c(coordinator.url, "a", 3)
        self.wait_for_workers(coordinator, 1)
        worker, = tally.workers(url=coordinator.url)
        self.assertEqual((worker["name"], worker["slots"]), ("a", 3))

    def wait_for_workers(self, coordinator, n):
        from common import wait_until

        wait_until(lambda: len(tally.workers(url=coordinator.url)) == n, f"{n} workers")


class Changes(PythonCase):
    def test_pause_resume_wait_and_cancel(self):
        coordinator = self.start_coordinator()
        client = tally.Client(coordinator.url)
        self.play_in_c(coordinator.url, "a", 10)
        endless = client.submit(job_document(
            algorithm={"type": "minibatch_sgd", "step_size": 0.01, "local_steps": 1}, horizon=50_000_000))
        coordinator.client.wait_status(endless, "running")
        self.assertEqual(client.pause(endless)["status"], "paused")
        with self.assertRaises(TimeoutError) as caught:
            client.wait(endless, wait_s=0)
        self.assertIn("paused", str(caught.exception))
        self.assertEqual(client.resume(endless)["status"], "running")
        self.assertEqual(client.cancel(endless)["status"], "cancelled")
        document = job_document(horizon=300)
        job = client.submit(document)
        detail = client.wait(job)
        self.assertEqual(essence(detail), essence(simulate(document)))
        self.assertEqual(tally.wait(job, url=coordinator.url), detail)
        with self.assertRaises(tally.Error) as caught:
            client.cancel(job)
        self.assertEqual(caught.exception.status, 409)
        for missing in (client.wait, client.cancel, client.rounds, client.delete):
            with self.assertRaises(ValueError):
                missing("")
            with self.assertRaises(tally.Error) as caught:
                missing("0123456789ab")
            self.assertEqual((caught.exception.code, caught.exception.status), ("not_found", 404))

    def test_import(self):
        here, there = self.start_coordinator(), self.start_coordinator(name="there", store="memory:")
        job_id = tally.submit(job_document(), url=here.url)
        self.start_worker(here, "w", clients=10)
        tally.wait(job_id, url=here.url)
        bundle = Path(self.folder, "job.tar")
        subprocess.run([BIN / "tally", "export", job_id, "--bundle", bundle, "--coordinator", here.url], check=True,
                       capture_output=True, timeout=HANG_S)
        client = tally.Client(there.url)
        for _ in range(2):
            self.assertEqual(client.import_job(bundle), job_id)
        self.assertEqual(tally.import_job(str(bundle), url=there.url), job_id)
        self.assertEqual([each["id"] for each in client.jobs()], [job_id])
        self.assertEqual(client.rounds(job_id).tolist(), tally.rounds(job_id, url=here.url).tolist())
        self.assertEqual(client.model(job_id).tolist(), tally.model(job_id, url=here.url).tolist())
        self.assertEqual(client.client_traffic(job_id), tally.client_traffic(job_id, url=here.url))
        self.assertEqual(client.show(job_id)["imported"]["before"], None)
        bundle.write_bytes(bundle.read_bytes()[:-1])
        with self.assertRaises(tally.Error) as caught:
            client.import_job(bundle)
        self.assertEqual((caught.exception.status, caught.exception.field), (400, "bundle"))

    def test_delete(self):
        coordinator = self.start_coordinator()
        client = tally.Client(coordinator.url)
        ended, queued, kept = (client.submit(job_document(seed=seed)) for seed in range(3))
        client.cancel(ended)
        self.assertIsNone(client.delete(ended))
        with self.assertRaises(tally.Error) as caught:
            client.delete(queued)
        self.assertEqual((caught.exception.code, caught.exception.status), ("failed_precondition", 409))
        tally.delete(queued, force=True, url=coordinator.url)
        self.assertEqual([job["id"] for job in client.jobs()], [kept])
        with self.assertRaises(tally.Error) as caught:
            client.delete(ended)
        self.assertEqual(caught.exception.status, 404)

    def test_waiting_survives_a_restart(self):
        coordinator = self.start_coordinator()
        job = tally.submit(job_document(horizon=300), url=coordinator.url)
        coordinator.kill()
        with self.assertRaises(TimeoutError) as caught:
            tally.wait(job, wait_s=0, url=coordinator.url)
        self.assertIn("out of reach", str(caught.exception))
        coordinator = self.start_coordinator(port=coordinator.port, name="second")
        self.play_in_c(coordinator.url, "a", 10)
        self.assertEqual(tally.wait(job, url=coordinator.url)["status"], "completed")

    def test_calm_is_killed_in_the_opening_round(self):
        """The report of one client is there, the other's is not; then as in one process, bit for bit."""
        document = plugin_job(dim=4, horizon=400, algorithm={"type": "calm"}, encoding="dithered", round_deadline_ms=0)
        expected = tally.simulate(document, pull, loss=squares)
        coordinator = self.start_coordinator()
        self.play(coordinator.url, pull, 4, loss=squares)
        silent = ForeignWorker(coordinator.client, "silent")
        job = coordinator.client.submit(document)
        silent.poll_task()
        wait_until(lambda: (coordinator.client.job(job)["waiting"] or {"workers": []})["workers"] == ["silent"],
                   "the report of the other worker")
        coordinator.kill()
        coordinator = self.start_coordinator(port=coordinator.port, store=coordinator.store)
        self.assertIsNone(coordinator.client.job(job)["estimates"])
        self.play(coordinator.url, pull, 4, loss=squares)
        detail = coordinator.client.wait_status(job, "completed")
        self.assertEqual(essence(detail), essence(expected))
        self.assertEqual(coordinator.client.rounds(job)[0]["samples"], 10)  # 6, one that repeats its draws, and 3 near it


class Rounds(PythonCase):
    def test_the_array_has_what_rest_has(self):
        coordinator = self.start_coordinator()
        client = tally.Client(coordinator.url)
        job = client.submit(job_document(horizon=300))
        self.assertEqual(len(client.rounds(job)), 0)
        self.assertIn("regret", client.rounds(job).dtype.names)
        self.play_in_c(coordinator.url, "a", 10)
        client.wait(job)
        rounds = tally.rounds(job, url=coordinator.url)
        records = coordinator.client.rounds(job)
        for name in ("round", "t", "samples", "norm", "passed", "cut", "loss", "regret", "closed_ms"):
            self.assertEqual(rounds[name].tolist(), [record[name] for record in records], name)
        self.assertEqual([str(rounds.dtype[name]) for name in ("t", "passed", "regret", "uplink_payload_bits", "closed_ms")],
                         ["int64", "bool", "float64", "int64", "int64"])
        self.assertEqual(rounds["uplink_payload_bits"].sum(), client.show(job)["bits"]["uplink"]["payload"])

    def test_what_is_unknown_is_nan(self):
        coordinator = self.start_coordinator()
        job = tally.submit(job_document(horizon=100, reference={"type": "none"}), url=coordinator.url)
        self.play_in_c(coordinator.url, "a", 10)
        tally.wait(job, url=coordinator.url)
        rounds = tally.rounds(job, url=coordinator.url)
        self.assertTrue(np.isnan(rounds["regret"]).all())
        self.assertFalse(np.isnan(rounds["loss"]).any())

    @unittest.skipUnless(importlib.util.find_spec("pandas"), "pandas is not installed")
    def test_a_data_frame(self):
        coordinator = self.start_coordinator()
        job = tally.submit(job_document(horizon=100), url=coordinator.url)
        self.play_in_c(coordinator.url, "a", 10)
        tally.wait(job, url=coordinator.url)
        rounds = tally.rounds(job, url=coordinator.url)
        frame = tally.to_pandas(rounds)
        self.assertEqual(frame["regret"].tolist(), rounds["regret"].tolist())
        self.assertEqual(frame.index.name, "round")


class Simulations(TallyTestCase):
    def test_a_built_in_objective(self):
        document = job_document(horizon=200)
        self.assertEqual(essence(tally.simulate(document)), essence(simulate(document)))
        with self.assertRaises(tally.Error) as caught:
            tally.simulate(job_document(horizon=0))
        self.assertIn("horizon", str(caught.exception))

    def test_a_gradient_in_python_gives_the_same_bits_twice(self):
        first, second = (tally.simulate(plugin_job(horizon=200), pull, loss=squares) for _ in range(2))
        self.assertEqual(first["status"], "completed", first["reason"])
        self.assertEqual(essence(first), essence(second))

    def test_calm_with_nothing_to_set(self):
        document = plugin_job(dim=4, horizon=400, algorithm={"type": "calm"}, encoding="dithered")
        detail = tally.simulate(document, pull, loss=squares)
        self.assertEqual(detail["status"], "completed", detail["reason"])
        self.assertAlmostEqual(detail["estimates"]["step_size"] * 2, 1, delta=0.05)
        draws = random.Random(1)
        detail = tally.simulate(document, lambda x, query: 2 * (x - 1) + draws.random(), loss=squares)
        self.assertEqual(detail["status"], "failed")
        self.assertRegex(detail["reason"], "gradient of client . does not repeat its draws: .* or state step_size")
        detail = tally.simulate({**document, "algorithm": {"type": "calm", "step_size": 0.5}},
                                lambda x, query: 2 * (x - 1) + draws.random(), loss=squares)
        self.assertEqual(detail["status"], "completed", detail["reason"])

    def test_metrics_are_reported(self):
        detail = tally.simulate(plugin_job(horizon=200), pull, loss=squares, metrics=lambda x, client: {"client": client})
        self.assertEqual(detail["metrics"]["client"]["min"], 0)
        self.assertGreater(detail["metrics"]["client"]["max"], 0)
        with self.assertRaises(ValueError):
            tally.simulate(job_document(horizon=200), metrics=lambda x, client: {})

    def test_an_exception_of_a_function_comes_back(self):
        def broken(*arguments):
            raise RuntimeError("no such sensor")

        for functions in ({"gradient": broken, "loss": squares}, {"gradient": pull, "loss": broken}):
            with self.assertRaisesRegex(RuntimeError, "no such sensor"):
                tally.simulate(plugin_job(horizon=200), **functions)
        diverging = plugin_job(horizon=200, algorithm={"type": "fedavg", "step_size": 1e6, "local_steps": 20})
        detail = tally.simulate(diverging, pull, loss=squares)
        self.assertEqual(detail["status"], "failed")
        self.assertRegex(detail["reason"], "gradient of client . in round 1: .* beyond what float can hold")
        with self.assertRaises(tally.Error) as caught:
            tally.simulate(plugin_job(clients=0), pull)
        self.assertEqual((caught.exception.field, caught.exception.code), ("clients", "out_of_range"))

    def test_a_missing_program_is_named(self):
        with mock.patch.dict(os.environ, {"TALLY_BIN": str(self.folder)}), self.assertRaises(FileNotFoundError) as caught:
            tally.simulate(job_document())
        self.assertIn("TALLY_BIN", str(caught.exception))

    def test_the_first_look_runs(self):
        done = subprocess.run([sys.executable, PACKAGE / "examples/first_look.py"], capture_output=True, text=True, timeout=HANG_S,
                              env={**os.environ, "PYTHONPATH": str(PACKAGE)}, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"^completed: regret [\d.]+, 19\d\d bits up per client\n$")
