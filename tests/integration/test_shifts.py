"""Clients keep shifts in calm, diana, scaffold and ef21: what a worker that takes over a client must be sent, and what
crashes must not change.
"""

import random
import time
import unittest
from pathlib import Path

from common import ForeignWorker, TallyTestCase, essence, simulate, sum_of_rounds, wait_until
from round_gate import start_gate

CLIENTS = 6
DOCUMENT = {
    "name": "unlike", "clients": CLIENTS, "horizon": 150, "minibatch": 4, "seed": 3, "encoding": "dithered",
    "algorithm": {"type": "calm", "step_size": 0.25, "noise": 2, "client_spread": 2, "curvature_spread": 0.2,
                  "initial_variance": 1, "local_step_limit": 0.02, "shifts": True},
    "objective": {"type": "least_squares", "data": {"type": "csv", "file": "unlike.csv", "label": "y", "features": 8,
                                                    "sharding": "by_label"}},
    "budget": {"uplink_bits": 500, "downlink_bits": 500},
}


def baseline(name, **algorithm):
    """Returns the job of the same clients with real-valued or QSGD messages and without a budget."""
    document = {**DOCUMENT, "algorithm": {"type": name, "step_size": 0.01, "local_steps": 12, **algorithm}}
    del document["budget"], document["encoding"]
    return document


