"""A real PostgreSQL in a folder of its own, in the namespace of a test, and what its tables say."""

import ctypes
import ctypes.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from namespaces import DIES_WITH_US, run, skip
from service import wait_until

USER = "postgres"  # PostgreSQL refuses to run as root
PORT = 5432
STOP_SIGNALS = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}


def programs():
    """The folder of Debian's newest initdb and postgres."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda each: float(each.parent.name))
    if not folders:
        skip("PostgreSQL is not installed")
    return folders[-1]


class Postgres:
    """Listens on `address`, where `launcher` starts it; trusts everybody who can reach it."""

    def __init__(self, address, launcher):
        self.address = address
        self._launcher = launcher
        self._programs = programs()
        self._folder = Path(tempfile.mkdtemp(prefix="tally-postgres-"))
        user = pwd.getpwnam(USER)
        os.chown(self._folder, user.pw_uid, user.pw_gid)
        self._as_user = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups")
        self._data = self._folder / "data"
        run(*self._as_user, self._programs / "initdb", "--pgdata", self._data, "--auth=trust",
            "--username=tally", "--encoding=UTF8", "--locale=C")
        with open(self._data / "pg_hba.conf", "a") as file:
            file.write("host all all 0.0.0.0/0 trust\n")
        self.start()

    @property
    def conninfo(self):
        return f"host={self.address} port={PORT} user=tally dbname=postgres"

    def start(self):
        """Starts it and waits until it answers."""
        with open(self._folder / "log", "ab") as log:
            self._server = subprocess.Popen(
                [*self._launcher, *self._as_user, *DIES_WITH_US, self._programs / "postgres",
                 "-D", self._data, "-p", str(PORT), "-c", f"listen_addresses={self.address}",
                 "-c", f"unix_socket_directories={self._folder}"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._folder,
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
        """Fast: sessions are ended and everything is written. Immediate: a crash."""
        self._server.send_signal(STOP_SIGNALS[mode])
        self._server.wait()

    def log(self):
        return (self._folder / "log").read_text(errors="replace")

    def close(self):
        if self.is_running():
            self.stop("immediate")
        shutil.rmtree(self._folder)


class Connection:
    """A session of libpq."""

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
        """What a statement gives: tuples of texts, None for NULL."""
        library = self._libpq()
        result = library.PQexec(self._session, sql.encode())
        try:
            if library.PQstatus(self._session) != 0:
                raise ConnectionError(library.PQerrorMessage(self._session).decode())
            if library.PQresultStatus(result) not in (1, 2):  # a command, tuples
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
