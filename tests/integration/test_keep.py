"""Models that a job keeps besides its last one (`keep`)."""

import io
import json
import subprocess

import numpy

from common import BIN, IS_SANITIZED, ForeignWorker, TallyTestCase, job_document, simulate
from databases import edited_database, query
from test_python import PACKAGE

if not IS_SANITIZED:
    assert PACKAGE.exists()  # test_python has put it on the path
    import tally

DIM = 30


def fedavg(**changes):
    return job_document("synthetic-fedavg", **{"horizon": 200, "algorithm__local_steps": 5, **changes})


def run_tally(*arguments):
    return subprocess.run([BIN / "tally", *map(str, arguments)], capture_output=True, timeout=300, check=False)


def npy_of(body):
    return numpy.load(io.BytesIO(body), allow_pickle=False)


class KeepCase(TallyTestCase):
    def models(self, coordinator, job_id):
        return coordinator.client.get_json(f"/v1/jobs/{job_id}/models")["models"]

    def model(self, coordinator, job_id, which):
        """Returns a model as JSON, which is the same as .npy, and as listed."""
        path = f"/v1/jobs/{job_id}/model?which={which}"
        model = coordinator.client.get_json(path)
        npy = npy_of(coordinator.client.get(path, Accept="application/x-npy").body)
        self.assertEqual(npy.tolist(), model["x"])
        return model


