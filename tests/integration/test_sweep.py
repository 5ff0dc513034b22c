"""`tally sweep` as users and scripts call it: its table, JSON, files, plan, errors, and its cost."""

import csv
import html.parser
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
import unittest

from common import BIN, IS_SANITIZED, JOBS, REPO, TallyTestCase, wait_until

TALLY = str(BIN / "tally")
PATIENCE_S = 1200
FEDAVG = str(JOBS / "synthetic-fedavg.json")
STEPS = [0.002, 0.0134, 0.05]


class Outline(html.parser.HTMLParser):
    """The tags and attributes of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes = [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs


class SweepCase(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tally-test-")
        self.addCleanup(folder.cleanup)
        self.cwd = pathlib.Path(folder.name)
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("TALLY_")}

    def write(self, document, name="sweep.json"):
        (self.cwd / name).write_text(json.dumps(document))
        return name

    def tally(self, *words, exit_code=0, stdin=None):
        done = subprocess.run([TALLY, *words], capture_output=True, text=True, input=stdin, cwd=self.cwd,
                              timeout=PATIENCE_S, env=self.environment, check=False)
        self.assertEqual(done.returncode, exit_code, done.stderr)
        return done

    def sweep(self, document, *words, exit_code=0):
        return self.tally("sweep", self.write(document), *words, exit_code=exit_code)

    def result(self, document, *words):
        return json.loads(self.sweep(document, "--json", *words).stdout)

    def simulate(self, document, name="job.json"):
        return json.loads(self.tally("simulate", self.write(document, name), "--json").stdout)


def with_step(step, seed):
    document = json.loads(pathlib.Path(FEDAVG).read_text())
    document["algorithm"]["step_size"] = step
    return {**document, "seed": seed}


class Results(SweepCase):
    DOCUMENT = {"name": "steps", "base": FEDAVG, "grid": {"algorithm.step_size": STEPS}, "seeds": "101-103"}

    def test_every_run_is_that_of_simulate(self):
        self.sweep(self.DOCUMENT, "--out", "out", "--threads", "3")
        with open(self.cwd / "out/runs.csv", encoding="utf-8") as file:
            runs = list(csv.DictReader(file))
        self.assertEqual(len(runs), 9)
        for run in runs:
            detail = self.simulate(with_step(float(run["algorithm.step_size"]), int(run["seed"])))
            self.assertAlmostEqual(float(run["regret"]) / detail["cumulative_regret"], 1, places=11)
            self.assertEqual(int(run["rounds"]), detail["round"])

    def test_json_has_means_and_spread_over_seeds(self):
        result = self.result(self.DOCUMENT)
        self.assertEqual((result["name"], result["seeds"], result["by"]), ("steps", [101, 102, 103], "regret"))
        self.assertEqual([row["members"] for row in result["rows"]], [{"algorithm.step_size": step} for step in STEPS])
        regrets = [self.simulate(with_step(STEPS[1], seed))["cumulative_regret"] for seed in (101, 102, 103)]
        summary = result["rows"][1]["results"]["regret"]
        self.assertAlmostEqual(summary["mean"], statistics.fmean(regrets), places=6)
        self.assertAlmostEqual(summary["std"], statistics.stdev(regrets), places=6)
        self.assertEqual((summary["min"], summary["max"]), (min(regrets), max(regrets)))
        self.assertEqual(result["best"]["row"], 2)
        self.assertEqual(result["best"]["document"], with_step(STEPS[1], 101))

    def test_table_and_best_document_go_to_stdout(self):
        done = self.sweep(self.DOCUMENT)
        table, document = done.stdout.split("\nThe best job document:\n")
        self.assertEqual(json.loads(document), with_step(STEPS[1], 101))
        self.assertRegex(table, r"(?m)^2\* +0\.0134 +\d+(\.\d+)? +\d+(\.\d+)? +19200 +19200$")
        self.assertIn("Means over 3 seeds, 101-103", table)
        self.assertRegex(done.stderr, r"3 rows, 3 seeds: 9 runs, (less than a second|about \d+ (s|min)) on \d+ thread")

    def test_best_alone_can_be_piped(self):
        done = self.sweep(self.DOCUMENT, "--best")
        self.assertEqual(json.loads(done.stdout), with_step(STEPS[1], 101))
        self.assertIn("2*", done.stderr)
        piped = self.tally("simulate", "-", "--json", stdin=done.stdout)
        self.assertEqual(json.loads(piped.stdout)["status"], "completed")

    def test_seeds_option_replaces_the_seeds(self):
        self.assertEqual(self.result(self.DOCUMENT, "--seeds", "7")["seeds"], [7])
        done = self.tally("sweep", "sweep.json", "--seeds", "7-", exit_code=2)
        self.assertIn("seeds", done.stderr)

    def test_bases_are_relative_to_the_document(self):
        (self.cwd / "below/jobs").mkdir(parents=True)
        shutil.copy(FEDAVG, self.cwd / "below/jobs/job.json")
        self.write({"base": "jobs/job.json"}, "below/sweep.json")
        self.assertEqual(len(json.loads(self.tally("sweep", "below/sweep.json", "--json").stdout)["rows"]), 1)
        inline = json.dumps({"base": with_step(0.01, 3)})
        result = json.loads(self.tally("sweep", "-", "--json", stdin=inline).stdout)
        self.assertEqual(result["best"]["document"]["seed"], 3)

    def test_tuned_rows_are_those_of_reproduce(self):
        """The table of the paper from a document: the same step sizes and regrets."""
        powers = {"around": 0.1, "factor": 1.25, "first": -14, "last": 3, "widen": True}
        reproduced = json.loads(self.tally("reproduce", "synthetic", "--seeds", "101-104", "--preset", "paper,tuned",
                                           "--json").stdout)["rows"]
        wanted = {row["preset"]: row for row in reproduced if row["algorithm"] == "fedavg"}
        rows = self.result({"base": FEDAVG, "seeds": "101-104", "rows": [
            {"name": "paper", "set": {"algorithm.step_size": 0.1}},
            {"name": "tuned", "tune": {"algorithm.step_size": powers}}]})["rows"]
        for row in rows:
            with self.subTest(row["name"]):
                other = wanted[row["name"]]
                self.assertEqual(row["members"]["algorithm.step_size"], other["step_size"])
                self.assertEqual(row["results"]["regret"]["mean"], other["regret"]["mean"])
                self.assertEqual(row["results"]["regret"]["std"], other["regret"]["std"])
                self.assertEqual(row["results"]["uplink_formula_bits"]["mean"], other["uplink"]["formula"])


class Paper(SweepCase):
    """The files of deploy/experiments, and their bases, are those that `tally reproduce` has in it."""

    def check(self, name, *words):
        rows = json.loads(self.tally("sweep", str(REPO / "deploy/experiments" / name), "--seeds", "101-102",
                                     "--json").stdout)["rows"]
        wanted = json.loads(self.tally("reproduce", *words, "--seeds", "101-102", "--json").stdout)["rows"]
        self.assertEqual([row["name"] for row in rows], [f"{row['algorithm']} {row['preset']}" for row in wanted])
        for row, other in zip(rows, wanted):
            with self.subTest(row["name"]):
                results = row["results"]
                step = row["members"].get("algorithm.step_size", other["step_size"])
                self.assertEqual(step, other["step_size"])
                self.assertEqual({key: results["regret"][key] for key in ("mean", "std")}, other["regret"])
                for direction in ("uplink", "downlink"):
                    self.assertEqual(results[f"{direction}_formula_bits"]["mean"], other[direction]["formula"])
                    self.assertEqual(results[f"{direction}_bits"]["mean"], other[direction]["payload"])
                self.assertAlmostEqual(results["control_bits"]["mean"],
                                       10 * other["uplink"]["control"] + other["downlink"]["control"], places=9)

    def test_loud_table(self):
        self.check("synthetic.json", "synthetic")

    def test_quiet_table(self):
        self.check("synthetic-quiet.json", "synthetic", "--reading", "quiet")

    @unittest.skipUnless("TALLY_DATA" in os.environ, "MNIST takes minutes")
    def test_mnist_table(self):
        os.symlink(os.environ["TALLY_DATA"], self.cwd / "data")
        self.check("mnist.json", "mnist")

    def test_mnist_document_is_right_without_data(self):
        done = self.tally("sweep", str(REPO / "deploy/experiments/mnist.json"), "--dry-run")
        # The grids of five rows are searched with two of ten seeds.
        self.assertRegex(done.stdout, rf"^15 rows from 35 job documents, 10 seeds: {10 * 10 + 25 * 2 + 5 * 8} runs, "
                                      "for an unknown time")
        self.assertIn("data", done.stderr)


class Files(SweepCase):
    DOCUMENT = {"name": "a <b> & \"c\"", "base": FEDAVG, "seeds": "1-2",
                "grid": {"algorithm.step_size": [*STEPS, 0.5], "algorithm.local_steps": [20, 100]},
                "reference_rows": [{"name": "<script>", "values": {"algorithm.step_size": 0.1, "regret": 3000}}]}

    def test_out_writes_everything(self):
        self.sweep(self.DOCUMENT, "--out", "out")
        out = self.cwd / "out"
        wanted = {"rows.csv", "runs.csv", "result.json", "best.json", "index.html", "sweep.gnuplot"}
        if shutil.which("gnuplot"):
            wanted |= {"sweep.svg", "sweep.png"}
        self.assertEqual({path.name for path in out.iterdir()}, wanted)
        result = json.loads((out / "result.json").read_text())
        self.assertEqual(result, self.result(self.DOCUMENT))
        self.assertEqual(json.loads((out / "best.json").read_text()), result["best"]["document"])
        with open(out / "rows.csv", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), 8)
        for row, expected in zip(rows, result["rows"]):
            mean = expected["results"]["regret"]["mean"]
            self.assertAlmostEqual(float(row["regret_mean"]), float("inf") if mean is None else mean, places=6)
            self.assertEqual(row["best"], "1" if expected["row"] == result["best"]["row"] else "0")

    def test_page_needs_nothing_else(self):
        self.sweep(self.DOCUMENT, "--out", "out")
        text = (self.cwd / "out/index.html").read_text()
        page = Outline(text)
        self.assertEqual(page.tags.count("svg"), 2)
        self.assertEqual(page.tags.count("tr"), 1 + 8 + 1)
        self.assertGreaterEqual(page.tags.count("circle"), 6)
        for tag in ("script", "link", "img", "iframe", "b"):
            self.assertNotIn(tag, page.tags)
        for name, value in page.attributes:
            self.assertFalse(name.startswith("on") or name in ("src", "href"), name)
            self.assertNotRegex(value or "", r"nan|inf\b|https?:")

    def test_a_folder_that_cannot_be_made_fails_first(self):
        (self.cwd / "file").write_text("")
        done = self.sweep(self.DOCUMENT, "--out", "file", exit_code=2)
        self.assertIn("file", done.stderr)
        self.assertNotIn("runs", done.stderr)


class Plan(SweepCase):
    def test_dry_run_runs_nothing_of_the_sweep(self):
        document = {"base": FEDAVG, "seeds": "1-8", "halving": {"stages": 3},
                    "grid": {"algorithm.step_size": [0.001, 0.002, 0.003, 0.004]}}
        out = self.sweep(document, "--dry-run", "--out", "out").stdout
        self.assertRegex(out, r"^4 rows, 8 seeds: 16 runs, ")
        self.assertIn("stage 1: 4 rows, 2 seeds, horizon 2000\nstage 2: 2 rows, 4 seeds, horizon 2000\n"
                      "stage 3: 1 row, 8 seeds, horizon 2000\n", out)
        self.assertIn("row 4: algorithm.step_size=0.004", out)
        self.assertFalse((self.cwd / "out").exists())

    def test_members_and_help(self):
        out = self.tally("sweep", "--members").stdout
        for member in ("base", "grid", "random", "halving", "widen", "x_scale"):
            self.assertIn(f"\n  {member} (", out)
        self.assertIn("--members", self.tally("sweep", "--help").stdout)
        self.assertIn("missing argument FILE", self.tally("sweep", exit_code=2).stderr)

    def test_documents_of_the_description_run(self):
        text = (REPO / "services/experiment/SWEEP.md").read_text()
        document = json.loads(text.split("```json\n")[1].split("```")[0])
        shutil.copy(FEDAVG, self.cwd / document["base"])
        self.assertRegex(self.sweep(document, "--dry-run").stdout, r"^18 rows, 10 seeds: 180 runs")


class Errors(SweepCase):
    def refuse(self, document):
        return self.sweep(document, exit_code=2).stderr

    def test_name_member_and_limit(self):
        self.assertIn("grid.horizon: 0 values, outside [1, 1000]", self.refuse({"base": FEDAVG, "grid": {"horizon": []}}))
        self.assertIn("gird: unknown key \"gird\"; did you mean grid?", self.refuse({"base": FEDAVG, "gird": {}}))
        wrong = self.refuse({"base": FEDAVG, "grid": {"algorithm.step_sise": [0.1, 0.2]}})
        self.assertIn("row 1 (algorithm.step_sise=0.1)", wrong)
        self.assertIn("did you mean step_size?", wrong)
        self.assertIn("nowhere.json", self.refuse({"base": "nowhere.json"}))

    def test_hostile_documents_end_at_once(self):
        for text in ("", "{", "[" * 100000, "null", "\"x\"", "{\"base\": {\"a\": " + "[" * 15 + "]" * 15 + "}}"):
            (self.cwd / "bad.json").write_text(text)
            self.tally("sweep", "bad.json", exit_code=2)
        many = {f"m{i}": list(range(1000)) for i in range(9)}
        self.assertIn("more than 5000 rows", self.refuse({"base": FEDAVG, "grid": many}))
        line = self.refuse({"base": FEDAVG, "rows": [{"name": "x\u001b[31m"}]})
        self.assertNotIn("\x1b", line)

    def test_missing_data_are_named(self):
        base = json.loads((JOBS / "mnist-fedavg.json").read_text())
        done = self.sweep({"base": base}, "--data-dir", "nothing", exit_code=2)
        self.assertIn("data folder nothing (--data-dir)", done.stderr)
        (self.cwd / "nothing").mkdir()
        self.assertIn("train-labels", self.sweep({"base": base}, "--data-dir", "nothing", exit_code=2).stderr)

    def test_a_signal_ends_it(self):
        document = {"base": str(JOBS / "synthetic-ceal-long.json"), "seeds": "1-9999"}
        process = subprocess.Popen([TALLY, "sweep", self.write(document)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, cwd=self.cwd, env=self.environment)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        self.assertIn("9999 runs", process.stderr.readline())
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(PATIENCE_S), 130)
        self.assertEqual(process.stdout.read(), "")


class Cost(SweepCase):
    @unittest.skipIf(IS_SANITIZED, "measures processor time")
    def test_costs_at_most_a_tenth_more_than_its_jobs(self):
        """Eighteen jobs with seeds of their own, so that nothing is shared, against as many `tally simulate`."""
        def spent(run):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            run()
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

        base = with_step(0.0134, 1)
        jobs = [self.write({**base, "seed": seed}, f"job-{seed}.json") for seed in range(1, 19)]
        sweep = self.write({"base": base, "seeds": "1-18"})
        ratios = [spent(lambda: self.tally("sweep", sweep)) /
                  spent(lambda: [self.tally("simulate", job) for job in jobs]) for _ in range(3)]
        self.assertLessEqual(min(ratios), 1.1, ratios)


class Remote(TallyTestCase):
    """The same sweep as jobs of a coordinator."""

    DOCUMENT = {"base": FEDAVG, "seeds": "101-110", "grid": {"algorithm.step_size": [0.002, 0.005, 0.0134, 0.02, 1]}}

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory(prefix="tally-test-")
        self.addCleanup(folder.cleanup)
        self.cwd = pathlib.Path(folder.name)
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("TALLY_")}

    def command(self, document, *words):
        (self.cwd / "sweep.json").write_text(json.dumps(document))
        return [TALLY, "sweep", "sweep.json", "--interval-ms", "20", *words]

    def start(self, document, *words):
        process = subprocess.Popen(self.command(document, *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   cwd=self.cwd, env=self.environment)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process

    def run_sweep(self, document, *words, exit_code=0):
        done = subprocess.run(self.command(document, *words), capture_output=True, text=True, cwd=self.cwd,
                              env=self.environment, timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, exit_code, done.stderr)
        return done

    def jobs(self, coordinator):
        jobs, cursor = [], ""
        while cursor is not None:
            page = coordinator.client.get_json(f"/v1/jobs?limit=100&label=sweep&cursor={cursor}" if cursor else
                                               "/v1/jobs?limit=100&label=sweep")
            jobs += page["jobs"]
            cursor = page["next_cursor"]
        return jobs

    def count(self, coordinator, *statuses):
        try:
            return sum(job["status"] in statuses for job in self.jobs(coordinator))
        except (OSError, AssertionError):
            return 0

    def test_kill_at_random_moments_changes_nothing(self):
        """Fifty jobs; the coordinator dies four times and the command twice. The table is that of one process."""
        seed = time.time_ns()
        print(f"\nrandom seed {seed}", flush=True)
        choose = random.Random(seed)
        expected = self.run_sweep(self.DOCUMENT).stdout
        self.assertIn("diverged", expected)
        coordinator = self.start_coordinator()
        self.start_worker(coordinator, "w", clients=40)
        words = ("--coordinator", coordinator.url, "--parallel", "4")
        process = self.start(self.DOCUMENT, *words)
        for n, ended in enumerate(sorted(choose.sample(range(1, 45), 4))):
            wait_until(lambda: self.count(coordinator, "completed", "failed") >= ended, f"{ended} ended jobs",
                       progress=lambda: self.count(coordinator, "completed", "failed"))
            time.sleep(choose.uniform(0, 0.05))
            coordinator.kill()
            if n % 2 == 0:
                process.kill()
                process.wait()
            coordinator = self.start_coordinator(port=coordinator.port, store=coordinator.store)
            if n % 2 == 0:
                process = self.start(self.DOCUMENT, *words)
        out, err = process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, 0, err)
        self.assertEqual(out, expected)
        self.assertLess(err.count("retrying"), 20)  # once for each outage, not for each attempt
        self.assertEqual(len(self.jobs(coordinator)), 50)  # none was submitted twice

    def test_at_most_parallel_jobs_are_live(self):
        coordinator = self.start_coordinator()  # without a worker, so that no job ends
        process = self.start(self.DOCUMENT, "--coordinator", coordinator.url, "--parallel", "3")
        wait_until(lambda: self.count(coordinator, "queued", "running") == 3, "three live jobs")
        time.sleep(0.3)
        self.assertEqual(len(self.jobs(coordinator)), 3)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(PATIENCE_S), 130)
        self.assertIn("--cancel", process.stderr.read())
        self.assertEqual(self.count(coordinator, "queued", "running"), 3)

    def test_cancelled_as_one_and_run_again(self):
        document = {**self.DOCUMENT, "seeds": "1-2"}
        coordinator = self.start_coordinator()
        words = ("--coordinator", coordinator.url, "--parallel", "5")
        other = coordinator.client.submit(json.loads(pathlib.Path(FEDAVG).read_text()))
        process = self.start(document, *words)
        wait_until(lambda: self.count(coordinator, "queued", "running") == 5, "five live jobs")
        self.assertEqual(self.run_sweep(document, *words, "--cancel").stdout, "5 jobs cancelled\n")
        self.assertEqual(process.wait(PATIENCE_S), 1)
        self.assertIn("was cancelled", process.stderr.read())
        self.assertEqual(self.count(coordinator, "cancelled"), 5)
        self.assertIn(coordinator.client.job(other)["status"], ("queued", "running"))
        self.start_worker(coordinator, "w", clients=40)
        self.assertEqual(self.run_sweep(document, *words).stdout, self.run_sweep(document).stdout)
        self.assertEqual(self.count(coordinator, "completed", "failed"), 10)

    def test_stages_and_widened_grids_are_the_same(self):
        halving = {**self.DOCUMENT, "seeds": "1-4", "halving": {"by": "horizon", "stages": 2}}
        powers = {"around": 0.1, "factor": 2, "first": 0, "last": 1, "widen": True}
        tune = {"base": FEDAVG, "seeds": 1, "rows": [{"tune": {"algorithm.step_size": powers}}]}
        calm = {"base": str(JOBS / "synthetic-calm-auto.json"), "seeds": 1, "columns": ["bits", "control_bits", "regret"]}
        coordinator = self.start_coordinator()
        self.start_worker(coordinator, "w", clients=40)
        for document in halving, tune, calm:
            remote = self.run_sweep(document, "--coordinator", coordinator.url).stdout
            self.assertEqual(remote, self.run_sweep(document).stdout)

    def test_refusals_name_the_row(self):
        coordinator = self.start_coordinator()
        labels = {f"k{i}": "v" for i in range(16)}
        done = self.run_sweep({"base": {**with_step(0.01, 1), "labels": labels}}, "--coordinator", coordinator.url,
                              exit_code=1)
        self.assertRegex(done.stderr, r"row 1, seed 1: .*17 labels, at most 16")
        self.assertIn("--coordinator", self.run_sweep(self.DOCUMENT, "--cancel", exit_code=2).stderr)


if __name__ == "__main__":
    unittest.main()
