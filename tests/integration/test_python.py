"""The package of api/python: the same codec, workers with gradients in Python next to C workers, and jobs over REST.

The tests load the libtally of the build under test. test_library.py covers the wheel and its installation.
"""

import collections
import contextlib
import functools
import hashlib
import json
import logging
import os
import pydoc
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

import numpy as np

from common import (
    BIN, HANG_S, IS_SANITIZED, REPO, Coordinator, TallyTestCase, Worker, essence, free_port, job_document,
    simulate, updates_of, wait_until,
)
from recording_proxy import RecordingProxy
from test_tls import Authority, TlsCoordinator
from test_undeliverable import POST, RefusingProxy, answer

PACKAGE = REPO / "api/python"
LIBRARY = BIN.parent / "lib/libtally.so.1"
os.environ["TALLY_LIBRARY"] = str(LIBRARY)
sys.path.insert(0, str(PACKAGE))

if not IS_SANITIZED:
    import tally
    from tally import _library

logging.getLogger("tally").addHandler(logging.NullHandler())
logging.getLogger("tally").propagate = False


def setUpModule():
    if IS_SANITIZED:
        raise unittest.SkipTest("an interpreter cannot load a library with a sanitizer")


def plugin_job(dim=4, name="python", **changes):
    return job_document(**{
        "objective": {"type": "plugin", "name": name, "dim": dim}, "clients": 2, "quorum": 2, "horizon": 600,
        "reference": {"type": "value", "value": 0.0}, **changes})


def pull(x, query):
    """Returns the gradient of |x - 1|^2 plus noise from the job's random numbers."""
    return 2 * (x - 1) + 0.01 * (query.below(201) - 100)


def squares(x, client):
    return float(((x - 1) ** 2).sum())


class WorkerThread:
    """Runs tally.Worker.run() in a thread; join() returns what run() returned, or raises what it raised."""

    def __init__(self, *arguments, **options):
        self.worker = tally.Worker(*arguments, **options)
        self._result = self._error = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        try:
            self._result = self.worker.run()
        except Exception as error:
            self._error = error

    def join(self):
        self._thread.join(HANG_S)
        if self._thread.is_alive():
            raise AssertionError("the worker does not end")
        if self._error is not None:
            raise self._error
        return self._result

    def stop(self):
        self.worker.stop()
        self._thread.join(HANG_S)


class PythonCase(TallyTestCase):
    def play(self, *arguments, **options):
        worker = WorkerThread(*arguments, **options)
        self.addCleanup(worker.stop)
        return worker

    def play_in_c(self, url, name, clients):
        self.processes.append(Worker(self.folder, url, name, clients=clients))


