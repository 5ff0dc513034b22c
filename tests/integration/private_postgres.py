"""A private PostgreSQL (tests/postgres/cluster), and a TCP proxy before several coordinators."""

import socket
import sys
import threading
import unittest

from common import REPO, TallyTestCase

sys.path.insert(0, str(REPO / "tests/postgres"))

from postgres import Cluster, has_postgres  # noqa: E402


class Balancer:
    """Forwards connections to several ports in turn, skipping those without a listener."""

    def __init__(self, *ports):
        self.ports = list(ports)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.n_accepted = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self.listener.close()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.n_accepted += 1
            threading.Thread(target=self._serve, args=(connection, self.n_accepted), daemon=True).start()

    def _serve(self, connection, turn):
        for i in range(len(self.ports)):
            try:
                peer = socket.create_connection(("127.0.0.1", self.ports[(turn + i) % len(self.ports)]), timeout=2)
            except OSError:
                continue
            peer.settimeout(None)
            threading.Thread(target=self._pump, args=(peer, connection), daemon=True).start()
            self._pump(connection, peer)
            return
        connection.close()

    @staticmethod
    def _pump(source, target):
        try:
            while piece := source.recv(65536):
                target.sendall(piece)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class PostgresTestCase(TallyTestCase):
    """A test case in which every test starts with an empty database."""

    @classmethod
    def setUpClass(cls):
        if not has_postgres():
            print(f"\n*** SKIPPED: {cls.__name__} was not tested, there is no PostgreSQL server", flush=True)
            raise unittest.SkipTest("no PostgreSQL server")
        cls.cluster = Cluster()
        cls.addClassCleanup(cls.cluster.close)

    def setUp(self):
        super().setUp()
        self.database = self.cluster.new_database()
        self.store = self.database.uri

    def start_replica(self, name, **options):
        return self.start_coordinator(store=self.store, name=name, **options)

    def balance(self, *replicas):
        balancer = Balancer(*(replica.port for replica in replicas))
        self.addCleanup(balancer.close)
        return balancer