class Jobs(KeepCase):
    """Built-in jobs: every kept point is that of a run which ends there."""

    def test_every_and_best_and_last(self):
        coordinator = self.start_coordinator()
        self.start_worker(coordinator, "w", clients=10)
        document = fedavg(keep={"best": "loss", "every": 7})
        job_id = coordinator.client.submit(document)
        detail = coordinator.client.wait_status(job_id, "completed")
        self.assertEqual(detail["round"], 40)
        records = coordinator.client.rounds(job_id)
        models = self.models(coordinator, job_id)
        self.assertEqual([model["which"] for model in models], ["best", "7", "14", "21", "28", "35", "last"])
        for model in models:
            with self.subTest(model["which"]):
                shown = self.model(coordinator, job_id, model["which"])
                self.assertEqual({key: shown[key] for key in ("round", "iterate", "x_checksum")},
                                 {key: model[key] for key in ("round", "iterate", "x_checksum")})
                self.assertEqual(model["bytes"], 8 * DIM)
                so_far = simulate({**document, "horizon": 5 * model["round"]})
                self.assertEqual((model["x_checksum"], model["iterate"]), (so_far["x_checksum"], so_far["iterate"]))
        # The best model is the point that the round of the least loss queried, and the round before it made.
        losses = [record["loss"] for record in records]
        at = losses.index(min(losses))
        best = models[0]
        self.assertEqual((best["metric"], best["value"]), ("loss", losses[at]))
        self.assertEqual((best["round"], best["iterate"]), (at, records[at]["k"]))
        # A round that was not kept has no model; the last one may be named by its round.
        problem = self.assert_problem(coordinator.client.get(f"/v1/jobs/{job_id}/model?which=8"), 404)
        self.assertIn("round 8", problem["detail"])
        self.assertEqual(self.model(coordinator, job_id, 40), self.model(coordinator, job_id, "last"))
        self.assertEqual(self.model(coordinator, job_id, at), self.model(coordinator, job_id, "best"))
        for which in ("BEST", "-1", "7.0", "", "1" * 19):
            problem = self.assert_problem(coordinator.client.get(f"/v1/jobs/{job_id}/model?which={which}"), 400)
            self.assertEqual(problem["field"], "which")
        self.assert_problem(coordinator.client.get("/v1/jobs/nobody/models"), 404)

    def test_a_job_that_keeps_nothing_has_its_last_model(self):
        coordinator = self.start_coordinator()
        job_id = coordinator.client.submit(fedavg(initial_point={"type": "random_sphere", "radius": 2}))
        initial = coordinator.client.job(job_id)["x_checksum"]
        self.assertEqual(self.models(coordinator, job_id),
                         [{"which": "last", "round": 0, "iterate": 1, "bytes": 8 * DIM, "x_checksum": initial}])
        self.assertEqual(self.model(coordinator, job_id, 0), self.model(coordinator, job_id, "last"))
        problem = self.assert_problem(coordinator.client.get(f"/v1/jobs/{job_id}/model?which=best"), 404)
        self.assertEqual(problem["field"], "which")
        self.start_worker(coordinator, "w", clients=10)
        coordinator.client.wait_status(job_id, "completed")
        store = coordinator.store.removeprefix("sqlite:")
        self.assertEqual(query(store, "SELECT count(*) FROM models"), [(0,)])

    def test_a_job_starts_from_the_best_model(self):
        coordinator = self.start_coordinator()
        client = coordinator.client
        self.start_worker(coordinator, "w", clients=10)
        first = client.submit(fedavg(keep={"best": "loss"}))
        client.wait_status(first, "completed")
        best, last = self.models(coordinator, first)
        self.assertNotEqual(best["x_checksum"], last["x_checksum"])
        # The rule ends the job before its first step, so it keeps the point from which it starts.
        second = client.submit(fedavg(initial_point={"type": "job", "job": first, "which": "best"}, stop={"loss": 1e300}))
        detail = client.wait_status(second, "completed")
        self.assertEqual((detail["iterate"], detail["x_checksum"]), (1, best["x_checksum"]))
        self.assertEqual(detail["initial_point"]["checksum"], best["x_checksum"])
        problem = self.assert_problem(client.post_job(fedavg(initial_point={"type": "job", "job": second, "which": "best"})),
                                      400)
        self.assertEqual(problem["field"], "initial_point.which")

    def test_the_program_and_python(self):
        coordinator = self.start_coordinator()
        self.start_worker(coordinator, "w", clients=10)
        job_id = coordinator.client.submit(fedavg(keep={"best": "loss", "every": 10}))
        coordinator.client.wait_status(job_id, "completed")
        best = self.model(coordinator, job_id, "best")
        tenth = self.model(coordinator, job_id, 10)
        at = ("--coordinator", coordinator.url, "--out", "-")
        self.assertEqual(npy_of(run_tally("export", job_id, "--model", "best", *at).stdout).tolist(), best["x"])
        self.assertEqual(npy_of(run_tally("export", job_id, "--model", 10, "--format", "npy", *at).stdout).tolist(),
                         tenth["x"])
        whole = json.loads(run_tally("export", job_id, "--model", "best", "--format", "json", *at).stdout)
        self.assertEqual(whole["model"], best)
        self.assertEqual(json.loads(run_tally("export", job_id, "--format", "json", *at).stdout)["model"],
                         self.model(coordinator, job_id, "last"))
        for arguments, code, says in ((("--model", "best", "--format", "csv"), 2, "a csv file has no model"),
                                      (("--model", "b/st"), 2, "not best, last or a round"),
                                      (("--model", "11"), 1, "keeps no model of round 11"),
                                      (("--model", "11", "--format", "json"), 1, "keeps no model of round 11")):
            done = run_tally("export", job_id, *arguments, *at)
            self.assertEqual((done.returncode, done.stdout), (code, b""), done)
            self.assertIn(says, done.stderr.decode())
        if IS_SANITIZED:
            return  # an interpreter cannot load a library with a sanitizer
        client = tally.Client(coordinator.url)
        self.assertEqual(client.models(job_id), self.models(coordinator, job_id))
        self.assertEqual(tally.models(job_id, url=coordinator.url), client.models(job_id))
        self.assertEqual(client.model(job_id, which="best").tolist(), best["x"])
        self.assertEqual(tally.model(job_id, which=10, url=coordinator.url).tolist(), tenth["x"])
        self.assertEqual(client.model(job_id).tolist(), self.model(coordinator, job_id, "last")["x"])
        with self.assertRaises(tally.Error) as caught:
            client.model(job_id, which=11)
        self.assertIn("keeps no model of round 11", str(caught.exception))

    def test_stored_models_go_with_the_job(self):
        """Backup, --check, restore and delete; damage is found."""
        coordinator = self.start_coordinator()
        self.start_worker(coordinator, "w", clients=10)
        job_id = coordinator.client.submit(fedavg(keep={"best": "loss", "every": 10}))
        coordinator.client.wait_status(job_id, "completed")
        before = [self.model(coordinator, job_id, each["which"]) for each in self.models(coordinator, job_id)]
        self.assertEqual(run_tally("backup", f"{self.folder}/copy.db", "--store", coordinator.store).returncode, 0)
        self.assertEqual(coordinator.client.request("DELETE", f"/v1/jobs/{job_id}").status, 204)
        store = coordinator.store.removeprefix("sqlite:")
        self.assertEqual(query(store, "SELECT count(*) FROM models") + query(store, "SELECT count(*) FROM model_points"),
                         [(0,), (0,)])
        other = self.start_coordinator(store=f"sqlite:{self.folder}/copy.db", name="restored")
        self.assertEqual([self.model(other, job_id, each["which"]) for each in self.models(other, job_id)], before)
        self.assert_ends_well(other)
        damaged = f"{self.folder}/copy.db"
        query(damaged, "UPDATE model_points SET point = zeroblob(240) WHERE slot = 10")
        done = subprocess.run([BIN / "tally-coordinator", "--check", "--store", f"sqlite:{damaged}"], capture_output=True,
                              text=True, timeout=300, check=False)
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("model_points, job_key 1, slot 10", done.stdout + done.stderr)
        with edited_database(damaged):  # the row's checksum is right, and that of the point is not
            pass
        third = self.start_coordinator(store=f"sqlite:{damaged}", name="damaged")
        problem = self.assert_problem(third.client.get(f"/v1/jobs/{job_id}/model?which=10"), 500)
        self.assertIn("round 10", problem["detail"])
        self.assertEqual(self.model(third, job_id, 20)["round"], 20)


