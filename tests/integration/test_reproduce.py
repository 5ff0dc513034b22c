"""`tally reproduce` as users and scripts call it: its JSON, seeds, threads and files.

TALLY_BIN is the folder of the programs. MNIST takes a minute, so it runs only if TALLY_DATA names the folder of its
files, as in tests/run bench.
"""

import csv
import json
import math
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
import xml.etree.ElementTree

from common import cpu_seconds, signal_once_caught, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
JOBS = ROOT / "deploy/jobs"
FRONTIER = ROOT / "tests/bench/frontier.py"
TALLY = str(pathlib.Path(os.environ.get("TALLY_BIN", "build/dev/bin")).resolve() / "tally")
PATIENCE_S = 1200
FORMULA = {"minibatch_sgd": (38400, 38400), "fedavg": (19200, 19200), "fedpaq": (2440, 19200),
           "fedcom": (2440, 19200)}


def job_name(experiment, row):
    """Returns the name of a row's file in deploy/jobs and below --out."""
    ending = f"-{row['preset']}"
    if row["tuned"]:
        ending = "-tuned" if row["algorithm"] == "ceal" else ""
    return f"{experiment}-{row['algorithm']}{ending}.json".replace("_", "-")


CALM = "half_bits", "paper_bits", "low_regret", "auto"


class ReproduceCase(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tally-test-")
        self.addCleanup(folder.cleanup)
        self.cwd = pathlib.Path(folder.name)
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith("TALLY_")}

    def reproduce(self, *words, exit_code=0, **changes):
        done = subprocess.run([TALLY, "reproduce", *words], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, cwd=self.cwd, timeout=PATIENCE_S,
                              env={**self.environment, **changes}, check=False)
        self.assertEqual(done.returncode, exit_code, done.stderr)
        return done

    def rows(self, *words):
        return json.loads(self.reproduce(*words, "--json").stdout)["rows"]

    def check_jobs(self, experiment, *words):
        """--out writes one file per row, equal to the file of that name in deploy/jobs. test_shipped.c checks that
        deploy/jobs contains no others."""
        out = self.cwd / experiment
        rows = self.rows(*words, "--seeds", "1", "--no-grid", "--out", str(out))
        names = {job_name(experiment, row) for row in rows}
        self.assertEqual({path.name for path in (out / "jobs").iterdir()}, names)
        for name in names:
            with self.subTest(name):
                self.assertEqual(json.loads((out / "jobs" / name).read_text()),
                                 json.loads((JOBS / name).read_text()))
        return rows


