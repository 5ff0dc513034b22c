"""kill -9 at any time changes nothing: same point, same regret, same counters."""

import random
import time
import unittest

from common import (
    TallyTestCase, essence, job_document, simulate, sum_of_rounds, uplink_of_workers, wait_until,
)
from recording_proxy import RecordingProxy
from round_gate import start_gate

LONG_JOB = "synthetic-ceal-long"
KILLS = 5
AHEAD = 100  # how many rounds past the next kill the gate opens, so that the job advances but cannot end


class Crash(TallyTestCase):
    def setUp(self):
        super().setUp()
        seed = time.time_ns()
        print(f"\nrandom seed {seed}", flush=True)
        self.random = random.Random(seed)
        self.choose(job_document(LONG_JOB, horizon=2000))

    def choose(self, document):
        self.document = document
        self.expected = simulate(self.document)
        self.assertGreater(self.expected["round"] // 3, AHEAD)

    def wait_for_round(self, coordinator, job_id, wanted):
        """Waits until the job has closed `wanted` rounds; returns how many it has."""
        self.gate.let_pass(wanted + AHEAD)

        def look():
            detail = coordinator.client.job(job_id)
            self.assertEqual(detail["status"], "running", "the job ended before the last kill")
            return detail["round"] if detail["round"] >= wanted else None

        return wait_until(look, f"round {wanted}", pause_s=0.002)

    def kill_points(self, n):
        """Returns random rounds for the kills, all in the first two thirds of the job."""
        last = self.expected["round"] * 2 // 3
        return sorted(self.random.sample(range(1, last), n))

    def check_result(self, coordinator, job_id):
        self.gate.open()
        detail = coordinator.client.wait_status(job_id, "completed")
        self.assertEqual(essence(detail), essence(self.expected))
        sums = sum_of_rounds(coordinator.client.rounds(job_id))
        self.assertEqual(sums, {key: detail["bits"][key] for key in sums})
        return detail

    def test_coordinator_killed_five_times(self):
        self.kill_coordinator(KILLS)

    def test_memory_of_a_server_optimizer_survives(self):
        self.choose(job_document("synthetic-fedadam", algorithm__local_steps=4))
        self.kill_coordinator(2)

    def test_coordinator_killed_in_batches(self):
        """Each worker posts the updates of all clients of the job in one request."""
        self.kill_coordinator(3, clients=10)

    def kill_coordinator(self, times, clients=2):
        coordinator = self.start_coordinator()
        self.gate = start_gate(self, coordinator)
        workers = [self.start_worker(self.gate, f"w{i}", clients=clients) for i in range(10 // clients)]
        job_id = coordinator.client.submit(self.document)
        coordinator.client.wait_status(job_id, "running")
        for point in self.kill_points(times):
            seen = self.wait_for_round(coordinator, job_id, point)
            time.sleep(self.random.uniform(0, 0.02))  # anywhere in a round, not only at its end
            coordinator.kill()
            coordinator = self.start_coordinator(port=coordinator.port, store=coordinator.store)
            detail = coordinator.client.job(job_id)
            print(f"killed past round {seen}, back at round {detail['round']}", flush=True)
            # Everything that was shown is durable: the round never decreases.
            self.assertGreaterEqual(detail["round"], seen)
        detail = self.check_result(coordinator, job_id)
        self.wait_until_heard(coordinator.client, workers)
        self.assert_ends_well(*workers, coordinator)
        self.assertEqual(uplink_of_workers(workers), detail["bits"]["uplink"])

    def test_coordinator_killed_before_the_job_starts(self):
        coordinator = self.start_coordinator()
        document = job_document()
        job_id = coordinator.client.submit(document)
        coordinator.kill()
        coordinator = self.start_coordinator(port=coordinator.port, store=coordinator.store)
        self.assertIn(coordinator.client.job(job_id)["status"], ("queued", "running"))
        self.start_worker(coordinator, "w", clients=10)
        detail = coordinator.client.wait_status(job_id, "completed")
        self.assertEqual(essence(detail), essence(simulate(document)))

    def test_finished_job_survives(self):
        coordinator = self.start_coordinator()
        self.start_worker(coordinator, "w", clients=10)
        document = job_document()
        job_id = coordinator.client.submit(document)
        before = coordinator.client.wait_status(job_id, "completed")
        rounds = coordinator.client.rounds(job_id)
        model = coordinator.client.get_json(f"/v1/jobs/{job_id}/model")
        coordinator.kill()
        coordinator = self.start_coordinator(port=coordinator.port, store=coordinator.store)
        self.assertEqual(essence(coordinator.client.job(job_id)), essence(before))
        self.assertEqual(coordinator.client.rounds(job_id), rounds)
        self.assertEqual(coordinator.client.get_json(f"/v1/jobs/{job_id}/model"), model)

    def check_worker_killed(self, new_name, options=(), clients=2):
        coordinator = self.start_coordinator(options=options)
        self.gate = start_gate(self, coordinator)
        workers = [self.start_worker(self.gate, f"w{i}", clients=clients) for i in range(10 // clients)]
        job_id = coordinator.client.submit(self.document)
        coordinator.client.wait_status(job_id, "running")
        for n, point in enumerate(self.kill_points(3)):
            self.wait_for_round(coordinator, job_id, point)
            victim = self.random.randrange(len(workers))
            workers[victim].kill()
            workers[victim] = self.start_worker(self.gate, new_name(victim, n), clients=clients)
        detail = self.check_result(coordinator, job_id)
        # A new worker receives the point, which counts as recovery.
        self.assertGreater(detail["bits"]["recovery"], 0)
        self.assert_ends_well(*workers, coordinator)

    def test_worker_killed_and_restarted_with_the_same_name(self):
        self.check_worker_killed(lambda victim, n: f"w{victim}")

    def test_worker_killed_in_batches(self):
        self.check_worker_killed(lambda victim, n: f"w{victim}", clients=5)

    def test_worker_killed_and_replaced_by_another(self):
        """A killed worker's clients are reassigned once it has been silent for the session timeout."""
        self.check_worker_killed(
            lambda victim, n: f"replacement-{n}", options=("--session-timeout-ms", "1000")
        )

    def test_connections_break_all_the_time(self):
        """Requests and responses are lost or truncated, and repetitions are not counted again."""
        coordinator = self.start_coordinator()
        faults = ("request", "half request", "response", "half response")
        proxy = RecordingProxy(
            coordinator.port,
            lambda: self.random.choice(faults) if self.random.random() < 0.02 else None,
        )
        self.addCleanup(proxy.close)
        url, coordinator.url = coordinator.url, proxy.url
        workers = [self.start_worker(coordinator, f"w{i}", clients=2) for i in range(5)]
        coordinator.url = url
        document = job_document(LONG_JOB, horizon=1000)
        job_id = coordinator.client.submit(document)
        detail = coordinator.client.wait_status(job_id, "completed")
        self.assertEqual(essence(detail), essence(simulate(document)))
        self.wait_until_heard(coordinator.client, workers)
        self.assert_ends_well(*workers)
        self.assertEqual(uplink_of_workers(workers), detail["bits"]["uplink"])


if __name__ == "__main__":
    unittest.main()
