"""Waits that end: a worker exits when the last job ends, or gives up; a job reports what it is waiting for, the cause
first.

No test measures time. A poll that should end early is compared with one that began before it and may wait as long: the
former must end first.
"""

import concurrent.futures
import socket
import unittest

from common import (ConnectError, ForeignWorker, TallyTestCase, Worker, free_port, job_document, messages,
                    wait_until)
from recording_proxy import RecordingProxy
from test_stragglers import HOUR_MS, Hand, by_hand

LONG_MS = 30000  # the longest that a poll may wait


class PatientHand(Hand):
    """A hand that polls as `tally-worker --exit-when-idle` does."""

    def poll_until_idle(self):
        request = messages.PollTaskRequest(session=self.session, wait_ms=LONG_MS, until_idle=True)
        return self.client.call("PollTask", request, messages.PollTaskResponse)

    def refuse(self, task, reason):
        self.say(task, task.clients[0], refusal=reason, lacks_plugin=True)


class Waiting(TallyTestCase):
    def setUp(self):
        super().setUp()
        self.pool = concurrent.futures.ThreadPoolExecutor(4)
        self.addCleanup(self.pool.shutdown)

    def start(self):
        coordinator = self.start_coordinator(options=("--session-timeout-ms", str(HOUR_MS)))
        return coordinator, coordinator.client

    def waits(self, client, n):
        """Waits until n polls wait at the coordinator."""
        wait_until(lambda: [w["state"] for w in client.get_json("/v1/workers")["workers"]].count("waiting") == n,
                   f"{n} polls to wait")

    def end_last_job(self, client, end):
        """Checks that end() ends a poll until idle, but not another poll that began before it."""
        idle, control = PatientHand(client, "idle"), Hand(client, "control")
        slow = self.pool.submit(control.poll, LONG_MS)
        self.waits(client, 1)
        fast = self.pool.submit(idle.poll_until_idle)
        self.waits(client, 2)
        end()
        done, _ = concurrent.futures.wait([fast, slow], return_when=concurrent.futures.FIRST_COMPLETED)
        self.assertIn(fast, done)
        self.assertNotIn(slow, done)
        answer = fast.result()
        self.assertEqual((answer.WhichOneof("kind"), answer.idle.jobs_pending), ("idle", 0))
        other = client.submit(by_hand(clients=2))  # ends the other poll
        self.assertEqual(slow.result().task.job_id, other)

    # ---- the coordinator's part of --exit-when-idle ----

    def test_a_poll_until_idle_ends_with_the_last_job(self):
        _, client = self.start()
        first, last = (client.submit(by_hand(clients=9)) for _ in range(2))

        def end():
            client.post(f"/v1/jobs/{first}/cancel")
            self.waits(client, 2)  # both ended, but a job is left
            client.post(f"/v1/jobs/{last}/cancel")

        self.end_last_job(client, end)

    def test_a_session_that_comes_after_the_last_job_waits_for_the_next(self):
        _, client = self.start()
        client.post(f"/v1/jobs/{client.submit(by_hand(clients=9))}/cancel")
        hand = PatientHand(client, "new")
        poll = self.pool.submit(hand.poll_until_idle)
        self.waits(client, 1)
        job_id = client.submit(by_hand(clients=1))
        self.assertEqual(poll.result().task.job_id, job_id)

    def test_a_session_that_refuses_the_only_job_has_none_left(self):
        _, client = self.start()
        client.submit(by_hand(clients=1))
        hand = PatientHand(client, "hand")
        task = hand.poll_task()
        hand.refuse(task, "no plug-in")
        able, control = Hand(client, "able"), Hand(client, "control")
        self.assertEqual(able.poll_task().job_id, task.job_id)
        slow = self.pool.submit(control.poll, LONG_MS)
        self.waits(client, 1)
        fast = self.pool.submit(hand.poll_until_idle)
        done, _ = concurrent.futures.wait([fast, slow], return_when=concurrent.futures.FIRST_COMPLETED)
        self.assertEqual(done, {fast})
        self.assertEqual(fast.result().idle.jobs_pending, 0)
        client.submit(by_hand(clients=1))  # ends the other poll
        slow.result()

    # ---- the worker's part ----

    def test_a_worker_exits_on_the_answer_that_no_job_is_left(self):
        coordinator, client = self.start()
        proxy = RecordingProxy(coordinator.port)
        self.addCleanup(proxy.close)
        job_id = client.submit(job_document(clients=2, quorum=2, horizon=200))
        worker = Worker(self.folder, proxy.url, "w", clients=2, options=("--exit-when-idle", "--wait-ms", LONG_MS))
        self.processes.append(worker)
        self.assertEqual(worker.wait(), 0, worker.log())
        self.assertEqual(client.job(job_id)["status"], "completed")
        polls = [e for e in proxy.exchanges if e.method == "PollTask"]
        for poll in polls:
            self.assertTrue(messages.PollTaskRequest.FromString(poll.request_body).until_idle)
        idle = [p for p in (messages.PollTaskResponse.FromString(e.response_body) for e in polls)
                if p.WhichOneof("kind") == "idle"]
        self.assertEqual([p.idle.jobs_pending for p in idle], [0])

    # ---- workers of one job ----

    def start_pinned(self, coordinator, job_id, name="pinned", clients=1):
        return self.start_worker(coordinator, name, clients=clients, options=("--job", job_id, "--wait-ms", LONG_MS))

    def test_a_worker_of_one_job_exits_when_the_job_has_ended(self):
        coordinator, client = self.start()
        other = client.submit(by_hand(clients=9))
        job_id = client.submit(job_document(clients=2, quorum=2, horizon=200))
        workers = [self.start_pinned(coordinator, job_id, f"w{n}") for n in range(2)]
        self.assertEqual([worker.wait() for worker in workers], [0, 0])
        for worker in workers:
            self.assertRegex(worker.log(), rf'event="no job left to serve" error="job {job_id} has ended: it is completed')
        self.assertEqual(client.job(job_id)["status"], "completed")
        self.assertEqual(client.job(other)["status"], "queued")
        self.assertEqual(client.get_json("/v1/workers")["workers"], [])  # they have left

    def test_a_worker_of_one_job_exits_when_the_job_is_cancelled_or_deleted(self):
        coordinator, client = self.start()
        job_id = client.submit(by_hand(clients=2))
        worker = self.start_pinned(coordinator, job_id)
        self.waits(client, 1)  # one client is lacking
        client.post(f"/v1/jobs/{job_id}/cancel")
        self.assertEqual(worker.wait(), 0)
        self.assertIn("it is cancelled", worker.log())

    def test_a_worker_of_a_job_that_has_ended_says_so_and_exits_with_success(self):
        coordinator, client = self.start()
        job_id = client.submit(by_hand(clients=2))
        client.post(f"/v1/jobs/{job_id}/cancel")
        worker = self.start_pinned(coordinator, job_id)
        self.assertEqual(worker.wait(), 0)
        self.assertIn(f'event="no job left to serve" error="job {job_id} has ended: it is cancelled"', worker.log())
        self.assertNotIn("fatal error", worker.log())
        self.assertEqual(client.get_json("/v1/workers")["workers"], [])
        for number, unknown in enumerate(("0" * 12, "none")):
            worker = self.start_pinned(coordinator, unknown, f"unknown-{number}")
            self.assertEqual(worker.wait(), 1)
            self.assertIn(f"there is no live job {unknown}", worker.log())

    def test_a_worker_that_cannot_serve_its_only_job_exits_with_the_reason(self):
        coordinator, client = self.start()
        job_id = client.submit(job_document(objective={"type": "plugin", "name": "nowhere", "dim": 4}, clients=1,
                                            quorum=1, reference={"type": "none"}))
        worker = self.start_pinned(coordinator, job_id)
        self.assertEqual(worker.wait(), 1)
        self.assertIn(f"this worker cannot serve job {job_id}: ", worker.log())

    def test_a_worker_of_one_job_survives_the_coordinators_restart(self):
        coordinator, client = self.start()
        job_id = client.submit(job_document(clients=2, quorum=2, horizon=200))
        worker = self.start_pinned(coordinator, job_id)
        self.waits(client, 1)
        coordinator.kill()
        coordinator = self.start_coordinator(port=coordinator.port, name="again")
        self.waits(coordinator.client, 1)
        self.assertTrue(worker.is_alive())
        other = self.start_pinned(coordinator, job_id, "other")
        self.assertEqual([worker.wait(), other.wait()], [0, 0])
        self.assertEqual(coordinator.client.job(job_id)["status"], "completed")

    def test_other_workers_poll_as_ever(self):
        coordinator, client = self.start()
        proxy = RecordingProxy(coordinator.port)
        self.addCleanup(proxy.close)
        job_id = client.submit(job_document(clients=1, quorum=1, horizon=50))
        worker = Worker(self.folder, proxy.url, "w", options=("--wait-ms", "50"))
        self.processes.append(worker)
        client.wait_status(job_id, "completed")
        self.assertEqual(worker.terminate(), 0)
        for poll in (e for e in proxy.exchanges if e.method == "PollTask"):
            self.assertFalse(messages.PollTaskRequest.FromString(poll.request_body).until_idle)

    # ---- --give-up-after ----

    def gives_up(self, url, *options):
        worker = Worker(self.folder, url, "w", options=("--give-up-after", "1", *options))
        self.processes.append(worker)
        self.assertEqual(worker.wait(), 3, worker.log())
        return worker.log()

    def test_a_worker_gives_up_without_a_coordinator(self):
        url = f"http://127.0.0.1:{free_port()}"
        self.assertIn(f'"no coordinator at {url} for 1 s"', self.gives_up(url))

    def test_a_worker_gives_up_on_a_coordinator_that_never_answers(self):
        with socket.create_server(("127.0.0.1", 0)) as mute:
            url = f"http://127.0.0.1:{mute.getsockname()[1]}"
            self.assertIn("no coordinator at", self.gives_up(url))

    def test_a_worker_gives_up_without_work(self):
        coordinator, client = self.start()
        self.assertIn(f'"no work at {coordinator.url} for 1 s"', self.gives_up(coordinator.url))
        client.submit(by_hand(clients=2))  # one that needs more slots is no work either
        self.assertIn("no work at", self.gives_up(coordinator.url))
        self.assertEqual(client.get_json("/v1/workers")["workers"], [])  # the worker has left

    def test_a_worker_gives_up_when_the_coordinator_has_gone(self):
        coordinator, client = self.start()
        job_id = client.submit(job_document("synthetic-ceal-long", clients=1, quorum=1))
        worker = self.start_worker(coordinator, "w", options=("--give-up-after", "1"))
        client.wait_rounds(job_id, 5)
        coordinator.kill()
        self.assertEqual(worker.wait(), 3, worker.log())
        self.assertIn("no coordinator at", worker.log())

    # ---- a plug-in that no worker has loaded ----

    def test_a_job_waits_for_its_plug_in_and_says_so_first(self):
        _, client = self.start()
        job_id = client.submit(by_hand(clients=1))
        hand = PatientHand(client, "w")
        task = hand.poll_task()
        hand.refuse(task, "plug-in mine is not loaded here")
        detail = client.job(job_id)
        self.assertEqual(detail["status"], "running")
        self.assertTrue(detail["waiting"]["text"].startswith(
            "worker w cannot serve it: plug-in mine is not loaded here; waits for client 0"), detail["waiting"])
        hand.leave()
        self.assertTrue(client.job(job_id)["waiting"]["text"].startswith(
            "worker w could not serve it: plug-in mine is not loaded here; waits for client 0"))
        able = Hand(client, "able")
        able.play()
        wait_until(lambda: client.job(job_id)["round"] == 1, "the round to close")
        able.leave()  # the next wait has a different cause
        wait_until(lambda: (client.job(job_id)["waiting"] or {}).get("for") == "clients", "the job to wait")
        self.assertNotIn("plug-in", client.job(job_id)["waiting"]["text"])


if __name__ == "__main__":
    unittest.main()
