"""Cohorts: a round is given to the clients that are drawn for it and to no others, workers without one of them wait,
and the service computes what `tally simulate` does."""

import unittest

from common import (
    ForeignWorker, TallyTestCase, essence, job_document, memory_bytes, simulate, sum_of_rounds, uplink_of_workers,
    wait_until,
)
from round_gate import start_gate

CLIENTS = 12
COHORT = 3
HOUR_MS = 3600 * 1000
DIM = 30
HELD_AT = 10


def document(base="synthetic-fedavg", /, **changes):
    return job_document(base, **{"clients": CLIENTS, "cohort": COHORT, "quorum": COHORT, "horizon": 800,
                                 "round_deadline_ms": HOUR_MS, **changes})


def expected_bits(detail):
    """By the formula of float32 messages: all of a cohort up, one broadcast down, which reaches a cohort."""
    bits = 32 * DIM * detail["round"]
    return {"up": COHORT * bits, "down": bits, "delivered": COHORT * bits}


class Cohorts(TallyTestCase):
    def check_result(self, client, job_id, expected):
        detail = client.wait_status(job_id, "completed")
        self.assertEqual(essence(detail), essence(expected))
        records = client.rounds(job_id)
        sums = sum_of_rounds(records)
        self.assertEqual(sums, {key: detail["bits"][key] for key in sums})
        for record in records:
            self.assertEqual((record["received"], record["missing"]), (0 if record["cut"] else COHORT, ""))
        return detail

    def test_workers_compute_what_simulate_does(self):
        for base in ("synthetic-fedavg", "synthetic-fedpaq", "synthetic-fedadam", "synthetic-minibatch-sgd"):
            with self.subTest(base=base):
                wanted = document(base)
                coordinator = self.start_coordinator(name=f"c-{base}")
                workers = [self.start_worker(coordinator, f"w{i}-{base}", clients=4 if i else 1) for i in range(4)]
                job_id = coordinator.client.submit(wanted)
                detail = self.check_result(coordinator.client, job_id, simulate(wanted))
                self.wait_until_heard(coordinator.client, workers)
                self.assert_ends_well(*workers, coordinator)
                self.assertEqual(uplink_of_workers(workers), detail["bits"]["uplink"])

    def test_bits_and_regret_are_of_those_that_take_part(self):
        coordinator = self.start_coordinator()
        wanted = document()
        self.start_worker(coordinator, "w", clients=CLIENTS)
        detail = self.check_result(coordinator.client, coordinator.client.submit(wanted), simulate(wanted))
        bits = detail["bits"]
        self.assertEqual({"up": bits["uplink"]["payload"], "down": bits["downlink"]["payload"],
                          "delivered": bits["downlink"]["delivered_payload"]}, expected_bits(detail))
        self.assertEqual(bits["recovery"], 0)  # the worker has a client in every round
        regret = 0
        before = 0
        for record in coordinator.client.rounds(detail["id"]):
            regret += (record["t"] - before) * COHORT * (record["loss"] - detail["f_star"])
            before = record["t"]
        self.assertAlmostEqual(detail["cumulative_regret"], regret, delta=1e-9 * abs(regret))

    def test_a_share_is_the_same_job(self):
        answers = [simulate(document(cohort=cohort)) for cohort in (3, 0.25)]
        self.assertEqual(*[essence(answer) for answer in answers])

    def test_restarts_draw_the_same_clients(self):
        wanted = document(horizon=2000, algorithm__local_steps=10)
        coordinator = self.start_coordinator()
        gate = start_gate(self, coordinator, last=HELD_AT)
        workers = [self.start_worker(gate, f"w{i}", clients=4) for i in range(3)]
        job_id = coordinator.client.submit(wanted)
        for closed in (10, 40):
            gate.let_pass(closed)
            wait_until(lambda: coordinator.client.job(job_id)["round"] >= closed - 5, f"round {closed}")
            coordinator.kill()
            coordinator = self.start_coordinator(port=coordinator.port, store=coordinator.store)
        gate.open()
        self.check_result(coordinator.client, job_id, simulate(wanted))
        self.wait_until_heard(coordinator.client, workers)

    def test_a_worker_is_given_its_drawn_clients_and_caught_up(self):
        """Each of the hands has one client. Whoever is not drawn gets no task; whoever has been away for long gets
        the point, which counts as recovery."""
        coordinator = self.start_coordinator(options=("--session-timeout-ms", str(HOUR_MS)))
        client = coordinator.client
        job_id = client.submit(document("synthetic-minibatch-sgd", clients=4, cohort=1, quorum=1, horizon=10**8))
        hands = [ForeignWorker(client, f"h{i}") for i in range(4)]
        client.wait_status(job_id, "running")
        last, recovery = {}, 0
        for round_number in range(1, 31):
            polls = [hand.poll(wait_ms=0) for hand in hands]
            tasks = [(hand, poll.task) for hand, poll in zip(hands, polls) if poll.WhichOneof("kind") == "task"]
            ((hand, task),) = tasks
            self.assertEqual((task.round, len(task.clients)), (round_number, 1))
            missed = round_number - last.get(id(hand), 1)
            if missed > 2:  # broadcasts of 32 bits a coordinate, against 64 of the point
                self.assertEqual((len(task.snapshot), len(task.broadcasts)), (8 * DIM, 0))
                recovery += 64 * DIM
            else:
                self.assertEqual((len(task.snapshot), len(task.broadcasts)), (0, missed))
                recovery += 32 * DIM * max(missed - 1, 0)
            hand.cursors[job_id] = task.iterate
            last[id(hand)] = round_number
            hand.post(hand.update(task, task.clients[0], payload=bytes(4 * DIM), payload_bits=32 * DIM))
        self.assertEqual(len(last), 4)
        wait_until(lambda: client.job(job_id)["bits"]["recovery"] == recovery, f"recovery of {recovery} bits")
        self.assertEqual(client.job(job_id)["bits"]["downlink"]["delivered_payload"], 30 * 32 * DIM)

    def test_an_absent_client_matters_if_it_is_drawn(self):
        """With policy drop, rounds that draw the client that has gone close without it, at once; others have it
        all."""
        coordinator = self.start_coordinator(options=("--session-timeout-ms", str(HOUR_MS)))
        client = coordinator.client
        wanted = document("synthetic-minibatch-sgd", clients=4, cohort=2, quorum=1, policy="drop", horizon=10**8)
        job_id = client.submit(wanted)
        hands = [ForeignWorker(client, f"h{i}") for i in range(4)]
        client.wait_status(job_id, "running")
        (gone,) = [a["client"] for w in client.get_json("/v1/workers")["workers"] if w["name"] == "h0"
                   for a in w["assignments"]]
        hands[0].leave()
        drawn = 0
        for round_number in range(1, 31):
            answered = 0
            for hand in hands[1:]:
                poll = hand.poll(wait_ms=0)
                if poll.WhichOneof("kind") == "task" and poll.task.round == round_number:
                    hand.cursors[job_id] = poll.task.iterate
                    hand.post(hand.update(poll.task, poll.task.clients[0], payload=bytes(4 * DIM),
                                          payload_bits=32 * DIM))
                    answered += 1
            record = wait_until(lambda: (client.rounds(job_id) or [None])[-1], "a record")
            self.assertEqual(record["round"], round_number)
            self.assertEqual((record["received"], record["missing"]), (answered, "" if answered == 2 else str(gone)))
            drawn += answered == 1
        self.assertTrue(5 < drawn < 25, drawn)

    def test_a_client_that_is_not_drawn_is_refused(self):
        coordinator = self.start_coordinator()
        client = coordinator.client
        client.submit(document("synthetic-minibatch-sgd", clients=4, cohort=1, quorum=1, horizon=10**8))
        hand = ForeignWorker(client, "h", slots=4)
        task = hand.poll_task()
        (drawn,) = task.clients
        other = (drawn + 1) % 4
        self.assert_connect_error("failed_precondition", hand.post,
                                  hand.update(task, other, payload=bytes(4 * DIM), payload_bits=32 * DIM))

    def test_the_theory_of_ceal_and_calm_has_no_cohorts(self):
        coordinator = self.start_coordinator()
        for base in ("synthetic-ceal", "synthetic-calm-auto"):
            answer = coordinator.client.post_job({**job_document(base), "cohort": 3, "quorum": 3})
            self.assert_problem(answer, 400, "cohort")
            self.assertIn("needs all", answer.json()["detail"])

    def test_a_hundred_thousand_clients_fit_in_a_small_coordinator(self):
        """The start needs a slot of every client; rounds are those of ten."""
        clients, per_worker = 100000, 4000
        coordinator = self.start_coordinator(options=("--session-timeout-ms", str(HOUR_MS)))
        client = coordinator.client
        job_id = client.submit(document(
            "synthetic-minibatch-sgd", clients=clients, cohort=10, quorum=10, horizon=10**8,
            objective__data__points=clients, objective__data__dim=3, reference={"type": "none"}))
        hands = {f"h{i}": ForeignWorker(client, f"h{i}", slots=per_worker) for i in range(clients // per_worker)}
        client.wait_status(job_id, "running")
        for round_number in range(1, 4):
            n = 0
            for hand in hands.values():
                poll = hand.poll(wait_ms=0)
                if poll.WhichOneof("kind") != "task" or poll.task.round != round_number:
                    continue
                for drawn in poll.task.clients:
                    hand.post(hand.update(poll.task, drawn, dim=3, payload=bytes(12), payload_bits=96))
                    n += 1
            self.assertEqual(n, 10)
        self.assertEqual(client.job(job_id)["round"], 3)
        self.assertLess(memory_bytes(coordinator.pid), 300e6)


if __name__ == "__main__":
    unittest.main()