class Json(ReproduceCase):
    def test_has_the_schema_and_the_bits_of_table_1(self):
        done = self.reproduce("synthetic", "--runs", "3", "--no-grid", "--json")
        result = json.loads(done.stdout)
        self.assertEqual(list(result), ["experiment", "seeds", "rows"])
        self.assertEqual((result["experiment"], result["seeds"]), ("synthetic", [1, 2, 3]))
        for row in result["rows"]:
            self.assertEqual(set(row), {"algorithm", "preset", "step_size", "tuned", "regret",
                                        "planned_regret", "uplink", "downlink", "paper"})
            self.assertEqual(set(row["regret"]), {"mean", "std"})
            for direction in ("uplink", "downlink"):
                self.assertEqual(set(row[direction]), {"formula", "payload", "control", "entropy_payload"})
            self.assertEqual(set(row["paper"]), {"uplink", "downlink"})
            self.assertIs(row["tuned"], False)
            if "compressed" in row["preset"]:
                for direction in ("uplink", "downlink"):
                    self.assertLess(row[direction]["payload"], 19200 / 6)
                    self.assertEqual(row["paper"][direction], 19200)  # of FedAvg
            elif row["preset"] == "scheduled":  # at most as many rounds as in the paper
                self.assertLessEqual(row["downlink"]["formula"], 19200)
            elif row["algorithm"] in FORMULA:
                self.assertEqual((row["uplink"]["formula"], row["downlink"]["formula"]),
                                 FORMULA[row["algorithm"]])
                self.assertEqual((row["paper"]["uplink"], row["paper"]["downlink"]),
                                 FORMULA[row["algorithm"]])
        names = [(row["algorithm"], row["preset"]) for row in result["rows"]]
        self.assertEqual(names, [*((name, "paper") for name in FORMULA), ("fedavg", "scheduled"),
                                 ("fedpaq", "scheduled"), ("fedavg", "compressed"), ("fedavg", "scheduled_compressed"),
                                 ("ceal", "paper"),
                                 ("ceal", "paper_bits"), ("ceal", "low_regret"), *(("calm", name) for name in CALM)])
        for row in result["rows"]:
            is_planned = row["algorithm"] == "calm" and row["preset"] != "auto"
            self.assertEqual(row["planned_regret"] is not None, is_planned, row["preset"])

    def test_compression_costs_no_regret(self):
        """Over ten seeds, at most a twentieth more than the row with the same constants and float32 messages."""
        for reading in "loud", "quiet":
            rows = self.rows("synthetic", "--reading", reading, "--seeds", "1-10",
                             "--preset", "tuned,scheduled,compressed,scheduled_compressed")
            regret = {row["preset"]: row["regret"]["mean"] for row in rows if row["algorithm"] == "fedavg"}
            self.assertLess(regret["compressed"], 1.05 * regret["tuned"])
            self.assertLess(regret["scheduled_compressed"], 1.05 * regret["scheduled"])

    def test_entropy_leaves_floats_alone_and_shrinks_qsgd(self):
        for row in self.rows("synthetic", "--runs", "2", "--no-grid", "--preset", "paper"):
            uplink, downlink = row["uplink"], row["downlink"]
            if row["algorithm"] in ("fedpaq", "fedcom"):
                self.assertLess(uplink["entropy_payload"], uplink["payload"])
            if row["algorithm"] != "ceal":
                self.assertEqual(downlink["entropy_payload"], downlink["payload"])

    def test_paper_step_sizes(self):
        steps = {row["algorithm"]: row["step_size"]
                 for row in self.rows("synthetic", "--runs", "1", "--no-grid", "--preset", "paper")}
        self.assertEqual(steps, {"minibatch_sgd": 1, "fedavg": 0.1, "fedpaq": 0.1, "fedcom": 0.002,
                                 "ceal": 2})

    def test_grid_goes_to_stderr_and_tuned_rows_are_no_worse(self):
        done = self.reproduce("synthetic", "--seeds", "7-8", "--json")
        rows = json.loads(done.stdout)["rows"]
        self.assertIn("Grid of step sizes, mean regret over seeds 7-8", done.stderr)
        own = {row["algorithm"]: row["regret"]["mean"] for row in rows if row["preset"] == "paper"}
        tuned = {row["algorithm"]: row["regret"]["mean"] for row in rows if row["tuned"]}
        self.assertEqual(set(own), set(tuned))
        for algorithm, regret in tuned.items():
            self.assertLessEqual(regret, own[algorithm])
            self.assertIn(f"  {algorithm}\n", done.stderr)


