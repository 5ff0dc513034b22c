"""A full or read-only disk, and database files that were truncated or have torn pages or flipped bits: errors are
clear, and no result is wrong.

Damage may have these outcomes only: the coordinator refuses to start and names the file; a job fails with a reason
while the others continue; a read is refused; or there is no effect, and every job ends as if undisturbed.
"""

import contextlib
import os
import random
import sqlite3
import subprocess
import time
import unittest
from pathlib import Path

from common import (
    BIN, HANG_S, Client, Process, TallyTestCase, essence, free_port, job_document, simulate,
    uplink_of_workers, wait_until,
)
from databases import (
    CHANGING, COMPLETED, QUEUED, QUEUED_BESIDE, RUNNING, answer_in_part, document_of, flip_bit, kill_amid_changes,
    make_store, query, remove_log,
)
from round_gate import start_gate

N_FLIPS = 24
N_CUTS = 6
N_LOG_FLIPS = 8


class DamageTestCase(TallyTestCase):
    def setUp(self):
        super().setUp()
        self.path = Path(self.folder) / "tally.db"

    def start_any(self, name="damaged"):
        """Starts a coordinator that may refuse to start. Returns it, or None after checking the refusal."""
        port = free_port()
        process = Process(
            self.folder, name,
            [BIN / "tally-coordinator", "--listen", f"127.0.0.1:{port}", "--store", f"sqlite:{self.path}"],
        )
        process.port = port

        def up_or_gone():
            return not process.is_alive() or "event=listening" in process.log()

        wait_until(up_or_gone, "the coordinator to start or to refuse")
        if process.is_alive():
            self.processes.append(process)
            return process
        self.assertEqual(process.popen.returncode, 1, process.log())
        self.assertIn(str(self.path), process.log())
        return None


class FlippedBits(DamageTestCase):
    """Flips bits of a database made by real jobs: one completed, one in the middle of a round, one queued."""

    def setUp(self):
        super().setUp()
        make_store(self.path)
        first = self.start_coordinator()
        client = first.client
        self.whole = {job: essence(client.job(job)) for job in (COMPLETED, RUNNING)}
        self.rounds = client.rounds(COMPLETED)
        self.model = client.get_json(f"/v1/jobs/{COMPLETED}/model")
        answer_in_part(self, first, self.path)
        self.assert_ends_well(first)
        self.file = self.path.read_bytes()
        self.expected = {
            job: essence(simulate(document_of(self.path, job))) for job in (COMPLETED, RUNNING, QUEUED)
        }
        self.seed = int(os.environ.get("TALLY_TEST_SEED", time.time_ns()))
        print(f"\nTALLY_TEST_SEED={self.seed}", flush=True)
        self.random = random.Random(self.seed)

    def check_ended(self, client):
        """Every response about the ended job equals what was stored, or is refused."""
        refused = 0
        for path, known in (("", None), ("/rounds", self.rounds), ("/model", self.model)):
            answer = client.get(f"/v1/jobs/{COMPLETED}{path}")
            if answer.status != 200:
                problem = self.assert_problem(answer, 500)
                self.assertEqual(problem["code"], "data_loss", problem)
                self.assertIn("tally.db", problem["detail"])
                refused += 1
            elif path == "":
                self.assertEqual(essence(answer.json()), self.whole[COMPLETED])
            elif path == "/rounds":
                self.assertEqual(answer.json()["rounds"], known)
            else:
                self.assertEqual(answer.json(), known)
        return refused

    def check_live(self, client, job):
        """The job ends as if undisturbed, fails with a reason, or cannot be read."""

        def look():
            answer = client.get(f"/v1/jobs/{job}")
            if answer.status != 200:
                self.assertEqual(self.assert_problem(answer, 500)["code"], "data_loss")
                return "refused"
            detail = answer.json()
            if detail["status"] in ("queued", "running"):
                return None
            if detail["status"] == "failed":
                self.assertIn("damaged", detail["reason"])
                return "failed"
            self.assertEqual(essence(detail), self.expected[job])
            return "unaffected"

        return wait_until(look, f"job {job} to end")

    def check_damaged(self):
        """Starts once on a damaged file and returns the outcome."""
        coordinator = self.start_any()
        if coordinator is None:
            return "start refused"
        client = Client(coordinator.port)
        worker = Process(self.folder, "worker", [
            BIN / "tally-worker", "--coordinator", f"http://127.0.0.1:{coordinator.port}",
            "--name", "w", "--clients", "8",
        ])
        self.processes.append(worker)
        outcomes = [self.check_live(client, job) for job in (RUNNING, QUEUED)]
        refused = self.check_ended(client) + outcomes.count("refused")
        ready = client.get("/readyz")
        if refused:
            self.assertIn("tally.db", self.assert_problem(ready, 503)["detail"])
        self.assert_ends_well(worker, coordinator)
        return " ".join(outcomes) + (f", {refused} refused" if refused else "")

    def trial(self, what, file, log=None):
        remove_log(self.path)
        self.path.write_bytes(file)
        if log is not None:
            Path(f"{self.path}-wal").write_bytes(log)
        Path(self.folder, "damaged.log").unlink(missing_ok=True)
        with self.subTest(what):
            print(f"{what}: {self.check_damaged()}", flush=True)

    def test_flipped_bits(self):
        for _ in range(N_FLIPS):
            bit = self.random.randrange(8 * len(self.file))
            self.trial(f"bit {bit}", flip_bit(self.file, bit))

    def test_truncated(self):
        for _ in range(N_CUTS):
            n = self.random.randrange(2, len(self.file))
            self.trial(f"cut to {n} bytes", self.file[:n])

    def test_flipped_bits_in_the_log(self):
        """SQLite's log has a checksum per frame: everything after the damage is lost, as after a crash at that
        moment, and the job continues from there."""
        self.path.write_bytes(self.file)
        coordinator = self.start_any()
        worker = Process(self.folder, "first-worker", [
            BIN / "tally-worker", "--coordinator", f"http://127.0.0.1:{coordinator.port}",
            "--name", "w", "--clients", "3",
        ])
        client = Client(coordinator.port)
        wait_until(lambda: client.job(RUNNING)["round"] >= 60, "some rounds", pause_s=0.002)
        coordinator.kill()
        worker.kill()
        file, log = self.path.read_bytes(), Path(f"{self.path}-wal").read_bytes()
        self.assertGreater(len(log), 4096)
        for _ in range(N_LOG_FLIPS):
            bit = self.random.randrange(8 * len(log))
            self.trial(f"log bit {bit} of {8 * len(log)}", file, flip_bit(log, bit))


