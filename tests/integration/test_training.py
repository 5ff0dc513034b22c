"""Training loops of one's own: objectives of type `training`, whose clients send where their own steps have led."""

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path
from unittest import mock

import numpy as np

from common import BIN, HANG_S, IS_SANITIZED, TallyTestCase, Worker, essence, simulate, wait_until
from event_stream import Stream
from test_python import PACKAGE, PythonCase

if not IS_SANITIZED:
    import tally

os.environ.setdefault("TALLY_BIN", str(BIN))
TRAINER = BIN.parent / "plugins" / "trainer.so"
FASHION = "/usr/share/datasets/fashion-mnist"
DIM, CLIENTS = 5, 3


def training_job(name="trainer", **changes):
    document = {
        "objective": {"type": "training", "name": name, "dim": DIM}, "algorithm": {"type": "fedavg"},
        "clients": CLIENTS, "horizon": 6, "seed": 3, "initial_point": {"type": "random_sphere", "radius": 1}, **changes}
    return {key: value for key, value in document.items() if value is not None}


def averages(weighting):
    """Returns the weights after each round of training_job(), computed in float64."""
    shares = np.ones(CLIENTS) if weighting == "equal" else np.arange(1, CLIENTS + 1)
    w, points = 0.0, []
    for _ in range(6):
        w += np.average([(m + 1 - w) / 3 for m in range(CLIENTS)], weights=shares)
        points.append(w)
    return points


def metrics_of(detail):
    """Returns the metrics without the one that tells the service from a simulation."""
    return {name: value for name, value in detail["metrics"].items() if name != "has_job"}


def start_worker(case, coordinator, name, clients, *options):
    worker = Worker(case.folder, coordinator.url, name, clients=clients, options=options)
    case.processes.append(worker)
    return worker


