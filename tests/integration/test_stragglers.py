"""Clients that do not answer: depending on the job's policy, a round waits for them, continues without them, or ends
the job. A waiting job names the clients that it waits for. Clients that return receive what they missed, and it is
counted.

A deadline of an hour never passes. One of SOON_MS is meant to pass, but not before a test that answers at once has done
so on any machine. A job that must not end before it is disturbed is held by a round gate.
"""

import concurrent.futures
import contextlib
import http.client
import json
import signal
import sqlite3
import struct
import subprocess
import threading
import time
import unittest
from pathlib import Path

from common import (
    BIN, HANG_S, ConnectError, ForeignWorker, Process, TallyTestCase, essence, job_document, messages, simulate,
    sum_of_rounds, wait_until,
)
from databases import edited_database, query
from round_gate import start_gate

DIM = 30
BROADCAST_BITS = 32 * DIM  # minibatch_sgd sends the point as float32
SNAPSHOT_BITS = 64 * DIM
HOUR_MS = 3600 * 1000
SOON_MS = 8000  # the requests of a test take less, even on a busy machine
HELD_AT = 40  # the round at which a gate holds a job until the test disturbs it


def by_hand(clients=3, **changes):
    """A job whose messages are float32 vectors, so that a hand can write them: each round subtracts their mean from x.
    It starts at zero and never ends by itself."""
    members = {"clients": clients, "quorum": clients, "horizon": 10**8, "initial_point": {"type": "zeros"},
               "policy": "wait", "round_deadline_ms": HOUR_MS, "algorithm__step_size": 1.0, **changes}
    return job_document("synthetic-minibatch-sgd", **members)


def drop(quorum=1, deadline_ms=HOUR_MS, **changes):
    return by_hand(policy="drop", quorum=quorum, round_deadline_ms=deadline_ms, **changes)


class Hand(ForeignWorker):
    """A worker whose every step is made by the test."""

    def vector(self, task, client, value=0.0, **changes):
        return self.update(task, client, payload=struct.pack(f"<{DIM}f", *[value] * DIM),
                           payload_bits=32 * DIM, **changes)

    def answer(self, task, value=0.0):
        """Posts updates for all clients of the task; the hand then knows its point."""
        self.cursors[task.job_id] = task.iterate
        for client in task.clients:
            self.post(self.vector(task, client, value))
        return task

    def play(self, value=0.0):
        return self.answer(self.poll_task(), value)


