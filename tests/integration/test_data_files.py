"""Data files in real processes. Files written by NumPy and scikit-learn are read; the same points give the same job in
every format, bit for bit; workers may have files of their own; and files that are invalid, leave the data folder or
never end are refused.
"""

import csv
import gzip
import json
import os
import re
import subprocess
import zlib
from pathlib import Path

import numpy as np

import common
from common import BIN, HANG_S, TallyTestCase, essence, simulate, wait_until

CLIENTS = 4


def job(data, **changes):
    return {"algorithm": {"type": "minibatch_sgd", "step_size": 0.05, "local_steps": 1},
            "objective": {"type": "least_squares", "data": data}, "clients": CLIENTS, "horizon": 60, "minibatch": 4,
            "seed": 3, **changes}


class DataFileCase(TallyTestCase):
    def setUp(self):
        super().setUp()
        self.data = Path(self.folder) / "data"
        self.data.mkdir()

    def write(self, name, content):
        path = self.data / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def write_csv(self, name, X, y, header=("a", "b, or \"c\"", "d"), **dialect):
        with open(self.data / name, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, **dialect)
            writer.writerow([*header, "label"])
            writer.writerows([*map(repr, map(float, row)), repr(float(label))] for row, label in zip(X, y))

    def write_libsvm(self, name, X, y):
        """As scikit-learn writes it: comments first, and no zeros."""
        rows = (" ".join([f"{label:.16g}", *(f"{i}:{x:.16g}" for i, x in enumerate(row, 1) if x != 0)])
                for row, label in zip(X, y))
        self.write(name, "\n".join(["# Column indices are one-based", "#", "# ours", *rows, ""]))

    def serve(self, *folders):
        """Starts a coordinator on the first folder, and a worker on each folder for its share of the clients."""
        coordinator = self.start_coordinator(options=("--data-dir", folders[0]))
        for i, folder in enumerate(folders):
            self.start_worker(coordinator, f"w{i}", clients=CLIENTS // len(folders), options=("--data-dir", folder))
        return coordinator.client

    def run_job(self, client, document):
        return client.wait_status(client.submit(document), "completed")


class Formats(DataFileCase):
    def setUp(self):
        super().setUp()
        generator = np.random.default_rng(5)
        self.X = np.round(generator.normal(size=(90, 3)), 3) * (generator.random((90, 3)) < 0.6)
        self.y = np.round(self.X @ [1, -2, 3] + generator.normal(size=90) / 10, 3)

    def write_all(self):
        """Writes the same points in every format; yields (name, `data` of a document)."""
        X, y, folder = self.X, self.y, self.data
        self.write_csv("x.csv", X, y)
        self.write_csv("quoted.csv", X, y, quoting=csv.QUOTE_ALL, lineterminator="\n")
        self.write("packed.csv.gz", gzip.compress((folder / "x.csv").read_bytes()))
        self.write_libsvm("x.svm", X, y)
        np.save(folder / "X.npy", X)
        np.save(folder / "F.npy", np.asfortranarray(X))
        np.save(folder / "y.npy", y)
        np.save(folder / "column.npy", y[:, None])
        np.savez(folder / "x.npz", X=X, y=y)
        np.savez_compressed(folder / "small.npz", X=np.asfortranarray(X), y=y)
        table = {"features": 3}
        yield "csv", {"type": "csv", "file": "x.csv", "label": "label", **table}
        yield "quoted csv", {"type": "csv", "file": "quoted.csv", "label": "label", **table}
        yield "packed csv", {"type": "csv", "file": "packed.csv", "label": "label", **table}
        yield "libsvm", {"type": "libsvm", "file": "x.svm", **table}
        yield "npy", {"type": "npy", "points": "X.npy", "labels": "y.npy", **table}
        yield "Fortran npy", {"type": "npy", "points": "F.npy", "labels": "column.npy", **table}
        yield "npz", {"type": "npz", "file": "x.npz", "points": "X", "labels": "y", **table}
        yield "packed npz", {"type": "npz", "file": "small.npz", "points": "X", "labels": "y", **table}

    def test_the_same_points_are_the_same_job(self):
        rows = dict(self.write_all())
        ends = {}
        for sharding in ("iid", "by_label", "contiguous"):
            for name, data in rows.items():
                ends[sharding, name] = essence(simulate(job({**data, "sharding": sharding}),
                                                        ("--data-dir", self.data)))
                self.assertEqual(ends[sharding, name], ends[sharding, "csv"], (sharding, name))
        self.assertEqual(len({ends[sharding, "csv"]["x_checksum"] for sharding in ("iid", "by_label", "contiguous")}),
                         3, "the shardings differ")
        client = self.serve(self.data, self.data)
        for name in ("csv", "libsvm", "packed npz"):
            document = job({**rows[name], "sharding": "by_label"})
            self.assertEqual(essence(self.run_job(client, document)), ends["by_label", name], name)

    def test_half_precision(self):
        rows = dict(self.write_all())
        half = self.X.astype(np.float16)
        np.save(self.data / "half.npy", half)
        np.save(self.data / "double.npy", half.astype(np.float64))
        ends = [essence(simulate(job({**rows["npy"], "points": name}), ("--data-dir", self.data)))
                for name in ("half.npy", "double.npy")]
        self.assertEqual(ends[0], ends[1])

    def test_files_of_the_clients_are_their_shards(self):
        """Splits the points by hand as `contiguous` does."""
        sizes = [len(self.X) // CLIENTS + (m < len(self.X) % CLIENTS) for m in range(CLIENTS)]
        ends = np.cumsum([0, *sizes])
        self.write_csv("x.csv", self.X, self.y)
        for m in range(CLIENTS):
            part = slice(ends[m], ends[m + 1])
            self.write_csv(f"x-{m}.csv", self.X[part], self.y[part])
        whole = job({"type": "csv", "file": "x.csv", "label": "label", "features": 3, "sharding": "contiguous"})
        parts = job({"type": "csv", "file": "x-{client}.csv", "label": "label", "features": 3, "sharding": "local"})
        client = self.serve(self.data, self.data)
        expected = essence(simulate(whole, ("--data-dir", self.data)))
        self.assertEqual(essence(self.run_job(client, parts)), expected)

    def test_workers_with_files_of_their_own_meet_in_the_middle(self):
        """One worker's data has only label 1, the other's only label 4; each serves half of the clients. The minimum of
        f is then at 2.5, which is not a label."""
        folders = []
        for i, label in enumerate((1, 4)):
            folder = Path(self.folder) / f"own{i}"
            folder.mkdir()
            (folder / "mine.csv").write_text("one,label\n" + f"1,{label}\n" * 10)
            folders.append(folder)
        client = self.serve(*folders)
        document = job({"type": "csv", "file": "mine.csv", "label": "label", "features": 1, "sharding": "local"},
                       reference={"type": "none"}, horizon=200, encoding="entropy")
        answer = client.post_job({**document, "reference": {"type": "solve"}})
        self.assert_problem(answer, 400, "reference.type")
        detail = self.run_job(client, document)
        self.assertIsNone(detail["f_star"])
        (x,) = client.get_json(f"/v1/jobs/{detail['id']}/model")["x"]
        self.assertAlmostEqual(x, 2.5, places=5)


class Columns(DataFileCase):
    """Columns are features by their names, not by their places."""

    def setUp(self):
        super().setUp()
        self.other = Path(self.folder) / "other"
        self.other.mkdir()
        generator = np.random.default_rng(7)
        self.X = np.round(generator.normal(size=(40, 3)), 3)
        self.y = np.round(self.X @ [1, -20, 300], 3)
        self.names = np.array(["a", "b", "c"])
        self.document = job({"type": "csv", "file": "x-{client}.csv", "label": "label", "features": 3,
                             "sharding": "local", "test_file": "test.csv"})

    def write_columns(self, name, part, order=(0, 1, 2)):
        order = list(order)
        self.write_csv(name, self.X[part][:, order], self.y[part], header=self.names[order])

    def write_clients(self, orders):
        self.write_columns("test.csv", slice(20, 40), orders[-1])
        for m in range(CLIENTS):
            self.write_columns(f"x-{m}.csv", slice(10 * m, 10 * m + 10), orders[m])

    def test_the_order_of_the_columns_changes_nothing(self):
        self.write_clients([(0, 1, 2)] * CLIENTS)
        expected = simulate(self.document, ("--data-dir", self.data))
        self.write_clients([(0, 1, 2), (1, 0, 2), (2, 1, 0), (1, 2, 0)])
        got = simulate(self.document, ("--data-dir", self.data))
        self.assertEqual(essence(got), essence(expected))
        self.assertEqual(got["metrics"], expected["metrics"])
        # Workers whose first files agree are the same job, whatever the order of the others.
        self.write_clients([(0, 1, 2), (1, 0, 2), (0, 1, 2), (1, 2, 0)])
        detail = self.run_job(self.serve(self.data), self.document)
        self.assertEqual(essence(detail), essence(expected))

    def test_other_columns_are_refused(self):
        self.write_clients([(0, 1, 2)] * CLIENTS)
        self.names = np.array(["a", "b", "d"])
        self.write_columns("x-2.csv", slice(20, 30))
        run = subprocess.run([BIN / "tally", "simulate", "-", "--data-dir", self.data], input=json.dumps(self.document),
                             text=True, capture_output=True, timeout=HANG_S)
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("x-2.csv:1: the columns are not those of x-0.csv: only this file has d, only that has c",
                      run.stderr)

    def fails(self, detail, text):
        self.assertEqual(detail["reason_code"], "columns_differ")
        self.assertRegex(detail["reason"], text)

    def test_workers_with_other_columns_fail_the_job(self):
        document = job({"type": "csv", "file": "x.csv", "label": "label", "features": 3, "sharding": "local"},
                       reference={"type": "none"})
        self.write_columns("x.csv", slice(0, 20))
        client = self.serve(self.data, self.other)
        self.data = self.other
        for names, order in ((["a", "b", "c"], (1, 0, 2)), (["a", "b", "d"], (0, 1, 2))):
            self.names = np.array(names)
            self.write_columns("x.csv", slice(20, 40), order)
            detail = client.wait_status(client.submit(document), "failed")
            self.fails(detail, r"the CSV files of worker w[01] \(client \d\) have other columns than those of "
                               r"worker w[01] \(client \d\), or the same in another order")
            self.assertEqual(len(set(re.findall("w[01]", detail["reason"]))), 2)
            self.assertEqual(detail["round"], 0)
        self.names = np.array(["a", "b", "c"])
        self.write_columns("x.csv", slice(20, 40))
        self.run_job(client, document)

    def test_the_coordinator_solves_for_the_same_columns(self):
        document = job({"type": "csv", "file": "x.csv", "label": "label", "features": 3})
        self.write_columns("x.csv", slice(0, 40))
        coordinator = self.start_coordinator(options=("--data-dir", self.data))
        self.data = self.other
        self.names = np.array(["a", "b", "d"])
        self.write_columns("x.csv", slice(0, 40))
        self.start_worker(coordinator, "w", clients=CLIENTS, options=("--data-dir", self.other))
        detail = coordinator.client.wait_status(coordinator.client.submit(document), "failed")
        self.fails(detail, r"of worker w \(client \d\) have other columns than those of the coordinator, or")


class Refusals(DataFileCase):
    def setUp(self):
        super().setUp()
        self.write("bad.csv", "a,label\n1,2\n3,four\n" + "1,2\n" * 10)
        self.write("few.svm", "1 1:1\n" * 3)
        self.write("wide.svm", "1 1:1\n2 1000000000:1\n")
        (self.data / "out.csv").symlink_to("/etc/passwd")
        os.mkfifo(self.data / "pipe.csv")
        self.rows = [
            ({"type": "csv", "file": "bad.csv", "label": "label", "features": 1},
             'bad.csv:3: column label: "four" is not a number'),
            ({"type": "libsvm", "file": "few.svm", "features": 1}, "few.svm has 3 points, too few for 4 clients"),
            ({"type": "libsvm", "file": "wide.svm", "features": 8},
             "wide.svm:2: index 1000000000 is above features 8"),
            ({"type": "csv", "file": "out.csv", "label": "label", "features": 1},
             "out.csv leads out of the data folder"),
            ({"type": "csv", "file": "pipe.csv", "label": "label", "features": 1}, "is not a regular file"),
            ({"type": "csv", "file": "none.csv", "label": "label", "features": 1},
             "none.csv (or .gz) is not in the data folder"),
        ]

    def test_everybody_says_which_file_and_line(self):
        """The error comes from the command line, from the coordinator that computes f(x*), and from a worker that only
        computes gradients."""
        client = self.serve(self.data)
        worker = self.processes[-1]
        for data, said in self.rows:
            with self.subTest(said):
                path = Path(self.folder) / "job.json"
                path.write_text(json.dumps(job(data)))
                done = subprocess.run([BIN / "tally", "simulate", path, "--data-dir", self.data], text=True,
                                      stdin=subprocess.DEVNULL, capture_output=True, timeout=HANG_S, check=False)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn(said, done.stderr)
                self.assertIn(said, client.wait_status(client.submit(job(data)), "failed")["reason"])
                job_id = client.submit(job(data, reference={"type": "none"}))
                self.assertIn(said, client.wait_status(job_id, "failed")["reason"])
                (line,) = [line for line in worker.log().splitlines() if job_id in line and "job refused" in line]
                self.assertIn(said.replace('"', '\\"'), line)
        self.assertTrue(worker.is_alive())

    def test_names_that_leave_the_folder_are_not_even_accepted(self):
        client = self.start_coordinator().client
        for name in ("../x", "/etc/passwd", "a/../../x", "..", ""):
            answer = client.post_job(job({"type": "libsvm", "file": name, "features": 1}))
            self.assert_problem(answer, 400, "objective.data.file")


class HeldOutPoints(DataFileCase):
    """`accuracy`, and the metrics computed on a file of held-out points."""

    def setUp(self):
        super().setUp()
        generator = np.random.default_rng(8)
        X = generator.normal(size=(130, 3))
        y = (X @ [1, -2, 3] + generator.normal(size=130) > 0).astype(float)
        self.write_csv("x.csv", X[:90], y[:90])
        self.write_csv("test.csv", X[90:], y[90:])
        self.held_out = X[90:], y[90:]

    def document(self, test_file=None, accuracy=False, **changes):
        data = {"type": "csv", "file": "x.csv", "label": "label", "features": 3}
        objective = {"type": "logistic_regression", "data": data, "l2": 0.01}
        data.update({} if test_file is None else {"test_file": test_file})
        objective.update({"accuracy": True} if accuracy else {})
        return job(None, objective=objective, **changes)

    def test_the_service_and_the_simulation_report_the_same_and_the_job_is_the_same(self):
        options = ("--data-dir", self.data)
        client = self.serve(self.data, self.data)
        for algorithm in ({"type": "minibatch_sgd", "step_size": 0.05, "local_steps": 1},
                          {"type": "ceal", "step_size": 0.05, "sigma": 1, "gradient_bound": 1}):
            silent = simulate(self.document(algorithm=algorithm), options)
            self.assertNotIn("metrics", silent)
            document = self.document("test.csv", True, algorithm=algorithm)
            simulated = simulate(document, options)
            self.assertEqual(set(simulated["metrics"]), {"accuracy", "test_accuracy", "test_loss"})
            for key in ("x_checksum", "cumulative_regret", "loss", "round", "iterate", "f_star"):
                self.assertEqual(simulated[key], silent[key], key)
            for key in ("uplink", "downlink", "control"):
                self.assertEqual(simulated["bits"][key], silent["bits"][key], key)
            detail = self.run_job(client, document)
            self.assertEqual(essence(detail), essence(simulated))
            self.assertEqual(detail["metrics"], simulated["metrics"])
            self.assertEqual((detail["objective"]["accuracy"], detail["objective"]["data"]["test_file"]),
                             (True, "test.csv"))
            records = client.rounds(detail["id"])
            n = sum("metrics" in record for record in records)
            self.assertEqual(n, sum(record["k"] != before for record, before in
                                    zip(records, [None, *(record["k"] for record in records)])), "one for each point")
            bits = n * (CLIENTS * (64 + 8 * len("accuracy")) + 2 * 64 + 8 * len("test_accuracytest_loss"))
            self.assertEqual(simulated["bits"]["telemetry"], silent["bits"]["telemetry"] + bits)

    def test_the_numbers_are_those_of_numpy(self):
        document = self.document("test.csv", initial_point={"type": "random_sphere", "radius": 3})
        client = self.serve(self.data)
        detail = self.run_job(client, document)
        X, y = self.held_out
        ends = []  # the last round ends at the model and begins at the model of the job that is one round shorter
        for horizon in (detail["horizon"] - 1, detail["horizon"]):
            again = self.run_job(client, {**document, "horizon": horizon})
            ends.append((np.array(client.get_json(f"/v1/jobs/{again['id']}/model")["x"]), again))
        x = ends[0][0]
        metrics = ends[1][1]["metrics"]
        z = X @ x
        self.assertEqual(metrics["test_accuracy"]["mean"], ((z > 0) == y).mean())
        expected = np.log1p(np.exp(-(2 * y - 1) * z)).mean() + 0.01 * x @ x
        self.assertAlmostEqual(metrics["test_loss"]["mean"], expected, places=12)
        self.assertEqual(len({*metrics["test_loss"].values()}), 1, "of one client")

    def test_what_is_wrong_with_the_file_is_told_and_costs_the_job(self):
        self.write("wide.csv", "a,b,label\n1,2,1\n")
        self.write_csv("other.csv", [[1, 2, 3]], [4])
        client = self.serve(self.data)
        for name, said in (("none.csv", "none.csv (or .gz) is not in the data folder"),
                           ("wide.csv", 'wide.csv:1: 2 columns beside the label "label", but features is 3'),
                           ("other.csv", "other.csv:2: label 4 is neither -1 nor 1 (nor 0 and 1)")):
            path = Path(self.folder) / "job.json"
            path.write_text(json.dumps(self.document(name)))
            done = subprocess.run([BIN / "tally", "simulate", path, "--data-dir", self.data], text=True,
                                  stdin=subprocess.DEVNULL, capture_output=True, timeout=HANG_S, check=False)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("held-out points (test_file): ", done.stderr)
            self.assertIn(said, done.stderr)
            self.assertIn("objective.data.test_file", done.stderr)
            reason = client.wait_status(client.submit(self.document(name)), "failed")["reason"]
            self.assertIn(f"held-out points (test_file): {said}", reason)
        answer = client.post_job(self.document("../test.csv"))
        self.assert_problem(answer, 400, "objective.data.test_file")
        document = self.document(accuracy=True)
        document["objective"]["type"] = "least_squares"
        self.assert_problem(client.post_job(document), 400, "objective.accuracy")


class LongReadings(DataFileCase):
    def test_the_log_tells_how_far_it_is_and_sigterm_ends_it(self):
        """The file expands to 16 GiB of blanks: it repeats one gzip member."""
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        member = packer.compress(b" " * (64 << 20)) + packer.flush()
        self.write("blank.svm.gz", member * 256)
        client = self.serve(self.data)
        coordinator, worker = self.processes
        document = job({"type": "libsvm", "file": "blank.svm", "features": 1})
        client.submit({**document, "reference": {"type": "none"}})
        client.submit(document)
        for process in (worker, coordinator):
            line = wait_until(lambda process=process: next(
                (line for line in process.log().splitlines() if 'event="reading data"' in line), None),
                f"{process.name} to tell")
            self.assertRegex(line, r"job=\w+ file=blank.svm percent=\d+ points=0$")
        self.assertTrue(worker.is_alive())
        peak = common.memory_bytes(worker.pid, "VmHWM")
        self.assertLess(peak, 1_000_000 << 10, "sanitizers included; blanks are 16 GiB")
        self.assert_ends_well(worker, coordinator)
        self.assertNotIn("GiB", worker.log() + coordinator.log(), "it was not read to its end")


del DataFileCase
