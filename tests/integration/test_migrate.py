"""tally migrate: copies a SQLite store into PostgreSQL; if it is interrupted, the target is either empty or complete."""

import contextlib
import hashlib
import json
import random
import signal
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path

from common import (
    BIN, ENDLESS, HANG_S, REPO, Process, TallyTestCase, essence, free_port, job_document, simulate, wait_until,
)
from databases import (
    CHANGING, LONG, QUEUED_BESIDE, SCHEMA_VERSION, add_long_job, answer_in_part, document_of, edited_database,
    kill_amid_changes, make_store, query,
)
from round_gate import start_gate

sys.path.insert(0, str(REPO / "tests/postgres"))

from postgres import Cluster  # noqa: E402

TABLES = ("jobs", "job_documents", "job_states", "updates", "rounds", "models")
N_LONG_ROUNDS = 60000
CLUSTER = None


def setUpModule():
    global CLUSTER
    CLUSTER = Cluster()


def tearDownModule():
    CLUSTER.close()


class MigrateTestCase(TallyTestCase):
    def setUp(self):
        super().setUp()
        self.path = Path(self.folder) / "tally.db"
        self.uri = f"sqlite:{self.path}"
        self.target = CLUSTER.new_database()

    def run_migrate(self, *arguments):
        return subprocess.run(
            [BIN / "tally", "migrate", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=HANG_S, check=False, cwd=self.folder,
        )

    def migrate(self, status=0, *words):
        """Runs `tally migrate --json`; returns its output, or None if it printed none."""
        done = self.run_migrate("--json", self.uri, self.target.uri)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)
        return json.loads(done.stdout) if done.stdout else None

    def assert_same(self, answer, outcome):
        self.assertEqual(answer["outcome"], outcome)
        self.assertEqual([table["table"] for table in answer["tables"]], list(TABLES))
        for table in answer["tables"]:
            self.assertEqual(table["source"], table["target"])
            self.assertRegex(table["source"]["checksum"], "^[0-9a-f]{16}$")

    def start_on_target(self, **options):
        return self.start_coordinator(store=self.target.uri, name=f"on-target-{free_port()}", **options)

    def assert_not_served(self, *words):
        """No coordinator accepts the store."""
        done = subprocess.run(
            [BIN / "tally-coordinator", "--listen", f"127.0.0.1:{free_port()}", "--store", self.target.uri],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=HANG_S, check=False,
        )
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        for word in words:
            self.assertIn(word, done.stdout + done.stderr)

    def source_bytes(self):
        """Returns digests of the database and its log, without the -shm file and the lock file, which readers
        change."""
        return {name: hashlib.sha256(Path(f"{self.path}{name}").read_bytes()).hexdigest()
                for name in ("", "-wal") if Path(f"{self.path}{name}").exists()}

    def make_short_store(self):
        """Makes a store of three jobs, one of them with two updates in its open round."""
        make_store(self.path)
        coordinator = self.start_coordinator()
        answer_in_part(self, coordinator, self.path)
        self.assert_ends_well(coordinator)

    def make_long_store(self, n_rounds=N_LONG_ROUNDS):
        """Makes a store of four jobs, one of which has many rounds."""
        make_store(self.path)
        add_long_job(self.path, n_rounds)


def small(**changes):
    return job_document(**{"clients": 3, "quorum": 3, "horizon": 300, **changes})


def is_stopped(pid):
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] == "T"


