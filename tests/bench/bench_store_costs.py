#!/usr/bin/python3
"""What an update costs coordinator, store and network: the constants of storage/DESIGN.md.

    tests/bench/bench_store_costs.py [--runs N]        TALLY_BIN: folder of the programs

Runs one job with few clients and one with many on the same store, and splits their cost into a part per update and a
part per round. The latter includes the state of all clients and the point:

    cost of a round with M clients = (M - 1) * update + round      (the last update closes the round)

Counts (rows, bytes, fsyncs, round trips) hardly vary. Times are those of this machine: the median of several runs,
with the lowest and the highest. Requires PostgreSQL (tests/postgres).
"""

import argparse
import os
import selectors
import socket
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

for folder in ("integration", "postgres", "replicas"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / folder))

from common import Client, Coordinator, ForeignWorker, Worker, free_port, job_document, messages, wait_until  # noqa: E402
from crowd import metric  # noqa: E402
from postgres import Cluster  # noqa: E402

FEW, MANY = 2, 42
TICKS = os.sysconf("SC_CLK_TCK")
N_POLLS = 1000


class CountingProxy:
    """Forwards TCP to PostgreSQL and counts bytes and round trips, that is, how often the client sends after a
    response."""

    def __init__(self, port):
        self.target = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.turns = self.sent = self.received = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.create_connection(("127.0.0.1", self.target))
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._forward, args=(client, server), daemon=True).start()

    def _forward(self, client, server):
        was_answered = True
        with selectors.DefaultSelector() as ready, client, server:
            ready.register(client, selectors.EVENT_READ, server)
            ready.register(server, selectors.EVENT_READ, client)
            while True:
                for key, _ in ready.select():
                    data = key.fileobj.recv(1 << 20)
                    if not data:
                        return
                    if key.fileobj is client:
                        self.turns += was_answered
                        was_answered = False
                        self.sent += len(data)
                    else:
                        was_answered = True
                        self.received += len(data)
                    key.data.sendall(data)


def processor_s(pid):
    """Returns the processor time of a process, its live children and those that it has waited for."""
    def stat(number):
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()

    own = stat(pid)
    ticks = sum(int(field) for field in own[11:15])
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and stat(entry.name)[1] == str(pid):
                ticks += sum(int(field) for field in stat(entry.name)[11:13])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return ticks / TICKS


def document(dim, clients, rounds, seed):
    """CEAL on data that need few samples, so that nearly every round has levels up and down."""
    return job_document(
        "synthetic-ceal", clients=clients, quorum=clients, seed=seed, horizon=rounds,
        objective__data__dim=dim, objective__data__points=2 * clients, objective__data__frobenius_norm=1,
        algorithm__sigma=0.1, algorithm__sample_scale=0.01, algorithm__step_size=0.5, evaluate_every=rounds,
        reference={"type": "none"},
    )