class Plugins(TallyTestCase):
    def start_trainer(self, coordinator, name, clients, *options):
        return start_worker(self, coordinator, name, clients, "--plugin", TRAINER, *options)

    def run_job(self, coordinator, document):
        return coordinator.client.wait_status(coordinator.client.submit(document), "completed")

    def test_the_service_equals_the_simulation(self):
        coordinator = self.start_coordinator()
        self.start_trainer(coordinator, "a", 2)
        self.start_trainer(coordinator, "b", 1, "--plugin-isolated")
        for weighting in ("equal", "points"):
            for algorithm in ({"type": "fedavg"}, {"type": "fedpaq", "levels": 100},
                              {"type": "fedavg", "server_optimizer": {"type": "fedadam", "step_size": 0.3}}):
                document = training_job(weighting=weighting, algorithm=algorithm)
                with self.subTest(weighting, algorithm=algorithm):
                    expected = simulate(document, ("--plugin", TRAINER))
                    self.assertEqual(expected["round"], 6)
                    self.assertIsNone(expected["cumulative_regret"])
                    detail = self.run_job(coordinator, document)
                    self.assertEqual(essence(detail), essence(expected))
                    self.assertEqual(detail["algorithm"], algorithm | detail["algorithm"])
                    self.assertNotIn("step_size", detail["algorithm"])

    def test_the_means_are_those_of_the_clients(self):
        coordinator = self.start_coordinator()
        self.start_trainer(coordinator, "a", CLIENTS)
        for weighting in ("equal", "points"):
            job_id = self.run_job(coordinator, training_job(weighting=weighting, initial_point={"type": "zeros"}))["id"]
            model = coordinator.client.get_json(f"/v1/jobs/{job_id}/model")["x"]
            np.testing.assert_allclose(model, averages(weighting)[-1], rtol=1e-6)
            distances = [record["metrics"]["distance"]["min"] for record in coordinator.client.rounds(job_id)]
            np.testing.assert_allclose(
                distances, [min(abs(m + 1 - w) for m in range(CLIENTS)) for w in [0, *averages(weighting)[:-1]]],
                rtol=1e-5)

    def test_the_loop_is_told_the_weight_of_the_proximal_term(self):
        coordinator = self.start_coordinator()
        self.start_trainer(coordinator, "a", 1)
        self.start_trainer(coordinator, "b", 2, "--plugin-isolated")
        average = simulate(training_job(), ("--plugin", TRAINER))
        for mu in (0, 3):
            document = training_job(algorithm={"type": "fedprox", "mu": mu})
            expected = simulate(document, ("--plugin", TRAINER))
            detail = self.run_job(coordinator, document)
            self.assertEqual(essence(detail), essence(expected))
            self.assertEqual(detail["algorithm"], {"type": "fedprox", "mu": mu})
            self.assertEqual(detail["x_checksum"] == average["x_checksum"], mu == 0)
        job_id = self.run_job(coordinator, training_job(algorithm={"type": "fedprox", "mu": 3},
                                                        initial_point={"type": "zeros"}))["id"]
        model = coordinator.client.get_json(f"/v1/jobs/{job_id}/model")["x"]
        np.testing.assert_allclose(model, 2 * (1 - (5 / 6) ** 6), rtol=1e-6)

    def test_a_plug_in_knows_its_job(self):
        coordinator = self.start_coordinator()
        self.start_trainer(coordinator, "a", 1)
        self.start_trainer(coordinator, "b", 2, "--plugin-isolated")
        self.assertEqual(self.run_job(coordinator, training_job())["metrics"]["has_job"]["min"], 1)
        self.assertEqual(simulate(training_job(), ("--plugin", TRAINER))["metrics"]["has_job"]["max"], 0)

    def test_crashes_change_nothing(self):
        document = training_job(horizon=400, weighting="points")
        expected = simulate(document, ("--plugin", TRAINER))
        coordinator = self.start_coordinator()
        worker = self.start_trainer(coordinator, "a", CLIENTS)
        job_id = coordinator.client.submit(document)
        wait_until(lambda: coordinator.client.job(job_id)["round"] >= 20, "some rounds")
        coordinator.kill()
        coordinator = self.start_coordinator(port=coordinator.port, store=coordinator.store)
        seen = coordinator.client.job(job_id)["round"]
        wait_until(lambda: coordinator.client.job(job_id)["round"] > min(seen + 10, 390), "more rounds")
        worker.kill()
        self.start_trainer(coordinator, "a", CLIENTS)
        detail = coordinator.client.wait_status(job_id, "completed")
        self.assertEqual(essence(detail), essence(expected))
        self.assertEqual(metrics_of(detail), metrics_of(expected))
        rounds = coordinator.client.rounds(job_id)
        self.assertEqual([each["metrics"]["model_of"]["mean"] for each in rounds], list(range(1, 401)))
        self.assertEqual(detail["bits"]["telemetry"], sum(each["bits"]["telemetry"] for each in rounds))

    def test_kills_during_the_last_evaluation(self):
        """The last model is made, and some of its evaluations, or all, are still to come."""
        for evaluation, held, victim in (("one", [0], "coordinator"), ("clients", [0, 1, 2], "coordinator"),
                                         ("clients", [1, 2], "coordinator"), ("one", [0], "worker"),
                                         ("clients", [1], "worker")):
            with self.subTest(evaluation, held=held, victim=victim):
                objective = {"type": "training", "name": "trainer", "dim": DIM, "options": "held"}
                document = training_job(objective=objective, evaluation=evaluation)
                expected = simulate(document, ("--plugin", TRAINER))
                data = Path(tempfile.mkdtemp(dir=self.folder))
                holds = [data / f"hold-{m}" for m in held]
                for hold in holds:
                    hold.touch()
                coordinator = self.start_coordinator(options=("--session-timeout-ms", "3600000"))
                workers = [self.start_trainer(coordinator, name, 1, "--data-dir", data) for name in "abc"]
                job_id = coordinator.client.submit(document)
                clients = {(0,): "0", (0, 1, 2): "0-2", (1, 2): "1-2", (1,): "1"}[tuple(held)]
                wait_until(lambda: (coordinator.client.job(job_id)["waiting"] or {}).get("clients") == clients,
                           "the last evaluation")
                detail = coordinator.client.job(job_id)
                self.assertEqual((detail["round"], detail["status"]), (6, "running"))
                self.assertIn("to evaluate the last model", detail["waiting"]["text"])
                if victim == "coordinator":
                    coordinator.kill()
                    coordinator = self.start_coordinator(port=coordinator.port, store=coordinator.store,
                                                         options=("--session-timeout-ms", "3600000"))
                else:
                    (busy,) = detail["waiting"]["workers"]
                    next(each for each in workers if each.name == f"worker-{busy}").kill()
                    workers.append(self.start_trainer(coordinator, busy, 1, "--data-dir", data))
                for hold in holds:
                    hold.unlink()
                detail = coordinator.client.wait_status(job_id, "completed")
                self.assertEqual(essence(detail), essence(expected))
                self.assertEqual(metrics_of(detail), metrics_of(expected))
                rounds = coordinator.client.rounds(job_id)
                self.assertEqual([each["metrics"]["model_of"]["mean"] for each in rounds], [1, 2, 3, 4, 5, 6])
                self.assertEqual(detail["bits"]["telemetry"], sum(each["bits"]["telemetry"] for each in rounds))
                for worker in workers:
                    worker.kill()
                coordinator.kill()

    def test_what_a_training_loop_does_wrong_is_named(self):
        coordinator = self.start_coordinator()
        for mood, said in (("nan", "weight 4 is NaN"), ("infinite", "weight 0 is infinite"),
                           ("none", r"samples 0 outside \[1, 33554432\]"),
                           ("many", r"samples 1099511627776 outside \[1, 33554432\]"),
                           ("fail", "of 6 rounds this is the third"), ("crash", "killed by signal 6")):
            for options in ((), ("--plugin-isolated",)):
                if mood == "crash" and not options:
                    continue
                with self.subTest(mood, options=options):
                    worker = self.start_trainer(coordinator, mood + str(len(options)), CLIENTS, *options)
                    objective = {"type": "training", "name": "trainer", "dim": DIM, "options": mood}
                    job_id = coordinator.client.submit(training_job(objective=objective))
                    detail = coordinator.client.wait_status(job_id, "failed", "completed")
                    self.assertRegex(detail["reason"], rf"training of client \d in round 3: {said}")
                    self.assertEqual(detail["round"], 2)
                    worker.terminate()

    def test_each_model_is_evaluated_once_and_so_is_the_last(self):
        coordinator = self.start_coordinator()
        self.start_trainer(coordinator, "a", 2)
        self.start_trainer(coordinator, "b", 1, "--plugin-isolated")
        for evaluation, clients in (("one", [0]), ("clients", [0, 1, 2]), ("none", None)):
            for changes in ({}, {"cohort": 2, "quorum": 2}, {"policy": "drop"}, {"weighting": "points"},
                            {"cohort": 1, "over_selection": 1.0}):
                if "over_selection" in changes and evaluation == "clients":
                    continue  # the answers that count come from any client
                with self.subTest(evaluation, changes=changes):
                    document = training_job(initial_point={"type": "zeros"}, evaluation=evaluation, **changes)
                    expected = simulate(document, ("--plugin", TRAINER))
                    detail = self.run_job(coordinator, document)
                    rounds = coordinator.client.rounds(detail["id"])
                    self.assertEqual(len(rounds), 6)
                    self.assertEqual(detail["bits"]["telemetry"], sum(each["bits"]["telemetry"] for each in rounds))
                    self.assertNotIn("setback", detail)
                    if clients is None:
                        self.assertFalse([each for each in rounds if "model_of" in each["metrics"]])
                        continue
                    if "over_selection" in changes:
                        continue
                    self.assertEqual(essence(detail), essence(expected))
                    self.assertEqual(metrics_of(detail), metrics_of(expected))
                    self.assertEqual([each["metrics"]["model_of"]["mean"] for each in rounds], [1, 2, 3, 4, 5, 6])
                    if not changes:
                        np.testing.assert_allclose([each["metrics"]["first_weight"]["mean"] for each in rounds],
                                                   averages("equal"), rtol=1e-6)
                        self.assertEqual(rounds[0]["metrics"]["evaluator"],
                                         {"mean": sum(clients) / len(clients), "min": min(clients), "max": max(clients)})
                    model = coordinator.client.get_json(f"/v1/jobs/{detail['id']}/model")["x"]
                    self.assertAlmostEqual(rounds[-1]["metrics"]["first_weight"]["mean"], model[0], 6)
                    self.check_lists(coordinator, detail["id"], rounds)

    def check_lists(self, coordinator, job_id, rounds):
        """Checks that events, CSV and series have the same metrics as the round records."""
        values = [each["metrics"]["model_of"]["mean"] for each in rounds]
        table = coordinator.client.request("GET", f"/v1/jobs/{job_id}/rounds.csv").body.decode().splitlines()
        at = table[0].split(",").index("model_of_mean")
        self.assertEqual([float(line.split(",")[at]) for line in table[1:]], values)
        series = coordinator.client.get_json(f"/v1/jobs/{job_id}/series")
        self.assertEqual(series["metrics"]["model_of"]["mean"], values)

    def test_what_streams_and_series_show_while_the_job_runs(self):
        coordinator = self.start_coordinator()
        worker = self.start_trainer(coordinator, "a", CLIENTS)
        job_id = coordinator.client.submit(training_job(horizon=2000))
        kinds, metrics = [], {}
        with Stream(coordinator.port, job_id, after=0) as stream:
            for kind, data in stream.items():
                kinds.append(kind)
                if kind in ("round", "evaluation"):
                    metrics[data["round"]] = data.get("metrics", {})
                if len(kinds) % 200 == 0:  # the series is cached, up to a round without its evaluation
                    coordinator.client.get_json(f"/v1/jobs/{job_id}/series")
        kinds = [kind for kind in kinds if kind != "comment"]
        self.assertEqual(kinds[-2:], ["evaluation", "job"])
        self.assertEqual([metrics[r]["model_of"]["mean"] for r in range(1, 2001)], list(range(1, 2001)))
        series = coordinator.client.get_json(f"/v1/jobs/{job_id}/series?points=2000")
        self.assertEqual(series["metrics"]["model_of"]["mean"], list(range(1, 2001)))
        telemetry = series["columns"].index("telemetry")
        self.assertEqual(series["rows"][-1][telemetry], coordinator.client.job(job_id)["bits"]["telemetry"])
        worker.terminate()

    def test_rules_judge_the_model_that_was_evaluated(self):
        """`model_of` is the round that made the model. The round in which the evaluation arrives takes no step."""
        coordinator = self.start_coordinator()
        self.start_trainer(coordinator, "a", CLIENTS)
        made = {n: simulate(training_job(horizon=n), ("--plugin", TRAINER))["x_checksum"] for n in (1, 3, 6)}
        for least, rounds in ((3, 4), (6, 6)):
            document = training_job(stop={"metric": "model_of", "at_least": least})
            with self.subTest(least=least):
                detail = self.run_job(coordinator, document)
                self.assertEqual(essence(detail), essence(simulate(document, ("--plugin", TRAINER))))
                self.assertEqual(detail["stopped_by"], {"rule": "metric", "value": least, "round": least})
                self.assertEqual((detail["round"], detail["x_checksum"]), (rounds, made[least]))
        for better, best in (("higher", 6), ("lower", 1)):
            with self.subTest(better=better):
                detail = self.run_job(coordinator, training_job(keep={"best": "model_of", "better": better}))
                kept = coordinator.client.get_json(f"/v1/jobs/{detail['id']}/models")["models"][0]
                self.assertEqual([kept[key] for key in ("which", "round", "value", "x_checksum")],
                                 ["best", best, best, made[best]])

    def test_an_evaluation_that_fails_costs_only_itself(self):
        coordinator = self.start_coordinator()
        for mood, said in (("blind", "no test data"), ("crash_blind", "killed by signal 6"), ("unsure", None)):
            for options in ((), ("--plugin-isolated",)):
                if mood == "crash_blind" and not options:
                    continue
                with self.subTest(mood, options=options):
                    worker = self.start_trainer(coordinator, mood + str(len(options)), CLIENTS, *options)
                    objective = {"type": "training", "name": "trainer", "dim": DIM, "options": mood}
                    detail = self.run_job(coordinator, training_job(objective=objective))
                    rounds = coordinator.client.rounds(detail["id"])
                    self.assertEqual(["first_weight" in each["metrics"] for each in rounds],
                                     [True, True, False, True, True, True])
                    if said is None:
                        self.assertNotIn("setback", detail)
                        self.assertEqual(worker.log().count("metric=first_weight"), 1)
                    else:
                        self.assertEqual(detail["setback"],
                                         f"plug-in trainer: evaluation of round 3's model by client 0: {detail['setback'].split(': ', 2)[2]}")
                        self.assertIn(said, detail["setback"])
                        self.assertIn("evaluation failed", worker.log())
                    worker.terminate()

    def test_a_training_that_fails_is_tried_again(self):
        coordinator = self.start_coordinator()
        n_failures = 0
        for options in ((), ("--plugin-isolated",)):
            for mood in ("fail", "nan", "none"):
                with self.subTest(mood, options=options):
                    worker = self.start_trainer(coordinator, mood + str(len(options)), CLIENTS, *options)
                    objective = {"type": "training", "name": "trainer", "dim": DIM, "options": f"twice {mood}"}
                    document = training_job(objective=objective)
                    expected = simulate(document, ("--plugin", TRAINER))
                    detail = self.run_job(coordinator, document)
                    self.assertEqual(essence(detail), essence(expected))
                    self.assertEqual(detail["setback"], expected["setback"])
                    self.assertIn("training of client 1 in round 3", detail["setback"])
                    self.assertEqual({each["received"] for each in coordinator.client.rounds(detail["id"])}, {CLIENTS})
                    n_failures += 2
                    self.assertEqual(coordinator.log().count("a client's training failed"), n_failures)
                    worker.terminate()

    def test_a_round_that_drops_does_without_a_client_that_fails(self):
        coordinator = self.start_coordinator()
        for mood, options in (("fail", ()), ("fail", ("--plugin-isolated",)), ("crash", ("--plugin-isolated",))):
            with self.subTest(mood, options=options):
                worker = self.start_trainer(coordinator, mood + str(len(options)), CLIENTS, *options)
                objective = {"type": "training", "name": "trainer", "dim": DIM, "options": f"one {mood}"}
                document = training_job(objective=objective, policy="drop")
                detail = self.run_job(coordinator, document)
                rounds = coordinator.client.rounds(detail["id"])
                self.assertEqual([each["received"] for each in rounds], [3, 3, 2, 3, 3, 3])
                self.assertEqual([each["missing"] for each in rounds], ["", "", "1", "", "", ""])
                self.assertIn("training of client 1 in round 3", detail["setback"])
                if mood != "crash":
                    self.assertEqual(essence(detail), essence(simulate(document, ("--plugin", TRAINER))))
                worker.terminate()

    def test_plug_ins_without_the_function_refuse_the_job(self):
        coordinator = self.start_coordinator()
        moody = start_worker(self, coordinator, "moody", CLIENTS, "--plugin", BIN.parent / "plugins" / "moody.so")
        trainer = self.start_trainer(coordinator, "trainer", CLIENTS)
        for worker, type_, name, lacks in ((moody, "training", "moody", "train"), (trainer, "plugin", "trainer", "gradient")):
            steps = {} if type_ == "training" else {"step_size": 1, "local_steps": 1}
            coordinator.client.submit(training_job(objective={"type": type_, "name": name, "dim": 7},
                                                   algorithm={"type": "fedavg", **steps}))
            said = f"plug-in {name} has no function {lacks}, which jobs of type {type_} need"
            wait_until(lambda: said in worker.log(), f"worker {worker.name} to say: {said}")


