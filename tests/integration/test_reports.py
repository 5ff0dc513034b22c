"""Metrics: named numbers that workers report next to their messages."""

import csv
import io
import subprocess
import unittest

from common import BIN, ForeignWorker, TallyTestCase, job_document, sum_of_rounds


class Reports(TallyTestCase):
    def setUp(self):
        super().setUp()
        self.coordinator = self.start_coordinator()
        self.client = self.coordinator.client
        self.worker = ForeignWorker(self.client, slots=10)

    def submit(self, **changes):
        return self.client.submit(job_document(reference={"type": "none"}, **changes))

    def post(self, task, client, metrics):
        update = self.worker.update(task, client)
        for name, value in metrics:
            update.updates[0].metrics.add(name=name, value=value)
        return self.client.call_raw("PostUpdate", update.SerializeToString())

    def metrics_of(self, job_id):
        """Returns {name: value} of tally_job_metric."""
        found = {}
        for line in self.client.get("/metrics").body.decode().splitlines():
            if line.startswith(f'tally_job_metric{{job="{job_id}",name="'):
                found[line.split('name="')[1].split('"')[0]] = float(line.split()[-1])
        return found

    def play_round(self, task, of_client):
        for client in range(10):
            self.assertEqual(self.post(task, client, of_client(client)).status, 200)

    def test_means_are_shown_everywhere(self):
        job_id = self.submit()
        task = self.worker.poll_task()
        self.assertNotIn("metrics", self.client.job(job_id))
        self.assertEqual(self.metrics_of(job_id), {})
        self.play_round(task, lambda client: [("seconds", client / 8), ("accuracy", -1.0)] if client < 5 else [])
        record, = self.client.rounds(job_id)
        expected = {"accuracy": {"mean": -1.0, "min": -1.0, "max": -1.0},
                    "seconds": {"mean": 0.25, "min": 0.0, "max": 0.5}}
        self.assertEqual(record["metrics"], expected)
        self.assertEqual(record["bits"]["telemetry"], 10 * (64 + 32) + 5 * (2 * 64 + 8 * len("secondsaccuracy")))
        detail = self.client.job(job_id)
        self.assertEqual(detail["metrics"], expected)
        self.assertEqual(detail["bits"]["telemetry"], record["bits"]["telemetry"])
        self.assertEqual(self.metrics_of(job_id), {"accuracy": -1.0, "seconds": 0.25})
        # A round without metrics shows none, the job keeps the last ones, and the CSV has a column for each.
        self.worker.cursors = {}
        self.play_round(self.worker.poll_task(), lambda client: [])
        self.assertNotIn("metrics", self.client.rounds(job_id)[1])
        self.assertEqual(self.client.job(job_id)["metrics"], expected)
        rows = list(csv.DictReader(io.StringIO(self.client.get(f"/v1/jobs/{job_id}/rounds.csv").body.decode())))
        names = ["accuracy_mean", "accuracy_min", "accuracy_max", "seconds_mean", "seconds_min", "seconds_max"]
        self.assertEqual([row[name] for row in rows for name in names],
                         ["-1", "-1", "-1", "0.25", "0", "0.5"] + [""] * 6)

    def test_a_metric_of_some_rounds_stays(self):
        """The last round lacks a metric of earlier ones, and the coordinator is killed after it."""
        job_id = self.submit()
        of_rounds = [{"test_loss": 0.5, "seconds": 1.0}, {"seconds": 2.0}, {"accuracy": 0.25}]
        for metrics in of_rounds:
            self.worker.cursors = {}
            self.play_round(self.worker.poll_task(), lambda client: metrics.items() if client == 0 else [])
        last = {name: {"mean": value, "min": value, "max": value}
                for name, value in (("accuracy", 0.25), ("seconds", 2.0), ("test_loss", 0.5))}

        def check():
            self.assertEqual(self.client.job(job_id)["metrics"], last)
            self.assertEqual(self.metrics_of(job_id), {name: each["mean"] for name, each in last.items()})
            text = self.client.get(f"/v1/jobs/{job_id}/rounds.csv").body.decode()
            self.assertEqual([name for name in text.splitlines()[0].split(",") if name.endswith("_mean")],
                             ["accuracy_mean", "seconds_mean", "test_loss_mean"])
            rows = list(csv.DictReader(io.StringIO(text)))
            self.assertEqual([{name: float(row[f"{name}_mean"]) for name in last if row[f"{name}_mean"]} for row in rows],
                             of_rounds)
            shown = subprocess.run([BIN / "tally", "show", job_id, "--coordinator", self.coordinator.url],
                                   capture_output=True, text=True, timeout=300, check=True).stdout
            for line in ("accuracy 0.25 ", "seconds 2 ", "test_loss 0.5 "):
                self.assertIn(line, shown)
            # The round that was asked for last lacks two of the columns.
            rest = self.client.get(f"/v1/jobs/{job_id}/rounds.csv?after=2").body.decode()
            self.assertEqual(rest.splitlines()[0], text.splitlines()[0])

        check()
        self.coordinator.kill()
        self.coordinator = self.start_coordinator(port=self.coordinator.port, store=self.coordinator.store)
        self.client = self.coordinator.client
        check()

    def test_a_metric_that_is_not_finite_is_dropped(self):
        """Of a worker that sends it, before and after a crash; the update counts, and so do its other metrics."""
        job_id = self.submit()
        task = self.worker.poll_task()
        for client in range(9):
            self.assertEqual(self.post(task, client, [("bad", float("nan")), ("good", 1.0),
                                                      ("some", -float("inf") if client else 2.0)]).status, 200)
        self.coordinator.kill()
        self.coordinator = self.start_coordinator(port=self.coordinator.port, store=self.coordinator.store)
        self.client = self.coordinator.client
        self.worker = ForeignWorker(self.client, slots=10)
        self.assertEqual(self.post(self.worker.poll_task(), 9, [("bad", float("inf"))]).status, 200)
        record, = self.client.rounds(job_id)
        self.assertEqual({name: each["mean"] for name, each in record["metrics"].items()}, {"good": 1.0, "some": 2.0})
        self.assertEqual(record["received"], 10)
        self.assertEqual(record["bits"]["telemetry"], 10 * (64 + 32) + 9 * (64 + 8 * 4) + 64 + 8 * 4)
        self.assertEqual(self.client.job(job_id)["metrics"], record["metrics"])

    def test_junk_is_refused_and_named(self):
        job_id = self.submit()
        task = self.worker.poll_task()
        many = [(f"m{i}", 1.0) for i in range(17)]
        for metrics, message in (
                ([("Accuracy", 1.0)], "[a-z][a-z0-9_]{0,31}"), ([("", 1.0)], "[a-z][a-z0-9_]{0,31}"),
                ([("a" * 33, 1.0)], "at most 32"), ([("a", 1.0), ("a", 1.0)], "metric a appears twice"),
                (many, "more than 16 elements")):
            with self.subTest(metrics=metrics):
                answer = self.post(task, 0, metrics)
                self.assertEqual((answer.status, answer.json()["code"]), (400, "invalid_argument"))
                self.assertIn(message, answer.json()["message"])
                self.assertIn("metrics", answer.json()["message"])
        self.assertEqual(self.post(task, 0, many[:16]).status, 200)
        answer = self.post(task, 1, [("other", 1.0)])
        self.assertIn("17 different names, at most 16", answer.json()["message"])
        self.assertEqual(self.post(task, 1, many[1:5]).status, 200)
        self.assertEqual(self.client.job(job_id)["round"], 0)

    def test_acknowledged_metrics_survive_a_kill(self):
        job_id = self.submit()
        task = self.worker.poll_task()
        for client in range(9):
            self.assertEqual(self.post(task, client, [("seconds", 1.0 + client)]).status, 200)
        self.coordinator.kill()
        self.coordinator = self.start_coordinator(port=self.coordinator.port, store=self.coordinator.store)
        self.client = self.coordinator.client
        self.worker = ForeignWorker(self.client, slots=10)
        task = self.worker.poll_task()
        self.assertEqual(list(task.clients), [9])
        self.assertEqual(self.post(task, 9, [("seconds", 5.0)]).status, 200)
        record, = self.client.rounds(job_id)
        self.assertEqual(record["metrics"], {"seconds": {"mean": 5.0, "min": 1.0, "max": 9.0}})
        sums = sum_of_rounds([record])
        self.assertEqual(sums, {key: self.client.job(job_id)["bits"][key] for key in sums})
        self.coordinator.kill()
        self.coordinator = self.start_coordinator(port=self.coordinator.port, store=self.coordinator.store)
        self.assertEqual(self.coordinator.client.job(job_id)["metrics"], record["metrics"])
        self.assertEqual(self.coordinator.client.rounds(job_id), [record])


if __name__ == "__main__":
    unittest.main()