class Codec(unittest.TestCase):
    """The codec of the package equals `tally encode` bit for bit."""

    def of_program(self, array, *options):
        """Returns the payload and the facts that the program reports for a .npy file."""
        with tempfile.TemporaryDirectory() as folder:
            np.save(f"{folder}/in.npy", array)
            done = subprocess.run([BIN / "tally", "encode", f"{folder}/in.npy", "--out", f"{folder}/out",
                                   *map(str, options)],
                                  capture_output=True, text=True, timeout=HANG_S, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            return Path(folder, "out").read_bytes(), json.loads(done.stdout)

    def expect_same(self, message, array, *options):
        data, facts = self.of_program(array, *options)
        self.assertEqual(message.data, data)
        for name in ("encoding", "dim", "intervals", "step", "payload_bits", "formula_bits", "nonzeros", "clipped"):
            self.assertEqual(getattr(message, name), facts[name], name)

    def test_levels_are_encoded_as_the_program_encodes_them(self):
        levels = np.random.default_rng(1).integers(-40, 41, 1000)
        self.assertIn("entropy", tally.ENCODINGS)
        for encoding in tally.ENCODINGS:
            for kind in (np.int8, np.int32):
                array = levels.astype(kind)
                message = tally.encode(array, encoding=encoding, intervals=80, step=0.25)
                self.expect_same(message, array, "--encoding", encoding, "--intervals", 80, "--step", 0.25)
            np.testing.assert_array_equal(tally.decode(message), levels)
            np.testing.assert_array_equal(tally.decode(message, values=True), levels * 0.25)

    def test_vectors_are_rounded_by_the_same_random_numbers(self):
        values = np.random.default_rng(2).normal(size=777)
        for encoding in tally.ENCODINGS:
            for kind in (np.float32, np.float64):
                array = values.astype(kind)
                message = tally.encode(array, encoding=encoding, intervals=20, step=0.1, seed=7)
                self.assertGreater(message.clipped, 0)
                self.expect_same(message, array, "--encoding", encoding, "--intervals", 20, "--step", 0.1, "--seed", 7)
        streams = [tally.encode(values, intervals=2000, step=0.01, **where).data
                   for where in ({}, {"seed": 2}, {"run": 1}, {"client": 1}, {"round": 1})]
        self.assertEqual(len(set(streams)), 5)

    def test_float32_and_qsgd(self):
        values = np.random.default_rng(3).normal(size=100)
        plain = tally.encode(values, encoding="float32")
        self.assertEqual((plain.payload_bits, plain.data), (3200, values.astype("<f4").tobytes()))
        np.testing.assert_array_equal(tally.decode(plain), values.astype(np.float32))
        coarse = tally.encode(values, encoding="qsgd", intervals=7)
        self.assertEqual(coarse.payload_bits, 32 + 100 * (1 + 3))
        norm = np.linalg.norm(values)
        back = tally.decode(coarse, values=True)
        self.assertLessEqual(np.abs(back - values).max(), norm / 7 * 1.0001)
        self.assertTrue(np.any(back != 0))

    def test_what_is_wrong_is_named(self):
        ok = tally.encode([1, -2, 3], intervals=8)
        for code, action in (
                ("out_of_range", lambda: tally.encode([1, -2, 3], intervals=4)),
                ("out_of_range", lambda: tally.encode([1, -2, 3], intervals=7)),
                ("out_of_range", lambda: tally.encode([], intervals=8)),
                ("not_finite", lambda: tally.encode([1.0, np.nan], intervals=8)),
                ("not_finite", lambda: tally.encode([1e300], encoding="float32")),
                ("out_of_range", lambda: tally.encode([1.0], encoding="qsgd", intervals=32768)),
                ("invalid_argument", lambda: tally.encode([1], encoding="morse", intervals=8)),
                ("malformed", lambda: tally.decode(tally.Message(ok.data, ok.payload_bits, 4, "entropy", 8))),
                ("malformed", lambda: tally.decode(tally.Message(b"", ok.payload_bits, 3, "entropy", 8)))):
            with self.assertRaises(tally.Error) as caught:
                action()
            self.assertEqual(caught.exception.code, code, caught.exception)
        for error, action in ((ValueError, lambda: tally.encode([[1]], intervals=8)),
                              (TypeError, lambda: tally.encode(["1"], intervals=8)),
                              (ValueError, lambda: tally.encode([1], intervals=2**32 + 8)),
                              (ValueError, lambda: tally.encode([1.0], intervals=8, seed=-1)),
                              (OverflowError, lambda: tally.encode([2**32], intervals=8))):
            with self.assertRaises(error):
                action()

    def test_grid(self):
        intervals, step = tally.grid(2.0, 0.5, 30)
        self.assertEqual((intervals, step), (44, 4.0 / 44))


class BesideC(PythonCase):
    """A least_squares job with C workers and a Python worker gives the same arithmetic as with C workers alone."""

    def setUp(self):
        super().setUp()
        self.document = job_document(horizon=1500)
        self.shards = {}
        data = tally.JobData(self.document)
        for client in range(data.clients):
            X, y = data.shard(client)
            self.shards[client] = (X.tolist(), y.tolist())
        self.n_queries = 0

    def gradient(self, x, query):
        """The gradient of services/objectives in Python floats: the same operations in the same order."""
        rows, labels = self.shards[query.client]
        self.n_queries += 1
        x = x.tolist()
        total = [0.0] * len(x)
        for _ in range(query.samples):
            point = query.below(len(rows))
            row = rows[point]
            z = 0.0
            for a, b in zip(row, x):
                z += a * b
            factor = 2 * (z - labels[point])
            for j, a in enumerate(row):
                total[j] += factor * a
        return [g / query.samples for g in total]

    def payloads(self, proxy):
        """Returns the payloads of all accepted updates with a message, by round and client."""
        return {(request.round, update.client): (update.payload, update.payload_bits, update.loss)
                for exchange in list(proxy.exchanges) for request, update, result in updates_of(exchange)
                if result.code == "" and update.payload}

    def run_job(self, *starters):
        """Runs the job; returns the detail, and the payload of every client in every round."""
        coordinator = self.start_coordinator()
        proxy = RecordingProxy(coordinator.port)
        self.addCleanup(proxy.close)
        job = coordinator.client.submit(self.document)
        for start in starters:
            start(proxy.url)
        detail = coordinator.client.wait_status(job, "completed")
        # The job may be complete before the proxy has seen the answers to the last round.
        n_messages = detail["bits"]["uplink"]["messages"]
        wait_until(lambda: len(self.payloads(proxy)) == n_messages, f"{n_messages} updates at the proxy")
        coordinator.terminate()
        payloads = self.payloads(proxy)
        return detail, payloads

    def c_worker(self, name, clients):
        return lambda url: self.play_in_c(url, name, clients)

    def python_worker(self, clients, **options):
        return lambda url: self.play(url, self.gradient, 30, override=True, clients=clients,
                                             name="python", **options)

    def test_the_job_is_bit_identical(self):
        all_c, payloads_c = self.run_job(self.c_worker("a", 6), self.c_worker("b", 4))
        self.assertEqual(self.n_queries, 0)
        mixed, payloads_mixed = self.run_job(self.c_worker("a", 3), self.python_worker(4), self.c_worker("b", 3))
        self.assertGreater(self.n_queries, 4 * 3)
        self.assertEqual(essence(mixed), essence(simulate(self.document)))
        self.assertEqual(essence(mixed), essence(all_c))
        self.assertEqual(payloads_mixed, payloads_c)
        self.assertGreater(len(payloads_c), 50)

    def test_the_points_are_the_job_s(self):
        data = tally.JobData(self.document)
        self.assertEqual(data.clients, 10)
        X, y = data.shard(3)
        self.assertEqual((X.shape, y.shape), ((200, 30), (200,)))
        whole = np.concatenate([data.shard(m)[0] for m in range(10)])
        self.assertAlmostEqual(np.linalg.norm(whole), 100, places=8)
        with self.assertRaises(IndexError):
            data.shard(10)
        with self.assertRaises(tally.Error) as caught:
            tally.JobData(plugin_job())
        self.assertEqual(caught.exception.code, "failed_precondition")
        with self.assertRaises(tally.Error) as caught:
            tally.JobData({**self.document, "clients": 0})
        self.assertEqual(caught.exception.field, "clients")


class Gradients(PythonCase):
    def test_two_workers_in_one_process(self):
        coordinator = self.coordinator
        job = coordinator.client.submit(plugin_job(clients=4, quorum=4))
        seen = set()

        def gradient(x, query):
            seen.add((query.client, query.problem.clients, query.problem.dim, query.problem.seed))
            self.assertEqual(x.dtype, np.float64)
            self.assertEqual(len(query.draws(10)), query.samples)
            answer = pull(x, query)
            x[:] = np.nan  # the gradient may overwrite its x
            return answer

        workers = [self.play(coordinator.url, gradient, 4, loss=squares, clients=2, exit_when_idle=True)
                   for _ in range(2)]
        detail = coordinator.client.wait_status(job, "completed")
        totals = [worker.join() for worker in workers]
        self.assertEqual(seen, {(client, 4, 4, detail["seed"]) for client in range(4)})
        self.assertEqual(detail["bits"]["recovery"], 0)
        uplink = detail["bits"]["uplink"]
        self.assertEqual(sum(one.messages for one in totals), uplink["messages"])
        self.assertEqual(sum(one.payload_bits for one in totals), uplink["payload"])
        self.assertEqual(sum(one.formula_bits for one in totals), uplink["formula"])
        for one in totals:
            self.assertGreater(one.rounds, 0)

    def setUp(self):
        super().setUp()
        self.coordinator = self.start_coordinator()

    def fails_with(self, gradient, loss=squares):
        client = self.coordinator.client
        job = client.submit(plugin_job())
        worker = self.play(self.coordinator.url, gradient, 4, loss=loss, clients=2)
        reason = client.wait_status(job, "failed")["reason"]
        worker.stop()
        return reason

    def test_an_exception_is_the_reason(self):
        def gradient(x, query):
            raise LookupError("the colour of a point\nis äöü")

        reason = self.fails_with(gradient)
        self.assertIn("LookupError: the colour of a point is äöü (test_python.py:", reason)

    def test_numpy_scalars_are_numbers(self):
        document = plugin_job()
        document = {**document, "horizon": np.float64(document["horizon"]), "seed": np.int64(document["seed"]),
                    "clients": np.uint8(document["clients"]), "name": np.str_("numpy"),
                    "algorithm": {**document["algorithm"], "step_size": np.float32(0.25)}}
        coordinator = self.coordinator
        job = tally.submit(document, url=coordinator.url)
        detail = coordinator.client.job(job)
        self.assertEqual((detail["name"], detail["algorithm"]["step_size"]), ("numpy", 0.25))
        self.assertIsInstance(detail["horizon"], int)

        def gradient(x, query):
            self.assertLess(query.below(np.int64(5)), 5)
            tally.report("seen", np.float32(0.5))
            return pull(x, query)

        self.play(coordinator.url, gradient, np.int64(4), loss=lambda x, client: np.float32(squares(x, client)),
                  clients=np.int64(2), metrics=lambda x, client: {"half": np.float16(0.5)})
        self.assertEqual(coordinator.client.wait_status(job, "completed")["metrics"]["half"]["mean"], 0.5)
        made = tally.encode([0.5, -2.0], intervals=np.int32(8), step=np.float32(0.5), seed=np.int64(3))
        self.assertEqual(made, tally.encode([0.5, -2.0], intervals=8, step=0.5, seed=3))
        self.assertEqual(tally.grid(np.float32(1), np.float32(0.5), np.int64(4)), tally.grid(1, 0.5, 4))
        with self.assertRaises(TypeError):
            tally.submit({**document, "labels": {"a": np.zeros(2)}}, url=coordinator.url)

    def test_metrics_know_the_job_and_the_round(self):
        job = self.coordinator.client.submit(plugin_job(objective={
            "type": "plugin", "name": "python", "dim": 4, "options": "7"}))
        self.play(self.coordinator.url, pull, 4, loss=squares, clients=2, metrics=lambda x, client: {
            "round": client.round, "seven": int(client.problem.options), "client": client, "m": client.problem.clients})
        self.coordinator.client.wait_status(job, "completed")
        for record in self.coordinator.client.rounds(job):
            if "metrics" in record:
                self.assertEqual({name: (each["min"], each["max"]) for name, each in record["metrics"].items()},
                                 {"round": (record["round"], record["round"]), "seven": (7, 7), "client": (0, 1), "m": (2, 2)})

    def test_provenance_names_the_function_and_its_file(self):
        digest = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
        alike = functools.partial(pull)
        made = {}
        exec("def unseen(x, query):\n    return 2 * (x - 1)", made)  # of no file
        expected = [("test_python.py:pull", digest), ("test_python.py:pull", digest), ("unseen", None)]
        for gradient, (name, sha256) in zip((pull, alike, made["unseen"]), expected):
            job = self.coordinator.client.submit(plugin_job())
            self.play(self.coordinator.url, gradient, 4, loss=squares, clients=2, job=job)
            origin, = self.coordinator.client.wait_status(job, "completed")["provenance"]["workers"]
            self.assertEqual(origin["code"], {"name": name, "sha256": sha256})

    def test_metrics_by_function_and_by_report(self):
        def gradient(x, query):
            tally.report("queries", 99)
            tally.report("queries", query.samples)
            return pull(x, query)

        coordinator = self.coordinator
        job = coordinator.client.submit(plugin_job())
        self.play(coordinator.url, gradient, 4, loss=squares, clients=2,
                  metrics=lambda x, client: {"client": client, "first": x[0]})
        detail = coordinator.client.wait_status(job, "completed")
        records = coordinator.client.rounds(job)
        moved = [record for record in records if not record["cut"]]
        self.assertGreater(len(moved), 2)
        for record in moved:
            self.assertEqual(set(record["metrics"]), {"client", "first", "queries"})
            self.assertEqual(record["metrics"]["client"], {"mean": 0.5, "min": 0.0, "max": 1.0})
            self.assertEqual(record["metrics"]["first"]["min"], record["metrics"]["first"]["max"])
            self.assertEqual(record["metrics"]["queries"]["min"], record["samples"])
        self.assertEqual(detail["metrics"], {name: each for record in records
                                             for name, each in record.get("metrics", {}).items()})
        of_client = tally.client_metrics(job, url=coordinator.url)
        self.assertEqual([metrics["client"] for metrics in of_client.values()], [0, 1])
        self.assertEqual(list(of_client), [0, 1])
        self.assertEqual(of_client[0]["first"], detail["metrics"]["first"]["max"])

    def test_clients_with_too_many_names_cannot_hold_up_a_job(self):
        """The coordinator refuses the 17th metric of a round, but the update itself must still count."""
        coordinator = self.coordinator
        job = coordinator.client.submit(plugin_job(clients=20, quorum=20))
        self.play(coordinator.url, pull, 4, loss=squares, clients=20,
                  metrics=lambda x, client: {f"of_client_{client}": 1})
        coordinator.client.wait_status(job, "completed")
        records = coordinator.client.rounds(job)
        self.assertEqual({record["received"] for record in records if not record["cut"]}, {20})
        self.assertEqual({len(record["metrics"]) for record in records if "metrics" in record}, {16})

    def test_metrics_that_are_wrong(self):
        for name, value, said in (("Loss", 1, "is not named"), ("a" * 33, 1, "is not named"),
                                  ("a", "b", "could not convert")):
            def gradient(x, query, name=name, value=value):
                tally.report(name, value)

            self.assertIn(said, self.fails_with(gradient))
        with self.assertRaises(RuntimeError):
            tally.report("a", 1)
        with self.assertRaises(ValueError):
            tally.Worker("http://127.0.0.1:1", metrics=lambda x, client: {})

    def test_metrics_that_are_not_finite_are_dropped_with_one_warning(self):
        def gradient(x, query):
            tally.report("good", 1)
            tally.report("was_good", 1)
            tally.report("was_good", float("inf"))
            tally.report("huge", 10**400)
            return pull(x, query)

        client = self.coordinator.client
        job = client.submit(plugin_job())
        with self.assertLogs("tally", "WARNING") as logs:
            self.play(self.coordinator.url, gradient, 4, loss=squares, clients=2,
                      metrics=lambda x, client: {"nan": float("nan"), "some": client if client else float("-inf")})
            client.wait_status(job, "completed")
        moved = [record for record in client.rounds(job) if not record["cut"]]
        self.assertGreater(len(moved), 2)
        for record in moved:
            self.assertEqual({name: each["mean"] for name, each in record["metrics"].items()}, {"good": 1, "some": 1})
        said = [line for line in logs.output if "metric dropped: it is not finite" in line]
        self.assertEqual(sorted(line.split("metric=")[1].split()[0] for line in said), ["huge", "nan", "some", "was_good"])

    def test_a_long_reason_is_cut(self):
        def gradient(x, query):
            raise RuntimeError("ä" * 1000)

        self.assertRegex(self.fails_with(gradient), "RuntimeError: ä{20,}")

    def test_a_loss_is_asked_for_once_for_each_client_and_point(self):
        """Every client walks from the point of the round, and f is the mean over all of them."""
        calls = collections.Counter()

        def loss(x, client):
            calls[client, x.tobytes()] += 1
            return squares(x, client)

        client = self.coordinator.client
        for name, local_steps in (("fedavg", 1), ("fedavg", 3), ("fedcom", 3), ("scaffold", 3), ("minibatch_sgd", 3)):
            algorithm = {"type": name, "step_size": 0.1, "local_steps": local_steps}
            algorithm |= {"levels": 3} if name == "fedcom" else {}
            job = client.submit(plugin_job(clients=4, quorum=4, algorithm=algorithm, horizon=15, evaluate_every=1))
            worker = self.play(self.coordinator.url, lambda x, query: x - query.client, 4, loss=loss, clients=4)
            client.wait_status(job, "completed")
            worker.stop()
            self.assertGreater(len(calls), 4)
            self.assertEqual({n for n in calls.values()}, {1}, algorithm)
            calls.clear()

    def test_an_exception_of_the_loss(self):
        def loss(x, client):
            return 1 / 0

        self.assertIn("ZeroDivisionError", self.fails_with(pull, loss))

    def test_a_gradient_of_another_shape(self):
        for answer in (np.zeros(3), np.zeros((4, 1)), 0.0):
            self.assertIn("shape", self.fails_with(lambda x, query, answer=answer: answer))

    def test_a_gradient_that_is_no_number(self):
        self.assertRegex(self.fails_with(lambda x, query: np.array([0, np.nan, 0, 0])), "coordinate 1 is NaN")
        self.assertIn("ValueError", self.fails_with(lambda x, query: ["a", "b", "c", "d"]))

    def test_a_query_that_is_over(self):
        kept = []

        def gradient(x, query):
            kept.append(query)
            if len(kept) > 1:
                kept[0].below(3)
            return x

        self.assertIn("RuntimeError: the query has been answered", self.fails_with(gradient))
        self.assertIn("outside [1,", self.fails_with(lambda x, query: x * query.below(0)))

    def test_another_dimension_and_another_name(self):
        coordinator = self.coordinator
        job = coordinator.client.submit(plugin_job(dim=5))
        worker = self.play(coordinator.url, pull, 4, loss=squares, clients=2)
        self.assertIn("dim", coordinator.client.wait_status(job, "failed")["reason"])
        worker.stop()
        job = coordinator.client.submit(plugin_job(name="mine"))
        self.play(coordinator.url, pull, 0, loss=squares, plugin="mine", clients=2)
        coordinator.client.wait_status(job, "completed")


class Workers(PythonCase):
    def test_what_is_wrong_is_said_at_once(self):
        url = "http://127.0.0.1:1"
        for field, action in (("coordinator", lambda: tally.Worker("ftp://x")),
                              ("clients", lambda: tally.Worker(url, clients=0)),
                              ("clients", lambda: tally.Worker(url, clients=8193)),
                              ("wait_ms", lambda: tally.Worker(url, wait_ms=30001)),
                              ("name", lambda: tally.Worker(url, name="x" * 65)),
                              ("job", lambda: tally.Worker(url, job="x" * 33)),
                              ("token_file", lambda: tally.Worker(url, token="x" * 20, token_file="y")),
                              ("tls-ca", lambda: tally.Worker(url, tls_ca="/nonexistent"))):
            with self.assertRaises(tally.Error) as caught:
                action()
            self.assertEqual(caught.exception.field, field, caught.exception)
        with self.assertRaises(tally.Error):
            tally.Worker(url, pull, 4, plugin="No Such Name")
        for action in (lambda: tally.Worker(url, loss=squares), lambda: tally.Worker(url, clients=-1),
                       lambda: tally.Worker(url, name="a\0b")):
            with self.assertRaises(ValueError):
                action()

    def test_a_stop_ends_it(self):
        worker = self.play(f"http://127.0.0.1:{free_port()}")  # nothing listens on this port
        worker.worker.stop()
        self.assertEqual(worker.join().rounds, 0)
        coordinator = self.start_coordinator()
        worker = self.play(coordinator.url, name="stopped")
        wait_until(lambda: self.names(coordinator) == ["stopped"], "the worker to join")
        worker.worker.stop()
        self.assertEqual(worker.join().messages, 0)
        self.assertEqual(self.names(coordinator), [])
        with self.assertRaises(RuntimeError):
            worker.worker.run()

    @staticmethod
    def names(coordinator):
        """Returns the names of the workers that wait for work. A stop in the middle of Join would leave a session
        behind."""
        return [worker["name"] for worker in coordinator.client.get_json("/v1/workers")["workers"]
                if worker["state"] == "waiting"]

    def interrupt(self, number, before=""):
        """Sends a signal to a program whose worker waits for work. Returns its status and what it writes, once the
        worker has left."""
        coordinator = self.start_coordinator()
        script = (f"import signal, sys; sys.path.insert(0, {str(PACKAGE)!r})\nimport tally\n{before}\n"
                  f"print(tally.run_worker({coordinator.url!r}, name='interrupted').messages, 'messages', flush=True)\n")
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as program:
            try:
                wait_until(lambda: self.names(coordinator) == ["interrupted"], "the worker to join")
                program.send_signal(number)
                out, err = program.communicate(timeout=HANG_S)
            finally:
                program.kill()
        self.assertEqual(coordinator.client.get_json("/v1/workers")["workers"], [])
        return program.returncode, out, err

    def test_ctrl_c_ends_it(self):
        self.assertEqual(self.interrupt(signal.SIGINT), (0, "0 messages\n", ""))

    def test_sigterm_lets_it_leave_and_ends_the_process(self):
        self.assertEqual(self.interrupt(signal.SIGTERM), (-signal.SIGTERM, "", ""))

    def test_a_program_s_own_handler_of_sigterm_is_left_alone(self):
        own = "def leave(*_):\n    print('own', flush=True)\n    raise SystemExit(7)\nsignal.signal(signal.SIGTERM, leave)"
        self.assertEqual(self.interrupt(signal.SIGTERM, own), (7, "own\n", ""))

    def test_a_worker_of_one_job_returns_when_the_job_has_ended(self):
        coordinator = self.start_coordinator()
        job_id = coordinator.client.submit(plugin_job(clients=1, quorum=1, horizon=200))
        worker = self.play(coordinator.url, pull, 4, loss=squares, job=job_id)
        self.assertGreater(worker.join().messages, 0)
        self.assertEqual(coordinator.client.job(job_id)["status"], "completed")
        self.assertEqual(tally.run_worker(coordinator.url, pull, 4, loss=squares, job=job_id).messages, 0)
        with self.assertRaisesRegex(tally.Error, "there is no live job 000000000000"):
            tally.run_worker(coordinator.url, pull, 4, loss=squares, job="0" * 12)

    def test_a_worker_tells_what_it_cannot_post(self):
        coordinator = self.start_coordinator()
        proxy = RefusingProxy(coordinator.port, lambda method, request: answer(413) if method == POST else None)
        self.addCleanup(proxy.close)
        job_id = coordinator.client.submit(plugin_job(clients=1, quorum=1))
        worker = self.play(proxy.url, pull, 4, loss=squares)
        wait_until(lambda: "cannot post its update: HTTP 413" in
                   (coordinator.client.job(job_id)["waiting"] or {"text": ""})["text"], "the job to say why it waits")
        worker.worker.stop()
        worker.join()

    def test_it_says_what_it_does(self):
        coordinator = self.start_coordinator()
        with self.assertLogs("tally", "INFO") as logs:
            worker = self.play(coordinator.url, name="loud", exit_when_idle=True)
            worker.join()
        self.assertEqual(logs.output, ["INFO:tally:event=joined worker=loud slots=1"])

    def test_the_programs_signals_are_left_alone(self):
        before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)]
        status = Path("/proc/self/status")

        def masks():
            return [line for line in status.read_text().splitlines() if line.startswith(("SigIgn", "SigCgt"))]

        masks_before = masks()
        coordinator = self.start_coordinator()
        self.play(coordinator.url, exit_when_idle=True).join()
        self.assertEqual(masks(), masks_before)
        self.assertEqual([signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)],
                         before)