class DamagedRows(DamageTestCase):
    """Values that were changed without updating their checksum, one table at a time."""

    def setUp(self):
        super().setUp()
        make_store(self.path)
        first = self.start_coordinator()
        answer_in_part(self, first, self.path)
        self.assert_ends_well(first)

    def finish_others(self, coordinator, *jobs):
        worker = self.start_worker(coordinator, "w", clients=8)
        for job in jobs:
            detail = coordinator.client.wait_status(job, "completed")
            self.assertEqual(essence(detail), essence(simulate(document_of(self.path, job))))
        return worker

    def check_job_ends(self, sql, place):
        self.assertEqual(len(query(self.path, sql)), 0)
        coordinator = self.start_coordinator()  # once it is ready, all damage has been handled
        jobs = {job["id"]: job for job in coordinator.client.get_json("/v1/jobs")["jobs"]}
        self.assertEqual(jobs[RUNNING]["status"], "failed")
        self.assertIn(place, jobs[RUNNING]["reason"])
        self.assertEqual(jobs[RUNNING]["name"], "running")
        self.assertEqual(jobs[COMPLETED]["status"], "completed")
        self.finish_others(coordinator, QUEUED)
        return coordinator

    def test_document(self):
        coordinator = self.check_job_ends(
            "UPDATE job_documents SET document = replace(document, '1500', '1501') WHERE job_key = 2",
            "job_documents, job_key 2",
        )
        problem = self.assert_problem(coordinator.client.get(f"/v1/jobs/{RUNNING}"), 500)
        self.assertEqual(problem["code"], "data_loss")
        self.assertIn("job_documents, job_key 2", problem["detail"])
        ready = self.assert_problem(coordinator.client.get("/readyz"), 503)
        self.assertIn("job_documents, job_key 2", ready["detail"])
        self.assertEqual(coordinator.client.get("/healthz").status, 200)

    def test_state(self):
        coordinator = self.check_job_ends(
            "UPDATE job_states SET state = zeroblob(length(state)) WHERE job_key = 2", "job_states"
        )
        self.assertIn("job_states, job_key 2", coordinator.client.job(RUNNING)["reason"])

    def test_update(self):
        [(client,)] = query(self.path, "SELECT max(client) FROM updates WHERE round > 0")
        coordinator = self.check_job_ends(
            "UPDATE updates SET body = CAST(substr(body, 1, length(body) - 1) || x'00' AS BLOB)"
            f" WHERE round > 0 AND client = {client}", "updates",
        )
        self.assertIn(f"updates, job_key 2, round 14, client {client}", coordinator.client.job(RUNNING)["reason"])

    def test_row_that_only_a_write_reads(self):
        """It does not keep the coordinator from loading the job, nor the other jobs from being stored."""
        query(self.path, "UPDATE updates SET body = CAST(body || x'00' AS BLOB) WHERE round = -2 AND job_key = 2")
        coordinator = self.start_coordinator()
        self.finish_others(coordinator, QUEUED)
        jobs = {job["id"]: job for job in coordinator.client.get_json("/v1/jobs")["jobs"]}
        self.assertEqual(jobs[RUNNING]["status"], "failed")
        self.assertIn("updates, job_key 2, round -2", jobs[RUNNING]["reason"])

    def test_round_of_an_ended_job(self):
        query(self.path, "UPDATE rounds SET uplink_payload_bits = uplink_payload_bits + 1"
                         " WHERE job_key = 1 AND round = 5")
        coordinator = self.start_coordinator()
        self.assertEqual(coordinator.client.job(COMPLETED)["status"], "completed")
        problem = self.assert_problem(coordinator.client.get(f"/v1/jobs/{COMPLETED}/rounds"), 500)
        self.assertIn("rounds, job_key 1, round 5", problem["detail"])
        self.assertEqual(coordinator.client.get(f"/v1/jobs/{COMPLETED}/rounds.csv").status, 500)
        ready = self.assert_problem(coordinator.client.get("/readyz"), 503)
        self.assertIn("rounds, job_key 1, round 5", ready["detail"])
        self.finish_others(coordinator, RUNNING, QUEUED)

    def test_job(self):
        for column, value in (("uplink_payload_bits", "1"), ("name", "'another'"), ("status", "'paused'")):
            with self.subTest(column):
                before = self.path.read_bytes()
                query(self.path, f"UPDATE jobs SET {column} = {value} WHERE job_key = 2")
                Path(self.folder, "damaged.log").unlink(missing_ok=True)
                self.assertIsNone(self.start_any())
                log = Path(self.folder, "damaged.log").read_text()
                self.assertIn("jobs, job_key 2", log)
                self.assertIn("tally restore", log)
                self.path.write_bytes(before)

    def test_operators_may_delete(self):
        connection = sqlite3.connect(self.path)
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("DELETE FROM jobs WHERE id = ?", (RUNNING,))
        connection.commit()
        connection.close()
        coordinator = self.start_coordinator()
        self.assertEqual(coordinator.client.get(f"/v1/jobs/{RUNNING}").status, 404)
        self.finish_others(coordinator, QUEUED)


