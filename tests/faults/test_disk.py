"""The disk fills up while a job runs, and later has space again."""

import time
import unittest
from pathlib import Path

from namespaces import CLONE_NEWNS, run, unshare
from service import (
    CLIENTS, LONG_JOB, FaultTestCase, job_document, uplink_of_workers, wait_until,
)

DISK = "16m"  # holds SQLite's log at its usual size, and the job
WORKERS = 5
WORKER_OPTIONS = ("--wait-ms", "300")


class Disk(FaultTestCase):
    def setUp(self):
        super().setUp()
        # In a mount namespace of its own: whatever happens to the test, the mount ends with it.
        unshare(CLONE_NEWNS, "a full disk")
        run("mount", "--make-rprivate", "/")
        self.disk = Path(self.folder) / "disk"
        self.disk.mkdir()
        run("mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", self.disk)
        self.addCleanup(run, "umount", self.disk)
        self.addCleanup(self._end_processes)  # before the coordinator
        self.filler = self.disk / "filler"

    def start_coordinator_there(self, **again):
        self.coordinator = self.start_coordinator(store=f"sqlite:{self.disk}/tally.db", **again)
        self.client = self.coordinator.client

    def fill(self):
        with open(self.filler, "wb", buffering=0) as file:
            for size in (65536, 512):
                while True:
                    try:
                        file.write(bytes(size))
                    except OSError:
                        break

    def is_ready(self):
        return self.client.get("/readyz").status == 200

    def start_workers(self):
        return [
            self.start_worker(
                self.coordinator, f"w{i}", clients=CLIENTS // WORKERS, options=WORKER_OPTIONS
            )
            for i in range(WORKERS)
        ]

    def waits_for_store(self, job_id):
        detail = self.client.job(job_id)
        return detail if (detail["waiting"] or {}).get("for") == "store" else None

    def test_full_and_space_comes_back(self):
        document = job_document(LONG_JOB, horizon=12000)
        self.start_coordinator_there()
        workers = self.start_workers()
        job_id = self.client.submit(document)
        for kills in (False, True, False):
            self.wait_for_more(self.client, job_id, self.random.randint(1, 200))
            self.fill()
            # The job continues as long as SQLite's log has room.
            wait_until(lambda: not self.is_ready(), "the full disk to be noticed")
            seen = self.client.job(job_id)
            self.assertEqual(seen["status"], "running")
            problem = self.client.get("/readyz")
            self.say(f"full past round {seen['round']}: {problem.body.decode().strip()}")
            self.assert_problem(self.client.post_job(document), 503)
            detail = wait_until(lambda: self.waits_for_store(job_id), "the detail to say so")
            self.say(detail["waiting"]["text"])
            time.sleep(self.random.uniform(0, 1.5))  # duration of the fault
            seen = wait_until(lambda: self.waits_for_store(job_id), "the detail to say so again")
            if seen["round"] == detail["round"]:
                self.assertEqual(seen["waiting"]["since_ms"], detail["waiting"]["since_ms"])
            if kills:
                self.coordinator.kill()
            self.filler.unlink()
            if kills:
                self.start_coordinator_there(port=self.coordinator.port)
            wait_until(self.is_ready, "the free space to be noticed")
            self.assertGreaterEqual(
                self.client.job(job_id)["round"], seen["round"], "a round was shown but not stored"
            )
        detail = self.check_result(self.coordinator, job_id, document)
        self.assertEqual(len(self.client.get_json("/v1/jobs")["jobs"]), 1)
        self.wait_until_heard(self.client, workers)
        self.assert_ends_well(*workers, self.coordinator)
        # Each update was acknowledged once: the workers' counts equal the coordinator's.
        self.assertEqual(uplink_of_workers(workers), detail["bits"]["uplink"])

    def test_database_moved_away_and_back(self):
        """Nothing is acknowledged that would be stored only in a file without a name."""
        document = job_document(LONG_JOB, horizon=8000)
        self.start_coordinator_there()
        workers = self.start_workers()
        job_id = self.client.submit(document)
        self.wait_for_more(self.client, job_id, self.random.randint(1, 200))
        files = list(self.disk.glob("tally.db*"))
        elsewhere = self.disk / "elsewhere"
        elsewhere.mkdir()
        # The database moves first, since without its log it is not a valid database.
        for file in sorted(files):
            file.rename(elsewhere / file.name)
        seen = wait_until(lambda: self.waits_for_store(job_id), "the detail to say so")
        self.say(seen["waiting"]["text"])
        self.assertFalse(self.is_ready())
        self.assert_problem(self.client.post_job(document), 503)
        time.sleep(self.random.uniform(0, 2))  # duration of the fault
        self.assertEqual(self.client.job(job_id)["round"], seen["round"], "it went on without a file")
        for file in files:
            (elsewhere / file.name).rename(file)
        wait_until(self.is_ready, "the database to be back")
        detail = self.check_result(self.coordinator, job_id, document)
        self.wait_until_heard(self.client, workers)
        self.assert_ends_well(*workers, self.coordinator)
        self.assertEqual(uplink_of_workers(workers), detail["bits"]["uplink"])


if __name__ == "__main__":
    unittest.main()