class ByHand(KeepCase):
    """A job whose only worker is the test, which moves the point and says what a point is worth."""

    def start(self, **changes):
        self.coordinator = self.start_coordinator()
        self.job_id = self.coordinator.client.submit(
            job_document("synthetic-fedavg", clients=2, quorum=2, horizon=1000, round_deadline_ms=0,
                         reference={"type": "none"}, **changes))
        self.join()

    def join(self):
        self.worker = ForeignWorker(self.coordinator.client, slots=2)

    def kill(self):
        self.coordinator.kill()
        self.coordinator = self.start_coordinator(port=self.coordinator.port, store=self.coordinator.store)
        self.join()

    def play(self, step, value):
        """Moves every coordinate by the step; the point before was worth the value."""
        task = self.worker.poll_task()
        for client in range(2):
            payload = numpy.full(DIM, step, numpy.float32).tobytes()
            update = self.worker.update(task, client, payload=payload, payload_bits=8 * len(payload))
            update.updates[0].metrics.add(name="test_error", value=value)
            self.worker.post(update)
        self.worker.cursors[self.job_id] = task.iterate

    def points(self):
        """Returns the first coordinate of each model."""
        return {model["which"]: self.model(self.coordinator, self.job_id, model["which"])["x"][0]
                for model in self.models(self.coordinator, self.job_id)}

    def test_models_survive_kills(self):
        """The coordinator is killed after each round. The best model is the point that was measured."""
        self.start(keep={"best": "test_error", "better": "lower", "every": 2})
        values = [0.5, 0.25, 0.375, 0.25, 0.125, 0.25]
        at = [self.points()["last"]]
        for round_, value in enumerate(values, 1):
            self.play(1 / 64, value)
            self.kill()
            found = self.points()
            at.append(found["last"])
            self.assertNotEqual(at[-1], at[-2])
            best = values[:round_].index(min(values[:round_]))
            kept = {str(each): at[each] for each in range(2, round_ + 1, 2)}
            self.assertEqual(found, {"best": at[best], **kept, "last": at[-1]})
            listed = self.models(self.coordinator, self.job_id)[0]
            self.assertEqual((listed["metric"], listed["value"], listed["round"]), ("test_error", min(values[:round_]), best))

    def test_a_cancelled_job_keeps_its_models(self):
        self.start(keep={"every": 1})
        for _ in range(3):
            self.play(0.25, 1)
        before = self.points()
        self.coordinator.client.post(f"/v1/jobs/{self.job_id}/cancel")
        self.kill()
        self.assertEqual(self.points(), before)
        self.assertEqual(list(before), ["1", "2", "3", "last"])

    def test_the_best_model_of_a_job_that_a_rule_ends(self):
        self.start(keep={"best": "test_error", "better": "lower"},
                   stop={"patience": 2, "watch": "test_error", "better": "lower"})
        for value in (0.5, 0.25, 0.5, 0.75):
            before = self.points().get("last")
            self.play(1 / 32, value)
        detail = self.coordinator.client.wait_status(self.job_id, "completed")
        self.assertEqual(detail["stopped_by"], {"rule": "patience", "value": 0.25, "round": 2})
        best = self.model(self.coordinator, self.job_id, "best")
        self.assertEqual((best["round"], best["iterate"]), (1, 2))
        self.assertEqual(self.points()["last"], before)  # the last round has not moved it
