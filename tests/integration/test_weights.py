"""Clients weighted by their number of points: the equations in NumPy, the bits for sending these numbers, the service
against `tally simulate`, hostile numbers, and documents in which weights are refused.
"""

import json
import pathlib
import unittest

import numpy

from common import ForeignWorker, TallyTestCase, essence, job_document, simulate, sum_of_rounds, wait_until

SIZES = (2, 5, 1, 12)
POINTS = numpy.array([[1.0, 2.0, 0.5], [0.3, -1.0, 2.0], [-1.5, 0.2, 0.1], [0.4, 0.8, -0.6]])
LABELS = numpy.array([1.0, -2.0, 0.5, 3.0])
STEP_SIZE = 0.08
STEPS = 3
HORIZON = 40  # 13 whole rounds, and one that is cut
BASES = ("synthetic-minibatch-sgd", "synthetic-fedavg", "synthetic-fedprox", "synthetic-fedpaq", "synthetic-fedcom",
         "synthetic-fedadam")


def rounded(values):
    """Returns the vector as the server adds it up: float32, as integer multiples of 2^-40."""
    return numpy.rint(numpy.float32(values).astype(float) * 2.0**40)


class WeightedFiles(TallyTestCase):
    """Client m has a file of its own with the same point SIZES[m] times, so every gradient is known."""

    def setUp(self):
        super().setUp()
        self.data = pathlib.Path(self.folder) / "data"
        self.data.mkdir()
        self.options = ("--data-dir", self.data)
        for m, size in enumerate(SIZES):
            self.write(self.data, m, size)

    @staticmethod
    def write(folder, m, size):
        row = ",".join(str(value) for value in (*POINTS[m], LABELS[m]))
        (folder / f"mine-{m}.csv").write_text("a,b,c,label\n" + f"{row}\n" * size)

    def document(self, type_="minibatch_sgd", /, algorithm=None, **changes):
        data = {"type": "csv", "file": "mine-{client}.csv", "label": "label", "features": 3, "sharding": "local"}
        return {"algorithm": {"type": type_, "step_size": STEP_SIZE, "local_steps": STEPS, **(algorithm or {})},
                "clients": len(SIZES), "horizon": HORIZON, "weighting": "points",
                "objective": {"type": "least_squares", "data": data}, **changes}

    def expected(self, walks):
        """Returns the regret and the final point."""
        sizes = numpy.array(SIZES, dtype=float)
        root = numpy.sqrt(sizes)
        optimum = numpy.linalg.lstsq(root[:, None] * POINTS, root * LABELS, rcond=None)[0]

        def losses(x):
            return (POINTS @ x - LABELS) ** 2

        f_star = sizes @ losses(optimum) / sizes.sum()
        x, done, regret = numpy.zeros(3), 0, 0.0
        while done < HORIZON:
            samples = min(STEPS, HORIZON - done)
            sent, loss = [], 0.0
            for point, label, size in zip(POINTS, LABELS, SIZES):
                own = x.copy()
                for _ in range(samples if walks else 1):  # evaluates f over all data
                    at_own = sizes @ losses(own) / sizes.sum()
                    loss += at_own * size / (samples if walks else 1)
                    gradient = 2 * (point @ own - label) * point
                    own = own - STEP_SIZE * gradient
                sent.append(rounded(own - x if walks else gradient))
            regret += len(SIZES) * samples * (loss / sizes.sum() - f_star)
            done += samples
            if samples == STEPS:
                mean = sizes @ sent / 2.0**40 / sizes.sum()
                x = numpy.float32(x + (mean if walks else -STEP_SIZE * mean)).astype(float)
        return regret, x

    def check_bits(self, detail):
        """Each message begins with the number of points, in 32 bits; that of the cut round consists of it alone."""
        bits = detail["bits"]["uplink_per_client"]
        self.assertEqual((bits["formula"], bits["payload"]), (13 * (32 + 96) + 32, 13 * (32 + 96) + 32))
        self.assertEqual(detail["bits"]["uplink"]["messages"], 14 * len(SIZES))

    def test_minibatch_sgd_and_fedavg_follow_their_definitions(self):
        for type_ in ("minibatch_sgd", "fedavg"):
            with self.subTest(type_):
                detail = simulate(self.document(type_), self.options)
                regret, _ = self.expected(type_ == "fedavg")
                self.assertAlmostEqual(detail["cumulative_regret"] / regret, 1, delta=1e-12)
                equal = simulate(self.document(type_, weighting="equal"), self.options)
                self.assertGreater(abs(equal["f_star"] / detail["f_star"] - 1), 0.05)
                self.check_bits(detail)

    def test_the_point_is_that_of_the_definition(self):
        coordinator = self.start_coordinator(options=self.options)
        for m in range(2):
            self.start_worker(coordinator, f"w{m}", clients=2, options=self.options)
        for type_ in ("minibatch_sgd", "fedavg"):
            job_id = coordinator.client.submit(self.document(type_))
            coordinator.client.wait_status(job_id, "completed")
            x = coordinator.client.get_json(f"/v1/jobs/{job_id}/model")["x"]
            numpy.testing.assert_array_equal(x, self.expected(type_ == "fedavg")[1])

    def test_expected_bits_are_those_that_are_sent(self):
        coordinator = self.start_coordinator()
        for type_, algorithm in (("minibatch_sgd", {}), ("fedpaq", {"levels": 3}),
                                 ("fedavg", {"local_steps_growth": 0.4})):
            document = self.document(type_, algorithm)
            preview = coordinator.client.post("/v1/jobs?dry_run=1", json.dumps(document),
                                              **{"Content-Type": "application/json"}).json()
            detail = simulate(document, self.options)
            self.assertEqual(preview["expected_bits"]["uplink_per_client"],
                             detail["bits"]["uplink_per_client"]["payload"])

    def test_a_file_that_is_cut_is_the_same_as_files_of_the_clients(self):
        """10 points divided among 4 clients as by `contiguous`: 3, 3, 2 and 2."""
        sizes = (3, 3, 2, 2)
        rows = []
        for m, size in enumerate(sizes):
            self.write(self.data, m, size)
            rows += (self.data / f"mine-{m}.csv").read_text().splitlines()[1:]
        (self.data / "all.csv").write_text("\n".join(["a,b,c,label", *rows, ""]))
        whole = {"type": "csv", "file": "all.csv", "label": "label", "features": 3, "sharding": "contiguous"}
        document = self.document()
        cut = {**document, "objective": {"type": "least_squares", "data": whole}}
        self.assertEqual(essence(simulate(cut, self.options)), essence(simulate(document, self.options)))

    def test_the_coordinator_needs_no_data(self):
        """The coordinator and a worker are killed on the way."""
        document = self.document(reference={"type": "none"}, horizon=30001)
        coordinator = self.start_coordinator()
        job_id = coordinator.client.submit(document)
        workers = [self.start_worker(coordinator, f"w{m}", options=self.options) for m in range(len(SIZES))]
        wait_until(lambda: coordinator.client.job(job_id)["round"] >= 20, "20 rounds")
        coordinator.kill()
        workers[1].kill()
        coordinator = self.start_coordinator(port=coordinator.port, store=coordinator.store)
        self.start_worker(coordinator, "again", options=self.options)
        detail = coordinator.client.wait_status(job_id, "completed")
        self.assertEqual(essence(detail), essence(simulate(document, self.options)))
        records = coordinator.client.rounds(job_id)
        sums = sum_of_rounds(records)
        self.assertEqual(sums, {key: detail["bits"][key] for key in sums})

    def test_workers_with_files_of_their_own_meet_at_the_mean_of_all_points(self):
        """One worker has ten points with label 1, the other thirty with label 4, each for two clients. The minimum of f
        is at 3.25."""
        coordinator = self.start_coordinator()
        for label, size in ((1, 10), (4, 30)):
            folder = pathlib.Path(self.folder) / f"own-{label}"
            folder.mkdir()
            (folder / "mine.csv").write_text("one,label\n" + f"1,{label}\n" * size)
            self.start_worker(coordinator, f"w{label}", clients=2, options=("--data-dir", folder))
        data = {"type": "csv", "file": "mine.csv", "label": "label", "features": 1, "sharding": "local"}
        for type_ in ("minibatch_sgd", "fedavg"):
            document = self.document(type_, objective={"type": "least_squares", "data": data}, horizon=600,
                                     reference={"type": "none"})
            detail = coordinator.client.wait_status(coordinator.client.submit(document), "completed")
            (x,) = coordinator.client.get_json(f"/v1/jobs/{detail['id']}/model")["x"]
            self.assertAlmostEqual(x, 3.25, places=5)
            at_x = (10 * 2.25**2 + 30 * 0.75**2) / 40
            if type_ == "minibatch_sgd":
                self.assertAlmostEqual(detail["loss"], at_x, places=5)

    def test_hostile_numbers_are_refused(self):
        coordinator = self.start_coordinator()
        coordinator.client.submit(self.document(clients=1, reference={"type": "none"}, horizon=4))
        hand = ForeignWorker(coordinator.client)
        task = hand.poll_task()
        for head in (0, 2**25 + 1, 2**32 - 1):
            payload = head.to_bytes(4, "little") + bytes(12)
            self.assert_connect_error("invalid_argument", hand.post,
                                      hand.update(task, 0, payload=payload, payload_bits=128))
        for length in (0, 3, 4, 12, 15, 17):
            payload = (b"\1\0\0\0" + bytes(13))[:length]
            self.assert_connect_error("invalid_argument", hand.post,
                                      hand.update(task, 0, payload=payload, payload_bits=8 * length))
        answer = hand.update(task, 0, payload=(2**25).to_bytes(4, "little") + bytes(12), payload_bits=128)
        hand.post(answer)
        hand.cursors[task.job_id] = task.iterate
        task = hand.poll_task()
        self.assertTrue(task.cut)
        self.assert_connect_error("invalid_argument", hand.post, hand.update(task, 0))
        self.assert_connect_error("invalid_argument", hand.post,
                                  hand.update(task, 0, payload=bytes([7, 0, 0, 0, 0]), payload_bits=40))
        hand.post(hand.update(task, 0, payload=bytes([7, 0, 0, 0]), payload_bits=32))
        detail = coordinator.client.wait_status(task.job_id, "completed")
        self.assertEqual(detail["bits"]["uplink"]["payload"], 128 + 32)