class DamagedChanges(DamageTestCase):
    """Damage to the changes that rounds made to a state since its last full snapshot."""

    def setUp(self):
        super().setUp()
        make_store(self.path, "changes")
        kill_amid_changes(self, self.start_coordinator(), self.path)
        self.rounds = [round for (round,) in query(self.path, "SELECT round FROM job_state_changes ORDER BY round")]

    def check_job_ends(self, sql, reason):
        """Only the damaged job fails; the others continue."""
        query(self.path, sql)
        coordinator = self.start_coordinator()
        detail = coordinator.client.job(CHANGING)
        self.assertEqual(detail["status"], "failed")
        self.assertIn(reason, detail["reason"])
        worker = self.start_worker(coordinator, "w", clients=5)
        detail = coordinator.client.wait_status(QUEUED_BESIDE, "completed")
        self.assertEqual(essence(detail), essence(simulate(document_of(self.path, QUEUED_BESIDE))))
        self.assert_ends_well(worker, coordinator)

    def check(self, word):
        done = subprocess.run(
            [BIN / "tally-coordinator", "--check", "--store", f"sqlite:{self.path}"], stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=HANG_S, check=False,
        )
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn(word, done.stdout)

    def test_changed(self):
        place = f"job_state_changes, job_key 2, round {self.rounds[0]}"
        self.check_job_ends("UPDATE job_state_changes SET change = CAST(substr(change, 1, length(change) - 1) || x'00'"
                            f" AS BLOB) WHERE round = {self.rounds[0]}", place)
        self.check(place)

    def test_under_another_round(self):
        """The row's round is changed; its other columns stay intact."""
        last = self.rounds[-1]
        place = f"job_state_changes, job_key 2, round {last + 1}"
        self.check_job_ends(f"UPDATE job_state_changes SET round = {last + 1} WHERE round = {last}", place)
        self.check(place)

    def test_missing(self):
        """The remaining rows show no damage, but their result differs from the state of the job."""
        self.check_job_ends(f"DELETE FROM job_state_changes WHERE round = {self.rounds[0]}", "stored")

    def test_last_one_missing(self):
        self.check_job_ends(f"DELETE FROM job_state_changes WHERE round = {self.rounds[-1]}", "stored")

    def test_all_missing(self):
        self.check_job_ends("DELETE FROM job_state_changes", "stored")


