"""Many small jobs at once on one coordinator or several: their results, and how fast they are.

The jobs are deliberately small. 200 of them are 400 clients whose computation is negligible next to the work of
coordinators and store.
"""

import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path

for folder in ("integration", "postgres"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / folder))

from common import (  # noqa: E402
    HANG_S, Coordinator, Worker, essence, job_document, simulate, wait_until,
)

N_JOBS = 200
CLIENTS = 2
N_WORKERS = 8
LIVE = ("queued", "running")


def documents(n_jobs=N_JOBS, scale=1):
    """Returns distinct jobs of two kinds, each of about 13 times `scale` rounds."""
    shape = {"clients": CLIENTS, "quorum": CLIENTS, "objective__data__dim": 8,
             "objective__data__points": 40, "objective__data__frobenius_norm": 10}
    return [
        job_document("synthetic-ceal", horizon=400 * scale, seed=seed, **shape) if seed % 2 == 0
        else job_document("synthetic-fedpaq", horizon=200 * scale, seed=seed, algorithm__local_steps=10, **shape)
        for seed in range(1, n_jobs + 1)
    ]


def metric(text, name, **labels):
    """Returns the sum over all samples of a metric with these labels; 0 if there are none."""
    total = 0.0
    for line in text.splitlines():
        found = re.fullmatch(rf"{name}(?:\{{(.*)\}})? (\S+)", line)
        if found and all(f'{key}="{value}"' in (found[1] or "") for key, value in labels.items()):
            total += float(found[2])
    return total


@dataclass
class Outcome:
    name: str
    seconds: float
    rounds: int
    updates: int
    most_running: int
    commits: int
    conflicts: int
    fenced: int
    takeovers: int
    given: int
    led: list  # rounds closed by each coordinator
    details: list

    def line(self):
        return (f"{self.name:<36} {self.rounds / self.seconds:7.0f} rounds/s {self.updates / self.seconds:7.0f} "
                f"updates/s  {self.updates / max(1, self.commits):5.2f} updates/commit  "
                f"{100 * self.conflicts / max(1, self.commits):6.3f} % conflicts  {self.fenced} fenced writes  "
                f"{self.takeovers} take-overs, {self.given} jobs given  {self.seconds:6.1f} s, {self.most_running} jobs at once")


class Crowd:
    """A context manager for coordinators on one store and their workers; it ends them."""

    def __init__(self, name, folder, store, n_coordinators=1, options=()):
        self.name, self.processes = name, []
        self.folder = Path(folder)
        self.folder.mkdir()
        self.coordinators = [self._start(store, i, options) for i in range(n_coordinators)]

    def _start(self, store, index, options):
        coordinator = Coordinator(self.folder, store=store, name=f"coordinator-{index}", options=options)
        self.processes.append(coordinator)
        return coordinator

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.terminate()

    def _metrics(self):
        return [each.client.get("/metrics").body.decode() for each in self.coordinators]

    def _sum(self, texts, name, **labels):
        return int(sum(metric(text, name, **labels) for text in texts))

    def _is_done(self):
        """Returns whether all jobs have ended; keeps the largest number of running jobs seen."""
        running = self._sum(self._metrics(), "tally_jobs", status="running")
        self.most_running = max(self.most_running, running)
        client = self.coordinators[0].client
        return running == 0 and not any(client.get_json(f"/v1/jobs?limit=1&status={status}")["jobs"]
                                        for status in LIVE)

    def run(self, jobs):
        """Submits all jobs, then starts the workers, and waits until all jobs have ended."""
        n = len(self.coordinators)
        ids = [self.coordinators[i % n].client.submit(job) for i, job in enumerate(jobs)]
        self.most_running = 0
        slots = CLIENTS * len(jobs) // N_WORKERS
        began = time.monotonic()
        for i in range(N_WORKERS):
            self.processes.append(Worker(self.folder, self.coordinators[i % n].url, f"w{i}", clients=slots))
        wait_until(self._is_done, f"{len(jobs)} jobs on {self.name}", HANG_S, pause_s=0.1)
        seconds = time.monotonic() - began
        texts = self._metrics()
        client = self.coordinators[0].client
        details = [client.job(job_id) for job_id in ids]
        return Outcome(
            name=self.name, seconds=seconds, rounds=sum(each["round"] for each in details),
            updates=sum(each["bits"]["uplink"]["messages"] for each in details),
            most_running=self.most_running,
            commits=self._sum(texts, "tally_store_commit_duration_seconds_count"),
            conflicts=self._sum(texts, "tally_store_retried_conflicts_total"),
            fenced=self._sum(texts, "tally_store_fenced_writes_total"),
            takeovers=self._sum(texts, "tally_replica_jobs_lost_total"),
            given=self._sum(texts, "tally_replica_jobs_given_total"),
            led=[metric(text, "tally_rounds_total") for text in texts],
            details=details,
        )


def differing(outcome, jobs):
    """Returns the jobs whose result differs from the simulation."""
    return [detail["id"] for detail, job in zip(outcome.details, jobs, strict=True)
            if essence(detail) != essence(simulate(job))]