class Synthetic(TallyTestCase):
    """The document states how many points each client has, so the counts cost no bits."""

    def test_equal_shards_change_no_bit(self):
        for base in BASES:
            with self.subTest(base):
                document = job_document(base, horizon=410)
                plain = essence(simulate(document))
                self.assertEqual(essence(simulate({**document, "weighting": "points"})), plain)
                self.assertEqual(essence(simulate({**document, "weighting": "equal"})), plain)

    def test_service_equals_simulation(self):
        coordinator = self.start_coordinator()
        for i in range(3):
            self.start_worker(coordinator, f"w{i}", clients=4)
        for base in BASES:
            for changes in ({}, {"cohort": 4, "quorum": 4}, {"domain": {"type": "ball", "radius": 0.5}}):
                with self.subTest(base=base, changes=changes):
                    document = job_document(base, horizon=410, weighting="points", objective__data__points=2003,
                                            **changes)
                    expected = simulate(document)
                    equal = simulate({**document, "weighting": "equal"})
                    self.assertNotEqual(expected["x_checksum"], equal["x_checksum"])
                    self.assertEqual(expected["bits"], equal["bits"])
                    detail = coordinator.client.wait_status(coordinator.client.submit(document), "completed")
                    self.assertEqual(essence(detail), essence(expected))

    def test_who_takes_no_weights_says_so(self):
        coordinator = self.start_coordinator()
        quadratic = {"type": "quadratic", "data": {"type": "matrix", "matrix": "A.npy", "vector": "b.npy", "dim": 3}}
        fedavg = job_document("synthetic-fedavg")
        for document, what in ((job_document("synthetic-ceal"), "algorithm ceal needs equal clients: its stages"),
                               (job_document("synthetic-calm-auto"), "algorithm calm needs equal clients: its estimate"),
                               ({**fedavg, "objective": quadratic}, "no point count"),
                               ({**fedavg, "objective": {"type": "plugin", "name": "mine", "dim": 3},
                                 "reference": {"type": "none"}}, "no point count")):
            answer = coordinator.client.post_job({**document, "weighting": "points"})
            self.assert_problem(answer, 400, "weighting")
            self.assertIn(what, answer.json()["detail"])

    def test_the_default_is_not_written(self):
        coordinator = self.start_coordinator()
        for weighting, is_there in (("equal", False), ("points", True)):
            detail = coordinator.client.job(coordinator.client.submit(
                {**job_document("synthetic-fedavg"), "weighting": weighting}))
            self.assertEqual("weighting" in detail, is_there)


if __name__ == "__main__":
    unittest.main()
