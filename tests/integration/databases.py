"""Database files for the tests: older schema versions, and damage."""

import json
import signal
import sqlite3
import time
from pathlib import Path

from common import REPO, wait_until

FIXTURES = REPO / "tests/contract/fixtures"
NEWEST_VERSION = 7
# The three jobs of the fixture of version 1; its head describes them.
COMPLETED, RUNNING, QUEUED = "70b19606a1c9", "e7430787d22e", "c23c3779fbc2"
# Two of the four jobs of version 2: RUNNING_2 has unary updates in its open round, QSGD_2 has QSGD updates.
COMPLETED_2, RUNNING_2, QSGD_2, QUEUED_2 = "b2b911edfb3d", "82d204d64a5f", "58ea301bfa1f", "47e66b3a12a1"
# Two of the three jobs of version 4: the state of RUNNING_4 is so long that rounds store only its changes.
COMPLETED_4, RUNNING_4, QUEUED_4 = "674616a0d0d6", "24e267e07cfc", "c882b2040098"


def make_version(version, path):
    """Makes a database file from a fixture."""
    database = sqlite3.connect(path)
    database.executescript((FIXTURES / f"v{version}.sql").read_text())
    database.close()


def make_version_1(path):
    make_version(1, path)


def query(path, sql, *values):
    """Runs a statement, commits, and returns all rows."""
    database = sqlite3.connect(path)
    try:
        rows = database.execute(sql, values).fetchall()
        database.commit()
        return rows
    finally:
        database.close()


LONG = "ffffffffffff"


def add_long_job(path, n_rounds):
    """Adds an ended job with many equal rounds to a database of version 1."""
    database = sqlite3.connect(path)

    def copy(table, sources, **values):
        names = [name for _, name, *_ in database.execute(f"PRAGMA table_info({table})")]
        columns = ", ".join(str(values.get(name, name)) for name in names)
        database.execute(f"INSERT INTO {table} SELECT {columns} FROM {sources}")

    copy("jobs", "jobs WHERE job_key = 1", job_key=9, id=f"'{LONG}'", round=n_rounds)
    copy("job_documents", "job_documents WHERE job_key = 1", job_key=9)
    database.execute("CREATE TEMP TABLE numbers AS WITH RECURSIVE n(i) AS"
                     f" (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {n_rounds}) SELECT i FROM n")
    copy("rounds", "numbers, rounds WHERE job_key = 1 AND round = 1", job_key=9, round="i")
    database.commit()
    database.close()


def schema_version(path):
    return query(path, "PRAGMA user_version")[0][0]


def document_of(path, job_id):
    """Returns the job document as submitted."""
    [(text,)] = query(
        path, "SELECT document FROM job_documents JOIN jobs USING (job_key) WHERE id = ?", job_id
    )
    return json.loads(text)


def answer_in_part(test, coordinator, path, job=RUNNING):
    """Posts the updates of two of the three clients of the open round, and waits until they are stored and the worker
    has left."""
    worker = test.start_worker(coordinator, "two-of-three", clients=2, options=["--job", job])
    wait_until(lambda: query(path, "SELECT count(*) FROM updates WHERE round > 0") == [(2,)], "two updates")
    test.assert_ends_well(worker)


def n_changes(path):
    """Returns the number of stored changes since the last full snapshots."""
    return query(path, "SELECT count(*) FROM job_state_changes")[0][0]


def kill_amid_changes(test, coordinator, path, job=RUNNING_4):
    """Runs the job for some rounds and kills the coordinator (kill -9) while a part of the job's state is stored as
    changes."""
    worker = test.start_worker(coordinator, "three", clients=3, options=["--job", job])
    while True:
        wait_until(lambda: n_changes(path) > 2, "some changes", pause_s=0.002)
        worker.popen.send_signal(signal.SIGSTOP)
        time.sleep(0.2)  # time for its requests to be answered; otherwise the kill interrupts them
        if n_changes(path) > 1:
            break
        worker.popen.send_signal(signal.SIGCONT)
    coordinator.kill()
    worker.kill()
    for process in (coordinator, worker):
        test.processes.remove(process)
    test.assertGreater(n_changes(path), 1)


def flip_bit(data, bit):
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def remove_log(path):
    for suffix in ("-wal", "-shm", "-lock"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
