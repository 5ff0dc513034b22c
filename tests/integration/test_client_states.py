"""DIANA and SCAFFOLD, which keep a state per client at both the worker and the coordinator: results against the papers'
definitions in NumPy, and what such jobs refuse.
"""

import sys
import unittest

import numpy

from common import REPO, simulate
from test_algorithms import OnePointClients

sys.path.append(str(REPO / "tests/golden"))
import decoder  # noqa: E402: has its own Philox

UPLINK = 7  # purpose of a stream (codec/numeric/rng.h)
SEED = 5


def float32(x):
    return numpy.float32(x).astype(float)


def fixed_point_mean(vectors):
    """Returns the mean as the service computes it: sums are integer multiples of 2^-40."""
    return sum(numpy.rint(numpy.asarray(v) * 2.0**40) for v in vectors) / 2.0**40 / len(vectors)


def qsgd(vector, levels, client, round_number):
    """QSGD as defined in codec/quantize/qsgd.h, with the service's random words as dithers."""
    vector = float32(vector)
    exact = numpy.sqrt(sum(value * value for value in vector))
    norm = numpy.float32(exact)
    norm = float(numpy.nextafter(norm, numpy.float32(numpy.inf)) if norm < exact else norm)
    most = 2**32 - 1
    key = decoder.philox(10, [0, 0, 0, most], [SEED & most, SEED >> 32])[:2]
    words = [decoder.philox(7, [16 * (i // 64) + i % 16, client, round_number, UPLINK], key)[i // 16 % 4]
             for i in range(len(vector))]
    scaled = abs(vector) * (levels / norm if norm > 0 else 0)
    whole = numpy.floor(scaled)
    level = whole + (numpy.array(words) * 2.0**-32 < scaled - whole)
    return norm / levels * numpy.copysign(numpy.minimum(level, levels), vector)


class States(OnePointClients):
    ALGORITHM = {"step_size": 0.08, "local_steps": 3}
    HORIZON = 41  # the last round is cut after two steps
    OPTIMUM = numpy.linalg.lstsq(OnePointClients.POINTS, OnePointClients.LABELS, rcond=None)[0]

    def document(self, **algorithm):
        return {**super().document(**algorithm), "seed": SEED}

    def gradient(self, client, x):
        point = self.POINTS[client]
        return 2 * (point @ x - self.LABELS[client]) * point

    def simulated(self, **algorithm):
        return simulate(self.document(**algorithm), ("--data-dir", self.folder))

    def check_service(self, algorithms):
        self.options = ("--data-dir", self.folder)
        coordinator = self.start_service()
        for algorithm in algorithms:
            with self.subTest(**algorithm):
                self.run_job(coordinator, self.document(**algorithm))

    def check_refusal(self, field, says, **changes):
        coordinator = self.start_coordinator()
        answer = coordinator.client.post_job({**self.document(**self.KNOWN), **changes})
        self.assert_problem(answer, 400, field)
        self.assertIn(says, answer.json()["detail"])


class Diana(States):
    KNOWN = {"type": "diana", "levels": 2}
    THEORY = 1 / (1 + min(3 / 2**2, 3**0.5 / 2))

    def expected(self, levels, alpha):
        """Returns the final regret, and the squared norms of the differences sent in each round."""
        x, regret, squares = numpy.zeros(3), 0.0, []
        shifts = numpy.zeros((4, 3))
        for number in range(1, self.HORIZON // 3 + 1):
            regret += 4 * 3 * (self.loss(x) - self.loss(self.OPTIMUM))
            differences = [self.gradient(m, x) - shifts[m] for m in range(4)]
            sent = [qsgd(differences[m], levels, m, number) for m in range(4)]
            step = sum(shifts) / 4 + fixed_point_mean(sent)
            x = float32(x - 0.08 * step)
            shifts = float32(shifts + alpha * float32(sent))
            squares.append(numpy.mean(numpy.square(differences)))
        rest = self.HORIZON % 3
        return regret + 4 * rest * (self.loss(x) - self.loss(self.OPTIMUM)), squares

    def test_follows_its_definition(self):
        for levels, alpha in ((2, "auto"), (1, 0.3), (7, 1)):
            detail = self.simulated(type="diana", levels=levels, alpha=alpha)
            regret, _ = self.expected(levels, self.THEORY if alpha == "auto" else alpha)
            self.assertAlmostEqual(detail["cumulative_regret"] / regret, 1, delta=1e-11)
            rounds = self.HORIZON // 3
            self.assertEqual(detail["bits"]["uplink_per_client"]["payload"],
                             rounds * (32 + 3 * (1 + levels.bit_length())))
            self.assertEqual(detail["bits"]["downlink"]["payload"], rounds * 96)
            self.assertEqual(detail["bits"]["control"], rounds)

    def test_messages_vanish_though_the_clients_differ(self):
        """Shows the purpose of the method: without shifts, the quantized vectors would remain as long as the
        gradients."""
        self.HORIZON = 1800
        _, squares = self.expected(2, self.THEORY)
        self.assertLess(squares[-1], 1e-6 * squares[0])
        detail = self.simulated(**self.KNOWN)
        without = self.simulated(**self.KNOWN, alpha=1e-12)
        self.assertLess(detail["loss"] - detail["f_star"], 1e-6 * (without["loss"] - without["f_star"]))

    def test_service_equals_simulation(self):
        self.check_service([self.KNOWN, {"type": "diana", "levels": 9, "alpha": 0.5}])

    def test_needs_all_clients(self):
        self.check_refusal("cohort", "needs all 4 clients", cohort=2)


class Scaffold(States):
    KNOWN = {"type": "scaffold"}

    def expected(self, server_step_size, of_paper):
        """Returns the final regret. With `of_paper`, uses control variates as in Algorithm 1, in float64; otherwise the
        sums z of the clients' messages, with the service's rounding."""
        x, regret, done = numpy.zeros(3), 0.0, 0
        own, common, sums = numpy.zeros((4, 3)), numpy.zeros(3), numpy.zeros((4, 3))
        round_number = float32 if not of_paper else numpy.asarray
        while done < self.HORIZON:
            samples = min(3, self.HORIZON - done)
            sent = []
            for m in range(4):
                correction = common - own[m] if of_paper else (sums[m] - x) / (server_step_size * 3 * 0.08)
                y = x.copy()
                for _ in range(samples):
                    regret += self.loss(y) - self.loss(self.OPTIMUM)
                    y -= 0.08 * (self.gradient(m, y) + correction)
                sent.append(round_number(y - x))
            done += samples
            if samples < 3:
                break
            changes = [-common - difference / (3 * 0.08) for difference in sent]
            own, common = own + changes, common + sum(changes) / 4
            sums = round_number(sums + server_step_size * numpy.array(sent))
            x = x + server_step_size * sum(sent) / 4 if of_paper else float32(sum(sums) / 4)
        return regret

    def test_follows_its_definition(self):
        for server_step_size in (1, 0.6, 1.5):
            detail = self.simulated(type="scaffold", server_step_size=server_step_size)
            regret = detail["cumulative_regret"]
            self.assertAlmostEqual(regret / self.expected(server_step_size, True), 1, delta=1e-6)
            self.assertAlmostEqual(regret / self.expected(server_step_size, False), 1, delta=1e-11)
            bits = 32 * 3 * (self.HORIZON // 3)
            self.assertEqual(detail["bits"]["uplink_per_client"]["payload"], bits)
            self.assertEqual(detail["bits"]["downlink"]["payload"], bits)
            self.assertEqual(detail["bits"]["control"], 0)

    def test_drift_vanishes_though_the_clients_differ(self):
        self.HORIZON = 1800
        scaffold, fedavg = (self.simulated(type=name) for name in ("scaffold", "fedavg"))
        self.assertEqual(scaffold["bits"], fedavg["bits"])
        self.assertLess(scaffold["loss"] - scaffold["f_star"], 1e-6 * (fedavg["loss"] - fedavg["f_star"]))

    def test_service_equals_simulation(self):
        self.check_service([self.KNOWN, {"type": "scaffold", "server_step_size": 1.5}])

    def test_needs_every_message(self):
        self.check_refusal("quorum", "needs the message of every client", quorum=3)

    def test_needs_every_message_of_a_policy_that_drops(self):
        self.check_refusal("policy", "policy drop closes rounds without all clients", policy="drop")

    def test_needs_all_clients(self):
        self.check_refusal("cohort", "needs all 4 clients", cohort=0.5)

    def test_takes_no_domain(self):
        self.check_refusal("domain", "takes no domain", domain={"type": "ball", "radius": 1})


if __name__ == "__main__":
    unittest.main()