class Shifts(TallyTestCase):
    document = DOCUMENT
    quorum = 2

    def setUp(self):
        super().setUp()
        seed = time.time_ns()
        print(f"\nrandom seed {seed}", flush=True)
        self.random = random.Random(seed)
        self.data = Path(self.folder) / "data"
        self.data.mkdir()
        self.options = ("--data-dir", str(self.data))
        self.write_unlike_clients()
        self.expected = simulate(self.document, options=self.options)
        self.assertGreaterEqual(self.expected["round"], 5)

    def write_unlike_clients(self):
        """Labels grow with the group, so that `by_label` gives each client a group of its own."""
        draw = random.Random(5)
        lines = ["a,b,c,d,e,f,g,h,y"]
        for i in range(300):
            group = i % CLIENTS
            x = [draw.gauss(0, 1) + (2 if k == group else 0) for k in range(8)]
            lines.append(",".join(f"{value:.6f}" for value in [*x, sum(x) / 4 + draw.gauss(0, 0.3) + group]))
        (self.data / "unlike.csv").write_text("\n".join(lines) + "\n")

    def start(self, n_workers, **options):
        coordinator = self.start_coordinator(options=(*self.options, *options.pop("options", ())))
        self.gate = start_gate(self, coordinator)
        self.workers = [self.start_on_data(f"w{i}", CLIENTS // n_workers) for i in range(n_workers)]
        job_id = coordinator.client.submit(self.document)
        coordinator.client.wait_status(job_id, "running")
        return coordinator, job_id

    def start_on_data(self, name, clients):
        return self.start_worker(self.gate, name, clients=clients, options=self.options)

    def pass_rounds(self, coordinator, job_id, wanted):
        self.gate.let_pass(wanted)
        wait_until(lambda: coordinator.client.job(job_id)["round"] >= wanted, f"round {wanted}")

    def check_result(self, coordinator, job_id):
        self.gate.open()
        detail = coordinator.client.wait_status(job_id, "completed")
        self.assertEqual(essence(detail), essence(self.expected))
        sums = sum_of_rounds(coordinator.client.rounds(job_id))
        self.assertEqual(sums, {key: detail["bits"][key] for key in sums})
        return detail["bits"]["recovery"]

    def test_service_is_the_simulation(self):
        coordinator, job_id = self.start(3)
        self.assertEqual(self.check_result(coordinator, job_id), 0)

    def test_coordinator_killed_between_and_within_rounds(self):
        coordinator, job_id = self.start(3)
        for wanted in (1, 2, 3):
            self.pass_rounds(coordinator, job_id, wanted)
            time.sleep(self.random.uniform(0, 0.02))
            coordinator.kill()
            coordinator = self.start_coordinator(port=coordinator.port, store=coordinator.store, options=self.options)
        self.check_result(coordinator, job_id)

    def test_worker_killed_and_its_clients_moved(self):
        """A worker that has served other clients of the job takes over those of a dead worker. Then a worker joins that
        has served none."""
        coordinator, job_id = self.start(2, options=("--session-timeout-ms", "1000"))
        self.pass_rounds(coordinator, job_id, 2)
        self.workers[0].kill()
        self.start_on_data("helper", CLIENTS)
        self.pass_rounds(coordinator, job_id, 3)
        self.workers[1].kill()
        recovery = self.check_result(coordinator, job_id)
        # The point has 8 float64 values, a shift 8 float32 values. Every client's shift was sent at least once.
        self.assertGreaterEqual(recovery, CLIENTS * 8 * 32)

    def test_drop_may_lose_messages(self):
        """Late messages do not count, and both sides know it: the job continues and completes."""
        coordinator = self.start_coordinator(options=(*self.options, "--session-timeout-ms", "1000"))
        self.gate = start_gate(self, coordinator)
        self.gate.open()
        for i in range(3):
            self.start_on_data(f"w{i}", 2)
        slow = self.start_worker(self.gate, "slow", clients=2, options=self.options)
        document = {**self.document, "policy": "drop", "quorum": self.quorum, "round_deadline_ms": 5}
        job_ids = [coordinator.client.submit({**document, "seed": seed}) for seed in range(5)]
        slow.kill()
        for job_id in job_ids:
            detail = coordinator.client.wait_status(job_id, "completed")
            self.assertEqual(detail["time_step"], DOCUMENT["horizon"])


class Calm(Shifts):
    def test_shifts_save_bits(self):
        bits = []
        for shifts in (True, False):
            document = {**DOCUMENT, "algorithm": {**DOCUMENT["algorithm"], "shifts": shifts}}
            del document["budget"]
            bits.append(simulate(document, options=self.options)["bits"]["uplink"]["payload"])
        self.assertLess(bits[0], 0.9 * bits[1])  # measured: 0.85


class Diana(Shifts):
    document = baseline("diana", levels=3)


class Scaffold(Shifts):
    """No message of a round may be missing, so the slow worker's clients move to the others."""

    document = baseline("scaffold", server_step_size=1.25)
    quorum = CLIENTS


class Ef21(Shifts):
    document = baseline("ef21", k=2)


del Shifts  # the base class of the four is not a test


class LostCopy(TallyTestCase):
    """A worker that has dropped its copy of a job has lost its clients' shifts, including those that do not fit in a
    task of 4 MiB and those of clients that have answered."""

    DIM = 600_000  # one shift fits in a task

    def test_all_shifts_are_sent_again(self):
        coordinator = self.start_coordinator()
        job_id = coordinator.client.submit({
            "algorithm": {"type": "ef21", "step_size": 0.1, "local_steps": 1, "k": 1, "compressor": "rand_k"},
            "objective": {"type": "least_squares", "data": {"type": "csv", "file": "none.csv", "label": "y",
                                                            "features": self.DIM}},
            "clients": 3, "horizon": 100, "reference": {"type": "none"}})
        worker = ForeignWorker(coordinator.client, slots=3)

        def answer(task, clients):
            for client in clients:
                worker.post(worker.update(task, client, payload=bytes(4), payload_bits=32))

        def next_task():
            task = worker.poll_task()
            worker.cursors[job_id] = task.iterate
            sent = [(shift.client, len(shift.vector) // 4) for shift in task.shifts]
            self.assertEqual([client for client, _ in sent], list(task.clients))
            return task, sent

        task, sent = next_task()
        self.assertEqual(sent, [(0, 0), (1, 0), (2, 0)])
        answer(task, range(3))
        task, sent = next_task()
        self.assertEqual(sent, [(0, 0), (1, 0), (2, 0)])
        answer(task, [0])
        worker.cursors.clear()
        for client in (1, 2):
            task, sent = next_task()
            self.assertEqual((task.round, sent), (2, [(client, self.DIM)]))
            answer(task, [client])
        task, sent = next_task()
        self.assertEqual((task.round, sent), (3, [(0, self.DIM), (1, 0), (2, 0)]))


if __name__ == "__main__":
    unittest.main()
