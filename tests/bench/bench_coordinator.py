#!/usr/bin/python3
"""How fast the coordinator is, as ratios to libmicrohttpd alone, the codec alone and itself.

    tests/bench/bench_coordinator.py [--seconds S] [--runs R]       TALLY_BIN: folder of the programs

Nearly all limits are on ratios of medians in one run of `tests/bench/run coordinator`, or on memory. The last one is
that REST responds within 50 ms with 1,000 queued and 50 running jobs, and that no job is forgotten. Results from a
machine that is busy with other work, or has fewer than two processors, mean nothing. Fails if a limit is missed.
"""

import argparse
import contextlib
import http.client
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

BIN = pathlib.Path(os.environ.get("TALLY_BIN", "build/release/bin")).resolve()
CLIENTS = 64
N_IDLE = 10000
N_RUNNING, N_QUEUED = 50, 1000
HANG_S = 120

missed = []


def verdict(text, value, limit, at_least=False):
    kept = value >= limit if at_least else value <= limit
    if not kept:
        missed.append(text)
    print(f"{text}: {value:.4g}, at {'least' if at_least else 'most'} {limit:.4g}" + ("" if kept else " MISSED"))


def bench(arguments, *options, turns=1):
    """Returns the rows by (dim, store, idle). With `turns` there are that many times more runs, each shorter by the same
    factor, so that drifts of the machine's speed cancel. Only for figures that do not depend on a run's length."""
    words = [BIN / "tally-bench", "coordinator", "--json", "--runs", str(turns * arguments.runs),
             "--seconds", str(arguments.seconds / turns), *map(str, options)]
    rows = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)
    return {(row["dim"], row["store"], row["idle"]): row for row in rows}


def throughput(arguments):
    rows = bench(arguments, "--clients", CLIENTS, "--dim", "30,7840", "--store", "sqlite,memory", turns=3)
    for (dim, store, _), row in rows.items():
        verdict(f"updates over echo requests, {CLIENTS} clients, d = {dim}, {store}", row["updates_over_echo"],
                {"sqlite": 0.5, "memory": 0.8}[store], at_least=True)


def small_round(arguments):
    row, = bench(arguments, "--clients", 10, "--dim", 30, "--store", "sqlite").values()
    verdict("ms of a round, 10 clients, d = 30, sqlite; 3 echo round trips and a commit", row["round_ms_p50"],
            3 * row["echo_ms_p50"] + row["commit_ms"])


def idle(arguments):
    rows = bench(arguments, "--clients", CLIENTS, "--dim", 30, "--store", "sqlite", "--idle", N_IDLE)
    alone, beside = rows[30, "sqlite", 0], rows[30, "sqlite", N_IDLE]
    verdict(f"bytes of memory for each of {N_IDLE} idle workers", beside["idle_bytes_each"], 20000)
    verdict("p99 of posting beside them, of that without", beside["post_ms_p99"] / alone["post_ms_p99"], 1.5)


def large(arguments):
    dim = 10 ** 6
    for (_, store, _), row in bench(arguments, "--clients", CLIENTS, "--dim", dim).items():
        verdict(f"processor time of an update, of decoding and adding up alone, d = {dim}, {store}",
                row["cpu_us_per_update"] / row["accumulate_us_per_update"], 2)
    # One measured job and the warm-up: the in-memory store keeps the points of all past jobs.
    for (_, store, _), row in bench(arguments, "--clients", CLIENTS, "--dim", dim, "--runs", 1, "--rounds", 40).items():
        verdict(f"MB of memory, d = {dim}, {store}", row["rss_mb"], (40 * dim + 100e6) / 1e6)


# Many jobs at once, with real workers. The coordinator has one processor, its clients another, as in that run.

JOB = {"name": "many", "clients": 1, "seed": 1, "encoding": "unary", "evaluate_every": 1000000,
       "algorithm": {"type": "minibatch_sgd", "step_size": 0.01, "local_steps": 1},
       "objective": {"type": "least_squares", "data": {
           "type": "synthetic_linear", "dim": 10, "points": 10, "frobenius_norm": 10.0, "noise_std": 1.0}},
       "initial_point": {"type": "zeros"}, "reference": {"type": "none"}}


class Rest:
    """One connection, which stays open, because opening one takes longer than most responses."""

    def __init__(self, port):
        self.url = f"http://127.0.0.1:{port}"
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_S)

    def text(self, path, method="GET", body=None):
        self.connection.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"} if body else {})
        answer = self.connection.getresponse()
        text = answer.read().decode()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {text}")
        return text

    def call(self, *words):
        return json.loads(self.text(*words))

    def submit(self, **changes):
        return self.call("/v1/jobs", "POST", {**JOB, **changes})["id"]

    def job(self, job):
        return self.call(f"/v1/jobs/{job}")

    def durations(self):
        """Returns the histogram of REST calls from /metrics: {upper bound in s: requests up to it}."""
        found = {}
        for bound, n in re.findall(r'tally_http_request_duration_seconds_bucket{method="GET",route="/v1/[^"]*",le="(.*?)"} (\d+)',
                                   self.text("/metrics")):
            found[float(bound)] = found.get(float(bound), 0) + int(n)
        return found


