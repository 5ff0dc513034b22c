#!/usr/bin/python3
"""Rounds at the size of people's models: what an update costs the coordinator, and how long a round takes.

    tests/bench/bench_models.py [--dim N] [--rounds N] [--clients N] [--stores memory:,sqlite:] [--repeat N] [--json]
        TALLY_BIN: folder of the programs, TALLY_LIBRARY: path of libtally.so.1, beside it unless set

One Python worker runs all clients and posts updates that were computed in advance, so that nearly all that is measured
is Tally. Jobs are `fedavg` (float32), `fedpaq` with 7 levels, and `fedavg` with `compression`. The first rounds are not measured. The processor time
is that of the coordinator, per update, also as a ratio to the unavoidable: adding as many float32 values to as many
doubles, measured in the same run (median of the runs between the jobs). The highest memory is that of the coordinator.
Fails if a ratio, or the memory with SQLite, misses its limit. On a machine that is busy with other work the worker needs
more than 250 ms for a round; it then posts in several requests, and the store takes most of the updates.
"""

import argparse
import ctypes
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy

PACKAGE = str(pathlib.Path(__file__).resolve().parents[2] / "api" / "python")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))

from common import BIN, Coordinator, memory_bytes  # noqa: E402

METHODS = {"fedavg": {"type": "fedavg"}, "fedpaq": {"type": "fedpaq", "levels": 7},
           "compressed": {"type": "fedavg", "compression": "auto"}}
WARM_UP = 3  # rounds
# Ratios, at the dimension and the number of clients that are the defaults; with margin, as the yardstick varies.
LIMITS = {("fedavg", "memory:"): 14, ("fedavg", "sqlite:"): 20, ("fedpaq", "memory:"): 9, ("fedpaq", "sqlite:"): 12,
          ("compressed", "memory:"): 8, ("compressed", "sqlite:"): 8}
MOST_MB = 120
POLL_S = 0.1  # a request costs the coordinator about as much as it spends on a tenth of a float32 update
WORKER = """
import sys, numpy, tally
url, job, clients, dim = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
updates = [numpy.random.default_rng(m).standard_normal(dim) * 1e-3 for m in range(clients)]
tally.run_worker(url, lambda x, query: updates[query.client], dim, clients=clients, job=job, name="bench")
"""
ADDING = """
#include <stddef.h>
void add(double *sums, const float *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        sums[i] += (double)values[i];
    }
}
"""


def yardstick(folder, dim):
    """A function that returns the milliseconds of adding `dim` floats to doubles once."""
    (folder / "add.c").write_text(ADDING)
    subprocess.run(["cc", "-O3", "-shared", "-fPIC", "-o", folder / "add.so", folder / "add.c"], check=True)
    add = ctypes.CDLL(str(folder / "add.so")).add
    sums, values = numpy.zeros(dim), numpy.ones(dim, numpy.float32)

    def measure():
        times = []
        for _ in range(20):
            began = time.perf_counter()
            add(sums.ctypes.data_as(ctypes.c_void_p), values.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(dim))
            times.append(time.perf_counter() - began)
        return statistics.median(times) * 1000

    return measure


def cpu_ms(pid):
    tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e6


def wait_for(client, job, rounds):
    while True:
        detail = client.job(job)
        if detail["round"] >= rounds:
            return
        if detail["status"] not in ("queued", "running"):
            raise RuntimeError(detail)
        time.sleep(POLL_S)


def run(folder, method, store, options):
    store = store if store == "memory:" else f"sqlite:{folder / 'tally.db'}"
    coordinator = Coordinator(folder, store=store)
    document = {"objective": {"type": "plugin", "name": "python", "dim": options.dim},
                "algorithm": {**METHODS[method], "step_size": 1, "local_steps": 1}, "clients": options.clients,
                "horizon": WARM_UP + options.rounds + 1, "seed": 1, "reference": {"type": "none"}}
    client = coordinator.client
    job = client.submit(document)
    worker = subprocess.Popen([sys.executable, "-c", WORKER, coordinator.url, job, str(options.clients),
                               str(options.dim)],
                              env={"TALLY_LIBRARY": str(BIN.parent / "lib/libtally.so.1"), **os.environ,
                                   "PYTHONPATH": PACKAGE}, stderr=subprocess.DEVNULL)
    try:
        wait_for(client, job, WARM_UP)
        pid = coordinator.pid
        began, cpu, first = time.monotonic(), cpu_ms(pid), client.job(job)["round"]
        wait_for(client, job, WARM_UP + options.rounds)
        rounds = client.job(job)["round"] - first
        took, spent = time.monotonic() - began, cpu_ms(pid) - cpu
        return {"round_ms": took / rounds * 1000, "cpu_ms": spent / rounds / options.clients,
                "memory_mb": memory_bytes(pid, "VmHWM") / 1e6}
    finally:
        worker.terminate()
        worker.wait()
        coordinator.terminate()


def check(rows):
    """Prints the limits that are missed, by the medians of repeated runs; returns the exit status."""
    missed = []
    for (method, store), limit in LIMITS.items():
        own = [row for row in rows if (row["method"], row["store"]) == (method, store)]
        if own and (ratio := statistics.median(row["ratio"] for row in own)) > limit:
            missed.append(f"{method} with {store} has ratio {ratio:.1f}, limit {limit}")
        if own and store == "sqlite:" and (most := max(row["memory_mb"] for row in own)) > MOST_MB:
            missed.append(f"{method} with {store} took {most:.0f} MB, limit {MOST_MB}")
    for line in missed:
        print(f"MISSED: {line}")
    return 1 if missed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dim", type=int, default=1010850)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--stores", default="memory:,sqlite:")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        measure = yardstick(pathlib.Path(name), options.dim)
        adding = [measure()]
        for _ in range(options.repeat):
            for method in options.methods.split(","):
                for store in options.stores.split(","):
                    with tempfile.TemporaryDirectory() as folder:
                        rows.append({"method": method, "store": store,
                                     **run(pathlib.Path(folder), method, store, options)})
                    adding.append(measure())
    adding_ms = statistics.median(adding)
    for row in rows:
        row["ratio"] = row["cpu_ms"] / adding_ms
    if options.json:
        print(json.dumps({"dim": options.dim, "clients": options.clients, "adding_ms": adding_ms, "rows": rows}))
        return
    print(f"d = {options.dim}, {options.clients} clients; adding float32 to doubles: {adding_ms:.2f} ms")
    print("METHOD  STORE    ROUND MS  CPU MS/UPDATE  RATIO  MOST MB")
    for row in rows:
        print(f"{row['method']:7} {row['store']:8} {row['round_ms']:8.0f} {row['cpu_ms']:14.2f} {row['ratio']:6.1f} "
              f"{row['memory_mb']:8.0f}")
    if (options.dim, options.clients) == (parser.get_default("dim"), parser.get_default("clients")):
        sys.exit(check(rows))


main()
