"""A job gives the same bits in `tally simulate`, with ten worker processes and with one."""

import unittest

from common import TallyTestCase, essence, job_document, simulate, sum_of_rounds, uplink_of_workers


class EndToEnd(TallyTestCase):
    def run_job(self, document, workers, clients_each):
        """Runs a job to its end and returns coordinator, its detail and the workers."""
        coordinator = self.start_coordinator()
        started = [
            self.start_worker(coordinator, f"w{i}", clients=clients_each) for i in range(workers)
        ]
        job_id = coordinator.client.submit(document)
        detail = coordinator.client.wait_status(job_id, "completed")
        return coordinator, detail, started

    def check_same_as_simulated(self, document, workers, clients_each):
        coordinator, detail, started = self.run_job(document, workers, clients_each)
        self.assertEqual(essence(detail), essence(simulate(document)))
        self.check_counters(coordinator, detail)
        # No message was lost, so none was sent twice.
        self.assertEqual(detail["bits"]["recovery"], 0)
        self.wait_until_heard(coordinator.client, started)
        self.assert_ends_well(*started, coordinator)
        return detail, started

    def check_counters(self, coordinator, detail):
        records = coordinator.client.rounds(detail["id"])
        bits = detail["bits"]
        sums = sum_of_rounds(records)
        self.assertEqual(sums, {key: bits[key] for key in sums})

        clients = detail["clients"]
        self.assertEqual(bits["uplink_per_client"]["formula"], bits["uplink"]["formula"] / clients)
        self.assertEqual(bits["uplink_per_client"]["payload"], bits["uplink"]["payload"] / clients)
        self.assertEqual(
            bits["downlink"]["delivered_payload"], bits["downlink"]["payload"] * clients
        )
        # A message costs at least one bit per coordinate, and each nonzero level one more in the payload than in the
        # formula.
        for direction in ("uplink", "downlink"):
            counted = bits[direction]
            coordinates = counted["messages"] * detail["dim"]
            self.assertGreaterEqual(counted["formula"], coordinates)
            self.assertGreaterEqual(counted["payload"], counted["formula"])
            self.assertLessEqual(counted["payload"] - counted["formula"], coordinates)
        # wire_bytes covers all of it plus headers. A worker receives a broadcast once for all of its clients.
        self.assertGreater(bits["wire_bytes"]["in"], bits["uplink"]["payload"] / 8)
        self.assertGreater(bits["wire_bytes"]["out"], bits["downlink"]["payload"] / 8)
        self.check_records(detail, records)

    def check_records(self, detail, records):
        self.assertEqual([record["round"] for record in records], list(range(1, len(records) + 1)))
        self.assertEqual(detail["round"], len(records))
        time_step, regret, iterate, stage = 0, 0.0, 1, detail["algorithm"]["first_stage"]
        for record in records:
            self.assertEqual(record["t"], time_step + record["samples"])
            self.assertEqual((record["k"], record["j"]), (iterate, stage))
            self.assertGreaterEqual(record["regret"], regret)
            self.assertEqual(record["received"], 0 if record["cut"] else detail["clients"])
            self.assertEqual(record["bits"]["uplink"]["messages"], record["received"])
            self.assertEqual(record["bits"]["downlink"]["messages"], int(record["passed"]))
            time_step, regret = record["t"], record["regret"]
            if record["passed"]:
                iterate += 1
            elif not record["cut"]:
                stage += 1
        self.assertEqual(time_step, detail["horizon"])
        self.assertEqual(regret, detail["cumulative_regret"])
        self.assertEqual((iterate, stage), (detail["iterate"], detail["stage"]))

    def test_ten_processes_equal_the_simulation(self):
        detail, workers = self.check_same_as_simulated(job_document(), 10, 1)
        self.assertEqual(uplink_of_workers(workers), detail["bits"]["uplink"])

    def test_one_process_equals_the_simulation(self):
        detail, workers = self.check_same_as_simulated(job_document(), 1, 10)
        self.assertEqual(uplink_of_workers(workers), detail["bits"]["uplink"])

    def test_other_seeds_and_sizes(self):
        for changes in (
            {"seed": 7, "horizon": 500},
            {"clients": 3, "quorum": 3, "minibatch": 4, "objective__data__dim": 5,
             "objective__data__points": 200},
            {"initial_point": {"type": "zeros"}, "algorithm__first_stage": 1,
             "algorithm__sample_scale": 0.01},
        ):
            with self.subTest(changes):
                document = job_document(**changes)
                detail, _ = self.check_same_as_simulated(document, 1, document["clients"])
                self.assertEqual(detail["status"], "completed")

    def test_the_encoding_changes_payload_bits_alone(self):
        document = job_document(encoding="entropy")
        _, detail, _ = self.run_job(document, 2, 5)
        self.assertEqual(detail["encoding"], "entropy")
        entropy = essence(detail)
        self.assertEqual(entropy, essence(simulate(document)))
        unary = essence(simulate(job_document(encoding="unary")))
        for direction in ("uplink", "downlink", "uplink_per_client"):
            self.assertLess(entropy[direction]["payload"], unary[direction]["payload"])
            for key in ("payload", "delivered_payload"):
                entropy[direction].pop(key, None)
                unary[direction].pop(key, None)
        self.assertEqual(entropy, unary)

    def test_horizon_cuts_the_first_round(self):
        # s_3 = 128 samples do not fit: nothing is sent, but every step still counts in the regret.
        document = job_document(horizon=5)
        detail, _ = self.check_same_as_simulated(document, 2, 5)
        self.assertEqual(detail["bits"]["uplink"]["messages"], 0)
        self.assertEqual(detail["time_step"], 5)
        self.assertGreater(detail["cumulative_regret"], 0)

    def test_two_jobs_share_the_workers(self):
        """Idle workers serve the next job, and concurrent jobs do not affect each other."""
        documents = [job_document(seed=seed, clients=4, quorum=4) for seed in (11, 12, 13)]
        coordinator = self.start_coordinator()
        for i in range(3):  # there are 9 slots: two jobs fit, the third waits
            self.start_worker(coordinator, f"w{i}", clients=3)
        ids = [coordinator.client.submit(document) for document in documents]
        for job_id, document in zip(ids, documents):
            detail = coordinator.client.wait_status(job_id, "completed")
            self.assertEqual(essence(detail), essence(simulate(document)))

    def test_memory_store_gives_the_same(self):
        document = job_document()
        coordinator = self.start_coordinator(store="memory:")
        self.start_worker(coordinator, "w", clients=10)
        detail = coordinator.client.wait_status(coordinator.client.submit(document), "completed")
        self.assertEqual(essence(detail), essence(simulate(document)))


if __name__ == "__main__":
    unittest.main()
