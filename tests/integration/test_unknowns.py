"""Jobs with unknown constants (sigma and gradient_bound "auto"), without f(x*), with a domain, and with clients that
have gradients but no losses.
"""

import csv
import io
import math
import random
import statistics
import subprocess
import unittest
from itertools import pairwise
from pathlib import Path

from common import (
    BIN, HANG_S, ForeignWorker, TallyTestCase, essence, job_document, simulate, sum_of_rounds, uplink_of_workers,
    wait_until,
)
from round_gate import start_gate

AUTO = {"type": "ceal", "step_size": 2.0, "sigma": "auto"}


class Unknowns(TallyTestCase):
    def setUp(self):
        super().setUp()
        self.coordinator = self.start_coordinator()
        self.client = self.coordinator.client

    def run_job(self, document, split=(3, 3, 4)):
        """Returns the detail of a completed job that several workers served, its records and the workers."""
        workers = [self.start_worker(self.coordinator, f"w{i}", clients=n) for i, n in enumerate(split)]
        job_id = self.client.submit(document)
        detail = self.client.wait_status(job_id, "completed")
        return detail, self.client.rounds(job_id), workers

    def check_sums(self, detail, records):
        sums = sum_of_rounds(records)
        self.assertEqual(sums, {key: detail["bits"][key] for key in sums})

    def test_a_step_size_is_enough(self):
        document = job_document(algorithm=AUTO)
        expected = simulate(document)
        detail, records, workers = self.run_job(document)
        self.assertEqual(essence(detail), essence(expected))
        self.check_sums(detail, records)
        self.wait_until_heard(self.coordinator.client, workers)
        self.assert_ends_well(*workers, self.coordinator)
        self.assertEqual(uplink_of_workers(workers), detail["bits"]["uplink"])
        # The document is unchanged; the estimates are separate members of the detail.
        self.assertEqual(detail["algorithm"]["sigma"], "auto")
        self.assertEqual(detail["algorithm"]["gradient_bound"], "auto")
        self.assertGreater(detail["estimates"]["sigma"], 0)
        self.assertGreater(detail["estimates"]["gradient_bound"], 0)
        opening, *others = records
        self.assertEqual((opening["j"], opening["k"], opening["samples"], opening["received"]), (0, 1, 8, 10))
        self.assertEqual(opening["bits"]["uplink"], {"formula": 640, "payload": 640, "messages": 10, "clipped": 0})
        self.assertEqual(opening["bits"]["control"], 64)
        self.assertTrue(all(record["j"] >= 4 for record in others))
        # It works: regret is far below that of staying at the start, with tens of bits per round.
        idle = 10 * document["horizon"] * (records[0]["loss"] - detail["f_star"])
        self.assertLess(detail["cumulative_regret"], idle / 3)

    def test_killed_in_the_opening_round(self):
        document = job_document(algorithm=AUTO, round_deadline_ms=0)
        expected = simulate(document)
        self.start_worker(self.coordinator, "real", clients=5)
        silent = ForeignWorker(self.client, "silent", slots=5)
        job_id = self.client.submit(document)
        silent.poll_task()
        wait_until(lambda: (self.client.job(job_id)["waiting"] or {"workers": []})["workers"] == ["silent"],
                   "the five reports of the other worker")
        self.coordinator.kill()
        self.coordinator = self.start_coordinator(port=self.coordinator.port, store=self.coordinator.store)
        self.client = self.coordinator.client
        detail = self.client.job(job_id)
        self.assertEqual((detail["status"], detail["round"], detail["stage"]), ("running", 0, 0))
        self.assertIsNone(detail["estimates"])
        self.start_worker(self.coordinator, "other", clients=5)
        detail = self.client.wait_status(job_id, "completed")
        self.assertEqual(essence(detail), essence(expected))
        self.check_sums(detail, self.client.rounds(job_id))

    def test_killed_after_the_opening_round(self):
        document = job_document("synthetic-ceal-long", horizon=1000, algorithm__sigma="auto",
                                algorithm__gradient_bound="auto")
        self.check_killed(document, last=20)

    def test_calm_needs_no_member_at_all(self):
        document = job_document("synthetic-calm-auto", algorithm={"type": "calm"})
        expected = simulate(document)
        detail, records, workers = self.run_job(document)
        self.assertEqual(essence(detail), essence(expected))
        self.check_sums(detail, records)
        self.wait_until_heard(self.coordinator.client, workers)
        self.assert_ends_well(*workers, self.coordinator)
        self.assertEqual(uplink_of_workers(workers), detail["bits"]["uplink"])
        self.assertEqual(detail["algorithm"]["step_size"], "auto")
        found = detail["estimates"]["step_size"]  # a value of 12 bits, a 32nd of an octave apart
        self.assertLess(abs(found - 3) / 3, 0.05)
        self.assertAlmostEqual(32 * math.log2(found), round(32 * math.log2(found)), places=9)
        self.assertLess(detail["estimates"]["step_size_error"], 0.1)
        opening, repeated, *others = records
        self.assertEqual((opening["j"], opening["samples"], opening["received"]), (0, 5, 10))
        self.assertEqual(opening["bits"]["uplink"], {"formula": 380, "payload": 380, "messages": 10, "clipped": 0})
        self.assertEqual(opening["bits"]["control"], 34)
        # Its message includes the four queries at the initial point, and the clients go on from them.
        self.assertIn(repeated["samples"], range(5))
        # One point a query, and all directions alike: the noise grows by h^2 (d - 1).
        self.assertAlmostEqual(detail["estimates"]["noise_growth"], 29 / found**2, places=9)
        # The queries near the initial point are as bad as those at it: the loss is the mean over all of them.
        at_start = simulate(job_document("synthetic-calm-auto", horizon=6))
        self.assertAlmostEqual(opening["regret"] / 5, at_start["cumulative_regret"] / 6, delta=0.1)
        self.assertNotEqual(opening["regret"] / 5, at_start["cumulative_regret"] / 6)

    def test_epochs_of_calm_follow_the_noise(self):
        """While the noise falls with the distance, epochs stay short; otherwise they grow."""
        lengths, regrets = {}, {}
        for name in "synthetic-quiet-calm-auto", "synthetic-calm-auto":
            document = job_document(name, algorithm={"type": "calm"})
            _, records, workers = self.run_job(document)
            self.assert_ends_well(*workers)
            lengths[name] = [record["samples"] for record in records[2:-1]]
            details = simulate(document, ("--runs", 20))
            regrets[name] = sum(detail["cumulative_regret"] for detail in details) / 20
        quiet, loud = lengths["synthetic-quiet-calm-auto"], lengths["synthetic-calm-auto"]
        self.assertLess(sum(quiet), 100)
        self.assertGreater(sum(loud), 200)
        self.assertTrue(all(before < after for before, after in pairwise(loud)))
        given = simulate(job_document("synthetic-calm-auto", algorithm={"type": "calm", "step_size": 3}), ("--runs", 20))
        given = sum(detail["cumulative_regret"] for detail in given) / 20
        self.assertLess(regrets["synthetic-calm-auto"] / given, 1.1)
        self.assertLess(regrets["synthetic-quiet-calm-auto"], 46)  # 68 with epochs of 18, 54, 162 and 486 queries

    def test_calm_plans_the_rest_of_a_budget(self):
        """With few bits, fewer messages than epochs that grow by three would have; a mean of 96 in place of 379."""
        budget = {"uplink_bits": 200, "downlink_bits": 220}
        runs = simulate(job_document("synthetic-quiet-calm-auto", algorithm={"type": "calm"}, budget=budget), ("--runs", 20))
        self.assertLess(statistics.mean(run["cumulative_regret"] for run in runs), 120)
        for run in runs:
            bits = run["bits"]
            self.assertLessEqual(bits["uplink_per_client"]["payload"], 200)
            self.assertLessEqual(bits["downlink"]["payload"] + bits["control"], 220 + 10)  # declining clients: a bit each

    def test_calm_finds_the_step_size_in_any_unit(self):
        """With data in other units, regret and step size scale, and the bits stay."""
        plain = simulate(job_document("synthetic-calm-auto", algorithm={"type": "calm"}))
        for factor in 2.0**-10, 2.0**10:  # powers of two, so that all values round alike
            other = simulate(job_document(
                "synthetic-calm-auto", algorithm={"type": "calm"}, objective__data__frobenius_norm=100 * factor,
                objective__data__noise_std=factor))
            self.assertEqual(other["estimates"]["step_size"] * factor**2, plain["estimates"]["step_size"])
            self.assertAlmostEqual(other["cumulative_regret"] / factor**2 / plain["cumulative_regret"], 1, places=6)
            self.assertEqual(other["bits"], plain["bits"])

    def test_calm_is_killed_after_it_found_the_step_size(self):
        self.check_killed(job_document("synthetic-calm-auto", algorithm={"type": "calm"}, horizon=1000), last=2)

    def test_calm_travels_at_once_along_flat_directions(self):
        """The opening shows that directions are unlike, and a coordinator that is killed remembers it."""
        draw = random.Random(5)
        folder = Path(self.folder) / "data"
        folder.mkdir()
        with open(folder / "flat.csv", "w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow([*(f"c{i}" for i in range(12)), "y"])
            for _ in range(600):
                point = [draw.gauss(0, 2 / (i + 1)) for i in range(12)]
                rows.writerow([*point, 1 if sum(point) + draw.gauss(0, 1) > 0 else -1])
        options = ("--data-dir", folder)
        document = {"name": "flat", "clients": 4, "horizon": 300, "minibatch": 8, "seed": 3, "evaluate_every": 20,
                    "algorithm": {"type": "calm"}, "reference": {"type": "solve"},
                    "objective": {"type": "logistic_regression", "l2": 0.01,
                                  "data": {"type": "csv", "file": "flat.csv", "label": "y", "features": 12}}}
        expected = simulate(document, options)
        self.coordinator.kill()
        self.coordinator = self.start_coordinator(port=self.coordinator.port, store=self.coordinator.store, options=options)
        gate = start_gate(self, self.coordinator, last=2)
        self.start_worker(gate, "flat", clients=4, options=options)
        client = self.coordinator.client
        job_id = client.submit(document)
        wait_until(lambda: client.job(job_id)["round"] >= 2, "the opening and another round", pause_s=0.002)
        self.coordinator.kill()
        gate.open()
        self.coordinator = self.start_coordinator(port=self.coordinator.port, store=self.coordinator.store, options=options)
        detail = self.coordinator.client.wait_status(job_id, "completed")
        self.assertEqual(essence(detail), essence(expected))
        self.assertIsNone(detail["estimates"]["noise_growth"])
        records = self.coordinator.client.rounds(job_id)
        self.assertEqual([record["samples"] for record in records[:5]], [8, 0, 24, 24, 24])  # averaging: 18, 54
        self.check_sums(detail, records)

    def check_killed(self, document, last):
        """Kills the coordinator after the opening round has closed, at a gate after round `last`."""
        expected = simulate(document)
        gate = start_gate(self, self.coordinator, last=last)
        self.start_worker(gate, "w", clients=10)
        job_id = self.client.submit(document)
        wait_until(lambda: self.client.job(job_id)["round"] >= 2, "the opening and another round", pause_s=0.002)
        self.coordinator.kill()
        gate.open()
        self.coordinator = self.start_coordinator(port=self.coordinator.port, store=self.coordinator.store)
        self.client = self.coordinator.client
        self.assertEqual(self.client.job(job_id)["estimates"], expected["estimates"])
        detail = self.client.wait_status(job_id, "completed")
        self.assertEqual(essence(detail), essence(expected))
        self.check_sums(detail, self.client.rounds(job_id))

    def test_without_a_reference(self):
        document = job_document(reference={"type": "none"})
        known = simulate(job_document())
        detail, records, _ = self.run_job(document)
        self.assertEqual(essence(detail), essence(simulate(document)))
        self.assertIsNone(detail["f_star"])
        self.assertIsNone(detail["cumulative_regret"])
        self.assertEqual(detail["x_checksum"], known["x_checksum"])
        self.assertEqual({record["regret"] for record in records}, {None})
        self.assertTrue(all(record["loss"] > 0 for record in records))
        self.assertEqual(detail["loss"], records[-1]["loss"])
        job = f"/v1/jobs/{detail['id']}"
        table = csv.DictReader(io.StringIO(self.client.get(f"{job}/rounds.csv").body.decode()))
        self.assertEqual({row["regret"] for row in table}, {""})
        series = self.client.get_json(f"{job}/series")
        at = series["columns"].index("cumulative_regret")
        self.assertEqual({row[at] for row in series["rows"]}, {None})
        shown = subprocess.run([BIN / "tally", "list", "--coordinator", self.coordinator.url], capture_output=True,
                               text=True, check=True, timeout=HANG_S).stdout
        self.assertRegex(shown, rf"(?m)^{detail['id']} .* unknown +{detail['loss']:.6g} +\d")
        metrics = self.client.get("/metrics").body.decode()
        self.assertIn(f'tally_job_rounds_total{{job="{detail["id"]}"}}', metrics)
        self.assertNotIn(f'tally_job_regret{{job="{detail["id"]}"}}', metrics)
        self.assertIn(f'tally_job_loss{{job="{detail["id"]}"}} {detail["loss"]!r}\n', metrics)

    def test_clients_without_losses(self):
        def first_answer(document, loss):
            worker = ForeignWorker(self.client, slots=10)
            job_id = self.client.submit(document)
            task = worker.poll_task()
            self.assertTrue(task.evaluate)
            answers = []
            for client in range(10):
                update = worker.update(task, client)
                if not loss:
                    update.updates[0].ClearField("loss")
                answers.append(self.client.call_raw("PostUpdate", update.SerializeToString()))
            worker.leave()
            job = self.client.post(f"/v1/jobs/{job_id}/cancel").json()
            self.assertIsNone(job["loss"])
            self.assertNotIn(f'tally_job_loss{{job="{job_id}"}}', self.client.get("/metrics").body.decode())
            return answers, self.client.rounds(job_id)

        answers, records = first_answer(job_document(reference={"type": "none"}), loss=False)
        self.assertEqual({answer.status for answer in answers}, {200})
        self.assertIsNone(records[0]["loss"])
        answers, records = first_answer(job_document(), loss=False)
        self.assertEqual({answer.status for answer in answers}, {400})
        self.assertIn("only in jobs whose reference is none", answers[0].json()["message"])
        self.assertEqual(records, [])

    def test_domains(self):
        for name, domain in (("ceal", {"type": "ball", "radius": 0.5}),
                             ("fedavg", {"type": "box", "lower": -0.1, "upper": 0.15}),
                             ("fedcom", {"type": "ball", "radius": 0.5})):
            with self.subTest(name):
                document = job_document(f"synthetic-{name}", domain=domain, reference={"type": "none"})
                detail, records, workers = self.run_job(document)
                self.assertEqual(essence(detail), essence(simulate(document)))
                self.assertNotEqual(detail["x_checksum"],
                                    simulate(job_document(f"synthetic-{name}"))["x_checksum"])
                self.assertEqual(detail["domain"], domain)
                x = self.client.get_json(f"/v1/jobs/{detail['id']}/model")["x"]
                if domain["type"] == "ball":
                    self.assertLessEqual(math.hypot(*x), domain["radius"] * (1 + 1e-12))
                else:
                    self.assertTrue(all(domain["lower"] <= value <= domain["upper"] for value in x))
                self.assert_ends_well(*workers)


if __name__ == "__main__":
    unittest.main()