class Same(ReproduceCase):
    def test_threads_do_not_matter(self):
        outputs = {self.reproduce("synthetic", "--runs", "3", "--json", "--threads", threads).stdout
                   for threads in ("1", "2", "5")}
        self.assertEqual(len(outputs), 1)

    def test_seeds_are_what_simulate_runs(self):
        out = self.cwd / "out"
        rows = self.rows("synthetic", "--seeds", "42", "--no-grid", "--out", str(out))
        for row in rows:
            path = out / "jobs" / job_name("synthetic", row)
            job = json.loads(path.read_text())
            self.assertEqual(job["seed"], 42)
            done = subprocess.run([TALLY, "simulate", str(path), "--json"], capture_output=True,
                                  env=self.environment, timeout=PATIENCE_S, check=True)
            detail = json.loads(done.stdout)
            self.assertEqual(detail["cumulative_regret"], row["regret"]["mean"])
            self.assertEqual(detail["bits"]["uplink_per_client"]["payload"],
                             row["uplink"]["payload"])
            self.assertEqual(detail["bits"]["downlink"]["formula"], row["downlink"]["formula"])
            self.assertEqual(detail["bits"]["downlink"]["payload"], row["downlink"]["payload"])
            control = row["downlink"]["control"] + job["clients"] * row["uplink"]["control"]
            self.assertAlmostEqual(detail["bits"]["control"], control, 6)
            for direction in ("uplink", "downlink"):
                budget = job["budget"][f"{direction}_bits"] if "budget" in job else 0
                bits = row[direction]["payload"] + row[direction]["control"]
                self.assertTrue(budget == 0 or 0 < bits <= budget, (row["preset"], direction, bits))
            if row["planned_regret"] is not None:
                words = [TALLY, "plan", str(path), "--json"]
                done = subprocess.run(words, capture_output=True, env=self.environment, timeout=PATIENCE_S, check=True)
                self.assertEqual(row["planned_regret"], json.loads(done.stdout)["plans"][0]["regret"])
                self.assertEqual(row["planned_regret"], detail["planned"]["regret"])

    def test_seeds_and_readings_matter(self):
        def regret(*words):
            return self.rows("synthetic", "--no-grid", "--preset", "paper", *words)[0]["regret"]

        base = regret("--seeds", "1-2")
        self.assertEqual(base, regret("--runs", "2"))
        self.assertEqual(base, regret("--runs", "2", "--reading", "loud", "--radius", "2"))
        for other in (("--seeds", "3-4"), ("--runs", "2", "--reading", "quiet"),
                      ("--runs", "2", "--radius", "1")):
            self.assertNotEqual(base, regret(*other))
        self.assertEqual(regret("--runs", "2", "--reading", "quiet"),
                         regret("--runs", "2", "--reading", "quiet", "--radius", "1"))


class Table(ReproduceCase):
    def test_names_every_row_and_the_estimate(self):
        done = self.reproduce("synthetic", "--runs", "2")
        self.assertTrue(done.stdout.startswith("Grid of step sizes"), done.stdout[:200])
        self.assertIn("synthetic, loud reading, start radius 2, seeds 1-2", done.stdout)
        self.assertIn("entropy (est.)", done.stdout)
        self.assertEqual(done.stderr, "")
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 120)
        rows = [line.split()[:2] for line in done.stdout.splitlines()]
        for algorithm in (*FORMULA, "ceal"):
            self.assertIn([algorithm, "paper"], rows)
            self.assertIn([algorithm, "tuned"], rows)
        for preset in CALM:
            self.assertIn(["calm", preset], rows)

    def test_progress_has_the_time_left_on_a_terminal(self):
        primary, secondary = pty.openpty()
        with subprocess.Popen([TALLY, "reproduce", "synthetic", "--runs", "60", "--json"],
                              stdout=subprocess.DEVNULL, stderr=secondary, cwd=self.cwd,
                              env={**self.environment, "COLUMNS": "100"}) as child:
            os.close(secondary)
            seen = b""
            try:
                while b"%" not in seen or b"left" not in seen:
                    more = os.read(primary, 4096)
                    if not more:
                        break
                    seen += more
            except OSError:
                pass  # the other end has been closed
            child.kill()  # the rest takes a minute under sanitizers and would show nothing new
        os.close(primary)
        self.assertIn(b"%", seen)
        self.assertIn(b"left", seen)

    def test_a_run_on_a_terminal_ends_well(self):
        primary, secondary = pty.openpty()
        self.addCleanup(os.close, primary)
        with open(secondary, "wb") as terminal:
            done = subprocess.run([TALLY, "reproduce", "synthetic", "--runs", "1", "--no-grid", "--json"],
                                  stdout=subprocess.DEVNULL, stderr=terminal, cwd=self.cwd, timeout=PATIENCE_S,
                                  env={**self.environment, "COLUMNS": "100"}, check=False)
        self.assertEqual(done.returncode, 0)