class Jobs(MigrateTestCase):
    """The store of a coordinator that was killed in the middle of a round, with a job in every status."""

    def wait_open_round(self, client, job_id, closed, updates):
        """Waits until so many rounds have closed and so many updates of the next one are stored."""
        wait_until(lambda: client.job(job_id)["round"] == closed, f"round {closed}")
        wait_until(lambda: query(self.path, "SELECT count(*) FROM updates JOIN jobs USING (job_key)"
                                            " WHERE id = ? AND updates.round > 0", job_id) == [(updates,)],
                   f"{updates} updates of the next round")

    def make_store(self):
        coordinator = self.start_coordinator()
        client = coordinator.client
        self.documents = {
            "completed": small(seed=1, keep={"best": "loss", "every": 2}),
            "failed": small(seed=2, job_deadline_ms=1),
            "cancelled": small(seed=3),
            "paused": job_document("synthetic-ceal-long", clients=3, quorum=3, horizon=2000, seed=4),
            "running": job_document("synthetic-ceal-long", clients=3, quorum=3, horizon=2000, seed=5),
            "queued": small(seed=6, clients=8, quorum=8),
        }
        self.ids = {}

        def submit(status):
            answer = client.post_job(self.documents[status], {"Idempotency-Key": f"key of {status}"})
            self.assertEqual(answer.status, 201, answer)
            self.ids[status] = answer.json()["id"]
            return self.ids[status]

        client.wait_status(submit("failed"), "failed")
        self.assertEqual(client.post(f"/v1/jobs/{submit('cancelled')}/cancel").status, 200)
        gate = start_gate(self, coordinator, last=ENDLESS)
        self.start_worker(gate, "three", clients=3)
        client.wait_status(submit("completed"), "completed")
        gate.let_pass(20)
        job = submit("paused")
        client.wait_round(job, 5)
        client.post(f"/v1/jobs/{job}/pause")
        client.wait_status(job, "paused")  # a paused job keeps its clients
        gate.open()
        wait_until(lambda: client.get_json("/v1/workers")["workers"][0]["state"] == "waiting",
                   "the open round's last answers")
        gate = start_gate(self, coordinator, last=20)
        self.start_worker(gate, "two", clients=2)
        last = self.start_worker(coordinator, "one", clients=1)
        running = submit("running")
        submit("queued")
        self.wait_open_round(client, running, 20, 1)
        last.popen.send_signal(signal.SIGSTOP)  # it has answered; the updates of the other two are held
        wait_until(lambda: is_stopped(last.pid), "the worker to stand still")
        gate.open()
        self.wait_open_round(client, running, 21, 2)
        coordinator.kill()
        for worker in self.processes[1:]:
            worker.kill()
        self.processes.clear()

    def look(self, client):
        """Returns everything that REST shows of each job, including its rounds."""
        details = {status: client.job(job) for status, job in self.ids.items()}
        rounds = {status: client.rounds(job) for status, job in self.ids.items()}
        job = self.ids["completed"]
        models = client.get_json(f"/v1/jobs/{job}/models")["models"]
        self.assertGreater(len(models), 2)
        rounds["models"] = [(each, client.get_json(f"/v1/jobs/{job}/model?which={each['which']}")) for each in models]
        return details, rounds

    def test_jobs_go_on_from_where_they_were(self):
        self.make_store()
        before = self.source_bytes()
        self.assertGreater(Path(f"{self.path}-wal").stat().st_size, 0, "the log holds what the file lacks")
        answer = self.migrate()
        self.assert_same(answer, "migrated")
        rows = {table["table"]: table["source"]["rows"] for table in answer["tables"]}
        [(of_traffic,)] = self.target.rows("SELECT count(*) FROM updates WHERE round < 0")
        self.assertEqual((rows["jobs"], rows["job_documents"], rows["updates"]), (6, 6, 2 + int(of_traffic)))
        self.assertEqual(answer["copied_rows"], sum(rows.values()))
        self.assertEqual(self.source_bytes(), before)

        elsewhere = self.start_coordinator(name="on-source")  # the source itself can still be served
        details, rounds = self.look(elsewhere.client)
        self.assert_ends_well(elsewhere)
        coordinator = self.start_on_target()
        client = coordinator.client
        moved_details, moved_rounds = self.look(client)
        self.assertEqual(moved_rounds, rounds)
        for status in self.ids:
            for key in ("id", "status", "round", "x_checksum", "bits", "created_ms", "reason"):
                self.assertEqual(moved_details[status][key], details[status][key], (status, key))
            self.check_idempotency(client, status)
        listed = client.get_json("/v1/jobs")["jobs"]
        self.assertEqual([job["id"] for job in listed],
                         [self.ids[status] for status in ("queued", "running", "paused", "completed",
                                                          "cancelled", "failed")])
        client.post(f"/v1/jobs/{self.ids['paused']}/resume")
        new = client.submit(small(seed=9))  # its key follows those of the copied jobs
        self.assertEqual(client.get_json("/v1/jobs?limit=1")["jobs"][0]["id"], new)
        worker = self.start_worker(coordinator, "w", clients=8)
        for status in ("running", "paused", "queued"):
            detail = client.wait_status(self.ids[status], "completed")
            self.assertEqual(essence(detail), essence(simulate(self.documents[status])))
        self.assertEqual(essence(client.wait_status(new, "completed")), essence(simulate(small(seed=9))))
        self.assertEqual(essence(client.job(self.ids["completed"])), essence(simulate(self.documents["completed"])))
        # The jobs have progressed: a further run detects that and changes nothing.
        self.assert_ends_well(worker, coordinator)
        self.migrate(1, "the target has jobs already, and nothing was changed")
        self.assertEqual(self.target.rows(f"SELECT status FROM jobs WHERE id = '{self.ids['running']}'"),
                         [("completed",)])

    def check_idempotency(self, client, status):
        """The same request with the same key returns the same job; another request with that key is refused."""
        key = {"Idempotency-Key": f"key of {status}"}
        again = client.post_job(self.documents[status], key)
        self.assertEqual((again.status, again.json()["id"]), (201, self.ids[status]), again)
        self.assertEqual(client.post_job(small(seed=77), key).status, 409)

    def test_open_round_is_not_asked_for_again(self):
        """Updates that were acknowledged before the migration are not computed again."""
        self.make_store()
        self.migrate()
        coordinator = self.start_on_target()
        running = coordinator.client.job(self.ids["running"])
        self.assertEqual(running["status"], "running")
        self.assertEqual(self.target.rows("SELECT count(*) FROM updates WHERE round > 0"), [("2",)])
        self.assertEqual(running["bits"]["uplink"], simulate_uplink(coordinator.client.rounds(running["id"])))


