"""Rules that end a job before its horizon (`stop`)."""

import subprocess
import time

import numpy as np

from common import (
    BIN, ConnectError, ForeignWorker, TallyTestCase, essence, job_document, simulate, sum_of_rounds, wait_until,
)

REASON = "stop_rule_met"
DIM = 30


def fedavg(**changes):
    return job_document("synthetic-fedavg", horizon=400, algorithm__local_steps=5, **changes)


class Rules(TallyTestCase):
    """Rules of the engine: the service stops as the simulation does."""

    def setUp(self):
        super().setUp()
        self.coordinator = self.start_coordinator()
        self.start_worker(self.coordinator, "a", clients=4)
        self.start_worker(self.coordinator, "b", clients=6)

    def run_job(self, document):
        job_id = self.coordinator.client.submit(document)
        detail = self.coordinator.client.wait_status(job_id, "completed")
        return detail, self.coordinator.client.rounds(job_id)

    def check(self, document, rule):
        expected = simulate(document)
        detail, records = self.run_job(document)
        self.assertEqual(essence(detail), essence(expected))
        self.assertEqual(detail["stopped_by"]["rule"], rule)
        self.assertEqual((detail["reason"], detail["reason_code"]), (expected["reason"], REASON))
        self.assertLess(detail["time_step"], document["horizon"])
        sums = sum_of_rounds(records)
        self.assertEqual(sums, {key: detail["bits"][key] for key in sums})
        self.assertEqual((records[-1]["round"], records[-1]["t"]), (detail["round"], detail["time_step"]))
        return detail, records

    def test_a_loss(self):
        whole = fedavg()
        start = simulate({**whole, "stop": {"loss": 1e300}})  # is met by the first round
        self.assertEqual((start["round"], start["iterate"]), (1, 1))
        limit = (start["loss"] + simulate(whole)["loss"]) / 2
        detail, records = self.check({**whole, "stop": {"loss": limit}}, "loss")
        self.assertEqual(detail["stopped_by"], {"rule": "loss", "value": records[-1]["loss"], "round": len(records)})
        self.assertLessEqual(records[-1]["loss"], limit)
        self.assertTrue(all(record["loss"] > limit for record in records[:-1]))
        # The point is the one whose loss it is: the last round has not moved it.
        self.assertEqual([record["passed"] for record in records], [True] * (len(records) - 1) + [False])
        self.assertEqual(detail["iterate"], records[-1]["k"])

    def test_patience(self):
        whole = fedavg()
        fall = simulate({**whole, "stop": {"loss": 1e300}})["loss"] - simulate(whole)["loss"]
        stop = {"patience": 3, "min_delta": fall / 20}
        detail, records = self.check({**whole, "stop": stop}, "patience")
        best, stale, losses = 0, [], [record["loss"] for record in records]
        for at, loss in enumerate(losses[1:], 1):
            best = at if loss < losses[best] - stop["min_delta"] else best
            stale.append(at - best)
        self.assertEqual(stale.index(3), len(stale) - 1)  # not earlier
        self.assertGreater(best, 1)
        self.assertEqual(detail["stopped_by"], {"rule": "patience", "value": losses[best], "round": best + 1})

    def test_bits(self):
        for base, direction in (("synthetic-ceal-long", "uplink"), ("synthetic-calm-auto", "downlink"),
                                ("synthetic-fedpaq", "uplink")):
            with self.subTest(base):
                document = job_document(base, horizon=600)
                bits = simulate(document)["bits"]
                limit = (bits[direction]["payload"] + bits["control"]) // 2
                detail, records = self.check({**document, "stop": {f"{direction}_bits": limit}}, f"{direction}_bits")
                sent = [record["bits"][direction]["payload"] + record["bits"]["control"] for record in records]
                self.assertEqual(detail["stopped_by"]["value"], sum(sent))
                self.assertGreaterEqual(sum(sent), limit)
                self.assertLess(sum(sent[:-1]), limit)

    def test_a_rule_that_is_not_met_changes_nothing(self):
        document = fedavg()
        rules = {"metric": "test_accuracy", "at_least": 0.5, "loss": -1, "patience": 1000, "uplink_bits": 10**15,
                 "downlink_bits": 10**15, "seconds": 10**6}
        detail, _ = self.run_job({**document, "stop": rules})
        self.assertEqual(essence(detail), essence(simulate(document)))
        self.assertEqual((detail["stopped_by"], detail["reason"], detail["reason_code"]),
                         (None, None, "horizon_reached"))
        self.assertEqual(detail["stop"], rules)


