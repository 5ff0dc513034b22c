"""Several coordinators on one PostgreSQL: any of them answers, and nothing is lost when one goes away."""

import concurrent.futures
import http.client
import json
import os
import random
import re
import signal
import threading
import time
import unittest
from pathlib import Path

import numpy as np

from common import (
    BIN, ENDLESS, HANG_S, ConnectError, ForeignWorker, Lateness, essence, essence_so_far, job_document, messages,
    simulate, sum_of_rounds, wait_until,
)
from private_postgres import PostgresTestCase
from test_events import TERMINAL, Stream, running_totals

LONG_JOB = "synthetic-ceal-long"


def small_job(**changes):
    return job_document(LONG_JOB, **{"horizon": 600, **changes})


def metric(replica, name):
    """Returns the sum of a metric's samples: over all labels, unless the name includes some."""
    text = replica.client.get("/metrics").body.decode()
    pattern = re.escape(name) + (r" (\S+)$" if "{" in name else r"(?:\{[^}]*\})? (\S+)$")
    return sum(float(value) for value in re.findall("^" + pattern, text, re.MULTILINE))


def leader_first(a, b):
    """Orders two replicas so that the leader of the only job comes first."""
    return (b, a) if metric(b, 'tally_jobs{status="running"}') == 1 else (a, b)


def whole_list(replica, query=""):
    """The list of workers. A replica that does not answer in time, as on a busy machine, would be missing from it."""

    def look():
        answer = replica.client.get_json(f"/v1/workers{query}")
        return answer if all(each["answered"] for each in answer["replicas"]) else None

    return wait_until(look, "all replicas to answer")


def names_of_workers(replica, **headers):
    answer = replica.client.get("/v1/workers", **headers)
    return sorted(worker["name"] for worker in answer.json()["workers"])


class Follower(threading.Thread):
    """Reads a job's event stream to its end; reconnects with Last-Event-ID if it is cut off."""

    def __init__(self, ports, job_id):
        super().__init__(daemon=True)
        self.ports = ports
        self.job_id = job_id
        self.rounds = []
        self.details = []
        self.n_connections = 0
        self.start()

    def run(self):
        last_id = 0
        while not self.details or self.details[-1]["status"] not in TERMINAL:
            port = self.ports[self.n_connections % len(self.ports)]
            try:
                with Stream(port, self.job_id, last_event_id=last_id) as stream:
                    self.n_connections += 1
                    for kind, data in stream.items():
                        if kind == "round":
                            self.rounds.append(data)
                            last_id = data["round"]
                        elif kind == "job":
                            self.details.append(data)
            except (OSError, http.client.HTTPException):
                self.n_connections += 1
                time.sleep(0.05)