class Files(ReproduceCase):
    def test_out_has_numbers_scripts_and_pictures(self):
        out = self.cwd / "out"
        self.reproduce("synthetic", "--runs", "2", "--out", str(out))
        with open(out / "rows.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        result = json.loads((out / "result.json").read_text())["rows"]
        self.assertEqual([row["algorithm"] for row in rows], [row["algorithm"] for row in result])
        for row, expected in zip(rows, result):
            self.assertAlmostEqual(float(row["regret_mean"]) / expected["regret"]["mean"], 1, 9)
        with open(out / "curves.csv", newline="") as file:
            curves = list(csv.reader(file))
        self.assertEqual(len(curves[0]), 1 + 2 * len(rows))
        self.assertEqual([float(curves[1][0]), float(curves[-1][0])], [0, 2000])
        self.assertAlmostEqual(float(curves[-1][1]) / result[0]["regret"]["mean"], 1, 6)
        with open(out / "grids.csv", newline="") as file:
            best = [row for row in csv.DictReader(file) if row["best"] == "1"]
        self.assertEqual(len(best), 5)
        if shutil.which("gnuplot"):
            for name in ("regret", "bits"):
                root = xml.etree.ElementTree.parse(out / f"{name}.svg").getroot()
                self.assertTrue(root.tag.endswith("svg"))
                self.assertEqual((out / f"{name}.png").read_bytes()[:8], b"\x89PNG\r\n\x1a\n")

    def test_without_gnuplot_it_says_so(self):
        out = self.cwd / "out"
        done = self.reproduce("synthetic", "--runs", "1", "--no-grid", "--out", str(out),
                              PATH="/nonexistent")
        self.assertIn("gnuplot", done.stderr)
        self.assertTrue((out / "regret.gnuplot").exists())
        self.assertFalse((out / "regret.svg").exists())

    def test_jobs_are_those_of_deploy(self):
        for reading, experiment in (("loud", "synthetic"), ("quiet", "synthetic-quiet")):
            self.assertEqual(
                len(self.check_jobs(experiment, "synthetic", "--reading", reading)), 15)


class Refusals(ReproduceCase):
    def refused(self, *words):
        done = self.reproduce(*words, exit_code=2)
        self.assertEqual(done.stdout, "")
        return done.stderr

    def test_name_what_is_wrong(self):
        for words, part in ((("cifar",), "synthetic, mnist or logistic"),
                            (("synthetic", "--seeds", "9-3"), "--seeds"),
                            (("synthetic", "--seeds", "1-3", "--runs", "4"), "--seeds"),
                            (("synthetic", "--runs", "0"), "--runs"),
                            (("synthetic", "--reading", "silent"), "--reading"),
                            (("synthetic", "--radius", "-1"), "--radius"),
                            (("synthetic", "--threads", "0"), "--threads"),
                            (("synthetic", "--preset", "best"), "paper, scheduled, compressed, "
                                                                    "scheduled_compressed, paper_bits, low_regret, half_bits, auto, tuned"),
                            (("mnist", "--preset", "half_bits"), "paper, compressed, paper_bits, paper_regret, low_regret, auto, tuned"),
                            (("mnist", "--frontier"), "--frontier"),
                            (("synthetic", "--out", "/dev/null"), "/dev/null"),
                            (("synthetic", "--preset", "tuned", "--no-grid"), "no row is left"),
                            (("mnist", "--data-dir", "/nonexistent"), "/nonexistent"),
                            (("mnist",), "deploy/fetch-mnist"),
                            (("mnist",), "--data-dir")):
            self.assertIn(part, self.refused(*words), words)

    def test_a_signal_ends_it(self):
        with subprocess.Popen([TALLY, "reproduce", "synthetic", "--frontier"], cwd=self.cwd,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=self.environment) as child:
            wait_until(lambda: cpu_seconds(child) > 0.2, "the frontier to be computed")
            signal_once_caught(child, signal.SIGINT)
            out, err = child.communicate(timeout=PATIENCE_S)
        self.assertEqual((child.returncode, out, err), (130, b"", b""))


class Frontier(unittest.TestCase):
    """Runs tests/bench/frontier.py on made-up points; computing real ones takes a minute per seed."""
    HEAD = ("reading,radius,algorithm,step_size,local_steps,sample_scale,first_stage,gamma0,phi0,gradient_bound,"
            "sigma,regret_mean,regret_std,uplink_formula,downlink_formula,uplink_entropy_payload,"
            "downlink_entropy_payload,on_front,uplink_bits,downlink_bits,uplink_budget,downlink_budget,step_decay,"
            "local_steps_growth,server_step_size,beta1,mu,levels,k\n")
    POINTS = ("loud,1,ceal,2,,0.1,3,1.5,2,1,4.47,50,5,260,280,260,280,1,260,280,,\n"
              "loud,1,ceal,2,,0.1,3,1.5,2,1,4.47,40,4,264,280,260,280,1,264,280,,\n"
              "loud,1,ceal,2,,0.1,3,1.5,2,1,4.47,30,3,640,651,260,280,1,640,651,,\n"
              # CALM's limit applies to the bits that it sends, not to those of the formula.
              "loud,1,calm,3,,,,,,,,20,2,100,100,270,280,1,270,288,300,310\n"
              "loud,1,calm,3,,,,,,,,25,2,900,900,260,260,1,260,280,,\n"
              "quiet,3,fedavg,0.1,100,,,,,,,237.94,31.7,19200,19200,19200,19200,1,19200,19200,,\n"
              # Schedules are a family of their own; for FedPAQ in that family, the limit applies to the entropy-coded
              # bits.
              "quiet,3,fedavg,0.1,4,,,,,,,90,9,9600,9600,9600,9600,1,9600,9600,,,0.01,0.3\n"
              "quiet,3,fedpaq,0.1,4,,,,,,,99,9,1220,9600,800,9600,1,1220,9600,,,0,0.3\n"
              # Algorithms that are not in the paper have additional constants.
              "loud,1,fedadam,0.1,100,,,,,,,80,9,19200,19200,19200,19200,1,19200,19200,,,,,0.03,0.3,,,\n"
              "loud,1,ef21,1.5,50,,,,,,,70,9,7400,38400,7144,38400,1,7400,38400,,,,,,,,,5\n"
              "loud,1,ef21_rand_k,0.5,50,,,,,,,75,9,6400,38400,6400,38400,1,6400,38400,,,,,,,,,5\n" +
              "".join(f"{reading},{radius},fedpaq,0.1,100,,,,,,,500,1,2440,19200,2440,19200,1,2440,19200,,\n"
                      for reading in ("loud", "quiet") for radius in (1, 2, 3)))
    LIMIT = {"reading": "loud", "radius": 1, "uplink_bits": 100, "downlink_bits": 150, "ideal_regret": 40,
             "shared_regret": 12.5}

    def test_table_and_picture(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "frontier.csv").write_text(self.HEAD + self.POINTS)
            (folder / "frontier.json").write_text(json.dumps({"seeds": [3, 4], "limits": [self.LIMIT]}))
            done = subprocess.run([FRONTIER, folder], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
            title, blank, heads, *rows = done.stdout.splitlines()
            self.assertIn("seeds 3-4, 17 points", title)
            self.assertEqual(len(rows), 6 * 20)
            cells = {tuple(row[:4]): row[4:] for row in (re.split("  +", line.strip()) for line in rows)}
            # The bits of Table I limit uplink and downlink separately.
            self.assertEqual(cells["loud", "1", "CEAL", "263.3 / 288.6"][:4], ["50.0", "5.0", "260.0", "280.0"])
            self.assertEqual(cells["loud", "1", "CEAL", "650 / 650"][0], "40.0")
            self.assertEqual(cells["loud", "1", "CEAL", "any"],
                             ["30.0", "3.0", "640.0", "651.0", "eta 2, c 0.1, j0 3, gamma0 1.5, phi0 2, L 1"])
            self.assertEqual(cells["quiet", "3", "FedAvg", "any"],
                             ["237.9", "31.7", "19200.0", "19200.0", "eta 0.1, K 100"])
            self.assertEqual(cells["quiet", "1", "FedAvg", "any"], ["none"])
            self.assertEqual(cells["loud", "1", "FedAdam", "any"],
                             ["80.0", "9.0", "19200.0", "19200.0", "eta 0.1, K 100, S 0.03, beta1 0.3"])
            self.assertEqual(cells["loud", "1", "EF21, Top-k", "any"],
                             ["70.0", "9.0", "7400.0", "38400.0", "eta 1.5, K 50, k 5"])
            self.assertEqual(cells["loud", "1", "EF21, Rand-k", "any"][0], "75.0")
            self.assertEqual(cells["quiet", "3", "FedAvg, scheduled", "any"],
                             ["90.0", "9.0", "9600.0", "9600.0", "eta 0.1, K 4 + 0.3 t, decay 0.01"])
            self.assertEqual(cells["quiet", "3", "FedPAQ, scheduled, entropy-coded", "any"][2:4], ["800.0", "9600.0"])
            fronts = [line for line in (folder / "points.csv").read_text().splitlines() if line.startswith("loud,1,c")]
            self.assertEqual(fronts, ["loud,1,calm,540,25,1", "loud,1,ceal,540,50,1", "loud,1,ceal,544,40,1",
                                      "loud,1,calm,558,20,1", "loud,1,ceal,1291,30,1"])
            self.assertEqual(cells["loud", "1", "CALM", "263.3 / 288.6"], ["25.0", "2.0", "260.0", "280.0", "auto"])
            self.assertEqual(cells["loud", "1", "CALM", "650 / 650"],
                             ["20.0", "2.0", "270.0", "288.0", "budget 300 / 310"])
            self.assertEqual((folder / "limits.csv").read_text().splitlines()[1:], ["loud,1,250,40,12.5"])
            if shutil.which("gnuplot"):
                picture = (folder / "frontier.svg").read_text()
                for title in ("FedPAQ", "CALM", "ideal rates (computed)", "every query shared (computed)"):
                    self.assertIn(title, picture)
                self.assertTrue((folder / "frontier.png").read_bytes().startswith(b"\x89PNG"))


@unittest.skipUnless(os.environ.get("TALLY_DATA"), "TALLY_DATA names no folder with MNIST")
class Mnist(ReproduceCase):
    def test_bits_regret_and_jobs(self):
        formula = {"minibatch_sgd": (5017600, 5017600), "fedavg": (5017600, 5017600),
                   "fedpaq": (627840, 5017600), "fedcom": (627840, 5017600)}
        best = math.inf
        for row in self.check_jobs("mnist", "mnist", "--data-dir", os.environ["TALLY_DATA"]):
            if row["algorithm"] in formula:
                self.assertEqual((row["uplink"]["formula"], row["downlink"]["formula"]),
                                 formula[row["algorithm"]])
                best = min(best, row["regret"]["mean"])
            elif row["preset"] == "paper_bits":
                ceal = row
            elif row["preset"] == "low_regret":
                calm = row
            elif row["preset"] == "paper_regret":
                cheap = row
        self.assertLessEqual(ceal["uplink"]["formula"], 110_000)
        self.assertLessEqual(ceal["downlink"]["formula"], 260_000)
        # `best` comes from one run at the paper's step sizes; tuning on the grid would lower it by 2 %
        # (services/experiment/README.md).
        self.assertLess(ceal["regret"]["mean"], 0.55 * 0.95 * best)
        self.assertLess(calm["regret"]["mean"], 0.3 * best)
        self.assertLessEqual(cheap["regret"]["mean"], ceal["regret"]["mean"])
        self.assertLess(cheap["uplink"]["payload"], ceal["uplink"]["entropy_payload"] / 7)
        self.assertLess(cheap["downlink"]["payload"], ceal["downlink"]["formula"] / 3.8)
        self.assertLessEqual(calm["uplink"]["payload"] + calm["uplink"]["control"], 31_000)
        self.assertLessEqual(calm["downlink"]["payload"] + calm["downlink"]["control"], 57_000)


if __name__ == "__main__":
    unittest.main()