class Documents(TallyTestCase):
    def test_mistakes_are_named(self):
        client = self.start_coordinator().client
        for changes, field, said in (
            ({"algorithm": {"type": "fedavg", "step_size": 1}}, "algorithm.step_size", "unknown key"),
            ({"algorithm": {"type": "fedavg", "local_steps": 5}}, "algorithm.local_steps", "unknown key"),
            ({"algorithm": {"type": "fedprox"}}, "algorithm.mu", "mu is missing"),
            ({"algorithm": {"type": "fedprox", "mu": 1, "step_size": 1}}, "algorithm.step_size", "unknown key"),
            ({"algorithm": {"type": "scaffold"}}, "algorithm.type", "scaffold needs gradients"),
            ({"algorithm": {"type": "minibatch_sgd"}}, "algorithm.type", "minibatch_sgd needs gradients"),
            ({"algorithm": {"type": "fedpaq"}}, "algorithm.levels", "levels is missing"),
            ({"reference": {"type": "value", "value": 0}}, "reference.type", "has no loss"),
            ({"reference": {"type": "solve"}}, "reference.type", "has no loss"),
            ({"evaluation": "all"}, "evaluation", "one, clients, none"),
            ({"evaluation": "one", "objective": {"type": "plugin", "name": "a", "dim": 1},
              "algorithm": {"type": "fedavg", "step_size": 1, "local_steps": 1}}, "evaluation", "type training"),
            ({"objective": {"type": "training", "name": "A", "dim": 1}}, "objective.name", "not a name of a plug-in"),
            ({"objective": {"type": "training", "name": "a"}}, "objective.dim", "dim is missing"),
            ({"objective": {"type": "training", "name": "a", "dim": 0}}, "objective.dim", "outside"),
            ({"objective": {"type": "plugin", "name": "a", "dim": 1}}, "algorithm.step_size", "step_size is missing"),
        ):
            with self.subTest(changes):
                answer = client.post_job(training_job(**changes))
                self.assertEqual(answer.status, 400)
                errors = {error["field"]: error["detail"] for error in answer.json()["errors"]}
                self.assertIn(said, errors[field])