class Replicas(PostgresTestCase):
    def setUp(self):
        super().setUp()
        seed = time.time_ns()
        print(f"\nrandom seed {seed}", flush=True)
        self.random = random.Random(seed)

    def check_result(self, replica, job_id, document):
        detail = replica.client.wait_status(job_id, "completed")
        self.assertEqual(essence(detail), essence(simulate(document)))
        return self.check_sums(replica, job_id, detail)

    def check_endless(self, replica, job_id, document):
        """Checks that an endless job that was disturbed still closes rounds; then cancels it and checks that its state
        is that of an undisturbed run."""
        replica.client.wait_rounds(job_id, 2)
        replica.client.post(f"/v1/jobs/{job_id}/cancel")
        detail = replica.client.wait_status(job_id, "cancelled")
        self.assertEqual(*essence_so_far(detail, document))
        return self.check_sums(replica, job_id, detail)

    def check_sums(self, replica, job_id, detail):
        sums = sum_of_rounds(replica.client.rounds(job_id))
        self.assertEqual(sums, {key: detail["bits"][key] for key in sums})
        return detail

    def wait_for_round(self, replica, job_id, wanted):
        def look():
            detail = replica.client.job(job_id)
            if detail["round"] < wanted:
                self.assertNotIn(detail["status"], TERMINAL, "the job ended too early for this test")
                return None
            return detail

        return wait_until(look, f"round {wanted}")

    def start_pair(self, **options):
        return self.start_replica("a", **options), self.start_replica("b", **options)

    def start_workers(self, n, *replicas, clients=2, name="w"):
        """Starts workers, distributed over the replicas in turn."""
        for i in range(n):
            self.start_worker(replicas[i % len(replicas)], f"{name}{i}", clients=clients)

    def start_balanced_pair(self, clients=2):
        """Starts two replicas, and five workers that connect through the balancer."""
        a, b = self.start_pair()
        balancer = self.balance(a, b)
        self.start_workers(5, balancer, clients=clients)
        return a, b, balancer

    # ---- Any replica answers ----

    def test_any_replica_answers_for_the_job(self):
        a, b = self.start_pair()
        self.start_worker(a, "w", clients=10)
        document = small_job(horizon=ENDLESS, keep={"best": "loss"})
        job_id = a.client.submit(document)
        a.client.wait_status(job_id, "running")
        follower = Follower([b.port], job_id)
        self.wait_for_round(b, job_id, 5)
        self.assertEqual(b.client.post(f"/v1/jobs/{job_id}/pause").json()["status"], "paused")
        wait_until(lambda: b.client.get_json("/v1/workers")["workers"][0]["state"] == "waiting",
                   "the open round's last answers")
        # A worker's poll that begins or ends between the two requests changes their wire_bytes.
        wait_until(lambda: b.client.job(job_id) == a.client.job(job_id), "the same detail from both")
        self.assertEqual(b.client.job(job_id)["waiting"]["for"], "resume")  # known to the leader alone
        for path in (f"/v1/jobs/{job_id}/rounds", f"/v1/jobs/{job_id}/rounds.csv",
                     f"/v1/jobs/{job_id}/model", f"/v1/jobs/{job_id}/series", f"/v1/jobs/{job_id}/models",
                     f"/v1/jobs/{job_id}/model?which=best"):
            here, there = a.client.get(path), b.client.get(path)
            self.assertEqual((here.status, here.type, here.body), (there.status, there.type, there.body), path)
        npy = [each.client.get(f"/v1/jobs/{job_id}/model", Accept="application/x-npy") for each in (a, b)]
        self.assertEqual([each.type for each in npy], ["application/x-npy"] * 2)
        self.assertEqual(npy[0].body, npy[1].body)
        self.assertEqual([job["id"] for job in b.client.get_json("/v1/jobs")["jobs"]], [job_id])
        self.assert_problem(b.client.post(f"/v1/jobs/{job_id}/pause"), 409)  # as the leader reports it
        self.assert_problem(b.client.post("/v1/jobs/0123456789ab/cancel"), 404)
        self.assertEqual(b.client.post(f"/v1/jobs/{job_id}/resume").json()["status"], "running")
        self.assertEqual(b.client.post(f"/v1/jobs/{job_id}/cancel").json()["status"], "cancelled")
        detail = a.client.wait_status(job_id, "cancelled")
        follower.join(HANG_S)
        self.assertIsNotNone(detail.pop("provenance"))  # which events do not have
        self.assertEqual(follower.details[-1], detail)
        self.assertEqual(len(follower.rounds), detail["round"])
        self.assertGreater(metric(b, 'tally_forwarded_requests_total{result="answered"}'), 5)
        self.assertEqual(metric(a, 'tally_forwarded_requests_total{result="answered"}'), 0)
        model = [each.client.get(f"/v1/jobs/{job_id}/model").body for each in (a, b)]
        self.assertEqual(model[0], model[1])

    def test_workers_of_all_replicas_are_listed(self):
        a, b = self.start_pair()
        self.start_worker(a, "at-a", clients=2)
        self.start_worker(b, "at-b", clients=3)
        for replica in (a, b):
            wait_until(lambda: names_of_workers(replica) == ["at-a", "at-b"], "both workers")
            answer = whole_list(replica)
            self.assertEqual(answer["slots_free"], 5)
            self.assertEqual([each["address"] for each in answer["replicas"]], [a.url, b.url])
        a.kill()
        wait_until(lambda: names_of_workers(b) == ["at-b"], "the dead replica's worker to be gone")
        said = b.client.get_json("/v1/workers")["replicas"]
        self.assertFalse(said[0]["answered"])

    def test_pages_of_workers_go_through_all_replicas(self):
        """Pages are the same whichever coordinator is asked, whether a page ends within the workers of one replica or
        between two."""
        a, b = self.start_pair()
        for i in range(3):
            ForeignWorker(a.client, name=f"a{i}")
            ForeignWorker(b.client, name=f"b{i}")
        for replica in (a, b):
            wait_until(lambda: len(names_of_workers(replica)) == 6, "all workers")
        for limit in (1, 2, 3, 4, 5, 6, 7):
            names, cursor, replicas = [], "", [a, b]
            while cursor is not None:
                page = whole_list(replicas[len(names) % 2], f"?limit={limit}{cursor}")
                self.assertLessEqual(len(page["workers"]), limit)
                self.assertEqual((page["workers_total"], page["slots_total"], page["slots_free"]), (6, 6, 6))
                names += [each["name"] for each in page["workers"]]
                cursor = page["next_cursor"] and f"&cursor={page['next_cursor']}"
            self.assertEqual(names, ["a2", "a1", "a0", "b2", "b1", "b0"], limit)

    def test_the_same_key_at_two_replicas_is_one_job(self):
        a, b = self.start_pair()
        body = json.dumps(small_job())
        headers = {"Idempotency-Key": "once"}
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            posts = [pool.submit(each.client.post_job, body, headers) for each in (a, b) * 8]
        answers = [post.result() for post in posts]
        self.assertEqual({answer.status for answer in answers}, {201}, answers)
        self.assertEqual(len({answer.json()["id"] for answer in answers}), 1)
        self.assertEqual(len(a.client.get_json("/v1/jobs")["jobs"]), 1)
        other = b.client.post_job(small_job(seed=99), headers)
        self.assert_problem(other, 409, "Idempotency-Key")

    def test_a_worker_bound_to_a_job_finds_its_leader(self):
        a, b = self.start_pair()
        document = small_job()
        job_id = a.client.submit(document)
        worker = self.start_worker(b, "bound", clients=10, options=("--job", job_id))
        self.check_result(b, job_id, document)
        self.assertIn("worker joined", a.log())
        self.assertNotIn("worker joined", b.log())
        self.assert_ends_well(worker)

    def test_what_is_wrong_with_a_message_any_replica_says(self):
        a, b = self.start_pair()
        job_id = a.client.submit(job_document(clients=1, quorum=1))
        worker = ForeignWorker(a.client)
        update = worker.update(worker.poll_task(), 0).SerializeToString()
        session = update[:9]
        for method, body, code in (
            ("PostUpdate", session + b"\x12\x40" + 64 * b"a", "invalid_argument"),  # a text that is too long
            ("PostUpdate", session + b"\x30\x01", "invalid_argument"),  # a number in place of the update
            ("PostUpdate", session + b"\x32\x02\x10\x01", "invalid_argument"),  # and of the payload
            ("PostUpdate", update[:-1], "invalid_argument"),
            ("PostUpdate", update + b"\x09\x01", "invalid_argument"),  # a second session, cut short
            ("PostUpdate", b"\x08\x01", "invalid_argument"),
            ("PostUpdate", b"", "invalid_argument"),
            ("PostUpdate", b"\x32\x00", "not_found"),
            ("PollTask", session + b"\x1a\x01\x0a", "invalid_argument"),
            ("Leave", session[:5], "invalid_argument"),
        ):
            with self.subTest(method, body=body):
                answers = [each.client.call_raw(method, body) for each in (a, b)]
                self.assertEqual(answers[0].json()["code"], code)
                self.assertEqual(answers[1].status, answers[0].status)
                self.assertEqual(answers[1].body, answers[0].body)
        self.assertEqual(b.client.call_raw("PostUpdate", update).status, 200)
        self.assertEqual(b.client.call_raw("Leave", session).status, 200)
        self.assertEqual(a.client.job(job_id)["round"], 1)

    def test_several_updates_come_through_any_replica(self):
        """With or without a poll; if there is one, the other replica holds it."""
        a, b = self.start_pair()
        job_id = a.client.submit(job_document(clients=3, quorum=3))
        worker = ForeignWorker(a.client, slots=3)
        task = worker.poll_task()
        request = messages.PostUpdateRequest(session=worker.session, job_id=job_id, round=1)
        for client in task.clients:
            request.updates.extend(worker.update(task, client).updates)
        request.poll.wait_ms = 30000
        request.poll.cursors.add(job_id=job_id, iterate=task.iterate)
        answer = b.client.call("PostUpdate", request, messages.PostUpdateResponse)
        self.assertEqual((len(answer.results), answer.payload_bits), (0, 3 * 30))
        self.assertEqual(answer.next.task.round, 2)
        same = a.client.call("PostUpdate", request, messages.PostUpdateResponse)
        self.assertEqual((same.results, same.payload_bits), (answer.results, answer.payload_bits))
        for body in (b"", request.SerializeToString()[:-1], b"\x32\x01"):
            answers = [each.client.call_raw("PostUpdate", body) for each in (a, b)]
            self.assertEqual(answers[0].json()["code"], "invalid_argument")
            self.assertEqual(answers[1].body, answers[0].body)
        self.assertEqual(b.client.job(job_id)["round"], 1)

    # ---- Workers and jobs move ----

    def test_workers_move_where_a_job_lacks_them(self):
        a, b = self.start_pair()
        self.start_workers(2, a, name="a")
        self.start_workers(3, b, name="b")
        wait_until(lambda: len(names_of_workers(a)) == 5, "all workers")
        document = small_job()
        job_id = a.client.submit(document)
        self.check_result(a, job_id, document)
        self.assertEqual(metric(b, "tally_replica_workers_given_total"), 3)
        self.assertEqual(len(names_of_workers(a, **{"Tally-Forwarded": "1"})), 5)

    def test_a_queued_job_goes_to_free_slots(self):
        a, b = self.start_pair()
        self.start_worker(b, "w", clients=10)
        document = small_job()
        job_id = a.client.submit(document)
        detail = self.check_result(a, job_id, document)
        self.assertEqual(metric(a, "tally_replica_jobs_given_total"), 1)
        self.assertEqual(metric(b, "tally_replica_jobs_taken_total"), 1)
        self.assertEqual(metric(b, 'tally_jobs_ended_total{status="completed"}'), 1)
        self.assertEqual(metric(a, "tally_job_rounds_total"), 0)  # only the leader has series of the job
        self.assertEqual(metric(b, "tally_job_rounds_total"), detail["round"])

    def test_an_old_job_is_not_starved_by_small_ones(self):
        a, b = self.start_pair()
        self.start_workers(5, b, name="b")
        self.start_workers(2, a, name="a")
        wait_until(lambda: len(names_of_workers(a)) == 7, "all workers")
        small = [small_job(clients=4, quorum=None, horizon=60, seed=seed) for seed in range(12)]
        ids = [b.client.submit(document) for document in small[:4]]
        large = small_job(clients=14, quorum=None)
        large_id = a.client.submit(large)
        ids += [b.client.submit(document) for document in small[4:]]
        for document, job_id in zip(small, ids):
            self.check_result(a, job_id, document)
        self.check_result(b, large_id, large)

    def test_many_jobs_on_two_replicas(self):
        a, b = self.start_pair(options=["--lease-ms", "30000"])  # on a busy machine a shorter one is not kept
        self.start_workers(4, a, b, clients=20)
        documents = [small_job(seed=seed, horizon=100, clients=2, quorum=2) for seed in range(5)]
        jobs = [((a, b)[i % 2].client.submit(documents[i // 2 % 5]), documents[i // 2 % 5]) for i in range(40)]
        for i, (job_id, document) in enumerate(jobs):
            self.check_result((b, a)[i % 2], job_id, document)
        ended = [metric(each, 'tally_jobs_ended_total{status="completed"}') for each in (a, b)]
        self.assertEqual(sum(ended), 40)
        self.assertTrue(all(ended), ended)
        for name in ("tally_replica_jobs_lost_total", "tally_store_fenced_writes_total"):
            self.assertEqual([metric(each, name) for each in (a, b)], [0, 0], name)

    # ---- Replicas come and go ----

    def test_leader_killed(self):
        a, b, _ = self.start_balanced_pair()
        document = small_job(horizon=ENDLESS)
        wait_until(lambda: b.client.get_json("/v1/workers")["slots_free"] == 10, "all workers")
        job_id = a.client.submit(document)
        wait_until(lambda: b.client.job(job_id)["status"] == "running", "the job to run")
        leader, other = leader_first(a, b)  # the job may have been assigned to the other replica
        followers = [Follower([other.port], job_id), Follower([leader.port, other.port], job_id)]
        point = self.random.randrange(1, 150)
        before = self.wait_for_round(other, job_id, point)
        for follower in followers:  # also those received from the replica that does not lead the job
            wait_until(lambda: follower.rounds and follower.rounds[-1]["round"] >= point, "its events")
        time.sleep(self.random.uniform(0, 0.05))  # anywhere in a round
        leader.kill()
        killed = time.monotonic()
        after = other.client.job(job_id)  # while no replica leads the job
        self.assertGreaterEqual(after["round"], before["round"])
        wait_until(lambda: "job taken over" in other.log(), "the take-over")
        print(f"killed at round {after['round']}, taken over after {time.monotonic() - killed:.1f} s", flush=True)
        self.wait_for_round(other, job_id, after["round"] + 2)
        print(f"next rounds closed after {time.monotonic() - killed:.1f} s", flush=True)
        detail = self.check_endless(other, job_id, document)
        for way in ("in", "out"):
            self.assertGreaterEqual(detail["bits"]["wire_bytes"][way], after["bits"]["wire_bytes"][way])
        records = other.client.rounds(job_id)
        for follower in followers:
            follower.join(HANG_S)
            self.assertEqual([each["round"] for each in follower.rounds], list(range(1, len(records) + 1)))
            self.assertEqual([each["totals"] for each in follower.rounds], running_totals(records))
            self.assertEqual(follower.details[-1]["status"], "cancelled")
        self.assertEqual(followers[0].n_connections, 1)  # its connection never broke
        self.assertGreater(followers[1].n_connections, 1)

    def test_a_given_initial_point_moves_with_its_job(self):
        """The file has changed when the other replica takes the job over."""
        folder = Path(self.folder, "data")
        folder.mkdir()
        np.save(folder / "start.npy", np.linspace(-1, 1, 30))
        a, b = self.start_pair(options=("--data-dir", folder))
        document = {**small_job(horizon=ENDLESS), "initial_point": {"type": "npy", "file": "start.npy"}}
        self.start_workers(2, self.balance(a, b), clients=5)
        job_id = a.client.submit(document)
        self.wait_for_round(b, job_id, 1)
        leader, other = leader_first(a, b)
        leader.kill()
        np.save(folder / "start.npy", np.zeros(30))
        wait_until(lambda: "job taken over" in other.log(), "the take-over")
        other.client.wait_rounds(job_id, 2)
        other.client.post(f"/v1/jobs/{job_id}/cancel")
        detail = other.client.wait_status(job_id, "cancelled")
        np.save(folder / "start.npy", np.linspace(-1, 1, 30))
        so_far = simulate({**document, "horizon": detail["time_step"]}, ("--data-dir", folder))
        self.assertEqual({**essence(detail), "status": None}, {**essence(so_far), "status": None})

    def test_a_start_is_offered_at_another_replica(self):
        """Two slots are at each replica, and the job needs three."""
        plugin = ("--plugin", BIN.parent / "plugins" / "trainer.so")
        document = {"objective": {"type": "training", "name": "trainer", "dim": 5}, "algorithm": {"type": "fedavg"},
                    "clients": 3, "horizon": 20, "initial_point": {"type": "first"}}
        a, b = self.start_pair()
        self.start_worker(b, "offers", clients=2, options=plugin)
        self.start_worker(a, "too", clients=2, options=plugin)
        job_id = a.client.submit(document)
        detail = b.client.wait_status(job_id, "completed")
        self.assertEqual(essence(detail), essence(simulate(document, plugin)))
        self.assertEqual(a.log().count("worker offered the initial point")
                         + b.log().count("worker offered the initial point"), 1)

    def test_leader_stopped_in_good_order(self):
        a, b, _ = self.start_balanced_pair()
        document = small_job(horizon=ENDLESS)
        job_id = a.client.submit(document)
        self.wait_for_round(a, job_id, 10)
        self.assert_ends_well(a)
        stopped = time.monotonic()
        round_then = b.client.job(job_id)["round"]
        self.wait_for_round(b, job_id, round_then + 2)
        print(f"next rounds closed {time.monotonic() - stopped:.1f} s after the end", flush=True)
        self.check_endless(b, job_id, document)
        self.assert_ends_well(b)

    # ---- Updates that poll as well ----

    def wait_with_updates(self, home, *replicas):
        """Starts a worker for each replica, all with sessions at `home`. Each posts an update through its replica that
        polls and is stored before its response. Returns the threads and the answers, which are complete once the
        threads have ended: the response or the error, and after how many seconds it came."""
        job_id = home.client.submit(job_document(clients=len(replicas) + 1, quorum=len(replicas) + 1))
        workers = [ForeignWorker(home.client, f"foreign{i}") for i in range(len(replicas) + 1)]
        tasks = [worker.poll_task() for worker in workers]
        answers = {}

        def post(i):
            update = workers[i].update(tasks[i], tasks[i].clients[0])
            update.poll.wait_ms = 30000
            workers[i].client = replicas[i].client
            began = time.monotonic()
            try:
                answers[i] = workers[i].post(update), time.monotonic() - began
            except (ConnectError, OSError, http.client.HTTPException) as error:
                answers[i] = error, time.monotonic() - began

        threads = [threading.Thread(target=post, args=(i,)) for i in range(len(replicas))]
        for thread in threads:
            thread.start()
        wait_until(lambda: sum(worker["state"] == "waiting" and bool(worker["assignments"]) for worker in
                               home.client.get_json("/v1/workers")["workers"]) == len(replicas),
                   "updates that wait for a task")
        return threads, answers

    def test_updates_that_wait_elsewhere_do_not_hold_up_an_end(self):
        a, b = self.start_pair(options=["--lease-ms", "20000"])
        threads, answers = self.wait_with_updates(a, b)
        self.assert_ends_well(b)
        threads[0].join(HANG_S)
        self.assertIsInstance(answers[0][0], ConnectError)  # rather than a broken connection
        self.assertEqual(answers[0][0].code, "unavailable")

    def test_who_steps_down_acknowledges_what_is_stored(self):
        lease_s = 3
        a = self.start_replica("a", options=["--lease-ms", lease_s * 1000])
        threads, answers = self.wait_with_updates(a, a)
        self.cluster.crash()
        threads[0].join(HANG_S)
        wait_until(lambda: "stepping down" in a.log(), "the leader to step down")
        self.cluster.restart()
        answer, took_s = answers[0]
        self.assertEqual(answer.payload_bits, 30)
        # A poll waits no longer than a lease. If a heartbeat came after it, it may have ended by itself before the
        # replica stepped down.
        if took_s < lease_s or answer.next.WhichOneof("kind") != "idle":
            self.assertFalse(answer.HasField("next"))

    # ---- Replicas that wrongly believe to be the leader ----

    def test_a_job_that_is_lost_takes_none_with_it(self):
        """The leader learns that it lost the job when a write is refused. That write covers other jobs as well."""
        a, b, _ = self.start_balanced_pair(clients=8)
        documents = [small_job(seed=seed, horizon=ENDLESS) for seed in range(2)]
        ids = [a.client.submit(document) for document in documents]
        for job_id in ids:
            self.wait_for_round(b, job_id, 5)
        for n in range(4):
            taker = 1 + n % 2
            self.database.changes(
                f"UPDATE job_leases SET leader = {taker}, token = token + 1 WHERE leader <> {taker}"
                f" AND job_key = (SELECT job_key FROM jobs WHERE id = '{ids[0]}')",
            )
            for job_id in ids:
                self.wait_for_round(b, job_id, b.client.job(job_id)["round"] + 5)
        for document, job_id in zip(documents, ids):
            self.check_endless(a, job_id, document)
        self.assertGreater(sum(metric(each, "tally_replica_jobs_lost_total") for each in (a, b)), 1)
        self.assertGreater(sum(metric(each, "tally_store_fenced_writes_total") for each in (a, b)), 0)
        for each in (a, b):
            self.assertEqual(each.client.get("/readyz").status, 200)

    def test_a_fence_that_a_read_meets_is_no_failure_of_the_store(self):
        """One step closes a round of a job that was lost in the meantime, and also looks up an idempotency key."""
        a, b = self.start_pair()
        job_id = a.client.submit(job_document(clients=1, quorum=1))
        worker = ForeignWorker(a.client)
        task = worker.poll_task()
        update = worker.update(task, task.clients[0]).SerializeToString()
        connections = [a.client.connect(HANG_S) for _ in range(2)]
        for connection in connections:
            connection.connect()
        os.kill(a.pid, signal.SIGSTOP)
        try:  # when a resumes, it finds both before it hears from the store
            self.database.changes("UPDATE job_leases SET leader = 2, token = token + 1")
            connections[0].request("POST", "/tally.v1.WorkerService/PostUpdate", update,
                                   {"Content-Type": "application/proto"})
            connections[1].request("POST", "/v1/jobs", json.dumps(job_document()),
                                   {"Content-Type": "application/json", "Idempotency-Key": "one"})
        finally:
            os.kill(a.pid, signal.SIGCONT)
        for connection in connections:
            connection.getresponse().read()
            connection.close()
        wait_until(lambda: b.client.job(job_id)["waiting"], "the job's new leader")
        self.assertNotIn("write failed", a.log())
        self.assertEqual(metric(a, "tally_store_errors_total"), 0)

    def test_a_queued_job_is_taken_over(self):
        a, b = self.start_pair()
        document = small_job()
        job_id = a.client.submit(document)
        a.kill()
        wait_until(lambda: "job taken over" in b.log(), "the take-over")
        self.start_worker(b, "w", clients=10)
        self.check_result(b, job_id, document)

    def test_store_away_for_a_while(self):
        a, b = self.start_pair()
        document = small_job(horizon=ENDLESS)
        self.start_workers(5, a, b)
        job_id = a.client.submit(document)
        self.wait_for_round(b, job_id, 10)
        self.cluster.crash()
        slowest = 0

        def have_stepped_down():
            nonlocal slowest
            for replica in (a, b):
                began, lateness = time.monotonic(), Lateness(replica.pid)
                self.assertEqual(replica.client.get("/healthz").status, 200)
                slowest = max(slowest, time.monotonic() - began - lateness.seconds())
            return all("stepping down" in replica.log() for replica in (a, b))

        wait_until(have_stepped_down, "both to step down", pause_s=0.1)
        print(f"slowest /healthz without a store: {slowest * 1000:.0f} ms", flush=True)
        self.assertLess(slowest, 2)
        for replica in (a, b):
            self.assertEqual(replica.client.get("/readyz").status, 503)
        self.cluster.restart()
        for replica in (a, b):
            replica.wait_ready()
        self.check_endless(b, job_id, document)

    def test_an_address_that_others_cannot_reach_is_refused(self):
        coordinator = self.start_replica("any", host="0.0.0.0", options=("--insecure",), wait=False)
        self.assertEqual(coordinator.wait(), 1)
        self.assertIn("--replica-address", coordinator.log())
        self.processes.remove(coordinator)
        told = self.start_replica(
            "told", port=coordinator.port, host="0.0.0.0",
            options=("--insecure", "--replica-address", f"http://127.0.0.1:{coordinator.port}",
                     "--replica-id", "one", "--lease-ms", "2000"),
        )
        self.assertIn("replica=one", told.log())


if __name__ == "__main__":
    unittest.main()