class Changes(MigrateTestCase):
    """A state of which a part is stored as changes made by rounds."""

    def test_job_goes_on(self):
        make_store(self.path, "changes")
        kill_amid_changes(self, self.start_coordinator(), self.path)
        answer = self.migrate()
        self.assert_same(answer, "migrated")
        rows = {table["table"]: table["source"]["rows"] for table in answer["tables"]}
        self.assertEqual(rows["job_states"], 2)
        self.assertEqual(self.target.rows("SELECT count(*) FROM job_state_changes"), [("0",)])
        self.assert_same(self.migrate(), "already there")
        coordinator = self.start_on_target()
        worker = self.start_worker(coordinator, "w", clients=8)
        wait_until(lambda: self.target.rows("SELECT count(*) FROM job_state_changes") != [("0",)],
                   "a change in the target", pause_s=0.002)
        for job in (CHANGING, QUEUED_BESIDE):
            detail = coordinator.client.wait_status(job, "completed")
            self.assertEqual(essence(detail), essence(simulate(document_of(self.path, job))))
        self.assert_ends_well(worker, coordinator)


def simulate_uplink(records):
    return {key: sum(record["bits"]["uplink"][key] for record in records)
            for key in ("formula", "payload", "messages", "clipped")}


class Interrupted(MigrateTestCase):
    """The copy is one transaction: the target has all of it or nothing."""

    def start(self, name="migrate"):
        return Process(self.folder, name, [BIN / "tally", "migrate", self.uri, self.target.uri])

    def ask(self, sql):
        try:
            return int(self.target.rows(sql)[0][0])
        except AssertionError:  # there are no tables yet
            return 0

    def n_jobs(self):
        return self.ask("SELECT count(*) FROM jobs")

    def has_begun(self):
        """Returns whether rows have been written, which other sessions cannot see before the commit."""
        return self.ask("SELECT pg_relation_size('rounds')") > 0

    def start_midway(self):
        """Starts a migration and stops it (SIGSTOP) after it has copied a part."""
        for _ in range(20):
            process = self.start()
            wait_until(lambda process=process: self.has_begun() or not process.is_alive(), "a part to be copied",
                       pause_s=0.002)
            process.popen.send_signal(signal.SIGSTOP)
            if process.is_alive() and self.n_jobs() == 0:
                return process
            process.popen.send_signal(signal.SIGCONT)
            process.kill()
            self.target = CLUSTER.new_database()  # it was stopped too late
        return self.fail("it copied everything before we saw a part")

    def assert_empty(self):
        self.assertEqual([self.ask(f"SELECT count(*) FROM {table}") for table in TABLES], [0] * len(TABLES))

    def test_kill_at_random_moments(self):
        self.make_long_store()
        seed = random.randrange(1 << 32)
        moments = random.Random(seed)
        print(f"seed {seed}", flush=True)
        began = time.monotonic()
        undisturbed = self.migrate()
        took_s = time.monotonic() - began
        self.assert_same(undisturbed, "migrated")
        before = self.source_bytes()
        n_midway = runs = 0
        while runs < 5 or n_midway == 0:  # a machine that was busy during the timing may be faster now
            runs += 1
            self.assertLess(runs, 50, "it is never interrupted")
            self.target = CLUSTER.new_database()
            process = self.start()
            time.sleep(moments.uniform(0, took_s / (1 + runs // 10)))  # anywhere in the copy
            process.kill()
            if self.n_jobs() == 0:
                n_midway += self.has_begun()
                self.assert_empty()
                self.assert_same(self.migrate(), "migrated")
            answer = self.migrate()
            self.assert_same(answer, "already there")
            self.assertEqual(answer["copied_rows"], 0)
            self.assertEqual(answer["tables"], undisturbed["tables"])
            self.assertEqual(self.source_bytes(), before)
        print(f"killed {n_midway} times while it copied", flush=True)
        self.assertEqual(len(self.start_on_target().client.rounds(LONG)), N_LONG_ROUNDS)

    def test_killed_run_leaves_an_empty_store(self):
        """The source can be served again, and the next run copies what it contains by then."""
        self.make_long_store()
        self.start_midway().kill()
        self.assert_empty()
        target = self.start_on_target()
        self.assertEqual(target.client.get_json("/v1/jobs")["jobs"], [])
        source = self.start_coordinator()
        new = source.client.submit(small())
        self.assert_ends_well(target, source)
        answer = self.migrate()
        self.assert_same(answer, "migrated")
        self.assertEqual(answer["copied_rows"], sum(table["source"]["rows"] for table in answer["tables"]))
        self.assertEqual(self.target.rows(f"SELECT count(*) FROM jobs WHERE id = '{new}'"), [("1",)])

    def test_coordinator_that_starts_meanwhile_waits(self):
        self.make_long_store()
        process = self.start_midway()

        def go_on():
            wait_until(lambda: self.ask("SELECT count(*) FROM pg_locks WHERE NOT granted") > 0,
                       "the coordinator to wait for the lock")
            process.popen.send_signal(signal.SIGCONT)

        thread = threading.Thread(target=go_on)
        thread.start()
        coordinator = self.start_on_target()  # returns when it is ready
        thread.join()
        self.assertEqual(process.wait(), 0)
        self.assertEqual(len(coordinator.client.rounds(LONG)), N_LONG_ROUNDS)
        self.assert_ends_well(coordinator)

    def test_lost_connection(self):
        self.make_long_store()
        process = self.start_midway()
        self.target.rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                         " WHERE datname = current_database() AND pid <> pg_backend_pid()")
        process.popen.send_signal(signal.SIGCONT)
        self.assertEqual(process.wait(), 1)
        self.assert_empty()
        self.assert_same(self.migrate(), "migrated")

    def test_stopped_by_a_signal(self):
        self.make_long_store()
        process = self.start_midway()
        process.popen.send_signal(signal.SIGCONT)
        self.assertEqual(process.terminate(), 128 + signal.SIGTERM)
        self.assert_empty()
        self.assert_same(self.migrate(), "migrated")

    def test_target_that_does_not_give_back_what_was_written(self):
        self.make_short_store()
        self.assert_ends_well(self.start_on_target())  # creates the tables
        self.target.rows("CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql"
                         " AS 'BEGIN NEW.norm := NEW.norm + 1; RETURN NEW; END'")
        self.target.rows("CREATE TRIGGER spoil BEFORE INSERT ON rounds FOR EACH ROW WHEN (NEW.round = 3)"
                         " EXECUTE FUNCTION spoil()")
        answer = self.migrate(1, "differ in rounds")
        self.assertEqual((answer["outcome"], answer["copied_rows"]), (None, 0))
        self.assert_empty()
        self.target.rows("DROP TRIGGER spoil ON rounds")
        self.assert_same(self.migrate(), "migrated")

    def test_two_at_once(self):
        """One of them copies; the other is refused or finds everything copied. The target is correct in either case."""
        self.make_long_store()
        two = [self.start(f"migrate-{i}") for i in range(2)]
        self.assertIn(0, [process.wait() for process in two])
        self.assert_same(self.migrate(), "already there")

    def test_another_one_holds_the_target(self):
        self.make_short_store()
        self.assert_ends_well(self.start_on_target())  # creates the tables
        with self.target.session_after("BEGIN; SELECT true FROM lease_turn FOR UPDATE"):
            self.migrate(1, "another migration into it is under way")
            self.assert_empty()
        self.assert_same(self.migrate(), "migrated")


class Found(MigrateTestCase):
    """Damage to the target that verification finds afterwards."""

    CHANGES = {
        "jobs": "UPDATE jobs SET recovery_bits = recovery_bits + 1 WHERE job_key = 2",
        "job_documents": "UPDATE job_documents SET document = document || ' ' WHERE job_key = 1",
        "job_states": "DELETE FROM job_states WHERE job_key = 2",
        "updates": "DELETE FROM updates WHERE client = (SELECT min(client) FROM updates)",
        "rounds": "DELETE FROM rounds WHERE job_key = 1 AND round = 3",
        "models": "UPDATE model_points SET point = '' WHERE job_key = 1",
    }

    def test_changed_row(self):
        self.make_short_store()
        with edited_database(self.path) as database:
            database.execute("INSERT INTO models VALUES (1, 3, 3, 4, 0.5, 9, 8, 0)")
            database.execute("INSERT INTO model_points VALUES (1, 3, 0, x'0102030405060708')")
        for table, change in self.CHANGES.items():
            with self.subTest(table):
                self.target = CLUSTER.new_database()
                self.assert_same(self.migrate(), "migrated")
                n_before = self.target.rows(f"SELECT count(*) FROM {table}")
                self.assertTrue(self.target.changes(change), "the change changes something")
                done = self.run_migrate("--json", self.uri, self.target.uri)
                self.assertEqual(done.returncode, 1, done.stdout)
                self.assertIn(table, done.stderr)
                self.assertIn("nothing was changed", done.stderr)
                if "DELETE" in change:
                    self.assertNotEqual(self.target.rows(f"SELECT count(*) FROM {table}"), n_before)

    def test_table_of_both_sides(self):
        self.make_short_store()
        done = self.run_migrate(self.uri, self.target.uri)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [line.split() for line in done.stdout.splitlines()]
        self.assertEqual([line[0] for line in lines], ["TABLE", *TABLES])
        for line in lines[1:]:
            self.assertEqual(line[1:3], line[3:5])
        again = self.run_migrate(self.uri, self.target.uri)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(again.stdout, done.stdout)


class Refused(MigrateTestCase):
    def assert_untouched(self):
        """Checks that the target can be served, as an empty store."""
        coordinator = self.start_on_target()
        self.assertEqual(coordinator.client.get_json("/v1/jobs")["jobs"], [])

    def test_source_in_use(self):
        self.start_coordinator()
        self.migrate(1, "in use")
        self.assert_untouched()

    def test_damaged_source(self):
        make_store(self.path)
        query(self.path, "UPDATE rounds SET norm = 1.0 WHERE job_key = 1 AND round = 9")
        before = self.source_bytes()
        self.migrate(1, "rounds, job_key 1, round 9")
        self.assertEqual(self.source_bytes(), before)
        self.assert_untouched()

    def test_old_source(self):
        make_store(self.path)
        query(self.path, "PRAGMA user_version = 7")
        before = self.source_bytes()
        self.migrate(1, "schema version 7", "Tally 0.15.0")
        self.assertEqual(self.source_bytes(), before)
        self.assert_untouched()

    def test_old_target(self):
        """A database of an older schema version is refused as a target, too, and nothing in it changes."""
        make_store(self.path)
        self.assert_ends_well(self.start_on_target())  # creates the tables
        self.target.rows("UPDATE tally_schema SET version = 5")
        self.migrate(1, "schema version 5", "Tally 0.15.0")
        self.assert_not_served("schema version 5", "Tally 0.15.0")
        self.assertEqual(self.target.rows("SELECT version, (SELECT count(*) FROM jobs) FROM tally_schema"),
                         [("5", "0")])

    def test_missing_source(self):
        self.migrate(1, "there is no database")
        self.assertFalse(self.path.exists())
        self.assert_untouched()

    def test_target_with_other_jobs(self):
        make_store(self.path)
        coordinator = self.start_on_target()
        job = coordinator.client.submit(small())
        self.assert_ends_well(coordinator)
        self.migrate(1, "the target has jobs already, and nothing was changed")
        self.assertEqual(self.target.rows("SELECT id FROM jobs"), [(job,)])
        self.assertEqual(self.start_on_target().client.job(job)["status"], "queued")

    def test_target_in_use(self):
        make_store(self.path)
        coordinator = self.start_on_target()
        self.migrate(1, "a coordinator uses")
        self.assertEqual(coordinator.client.get_json("/v1/jobs")["jobs"], [])
        self.assert_ends_well(coordinator)
        self.assert_same(self.migrate(), "migrated")

    def test_empty_source(self):
        self.assert_ends_well(self.start_coordinator())
        self.assert_same(self.migrate(), "migrated")
        self.assert_untouched()

    def test_arguments(self):
        for arguments, word in (
            ((), "too few arguments"),
            ((self.uri,), "too few arguments"),
            ((self.uri, self.target.uri, "x"), "unexpected argument"),
            ((self.target.uri, self.uri), "from \"sqlite:PATH\""),
            (("memory:", self.target.uri), "from \"sqlite:PATH\""),
            (("sqlite:", self.target.uri), "from \"sqlite:PATH\""),
            (("postgresql://me:password@host/db", self.uri), "from \"sqlite:PATH\""),
            (("mysql://me:password@host/db", self.uri), "from \"sqlite:PATH\""),
            ((self.uri, "mysql://me:password@host/db"), "to \"postgres:CONNINFO\""),
            ((self.uri, self.uri), "to \"postgres:CONNINFO\""),
            ((self.uri, "memory:"), "to \"postgres:CONNINFO\""),
        ):
            with self.subTest(arguments):
                done = self.run_migrate(*arguments)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(word, done.stderr)
                self.assertNotIn("password", done.stderr)

    def test_target_that_is_not_there(self):
        make_store(self.path)
        for uri in (f"postgres:host=127.0.0.1 port={free_port()} password=swordfish dbname=x",
                    f"{self.target.uri} dbname=nonexistent"):
            done = self.run_migrate(self.uri, uri)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertNotIn("swordfish", done.stderr + done.stdout)
            self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)


class OtherPrograms(MigrateTestCase):
    """--check and doctor inspect a PostgreSQL store as well."""

    def check(self, status, *words, store=None):
        done = subprocess.run([BIN / "tally-coordinator", "--check", "--store", store or self.target.uri],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=HANG_S, check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        for word in words:
            self.assertIn(word, done.stdout)

    def test_check(self):
        self.check(0, "the coordinator creates it when it starts")
        self.make_short_store()
        self.migrate()
        self.check(0, "3 jobs (2 live)", "(running): round 13, 2 updates of the open one")
        with contextlib.ExitStack() as stack:
            stack.callback(self.assert_ends_well, self.start_on_target())
            self.check(0, "3 jobs (2 live)")  # while a coordinator runs
        self.target.rows("DELETE FROM rounds WHERE job_key = 1 AND round = 3")
        self.check(1, "the record of round 3 is missing")
        done = subprocess.run([BIN / "tally", "doctor", "--store", f"{self.target.uri} password=swordfish"],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=HANG_S, check=False)
        self.assertIn(f"is sound: schema version {SCHEMA_VERSION}, 3 jobs", done.stdout)
        self.assertNotIn("swordfish", done.stdout + done.stderr)
        self.target.rows("UPDATE tally_schema SET version = 5")
        self.check(1, "schema version 5", "Tally 0.15.0")

    def test_every_program_takes_a_url(self):
        """All programs accept all forms of a store's URI."""
        self.make_short_store()
        password = "swordfish"
        urls = [self.target.url(scheme) + f"&password={password}"
                for scheme in ("postgres", "postgresql", "postgres:postgresql")]
        done = self.run_migrate(self.uri, urls[1])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for url in urls:
            with self.subTest(url):
                self.check(0, "3 jobs (2 live)", store=url)
                doctor = subprocess.run([BIN / "tally", "doctor", "--store", url], stdin=subprocess.DEVNULL,
                                        capture_output=True, text=True, timeout=HANG_S, check=False)
                self.assertIn(f"is sound: schema version {SCHEMA_VERSION}, 3 jobs", doctor.stdout)
                self.assertNotIn(password, doctor.stdout + doctor.stderr)
                for command in (("backup", "copy.db"), ("restore", "copy.db")):
                    done = subprocess.run([BIN / "tally", *command, "--store", url], stdin=subprocess.DEVNULL,
                                          capture_output=True, text=True, timeout=HANG_S, check=False, cwd=self.folder)
                    self.assertEqual(done.returncode, 2, done.stderr)
                    self.assertIn("pg_dump", done.stderr)
                    self.assertNotIn(password, done.stdout + done.stderr)
        coordinator = self.start_coordinator(store=urls[1])
        self.assertEqual(len(coordinator.client.get_json("/v1/jobs")["jobs"]), 3)


if __name__ == "__main__":
    unittest.main()