class Jobs(PythonCase):
    def test_submit_watch_show(self):
        coordinator = self.start_coordinator()
        self.play_in_c(coordinator.url, "a", 10)
        document = job_document(horizon=300)
        job = tally.submit(document, url=coordinator.url)
        events = list(tally.watch(job, after=0, url=coordinator.url))
        rounds = [event.data for event in events if event.kind == "round"]
        for record in rounds:
            record.pop("totals")
        self.assertEqual(rounds, coordinator.client.rounds(job))
        self.assertEqual((events[-1].kind, events[-1].data["status"]), ("job", "completed"))
        detail = tally.show(job, url=coordinator.url)
        given = tally.document(job, url=coordinator.url)
        self.assertEqual(given, {key: detail[key] for key in given})
        again = tally.submit(given, url=coordinator.url)
        self.assertEqual(tally.document(again, url=coordinator.url), given)
        tally.delete(again, force=True, url=coordinator.url)
        self.assertEqual(essence(detail), essence(simulate(document)))
        # Of an ended job: the rounds since `after`, and the detail.
        self.assertEqual([event.kind for event in tally.watch(job, after=len(rounds) - 2, url=coordinator.url)],
                         ["job", "round", "round", "job"])
        self.assertEqual([event.kind for event in tally.watch(job, url=coordinator.url)], ["job"])

    def test_errors(self):
        coordinator = self.start_coordinator()
        with self.assertRaises(tally.Error) as caught:
            tally.submit(job_document(horizon=0), url=coordinator.url)
        self.assertEqual((caught.exception.field, caught.exception.status), ("horizon", 400))
        for action in (lambda: tally.show("no/such job", url=coordinator.url),
                       lambda: list(tally.watch("nosuchjob", url=coordinator.url))):
            with self.assertRaises(tally.Error) as caught:
                action()
            self.assertEqual((caught.exception.code, caught.exception.status), ("not_found", 404))
        with self.assertRaises(tally.Error) as caught:
            tally.show("x", url=f"http://127.0.0.1:{free_port()}")
        self.assertEqual(caught.exception.code, "unavailable")
        with self.assertRaises(ValueError):
            tally.Client("ftp://127.0.0.1:8080")
        port = coordinator.url.rsplit(":", 1)[1]
        with self.assertRaises(tally.Error) as caught:
            tally.show("nosuchjob", url=f"localhost:{port}")
        self.assertEqual(caught.exception.code, "not_found")

    def test_the_same_key_is_the_same_job(self):
        coordinator = self.start_coordinator()
        document = job_document()
        ids = {tally.submit(document, idempotency_key="one", url=coordinator.url) for _ in range(2)}
        self.assertEqual(len(ids), 1)

    def test_watching_survives_a_restart(self):
        coordinator = self.start_coordinator()
        job = tally.submit(job_document(horizon=300), url=coordinator.url)
        rounds, ended = [], threading.Event()

        def watch():
            for event in tally.watch(job, after=0, url=coordinator.url):
                rounds.extend([event.data["round"]] if event.kind == "round" else [])
            ended.set()

        threading.Thread(target=watch, daemon=True).start()
        wait_until(lambda: self.n_streams(coordinator) > 0, "the stream to open")
        coordinator.kill()
        coordinator = self.start_coordinator(port=coordinator.port, name="second")
        self.play_in_c(coordinator.url, "a", 10)
        coordinator.client.wait_status(job, "completed")
        self.assertTrue(ended.wait(HANG_S))
        self.assertEqual(rounds, [record["round"] for record in coordinator.client.rounds(job)])

    @staticmethod
    def n_streams(coordinator):
        for line in coordinator.client.get("/metrics").body.decode().splitlines():
            if line.startswith("tally_event_streams "):
                return float(line.split()[1])
        raise AssertionError("no metric of event streams")

    def test_tls_and_tokens(self):
        authority = Authority(self.folder)
        cert, key = authority.issue("server")
        admin, worker = Path(self.folder, "admin"), Path(self.folder, "worker")
        admin.write_text(f"# old\n{'o' * 32} until=2020-01-01T00:00:00Z\n{'a' * 32} name=me\n")
        worker.write_text(f"{'w' * 32} name=site\n")
        for file in (admin, worker):
            file.chmod(0o600)
        coordinator = TlsCoordinator(self.folder, authority, cert, key, name="tls",
                                     options=("--admin-token-file", admin, "--worker-token-file", worker))
        self.addCleanup(coordinator.terminate)
        where = {"url": coordinator.url, "tls_ca": authority.cert, "token_file": admin}
        job = tally.submit(plugin_job(), **where)
        for wrong in ({"token_file": None}, {"token_file": None, "token": "x" * 32}, {"tls_ca": None}):
            with self.assertRaises(tally.Error) as caught:
                tally.show(job, **{**where, **wrong})
            self.assertEqual(caught.exception.code,
                             "unavailable" if "tls_ca" in wrong else "unauthenticated", caught.exception)
        with self.assertRaises(tally.Error) as caught:
            self.play(coordinator.url, pull, tls_ca=authority.cert, token="x" * 32).join()
        self.assertEqual(caught.exception.code, "unauthenticated")
        self.play(coordinator.url, pull, 4, loss=squares, clients=2, tls_ca=authority.cert, token_file=worker)
        events = list(tally.watch(job, **where))
        self.assertEqual(events[-1].data["status"], "completed")

    def test_a_redirection_gets_no_token(self):
        import http.server

        heard = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                heard.append((self.path, self.headers.get("Authorization")))
                self.send_response(302)
                self.send_header("Location", "/elsewhere")
                self.end_headers()

            def log_message(self, *arguments):
                pass

        with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            with self.assertRaises(tally.Error):
                tally.show("x", url=f"http://127.0.0.1:{server.server_port}", token="secret-secret-se")
            server.shutdown()
        self.assertEqual(heard, [("/v1/jobs/x", "Bearer secret-secret-se")])


