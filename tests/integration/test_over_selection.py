"""Over-selection: a round draws more clients than it needs answers, and the first answers count."""

import re
import unittest

from common import ENDLESS, ForeignWorker, TallyTestCase, essence, job_document, simulate, sum_of_rounds, wait_until
from round_gate import start_gate

CLIENTS, DRAWN, WANTED = 12, 5, 3
HOUR_MS = 3600 * 1000
DIM = 30


def document(base="synthetic-fedavg", /, **changes):
    return job_document(base, **{"clients": CLIENTS, "cohort": WANTED, "over_selection": 0.5, "policy": None,
                                 "quorum": None, "horizon": 800, "round_deadline_ms": HOUR_MS, **changes})


def listed(text):
    ranges = [part.split("-") for part in text.split()]
    return {client for ends in ranges for client in range(int(ends[0]), int(ends[-1]) + 1)}


def levels_of_late_updates(workers):
    """Returns the log levels of the refusals, except those of clients that another worker has served since a
    restart."""
    lines = [line for worker in workers for line in worker.log().splitlines() if "update refused" in line]
    return {re.search(r"level=(\w+)", line)[1] for line in lines if "is not assigned to this session" not in line}


class OverSelection(TallyTestCase):
    def check_records(self, client, detail):
        records = client.rounds(detail["id"])
        for record in records:
            self.assertEqual((record["received"], len(listed(record["missing"]))),
                             (0 if record["cut"] else WANTED, DRAWN - WANTED))
        sums = sum_of_rounds(records)
        self.assertEqual(sums, {key: detail["bits"][key] for key in sums})
        return records

    def test_one_worker_is_the_simulation(self):
        coordinator = self.start_coordinator()
        self.start_worker(coordinator, "w", clients=CLIENTS)
        for base in ("synthetic-fedavg", "synthetic-fedadam", "synthetic-minibatch-sgd"):
            with self.subTest(base):
                job_id = coordinator.client.submit(document(base))
                detail = coordinator.client.wait_status(job_id, "completed")
                self.assertEqual(essence(detail), essence(simulate(document(base))))
                self.check_records(coordinator.client, detail)
                self.assertEqual(detail["policy"], "drop")

    def test_many_workers_and_a_crash(self):
        """The first answers count, and every round has the number of answers that it requires."""
        wanted = document(horizon=6000, algorithm__local_steps=10)
        coordinator = self.start_coordinator()
        workers = [self.start_worker(coordinator, f"w{i}", clients=3, options=("--log-level", "debug"))
                   for i in range(4)]
        job_id = coordinator.client.submit(wanted)
        for closed in (30, 200):
            wait_until(lambda: coordinator.client.job(job_id)["round"] >= closed, f"round {closed}")
            coordinator.kill()
            coordinator = self.start_coordinator(port=coordinator.port, store=coordinator.store)
        detail = coordinator.client.wait_status(job_id, "completed")
        records = self.check_records(coordinator.client, detail)
        self.assertEqual(detail["round"], 600)
        self.assertEqual(detail["bits"]["uplink"]["payload"], 600 * WANTED * 32 * DIM)
        self.assertEqual(detail["bits"]["downlink"]["delivered_payload"], 600 * DRAWN * 32 * DIM)
        missed = {client for record in records for client in listed(record["missing"])}
        self.assertEqual(missed, set(range(CLIENTS)))
        self.assertNotIn("round closed without all clients", coordinator.log())
        self.assertEqual(levels_of_late_updates(workers), {"debug"})

    def test_without_it_a_late_update_stands_in_the_log(self):
        coordinator = self.start_coordinator()
        gate = start_gate(self, coordinator)
        late = self.start_worker(gate, "late")
        self.start_worker(coordinator, "on time", clients=3)
        job_id = coordinator.client.submit(document(clients=4, cohort=None, over_selection=None, policy="drop",
                                                    round_deadline_ms=50, horizon=ENDLESS))
        wait_until(gate.holds.is_set, "the late worker's first update")
        coordinator.client.wait_rounds(job_id, 2)  # it is late now
        gate.open()
        wait_until(lambda: levels_of_late_updates([late]) == {"info"}, "a refusal at the level info")

    def test_late_and_vacant_clients_do_not_count(self):
        """Four hands remain for the five clients of a round, so one client is vacant."""
        coordinator = self.start_coordinator(options=("--session-timeout-ms", str(HOUR_MS)))
        client = coordinator.client
        job_id = client.submit(document("synthetic-minibatch-sgd", horizon=10**8, reference={"type": "none"}))
        hands = [ForeignWorker(client, f"h{i}") for i in range(CLIENTS)]
        client.wait_status(job_id, "running")
        for _ in range(CLIENTS - DRAWN + 1):
            hands.pop(0).leave()
        for round_number in range(1, 31):
            updates = []
            for hand in hands:
                poll = hand.poll(wait_ms=0)
                if poll.WhichOneof("kind") == "task" and poll.task.round == round_number:
                    hand.cursors[job_id] = poll.task.iterate
                    updates.append((hand, hand.update(poll.task, poll.task.clients[0], payload=bytes(4 * DIM),
                                                      payload_bits=32 * DIM)))
            self.assertEqual(len(updates), DRAWN - 1)
            updates.reverse()  # not in the order of the clients
            for hand, update in updates[:WANTED]:
                hand.post(update)
            before = client.job(job_id)
            self.assertEqual(before["round"], round_number)
            for hand, update in updates[WANTED:]:
                self.assert_connect_error("failed_precondition", hand.post, update)
            for hand, update in updates[:WANTED]:
                hand.post(update)  # posted again: recognized as a repetition
            after = client.job(job_id)
            self.assertEqual(after["bits"]["uplink"], before["bits"]["uplink"])
            self.assertEqual(after["bits"]["uplink"]["messages"], WANTED * round_number)
            record = client.rounds(job_id)[-1]
            counted = {update.updates[0].client for _, update in updates[:WANTED]}
            self.assertEqual(record["received"], WANTED)
            self.assertFalse(counted & listed(record["missing"]))
            self.assertEqual(len(listed(record["missing"])), DRAWN - WANTED)

    def test_what_it_needs_is_said(self):
        coordinator = self.start_coordinator()
        for changes, text in (({"cohort": None}, "needs a cohort"), ({"cohort": CLIENTS}, "needs a cohort"),
                              ({"policy": "wait"}, "choose drop or fail")):
            answer = coordinator.client.post_job(document(**changes))
            self.assert_problem(answer, 400, "over_selection")
            self.assertIn(text, answer.json()["detail"])
        self.assert_problem(coordinator.client.post_job(document(quorum=WANTED + 1)), 400, "quorum")


if __name__ == "__main__":
    unittest.main()
