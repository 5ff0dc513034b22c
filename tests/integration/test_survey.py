"""Features that are scaled by the points of all clients, of which no process has all: the survey before the first round.

Surveys and scaling are computed here a second time, with fractions (services/objectives/data/survey.h)."""

import json
import math
import shutil
import struct
import subprocess
from fractions import Fraction
from pathlib import Path

import numpy as np

from common import (
    BIN, HANG_S, IS_SANITIZED, ConnectError, ForeignWorker, TallyTestCase, essence, messages, simulate, task_of,
    updates_of, wait_until,
)
from recording_proxy import RecordingProxy
from round_gate import RoundGate

if not IS_SANITIZED:
    from test_python import tally

CLIENTS = 4
FEATURES = 4
HEAD = "a,b,c,d,y"


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def number(value):
    """An integer as a survey has it."""
    magnitude, zeros = abs(value), 0
    if value == 0:
        return varint(0)
    while magnitude % 256 == 0:
        magnitude //= 256
        zeros += 1
    n = (magnitude.bit_length() + 7) // 8
    return varint(2 * n + (value < 0)) + varint(zeros) + magnitude.to_bytes(n, "little")


def survey_of(rows):
    """The survey of points, each a list of numbers or None."""
    out = varint(len(rows))
    for column in zip(*rows):
        values = [Fraction(x) for x in column if x is not None]
        out += varint(len(rows) - len(values))
        out += number(int(sum(values) * 2**1074)) + number(int(sum(x * x for x in values) * 2**2148))
    return out


def nearest_root(value):
    """The double nearest to the root of a fraction."""
    root = Fraction(math.isqrt(value.numerator * value.denominator * 4**200), value.denominator * 2**200)
    return root.numerator / root.denominator  # rounded once, except for ties, which these numbers do not have


def scaling_of(rows):
    """Fill, mean and deviation of every feature."""
    numbers = []
    for column in zip(*rows):
        values = [Fraction(x) for x in column if x is not None]
        mean = sum(values) / len(values)
        square = sum((x - mean) ** 2 for x in values) / len(rows)
        fill = mean.numerator / mean.denominator
        numbers.append((fill, fill, nearest_root(square)) if square else (fill, 0, 1))
    return [number[i] for i in range(3) for number in numbers]


class SurveyGate(RoundGate):
    """Lets the survey pass, and holds the first round, which has the survey's number but another mark."""

    mark = None

    def _is_held(self, request):
        if b"/PostUpdate " not in request.partition(b"\r\n")[0]:
            return False
        update = messages.PostUpdateRequest.FromString(request.partition(b"\r\n\r\n")[2])
        self.mark = self.mark or update.mark
        return update.mark != self.mark and not self._is_open.is_set()