@unittest.skipIf(IS_SANITIZED, "an interpreter cannot load a library with a sanitizer")
class Python(PythonCase):
    @staticmethod
    def train(weights, task):
        weights += (task.client + 1 - weights) / np.float32(3)
        return tally.Update(weights, samples=task.client + 1, metrics={"left": task.rounds - task.round})

    def test_a_loop_in_python_sends_what_one_in_c_sends(self):
        document = training_job(weighting="points")
        in_c = simulate(document, ("--plugin", TRAINER))
        detail = tally.simulate(training_job("python", weighting="points"), train=self.train)
        self.assertEqual(detail["x_checksum"], in_c["x_checksum"])
        self.assertEqual(detail["bits"]["uplink"], in_c["bits"]["uplink"])
        self.assertEqual(detail["metrics"]["left"]["mean"], 0)

    def test_evaluate_sees_each_model_once(self):
        seen = []

        def evaluate(weights, task):
            seen.append((task.round, task.rounds, task.client, weights.dtype, weights.copy()))
            weights[:] = np.nan  # they are a copy
            tally.report("reported", task.round)
            return {"first_weight": seen[-1][-1][0], "count": np.int64(len(seen))}

        document = training_job("python", initial_point={"type": "zeros"})
        in_c = simulate(training_job(initial_point={"type": "zeros"}), ("--plugin", TRAINER))
        detail = tally.simulate(document, train=self.train, evaluate=evaluate)
        self.assertEqual([(round_, rounds, client) for round_, rounds, client, *_ in seen],
                         [(round_, 6, 0) for round_ in range(1, 7)])
        self.assertEqual({each[3] for each in seen}, {np.dtype(np.float32)})
        np.testing.assert_allclose([each[-1][0] for each in seen], averages("equal"), rtol=1e-6)
        self.assertEqual(detail["x_checksum"], in_c["x_checksum"])
        self.assertEqual(detail["metrics"]["first_weight"], in_c["metrics"]["first_weight"])
        self.assertEqual((detail["metrics"]["count"]["mean"], detail["metrics"]["reported"]["max"]), (6, 6))

    def test_a_worker_evaluates_and_another_one_has_no_evaluation(self):
        coordinator = self.start_coordinator()
        client = tally.Client(coordinator.url)
        for evaluates in (True, False):
            worker = self.play(coordinator.url, train=self.train, clients=CLIENTS,
                               evaluate=(lambda weights, task: {"test_loss": 1 / task.round}) if evaluates else None)
            detail = client.wait(client.submit(training_job("python")))
            worker.stop()
            rounds = client.rounds(detail["id"])
            self.assertEqual("test_loss_mean" in rounds.dtype.names, evaluates)
            if evaluates:
                self.assertEqual(list(rounds["test_loss_mean"]), [1 / r for r in range(1, 7)])

    def test_an_evaluation_never_fails_a_job(self):
        for evaluate, said in (
            (lambda weights, task: 1 / 0, "ZeroDivisionError"),
            (lambda weights, task: None, "evaluate returned NoneType, not a mapping of metrics"),
            (lambda weights, task: {"A": 1}, "metric 'A' is not named"),
            (lambda weights, task: {f"m{i}": i for i in range(17)}, "more than 16 metrics"),
            (lambda weights, task: {"a": "b"}, "could not convert string to float"),
            (lambda weights, task: {"a": np.nan}, None),
        ):
            with self.subTest(said):
                detail = tally.simulate(training_job("python"), train=self.train, evaluate=evaluate)
                self.assertEqual(detail["status"], "completed")
                self.assertEqual(set(detail["metrics"]), {"left"})
                if said is None:
                    self.assertNotIn("setback", detail)
                else:
                    self.assertRegex(detail["setback"], rf"evaluation of round 6's model by client 0: .*{said}")

    def test_train_may_raise_three_times_in_a_round(self):
        for n, status in ((3, "completed"), (4, "failed")):
            left = [n]

            def train(weights, task):
                if task.round == 4 and task.client == 2 and left[0] > 0:
                    left[0] -= 1
                    raise RuntimeError("out of data")
                return self.train(weights, task)

            with self.subTest(n):
                document = training_job("python")
                if status == "failed":
                    with self.assertRaisesRegex(RuntimeError, "out of data"):
                        tally.simulate(document, train=train)
                else:
                    detail = tally.simulate(document, train=train)
                    self.assertEqual(detail["x_checksum"], tally.simulate(document, train=self.train)["x_checksum"])
                    self.assertRegex(detail["setback"], "training of client 2 in round 4: RuntimeError: out of data")

    def test_just_the_weights_are_an_update(self):
        seen = []

        def train(weights, task):
            seen.append((weights.dtype, weights.shape, task.seed, task.options, task.problem.clients, task.mu, task.job))
            return list(weights + 1)

        detail = tally.simulate(training_job("python", initial_point={"type": "zeros"}), train=train)
        self.assertEqual(detail["status"], "completed")
        self.assertEqual(set(seen), {(np.dtype(np.float32), (DIM,), 3, "", CLIENTS, 0, detail["id"])})

    def test_the_loop_adds_the_proximal_term(self):
        def train(weights, task):
            weights += (task.client + 1 - weights) / np.float32(3 + task.mu)
            return tally.Update(weights, samples=task.client + 1)

        document = training_job(weighting="points", algorithm={"type": "fedprox", "mu": 2})
        in_c = simulate(document, ("--plugin", TRAINER))
        detail = tally.simulate({**document, "objective": {"type": "training", "name": "python", "dim": DIM}}, train=train)
        self.assertEqual(detail["x_checksum"], in_c["x_checksum"])

    def test_a_worker_serves_both_kinds_and_reports(self):
        coordinator = self.start_coordinator()
        client = tally.Client(coordinator.url)

        def train(weights, task):
            tally.report("loss", task.client)
            return weights

        self.play(coordinator.url, lambda x, query: x, train=train, clients=CLIENTS)
        for type_, algorithm in (("training", {}), ("plugin", {"step_size": 0.1, "local_steps": 1})):
            job = training_job("python", objective={"type": type_, "name": "python", "dim": DIM},
                               algorithm={"type": "fedavg", **algorithm})
            detail = client.wait(client.submit(job))
            self.assertEqual(detail["status"], "completed")
            if type_ == "training":
                self.assertEqual(detail["metrics"]["loss"], {"mean": 1.0, "min": 0.0, "max": 2.0})

    def test_wrong_answers_are_named(self):
        def fails(weights, task):
            raise RuntimeError("out of data")

        coordinator = self.start_coordinator()
        client = tally.Client(coordinator.url)
        for train, said in (
            (lambda weights, task: None, "train returned None"),
            (lambda weights, task: "abcde", "train returned str"),
            (lambda weights, task: weights > 0, "train returned an array of bool"),
            (lambda weights, task: weights[1:], r"weights of shape \(4,\) in a job of dim 5"),
            (lambda weights, task: weights * np.nan, "weight 0 is NaN"),
            (lambda weights, task: np.full(DIM, 1e300), "weight 0 is infinite"),
            (lambda weights, task: weights * 1j, "train returned an array of complex"),
            (lambda weights, task: tally.Update(None), "train returned None"),
            (lambda weights, task: tally.Update(weights.reshape(1, -1)), r"weights of shape \(1, 5\) in a job of dim 5"),
            (lambda weights, task: np.append(weights[1:], -np.inf), "weight 4 is infinite"),
            (lambda weights, task: tally.Update(weights, samples=0), r"samples 0 outside \[1, 33554432\]"),
            (lambda weights, task: tally.Update(weights, samples=1.5), "samples 1.5 is no integer"),
            (lambda weights, task: tally.Update(weights, samples=-1), r"samples -1 outside \[1, 33554432\]"),
            (lambda weights, task: tally.Update(weights, samples=2**40), "samples 1099511627776 outside"),
            (lambda weights, task: tally.Update(weights, samples=float("nan")), "samples nan is no integer"),
            (lambda weights, task: tally.Update(weights, metrics={"A": 1}), "metric 'A' is not named"),
            (fails, "RuntimeError: out of data"),
        ):
            with self.subTest(said):
                worker = self.play(coordinator.url, train=train, clients=CLIENTS)
                for compression in ("none", "auto"):
                    algorithm = {"type": "fedavg", "compression": compression}
                    detail = client.wait(client.submit(training_job("python", algorithm=algorithm)))
                    self.assertEqual((detail["status"], detail["round"]), ("failed", 0))
                    self.assertRegex(detail["reason"], rf"training of client 0 in round 1: .*{said}")
                worker.stop()

    def test_wrong_answers_of_one_round_leave_no_trace(self):
        """Whatever a loop answers wrongly three times, with and without compression: the job is the same."""
        wrong = (lambda weights: weights * np.nan, lambda weights: weights[1:], lambda weights: None,
                 lambda weights: tally.Update(weights, samples=0))
        for compression in ("none", "auto"):
            document = training_job("python", weighting="points",
                                    algorithm={"type": "fedavg", "compression": compression})
            expected = tally.simulate(document, train=self.train)["x_checksum"]
            for k, answer in enumerate(wrong):
                left = [3]

                def train(weights, task, answer=answer, left=left):
                    if task.round == 4 and task.client == 1 and left[0] > 0:
                        left[0] -= 1
                        return answer(weights)
                    return self.train(weights, task)

                with self.subTest(compression=compression, k=k):
                    coordinator = self.start_coordinator()
                    client = tally.Client(coordinator.url)
                    worker = self.play(coordinator.url, train=train, clients=CLIENTS)
                    detail = client.wait(client.submit(document))
                    worker.stop()
                    coordinator.kill()
                    self.assertEqual((detail["status"], detail["x_checksum"]), ("completed", expected))
                    self.assertIn("training of client 1 in round 4", detail["setback"])
                    self.assertEqual(left, [0])

    def test_a_loop_that_hangs(self):
        """With `wait` the job says for whom it waits and loses nothing; with `drop` it goes on without the client."""
        for policy, compression in (("wait", "none"), ("wait", "auto"), ("drop", "none"), ("drop", "auto")):
            release = threading.Event()

            def train(weights, task, release=release):
                if task.client == 2 and task.round == 2:
                    release.wait(HANG_S)
                return self.train(weights, task)

            with self.subTest(policy=policy, compression=compression):
                coordinator = self.start_coordinator()
                client = tally.Client(coordinator.url)
                document = training_job("python", policy=policy, quorum=3 if policy == "wait" else 2, round_deadline_ms=400,
                                        algorithm={"type": "fedavg", "compression": compression}, evaluation="none")
                workers = [self.play(coordinator.url, train=train, clients=1, name=f"w{k}") for k in range(CLIENTS)]
                self.addCleanup(release.set)
                job_id = client.submit(document)
                if policy == "wait":
                    said = r"waits for client 2 .*its deadline of 400 ms has passed"
                    wait_until(lambda: re.search(said, (coordinator.client.job(job_id)["waiting"] or {"text": ""})["text"]),
                               "the job to say for whom it waits")
                    self.assertEqual(coordinator.client.job(job_id)["round"], 1)
                    release.set()
                    detail = client.wait(job_id)
                    self.assertEqual(detail["x_checksum"], tally.simulate(document, train=self.train)["x_checksum"])
                else:
                    detail = client.wait(job_id)
                    release.set()
                    rounds = coordinator.client.rounds(job_id)
                    self.assertEqual((rounds[1]["received"], rounds[1]["missing"]), (2, "2"))
                self.assertEqual((detail["status"], detail["round"]), ("completed", 6))
                for worker in workers:
                    worker.stop()
                coordinator.kill()

    def test_evaluations_of_clients_count_by_their_samples(self):
        """Also those of the last model, here of a job that its bits stop."""
        coordinator = self.start_coordinator()

        def evaluate(weights, task):
            return {"number": task.client, "model": weights[0]}

        document = training_job("python", weighting="points", evaluation="clients",
                                stop={"uplink_bits": 4 * CLIENTS * 32 * (DIM + 1)})
        expected = tally.simulate(document, train=self.train, evaluate=evaluate)
        client = tally.Client(coordinator.url)
        self.play(coordinator.url, train=self.train, evaluate=evaluate, clients=CLIENTS)
        detail = client.wait(client.submit(document))
        self.assertEqual(detail["stopped_by"]["rule"], "uplink_bits")
        self.assertEqual(detail["metrics"], expected["metrics"])
        rounds = coordinator.client.rounds(detail["id"])
        self.assertEqual([each["metrics"]["number"] for each in rounds],
                         4 * [{"mean": (0 * 1 + 1 * 2 + 2 * 3) / 6, "min": 0, "max": 2}])
        self.assertEqual(rounds[-1]["metrics"]["model"]["mean"], float(np.float32(client.model(detail["id"])[0])))
        coordinator.kill()
        again = self.start_coordinator(port=coordinator.port, store=coordinator.store)
        self.assertEqual(essence(again.client.job(detail["id"])), essence(detail))

    def test_a_start_is_offered(self):
        start = np.linspace(-1, 1, DIM)
        document = training_job("python", initial_point={"type": "first"})
        detail = tally.simulate(document, train=self.train, initial=start)
        coordinator = self.start_coordinator(options=("--data-dir", self.folder))
        client = tally.Client(coordinator.url)
        self.play(coordinator.url, train=self.train, initial=start, clients=CLIENTS)
        self.assertEqual(essence(client.wait(client.submit(document))), essence(detail))
        np.save(os.path.join(self.folder, "start.npy"), start.astype(np.float32))
        for initial in ({"type": "npy", "file": "start.npy"}, {"type": "zeros"}):
            other = client.wait(client.submit({**document, "initial_point": initial}))
            (self.assertEqual if initial["type"] == "npy" else self.assertNotEqual)(other["x_checksum"],
                                                                                   detail["x_checksum"])

    def test_what_is_wrong_with_a_start_is_named(self):
        for start, said in ((np.zeros((2, 2)), r"shape \(2, 2\)"), (["a"], "array of <U1"),
                            ([0, np.nan], r"initial\[1\] is nan"), ([0, 1, 1e39], r"initial\[2\] is 1e\+39")):
            with self.subTest(said):
                with self.assertRaisesRegex(ValueError, said):
                    tally.Worker(train=self.train, initial=start)
        with self.assertRaisesRegex(ValueError, "initial requires a gradient or train"):
            tally.Worker(initial=np.zeros(DIM))
        detail = tally.simulate(training_job("python", initial_point={"type": "first"}), train=self.train,
                                initial=np.zeros(DIM + 1))
        self.assertRegex(detail["reason"], r"initial of shape \(6,\) in a job of dim 5")

    def test_the_port_from_flower_runs_as_printed(self):
        if importlib.util.find_spec("torch") is None:
            self.skipTest("python3-torch (0.6 GB) is not installed")
        import torch

        text = (PACKAGE / "FLOWER.md").read_text()
        code = next(block for block in re.findall(r"(?s)```python\n(.*?)```", text) if "tally.submit" in block)
        trained, tested = set(), set()

        def fit(model, data, lr):
            trained.add((len(data), lr))
            with torch.no_grad():
                model.weight += lr
            return 0.5

        def test(model, data):
            tested.add(len(data))
            return 1.0, float(model.weight.mean())

        names = {"Net": lambda: torch.nn.Linear(3, 2), "load_data": lambda m: range(m + 1), "fit": fit, "test": test,
                 "tally": tally}
        coordinator = self.start_coordinator()
        with mock.patch.dict(os.environ, {"TALLY_COORDINATOR": coordinator.url}):
            exec(code, names)
        detail = coordinator.client.wait_status(names["job"], "completed")
        self.assertEqual((detail["round"], detail["cohort"]), (20, 5))
        self.assertEqual(set(detail["metrics"]) - {"eval_loss"}, {"accuracy", "train_loss"})
        self.assertEqual({n for n, _ in trained}, set(range(1, 11)))
        self.assertEqual({lr for _, lr in trained}, {0.1 / (i + 1) for i in range(20)})
        self.assertEqual(tested, set(range(1, 11)))
        self.assertEqual(names["model_of_the_job"].shape, (8,))

    def run_example(self, name, *arguments):
        """Returns the rounds, the bits up for each client, the bits down, and the accuracy that the example prints."""
        done = subprocess.run([sys.executable, PACKAGE / "examples" / name, *arguments], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": str(PACKAGE)}, timeout=HANG_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        said = re.fullmatch(r"(\d+) rounds, (\d+) bits up for each client, (\d+) down, "
                            r"accuracy before the last round (0\.\d+|1\.000)\n", done.stdout)
        self.assertIsNotNone(said, done.stdout)
        return *map(int, said.groups()[:3]), float(said[4])

    def check_bits(self, name, up, down, *limits):
        """Checks bits against limits, and that the example states them: least and most up, then down."""
        text = (PACKAGE / "examples" / name).read_text().split('"""')[1]
        stated = re.search(r"([\d.,]+) to ([\d.,]+) (M?)bits? up\s+for\s+each\s+client\s+and\s+([\d.,]+) to ([\d.,]+)", text)
        scale = 1e6 if stated[3] else 1
        self.assertEqual([float(stated[i].rstrip(".").replace(",", "")) * scale for i in (1, 2, 4, 5)], list(limits))
        self.assertTrue(limits[0] <= up <= limits[1] and limits[2] <= down <= limits[3], (up, down))

    def test_the_numpy_example_learns(self):
        rounds, up, down, accuracy = self.run_example("training_loop.py")
        self.check_bits("training_loop.py", up, down, 9000, 12000, 11500, 15000)
        self.assertEqual(rounds, 30)
        self.assertGreater(accuracy, 0.97)

    def test_the_scikit_learn_example_learns(self):
        if importlib.util.find_spec("sklearn") is None:
            self.skipTest("python3-sklearn is not installed")
        rounds, up, down, accuracy = self.run_example("sklearn_sgd_classifier.py")
        self.check_bits("sklearn_sgd_classifier.py", up, down, 19000, 24000, 35000, 45000)
        self.assertEqual(rounds, 20)
        self.assertGreater(accuracy, 0.92)

    def test_the_pytorch_example_learns(self):
        if importlib.util.find_spec("torch") is None:
            self.skipTest("python3-torch (0.6 GB) is not installed")
        if not os.path.exists(FASHION):
            self.skipTest("dataset-fashion-mnist is not installed")
        rounds, up, down, accuracy = self.run_example("pytorch_cnn.py", FASHION)
        self.check_bits("pytorch_cnn.py", up, down, 0.16e6, 0.24e6, 0.54e6, 0.68e6)
        self.assertEqual(rounds, 8)
        self.assertGreater(accuracy, 0.76)

    def test_arrays_become_weights_and_come_back(self):
        arrays = [np.arange(6.0).reshape(2, 3), np.array(7), [8, 9], np.zeros((0, 4))]
        weights = tally.arrays.flatten(arrays)
        np.testing.assert_array_equal(weights, np.array([0, 1, 2, 3, 4, 5, 7, 8, 9], np.float32))
        self.assertEqual((weights.dtype, tally.arrays.flatten([]).shape), (np.float32, (0,)))
        shapes = [(2, 3), (), (2,), (0, 4)]
        for part, shape in zip(tally.arrays.split(weights, shapes), shapes, strict=True):
            self.assertEqual(part.shape, shape)
            self.assertTrue(part.base is not None or part.size == 0)
        targets = [np.empty(shape) for shape in shapes]
        tally.arrays.load(targets, weights)
        np.testing.assert_array_equal(tally.arrays.flatten(targets), weights)
        transposed = np.empty((3, 2)).T
        tally.arrays.load([transposed, *targets[1:]], weights)
        np.testing.assert_array_equal(transposed, arrays[0])
        for wrong in (weights[1:], np.append(weights, 0), weights.reshape(3, 3)):
            with self.assertRaisesRegex(ValueError, r"weights of shape \(.*\) for arrays of 9 values"):
                tally.arrays.load(targets, wrong)

    def test_a_module_becomes_weights_and_comes_back(self):
        if importlib.util.find_spec("torch") is None:
            self.skipTest("python3-torch (0.6 GB) is not installed")
        script = """
import sys, numpy as np, tally
assert "torch" not in sys.modules
import torch
model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.Linear(3, 2)).double()
model[2].weight.requires_grad = False
weights = tally.torch.flatten(model)
wanted = torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy().astype(np.float32)
assert weights.dtype == np.float32 and np.array_equal(weights, wanted) and len(weights) == 20 + 4 + 8
both = tally.torch.flatten(model, buffers=True)
assert len(both) == len(weights) + 4 and np.array_equal(both[-2:], [1, 1])
tally.torch.load(model, both + 1, buffers=True)
assert np.array_equal(tally.torch.flatten(model, buffers=True), both + 1) and model[1].num_batches_tracked == 0
tally.torch.load(model, weights)
assert np.array_equal(tally.torch.flatten(model, buffers=True)[-2:], [2, 2])
weights[:] = 0
assert tally.torch.flatten(model).any()
for wrong in (both, weights[1:], None):
    try:
        tally.torch.load(model, wrong)
    except ValueError:
        continue
    raise AssertionError(wrong)
"""
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": str(PACKAGE)}, timeout=HANG_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_mistakes_of_the_caller(self):
        with self.assertRaisesRegex(ValueError, "metrics require a gradient or train"):
            tally.Worker(metrics=lambda x, client: {})
        with self.assertRaisesRegex(ValueError, "evaluate requires train"):
            tally.Worker(lambda x, query: x, evaluate=lambda weights, task: {})
        with self.assertRaisesRegex(ValueError, "evaluate requires train"):
            tally.simulate(training_job("python"), evaluate=lambda weights, task: {})
        with self.assertRaisesRegex(ValueError, "override require a gradient"):
            tally.Worker(train=self.train, override=True)
