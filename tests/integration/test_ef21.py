"""EF21 against its equations in NumPy. What belongs to the codec is computed by the second decoder."""

import json
import math
import pathlib
import subprocess
import sys
import unittest

import numpy

from common import BIN, REPO, simulate
from test_algorithms import AlgorithmTestCase

sys.path += [str(REPO / "tests/golden"), str(REPO / "tests/fuzz")]
import decoder  # noqa: E402
import make_golden  # noqa: E402
import seed_corpus  # noqa: E402

CLIENTS, DIM, ROUNDS = 6, 8, 30
DRAW = numpy.random.default_rng(21)
POINTS = DRAW.normal(size=(CLIENTS, DIM)) + 2 * numpy.eye(CLIENTS, DIM)  # every client has a different one
LABELS = DRAW.normal(size=CLIENTS) + numpy.arange(CLIENTS)


class Ef21Case(AlgorithmTestCase):
    """The minimum of f is 0, where all six equations hold."""

    def setUp(self):
        super().setUp()
        self.data = pathlib.Path(self.folder, "data")
        self.data.mkdir()
        numpy.save(self.data / "points.npy", POINTS)
        numpy.save(self.data / "labels.npy", LABELS)
        self.options = ("--data-dir", str(self.data))

    def document(self, **algorithm):
        data = {"type": "npy", "points": "points.npy", "labels": "labels.npy", "features": DIM,
                "sharding": "contiguous"}
        return {"algorithm": {"type": "ef21", "step_size": 0.02, "local_steps": 1, "k": 2, **algorithm},
                "clients": CLIENTS, "horizon": ROUNDS, "seed": 5, "reference": {"type": "value", "value": 0},
                "objective": {"type": "least_squares", "data": data}}


class Definition(Ef21Case):
    @staticmethod
    def select(difference, algorithm, client, round_number):
        """Returns the indices that the compressor C keeps."""
        if algorithm.get("compressor") == "rand_k":
            return decoder.draw_indices(DIM, algorithm["k"], {"seed": 5, "run": 0, "client": client,
                                                              "round": round_number, "purpose": 7})
        order = sorted(range(DIM), key=lambda i: (-abs(difference[i]), i))
        return sorted(order[:algorithm["k"]])

    def expected(self, algorithm):
        """Returns the regret, the checksum of the final point and the payload bits up."""
        x, estimates = numpy.zeros(DIM), numpy.zeros((CLIENTS, DIM), numpy.float32)
        regret, bits = 0.0, 0
        for round_number in range(1, ROUNDS + 1):
            regret += CLIENTS * numpy.mean((POINTS @ x - LABELS) ** 2)
            for client, (point, label) in enumerate(zip(POINTS, LABELS)):
                gradient = 2 * (point @ x - label) * point
                difference = numpy.float32(gradient - estimates[client].astype(float))
                indices = self.select(difference, algorithm, client, round_number)
                estimates[client][indices] += difference[indices]
                bits += 32 * algorithm["k"]
                if algorithm.get("compressor") != "rand_k":
                    bits += len(make_golden.gaps_of(indices, DIM))
            mean = sum(estimates[client].astype(float) for client in range(CLIENTS)) / CLIENTS
            x = numpy.float32(x - algorithm["step_size"] * mean).astype(float)
        return regret, f"{seed_corpus.checksum(x.tobytes()):016x}", bits

    def test_it_follows_its_equations(self):
        for k in (1, 2, 3, 7, DIM):
            for compressor in ({}, {"compressor": "top_k"}, {"compressor": "rand_k"}):
                with self.subTest(k=k, **compressor):
                    document = self.document(k=k, **compressor)
                    detail = simulate(document, self.options)
                    regret, checksum, payload = self.expected(document["algorithm"])
                    bits = detail["bits"]
                    self.assertEqual(detail["x_checksum"], checksum)
                    self.assertAlmostEqual(detail["cumulative_regret"] / regret, 1, delta=1e-13)
                    self.assertEqual(bits["uplink"]["payload"], payload)
                    index_bits = 0 if "rand_k" in compressor.values() else math.ceil(math.log2(DIM))
                    self.assertEqual(bits["uplink"]["formula"], ROUNDS * CLIENTS * k * (32 + index_bits))
                    self.assertEqual(bits["uplink"]["messages"], ROUNDS * CLIENTS)
                    self.assertEqual(bits["downlink"]["payload"], ROUNDS * 32 * DIM)
                    self.assertEqual(bits["control"], ROUNDS)

    def test_it_converges_where_sparse_gradients_do_not(self):
        """With exact gradients, unlike clients and one coordinate of eight per message, EF21 converges where sparse
        gradients do not."""
        document = self.document(k=1) | {"horizon": 4000}
        detail = simulate(document, self.options)
        self.assertLess(detail["loss"], 1e-6 * numpy.mean(LABELS**2))
        self.assertEqual(detail["bits"]["uplink_per_client"]["formula"], 4000 * 35)

    def test_k_is_at_most_the_dimension(self):
        file = pathlib.Path(self.folder, "job.json")
        for k, says in ((DIM + 1, f"k {DIM + 1} is above the dimension {DIM}"), (0, "k 0 outside [1, 10000000]")):
            file.write_text(json.dumps(self.document(k=k)))
            done = subprocess.run([BIN / "tally", "simulate", file, *self.options], capture_output=True, text=True,
                                  check=False)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(says, done.stderr)


class Service(Ef21Case):
    def test_service_equals_simulation(self):
        coordinator = self.start_service()
        for algorithm in ({"k": 1}, {"k": 3, "compressor": "rand_k"}, {"k": DIM}):
            with self.subTest(**algorithm):
                self.run_job(coordinator, self.document(**algorithm))

    def test_what_cannot_be_is_refused(self):
        coordinator = self.start_coordinator()
        answer = coordinator.client.post_job(self.document() | {"cohort": 2})
        self.assert_problem(answer, 400, "cohort")
        answer = coordinator.client.post_job(self.document(k=DIM + 1))
        self.assert_problem(answer, 400, "algorithm.k")


if __name__ == "__main__":
    unittest.main()
