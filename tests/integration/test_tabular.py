"""Tables as they come: a raw CSV file with labels that are words, from nothing to the test accuracy of scikit-learn; what
the coordinator finds in files; missing values; sharding by a Dirichlet distribution; all errors of a file at once.
"""

import csv
import gzip
import json
import os
import re
import subprocess
import time
from pathlib import Path

import numpy as np

from common import BIN, HANG_S, IS_SANITIZED, REPO, SILENCE_S, TallyTestCase, essence, simulate, wait_until

README = REPO / "services/objectives/README.md"
HEADING = "### Tables as they come"
CLIENTS = 4

if not IS_SANITIZED:
    from test_python import tally


def block(name):
    return subprocess.run([REPO / "tests/compose/readme_block", README, HEADING, name], check=True, capture_output=True,
                          text=True).stdout


def job(data, kind="logistic_regression", **changes):
    return {"algorithm": {"type": "minibatch_sgd", "step_size": 0.1, "local_steps": 1},
            "objective": {"type": kind, "bias": True, "data": {"type": "csv", "file": "x.csv", "label": "y", **data}},
            "clients": CLIENTS, "horizon": 40, "minibatch": 4, "seed": 3, "reference": {"type": "none"}, **changes}


def post(client, path, document):
    response = client.request("POST", path, json.dumps(document), {"Content-Type": "application/json"})
    return response.status, json.loads(response.body)


