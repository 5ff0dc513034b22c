"""Database files for the tests: the one of version 1, and damage."""

import json
import sqlite3
from pathlib import Path

from common import REPO

FIXTURE = REPO / "tests/contract/fixtures/v1.sql"
# Of the three jobs in it, see its head.
COMPLETED, RUNNING, QUEUED = "70b19606a1c9", "e7430787d22e", "c23c3779fbc2"


def make_version_1(path):
    """The fixture as a database file."""
    database = sqlite3.connect(path)
    database.executescript(FIXTURE.read_text())
    database.close()


def query(path, sql, *values):
    """All rows; also changes a database if the statement does."""
    database = sqlite3.connect(path)
    try:
        rows = database.execute(sql, values).fetchall()
        database.commit()
        return rows
    finally:
        database.close()


def schema_version(path):
    return query(path, "PRAGMA user_version")[0][0]


def document_of(path, job_id):
    """The job document as a user would submit it."""
    [(text,)] = query(
        path, "SELECT document FROM job_documents JOIN jobs USING (job_key) WHERE id = ?", job_id
    )
    return json.loads(text)


def flip_bit(data, bit):
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def remove_log(path):
    for suffix in ("-wal", "-shm", "-lock"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
