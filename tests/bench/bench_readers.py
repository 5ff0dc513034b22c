#!/usr/bin/python3
"""How long the rounds of a job take beside hostile readers and beside refused batches, as ratios.

    tests/bench/bench_readers.py [--rounds N] [--jobs N] [--seconds S]
        TALLY_BIN: folder of the programs, TALLY_PYTHON_PROTO: that of the Python messages

One coordinator on SQLite runs a job of ten workers, one of which is this program and times the rounds. First nobody
reads; then ten processes read without a pause: lists of 1,000 jobs, the CSV file of a long job with 16 metrics, its
series, and all of them in turn. At last another worker posts batches, as long as the coordinator takes them, of updates of
10^6 coordinates that decode and are then refused. Shown are the median and the worst time of a round and of GET /healthz, and how many workers have
lost their session. The readers take processor time too, so on two cores a round is slower even if no read delays it.
"""

import argparse
import contextlib
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration"))

from common import BIN, FORMAT, Client, Coordinator, ForeignWorker, Worker, job_document, messages, wait_until  # noqa: E402

N_READERS, N_METRICS, MOST_UPDATES = 10, 16, 4096
READER = """
import http.client, itertools, sys
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=600)
for path in itertools.cycle(sys.argv[2:]):
    connection.request("GET", path)
    answer = connection.getresponse()
    while answer.read(1 << 20):
        pass
    assert answer.status == 200, (path, answer.status)
"""


def rounds_of(worker, job, metrics=()):
    """Plays the rounds of a job with one client, without an end; yields before each."""
    task = worker.poll_task()
    while True:
        yield task
        update = worker.update(task, task.clients[0], payload=bytes(120), payload_bits=960, mark=task.mark)
        for name in metrics:
            update.updates[0].metrics.add(name=name, value=task.round / 3)
        update.poll.wait_ms = 10000
        update.poll.cursors.add(job_id=job, iterate=task.iterate)
        answer = worker.post(update)
        worker.cursors = {job: task.iterate}
        if answer.HasField("next") and answer.next.WhichOneof("kind") == "task":
            task = answer.next.task
        elif answer.HasField("next") and answer.next.WhichOneof("kind") == "released":
            return
        else:
            task = worker.poll_task()


class Clock:
    """Times of what is repeated, in ms, the unfinished one included."""

    def __init__(self):
        self.times, self.begun = [], time.monotonic()

    def tick(self):
        now = time.monotonic()
        self.times.append(1000 * (now - self.begun))
        self.begun = now

    def take(self):
        times, self.times = self.times + [1000 * (time.monotonic() - self.begun)], []
        return times