class ForeignServers(PythonCase):
    """Responses of other programs than a coordinator, and proxies."""

    def error_of(self, url, **environment):
        with mock.patch.dict(os.environ, environment), self.assertRaises(tally.Error) as caught:
            tally.Client(url).jobs()
        self.assertNotIn("s3cret", str(caught.exception))
        return caught.exception

    def serve(self, response):
        proxy = RefusingProxy(self.start_coordinator(store="memory:").port, lambda method, request: response)
        self.addCleanup(proxy.close)
        return proxy.url

    def test_a_page(self):
        url = self.serve(answer(200))
        error = self.error_of(url)
        self.assertEqual(str(error), f'HTTP 200 from {url} (gateway/7): response of type "text/html": this is no Tally '
                                     "coordinator")
        self.assertEqual((error.code, error.status), ("internal", 200))

    def test_a_proxy_that_refuses(self):
        proxy = self.serve(answer(403))
        error = self.error_of("http://tally.example", http_proxy=proxy.replace("//", "//user:s3cret@"))
        self.assertEqual(str(error), "HTTP 403 from http://tally.example (gateway/7) through the proxy "
                                     f"{proxy.removeprefix('http://')}: Go Away")

    def test_a_dead_proxy(self):
        proxy = f"127.0.0.1:{free_port()}"
        error = self.error_of("http://tally.example", http_proxy=f"http://user:s3cret@{proxy}")
        self.assertIn(f"http://tally.example through the proxy {proxy}: ", str(error))
        self.assertEqual(error.code, "unavailable")