class ByHand(TallyTestCase):
    """Jobs whose only worker is the test."""

    def start(self, **changes):
        self.coordinator = self.start_coordinator()
        self.client = self.coordinator.client
        self.job_id = self.client.submit(job_document("synthetic-fedavg", clients=2, quorum=2, horizon=1000, round_deadline_ms=0,
                                                      reference={"type": "none"}, **changes))
        self.worker = ForeignWorker(self.client, slots=2)

    def restart(self):
        self.coordinator.kill()
        self.coordinator = self.start_coordinator(port=self.coordinator.port, store=self.coordinator.store)
        self.client = self.coordinator.client
        self.worker = ForeignWorker(self.client, slots=2)

    def update(self, task, client, value=None):
        update = self.worker.update(task, client, payload=bytes(4 * DIM), payload_bits=32 * DIM)
        if value is not None:
            update.updates[0].metrics.add(name="accuracy", value=value)
        return update

    def play(self, *values):
        task = self.worker.poll_task()
        for client, value in enumerate(values):
            self.worker.post(self.update(task, client, value))
        self.worker.cursors[self.job_id] = task.iterate

    def test_patience_survives_kills(self):
        """The coordinator is killed after each round, and amid the last one."""
        self.start(stop={"patience": 2, "watch": "accuracy", "min_delta": 0.125})
        for value in (0.25, 0.5, 0.625, 0.5):
            detail = self.client.job(self.job_id)
            self.assertEqual((detail["status"] in ("queued", "running"), detail["stopped_by"]), (True, None))
            self.play(value, value)
            self.restart()
        detail = self.client.job(self.job_id)
        self.assertEqual((detail["status"], detail["round"]), ("completed", 4))
        self.assertEqual(detail["stopped_by"], {"rule": "patience", "value": 0.5, "round": 2})
        self.assertEqual(detail["reason"], "accuracy 0.5 of round 2 was not improved in 2 rounds")
        shown = subprocess.run([BIN / "tally", "show", self.job_id, "--coordinator", self.coordinator.url],
                               capture_output=True, text=True, timeout=300, check=True).stdout
        self.assertIn(detail["reason"], shown)
        watched = subprocess.run([BIN / "tally", "watch", self.job_id, "--coordinator", self.coordinator.url],
                                 capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(watched.returncode, 0, watched)

    def test_a_metric(self):
        self.start(stop={"metric": "accuracy", "at_least": 0.75})
        self.play(1.0, 0.25)
        self.play(1.0, 0.5)
        detail = self.client.wait_status(self.job_id, "completed")
        self.assertEqual(detail["stopped_by"], {"rule": "metric", "value": 0.75, "round": 2})
        self.assertEqual(detail["reason"], "accuracy 0.75 of round 2 is at least 0.75")
        self.assertEqual(detail["iterate"], 2)  # the second round moved nothing

    def expect_ended(self):
        detail = self.client.wait_status(self.job_id, "completed")
        self.assertEqual(detail["stopped_by"]["rule"], "seconds")
        self.assertEqual(detail["reason_code"], REASON)
        ran_s = (detail["finished_ms"] - detail["started_ms"]) / 1000
        self.assertGreaterEqual(ran_s, detail["stop"]["seconds"])
        self.assertGreaterEqual(detail["stopped_by"]["value"], detail["stop"]["seconds"])
        return detail

    def test_seconds_end_a_round_that_waits(self):
        """They end a round that has one of two answers, which does not count; the other one is refused."""
        self.start(stop={"seconds": 2})
        time.sleep(0.5)  # in the queue, which does not count
        self.play(0.5, 0.5)
        before = self.client.job(self.job_id)
        task = self.worker.poll_task()
        self.worker.post(self.update(task, 0))
        detail = self.expect_ended()
        self.assertEqual(detail["round"], 1)
        self.assertEqual(essence({**detail, "status": "running", "stopped_by": None}), essence(before))
        with self.assertRaises(ConnectError) as caught:
            self.worker.post(self.update(task, 1))
        self.assertEqual(caught.exception.code, "failed_precondition")
        self.restart()
        self.assertEqual(self.client.job(self.job_id), detail)

    def test_seconds_count_while_paused_and_across_a_kill(self):
        self.start(stop={"seconds": 1.5})
        self.worker.poll_task()
        self.client.post(f"/v1/jobs/{self.job_id}/pause")
        self.restart()
        self.expect_ended()

    def test_seconds_do_not_end_a_job_in_the_queue(self):
        self.coordinator = self.start_coordinator()
        self.client = self.coordinator.client
        job_id = self.client.submit(job_document("synthetic-fedavg", stop={"seconds": 0.001}))
        time.sleep(0.5)
        self.assertEqual(self.client.job(job_id)["status"], "queued")


class LastEvaluation(TallyTestCase):
    """A training job whose time is up has its last model evaluated, if a worker is there. Its workers are the test."""

    SECONDS = 4  # enough for a first round, also on a busy machine

    def start(self, n_workers=1, **changes):
        self.coordinator = self.start_coordinator(options=("--session-timeout-ms", "3600000"))  # those who are there stay
        self.client = self.coordinator.client
        self.job_id = self.client.submit({
            "objective": {"type": "training", "name": "loop", "dim": DIM}, "algorithm": {"type": "fedavg"},
            "clients": 2, "horizon": 1000, "stop": {"seconds": self.SECONDS}, **changes})
        self.workers = [ForeignWorker(self.client, name=f"w{i}", slots=2 // n_workers) for i in range(n_workers)]

    def restart(self):
        self.coordinator.kill()
        self.coordinator = self.start_coordinator(port=self.coordinator.port, store=self.coordinator.store)
        self.client = self.coordinator.client

    def update(self, worker, task, client):
        """Returns a request with ones or, in the round of the last evaluation, with no weights."""
        update = worker.update(task, client)
        if not task.cut:
            update.updates[0].payload = np.ones(DIM, np.float32).tobytes()
            update.updates[0].payload_bits = 32 * DIM
        update.mark = task.mark
        if task.evaluate_model and task.evaluator in (0, client + 1):
            update.updates[0].evaluation.add(name="of_client", value=client)
        return update

    def play(self):
        """Plays the first round and begins the second one with an answer of client 0. Returns the task of the latter and
        the detail before it."""
        for worker in list(self.workers):
            task = worker.poll_task()
            self.assertEqual(task.round, 1)
            if 0 in task.clients:  # its worker comes first
                self.workers.sort(key=lambda each, first=worker: each is not first)
            for client in task.clients:
                worker.post(self.update(worker, task, client))
            worker.cursors[self.job_id] = task.iterate
        before = self.client.job(self.job_id)
        task = self.workers[0].poll_task()
        self.workers[0].cursors[self.job_id] = task.iterate
        self.assertEqual((task.round, task.cut, before["round"]), (2, False, 1))
        self.workers[0].post(self.update(self.workers[0], task, 0))
        return task, before

    def wait_stopped(self):
        def look():
            waiting = self.client.job(self.job_id)["waiting"] or {"text": ""}
            return "to evaluate the last model" in waiting["text"]
        wait_until(look, "the last evaluation")

    def check_ended(self, before, clients):
        """Checks the ended job against its detail after the first round, and which clients' evaluations it has."""
        detail = self.client.wait_status(self.job_id, "completed")
        self.assertEqual((detail["stopped_by"]["rule"], detail["stopped_by"]["round"]), ("seconds", 1))
        self.assertEqual(detail["reason_code"], REASON)
        telemetry = len(clients) * (64 + 8 * len("of_client"))
        self.assertEqual(detail["bits"]["telemetry"], before["bits"]["telemetry"] + telemetry)
        same = {"status": "running", "stopped_by": None, "telemetry": 0}
        self.assertEqual({**essence(detail), **same}, {**essence(before), **same})
        (record,) = self.client.rounds(self.job_id)
        self.assertEqual(record["bits"]["telemetry"], detail["bits"]["telemetry"])
        expected = {} if not clients else {"of_client": {
            "mean": sum(clients) / len(clients), "min": min(clients), "max": max(clients)}}
        self.assertEqual((record.get("metrics", {}), detail.get("metrics", {})), (expected, expected))
        return detail

    def test_the_last_model_is_evaluated(self):
        """The answers to the open round are dropped, in memory and in the store; a kill changes nothing."""
        for evaluation, is_killed in (("one", False), ("one", True), ("clients", True)):
            with self.subTest(evaluation, is_killed=is_killed):
                self.start(evaluation=evaluation)
                task, before = self.play()
                self.wait_stopped()
                (worker,) = self.workers
                clients = [0] if evaluation == "one" else [0, 1]
                for i in range(2):
                    with self.assertRaises(ConnectError) as caught:
                        worker.post(self.update(worker, task, 1))
                    self.assertEqual(caught.exception.code, "failed_precondition")
                    self.assertIn("the job stops", caught.exception.message)
                    last = worker.poll_task()
                    self.assertEqual((last.round, last.cut, last.samples, list(last.clients)), (2, True, 0, clients))
                    self.assertTrue(last.evaluate_model and not last.evaluate)
                    self.assertNotEqual(last.mark, task.mark)
                    if i == 1 or not is_killed:
                        break
                    self.restart()
                    cursors = worker.cursors
                    worker = ForeignWorker(self.client, name="w0", slots=2)
                    worker.cursors = cursors
                for client in clients:
                    worker.post(self.update(worker, last, client))
                detail = self.check_ended(before, clients)
                self.restart()
                self.assertEqual(self.client.job(self.job_id), detail)
                self.coordinator.kill()

    def test_a_worker_that_is_left_evaluates(self):
        self.start(n_workers=2)
        _, before = self.play()
        self.workers[0].leave()
        self.wait_stopped()
        last = self.workers[1].poll_task()
        self.assertEqual(list(last.clients), [0])
        self.workers[1].post(self.update(self.workers[1], last, 0))
        self.check_ended(before, [0])

    def test_no_worker_is_waited_for(self):
        """There is none when the time is up; or one leaves before it evaluates, while another one has; or none returns
        after a kill."""
        for leaves, n_workers, clients in (("before", 1, []), ("after", 2, [0]), ("never", 2, [0])):
            with self.subTest(leaves=leaves):
                self.start(n_workers, evaluation="clients")
                _, before = self.play()
                if leaves != "before":
                    self.wait_stopped()
                    self.workers[0].post(self.update(self.workers[0], self.workers[0].poll_task(), 0))
                if leaves == "never":
                    self.restart()
                else:
                    self.workers[-1].leave()
                self.check_ended(before, clients)
                self.coordinator.kill()

    def test_a_paused_job_ends_at_once(self):
        for when in ("before", "after"):
            with self.subTest(when=when):
                self.start()
                _, before = self.play()
                if when == "after":
                    self.wait_stopped()
                self.client.post(f"/v1/jobs/{self.job_id}/pause")
                self.check_ended(before, [])
                self.coordinator.kill()


class Documents(TallyTestCase):
    def test_simulations_have_no_clock(self):
        document = fedavg()
        self.assertEqual(essence(simulate({**document, "stop": {"seconds": 1e-9}})), essence(simulate(document)))

    def test_faults_are_named_all_at_once(self):
        coordinator = self.start_coordinator()
        answer = coordinator.client.post_job(fedavg(stop={"metric": "a", "patience": "2", "seconds": -1}, keep={"every": 0.5}))
        problem = self.assert_problem(answer, 400)
        self.assertEqual({error["field"] for error in problem["errors"]}, {"stop.patience", "stop.seconds", "keep.every"})
        answer = coordinator.client.post_job(fedavg(stop={"metric": "a"}, keep={"best": "test_loss"}))
        problem = self.assert_problem(answer, 400)
        self.assertEqual({error["field"] for error in problem["errors"]}, {"stop.at_least", "keep.better"})

    def test_a_training_loop_has_no_loss(self):
        coordinator = self.start_coordinator()
        training = {"objective": {"type": "training", "name": "x", "dim": 3}, "algorithm": {"type": "fedavg"},
                    "clients": 2, "horizon": 5}
        for stop, field in (({"loss": 1}, "stop.loss"), ({"patience": 1}, "stop.watch")):
            problem = self.assert_problem(coordinator.client.post_job({**training, "stop": stop}), 400)
            self.assertEqual(problem["field"], field)
        answer = coordinator.client.post_job({**training, "stop": {"patience": 1, "watch": "loss"}})
        self.assertEqual(answer.status, 201)