class Bench:
    def __init__(self, folder, args):
        self.args = args
        self.coordinator = Coordinator(folder, store=f"sqlite:{folder}/tally.db",
                                       options=("--max-jobs", str(args.jobs + 10), "--log-level", "warn"))
        self.client = Client(self.coordinator.port)
        self.long_job = self.run_long_job()
        document = job_document("synthetic-minibatch-sgd", clients=100, horizon=10**8)
        for seed in range(args.jobs):
            self.client.submit({**document, "seed": seed + 1})
        self.job = self.client.submit(job_document("synthetic-minibatch-sgd", clients=10, horizon=10**8))
        self.workers = [Worker(folder, self.coordinator.url, f"w{i}", options=("--job", self.job)) for i in range(9)]
        self.rounds, self.health = Clock(), Clock()
        self.usual = None
        self.is_ended = False
        for target in self.time_rounds, self.time_health:
            threading.Thread(target=target, daemon=True).start()
        wait_until(lambda: len(self.rounds.times) > 1000, "the job to run")

    def run_long_job(self):
        job = self.client.submit(job_document("synthetic-minibatch-sgd", clients=1, quorum=1,
                                              horizon=self.args.rounds))
        worker = ForeignWorker(self.client, name="long", job_id=job)
        for _ in rounds_of(worker, job, [f"metric_{i}" for i in range(N_METRICS)]):
            pass
        worker.leave()
        return job

    def time_rounds(self):
        worker = ForeignWorker(Client(self.coordinator.port), name="timer", job_id=self.job)
        with contextlib.suppress(OSError, http.client.HTTPException):  # the coordinator ends
            for _ in rounds_of(worker, self.job):
                self.rounds.tick()

    def time_health(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.coordinator.port, timeout=600)
        while not self.is_ended:
            self.health.begun = time.monotonic()
            connection.request("GET", "/healthz")
            connection.getresponse().read()
            self.health.tick()
            time.sleep(0.02)

    def measure(self, name):
        time.sleep(1)
        self.rounds.take(), self.health.take()
        time.sleep(self.args.seconds)
        rounds, health = sorted(self.rounds.take()), sorted(self.health.take())
        median = statistics.median(rounds)
        self.usual = self.usual or (median, rounds[-1])
        lost = sum("session timed out" in line for line in self.coordinator.log().splitlines())
        print(f"{name:8} rounds {len(rounds):6}  median {median:7.2f} ms ({median / self.usual[0]:4.1f} x)  worst "
              f"{rounds[-1]:7.1f} ms ({rounds[-1] / self.usual[1]:4.1f} x)  /healthz median "
              f"{statistics.median(health):6.2f} ms, worst {health[-1]:6.1f} ms  lost sessions {lost}", flush=True)

    def beside_readers(self, name, *paths):
        readers = [subprocess.Popen([sys.executable, "-c", READER, str(self.coordinator.port),
                                     *paths[i % len(paths):], *paths[:i % len(paths)]]) for i in range(N_READERS)]
        self.measure(name)
        for reader in readers:
            assert reader.poll() is None, "a reader has failed"
            reader.kill()
            reader.wait()

    def beside_refusals(self):
        dim = 10**6
        document = job_document("synthetic-ceal", clients=1, quorum=1, horizon=1000, encoding="entropy",
                                reference={"type": "none"})
        document["objective"] = {"type": "plugin", "name": "zero", "dim": dim}
        job = self.client.submit(document)
        client = Client(self.coordinator.port)
        join = messages.JoinRequest(name="refused", slots=1, job_id=job, format=FORMAT)
        max_batch_bytes = client.call("Join", join, messages.JoinResponse).max_batch_bytes
        worker = ForeignWorker(client, name="refused", job_id=job)
        task = worker.poll_task()
        payload, bits = zeros(dim, task.quantizer_intervals)
        request = messages.PostUpdateRequest(session=worker.session, job_id=job, round=task.round, mark=task.mark)
        for _ in range(min(MOST_UPDATES, int(0.9 * max_batch_bytes / (len(payload) + 9)))):
            request.updates.add(client=task.clients[0], payload=payload, payload_bits=bits + 1)
        codes = []

        def post():
            with contextlib.suppress(OSError):  # the coordinator ends
                while not self.is_ended:
                    answer = client.call("PostUpdate", request, messages.PostUpdateResponse)
                    codes.append({result.code for result in answer.results})

        threading.Thread(target=post, daemon=True).start()
        self.measure("refused")
        print(f"         {len(codes)} batches of {len(request.updates)} updates of {len(payload)} bytes got "
              f"{sorted(set.union(*codes)) if codes else 'no answer'}")

    def run(self):
        self.measure("alone")
        csv, series = f"/v1/jobs/{self.long_job}/rounds.csv", f"/v1/jobs/{self.long_job}/series?points=10000"
        lists = "/v1/jobs?limit=1000"
        self.beside_readers("lists", lists)
        self.beside_readers("csv", csv)
        self.beside_readers("series", series)
        self.beside_readers("all", lists, csv, series)
        self.beside_refusals()

    def end(self):
        self.is_ended = True
        for worker in self.workers:
            worker.kill()
        self.coordinator.kill()


def zeros(dim, intervals):
    """A message of zeros in the entropy coding, as bytes and bits."""
    import numpy

    with tempfile.TemporaryDirectory() as folder:
        numpy.save(f"{folder}/zeros.npy", numpy.zeros(dim, dtype=numpy.int32))
        shown = subprocess.run([BIN / "tally", "encode", f"{folder}/zeros.npy", "--intervals", str(intervals),
                                "--out", f"{folder}/payload"], check=True, capture_output=True, text=True).stdout
        return Path(f"{folder}/payload").read_bytes(), json.loads(shown)["payload_bits"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40000, help="of the long job (default %(default)s)")
    parser.add_argument("--jobs", type=int, default=1000, help="queued jobs in the lists (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=8, help="of each measurement (default %(default)s)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), args)
        try:
            bench.run()
        finally:
            bench.end()


if __name__ == "__main__":
    main()
