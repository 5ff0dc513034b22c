"""A leader that was paused, and continues when another replica leads its jobs, cannot write to them.

The worst moment for a pause is after the database was told to write and before it was told to commit.
It is brought about here: the leader is cut off from the database, asked for a change, stopped once what
it sends is under way, and let go on after another has taken its jobs and the network is well again. Its
database session is spared for that, which the taker would end: the token alone must hold."""

import concurrent.futures
import time
import unittest

from crowd import metric
from replicas import ReplicasTestCase

from common import ENDLESS, essence_so_far, wait_until
from lanes import CLIENTS, documents
from namespaces import run

# Found before the function in pg_catalog, so that no session can end another one.
SPARE_SESSIONS_SQL = """
    CREATE FUNCTION public.pg_terminate_backend(integer) RETURNS boolean LANGUAGE sql AS 'SELECT false';
    ALTER DATABASE tally SET search_path = public, pg_catalog"""
# The leader's own system must not notice too early that nothing comes through either.
LONG_TIMEOUTS = "tcp_user_timeout=60000"
ATTEMPTS = 30
PAUSES = 3


class Fence(ReplicasTestCase):
    def start(self, **options):
        self.build("a", "b", **options)
        self.pool = concurrent.futures.ThreadPoolExecutor()
        self.addCleanup(self.pool.shutdown)

    def submit_to_a(self, document):
        """Submits a job to replica a, which then leads it."""
        job_id = self.replicas["a"].client.submit(document)
        self.assertEqual(self.leaders()[job_id][0], "a")
        return job_id

    def ask(self, name, job_id, verb):
        """Sends an operator's request to a replica that may be stopped; the response comes later."""
        return self.pool.submit(self.replicas[name].client.post, f"/v1/jobs/{job_id}/{verb}")

    def row(self, job_id):
        """Returns the job's row in the database."""
        return [
            self.query(f"SELECT * FROM {table} WHERE job_key = (SELECT job_key FROM jobs WHERE id = '{job_id}')"
                       " ORDER BY 1, 2")
            for table in ("jobs", "job_states", "job_state_changes", "updates", "rounds")
        ]

    # A pause in the middle of a write.

    def unsent_bytes(self):
        """Returns the number of unacknowledged bytes that replica a has sent to the database."""
        listed = run(*self.network.enter("a"), "ss", "-Htn", "dst", self.network.address("db"))
        return sum(int(line.split()[2]) for line in listed.splitlines())

    def session_of_a(self):
        """Returns (process id, state, start of its newest query) of a's session, or None."""
        rows = self.query("SELECT pid, state, query_start FROM pg_stat_activity WHERE client_addr ="
                          f" '{self.network.address('a')}'")
        return rows[0] if rows else None

    def what_arrived(self, before):
        """Returns the state of a's database session once the session is idle again, having received what a had sent;
        "gone" if it has ended; None until then."""
        now = self.session_of_a()
        if now is None:
            return "gone"
        return now[1] if now != before and now[1].startswith("idle") else None

    def pause_a_in_a_write(self, job_id):
        """Stops a in the middle of a write. Returns the future response and a's session before the write. What a has
        sent is a write to the job, or a heartbeat if that was due first."""
        renewed = "SELECT expires_at FROM replicas WHERE id = 'a'"
        before = self.query(renewed)
        wait_until(lambda: self.query(renewed) != before, "a heartbeat", pause_s=0.001)
        self.pause(self.replicas["a"])
        # Bytes whose acknowledgement the separation cuts off would count as written into the void.
        wait_until(lambda: self.unsent_bytes() == 0, "what a has sent to be acknowledged", pause_s=0.001)
        self.network.separate("a", "db")
        session = self.session_of_a()
        answer = self.ask("a", job_id, "cancel")
        time.sleep(0.05)  # it is in a's socket by now; if not, the test tries again
        self.resume(self.replicas["a"])
        wait_until(lambda: self.unsent_bytes() > 0, "a to write into the void", pause_s=0.001)
        self.pause(self.replicas["a"])
        return answer, session

    def fenced_writes(self):
        return metric(self.replicas["a"].client.get("/metrics").body.decode(), "tally_store_fenced_writes_total")

    def a_late_write(self):
        """Lets a resume in a transaction that has cancelled a job of b's and waits for COMMIT. Returns the database's
        view of the job before and after, the status of a's response, and how many writes of a were fenced off; None if
        the situation did not arise."""
        fenced = self.fenced_writes()
        job_id = self.submit_to_a(documents("synthetic-ceal-long", 600)[0])
        wait_until(lambda: self.replicas["a"].client.job(job_id)["waiting"]["for"] == "workers",
                   "nothing more to be written but what a is asked for")
        answer, session = self.pause_a_in_a_write(job_id)
        wait_until(lambda: self.leaders()[job_id][0] == "b", "b to lead the job")
        before = self.row(job_id)
        self.network.heal()
        state = wait_until(lambda: self.what_arrived(session), "what a had sent to arrive")
        self.resume(self.replicas["a"])
        status = answer.result().status
        wait_until(self.all_are_ready, "both to be ready")
        if state != "idle in transaction":
            return None
        self.say(f"the answer to what a was asked before b led the job: {status}")
        return before, self.row(job_id), status, self.fenced_writes() - fenced

    def late_write(self):
        for _ in range(ATTEMPTS):
            found = self.a_late_write()
            if found:
                return found
            self.say("that was no write to a job")
        raise AssertionError("a never wrote")

    def test_a_write_that_was_under_way(self):
        self.start(prepare_sql=SPARE_SESSIONS_SQL, conninfo_more=LONG_TIMEOUTS)
        before, after, status, fenced = self.late_write()
        self.assertEqual(after, before, "a leader of old has written")
        self.assertEqual(self.stray_writes(), [])
        self.assertNotEqual(status, 200, "acknowledged, and not done")
        self.assertEqual(fenced, 1)  # earlier attempts may have had one as well
        self.assert_ends_well(*self.replicas.values())

    def test_without_the_fence_it_writes(self):
        """The mutant without the token check, in the same situation; shows that the test above can fail."""
        self.start(program="tally-coordinator-without-fence", prepare_sql=SPARE_SESSIONS_SQL,
                   conninfo_more=LONG_TIMEOUTS)
        before, after, status, _ = self.late_write()
        self.say(f"without the fence: {self.stray_writes()}")
        self.assertNotEqual(after, before)
        self.assertNotEqual(self.stray_writes(), [])

    # A pause at a random moment, under load, while requests wait for the former leader.

    def test_requests_that_waited_for_it(self):
        self.start()
        proxy = self.start_proxy()
        self.start_workers([CLIENTS] * 2, proxy.url)
        document = documents("synthetic-ceal-long", ENDLESS)[0]
        job_id = self.submit_to_a(document)
        for _ in range(PAUSES):
            leader, _, rounds = wait_until(lambda: self.gets_on(job_id), "the job to get on")
            time.sleep(self.random.uniform(0, 1))  # at any moment
            self.pause(self.replicas[leader])
            answer = self.ask(leader, job_id, "pause")
            new_leader, token, rounds = wait_until(
                lambda: self.gets_on(job_id, other_than=leader), "another to lead the job")
            before = wait_until(lambda: self.gets_on(job_id, more_than=rounds + 3), "some rounds of it")
            self.resume(self.replicas[leader])
            status = answer.result().status
            self.assertEqual(self.stray_writes(), [], "a leader of old has written")
            after = self.leaders()[job_id]
            self.assertEqual(after[:2], before[:2])
            self.assertGreaterEqual(after[2], before[2])
            self.say(f"{leader}, which had been asked to pause the job: {status}")
            # The new leader may have received a forwarded request from it.
            paused = self.client.job(job_id)["status"] == "paused"
            self.assertEqual(paused, status == 200)
            if paused:
                self.assertEqual(self.client.post(f"/v1/jobs/{job_id}/resume").status, 200)
            wait_until(self.all_are_ready, "both to be ready")
        self.assertEqual(self.client.post(f"/v1/jobs/{job_id}/cancel").status, 200)
        detail = self.client.wait_status(job_id, "cancelled")
        self.assertEqual(*essence_so_far(detail, document))
        self.check_acknowledged(proxy, job_id, self.client.rounds(job_id), CLIENTS)
        self.assertEqual(self.stray_writes(), [])
        self.assert_ends_well(*self.workers, *self.replicas.values())

    def gets_on(self, job_id, other_than=None, more_than=0):
        """Returns the leader of the job, if it has one and has closed rounds."""
        leader, token, rounds = self.leaders()[job_id]
        return (leader, token, rounds) if leader not in (None, other_than) and rounds > more_than else None


if __name__ == "__main__":
    unittest.main()