class SurveyCase(TallyTestCase):
    def setUp(self):
        super().setUp()
        self.data = Path(self.folder) / "data"
        self.data.mkdir()
        self.at = ("--data-dir", self.data)
        generator = np.random.default_rng(7)
        X = generator.normal(size=(61, 3)) * [1, 100, 0.01] + [5, 1000, 0]
        self.points = [[float(f"{x:.6g}") for x in row] + [0.5] for row in X]  # the last one is constant
        self.points[3][0] = self.points[3][1] = self.points[40][1] = self.points[60][3] = None
        self.labels = np.where(X @ [1, 0.01, 10] > 15, 1, -1)
        self.shards = [list(part) for part in np.array_split(np.arange(61), CLIENTS)]
        self.write(self.data / "all.csv", range(61))
        for m, shard in enumerate(self.shards):
            self.write(self.data / f"part-{m}.csv", shard)

    def write(self, path, rows):
        def field(x):
            return "" if x is None else repr(x)

        lines = [",".join([*(field(x) for x in self.points[i]), str(self.labels[i])]) for i in rows]
        path.write_text("\n".join([HEAD, *lines, ""]))

    def document(self, file="part-{client}.csv", sharding="local", **changes):
        data = {"type": "csv", "file": file, "label": "y", "features": FEATURES, "classes": 0, "sharding": sharding,
                "standardize": True, "missing": "mean"}
        return {"objective": {"type": "logistic_regression", "bias": True, "l2": 0.01, "data": data},
                "algorithm": {"type": "minibatch_sgd", "step_size": 0.5, "local_steps": 1}, "minibatch": 2,
                "clients": CLIENTS, "horizon": 40, "reference": {"type": "none"}, "seed": 3, **changes}

    def start_workers(self, coordinator, n=2, **options):
        options.setdefault("options", self.at)
        return [self.start_worker(coordinator, f"w{i}", clients=CLIENTS // n, **options) for i in range(n)]

    def start_owners(self, coordinator):
        """Starts a worker for each client, which has that client's file only, as mine.csv."""
        for m in range(CLIENTS):
            folder = Path(self.folder) / f"of-{m}"
            folder.mkdir()
            shutil.copy(self.data / f"part-{m}.csv", folder / "mine.csv")
            self.start_worker(coordinator, f"w{m}", clients=1, options=("--data-dir", folder))

    def survey_bytes(self):
        return sum(len(survey_of([self.points[i] for i in shard])) for shard in self.shards)


class Service(SurveyCase):
    def test_the_scaling_is_exact_and_its_bits_are_those_on_the_wire(self):
        coordinator = self.start_coordinator()
        proxy = RecordingProxy(coordinator.client.port)
        self.addCleanup(proxy.close)
        job_id = coordinator.client.submit(self.document())
        self.start_workers(proxy)
        detail = coordinator.client.wait_status(job_id, "completed")
        self.assertEqual(essence(detail), essence(simulate(self.document(), self.at)))
        tasks = [task for task in map(task_of, proxy.exchanges) if task is not None]
        marks = {task.mark for task in tasks if task.wants_survey}
        self.assertEqual(len(marks), 1)
        sent = {update.client: update.payload for exchange in proxy.exchanges
                for request, update, _ in updates_of(exchange) if request.mark in marks}
        self.assertEqual(sent, {m: survey_of([self.points[i] for i in shard]) for m, shard in enumerate(self.shards)})
        scalings = {task.scaling for task in tasks if task.scaling}
        self.assertEqual(scalings, {struct.pack(f"<{3 * FEATURES}d", *scaling_of(self.points))})
        self.assertEqual(sum(len(task.scaling) for task in tasks), 2 * 24 * FEATURES)  # each worker gets it once
        self.assertEqual(detail["bits"]["control"], 8 * (self.survey_bytes() + 24 * FEATURES))
        self.assertEqual(detail["bits"]["recovery"], 0)
        first, *rest = coordinator.client.rounds(job_id)
        self.assertEqual(first["bits"]["control"], detail["bits"]["control"])
        self.assertEqual((first["round"], first["samples"], len(rest), detail["time_step"]), (1, 1, 39, 40))

    def test_the_features_are_those_of_one_file_but_for_rounding(self):
        """The sums over one file are rounded at each point, those of surveys are not."""
        if IS_SANITIZED:
            self.skipTest("an interpreter cannot load a library with a sanitizer")
        whole = tally.JobData(self.document("all.csv", "contiguous"), self.data)
        parts = tally.JobData(self.document(), self.data)
        for m in range(CLIENTS):
            X, Y = whole.shard(m)[0], parts.shard(m)[0]
            self.assertEqual(X.shape, Y.shape)
            np.testing.assert_allclose(X, Y, rtol=0, atol=1e-14)
            fill, mean, s = np.reshape(scaling_of(self.points), (3, FEATURES))
            rows = np.array([self.points[i] for i in self.shards[m]])
            exact = (np.where(rows == np.array(None), fill, rows).astype(float) - mean) / s
            self.assertTrue(np.array_equal(Y, exact))
        a = simulate(self.document("all.csv", "contiguous"), self.at)
        b = simulate(self.document(), self.at)
        self.assertAlmostEqual(a["loss"], b["loss"], delta=1e-6 * a["loss"])
        self.assertEqual(a["bits"]["uplink"], b["bits"]["uplink"])
        self.assertEqual(a["bits"]["control"], 0)

    def test_each_worker_has_the_file_of_one_client_only(self):
        document = self.document("mine.csv", minibatch=0)
        coordinator = self.start_coordinator()
        job_id = coordinator.client.submit(document)
        self.start_owners(coordinator)
        detail = coordinator.client.wait_status(job_id, "completed")
        expected = simulate(self.document(minibatch=0), self.at)
        self.assertEqual(detail["x_checksum"], expected["x_checksum"])
        self.assertEqual(detail["bits"]["control"], expected["bits"]["control"])

    def test_a_column_that_one_client_lacks_has_the_mean_of_the_others(self):
        for i in self.shards[2]:
            self.points[i][1] = None
        self.write(self.data / "part-2.csv", self.shards[2])
        coordinator = self.start_coordinator()
        job_id = coordinator.client.submit(self.document("mine.csv", minibatch=0))
        self.start_owners(coordinator)
        detail = coordinator.client.wait_status(job_id, "completed")
        self.assertEqual(detail["x_checksum"], simulate(self.document(minibatch=0), self.at)["x_checksum"])

    def test_cohorts_and_policies_survey_all_clients(self):
        coordinator = self.start_coordinator()
        self.start_workers(coordinator)
        for changes in ({"cohort": 2}, {"cohort": 1, "policy": "drop", "quorum": 1, "round_deadline_ms": 60000},
                        {"policy": "fail", "quorum": 1, "round_deadline_ms": 60000},
                        {"cohort": 2, "over_selection": 0.5, "policy": "drop", "quorum": 2}):
            with self.subTest(changes):
                document = self.document(**changes)
                detail = coordinator.client.wait_status(coordinator.client.submit(document), "completed")
                expected = simulate(document, self.at)
                self.assertEqual(detail["bits"]["control"], expected["bits"]["control"])
                if "over_selection" not in changes:
                    self.assertEqual(essence(detail), essence(expected))

    def test_held_out_points_are_scaled_alike(self):
        self.write(self.data / "test.csv", range(5, 30))
        document = self.document()
        document["objective"]["data"]["test_file"] = "test.csv"
        coordinator = self.start_coordinator()
        self.start_workers(coordinator)
        detail = coordinator.client.wait_status(coordinator.client.submit(document), "completed")
        expected = simulate(document, self.at)
        self.assertEqual(essence(detail), essence(expected))
        self.assertEqual(detail["metrics"], expected["metrics"])
        whole = self.document("all.csv", "contiguous")
        whole["objective"]["data"]["test_file"] = "test.csv"
        self.assertAlmostEqual(detail["metrics"]["test_loss"]["mean"],
                               simulate(whole, self.at)["metrics"]["test_loss"]["mean"], delta=1e-6)

    def test_other_commands_know_it(self):
        coordinator = self.start_coordinator(options=self.at)
        self.start_workers(coordinator)
        answer = coordinator.client.post("/v1/jobs?dry_run=1", json.dumps(self.document()).encode(),
                                         **{"Content-Type": "application/json"})
        self.assertEqual(answer.status, 200, answer)
        # f(x*) follows from the files of all clients, scaled alike.
        document = self.document(reference={"type": "solve"})
        detail = coordinator.client.wait_status(coordinator.client.submit(document), "completed")
        self.assertEqual(essence(detail), essence(simulate(document, self.at)))
        at = ("--coordinator", f"http://127.0.0.1:{coordinator.client.port}", *self.at)

        def run(*arguments):
            return subprocess.run([BIN / "tally", *arguments], capture_output=True, text=True, timeout=HANG_S)

        verified = run("verify", detail["id"], *at)
        self.assertEqual(verified.returncode, 0, verified.stderr)
        self.assertIn("verified", verified.stdout)
        predicted = run("predict", detail["id"], self.data / "all.csv", *at)
        self.assertEqual(predicted.returncode, 0, predicted.stderr)
        x = np.array(coordinator.client.get_json(f"/v1/jobs/{detail['id']}/model")["x"])
        answer = coordinator.client.get_json(f"/v1/jobs/{detail['id']}/scaling")
        self.assertEqual(answer, {"job_id": detail["id"], "features": FEATURES,
                                  "scaling": np.reshape(scaling_of(self.points), (3, FEATURES)).tolist()})
        if not IS_SANITIZED:
            url = f"http://127.0.0.1:{coordinator.client.port}"
            self.assertEqual(tally.scaling(detail["id"], url=url).tolist(), answer["scaling"])
        other = coordinator.client.submit(self.document("all.csv", "contiguous"))
        self.assert_problem(coordinator.client.get(f"/v1/jobs/{other}/scaling"), 404)
        fill, mean, s = np.reshape(scaling_of(self.points), (3, FEATURES))
        X = (np.where(self.points == np.array(None), fill, self.points).astype(float) - mean) / s
        signs = np.where(np.hstack([X, np.ones((61, 1))]) @ x > 0, "1", "-1")
        self.assertEqual([line.split(",")[0] for line in predicted.stdout.splitlines()[1:]], list(signs))
        bundle = Path(self.folder) / "job.tar"
        self.assertEqual(run("export", detail["id"], "--bundle", bundle, *at[:2]).returncode, 0)
        self.assertEqual(run("predict", bundle, self.data / "all.csv", *self.at).stderr, "")
        # A file that has changed, and one that cannot be read.
        text = (self.data / "part-0.csv").read_text()
        (self.data / "part-0.csv").write_text(text + text.splitlines()[1] + "\n")
        self.assertIn("no process of the job is known to have had all files part-{client}.csv as they are here",
                      run("predict", bundle, self.data / "all.csv", *self.at).stderr)
        (self.data / "part-0.csv").write_text("\n".join(line + ",1" for line in text.splitlines()) + "\n")
        self.assertIn("cannot be read: ", run("predict", detail["id"], self.data / "all.csv", *at).stderr)
        (self.data / "part-0.csv").write_text(text)
        # Without the file of one client the coordinator's scaling is needed.
        (self.data / "part-2.csv").unlink()
        again = run("predict", detail["id"], self.data / "all.csv", *at)
        self.assertEqual((again.returncode, again.stdout), (0, predicted.stdout), again.stderr)
        refused = run("predict", bundle, self.data / "all.csv", *at)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("those of client 2 are not here", refused.stderr)
        refused = subprocess.run([BIN / "tally", "simulate", "-", *self.at], input=json.dumps(self.document()),
                                 capture_output=True, text=True, timeout=HANG_S)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("the data of client 2 are not in this data folder", refused.stderr)


class Faults(SurveyCase):
    def wait_for_text(self, client, job_id, text):
        return wait_until(lambda: text in ((client.job(job_id).get("waiting") or {}).get("text") or ""), text)

    def finish(self, coordinator, job_id):
        detail = coordinator.client.wait_status(job_id, "completed")
        self.assertEqual(essence(detail), essence(simulate(self.document(), self.at)))
        return detail

    def test_the_coordinator_is_killed_within_the_survey(self):
        coordinator = self.start_coordinator()
        gate = RoundGate(coordinator)
        self.addCleanup(gate.close)
        job_id = coordinator.client.submit(self.document())
        self.start_worker(coordinator, "w0", clients=2, options=self.at)
        self.start_worker(gate, "w1", clients=2, options=self.at)
        self.wait_for_text(coordinator.client, job_id, "to survey their points: 2 of 4 have")
        coordinator.kill()
        coordinator = self.start_coordinator(port=coordinator.client.port)
        self.wait_for_text(coordinator.client, job_id, "to survey their points: 2 of 4 have")
        self.assertEqual(coordinator.client.rounds(job_id), [])
        gate.open()
        self.finish(coordinator, job_id)

    def test_everything_is_killed_between_the_survey_and_the_first_round(self):
        coordinator = self.start_coordinator()
        gate = SurveyGate(coordinator, keeps=True)
        self.addCleanup(gate.close)
        job_id = coordinator.client.submit(self.document())
        workers = self.start_workers(gate)
        self.assertTrue(gate.holds.wait(HANG_S))
        for process in (coordinator, *workers):
            process.kill()
        n_before = len(gate.exchanges)
        coordinator = self.start_coordinator(port=coordinator.client.port)
        gate.open()
        for i in range(2):
            self.start_worker(gate, f"v{i}", clients=2, options=self.at)
        self.finish(coordinator, job_id)
        tasks = [task for task in map(task_of, gate.exchanges[n_before:]) if task is not None]
        self.assertFalse(any(task.wants_survey for task in tasks))
        self.assertEqual(len({task.scaling for task in tasks if task.scaling}), 1)

    def test_the_scaling_survives_rounds_and_moves_with_clients(self):
        coordinator = self.start_coordinator()
        gate = RoundGate(coordinator, last=5)
        self.addCleanup(gate.close)
        job_id = coordinator.client.submit(self.document())
        workers = self.start_workers(gate)
        coordinator.client.wait_round(job_id, 5)
        for process in (coordinator, *workers):
            process.kill()
        coordinator = self.start_coordinator(port=coordinator.client.port)
        self.start_worker(coordinator, "late", clients=4, options=self.at)
        detail = self.finish(coordinator, job_id)
        self.assertGreaterEqual(detail["bits"]["recovery"], 0)

    def test_messages_that_are_no_surveys_are_refused(self):
        coordinator = self.start_coordinator()
        client = coordinator.client
        job_id = client.submit(self.document())
        worker = ForeignWorker(client, slots=CLIENTS)
        task = worker.poll_task()
        self.assertTrue(task.wants_survey)
        self.assertEqual((task.samples, task.scaling_digest, task.scaling), (0, 0, b""))

        def refusal(client, payload, **changes):
            update = worker.update(task, client, payload=payload, payload_bits=8 * len(payload), mark=task.mark)
            for field, value in changes.items():
                setattr(update.updates[0], field, value)
            with self.assertRaises(ConnectError) as caught:
                worker.post(update)
            return str(caught.exception)

        good = [survey_of([self.points[i] for i in shard]) for shard in self.shards]
        self.assertIn("the survey is longer than its 4 features", refusal(0, good[0] + b"\0"))
        self.assertIn("cut short or malformed", refusal(0, good[0][:-1]))
        self.assertIn("begins with its number of points", refusal(0, b""))
        self.assertIn("more missing values than points", refusal(0, b"\x01\x02" + good[0][2:]))
        self.assertIn("squares that are too small", refusal(0, survey_of([[1, 2, 3, 4]])[:2] + number(3 << 1074) +
                                                            survey_of([[1, 2, 3, 4]])[2 + len(number(1 << 1074)):]))
        self.assertIn("bits for a survey of", refusal(0, good[0], payload_bits=7))
        self.assertIn("neither a loss nor clipped", refusal(0, good[0], loss=0.5))
        self.assertIn("already", refusal_of_second(self, worker, task, good))
        self.assertEqual(client.job(job_id)["round"], 0)
        worker.cursors[job_id] = 1  # such a task is encoded once for all workers
        self.assertTrue(worker.poll_task().wants_survey)
        worker.cursors.clear()
        for m in range(1, CLIENTS):
            worker.post(worker.update(task, m, payload=good[m], payload_bits=8 * len(good[m]), mark=task.mark))
        task = worker.poll_task()
        self.assertFalse(task.wants_survey)
        self.assertEqual(task.round, 1)
        self.assertEqual(task.scaling, struct.pack(f"<{3 * FEATURES}d", *scaling_of(self.points)))
        # The scaling comes until the cursor says that the worker has it.
        worker.cursors[job_id] = 1
        self.assertEqual(worker.poll_task().scaling, task.scaling)
        request = messages.PollTaskRequest(session=worker.session, wait_ms=1000)
        request.cursors.add(job_id=job_id, iterate=1, scaling=task.scaling_digest)
        again = client.call("PollTask", request, messages.PollTaskResponse).task
        self.assertEqual((again.scaling, again.scaling_digest), (b"", task.scaling_digest))
        self.assertEqual((again.wants_survey, again.mark), (False, task.mark))
        wait_until(lambda: client.job(job_id)["bits"]["recovery"] == len(task.scaling) * 8, "one scaling sent again")

    def test_errors_of_files_name_what_is_wrong(self):
        coordinator = self.start_coordinator()
        self.points[7][2] = 1e300
        self.write(self.data / "part-0.csv", self.shards[0])
        job_id = coordinator.client.submit(self.document())
        self.start_workers(coordinator)
        detail = coordinator.client.wait_status(job_id, "failed")
        self.assertIn("the values of column c are too large to be added and squared", detail["reason"])
        for row in self.points:
            row[2] = None
        for m, shard in enumerate(self.shards):
            self.write(self.data / f"part-{m}.csv", shard)
            folder = Path(self.folder) / f"of-{m}"
            folder.mkdir()
            shutil.copy(self.data / f"part-{m}.csv", folder / "mine.csv")
        job_id = coordinator.client.submit(self.document())
        detail = coordinator.client.wait_status(job_id, "failed")
        self.assertIn("column c has no value at any training point", detail["reason"])


def refusal_of_second(case, worker, task, good):
    """Takes the survey of client 0, repeats it, and returns the refusal of another one."""
    update = worker.update(task, 0, payload=good[0], payload_bits=8 * len(good[0]), mark=task.mark)
    case.assertEqual(worker.post(update).payload_bits, 8 * len(good[0]))
    case.assertEqual(worker.post(update).payload_bits, 8 * len(good[0]))
    with case.assertRaises(ConnectError) as caught:
        worker.post(worker.update(task, 0, payload=good[1], payload_bits=8 * len(good[1]), mark=task.mark))
    return str(caught.exception)