@contextlib.contextmanager
def running(processor, *words, log):
    """Context manager for a program: terminates it at the end and waits for it."""
    with open(log, "ab") as output:
        process = subprocess.Popen([str(word) for word in words], stdout=output, stderr=output,
                                   preexec_fn=lambda: os.sched_setaffinity(0, {processor}))
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def port_of(log):
    until = time.monotonic() + HANG_S
    while time.monotonic() < until:
        found = re.search(rb" port=(\d+)", pathlib.Path(log).read_bytes())
        if found:
            return int(found[1])
        time.sleep(0.01)
    raise RuntimeError("the coordinator does not listen")


def progress_of(rest, jobs):
    return [rest.job(job)["round"] for job in jobs]


def quantile(values, share):
    return sorted(values)[int(share * len(values))]


def bound_of(before, after, share):
    """Returns the histogram bound below which this share of the requests between two scrapes lies."""
    n = {bound: after[bound] - before.get(bound, 0) for bound in sorted(after)}
    return next(bound for bound, below in n.items() if below >= share * max(n.values()))


def watch_jobs(rest, running_jobs, seconds):
    """Returns the rounds that each job closed, the seconds of each REST call, and an upper bound of the server's p99."""
    took = []
    before, durations = progress_of(rest, running_jobs), rest.durations()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for path in ("/v1/jobs?limit=100", f"/v1/jobs/{running_jobs[len(took) % N_RUNNING]}", "/v1/workers"):
            start = time.monotonic()
            rest.text(path)
            took.append(time.monotonic() - start)
    at_server = bound_of(durations, rest.durations(), 0.99)
    return [b - a for a, b in zip(before, progress_of(rest, running_jobs))], took, at_server


def many_jobs(arguments):
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        log = pathlib.Path(folder) / "log"
        stack.callback(os.sched_setaffinity, 0, os.sched_getaffinity(0))
        of_server, of_clients = (sorted(os.sched_getaffinity(0)) * 2)[:2]
        os.sched_setaffinity(0, {of_clients})
        stack.enter_context(running(of_server, BIN / "tally-coordinator", "--listen", "127.0.0.1:0",
                                    "--store", f"sqlite:{folder}/tally.db", log=log))
        rest = Rest(port_of(log))
        long = [rest.submit(horizon=10 ** 9) for _ in range(N_RUNNING)]
        short = [rest.submit(horizon=5) for _ in range(N_QUEUED)]
        workers = [pathlib.Path(folder) / name for name in ("first", "second")]
        for worker in workers:
            stack.enter_context(running(of_clients, BIN / "tally-worker", "--coordinator", rest.url, "--name",
                                        worker.name, "--clients", N_RUNNING // 2, log=worker))
        until = time.monotonic() + HANG_S
        while any(rest.job(job)["status"] == "queued" for job in long):
            if time.monotonic() > until:
                raise RuntimeError(f"the jobs do not start; a worker says: {workers[0].read_text()[-300:]}")
            time.sleep(0.1)
        rounds, took, at_server = watch_jobs(rest, long, max(5, arguments.seconds))
        verdict(f"rounds of the slowest of {N_RUNNING} jobs, of their median, with {N_QUEUED} queued",
                min(rounds) / max(1, statistics.median(rounds)), 0.5, at_least=True)
        print(f"REST then: {len(took)} calls, p50 {1000 * quantile(took, 0.5):.2g} ms; at the server p99 at most "
              f"{1000 * at_server:g} ms")
        verdict("p99 of REST then, ms", 1000 * quantile(took, 0.99), 50)
        for job in long:
            rest.text(f"/v1/jobs/{job}/cancel", "POST")
        until = time.monotonic() + HANG_S
        left = short
        while left and time.monotonic() < until:
            left = [job for job in left if rest.job(job)["status"] != "completed"]
        verdict("of the queued jobs, share that is completed once there is room", 1 - len(left) / N_QUEUED, 1,
                at_least=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2, help="of each run (%(default)s)")
    parser.add_argument("--runs", type=int, default=5, help="repetitions (%(default)s)")
    parser.add_argument("parts", nargs="*", metavar="PART", help="of throughput, small_round, idle, large, many_jobs")
    arguments = parser.parse_args()
    parts = {part.__name__: part for part in (throughput, small_round, idle, large, many_jobs)}
    for name in arguments.parts or parts:
        parts[name](arguments)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