class Types(unittest.TestCase):
    def test_mypy_finds_nothing(self):
        with tempfile.TemporaryDirectory() as cache:
            done = subprocess.run(["/usr/bin/mypy", "--cache-dir", cache, "tally", "examples", "setup.py"], cwd=PACKAGE,
                                  capture_output=True, text=True, timeout=HANG_S, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_everything_public_is_documented(self):
        for name in tally.__all__:
            thing = getattr(tally, name)
            if callable(thing) and name not in ("Evaluate", "Gradient", "Loss", "Metrics", "Train"):
                self.assertTrue(thing.__doc__ and not thing.__doc__.startswith(f"{name}("), name)

    def test_help_names_what_a_query_has(self):
        text = pydoc.plain(pydoc.render_doc(tally))
        query = text[text.index("class Query("):text.index("class Totals(")]
        for member in ("problem", "client", "round", "samples", "below(self, n", "draws(self, n"):
            self.assertRegex(query, rf"\n     \|  {re.escape(member)}")

    def test_arrays_have_shapes_in_the_documentation(self):
        for thing in (tally.encode, tally.decode, tally.model, tally.rounds, tally.simulate, tally.run_worker,
                      tally.Client.model, tally.Client.rounds, tally.JobData.shard, tally.Query.draws):
            self.assertRegex(thing.__doc__, r"\((dim|rounds|points|samples),", thing)

    def test_structs_are_those_of_the_headers(self):
        """Compares sizes and all offsets with those reported by the C compiler."""
        structs = {"tally_failure": _library.Failure, "tally_rounding": _library.Rounding,
                   "tally_payload": _library.Payload, "tally_points": _library.Points,
                   "tally_plugin_problem": _library.PluginProblem, "tally_plugin_query": _library.PluginQuery,
                   "tally_plugin": _library.Plugin, "tally_worker_config": _library.WorkerConfig,
                   "tally_worker_totals": _library.WorkerTotals}
        source = ['#include <stddef.h>', '#include <stdio.h>', '#include "services/libtally/tally.h"',
                  '#include "services/objectives/plugin.h"', "int main(void) {"]
        expected = []
        for name, mirror in structs.items():
            source.append(f'printf("{name} %zu\\n", sizeof(struct {name}));')
            import ctypes

            expected.append(f"{name} {ctypes.sizeof(mirror)}")
            for member, *_ in mirror._fields_:
                at = getattr(mirror, member)
                source.append(f'printf("{name}.{member} %zu %zu\\n", offsetof(struct {name}, {member}), '
                              f"sizeof(((struct {name} *)0)->{member}));")
                expected.append(f"{name}.{member} {at.offset} {at.size}")
        source.append("return TALLY_PLUGIN_ABI; }")
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "layout.c").write_text("\n".join(source))
            subprocess.run(["cc", "-I", REPO, "-o", f"{folder}/layout", f"{folder}/layout.c"], check=True,
                           timeout=HANG_S)
            done = subprocess.run([f"{folder}/layout"], capture_output=True, text=True, timeout=HANG_S, check=False)
        self.assertEqual(done.stdout.splitlines(), expected)
        self.assertEqual(done.returncode, _library.PLUGIN_ABI)


if __name__ == "__main__":
    unittest.main()
