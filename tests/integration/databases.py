"""Database files for the tests: stores with jobs, rows that a test changes, and damage."""

import contextlib
import json
import signal
import sqlite3
import time
from pathlib import Path

import numpy

from common import REPO, wait_until

STORES = REPO / "tests/integration/stores"
SCHEMA_VERSION = 11
# The jobs of three_jobs.sql and of changes.sql; the heads of these files describe them.
COMPLETED, RUNNING, QUEUED = "52a79c2839a4", "e731455fa687", "0f35a73d729d"
CHANGING, QUEUED_BESIDE = "5ed6279aa877", "8c7f7ce7f1c3"


def make_store(path, name="three_jobs"):
    """Makes a database file from one of STORES."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.executescript((STORES / f"{name}.sql").read_text())


def query(path, sql, *values):
    """Runs a statement, commits, and returns all rows."""
    database = sqlite3.connect(path)
    try:
        rows = database.execute(sql, values).fetchall()
        database.commit()
        return rows
    finally:
        database.close()


# ---- Row checksums, as storage/sqlite/sqlite_checksum.c computes them.

WORD, SEED, PRIME = (1 << 64) - 1, 0xcbf29ce484222325, 0x100000001b3
FIXED = ("id", "name", "algorithm", "created_ms", "clients", "dim", "horizon", "labels")  # columns of `jobs`
SUMS = ("fixed_checksum", "row_checksum")
LONG_BYTES = 4096  # from here on, of a value only its digest is summed


class Text(bytes):
    """A text as it is stored: not necessarily UTF-8."""


def mixed(sums):
    for factor in (0xff51afd7ed558ccd, 0xc4ceb9fe1a85ec53):
        sums = (sums ^ sums >> 33) * factor & WORD
    return sums ^ sums >> 33


def more(sums, words, n):
    """tally_checksum64_more(): continues the sums with words, of n bytes in all."""
    for word in words:
        sums = (sums ^ word) * PRIME & WORD
        sums ^= sums >> 32
    return mixed((sums ^ n) * PRIME & WORD)


def words_of(value):
    return numpy.frombuffer(value + bytes(-len(value) % 8), numpy.uint64)


def digest(value):
    """tally_digest64()."""
    n_chained = len(value) // 32 * 32
    chains = numpy.array([mixed(SEED + k) for k in range(4)], numpy.uint64)
    for words in words_of(value[:n_chained]).reshape(-1, 4):
        chains = (chains ^ words) * PRIME & WORD
        chains ^= chains >> 32
    sums = more(numpy.array([len(value)], numpy.uint64), chains, 32)
    rest = value[n_chained:]
    return more(sums, words_of(rest), len(rest)) if rest else sums


def add_values(sums, column):
    """Adds a value to each sum."""
    added = sums.copy()
    for kind in {type(value) for value in column}:
        values = [value for value in column if type(value) is kind]
        rows = numpy.array([type(value) is kind for value in column])
        if kind in (int, float):
            words = numpy.array(values, numpy.int64 if kind is int else numpy.float64).view(numpy.uint64)
            added[rows] = more(more(sums[rows], [1 if kind is int else 2, 8], 16), [words], 8)
        elif kind is type(None):
            added[rows] = more(sums[rows], [5, 0], 16)
        else:
            for value in set(values):
                rows = numpy.array([type(each) is kind and each == value for each in column])
                added[rows] = more(sums[rows], [3 if kind is Text else 4, len(value)], 16)
                if len(value) >= LONG_BYTES:
                    added[rows] = more(added[rows], digest(value), 8)
                elif value:
                    added[rows] = more(added[rows], words_of(value), len(value))
    return added


def checksums(rows, names, leading, covered):
    """Returns the checksums of the rows over `leading` values and the columns `covered`."""
    sums = numpy.full(len(rows), SEED, numpy.uint64)
    for column in [*leading, *([row[names.index(name)] for row in rows] for name in covered)]:
        sums = add_values(sums, column)
    return sums.view(numpy.int64).tolist()


def seal(database):
    """Sets the checksums of all rows, as the programs would."""
    database.text_factory = Text
    tables = [name.decode() for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    for table in tables:
        columns = database.execute(f"PRAGMA table_info({table})").fetchall()
        names = [column[1].decode() for column in columns]
        keys = [column[1].decode() for column in columns if column[5] > 0]
        rows = database.execute(f"SELECT * FROM {table}").fetchall()
        title = [Text(table.encode())] * len(rows)
        rest = [name for name in names if name not in SUMS]
        written = {}
        if table == "jobs":
            once = ("job_key", "idempotency_key", "request_digest", *FIXED)
            rest = [name for name in rest if name not in once]
            written["fixed_checksum"] = checksums(rows, names, [title], once)
        written["row_checksum"] = checksums(rows, names, [title, *written.values()], rest)
        sets, where = ", ".join(f"{name} = ?" for name in written), " AND ".join(f"{key} = ?" for key in keys)
        database.executemany(
            f"UPDATE {table} SET {sets} WHERE {where}",
            ((*sums, *(row[names.index(key)] for key in keys)) for *sums, row in zip(*written.values(), rows)))
    database.text_factory = str


@contextlib.contextmanager
def edited_database(path):
    """Opens a stopped coordinator's database for the caller to change, and then makes the checksums right."""
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        yield database
        seal(database)


LONG = "ffffffffffff"


def add_long_job(path, n_rounds):
    """Adds an ended job with many equal rounds to the store three_jobs."""
    with edited_database(path) as database:

        def copy(table, sources, **values):
            names = [name for _, name, *_ in database.execute(f"PRAGMA table_info({table})")]
            columns = ", ".join(str(values.get(name, name)) for name in names)
            database.execute(f"INSERT INTO {table} SELECT {columns} FROM {sources}")

        copy("jobs", "jobs WHERE job_key = 1", job_key=9, id=f"'{LONG}'", round=n_rounds)
        copy("job_documents", "job_documents WHERE job_key = 1", job_key=9)
        database.execute("CREATE TEMP TABLE numbers AS WITH RECURSIVE n(i) AS"
                         f" (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {n_rounds}) SELECT i FROM n")
        copy("rounds", "numbers, rounds WHERE job_key = 1 AND round = 1", job_key=9, round="i")


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


def kill_amid_changes(test, coordinator, path, job=CHANGING):
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
