"""A private PostgreSQL for tests in Python: tests/postgres/cluster, and databases in it."""

import contextlib
import itertools
import re
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import quote

CLUSTER = Path(__file__).with_name("cluster")


def has_postgres():
    return any(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))


class Database:
    """A database of a cluster, initially empty."""

    def __init__(self, conninfo):
        self.conninfo = conninfo
        self.uri = f"postgres:{conninfo} connect_timeout=60"  # the machine may be busy

    def url(self, scheme):
        """Returns the database's URL in libpq's form: scheme://user@/dbname?host=...&port=..."""
        option = dict(pair.split("=", 1) for pair in self.conninfo.split())
        return (f"{scheme}://{option['user']}@/{option['dbname']}?host={quote(option['host'], safe='')}"
                f"&port={option['port']}")

    def uri_at(self, port):
        """Returns the URI of the same database at another port, on which something forwards."""
        return "postgres:" + re.sub(r"\bport=\d+", f"port={port}", self.conninfo)

    def _command(self, *options):
        return ["psql", "-X", "-q", "-A", "-t", "-F", "\t", "-v", "ON_ERROR_STOP=1", *options, self.conninfo]

    def _psql(self, sql):
        done = subprocess.run(self._command("-c", sql), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            raise AssertionError(f"{sql}: {done.stderr}")
        return done.stdout

    def rows(self, sql):
        """Returns a statement's rows: tuples of strings."""
        return [tuple(line.split("\t")) for line in self._psql(sql).splitlines()]

    def changes(self, sql):
        """Returns how many rows an INSERT, UPDATE or DELETE changes."""
        return len(self.rows(f"{sql} RETURNING 1"))

    @contextlib.contextmanager
    def session_after(self, sql):
        """Opens a session, runs a statement in it that returns one row, and keeps the session open until the block
        ends."""
        with subprocess.Popen(self._command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as psql:
            psql.stdin.write(f"{sql};\n")
            psql.stdin.flush()
            if not psql.stdout.readline():
                raise AssertionError(f"{sql}: psql has ended")
            yield


class Cluster:
    """A private server, which runs until it is closed."""

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="tally-postgres-")
        Path(self._folder.name).chmod(0o755)  # root runs the server as another user
        self.folder = Path(self._folder.name) / "cluster"
        self._numbers = itertools.count()
        self._first = Database(self._command("start"))

    def _command(self, command, *arguments):
        done = subprocess.run([CLUSTER, command, self.folder, *arguments], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise AssertionError(f"tests/postgres/cluster {command}: {done.stderr}")
        return done.stdout.strip()

    def new_database(self):
        name = f"tally_{next(self._numbers)}"
        self._first.rows(f"CREATE DATABASE {name}")
        return Database(re.sub(r"\bdbname=\w+", f"dbname={name}", self._first.conninfo))

    @property
    def port(self):
        return int(re.search(r"\bport=(\d+)", self._first.conninfo)[1])

    @property
    def pid(self):
        """Returns the process id of the postmaster."""
        return int((self.folder / "data/postmaster.pid").read_text().split()[0])

    def crash(self):
        self._command("stop", "immediate")

    def restart(self):
        self._command("restart")

    def close(self):
        self.crash()
        self._folder.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