class Stragglers(TallyTestCase):
    def start(self, options=("--session-timeout-ms", str(HOUR_MS)), **others):
        """Starts a coordinator with a long session timeout, since hands poll in turn and one may wait long for
        another."""
        coordinator = self.start_coordinator(options=options, **others)
        return coordinator, coordinator.client

    def wait_round(self, client, job_id, closed):
        """Waits until so many rounds have closed; returns their records."""
        wait_until(lambda: client.job(job_id)["round"] >= closed, f"round {closed} to close")
        return client.rounds(job_id)

    def wait_waiting(self, client, job_id, what, text=""):
        """Waits until `waiting` of the job is for `what` and contains `text`; returns it."""

        def look():
            waiting = client.job(job_id)["waiting"]
            return waiting if waiting and waiting["for"] == what and text in waiting["text"] else None

        return wait_until(look, f"job {job_id} to wait for {what}")

    def waits_past_its_deadline(self, client, job_id, workers):
        """Returns the `waiting` of a job that waits for those workers' clients past a round's deadline, or None."""
        waiting = client.job(job_id)["waiting"]
        if waiting and waiting["workers"] == workers and "has passed" in waiting["text"]:
            return waiting
        return None

    def wait_wire_bytes_stored(self, client, job_id):
        """Waits until the traffic so far is stored. After that, nothing is written until a worker sends again."""
        path = f"{self.folder}/tally.db"
        wait_until(lambda: query(path, "SELECT wire_in_bytes, wire_out_bytes FROM jobs WHERE id = ?", job_id)
                   == [tuple(client.job(job_id)["bits"]["wire_bytes"][way] for way in ("in", "out"))],
                   "the wire bytes to be stored")

    def waiting_seconds(self, client, job_id):
        """Returns how long the job has waited, by the coordinator's clock."""
        metrics = client.get("/metrics").body.decode()
        return float(metrics.split(f'tally_job_waiting_seconds{{job="{job_id}"}} ')[1].split()[0])

    def stop(self, process):
        """Sends SIGSTOP; the process resumes at the end of the test at the latest."""
        process.popen.send_signal(signal.SIGSTOP)
        self.addCleanup(self.go_on, process)

    def go_on(self, process):
        if process.is_alive():
            process.popen.send_signal(signal.SIGCONT)

    # ---- drop ----

    def test_a_missing_client_is_dropped_from_the_round_and_from_the_average(self):
        _, client = self.start()
        job_id = client.submit(drop(deadline_ms=SOON_MS))
        hands = [Hand(client, f"h{i}") for i in range(3)]
        tasks = [hand.poll_task() for hand in hands]
        late = hands[1]
        (missing,) = tasks[1].clients
        hands[0].answer(tasks[0], 1.0)
        hands[2].answer(tasks[2], 4.0)
        (record,) = self.wait_round(client, job_id, 1)
        self.assertEqual(record["received"], 2)
        self.assertEqual(record["missing"], str(missing))
        self.assertEqual(record["bits"]["uplink"]["messages"], 2)
        # The late answer is refused. It shows that the worker is alive, so its client is waited for again.
        self.assert_connect_error("failed_precondition", late.post, late.vector(tasks[1], missing, 100.0))
        task = hands[0].poll_task()
        (broadcast,) = task.broadcasts
        point = struct.unpack(f"<{DIM}f", broadcast.payload)
        self.assertEqual(set(point), {-(1.0 + 4.0) / 2})
        hands[0].answer(task, 0.0)
        hands[2].play(0.0)
        self.assertEqual(late.poll_task().round, 2)
        late.play(6.0)
        records = self.wait_round(client, job_id, 2)
        self.assertEqual([records[1][key] for key in ("received", "missing")], [3, ""])
        (broadcast,) = hands[0].poll_task().broadcasts
        point = struct.unpack(f"<{DIM}f", broadcast.payload)
        self.assertEqual(set(point), {-2.5 - 6.0 / 3})

    def test_a_client_that_is_known_to_be_away_is_not_waited_for(self):
        """Its worker leaves. The round closes with the other answers at once, an hour before its deadline, and so do
        later rounds until another worker takes over the client."""
        _, client = self.start()
        job_id = client.submit(drop())
        hands = [Hand(client, f"h{i}") for i in range(3)]
        tasks = [hand.poll_task() for hand in hands]
        (gone,) = tasks[0].clients
        hands[1].answer(tasks[1])
        hands[2].answer(tasks[2])
        self.assertEqual(client.job(job_id)["round"], 0)
        hands[0].leave()
        for closed in (1, 2, 3):
            records = self.wait_round(client, job_id, closed)
            self.assertEqual([(r["received"], r["missing"]) for r in records], [(2, str(gone))] * closed)
            hands[1].play()
            hands[2].play()
        self.wait_round(client, job_id, 4)
        newcomer = Hand(client, "newcomer")
        task = newcomer.poll_task()
        self.assertEqual(list(task.clients), [gone])
        self.assertEqual(task.iterate, 5)
        self.assertEqual(len(task.snapshot), 8 * DIM)  # shorter than four broadcasts
        hands[1].play()
        hands[2].play()
        self.assertEqual(client.job(job_id)["round"], 4)  # the round waits for the newcomer
        newcomer.answer(task)
        records = self.wait_round(client, job_id, 5)
        self.assertEqual((records[4]["received"], records[4]["missing"]), (3, ""))
        wait_until(lambda: client.job(job_id)["bits"]["recovery"] == SNAPSHOT_BITS, "the recovery to be stored")

    def test_a_client_that_is_handed_over_was_never_away(self):
        """A spare worker takes over the client of the one that leaves, so the round waits for it."""
        _, client = self.start()
        job_id = client.submit(drop(clients=2))
        hands = [Hand(client, f"h{i}") for i in range(2)]
        tasks = [hand.poll_task() for hand in hands]
        spare = Hand(client, "spare")
        hands[0].answer(tasks[0])
        hands[1].leave()
        self.assertEqual(client.job(job_id)["round"], 0)
        spare.play()
        records = self.wait_round(client, job_id, 1)
        self.assertEqual([(r["received"], r["missing"]) for r in records], [(2, "")])

    def test_a_killed_worker_is_not_waited_for_again(self):
        """One round waits until the worker is known to be silent. Later rounds do not wait for it."""
        coordinator, client = self.start(options=("--session-timeout-ms", "3000"))
        document = job_document("synthetic-ceal-long", horizon=1000, policy="drop", quorum=1,
                                round_deadline_ms=HOUR_MS)
        gate = start_gate(self, coordinator, last=HELD_AT)
        workers = [self.start_worker(gate, f"w{i}", clients=5) for i in range(2)]
        job_id = client.submit(document)
        self.wait_round(client, job_id, 20)
        workers[0].kill()
        gate.open()
        client.wait_status(job_id, "completed")
        # In the first such round, the worker may have answered for some of its clients.
        missing = [record["missing"] for record in client.rounds(job_id)]
        self.assertEqual(missing, sorted(missing, key=lambda text: text != ""))
        self.assertLessEqual(len(set(missing) - {""}), 2)
        self.assertGreater(len([text for text in missing if text]), 20)
        said = [line for line in coordinator.log().splitlines() if "round closed without all clients" in line]
        self.assertEqual(len(said), len(set(missing) - {""}), said)

    def test_a_quorum_is_waited_for(self):
        _, client = self.start()
        job_id = client.submit(drop(quorum=2, deadline_ms=SOON_MS))
        hands = [Hand(client, f"h{i}") for i in range(3)]
        tasks = [hand.poll_task() for hand in hands]
        hands[0].answer(tasks[0])
        waiting = self.wait_waiting(client, job_id, "clients", f"deadline of {SOON_MS} ms has passed")
        self.assertIn("the quorum is 2", waiting["text"])
        self.assertEqual(sorted(waiting["workers"]), ["h1", "h2"])
        self.assertEqual(client.job(job_id)["round"], 0)
        hands[2].answer(tasks[2])  # the second answer closes the round at once
        records = self.wait_round(client, job_id, 1)
        self.assertEqual([(r["received"], r["missing"]) for r in records], [(2, str(tasks[1].clients[0]))])

    def test_real_workers_one_of_ten_is_stopped(self):
        """The job ends on time without the stopped worker, and the counters of the others are exact."""
        coordinator, client = self.start()
        document = job_document("synthetic-ceal-long", horizon=2000, policy="drop", quorum=1,
                                round_deadline_ms=SOON_MS)
        gate = start_gate(self, coordinator, last=HELD_AT)
        workers = [self.start_worker(gate, f"w{i}") for i in range(10)]
        job_id = client.submit(document)
        self.wait_round(client, job_id, 20)
        self.stop(workers[4])
        gate.open()
        detail = client.wait_status(job_id, "completed")
        records = client.rounds(job_id)
        short = [record for record in records if record["missing"] != ""]
        # A single deadline passes; then the client is known to be away. Otherwise the job would take hours.
        self.assertGreater(len(short), (len(records) - HELD_AT) // 2)
        self.assertEqual(len({record["missing"] for record in short}), 1)
        self.assertEqual(records[0]["missing"], "")
        for record in records:
            if not record["cut"]:
                self.assertEqual(record["received"], 10 - (record["missing"] != ""))
        sums = sum_of_rounds(records)
        self.assertEqual(sums, {key: detail["bits"][key] for key in sums})
        self.assertEqual(detail["time_step"], 2000)

    # ---- wait ----

    def test_a_stopped_worker_is_waited_for_by_name(self):
        coordinator, client = self.start()
        document = job_document("synthetic-ceal-long", horizon=1000, round_deadline_ms=300)
        gate = start_gate(self, coordinator, last=HELD_AT)
        workers = [self.start_worker(gate, f"w{i}") for i in range(10)]
        job_id = client.submit(document)
        self.wait_round(client, job_id, 20)
        self.stop(workers[7])
        gate.open()
        waiting = wait_until(lambda: self.waits_past_its_deadline(client, job_id, ["w7"]), "w7 to be waited for")
        self.assertIn(f"waits for client {waiting['clients']} (w7)", waiting["text"])
        played = {w["name"]: w for w in client.get_json("/v1/workers")["workers"]}
        self.assertEqual([str(a["client"]) for a in played["w7"]["assignments"]], [waiting["clients"]])
        closed = client.job(job_id)["round"]
        wait_until(lambda: self.waiting_seconds(client, job_id) > 2, "six deadlines to pass")
        detail = client.job(job_id)
        self.assertEqual(detail["round"], closed)
        self.assertEqual(detail["waiting"], waiting)  # its start is the same, too
        # On a busy machine, earlier rounds may have been late as well.
        said = [line for line in coordinator.log().splitlines()
                if "round waits past its deadline" in line and f" round={closed + 1} " in line]
        self.assertEqual(len(said), 1, said)
        self.assertIn("w7", said[0])
        self.go_on(workers[7])
        detail = client.wait_status(job_id, "completed")
        self.assertIsNone(detail["waiting"])
        self.assertEqual(essence(detail), essence(simulate(document)))

    # ---- fail ----

    def check_fails(self, strike):
        coordinator, client = self.start()
        document = job_document("synthetic-ceal-long", horizon=10**7, policy="fail", round_deadline_ms=SOON_MS)
        workers = [self.start_worker(coordinator, f"w{i}", clients=5) for i in range(2)]
        job_id = client.submit(document)
        self.wait_round(client, job_id, 20)
        strike(workers[1])
        detail = client.wait_status(job_id, "failed")
        self.assertIn("missing clients: ", detail["reason"])
        self.assertIn(f"of 10 answers after {SOON_MS} ms", detail["reason"])
        self.assertIsNone(detail["waiting"])
        return workers

    def test_a_stopped_worker_fails_the_job(self):
        self.check_fails(self.stop)

    def test_a_killed_worker_fails_the_job(self):
        self.check_fails(lambda worker: worker.kill())

    def test_a_worker_that_leaves_fails_the_job(self):
        self.check_fails(lambda worker: self.assert_ends_well(worker))

    def test_a_job_of_many_coordinates_fails_in_its_first_round(self):
        # Its state, stored whole at the start, is long enough for changes to be stored, and no round has closed.
        self.fail_with_long_state(0)

    def test_a_job_of_many_coordinates_fails_after_rounds_that_stored_changes(self):
        self.fail_with_long_state(3)

    def fail_with_long_state(self, rounds, dim=1000):
        coordinator, client = self.start()
        job_id = client.submit(job_document(
            "synthetic-ceal-long", clients=2, quorum=2, horizon=10**7, policy="fail", round_deadline_ms=SOON_MS,
            objective__data__dim=dim))
        hands = [ForeignWorker(client, f"h{i}") for i in range(2)]
        for _ in range(rounds):
            for hand in hands:
                task = hand.poll_task()
                hand.post(hand.update(task, task.clients[0], dim=dim))
        self.assertEqual(query(Path(self.folder) / "tally.db", "SELECT count(*) FROM job_state_changes"), [(rounds,)])
        task = hands[0].poll_task()
        answer = hands[0].update(task, task.clients[0], dim=dim)
        counted = hands[0].post(answer)
        detail = client.wait_status(job_id, "failed")
        self.assertIn(f"round {rounds + 1} has 1 of 2 answers after {SOON_MS} ms", detail["reason"])
        self.assertEqual(detail["reason_code"], "quorum_missed")
        self.assertEqual(hands[0].post(answer).payload_bits, counted.payload_bits)  # recognized as a repetition
        self.assertNotIn("write failed", coordinator.log())

    # ---- the clock ----

    def test_the_deadline_does_not_run_while_the_job_is_paused(self):
        _, client = self.start()
        job_id = client.submit(by_hand(policy="fail", round_deadline_ms=SOON_MS))
        hands = [Hand(client, f"h{i}") for i in range(3)]
        for hand in hands:
            hand.poll_task()
        client.post(f"/v1/jobs/{job_id}/pause")
        waiting = self.wait_waiting(client, job_id, "resume")
        self.assertEqual((waiting["clients"], waiting["workers"]), ("", []))
        wait_until(lambda: self.waiting_seconds(client, job_id) * 1000 > SOON_MS + 1000, "the deadline to pass")
        self.assertEqual(client.job(job_id)["status"], "paused")
        client.post(f"/v1/jobs/{job_id}/resume")
        # The whole time is available again, less what a busy machine takes until the poll.
        self.assertGreater(hands[0].poll_task().deadline_ms, 500)
        for hand in hands:
            hand.play()
        self.assertEqual(client.job(job_id)["round"], 1)

    def test_after_a_restart_everybody_is_waited_for_until_the_deadline(self):
        coordinator, client = self.start()
        job_id = client.submit(drop(deadline_ms=SOON_MS))
        hands = [Hand(client, f"h{i}") for i in range(3)]
        tasks = [hand.poll_task() for hand in hands]
        hands[0].answer(tasks[0])
        coordinator.kill()
        coordinator, client = self.start(port=coordinator.port, store=coordinator.store)
        # All three clients are vacant, but none counts as absent, so this one answer of three closes no round.
        back = Hand(client, "h1", held=[(job_id, tasks[1].clients[0])])
        task = back.poll_task()
        self.assertEqual((task.round, list(task.clients)), (1, list(tasks[1].clients)))
        back.answer(task)
        detail = client.job(job_id)
        self.assertEqual((detail["round"], detail["status"]), (0, "running"))
        records = self.wait_round(client, job_id, 1)
        self.assertEqual((records[0]["received"], records[0]["missing"]), (2, str(tasks[2].clients[0])))

    def check_job_deadline(self, job_id, client, status, *parts):
        detail = client.wait_status(job_id, "failed")
        self.assertTrue(detail["reason"].startswith(f"job deadline of {SOON_MS} ms has passed: {status}, "), detail["reason"])
        self.assertEqual(detail["reason_code"], "job_deadline_passed")
        for part in parts:
            self.assertIn(part, detail["reason"])
        self.assertGreaterEqual(detail["finished_ms"] - detail["created_ms"], SOON_MS)
        self.assertIsNone(detail["waiting"])

    def test_the_job_deadline_ends_a_job_in_every_status(self):
        coordinator, client = self.start()
        document = by_hand(clients=2, job_deadline_ms=SOON_MS)
        queued = client.submit(by_hand(clients=10, quorum=10, job_deadline_ms=SOON_MS))
        hands = [Hand(client, f"h{i}") for i in range(4)]
        paused = client.submit(document)
        wait_until(lambda: client.job(paused)["status"] == "running", "the job to run")
        client.post(f"/v1/jobs/{paused}/pause")
        running = client.submit(document)
        self.check_job_deadline(queued, client, "queued", "waits for 10 clients", " slots are free")
        self.check_job_deadline(paused, client, "paused", "waits to be resumed")
        self.check_job_deadline(running, client, "running", "waits for clients 0-1 (h", "has 0 of 2 answers")
        # Its workers are free for the next job.
        last = client.submit(by_hand(clients=4, quorum=4))
        client.wait_status(last, "running")
        for hand in hands:
            hand.leave()

    def test_the_job_deadline_counts_from_submission_across_a_restart(self):
        coordinator, client = self.start()
        job_id = client.submit(by_hand(job_deadline_ms=HOUR_MS))
        self.assert_ends_well(coordinator)
        with edited_database(Path(self.folder) / "tally.db") as database:  # as if stopped for an hour
            database.execute("UPDATE jobs SET created_ms = created_ms - ?", (HOUR_MS,))
        coordinator, client = self.start(port=coordinator.port, store=coordinator.store)
        detail = client.wait_status(job_id, "failed")
        self.assertIn(f"job deadline of {HOUR_MS} ms has passed", detail["reason"])

    # ---- catching up ----

    def recovery(self, client, job_id, bits):
        wait_until(lambda: client.job(job_id)["bits"]["recovery"] >= bits, "the recovery to be stored")
        self.assertEqual(client.job(job_id)["bits"]["recovery"], bits)

    def test_broadcasts_that_a_client_missed_are_no_recovery(self):
        """The returning client receives each missed broadcast for the first time, which the ledger counts as
        delivery."""
        _, client = self.start()
        job_id = client.submit(drop(deadline_ms=SOON_MS, clients=2))
        awake, sleepy = Hand(client, "awake"), Hand(client, "sleepy")
        for hand in (awake, sleepy):
            hand.play()
        self.wait_round(client, job_id, 1)
        task = sleepy.poll_task()  # it receives round 2 with broadcast 2, and then sleeps
        for closed in (2, 3):
            awake.play()
            self.wait_round(client, job_id, closed)
        sleepy.cursors[job_id] = task.iterate
        task = sleepy.poll_task()
        self.assertEqual([b.iterate for b in task.broadcasts], [3, 4])
        bits = client.job(job_id)["bits"]
        self.assertEqual(bits["recovery"], 0)
        self.assertEqual(bits["downlink"]["delivered_payload"], 3 * 2 * BROADCAST_BITS)
        sleepy.cursors[job_id] = 3  # the client has lost the last one
        task = sleepy.poll_task()
        self.assertEqual([b.iterate for b in task.broadcasts], [4])
        self.recovery(client, job_id, BROADCAST_BITS)

    def test_clients_with_different_pasts_in_one_session(self):
        """A broadcast counts as recovery only if all clients of the task have already received it."""
        _, client = self.start()
        job_id = client.submit(drop(clients=2))
        first, other = Hand(client, "first"), Hand(client, "other")
        first.play()
        (gone,) = other.poll_task().clients
        other.leave()
        self.wait_round(client, job_id, 1)
        task = first.play()  # client A has received broadcast 2, B has not
        self.wait_round(client, job_id, 2)
        first.leave()
        both = Hand(client, "both", slots=2)
        task = wait_until(lambda: (lambda t: t if len(t.clients) == 2 else None)(both.poll_task()), "both clients")
        self.assertEqual([b.iterate for b in task.broadcasts], [2, 3])
        both.answer(task)
        self.wait_round(client, job_id, 3)
        both.play()
        self.wait_round(client, job_id, 4)
        both.leave()
        again = Hand(client, "again", slots=2)
        task = wait_until(lambda: (lambda t: t if len(t.clients) == 2 else None)(again.poll_task()), "both clients")
        self.assertEqual(len(task.snapshot), 8 * DIM)
        # Only the snapshot counts: broadcast 2 was new to B, and 3, 4 and 5 were new to both.
        self.recovery(client, job_id, SNAPSHOT_BITS)
        self.assertEqual(str(gone), "1" if list(task.clients) == [0, 1] and gone == 1 else "0")

    # ---- refusals ----

    def refuse(self, hand, task, reason="no such file"):
        hand.say(task, task.clients[0], refusal=reason)

    def test_a_worker_that_cannot_serve_a_job_is_replaced(self):
        _, client = self.start()
        job_id = client.submit(by_hand(clients=2))
        able, unable = Hand(client, "able"), Hand(client, "unable")
        able.play()
        task = unable.poll_task()
        self.refuse(unable, task)
        waiting = self.wait_waiting(client, job_id, "clients")
        self.assertEqual(waiting["clients"], str(task.clients[0]))
        self.assertIn("worker unable cannot serve it: no such file", waiting["text"])
        answer = unable.poll(wait_ms=100)
        self.assertEqual((answer.WhichOneof("kind"), answer.idle.jobs_pending), ("idle", 0))
        workers = {w["name"]: w for w in client.get_json("/v1/workers")["workers"]}
        self.assertEqual(workers["unable"]["refuses"], [{"job": job_id, "reason": "no such file"}])
        self.assertEqual(workers["unable"]["free_slots"], 1)
        # It may serve other jobs, and another worker this one.
        other_id = client.submit(by_hand(clients=1))
        self.assertEqual(unable.poll_task().job_id, other_id)
        Hand(client, "helper").play()
        self.wait_round(client, job_id, 1)
        self.assertIsNone(client.job(job_id)["waiting"])
        # The refusal ends with the session.
        unable = Hand(client, "unable")
        workers = {w["name"]: w for w in client.get_json("/v1/workers")["workers"]}
        self.assertEqual(workers["unable"]["refuses"], [])

    def test_a_job_that_nobody_can_serve_fails_with_the_reason(self):
        _, client = self.start()
        job_id = client.submit(by_hand(clients=2))
        hands = [Hand(client, f"h{i}") for i in range(2)]
        tasks = [hand.poll_task() for hand in hands]
        self.refuse(hands[0], tasks[0])
        self.assertEqual(client.job(job_id)["status"], "running")
        self.refuse(hands[1], tasks[1], "data/train: no such file")
        detail = client.wait_status(job_id, "failed")
        self.assertEqual(detail["reason"], "no worker can serve the job; h1: data/train: no such file")
        self.assertEqual(detail["reason_code"], "no_worker_can_serve")

    def test_a_job_that_has_been_served_waits_for_a_worker_that_can(self):
        """After a restart, the first worker that joins refuses the job, which must not end the job."""
        coordinator, client = self.start()
        job_id = client.submit(by_hand(clients=1, quorum=1))
        Hand(client, "able").play()
        coordinator.kill()
        coordinator, client = self.start(port=coordinator.port, store=coordinator.store)
        unable = Hand(client, "unable")
        self.refuse(unable, unable.poll_task())
        waiting = self.wait_waiting(client, job_id, "clients")
        self.assertIn("worker unable cannot serve it", waiting["text"])
        Hand(client, "able").play()
        self.wait_round(client, job_id, 2)

    def test_real_workers_without_the_data(self):
        coordinator, client = self.start()
        document = job_document("mnist-fedavg", reference={"type": "value", "value": 0.2})
        self.start_worker(coordinator, "poor", clients=20, options=("--data-dir", f"{self.folder}/nothing"))
        detail = client.wait_status(client.submit(document), "failed")
        self.assertIn("no worker can serve the job; poor: ", detail["reason"])

    # ---- scheduling ----

    def test_a_paused_job_does_not_block_the_queue(self):
        _, client = self.start()
        paused = client.submit(by_hand(clients=2))
        hands = [Hand(client, f"h{i}") for i in range(3)]
        client.wait_status(paused, "running")
        large = client.submit(by_hand(clients=3))
        small = client.submit(by_hand(clients=1))
        self.wait_waiting(client, large, "workers")
        waiting = self.wait_waiting(client, small, "workers")  # the large job starts first
        self.assertIn("an older job goes first", waiting["text"])
        client.post(f"/v1/jobs/{paused}/pause")
        client.wait_status(small, "running")
        waiting = self.wait_waiting(client, large, "workers")
        self.assertEqual(waiting["text"], "waits for 3 clients, 0 slots are free")
        for hand in hands:
            hand.leave()

    # ---- the store ----

    def test_a_round_that_cannot_be_stored_closes_when_it_can(self):
        """The engine closes the round, the store refuses it, and the engine reverts. Nothing is lost, the job reports
        what it waits for, and clients that were known to be absent still are."""
        coordinator = self.start_with_a_disk_that_fills()
        client = coordinator.client
        job_id = client.submit(drop())
        hands = [Hand(client, f"h{i}") for i in range(3)]
        tasks = [hand.poll_task() for hand in hands]
        hands[0].answer(tasks[0], 3.0)
        hands[1].answer(tasks[1], 5.0)
        self.wait_wire_bytes_stored(client, job_id)
        with self.full_disk(coordinator):
            hands[2].leave()
            waiting = self.wait_waiting(client, job_id, "store")
            self.assertRegex(waiting["text"], "^waits for the store, which cannot be written: .")
            self.assertEqual(client.job(job_id)["round"], 0)
            metrics = client.get("/metrics").body.decode()
            self.assertIn("tally_dropped_answers_total 0\n", metrics)
            self.assertIn("tally_rounds_total 0\n", metrics)
        records = self.wait_round(client, job_id, 1)
        self.assertEqual([(r["received"], r["missing"]) for r in records], [(2, str(tasks[2].clients[0]))])
        self.assertIn("tally_dropped_answers_total 1\n", client.get("/metrics").body.decode())
        (broadcast,) = hands[0].poll_task().broadcasts
        self.assertEqual(set(struct.unpack(f"<{DIM}f", broadcast.payload)), {-4.0})

    def test_deadlines_while_nothing_can_be_stored(self):
        """Their effects are stored as soon as the store works again."""
        coordinator = self.start_with_a_disk_that_fills()
        client = coordinator.client
        failing = client.submit(by_hand(clients=1, quorum=1, policy="fail", round_deadline_ms=SOON_MS))
        ending = client.submit(by_hand(clients=1, quorum=1, job_deadline_ms=SOON_MS))
        hands = [Hand(client, f"h{i}") for i in range(2)]
        for hand in hands:
            hand.poll_task()
        with self.full_disk(coordinator):
            for job_id in (failing, ending):
                self.wait_waiting(client, job_id, "store")
                self.assertEqual(client.job(job_id)["status"], "running")
        self.assertIn("missing clients: 0", client.wait_status(failing, "failed")["reason"])
        self.assertIn(f"job deadline of {SOON_MS} ms has passed", client.wait_status(ending, "failed")["reason"])

    def test_a_damaged_job_ends_while_others_keep_the_store_busy(self):
        """After a failed commit, the job must be read back, which fails. No other job waits for that."""
        coordinator = self.start_with_a_disk_that_fills()
        client = coordinator.client
        self.start_worker(coordinator, "busy")
        busy = client.submit(job_document("synthetic-ceal-long", clients=1, quorum=1, horizon=10**8))
        wait_until(lambda: client.job(busy)["round"] > 0, "the busy job to get on")
        damaged = client.submit(by_hand(clients=2))
        hand = Hand(client, "hand", slots=2)
        task = hand.poll_task()
        self.assertEqual(task.job_id, damaged)
        with contextlib.closing(sqlite3.connect(f"{self.folder}/tally.db")) as database, database:
            database.execute("UPDATE job_states SET state = zeroblob(length(state))"
                             " WHERE job_key = (SELECT job_key FROM jobs WHERE id = ?)", (damaged,))
        with self.full_disk(coordinator, most=16384):
            def is_ahead():
                with contextlib.suppress(ConnectError):
                    hand.post(hand.vector(task, 0))
                return (client.job(damaged)["waiting"] or {}).get("for") == "store"

            wait_until(is_ahead, "an update that is not stored")
        wait_until(lambda: "job_states" in (client.job(damaged)["reason"] or ""), "the job to end")
        self.assertEqual(client.job(damaged)["reason_code"], "stored_job_damaged")
        self.assertEqual(client.job(damaged)["status"], "failed")
        self.assertEqual(client.job(busy)["status"], "running")

    def test_a_start_that_is_not_stored_keeps_no_slots(self):
        coordinator = self.start_with_a_disk_that_fills()
        client = coordinator.client
        large = client.submit(by_hand(clients=2))
        stays = Hand(client, "stays")
        self.wait_wire_bytes_stored(client, large)
        with self.full_disk(coordinator):
            goes = Hand(client, "goes")
            wait_until(lambda: "write failed" in coordinator.log(), "a start that is not stored")
            goes.leave()
        small = client.submit(by_hand(clients=1, quorum=1))
        client.wait_status(small, "running")
        self.assertEqual(stays.poll_task().job_id, small)
        self.assertEqual(client.job(large)["status"], "queued")

    def test_a_deadline_that_passed_while_nothing_was_taken(self):
        """A round whose answers were refused because the store failed gets its full time again."""
        _, client = self.start()
        job_id = client.submit(by_hand(clients=2, policy="fail", round_deadline_ms=SOON_MS))
        hand = Hand(client, "hand", slots=2)
        task = hand.poll_task()
        hand.post(hand.vector(task, 0))
        with contextlib.closing(sqlite3.connect(f"{self.folder}/tally.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # as an operator's SQL shell would
            until = time.monotonic() + SOON_MS / 1000 + 2
            while time.monotonic() < until:
                self.assert_connect_error("unavailable", hand.post, hand.vector(task, 1))
            other.execute("ROLLBACK")
        wait_until(lambda: client.get("/readyz").status == 200, "/readyz green")
        time.sleep(0.5)  # nothing must happen in five ticks of the coordinator's clock
        self.assertEqual(client.job(job_id)["status"], "running")
        hand.post(hand.vector(task, 1))
        self.assertEqual(client.job(job_id)["round"], 1)

    # ---- where waiting is reported ----

    def events(self, coordinator, job_id):
        """Yields the `waiting` of each job event of the stream."""
        connection = http.client.HTTPConnection("127.0.0.1", coordinator.port, timeout=HANG_S)
        self.addCleanup(connection.close)
        connection.request("GET", f"/v1/jobs/{job_id}/events")
        event = None
        for line in connection.getresponse():
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "event":
                event = value
            elif name == "data" and event == "job":
                yield json.loads(value)["waiting"]

    @contextlib.contextmanager
    def playing(self, hand):
        """Runs a thread in which the hand answers every task, so that its job waits for nothing."""
        ended = threading.Event()

        def play():
            while not ended.is_set():
                hand.play()

        with concurrent.futures.ThreadPoolExecutor() as pool:
            played = pool.submit(play)
            try:
                yield
            finally:
                ended.set()
                played.result(HANG_S)

    def test_streams_and_watchers_hear_of_it(self):
        coordinator, client = self.start()
        job_id = client.submit(by_hand(clients=1, quorum=1))
        self.wait_waiting(client, job_id, "workers")
        events = self.events(coordinator, job_id)
        watch = Process(self.folder, "watch", [BIN / "tally", "--coordinator", coordinator.url, "watch", job_id,
                                               "--json", "--interval-ms", "50"])
        self.processes.append(watch)
        self.assertEqual(next(events)["text"], "waits for 1 client, 0 slots are free")
        wait_until(lambda: '"for": "workers"' in watch.log(), "the first line")
        hand = Hand(client, "slow")
        task = hand.poll_task()
        self.assertIsNone(next(events))
        waiting = next(events)
        self.assertEqual((waiting["for"], waiting["clients"], waiting["workers"]), ("clients", "0", ["slow"]))
        wait_until(lambda: '"for": "clients"' in watch.log(), "the line of a watcher that is slow itself")
        hand.answer(task)
        with self.playing(hand):  # job events come at most once a second
            self.assertIsNone(next(w for w in events if w is None))
        client.post(f"/v1/jobs/{job_id}/pause")
        self.assertEqual(next(w for w in events if w is None or w["for"] != "clients")["for"], "resume")
        wait_until(lambda: '"for": "resume"' in watch.log(), "its line")
        client.post(f"/v1/jobs/{job_id}/cancel")
        self.assertEqual(list(events)[-1], None)
        self.assertEqual(watch.wait(), 1)
        self.processes.remove(watch)
        seen = [json.loads(line)["waiting"] for line in watch.log().splitlines() if line.startswith("{")]
        kinds = [each and each["for"] for each in seen]
        for wanted in ("workers", None, "clients", "resume"):
            self.assertIn(wanted, kinds)
        self.assertIsNone(kinds[-1])

    def test_a_stream_hears_of_a_change_of_nothing_else(self):
        coordinator, client = self.start()
        job_id = client.submit(by_hand(clients=3))
        self.wait_waiting(client, job_id, "workers")
        events = self.events(coordinator, job_id)
        self.assertEqual(next(events)["text"], "waits for 3 clients, 0 slots are free")
        Hand(client, "first", slots=1)
        self.assertEqual(next(events)["text"], "waits for 3 clients, 1 slot is free")
        Hand(client, "second", slots=1)
        self.assertEqual(next(events)["text"], "waits for 3 clients, 2 slots are free")

    def test_f_star_is_waited_for(self):
        _, client = self.start()
        job_id = client.submit(by_hand(objective__data__points=50000, objective__data__dim=200))
        waiting = self.wait_waiting(client, job_id, "reference")
        self.assertEqual(waiting["text"], "waits for f(x*), which is being computed")
        self.wait_waiting(client, job_id, "workers")

    def test_many_clients_and_workers(self):
        """The lists are truncated, but the counts are complete."""
        _, client = self.start()
        job_id = client.submit(by_hand(clients=100))
        hands = [Hand(client, f"h{i:02}", slots=5) for i in range(20)]
        tasks = [hand.poll_task() for hand in hands]
        for hand, task in zip(hands, tasks):
            for index in task.clients:
                if index % 2 == 0:
                    hand.post(hand.vector(task, index))
        waiting = self.wait_waiting(client, job_id, "clients")
        self.assertTrue(waiting["clients"].startswith("1 3 5 7 ") and waiting["clients"].endswith(" ..."))
        self.assertEqual(len(waiting["workers"]), 16)
        self.assertRegex(waiting["text"], r"\(h\d\d, h\d\d, h\d\d, \.\.\.\): round 1 has 50 of 100 answers")
        metrics = client.get("/metrics").body.decode()
        self.assertIn(f'tally_job_missing_clients{{job="{job_id}"}} 50\n', metrics)

    def test_a_worker_that_missed_a_deadline_is_shown_as_silent(self):
        _, client = self.start()
        job_id = client.submit(drop(deadline_ms=SOON_MS, clients=2))
        hands = [Hand(client, name) for name in ("brisk", "asleep")]
        tasks = [hand.poll_task() for hand in hands]

        def silent():
            return {w["name"] for w in client.get_json("/v1/workers")["workers"] if w["silent"]}

        self.assertEqual(silent(), set())
        hands[0].answer(tasks[0])
        self.wait_round(client, job_id, 1)
        self.assertEqual(silent(), {"asleep"})
        hands[1].poll_task()
        self.assertEqual(silent(), set())

    def test_waiting_is_told_alike_everywhere(self):
        coordinator, client = self.start()
        job_id = client.submit(by_hand(clients=2))
        waiting = self.wait_waiting(client, job_id, "workers")
        self.assertEqual(waiting["text"], "waits for 2 clients, 0 slots are free")
        self.assertGreaterEqual(waiting["since_ms"], client.job(job_id)["created_ms"])
        present = Hand(client, "present")
        away = Hand(client, "a<b>way")
        present.play()
        (gone,) = away.poll_task().clients
        away.leave()
        waiting = self.wait_waiting(client, job_id, "clients")
        self.assertEqual((waiting["clients"], waiting["workers"]), (str(gone), ["a<b>way"]))
        self.assertTrue(waiting["text"].endswith("; it has no worker"), waiting["text"])
        listed = {job["id"]: job for job in client.get_json("/v1/jobs")["jobs"]}
        self.assertEqual(listed[job_id]["waiting"], waiting)
        self.assertGreaterEqual(self.waiting_seconds(client, job_id), 1.0)
        metrics = client.get("/metrics").body.decode()
        self.assertIn(f'tally_job_missing_clients{{job="{job_id}"}} 1\n', metrics)
        shown = subprocess.run([BIN / "tally", "--coordinator", coordinator.url, "show", job_id],
                               capture_output=True, text=True, timeout=HANG_S, check=True).stdout
        self.assertIn(waiting["text"], shown)
        helper = Hand(client, "helper")
        helper.play()
        self.wait_round(client, job_id, 1)
        self.assertIsNone(client.job(job_id)["waiting"])
        metrics = client.get("/metrics").body.decode()
        self.assertIn(f'tally_job_waiting_seconds{{job="{job_id}"}} 0\n', metrics)
        self.assertIn(f'tally_job_missing_clients{{job="{job_id}"}} 0\n', metrics)

    def test_dropped_answers_are_counted(self):
        _, client = self.start()
        job_id = client.submit(drop())
        hands = [Hand(client, f"h{i}") for i in range(3)]
        wait_until(lambda: client.job(job_id)["status"] == "running", "the job to run")
        hands[0].leave()
        for closed in (1, 2):
            hands[1].play()
            hands[2].play()
            self.wait_round(client, job_id, closed)
        metrics = client.get("/metrics").body.decode()
        self.assertIn("tally_dropped_answers_total 2\n", metrics)
        self.assertIn("tally_rounds_total 2\n", metrics)

    def test_simulate_has_the_same_members(self):
        document = job_document()
        coordinator, client = self.start()
        job_id = client.submit(document)
        self.start_worker(coordinator, "w", clients=10)
        detail = client.wait_status(job_id, "completed")
        simulated = simulate(document)
        self.assertIn("waiting", simulated)
        self.assertIsNone(simulated["waiting"])
        self.assertEqual(set(simulated) - {"run"}, set(detail))


if __name__ == "__main__":
    unittest.main()