class PostgresSide:
    """Counters of a PostgreSQL server, relative to those before a run."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.database = cluster.new_database()
        self.proxy = CountingProxy(cluster.port)

    def store(self, counted):
        return self.database.uri_at(self.proxy.port) if counted else self.database.uri

    def counters(self):
        time.sleep(1.2)  # sessions report to pg_stat_wal at most once a second, and when they are idle
        [(wal_bytes, records, syncs)] = self.database.rows(
            "SELECT pg_current_wal_insert_lsn() - '0/0', wal_records, wal_sync FROM pg_stat_wal")
        [(inserts, updates, deletes)] = self.database.rows(
            "SELECT sum(n_tup_ins), sum(n_tup_upd), sum(n_tup_del) FROM pg_stat_user_tables")
        return {"WAL bytes": float(wal_bytes), "WAL records": float(records), "fsyncs": float(syncs),
                "rows inserted": float(inserts or 0), "rows updated": float(updates or 0),
                "rows deleted": float(deletes or 0),
                "processor ms, database": 1000 * processor_s(self.cluster.pid),
                "bytes to the database": self.proxy.sent, "bytes from the database": self.proxy.received,
                "round trips": self.proxy.turns}


class SqliteSide:
    """A SQLite store. The bytes that the coordinator has written to disk are those of the store and of its log."""

    def __init__(self, folder):
        self.folder = folder

    def store(self, counted):
        del counted
        return f"sqlite:{tempfile.mkdtemp(dir=self.folder)}/tally.db"

    def counters(self):
        return {}


def io_bytes(pid):
    for line in Path(f"/proc/{pid}/io").read_text().splitlines():
        if line.startswith("write_bytes:"):
            return int(line.split()[1])
    raise AssertionError("no write_bytes")


def run_once(side, dim, clients, rounds, seed, counted):
    """Returns the cost of one job from its first round to its end: {what: amount}."""
    with tempfile.TemporaryDirectory() as folder:
        coordinator = Coordinator(folder, store=side.store(counted))
        worker = Worker(folder, coordinator.url, "w", clients=clients)
        try:
            client = coordinator.client
            warm = client.submit(document(dim, clients, 30, seed))
            client.wait_status(warm, "completed")
            before = look(side, coordinator)
            began = time.monotonic()
            job = client.submit(document(dim, clients, rounds, seed))
            detail = client.wait_status(job, "completed")
            took_s = time.monotonic() - began
            cost = {key: value - before[key] for key, value in look(side, coordinator).items()}
        finally:
            worker.terminate()
            coordinator.terminate()
    cost["ms"] = 1000 * took_s
    cost["HTTP bytes in"] = detail["bits"]["wire_bytes"]["in"]
    cost["HTTP bytes out"] = detail["bits"]["wire_bytes"]["out"]
    cost["payload bytes up"] = detail["bits"]["uplink"]["payload"] / 8
    cost["payload bytes down"] = detail["bits"]["downlink"]["payload"] / 8
    return {key: value / detail["round"] for key, value in cost.items()}


def look(side, coordinator):
    text = coordinator.client.get("/metrics").body.decode()
    return {**side.counters(),
            "processor ms, coordinator": 1000 * processor_s(coordinator.pid),
            **({"dirtied bytes": io_bytes(coordinator.pid)} if isinstance(side, SqliteSide) else {}),
            "commits": metric(text, "tally_store_commit_duration_seconds_count"),
            "commit ms": 1000 * metric(text, "tally_store_commit_duration_seconds_sum")}


def split(few, many):
    """Returns (per update, per round) from the costs of rounds with FEW and MANY clients."""
    update = (many - few) / (MANY - FEW)
    return update, few - (FEW - 1) * update


def measure(name, side, dim, rounds, runs):
    print(f"{name}, {dim} coordinates, {rounds} rounds: per update, and per round beside its updates")
    splits = {}
    for run in range(runs):
        counted = run == 0 and isinstance(side, PostgresSide)  # the proxy itself costs time
        few, many = (run_once(side, dim, clients, rounds, run + 1, counted) for clients in (FEW, MANY))
        for what in few:
            is_count = what in ("round trips", "bytes to the database", "bytes from the database")
            if (is_count and not counted) or (counted and what.split()[0] in ("ms", "processor", "commit")):
                continue
            splits.setdefault(what, []).append(split(few[what], many[what]))
    for what, values in splits.items():
        texts = [f"{statistics.median(part):12.3f} ({min(part):.3f} to {max(part):.3f})"
                 for part in zip(*values, strict=True)]
        print(f"  {what:<26} {texts[0]:<44} {texts[1]}")


def measure_polls():
    """Returns the memory of a waiting worker and of its connection."""
    with tempfile.TemporaryDirectory() as folder:
        coordinator = Coordinator(folder, store="memory:", options=("--session-timeout-ms", 600000))
        client = Client(coordinator.port)

        def resident():
            text = Path(f"/proc/{coordinator.pid}/status").read_text()
            return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS:"))

        sockets, before = [], resident()
        for i in range(N_POLLS):
            worker = ForeignWorker(client, name=f"w{i}")
            body = messages.PollTaskRequest(session=worker.session, wait_ms=60000).SerializeToString()
            connection = socket.create_connection(("127.0.0.1", coordinator.port))
            connection.sendall(
                b"POST /tally.v1.WorkerService/PollTask HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/proto\r\n"
                b"Connect-Protocol-Version: 1\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
            sockets.append(connection)
        wait_until(lambda: metric(client.get("/metrics").body.decode(), "tally_workers") == N_POLLS, "the polls")
        print(f"waiting worker: {(resident() - before) / N_POLLS:.1f} KiB of the coordinator's memory")
        for connection in sockets:
            connection.close()
        coordinator.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=4, help="runs of each load (%(default)s)")
    runs = parser.parse_args().runs
    measure_polls()
    with tempfile.TemporaryDirectory() as folder, Cluster() as cluster:
        for name, make in (("SQLite", lambda: SqliteSide(folder)), ("PostgreSQL", lambda: PostgresSide(cluster))):
            measure(name, make(), 30, 300, runs)
            measure(name, make(), 100000, 40, runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