class TabularCase(TallyTestCase):
    def setUp(self):
        super().setUp()
        self.data = Path(self.folder) / "data"
        self.data.mkdir()
        self.at = ("--data-dir", self.data)

    def write(self, name, text):
        (self.data / name).write_text(text)

    def write_points(self, name="x.csv", labels=("no", "yes"), n=60):
        generator = np.random.default_rng(4)
        X = generator.normal(size=(n, 3))
        kinds = np.clip(np.round(X @ [1, -1, 0.5] + 1), 0, len(labels) - 1).astype(int)
        rows = [",".join([*(f"{x:.3f}" for x in row), labels[kind]]) for row, kind in zip(X, kinds)]
        self.write(name, "\n".join(["a,b,c,y", *rows, ""]))
        return [labels[kind] for kind in kinds]

    def serve(self):
        coordinator = self.start_coordinator(options=self.at)
        for i in range(2):
            self.start_worker(coordinator, f"w{i}", clients=CLIENTS // 2, options=self.at)
        return coordinator.client


class BreastCancer(TabularCase):
    """The two commands of the README, and other seeds, which choose other points to hold out."""

    def run_block(self, name):
        environment = {key: value for key, value in os.environ.items() if not key.startswith("TALLY_")}
        environment["PATH"] = f"{BIN}:{environment['PATH']}"
        return subprocess.run(["bash", "-euc", block(name)], cwd=self.folder, env=environment, check=True,
                              capture_output=True, text=True, timeout=HANG_S)

    def accuracies_of_scikit_learn(self, document):
        """Of LogisticRegression as it is, and with the ridge and the weights of the job, which apply to the bias, too. On
        the same split: the points that no client has are those held out."""
        import sklearn.datasets  # not among the packages of the default tests
        from sklearn.linear_model import LogisticRegression
        from sklearn.preprocessing import StandardScaler
        cancer = sklearn.datasets.load_breast_cancer()
        raw = json.loads(json.dumps(document))
        del raw["objective"]["data"]["standardize"]
        data = tally.JobData(raw, self.data)
        X, y = (np.concatenate(parts) for parts in zip(*(data.shard(m) for m in range(data.clients))))
        training = {row.tobytes() for row in X}
        held_out = np.array([row.tobytes() not in training for row in cancer.data])
        self.assertEqual((len(X), held_out.sum()), (426, 143))
        scaler = StandardScaler().fit(X)
        truth = np.where(cancer.target_names[cancer.target[held_out]] == "malignant", 1, -1)
        X, test = scaler.transform(X), scaler.transform(cancer.data[held_out])
        plain = LogisticRegression(max_iter=10000).fit(X, y)
        # Clients count alike, and the first ones may have a point more.
        weights = np.concatenate([np.full(n, 1 / (data.clients * n)) for n in
                                  (len(data.shard(m)[1]) for m in range(data.clients))])
        same = LogisticRegression(C=1 / (2 * document["objective"]["l2"]), fit_intercept=False, max_iter=10000, tol=1e-8)
        same.fit(np.hstack([X, np.ones((len(X), 1))]), y, sample_weight=weights)
        return plain.score(test, truth), same.score(np.hstack([test, np.ones((len(test), 1))]), truth)

    def test_from_nothing_to_the_accuracy_of_scikit_learn(self):
        if IS_SANITIZED:
            self.skipTest("an interpreter cannot load a library with a sanitizer")
        self.run_block("export")
        done = self.run_block("cancer")
        self.assertEqual(done.stderr, 'cancer.csv: features 30, classes "benign", "malignant"\n')
        shown = re.search(r"(?s)```text\n(.*?)```", README.read_text().split(HEADING)[1])[1].splitlines()
        self.assertEqual(shown[0], done.stderr.strip())
        for line in shown[1:]:
            self.assertIn(line, done.stdout)
        document = json.loads((Path(self.folder) / "cancer.json").read_text())
        for seed in range(4):
            detail = simulate({**document, "seed": seed}, self.at)
            accuracy = detail["metrics"]["test_accuracy"]["mean"]
            plain, same = self.accuracies_of_scikit_learn({**document, "seed": seed})
            self.assertAlmostEqual(accuracy, same, delta=0.005, msg=f"seed {seed}, {plain}")
            self.assertGreater(accuracy, 0.94)
            if seed == 0:
                self.assertAlmostEqual(accuracy, plain, delta=0.005)
                self.assertIn(f"test_accuracy {accuracy:.6g}", done.stdout)

    def test_the_service_gives_the_same(self):
        self.run_block("export")
        self.run_block("cancer")
        document = {**json.loads((Path(self.folder) / "cancer.json").read_text()), "clients": CLIENTS, "horizon": 50}
        client = self.serve()
        detail = client.wait_status(client.submit(document), "completed")
        shown = subprocess.run([BIN / "tally", "show", detail["id"], "--coordinator", f"http://127.0.0.1:{client.port}"],
                               capture_output=True, text=True, check=True, timeout=HANG_S).stdout
        self.assertRegex(shown, r"\nclasses +benign, malignant\n")
        expected = simulate(document, self.at)
        self.assertEqual(essence(detail), essence(expected))
        self.assertEqual(detail["metrics"], expected["metrics"])
        self.assertEqual(detail["objective"]["data"]["classes"], ["benign", "malignant"])
        self.assertEqual(detail["objective"]["data"]["features"], 30)


class Found(TabularCase):
    def test_documents_are_completed_when_they_are_accepted(self):
        self.write_points(labels=("low", "mid", "high"))
        coordinator = self.start_coordinator(options=self.at)
        client = coordinator.client
        for path in ("/v1/jobs?dry_run=1", "/v1/jobs"):
            status, answer = post(client, path, job({}, "softmax_regression"))
            self.assertIn(status, (200, 201), answer)
            document = answer["document"] if "dry" in path else answer
            self.assertEqual(document["objective"]["data"]["classes"], ["high", "low", "mid"])
            self.assertEqual(document["objective"]["data"]["features"], 3)
        self.assertIn('document completed', coordinator.log())
        # An order of one's own stays.
        detail = client.job(client.submit(job({"classes": ["low", "mid", "high"]}, "softmax_regression")))
        self.assertEqual(detail["objective"]["data"]["classes"], ["low", "mid", "high"])
        # The complete document, submitted again, reads no file.
        (self.data / "x.csv").unlink()
        document = client.get_json(f"/v1/jobs/{detail['id']}/document")
        self.assertEqual(client.get_json(f"/v1/jobs/{client.submit(document)}/document"), document)

    def test_what_cannot_be_found_is_refused(self):
        client = self.start_coordinator(options=self.at).client

        def refusal(document):
            status, problem = post(client, "/v1/jobs", document)
            self.assertEqual(status, 400, problem)
            (fault,) = problem["errors"]
            self.assertEqual(fault["field"], problem["field"])
            return problem["field"], problem["detail"]

        field, detail = refusal(job({}))
        self.assertEqual(field, "objective.data.features")
        self.assertIn("to find features and classes in the file: x.csv (or .gz) is not in the data folder", detail)
        self.write_points(labels=("low", "mid", "high"))
        field, detail = refusal(job({}))
        self.assertEqual((field, detail),
                         ("objective.data.classes", 'column y of x.csv has 3 different labels ("high", "low", "mid"); '
                          "logistic_regression takes two, softmax_regression any number"))
        self.write("x.csv", "a,b,y\n1,2,no\n1,x,no\n1,2\n1,2,yes\n")
        field, detail = refusal(job({}))
        self.assertIn('x.csv:3: column b: "x" is not a number (the first of 2 errors); also in line 4', detail)
        field, detail = refusal(job({"file": "x{client}.csv", "features": 2, "classes": "auto", "sharding": "local"}))
        self.assertIn("classes must be given: the file of client 0 is not here", detail)
        # Another mistake in the document comes first, without reading.
        status, problem = post(client, "/v1/jobs", job({}, clients=0))
        self.assertEqual((status, problem["field"]), (400, "clients"))

    def test_a_long_file_holds_nobody_up(self):
        """A client that no longer waits, and a coordinator that ends while it reads."""
        with gzip.open(self.data / "x.csv.gz", "wb", compresslevel=1) as file:
            file.write(b"a,b,y\n")
            for i in range(60):
                file.write(b"1.25,-0.5,no\n2.5,0.125,yes\n" * 50000)
        self.write_points("small.csv")
        coordinator = self.start_coordinator(options=self.at)
        document = json.dumps(job({})).encode()
        for _ in range(3):
            with self.assertRaises(TimeoutError):
                coordinator.client.request("POST", "/v1/jobs", document, {"Content-Type": "application/json"}, timeout_s=0.2)
        begin = time.monotonic()
        self.assertEqual(coordinator.client.get("/v1/jobs").status, 200)
        self.assertEqual(coordinator.client.post_job(job({"file": "small.csv", "features": 3, "classes": ["no", "yes"]})).status, 201)
        self.assertLess(time.monotonic() - begin, SILENCE_S)
        self.assertEqual(len(coordinator.client.get_json("/v1/jobs")["jobs"]), 1)
        waiting = [coordinator.client.connect(HANG_S) for _ in range(2)]
        for connection in waiting:
            self.addCleanup(connection.close)
            connection.request("POST", "/v1/jobs", document, {"Content-Type": "application/json"})
        wait_until(lambda: coordinator.client.get("/healthz").status == 200, "the coordinator responds while it reads")
        self.assertEqual(coordinator.terminate(), 0)

    def test_a_worker_with_another_label_says_so(self):
        self.write_points()
        coordinator = self.start_coordinator(options=self.at)
        client = coordinator.client
        other = Path(self.folder) / "other"
        other.mkdir()
        job_id = client.submit(job({}))
        (other / "x.csv").write_text((self.data / "x.csv").read_text().replace("yes", "perhaps", 2))
        worker = self.start_worker(coordinator, "w", clients=CLIENTS, options=("--data-dir", other))
        reason = client.wait_status(job_id, "failed")["reason"]
        self.assertIn('column y: "perhaps" is none of the 2 classes, no, ... (the first of 2 errors)', reason)
        wait_until(lambda: worker.log().count("error in data") >= 2, "the log has both errors")


class Missing(TabularCase):
    def test_all_errors_are_printed(self):
        self.write("x.csv", "a,y\n" + "?,1\nx,0\n" * 15)
        done = subprocess.run([BIN / "tally", "simulate", "-", *map(str, self.at)], input=json.dumps(job({"features": 1})),
                              capture_output=True, text=True, check=False, timeout=HANG_S)
        self.assertEqual(done.returncode, 1, done)
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 21, done.stderr)
        self.assertEqual(lines[1], '  x.csv:3: column a: "x" is not a number')
        self.assertIn("x.csv:2: column a: \"?\" is not a number; \"missing\": \"mean\" or \"drop\" would accept a missing "
                      "value (the first of 20 errors, perhaps of more); also in line 3, 4,", lines[-1])

    def test_mean_and_drop_are_what_numpy_computes(self):
        if IS_SANITIZED:
            self.skipTest("an interpreter cannot load a library with a sanitizer")
        self.write("x.csv", "a,b,y\n" + "".join(
            f"{'NA' if i % 5 == 0 else i},{'' if i % 7 == 0 else i * i},{'no' if i % 3 else 'yes'}\n" for i in range(60)))
        i = np.arange(60.0)
        X = np.stack([np.where(i % 5 == 0, np.nan, i), np.where(i % 7 == 0, np.nan, i * i)], axis=1)
        y = np.where(i % 3 == 0, 1, -1)

        def load(**members):
            data = tally.JobData(job({"sharding": "contiguous", **members}), self.data)
            return (np.concatenate(parts) for parts in zip(*(data.shard(m) for m in range(CLIENTS))))

        points, labels = load(missing="drop")
        whole = ~np.isnan(X).any(axis=1)
        np.testing.assert_array_equal(points, X[whole])
        np.testing.assert_array_equal(labels, y[whole])
        points, labels = load(missing="mean", standardize=True)
        filled = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
        np.testing.assert_allclose(points, (filled - filled.mean(axis=0)) / filled.std(axis=0), rtol=1e-12, atol=1e-14)
        np.testing.assert_array_equal(labels, y)


