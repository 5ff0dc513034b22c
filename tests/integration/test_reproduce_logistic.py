"""`tally reproduce logistic`: its data, JSON and files, and that its rows equal the results of jobs.

TALLY_BIN is the folder of the programs. The data come from deploy/fetch-logistic. The test runs the two smallest data
sets; the image sets take minutes and are left to manual runs.
"""

import csv
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree

from common import IS_SANITIZED

ROOT = pathlib.Path(__file__).resolve().parents[2]
TALLY = str(pathlib.Path(os.environ.get("TALLY_BIN", "build/dev/bin")).resolve() / "tally")
PATIENCE_S = 1200
ALGORITHMS = "minibatch_sgd", "fedavg", "diana", "ef21", "ceal", "calm", "fedavg_compressed"
CLIENTS = 20
DIM = {"wine": 3 * 14, "heart_scale": 14}  # classes x features, each with a bias
if IS_SANITIZED:  # it takes minutes; its loss and its loader run in other tests
    del DIM["wine"]
HORIZON = 4000


def run(*words, exit_code=0):
    done = subprocess.run([TALLY, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          timeout=PATIENCE_S, check=False)
    if done.returncode != exit_code:
        raise AssertionError(f"{words}: exit {done.returncode}: {done.stderr}")
    return done


class Logistic(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="tally-test-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        fetched = subprocess.run([ROOT / "deploy/fetch-logistic", "--no-fashion", "--dir", cls.folder],
                                 capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        if fetched.returncode != 0:
            raise AssertionError(fetched.stderr)
        cls.out = cls.folder / "out"
        done = run("reproduce", "logistic", "--set", ",".join(DIM), "--seeds", "3-3", "--data-dir", str(cls.folder),
                   "--out", str(cls.out), "--json")
        cls.result = json.loads(done.stdout)
        cls.rows = {(row["set"], row["gradients"], row["algorithm"]): row for row in cls.result["rows"]}
        with open(cls.out / "logistic-curves.csv", encoding="ascii") as file:
            cls.points = list(csv.DictReader(line for line in file if line.strip()))

    def curve(self, key):
        return [point for point in self.points
                if (point["set"], point["gradients"], point["algorithm"]) == key]

    def test_has_every_set_with_every_kind_of_gradient_and_method(self):
        self.assertEqual(self.result["experiment"], "logistic")
        self.assertEqual({each["name"]: each["dim"] for each in self.result["sets"]}, DIM)
        self.assertEqual(set(self.rows), {(name, gradients, algorithm) for name in DIM
                                          for gradients in ("exact", "stochastic") for algorithm in ALGORITHMS})
        for each in self.result["sets"]:
            self.assertAlmostEqual(each["strong_convexity"], 0.01, delta=1e-6)  # 2 l2, since the data are separable

    def test_exact_gradients_converge_and_pay_32_bits_a_number(self):
        for name, dim in DIM.items():
            row = self.rows[name, "exact", "minibatch_sgd"]
            self.assertLess(row["final_gap"], 1e-9)
            for price in row["prices"]:
                self.assertEqual(price["uplink_bits"] % (32 * dim), 0)
                self.assertEqual(price["uplink_bits"], price["downlink_bits"])
            self.assertEqual([price["gap"] for price in row["prices"]], [1e-1, 1e-2, 1e-4, 1e-6])
            last = self.curve((name, "exact", "minibatch_sgd"))[-1]
            self.assertEqual((int(last["round"]), float(last["uplink_bits"])), (HORIZON, 32.0 * dim * HORIZON))
            noisy = self.rows[name, "stochastic", "minibatch_sgd"]
            self.assertGreater(noisy["final_gap"], 1e-6)

    def test_prices_are_those_of_the_curve(self):
        for key, row in self.rows.items():
            for price in row["prices"]:
                if price["step_size"] == row["step_size"]:
                    first = next(point for point in self.curve(key) if float(point["gap"]) <= price["gap"])
                    self.assertAlmostEqual(float(first["uplink_bits"]), price["uplink_bits"], delta=1e-6 * price["uplink_bits"])

    def test_a_row_is_the_job_that_it_left(self):
        for key, row in self.rows.items():
            name = "logistic-" + "-".join(key)
            document = json.loads((self.out / "jobs" / f"{name}.json").read_text())
            self.assertEqual((document["clients"], document["horizon"], document["seed"]), (CLIENTS, HORIZON, 3))
            self.assertEqual(document["minibatch"], 0 if key[1] == "exact" else 2)
            if key[0] != next(iter(DIM)):
                continue  # one data set is enough
            detail = json.loads(run("simulate", str(self.out / "jobs" / f"{name}.json"), "--data-dir", str(self.folder),
                                    "--json").stdout)
            last, bits = self.curve(key)[-1], detail["bits"]
            self.assertAlmostEqual(float(last["uplink_bits"]), bits["uplink"]["payload"] / CLIENTS, delta=1e-3)
            self.assertAlmostEqual(float(last["downlink_bits"]), bits["downlink"]["payload"] + bits["control"], delta=1e-3)
            self.assertEqual(int(last["round"]), detail["round"] - (detail["status"] == "running"))
            self.assertEqual(document["algorithm"]["step_size"], row["step_size"])

    def test_pictures_are_drawn(self):
        if shutil.which("gnuplot") is None:
            self.skipTest("gnuplot is not installed")
        root = xml.etree.ElementTree.parse(self.out / "logistic.svg").getroot()
        words = {text.text for text in root.iter("{http://www.w3.org/2000/svg}text") if text.text}
        words |= {"".join(text.itertext()).strip() for text in root.iter("{http://www.w3.org/2000/svg}text")}
        for name in DIM:
            self.assertIn(f"{name}, exact gradients", words)
        self.assertGreater((self.out / "logistic.png").stat().st_size, 10000)

    def test_table_has_the_numbers(self):
        text = run("reproduce", "logistic", "--set", "heart_scale", "--seeds", "3-3", "--data-dir", str(self.folder)).stdout
        self.assertIn("heart_scale, d = 14, beta = ", text)
        self.assertNotIn("wine", text)
        price = self.rows["heart_scale", "exact", "minibatch_sgd"]["prices"][1]
        self.assertRegex(text, rf"exact +minibatch_sgd .* {price['uplink_bits']:.0f} +{price['downlink_bits']:.0f} ")

    def test_refusals_name_what_is_wrong(self):
        for words, message in ((("--set", "iris"), 'unknown set "iris"; choose wine, heart_scale, digits or fashion'),
                               (("--seeds", "1-2"), "logistic takes a single seed"),
                               (("--preset", "paper"), "not an option of logistic"),
                               (("--frontier",), "not an option of logistic"),
                               (("--data-dir", "/nowhere", "--set", "wine"), "deploy/fetch-logistic")):
            self.assertIn(message, run("reproduce", "logistic", *words, exit_code=2).stderr)
        self.assertIn("only logistic has sets", run("reproduce", "synthetic", "--set", "wine", exit_code=2).stderr)


if __name__ == "__main__":
    unittest.main()
