"""A PostgreSQL in the network namespace of a test, and queries to it."""

import ctypes
import ctypes.util
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from common import REPO, wait_until
from namespaces import DIES_WITH_US, run

CLUSTER = REPO / "tests/postgres/cluster"
AS_USER = ("setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups")  # the server refuses to run as root
STOP_SIGNALS = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}


class Postgres:
    """Listens on `address` in the namespace of `launcher` and trusts every connection. Created by
    tests/postgres/cluster; runs as a child of the test and ends with it."""

    def __init__(self, address, launcher):
        self._launcher = launcher
        self._folder = Path(tempfile.mkdtemp(prefix="tally-postgres-"))
        self._folder.chmod(0o711)
        self.conninfo = run(*launcher, CLUSTER, "start", self._folder / "db", address).strip()
        self._data = self._folder / "db/data"
        self._program = os.readlink(f"/proc/{self._pid()}/exe")
        run(*launcher, CLUSTER, "stop", self._folder / "db")
        self.start()

    def _pid(self):
        return (self._data / "postmaster.pid").read_text().split()[0]

    def start(self):
        """Starts the server and waits until it answers."""
        with open(self._folder / "log", "ab") as log:
            self._server = subprocess.Popen(
                [*self._launcher, *AS_USER, *DIES_WITH_US, self._program, "-D", self._data],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._data.parent,
            )
        wait_until(self._is_there, "PostgreSQL")

    def _is_there(self):
        if not self.is_running():
            raise AssertionError(f"PostgreSQL ended:\n{self.log()[-2000:]}")
        try:
            Connection(self.conninfo).close()
        except ConnectionError:
            return False
        return True

    def is_running(self):
        return self._server.poll() is None

    def stop(self, mode="fast"):
        """`fast` ends all sessions and writes everything; `immediate` is a crash."""
        self._server.send_signal(STOP_SIGNALS[mode])
        self._server.wait()

    def log(self):
        return (self._folder / "log").read_text(errors="replace")

    def close(self):
        if self.is_running():
            self.stop("immediate")
        shutil.rmtree(self._folder)


class Connection:
    """A libpq session."""

    _library = None

    def __init__(self, conninfo):
        self._session = self._libpq().PQconnectdb(f"{conninfo} connect_timeout=5".encode())
        if self._libpq().PQstatus(self._session) != 0:
            why = self._libpq().PQerrorMessage(self._session).decode()
            self.close()
            raise ConnectionError(why)

    @classmethod
    def _libpq(cls):
        if cls._library is None:
            library = ctypes.CDLL(ctypes.util.find_library("pq"))
            for name in ("PQconnectdb", "PQexec"):
                getattr(library, name).restype = ctypes.c_void_p
            for name in ("PQerrorMessage", "PQgetvalue", "PQresultErrorMessage"):
                getattr(library, name).restype = ctypes.c_char_p
            library.PQconnectdb.argtypes = [ctypes.c_char_p]
            library.PQexec.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
            for name in ("PQgetvalue", "PQgetisnull"):
                getattr(library, name).argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
            for name in ("PQstatus", "PQfinish", "PQerrorMessage", "PQclear", "PQntuples", "PQnfields",
                         "PQresultErrorMessage", "PQresultStatus"):
                getattr(library, name).argtypes = [ctypes.c_void_p]
            cls._library = library
        return cls._library

    def close(self):
        self._libpq().PQfinish(self._session)
        self._session = None

    def rows(self, sql):
        """Returns a statement's rows: tuples of strings, with None for NULL."""
        library = self._libpq()
        result = library.PQexec(self._session, sql.encode())
        try:
            if library.PQstatus(self._session) != 0:
                raise ConnectionError(library.PQerrorMessage(self._session).decode())
            if library.PQresultStatus(result) not in (1, 2):  # no rows; rows
                raise AssertionError(f"{sql}: {library.PQresultErrorMessage(result).decode()}")
            return [
                tuple(
                    None if library.PQgetisnull(result, row, column)
                    else library.PQgetvalue(result, row, column).decode()
                    for column in range(library.PQnfields(result))
                )
                for row in range(library.PQntuples(result))
            ]
        finally:
            library.PQclear(result)