class Dirichlet(TabularCase):
    def test_all_sides_deal_the_same_shards(self):
        labels = self.write_points(labels=("low", "mid", "high"), n=200)
        document = job({"sharding": "dirichlet", "alpha": 0.2}, "softmax_regression", weighting="points")
        client = self.serve()
        detail = client.wait_status(client.submit(document), "completed")
        self.assertEqual(essence(detail), essence(simulate(document, self.at)))
        even = {**document, "objective": {**document["objective"], "data": {
            **document["objective"]["data"], "sharding": "iid"}}}
        del even["objective"]["data"]["alpha"]
        self.assertNotEqual(detail["x_checksum"], simulate(even, self.at)["x_checksum"])
        if IS_SANITIZED:
            return
        data = tally.JobData(document, self.data)
        counts = np.array([np.bincount(data.shard(m)[1].astype(int), minlength=3) for m in range(CLIENTS)])
        names = sorted(set(labels))
        self.assertEqual(list(counts.sum(axis=0)), [labels.count(name) for name in names])
        self.assertTrue((counts.sum(axis=1) >= 1).all(), counts)
        self.assertGreater((counts.max(axis=0) / counts.sum(axis=0)).mean(), 0.5, "most of a label is with one client")


class Predict(TabularCase):
    def predict(self, *arguments, exit_code=0):
        done = subprocess.run([BIN / "tally", "predict", *map(str, arguments), *map(str, self.at)], capture_output=True,
                              text=True, check=False, timeout=HANG_S)
        self.assertEqual(done.returncode, exit_code, done)
        return list(csv.reader(done.stdout.splitlines())) if exit_code == 0 else done.stderr

    def train(self, document):
        """Returns the id of a completed job, the options for its coordinator, and the model."""
        client = self.serve()
        job_id = client.submit(document)
        client.wait_status(job_id, "completed")
        return job_id, ("--coordinator", f"http://127.0.0.1:{client.port}"), np.array(
            client.get_json(f"/v1/jobs/{job_id}/model")["x"])

    def table(self):
        rows = [line.split(",") for line in (self.data / "x.csv").read_text().splitlines()[1:]]
        return np.array([[float(x) for x in row[:3]] for row in rows]), np.array([row[3] for row in rows])

    def test_classes_and_probabilities(self):
        self.write_points(labels=("no, \"never\"", "yes"))
        text = (self.data / "x.csv").read_text()
        self.write("x.csv", text.replace("no, \"never\"", '"no, ""never"""'))
        job_id, at, x = self.train(job({"standardize": True, "test_fraction": 0.2}))
        X = np.array([[float(v) for v in row[:3]] for row in list(csv.reader(text.splitlines()))[1:]])
        raw = tally.JobData(job({"test_fraction": 0.2}), self.data) if not IS_SANITIZED else None
        path = Path(self.folder) / "new.csv"
        # Without labels, and with the columns in another order.
        path.write_text("c,a,b\n" + "".join(f"{row[2]!r},{row[0]!r},{row[1]!r}\n" for row in X.tolist()))
        table = self.predict(job_id, path, *at)
        self.assertEqual(table[0], ["class", "probability"])
        self.assertEqual({row[0] for row in table[1:]}, {'no, "never"', "yes"})
        if raw is not None:
            training = np.concatenate([raw.shard(m)[0] for m in range(CLIENTS)])
            z = (X - training.mean(axis=0)) / training.std(axis=0) @ x[:3] + x[3]
            self.assertEqual([row[0] == "yes" for row in table[1:]], list(z > 0))
            np.testing.assert_allclose([float(row[1]) for row in table[1:]], 1 / (1 + np.exp(-abs(z))), atol=1e-6)
        # The same from a bundle, and from the detail with the model.
        bundle, model, detail = (Path(self.folder) / name for name in ("job.bundle", "model.npy", "job.json"))
        for command in (("export", job_id, "--bundle", bundle), ("export", job_id, "--format", "npy", "--out", model)):
            subprocess.run([BIN / "tally", *map(str, command), *at], check=True, capture_output=True, timeout=HANG_S)
        self.assertEqual(self.predict(bundle, path), table)
        detail.write_text(subprocess.run([BIN / "tally", "show", job_id, "--json", *at], check=True, capture_output=True,
                                         text=True, timeout=HANG_S).stdout)
        self.assertEqual(self.predict(detail, path, "--model", model), table)
        self.assertIn("has no model: name its file with --model", self.predict(detail, path, exit_code=1))
        np.save(model, np.zeros(3))
        self.assertIn("the model is not a .npy file of 4 float64 numbers", self.predict(detail, path, "--model", model,
                                                                                       exit_code=1))
        path.write_text("a,b,d\n1,2,3\n")
        self.assertIn("new.csv:1: the columns are not those of x.csv", self.predict(bundle, path, exit_code=1))
        path.write_text("a,b,c\n1,2,\n1,x,3\n")
        said = self.predict(bundle, path, exit_code=1)
        self.assertIn("new.csv:2: column c: \"\" is empty", said)
        self.assertIn("such a point can only be predicted if the job has", said)
        self.assertIn("  new.csv:3: column b: \"x\" is not a number", said)
        self.assertIn("is not a file that can be read", self.predict(bundle, Path(self.folder) / "absent.csv", exit_code=1))
        self.assertIn("is not a file that can be read", self.predict(bundle, "/dev/stdin", exit_code=1))
        # Another training file gives other means; the same points in another order do not.
        path.write_text("a,b,c\n1,2,3\n")
        lines = (self.data / "x.csv").read_text().splitlines()
        for changed, warns in ((lines[:1] + lines[:0:-1], False), (lines[:-1], True)):
            self.write("x.csv", "\n".join(changed) + "\n")
            done = subprocess.run([BIN / "tally", "predict", bundle, path, *map(str, self.at)], capture_output=True, text=True,
                                  check=True, timeout=HANG_S)
            self.assertEqual("x.csv has other data than those" in done.stderr, warns, done.stderr)
        (self.data / "x.csv").unlink()
        self.assertIn("training data: x.csv (or .gz) is not in the data folder", self.predict(bundle, path, exit_code=1))

    def test_softmax_and_values(self):
        self.write_points(labels=("low", "mid", "high"))
        X, y = self.table()
        path = self.data / "x.csv"
        job_id, at, x = self.train(job({"classes": ["low", "mid", "high"]}, "softmax_regression", horizon=400))
        logits = -(np.hstack([X, np.ones((len(X), 1))]) @ x.reshape(4, 3))
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        table = self.predict(job_id, path, *at)[1:]
        names = np.array(["low", "mid", "high"])[logits.argmax(axis=1)]
        self.assertEqual([row[0] for row in table], list(names))
        np.testing.assert_allclose([float(row[1]) for row in table], 1 / odds.sum(axis=1), atol=1e-6)
        self.assertGreater((names == y).mean(), 0.4)
        # A value, and no training file: the columns of the file in their order.
        self.write("x.csv", "a,b,y\n" + "".join(f"{i % 7},{i % 5},{i % 3}\n" for i in range(40)))
        detail = simulate(job({}, "least_squares", algorithm={"type": "minibatch_sgd", "step_size": 0.01, "local_steps": 1}),
                          self.at)
        self.write("numbers.csv", "a,b\n1,2\n3,-4\n")
        model = Path(self.folder) / "model.npy"
        np.save(model, np.array([0.5, -1, 0.25]))
        document = Path(self.folder) / "document.json"
        document.write_text(json.dumps(detail))
        path.unlink()
        self.assertEqual(self.predict(document, self.data / "numbers.csv", "--model", model),
                         [["value"], ["-1.25"], ["5.75"]])
        document.write_text(json.dumps(simulate({"algorithm": {"type": "minibatch_sgd", "step_size": 1e-3, "local_steps": 1},
                                                 "objective": {"type": "least_squares", "data": {
                                                     "type": "synthetic_linear", "dim": 3, "points": 200}},
                                                 "clients": 2, "horizon": 5})))
        self.assertIn("only jobs with CSV files predict; the data of this one are synthetic_linear",
                      self.predict(document, self.data / "numbers.csv", "--model", model, exit_code=1))


class Commands(TabularCase):
    def test_sweep_and_plan_complete_documents(self):
        self.write_points()
        path = Path(self.folder) / "sweep.json"
        path.write_text(json.dumps({"base": job({"test_fraction": 0.2}), "grid": {"algorithm.step_size": [0.1, 0.2]},
                                    "columns": ["metrics.test_accuracy"]}))
        done = subprocess.run([BIN / "tally", "sweep", path, "--json", *map(str, self.at)], capture_output=True, text=True,
                              check=True, timeout=HANG_S)
        expected = simulate(job({"test_fraction": 0.2}), self.at)["metrics"]["test_accuracy"]["mean"]
        self.assertIn(f"{expected:.6g}", done.stdout)
        path.write_text(json.dumps(job({}, algorithm={"type": "calm", "step_size": 0.1})))
        done = subprocess.run([BIN / "tally", "plan", path, *map(str, self.at)], capture_output=True, text=True, check=False,
                              timeout=HANG_S)
        self.assertIn('x.csv: features 3, classes "no", "yes"', done.stderr)
