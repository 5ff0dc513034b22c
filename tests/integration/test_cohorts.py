"""Cohorts: only the clients drawn for a round receive its task, other workers wait, and the service computes the same
result as `tally simulate`.
"""

import unittest

from common import (
    ForeignWorker, TallyTestCase, essence, job_document, memory_bytes, messages, simulate, sum_of_rounds,
    uplink_of_workers, wait_until,
)
from recording_proxy import RecordingProxy
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
    """Returns the bits by the formula for float32 messages: one message up from each client of the cohort, and one
    broadcast down to the cohort."""
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
        self.assertEqual(bits["recovery"], 0)  # the worker has a drawn client in every round
        regret = 0
        before = 0
        for record in coordinator.client.rounds(detail["id"]):
            regret += (record["t"] - before) * COHORT * (record["loss"] - detail["f_star"])
            before = record["t"]
        self.assertAlmostEqual(detail["cumulative_regret"], regret, delta=1e-9 * abs(regret))

    def test_slots_for_a_cohort_are_enough(self):
        """Slots move from clients that are not drawn to those that are. A worker that leaves and comes back does not
        change the result."""
        for base in ("synthetic-fedavg", "synthetic-fedpaq", "synthetic-minibatch-sgd"):
            with self.subTest(base=base):
                wanted = document(base)
                coordinator = self.start_coordinator(name=f"c-{base}")
                workers = [self.start_worker(coordinator, f"w{i}-{base}", clients=1 + i) for i in range(2)]
                job_id = coordinator.client.submit(wanted)
                wait_until(lambda: coordinator.client.job(job_id)["round"] >= 1, "a round")
                workers[1].kill()
                workers[1] = self.start_worker(coordinator, f"w1-{base}", clients=2)
                self.check_result(coordinator.client, job_id, simulate(wanted))
                self.assert_ends_well(*workers, coordinator)

    def test_fewer_slots_than_a_cohort_do_not_start_it(self):
        coordinator = self.start_coordinator()
        client = coordinator.client
        job_id = client.submit(document("synthetic-minibatch-sgd", horizon=10**8))
        ForeignWorker(client, "first", slots=COHORT - 1)
        expected = {"for": "workers", "text": "waits for 3 clients, 2 slots are free"}
        wait_until(lambda: expected.items() <= client.job(job_id)["waiting"].items(), f"a job that {expected['text']}")
        ForeignWorker(client, "second", slots=1)
        client.wait_status(job_id, "running")

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

    def test_after_a_crash_a_worker_asks_for_the_clients_of_its_last_task(self):
        """The worker's slots suffice for exactly one cohort. If it asked for other clients, it would get them, and the
        round would wait."""
        coordinator = self.start_coordinator()
        proxy = RecordingProxy(coordinator.client.port)
        self.addCleanup(proxy.close)
        self.start_worker(proxy, "w", clients=COHORT)
        job_id = coordinator.client.submit(document(horizon=10**8))
        wait_until(lambda: coordinator.client.job(job_id)["round"] >= 20, "round 20")
        coordinator.kill()
        self.start_coordinator(port=coordinator.port, store=coordinator.store)

        def since_join():
            calls = [call for call in proxy.exchanges if call.method in ("Join", "PostUpdate") and call.status == 200]
            joins = [i for i, call in enumerate(calls) if call.method == "Join"]
            return calls[joins[1]:joins[1] + 2] if len(joins) > 1 else []
        wait_until(lambda: len(since_join()) == 2, "updates after the second Join")
        join, post = since_join()
        held = messages.JoinRequest.FromString(join.request_body).held
        updates = messages.PostUpdateRequest.FromString(post.request_body).updates
        self.assertEqual(len(held), COHORT)
        self.assertEqual({each.client for each in held}, {update.client for update in updates})

    def test_a_worker_is_given_its_drawn_clients_and_caught_up(self):
        """Each hand serves one client. A client that is not drawn receives no task. A client that has missed many
        rounds receives the point, which counts as recovery."""
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
            if missed > 2:  # a broadcast has 32 bits per coordinate, the point 64
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

    def play_round(self, client, job_id, hands, number):
        """Answers the round for every hand that has a task. Returns the clients that took part, and the round
        record."""
        played = []
        for hand in hands:
            poll = hand.poll(wait_ms=0)
            if poll.WhichOneof("kind") == "task" and poll.task.round == number:
                hand.cursors[job_id] = poll.task.iterate
                played += poll.task.clients
                hand.post(hand.update(poll.task, poll.task.clients[0], payload=bytes(4 * DIM), payload_bits=32 * DIM))
        record = wait_until(lambda: (client.rounds(job_id) or [None])[-1], "a record")
        self.assertEqual((record["round"], record["received"]), (number, len(played)))
        return played, record

    def test_a_client_without_a_worker_gets_a_slot_when_it_is_drawn(self):
        """There are four hands with one client each. One leaves, then two more. While there are enough hands for a
        cohort, every round is complete; with a single hand, policy `drop` closes each round as soon as it has
        answered."""
        coordinator = self.start_coordinator(options=("--session-timeout-ms", str(HOUR_MS)))
        client = coordinator.client
        wanted = document("synthetic-minibatch-sgd", clients=4, cohort=2, quorum=1, policy="drop", horizon=10**8)
        job_id = client.submit(wanted)
        hands = [ForeignWorker(client, f"h{i}") for i in range(4)]
        client.wait_status(job_id, "running")
        hands.pop(0).leave()
        taken = set()
        for number in range(1, 21):
            played, record = self.play_round(client, job_id, hands, number)
            self.assertEqual((len(played), record["missing"]), (2, ""))
            taken.update(played)
        self.assertEqual(taken, set(range(4)))
        hands.pop(0).leave()
        hands.pop(0).leave()
        for number in range(21, 41):
            played, record = self.play_round(client, job_id, hands, number)
            self.assertEqual(len(played), 1)
            self.assertNotIn(record["missing"], ("", str(played[0])))

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
        self.check_a_hundred_thousand(n_workers=25, per_worker=4000)

    def test_a_hundred_thousand_clients_take_turns_in_ten_slots(self):
        self.check_a_hundred_thousand(n_workers=2, per_worker=5)

    def check_a_hundred_thousand(self, n_workers, per_worker):
        """Checks that rounds of a job with 100,000 clients and a cohort of ten are like those of a job with ten
        clients."""
        clients = 100000
        coordinator = self.start_coordinator(options=("--session-timeout-ms", str(HOUR_MS)))
        client = coordinator.client
        job_id = client.submit(document(
            "synthetic-minibatch-sgd", clients=clients, cohort=10, quorum=10, horizon=10**8,
            objective__data__points=clients, objective__data__dim=3, reference={"type": "none"}))
        hands = {f"h{i}": ForeignWorker(client, f"h{i}", slots=per_worker) for i in range(n_workers)}
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
