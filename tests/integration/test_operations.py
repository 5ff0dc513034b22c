"""What an operator does: check, back up, restore and stop."""

import concurrent.futures
import contextlib
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from common import (
    BIN, HANG_S, ForeignWorker, Process, TallyTestCase, cpu_seconds, essence, job_document, simulate,
    uplink_of_workers, wait_until,
)
from databases import (
    COMPLETED, LONG, QUEUED, RUNNING, SCHEMA_VERSION, add_long_job, answer_in_part, make_store, query, schema_version,
)
from round_gate import start_gate


class OperationsTestCase(TallyTestCase):
    def setUp(self):
        super().setUp()
        self.path = Path(self.folder) / "tally.db"
        self.uri = f"sqlite:{self.path}"

    def run_program(self, program, *arguments):
        return subprocess.run(
            [BIN / program, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=HANG_S, check=False, cwd=self.folder,
        )

    def tally(self, *arguments, status=0):
        done = self.run_program("tally", *arguments)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def check(self, status, *words, store=None):
        done = self.run_program("tally-coordinator", "--check", "--store", store or self.uri)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        for word in words:
            self.assertIn(word, done.stdout)
        return done.stdout


class OtherVersions(OperationsTestCase):
    """Databases of other schema versions are refused, and not a byte of them changes."""

    def make_version(self, version):
        """Makes a copy of a store, and a database whose log holds a part of it, as after a crash."""
        make_store(Path(self.folder, "other.db"))
        query(Path(self.folder, "other.db"), f"PRAGMA user_version = {version}")
        with tempfile.TemporaryDirectory() as folder:
            first = Path(folder, "first.db")
            make_store(first)
            query(first, "PRAGMA journal_mode = WAL")
            with contextlib.closing(sqlite3.connect(first)) as database:
                database.execute(f"PRAGMA user_version = {version}")
                for suffix in ("", "-wal"):
                    shutil.copy(f"{first}{suffix}", f"{self.path}{suffix}")

    def check_refused(self, version, *words):
        self.make_version(version)
        before = {name: Path(self.folder, name).read_bytes() for name in os.listdir(self.folder)}
        self.assertEqual(set(before), {"other.db", "tally.db", "tally.db-wal"})
        for program, *arguments in (("tally-coordinator", "--listen", "127.0.0.1:0", "--store", self.uri),
                                    ("tally-coordinator", "--check", "--store", self.uri),
                                    ("tally", "doctor", "--store", self.uri),
                                    ("tally", "backup", "--store", self.uri, "copy.db"),
                                    ("tally", "restore", "--store", "sqlite:new.db", "other.db")):
            with self.subTest((program, *arguments)):
                refused = self.run_program(program, *arguments)
                self.assertEqual(refused.returncode, 1, refused.stdout + refused.stderr)
                for word in (f"schema version {version}", *words):
                    self.assertIn(word, refused.stdout + refused.stderr)
                self.assertNotIn("restore a backup", refused.stdout + refused.stderr)
        after = {name: Path(self.folder, name).read_bytes() for name in os.listdir(self.folder) if name != "tally.db-shm"}
        self.assertEqual(after, before)

    def test_a_change_of_the_tables_needs_a_new_version(self):
        """The tables are those of the databases that an earlier program of this version has made."""
        self.assert_ends_well(self.start_coordinator())
        before = Path(self.folder, "before.db")
        make_store(before)
        tables = [query(path, "SELECT name, sql FROM sqlite_schema ORDER BY name") for path in (self.path, before)]
        self.assertEqual(*tables)
        self.assertEqual([schema_version(path) for path in (self.path, before)], [SCHEMA_VERSION] * 2)

    def test_older(self):
        self.check_refused(7, "the last release that reads it is Tally 0.15.0")

    def test_newer(self):
        self.check_refused(SCHEMA_VERSION + 1, f"newer than {SCHEMA_VERSION}", "install the release")


class Check(OperationsTestCase):
    def test_beside_a_running_coordinator(self):
        coordinator = self.start_coordinator()
        document = job_document("synthetic-ceal-long", horizon=1500)
        worker = self.start_worker(coordinator, "w", clients=10)
        job_id = coordinator.client.submit(document)
        wait_until(lambda: coordinator.client.job(job_id)["round"] > 20, "some rounds", pause_s=0.002)
        n_running = 0
        for _ in range(5):
            report = self.check(0, f"schema version {SCHEMA_VERSION}")
            n_running += f"job {job_id} (running)" in report
        self.assertGreater(n_running, 0)
        detail = coordinator.client.wait_status(job_id, "completed")
        self.assertEqual(essence(detail), essence(simulate(document)))
        self.assert_ends_well(worker, coordinator)
        self.assertEqual(sorted(os.listdir(self.folder)), ["coordinator.log", "tally.db", "worker-w.log"])

    def test_live_jobs_are_loaded(self):
        make_store(self.path)
        coordinator = self.start_coordinator()
        answer_in_part(self, coordinator, self.path)
        self.assert_ends_well(coordinator)
        self.check(0, f"job {RUNNING} (running): round 13, 2 updates of the open one",
                   f"job {QUEUED} (queued)")

    def test_damage_is_named(self):
        make_store(self.path)
        query(self.path, "DELETE FROM rounds WHERE job_key = 1 AND round = 7")
        self.check(1, f"job {COMPLETED} (completed): the record of round 7 is missing")
        query(self.path, "UPDATE rounds SET norm = 1.0 WHERE round IN (9, 10) AND job_key = 1")
        self.check(1, "rounds, job_key 1, round 9", "damaged rows in all: 2")
        self.path.write_bytes(self.path.read_bytes()[:-1])
        self.check(1, "tally.db", "truncated")

    def test_missing_database(self):
        self.check(0, "does not exist yet")
        self.assertFalse(self.path.exists())
        self.check(1, "folder is not writable", store=f"sqlite:{self.folder}/no/where.db")
        self.check(0, "memory:", store="memory:")

    def test_options_are_checked(self):
        done = self.run_program("tally-coordinator", "--check", "--max-jobs", "0")
        self.assertEqual(done.returncode, 2)
        done = self.run_program("tally-coordinator", "--check", "--admin-token-file", "/nonexistent")
        self.assertEqual(done.returncode, 2)
        self.assertIn("/nonexistent", done.stderr)


class Backup(OperationsTestCase):
    def test_under_load(self):
        """Every copy is consistent: a job that continues from it has the same result."""
        coordinator = self.start_coordinator()
        document = job_document("synthetic-ceal-long", horizon=3000)
        expected = essence(simulate(document))
        gate = start_gate(self, coordinator)
        worker = self.start_worker(gate, "w", clients=10)
        job_id = coordinator.client.submit(document)
        rounds = []
        for i in range(4):
            gate.let_pass(expected["round"] * (i + 1) // 5)
            coordinator.client.wait_round(job_id, expected["round"] * i // 5 + 20)
            before = coordinator.client.job(job_id)
            self.assertEqual(before["status"], "running")
            self.tally("backup", "--store", self.uri, f"copy{i}.db")
            after = coordinator.client.job(job_id)["round"]
            [(copied,)] = query(Path(self.folder, f"copy{i}.db"), "SELECT round FROM jobs")
            self.assertLessEqual(before["round"], copied)
            self.assertLessEqual(copied, after)
            rounds.append(copied)
        gate.open()
        self.assertEqual(essence(coordinator.client.wait_status(job_id, "completed")), expected)
        self.assert_ends_well(worker, coordinator)
        print(f"backed up at rounds {rounds} of {expected['round']}", flush=True)
        for i in range(4):
            target = Path(self.folder, f"restored{i}.db")
            self.tally("restore", "--store", f"sqlite:{target}", f"copy{i}.db")
            again = self.start_coordinator(store=f"sqlite:{target}", name=f"again{i}")
            self.assertGreaterEqual(again.client.job(job_id)["round"], rounds[i])
            worker = self.start_worker(again, f"again{i}", clients=10)
            self.assertEqual(essence(again.client.wait_status(job_id, "completed")), expected)
            self.assert_ends_well(worker, again)

    def make_store(self):
        make_store(self.path)

    def test_copy_is_one_file_and_nothing_else_is_left(self):
        self.make_store()
        before = set(os.listdir(self.folder))
        os.chmod(self.path, 0o640)
        self.tally("backup", "--store", self.uri, "copy.db")
        self.assertEqual(set(os.listdir(self.folder)) - before, {"copy.db"})
        self.assertEqual(os.stat(Path(self.folder, "copy.db")).st_mode & 0o777, 0o640)

    def test_two_at_once_do_not_disturb_each_other(self):
        """At least one backup succeeds, and its copy is complete. Another one either succeeds later or is refused
        because a file is in use."""
        self.make_store()
        copying = [Process(self.folder, f"backup{i}", [
            BIN / "tally", "backup", "--store", self.uri, "copy.db", "--force"]) for i in range(8)]
        statuses = [process.wait() for process in copying]
        self.assertIn(0, statuses)
        for process, status in zip(copying, statuses):
            if status != 0:
                self.assertIn("in use by another process", process.log())
        self.check(0, store=f"sqlite:{self.folder}/copy.db")
        self.assertEqual([name for name in os.listdir(self.folder) if ".tmp" in name], [])

    def test_no_copy_replaces_a_database_in_use(self):
        coordinator = self.start_coordinator()
        job = coordinator.client.submit(job_document())
        for source in (self.uri, "sqlite:other.db"):
            if source != self.uri:
                self.tally("backup", "--store", self.uri, "other.db")
            said = self.tally("backup", "--store", source, self.path, "--force", status=1)
            self.assertIn(f"process {coordinator.pid} holds", said)
        self.assertEqual(coordinator.client.get("/readyz").status, 200)
        self.assertEqual(coordinator.client.job(job)["status"], "queued")

    def test_nothing_is_overwritten_unasked(self):
        self.make_store()
        copy = Path(self.folder, "copy.db")
        copy.write_text("precious")
        said = self.tally("backup", "--store", self.uri, copy, status=1)
        self.assertIn("--force", said)
        self.assertEqual(copy.read_text(), "precious")
        self.tally("backup", "--store", self.uri, copy, "--force")
        self.assertEqual(schema_version(copy), SCHEMA_VERSION)
        before = self.path.read_bytes()
        said = self.tally("restore", "--store", self.uri, copy, status=1)
        self.assertIn("--force", said)
        self.assertEqual(self.path.read_bytes(), before)

    def test_running_coordinator_is_not_replaced(self):
        coordinator = self.start_coordinator()
        self.tally("backup", "--store", self.uri, "copy.db")
        said = self.tally("restore", "--store", self.uri, "copy.db", "--force", status=1)
        self.assertIn(f"process {coordinator.pid}", said)
        coordinator.client.submit(job_document())
        self.assertEqual(coordinator.client.get("/readyz").status, 200)

    def test_restore_goes_back(self):
        coordinator = self.start_coordinator()
        first = coordinator.client.submit(job_document())
        self.tally("backup", "--store", self.uri, "copy.db")
        second = coordinator.client.submit(job_document())
        coordinator.kill()  # leaves the old log, which must not be applied to the copy
        self.assertTrue(Path(f"{self.path}-wal").exists())
        self.tally("restore", "--store", self.uri, "copy.db", "--force")
        self.assertFalse(Path(f"{self.path}-wal").exists())
        again = self.start_coordinator()
        self.assertEqual(again.client.job(first)["status"], "queued")
        self.assertEqual(again.client.get(f"/v1/jobs/{second}").status, 404)

    def test_damaged_copy_is_not_restored(self):
        self.make_store()
        self.tally("backup", "--store", self.uri, "copy.db")
        copy = Path(self.folder, "copy.db")
        whole = copy.read_bytes()
        before = self.path.read_bytes()
        query(copy, "UPDATE job_states SET state = x'00' WHERE job_key = 2")
        changed = copy.read_bytes()
        for damaged in (changed, whole[: len(whole) // 2], whole[:-1], b"no database at all, but text" * 100, b""):
            copy.write_bytes(damaged)
            said = self.tally("restore", "--store", self.uri, copy, "--force", status=1)
            self.assertIn("copy.db", said)
            self.assertEqual(self.path.read_bytes(), before)
            self.assertFalse(Path(f"{self.path}.tmp").exists())

    def test_damaged_store_is_not_backed_up(self):
        self.make_store()
        query(self.path, "UPDATE job_states SET state = x'00' WHERE job_key = 2")
        said = self.tally("backup", "--store", self.uri, "copy.db", status=1)
        self.assertIn("job_states, job_key 2", said)
        self.assertEqual(list(Path(self.folder).glob("copy*")), [])

    def test_no_store(self):
        said = self.tally("backup", "--store", self.uri, "copy.db", status=1)
        self.assertIn("there is no database", said)
        self.assertFalse(self.path.exists())
        self.tally("backup", "--store", "memory:", "copy.db", status=2)
        self.tally("backup", status=2)


class OneOwner(OperationsTestCase):
    """Two coordinators never serve the same file, whatever happens to its lock file and under whatever name."""

    def refuse_second(self, path, words):
        done = self.run_program("tally-coordinator", "--store", f"sqlite:{path}", "--listen", "127.0.0.1:0")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(words, done.stderr)

    def refuse_reading(self, link):
        """A database read without its log may lack acknowledged jobs, so reading it is refused."""
        said = self.tally("backup", "--store", f"sqlite:{link}", "old.db", status=1)
        self.assertIn("2 names (hard links)", said)
        done = self.run_program("tally-coordinator", "--check", "--store", f"sqlite:{link}")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("2 names (hard links)", done.stdout + done.stderr)
        self.assertFalse(Path(f"{link}-wal").exists())

    def look(self, n_jobs):
        """Checks that commands which only read work while the coordinator runs."""
        copy = Path(self.folder, f"copy-{n_jobs}.db")
        self.tally("backup", "--store", self.uri, copy)
        self.assertEqual(query(copy, "SELECT count(*) FROM jobs"), [(n_jobs,)])
        self.assertEqual(self.run_program("tally-coordinator", "--check", "--store", self.uri).returncode, 0)

    def test_hard_link(self):
        first = self.start_coordinator(store=self.uri)
        first.client.submit(job_document())
        link = Path(self.folder, "link.db")
        os.link(self.path, link)
        self.refuse_second(link, "in use by another process")
        self.look(1)
        self.refuse_reading(link)
        first.client.submit(job_document())
        first.terminate()
        self.refuse_second(link, "2 names (hard links)")
        self.refuse_reading(link)
        link.unlink()
        self.tally("backup", "--store", self.uri, "copy.db")
        os.link(Path(self.folder, "copy.db"), link)  # a copy has no log, so several names are allowed
        self.tally("restore", "--store", f"sqlite:{self.folder}/other.db", link)
        self.assertEqual(len(self.start_coordinator(store=self.uri).client.get_json("/v1/jobs")["jobs"]), 2)

    def test_removed_lock(self):
        first = self.start_coordinator(store=self.uri)
        first.client.submit(job_document())
        lock = Path(f"{self.path}-lock")
        lock.unlink()
        self.refuse_second(self.path, "in use by another process")
        answer = first.client.post_job(job_document())
        self.assertEqual(answer.status, 503)
        self.assertIn("lock file", answer.json()["detail"])
        self.assertEqual(first.client.get("/readyz").status, 503)
        self.look(1)
        said = self.tally("restore", "--store", self.uri, "copy-1.db", "--force", status=1)
        self.assertIn("in use by another process", said)
        first.terminate()
        self.assertEqual(len(self.start_coordinator(store=self.uri).client.get_json("/v1/jobs")["jobs"]), 1)


class Doctor(OperationsTestCase):
    def findings(self, *arguments, status):
        return {found["check"]: found for found in
                json.loads(self.tally("doctor", "--json", *arguments, status=status))}

    def test_sound_set_up(self):
        coordinator = self.start_coordinator()
        self.start_worker(coordinator, "w", clients=2)
        wait_until(lambda: coordinator.client.get_json("/v1/workers")["workers"], "the worker")
        arguments = ("--coordinator", coordinator.url, "--store", self.uri)
        found = self.findings(*arguments, status=0)
        self.assertEqual({name: each["text"] for name, each in found.items() if each["level"] == "fail"}, {})
        for name in ("coordinator", "ready", "version", "clock", "token", "workers", "store"):
            self.assertEqual(found[name]["level"], "ok", found[name])
        self.assertIn(f"process {coordinator.pid}", found["store in use"]["text"])
        text = self.tally("doctor", *arguments)
        self.assertIn("ok    coordinator", text)

    def test_what_is_wrong_is_told_apart(self):
        token = Path(self.folder, "token")
        token.write_text("right" * 4 + "\n")
        wrong = Path(self.folder, "wrong")
        wrong.write_text("wrong" * 4 + "\n")
        make_store(self.path)
        coordinator = self.start_coordinator(options=("--admin-token-file", str(token)))
        url = ("--coordinator", coordinator.url)
        self.assertIn("requires a token", self.findings(*url, status=1)["token"]["text"])
        self.assertIn("does not accept", self.findings(*url, "--token-file", wrong, status=1)["token"]["text"])
        found = self.findings(*url, "--token-file", token, status=1)
        self.assertEqual(found["token"]["level"], "ok")
        self.assertIn("no worker has joined, 1 jobs are queued", found["workers"]["text"])
        query(self.path, "UPDATE rounds SET norm = 1.0 WHERE job_key = 1 AND round = 3")
        found = self.findings(*url, "--token-file", token, "--store", self.uri, status=1)
        self.assertIn("rounds, job_key 1, round 3", found["store"]["text"])
        coordinator.terminate()
        found = self.findings(*url, status=1)
        self.assertIn("nothing", found["coordinator"]["advice"])
        found = self.findings("--coordinator", "http://name.invalid", status=1)
        self.assertIn("DNS", found["coordinator"]["advice"])


class Stop(OperationsTestCase):
    """SIGTERM: requests in progress are answered, and the process ends within a few seconds even though the timeouts
    that could end its connections are hours long."""

    LIMIT_S = 100  # two seconds of draining, on a machine that may be busy
    PATIENT = ("--request-timeout-s", "3600", "--idle-timeout-s", "3600")

    def stop(self, coordinator):
        began = time.monotonic()
        self.assertEqual(coordinator.terminate(), 0, coordinator.log()[-2000:])
        took = time.monotonic() - began
        self.assertLess(took, self.LIMIT_S)
        return took

    def connect(self, coordinator):
        return socket.create_connection(("127.0.0.1", coordinator.port), timeout=HANG_S)

    def test_with_a_thousand_open_connections(self):
        coordinator = self.start_coordinator(options=self.PATIENT)
        with contextlib.ExitStack() as stack:
            for i in range(1000):
                connection = stack.enter_context(self.connect(coordinator))
                if i % 2 == 0:  # the others send nothing
                    connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    self.assertTrue(connection.recv(1000).startswith(b"HTTP/1.1 200"))
            self.stop(coordinator)

    def test_with_half_a_request_and_readers_that_read_nothing(self):
        make_store(self.path)
        coordinator = self.start_coordinator(options=self.PATIENT)
        with contextlib.ExitStack() as stack:
            for _ in range(100):
                half = stack.enter_context(self.connect(coordinator))
                half.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
                reader = stack.enter_context(self.connect(coordinator))
                for _ in range(50):
                    reader.sendall(f"GET /v1/jobs/{COMPLETED}/rounds HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                stream = stack.enter_context(self.connect(coordinator))
                stream.sendall(f"GET /v1/jobs/{RUNNING}/events?after=0 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            wait_until(lambda: coordinator.client.get("/healthz").status == 200, "an answer")
            self.stop(coordinator)

    DRAIN_S = 2  # how long a coordinator drains responses in progress

    def test_readers_get_the_rest(self):
        """A response larger than the kernel's buffers is read slowly across a stop, and all of it arrives. The end may
        be missing only if draining took as long as it may; then the machine was too slow, and the test tries again."""
        make_store(self.path)
        add_long_job(self.path, 100000)
        coordinator = self.start_coordinator()
        path = f"/v1/jobs/{LONG}/rounds.csv"
        whole = coordinator.client.get(path).body
        self.assertGreater(len(whole), 8000000, "more than the kernel takes")
        until = time.monotonic() + HANG_S
        got, took = self.read_across_a_stop(coordinator, path)
        while not got.endswith(whole) and took >= self.DRAIN_S and time.monotonic() < until:
            coordinator = self.start_coordinator(port=coordinator.port)
            got, took = self.read_across_a_stop(coordinator, path)
        self.assertTrue(got.endswith(whole), f"{len(got)} bytes of {len(whole)} and a head after {took:.2f} s")

    def read_across_a_stop(self, coordinator, path):
        """Stops the coordinator while a slow reader is in the middle of a response. Returns what the reader receives,
        and the seconds from the signal to the coordinator's exit."""
        with socket.socket() as reader:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            reader.connect(("127.0.0.1", coordinator.port))
            reader.settimeout(HANG_S)
            reader.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            got = reader.recv(100)  # the response has begun, and the kernel's buffers are full
            coordinator.popen.send_signal(signal.SIGTERM)
            began = time.monotonic()
            time.sleep(0.25)  # longer than the silence that ends draining, much shorter than draining may last
            pieces = [got]
            with contextlib.suppress(ConnectionResetError):
                while piece := reader.recv(1 << 20):
                    pieces.append(piece)
            self.assertEqual(coordinator.wait(), 0)
            return b"".join(pieces), time.monotonic() - began

    def test_while_f_star_is_solved(self):
        coordinator = self.start_coordinator()
        document = job_document(clients=2, quorum=2, objective__data__dim=3000,
                                objective__data__points=20000)
        job_id = coordinator.client.submit(document)
        wait_until(lambda: cpu_seconds(coordinator) > 0.2, "the solve to have begun; it takes many seconds")
        self.assertEqual(coordinator.client.job(job_id)["waiting"]["for"], "reference")
        self.stop(coordinator)

    def test_cancelled_job_is_not_solved(self):
        """A single thread computes all f(x*), so one that is no longer needed must not delay the others."""
        coordinator = self.start_coordinator()
        long = job_document(clients=2, quorum=2, objective__data__dim=500,
                            objective__data__points=4000)
        self.start_worker(coordinator, "w", clients=10)
        began = time.monotonic()
        coordinator.client.wait_status(coordinator.client.submit(long), "completed")
        one = time.monotonic() - began
        first = coordinator.client.submit(long)
        ids = [coordinator.client.submit(long) for _ in range(60)]
        for job_id in ids:
            self.assertEqual(coordinator.client.post(f"/v1/jobs/{job_id}/cancel").status, 200)
        document = job_document()
        wanted = coordinator.client.submit(document)
        began = time.monotonic()
        detail = coordinator.client.wait_status(wanted, "completed")
        waited = time.monotonic() - began
        self.assertEqual(essence(detail), essence(simulate(document)))
        solved_first = coordinator.client.wait_status(first, "completed")
        self.assertIsNotNone(solved_first["f_star"])
        print(f"waited {waited:.1f} s behind one solve of {one:.1f} s and 60 cancelled ones", flush=True)
        self.assertLess(waited, 20 * one)
        ended = [coordinator.client.job(job_id)["status"] for job_id in ids]
        self.assertEqual(set(ended), {"cancelled"})

    def test_updates_in_flight(self):
        """Each update is either acknowledged and stored or not acknowledged, so in the end the counters agree."""
        coordinator = self.start_coordinator()
        document = job_document("synthetic-ceal-long", horizon=2500)
        expected = simulate(document)
        gate = start_gate(self, coordinator)
        workers = [self.start_worker(gate, f"w{i}", clients=5) for i in range(2)]
        job_id = coordinator.client.submit(document)
        for i in range(5):
            gate.let_pass(expected["round"] * (i + 1) // 6)
            coordinator.client.wait_round(job_id, expected["round"] * i // 6 + 30)
            self.stop(coordinator)
            coordinator = self.start_coordinator(port=coordinator.port, store=coordinator.store)
        gate.open()
        detail = coordinator.client.wait_status(job_id, "completed")
        self.assertEqual(essence(detail), essence(expected))
        self.wait_until_heard(coordinator.client, workers)
        self.assert_ends_well(*workers)
        self.assertEqual(uplink_of_workers(workers), detail["bits"]["uplink"])

    def test_of_a_worker_that_has_hardly_begun(self):
        """The test sends the signal only after the handler is installed; before that, it would kill any program."""
        coordinator = self.start_coordinator()
        slow = self.start_worker(coordinator, "slow", launcher=("sh", "-c", 'sleep 0.2; exec "$@"', "-"))
        self.assert_ends_well(slow)
        self.start_worker(coordinator, "left to the end", launcher=("sh", "-c", 'sleep 0.2; exec "$@"', "-"))

    def states(self, coordinator):
        return [worker["state"] for worker in coordinator.client.get_json("/v1/workers")["workers"]]

    def test_who_has_polled_for_long_is_not_silent_when_refused(self):
        """A poll may wait for longer than a worker may be silent. When draining ends such a poll, its worker does not
        count as silent, even though it does not come back."""
        timeout_s = 10  # longer than draining lasts
        coordinator = self.start_coordinator(options=("--session-timeout-ms", 1000 * timeout_s))
        job_id = coordinator.client.submit(job_document(clients=2, quorum=2))
        posting, other = (ForeignWorker(coordinator.client, name) for name in ("posting", "other"))
        task, _ = posting.poll_task(), other.poll_task()
        update = posting.update(task, task.clients[0])
        update.poll.wait_ms = 30000
        update.poll.cursors.add(job_id=job_id, iterate=task.iterate)
        idle = ForeignWorker(coordinator.client, "idle")
        with concurrent.futures.ThreadPoolExecutor() as threads, self.connect(coordinator) as half:
            posted, polled = threads.submit(posting.post, update), threads.submit(idle.poll, 30000)
            wait_until(lambda: self.states(coordinator).count("waiting") == 2, "both to wait")
            enough_s = time.monotonic() + timeout_s + 0.2
            while time.monotonic() < enough_s:
                other.poll_task()  # the worker is alive, so the round keeps waiting for it
                time.sleep(0.1)
            half.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
            wait_until(lambda: coordinator.client.get("/healthz").status == 200, "an answer")
            self.stop(coordinator)  # draining lasts as long as it may, since half a request is pending
            self.assertFalse(posted.result(HANG_S).HasField("next"))
            self.assert_connect_error("unavailable", polled.result, HANG_S)
        self.assertNotIn("silent", coordinator.log())

    def test_second_signal_ends_at_once(self):
        for number, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
            coordinator = self.start_coordinator(name=f"signal{number}")
            with self.connect(coordinator) as half:
                half.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
                wait_until(lambda: coordinator.client.get("/healthz").status == 200, "an answer")
                coordinator.popen.send_signal(number)
                wait_until(lambda: "event=stopping" in coordinator.log(), "draining", pause_s=0.001)
                coordinator.popen.send_signal(number)
                self.assertEqual(coordinator.wait(), status)


if __name__ == "__main__":
    unittest.main()
