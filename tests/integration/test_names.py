"""Two live workers of one name: each pauses longer before it replaces the other again, and everybody is told. A worker
that is restarted still replaces its dead predecessor at once.

No test measures time: how often the workers join is compared with the number of their warnings, which double the pause.
"""

import subprocess
import unittest

from common import BIN, FORMAT, ConnectError, ForeignWorker, TallyTestCase, Worker, job_document, messages, wait_until


class Names(TallyTestCase):
    def setUp(self):
        super().setUp()
        self.coordinator = self.start_coordinator(store="memory:")
        self.client = self.coordinator.client

    def workers(self):
        return self.client.get_json("/v1/workers")["workers"]

    def start_two(self):
        """Starts two workers of one name, with a log of their own each."""
        for n in (1, 2):
            folder = f"{self.folder}/{n}"
            subprocess.run(["mkdir", folder], check=True)
            worker = Worker(folder, self.coordinator.url, "twin", options=("--wait-ms", "1000"))
            self.processes.append(worker)
        return self.processes[-2:]

    def test_two_live_workers_pause_longer_each_time_and_are_told(self):
        one, two = self.start_two()
        warning = 'level=warn event="another worker has the same name" worker=twin other_address=127.0.0.1'
        wait_until(lambda: one.log().count(warning) >= 3 and two.log().count(warning) >= 3, "three warnings of each")
        for worker in (one, two):
            self.assertLessEqual(worker.log().count("event=joined"), worker.log().count(warning) + 2)
        rival = wait_until(lambda: [w["rival"] for w in self.workers() if w["rival"]], "the rival in the list")[0]
        self.assertEqual(rival["address"], "127.0.0.1")
        self.assertGreaterEqual(rival["times"], 2)
        self.assertIn('level=warn event="two workers have the same name" worker=twin address=127.0.0.1 '
                      "other_address=127.0.0.1", self.coordinator.log())
        listed = subprocess.run([BIN / "tally", "workers", "--coordinator", self.coordinator.url],
                                capture_output=True, text=True)
        self.assertIn("two workers have the name twin, at 127.0.0.1 and at 127.0.0.1", listed.stderr)
        checked = subprocess.run([BIN / "tally", "doctor", "--coordinator", self.coordinator.url],
                                 capture_output=True, text=True)
        self.assertRegex(checked.stdout, r"worker names .*twin at 127.0.0.1 and at 127.0.0.1")
        self.assertEqual(checked.returncode, 1)

    def test_a_restarted_worker_replaces_its_dead_predecessor_at_once(self):
        job_id = self.client.submit(job_document(clients=1, quorum=1, horizon=10**7))
        for _ in range(5):
            worker = self.start_worker(self.coordinator, "restarted")
            self.client.wait_rounds(job_id, 1)
            worker.kill()
            self.processes.remove(worker)
        self.assertEqual([w["rival"] for w in self.workers()], [None])
        self.assertNotIn("same name", self.coordinator.log())

    def test_the_replaced_worker_is_told_by_whom(self):
        old = ForeignWorker(self.client, "twin")
        ForeignWorker(self.client, "twin")
        with self.assertRaises(ConnectError) as raised:
            old.poll(wait_ms=1)
        self.assertEqual(raised.exception.code, "not_found")
        self.assertIn("another worker has joined as twin, from 127.0.0.1", str(raised.exception))
        self.assertEqual([w["rival"] for w in self.workers()], [None])  # it may have been its last call

    def test_the_response_to_join_names_the_rival(self):
        def join():
            return self.client.call("Join", messages.JoinRequest(name="twin", slots=1, format=FORMAT), messages.JoinResponse)

        def poll(session):
            with self.assertRaises(ConnectError):
                self.client.call("PollTask", messages.PollTaskRequest(session=session), messages.PollTaskResponse)

        first, second = join(), join()
        self.assertEqual((first.rival, second.rival), ("", ""))
        poll(first.session)
        poll(first.session)  # counts once
        third = join()
        self.assertEqual(third.rival, "127.0.0.1")
        poll(second.session)
        self.assertEqual(self.workers()[0]["rival"]["times"], 2)
        self.client.call("Leave", messages.LeaveRequest(session=third.session), messages.LeaveResponse)
        self.assertEqual(join().rival, "")

    # ---- default names ----

    def name_of(self, *options, launcher=()):
        worker = Worker.__new__(Worker)
        super(Worker, worker).__init__(self.folder, "named", [
            *launcher, BIN / "tally-worker", "--coordinator", self.coordinator.url, *options])
        self.processes.append(worker)
        names = wait_until(lambda: [w["name"] for w in self.workers()], "the worker")
        self.assertEqual(worker.terminate(), 0)
        self.processes.remove(worker)
        wait_until(lambda: not self.workers(), "the worker to leave")
        return names[0]

    def test_a_salt_tells_copies_apart_and_a_restart_keeps_the_name(self):
        one, again = self.name_of("--name", "h-1", "--name-salt", "a"), self.name_of("--name", "h-1", "--name-salt", "a")
        other = self.name_of("--name", "h-1", "--name-salt", "b")
        self.assertEqual(one, again)
        self.assertNotEqual(one, other)
        for name in (one, other):
            self.assertRegex(name, r"^h-1-[0-9a-f]{8}$")
        long = self.name_of("--name", "h" * 63 + "-1", "--name-salt", "a")
        self.assertEqual(len(long), 64)
        self.assertNotEqual(long, self.name_of("--name", "h" * 63 + "-2", "--name-salt", "a"))

    def test_the_default_name_has_a_digest_of_the_boot(self):
        self.assertRegex(self.name_of(), r"-\d+-[0-9a-f]{8}$")


if __name__ == "__main__":
    unittest.main()