class Medium(DamageTestCase):
    """A small file system private to the test."""

    def setUp(self):
        super().setUp()
        self.disk = Path(self.folder) / "disk"
        self.disk.mkdir()
        if os.geteuid() != 0:
            self.skipTest("only root can mount a small file system")
        self.holder = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c",
             f"mount -t tmpfs -o size=8m none '{self.disk}' && echo mounted && exec sleep infinity"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        )
        self.addCleanup(self.end_holder)
        if self.holder.stdout.readline() != "mounted\n":
            self.skipTest("a mount namespace is not possible here")
        # The same folder as seen by the processes inside the namespace.
        self.inside = Path(f"/proc/{self.holder.pid}/root{self.disk}")

    def end_holder(self):
        self.holder.kill()
        self.holder.wait(HANG_S)
        self.holder.stdout.close()

    def command(self, *arguments):
        return ["nsenter", "--target", self.holder.pid, "--mount", "--wd=/", *arguments]

    def start_inside(self, port):
        process = Process(self.folder, "coordinator", self.command(
            BIN / "tally-coordinator", "--listen", f"127.0.0.1:{port}",
            "--store", f"sqlite:{self.disk}/tally.db",
        ))
        return process

    def start_ready(self, port):
        coordinator = self.start_inside(port)
        self.processes.append(coordinator)
        coordinator.client = Client(port)
        coordinator.url = f"http://127.0.0.1:{port}"

        def ready():
            self.assertTrue(coordinator.is_alive(), coordinator.log())
            try:
                return coordinator.client.get("/readyz").status == 200
            except OSError:
                return False

        wait_until(ready, "the coordinator to be ready")
        return coordinator

    def fill(self):
        with open(self.inside / "filler", "wb", buffering=0) as filler:
            with contextlib.suppress(OSError):
                while True:
                    filler.write(bytes(4096))

    def free(self):
        (self.inside / "filler").unlink()

    def test_full_disk(self):
        document = job_document("synthetic-ceal-long", horizon=3000)
        expected = simulate(document)
        port = free_port()
        coordinator = self.start_ready(port)
        client = coordinator.client
        gate = start_gate(self, coordinator, last=expected["round"] // 3)
        workers = [self.start_worker(gate, f"w{i}", clients=5) for i in range(2)]
        job_id = client.submit(document)
        wait_until(lambda: client.job(job_id)["round"] >= 30, "some rounds", pause_s=0.002)
        for kill in (False, True):
            self.fill()
            ready = wait_until(
                lambda: (answer := client.get("/readyz")).status == 503 and answer, "/readyz red"
            )
            self.assertIn("tally.db", self.assert_problem(ready, 503)["detail"])
            self.assertEqual(client.get("/healthz").status, 200)
            stuck = client.job(job_id)["round"]
            gate.let_pass(expected["round"] * 2 // 3)
            refused = client.post_job(document)
            self.assertEqual(refused.status, 503, refused)
            self.assertIn("store", refused.json()["detail"])
            self.assertEqual(client.job(job_id)["round"], stuck, "reads still work")
            if kill:
                coordinator.kill()
            self.free()
            if kill:
                coordinator = self.start_ready(port)
                client = coordinator.client
            wait_until(lambda: client.get("/readyz").status == 200, "/readyz green again")
            wait_until(lambda: client.job(job_id)["round"] > stuck, "the job to go on")
        gate.open()
        detail = client.wait_status(job_id, "completed")
        self.assertEqual(essence(detail), essence(expected))
        self.assertEqual(len(client.get_json("/v1/jobs")["jobs"]), 1, "what was refused is not there")
        self.assert_ends_well(*workers)
        # A commit that failed because of the full disk may still be found after the kill. If it closed a round, the
        # worker is told that the round is over and does not count its update: at most one per client.
        unheard = detail["bits"]["uplink"]["messages"] - uplink_of_workers(workers)["messages"]
        self.assertIn(unheard, range(document["clients"] + 1))

    def test_start_on_a_full_disk(self):
        self.fill()
        refused = self.start_inside(free_port())
        self.assertEqual(refused.wait(), 1)
        self.assertIn(f"{self.disk}/tally.db", refused.log())
        self.assertIn("full", refused.log())

    def test_start_on_a_read_only_disk(self):
        subprocess.run([str(word) for word in self.command("mount", "-o", "remount,ro", self.disk)], check=True)
        refused = self.start_inside(free_port())
        self.assertEqual(refused.wait(), 1)
        self.assertIn(f"{self.disk}/tally.db", refused.log())


if __name__ == "__main__":
    unittest.main()
