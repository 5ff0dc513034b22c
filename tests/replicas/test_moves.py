"""Event streams and long polls while their jobs move from one coordinator to another; workers that a job brings
together."""

import concurrent.futures
import http.client
import threading
import time
import unittest
from pathlib import Path

from replicas import PORT, WORKER_OPTIONS, ReplicasTestCase

from common import ENDLESS, ConnectError, ForeignWorker, Worker, essence_so_far, wait_until
from event_stream import Stream, assert_same_rounds
from lanes import CLIENTS, documents

SILENCE_S = 15  # much longer than the heartbeat; a stream silent for so long is considered dead
POLL_S = 15  # on a machine that is not busy; much less than the 30 s for which the poll may wait
AWAY_S = 2  # once the job has moved
STRIKES = ("kill", "pause", "cut off from everybody", "cut off from the database")


class Reader(threading.Thread):
    """Reads a job's rounds to the end as a browser does, resuming after the last one received."""

    def __init__(self, host, job_id):
        super().__init__(daemon=True)
        self.host, self.job_id = host, job_id
        self.rounds = []
        self.connections = 0
        self.error = None
        self.start()

    def run(self):
        try:
            while self._read():
                time.sleep(0.1)  # between two attempts
        except BaseException as error:  # raised by the test
            self.error = error

    def _read(self):
        """Reads one connection; returns whether more may follow."""
        last = self.rounds[-1]["round"] if self.rounds else 0
        try:
            with Stream(PORT, self.job_id, last_event_id=last, timeout_s=SILENCE_S, host=self.host) as stream:
                if stream.status != 200:
                    return stream.status != 204
                self.connections += 1
                for data in stream.rounds():
                    self.rounds.append(data)
        except (OSError, http.client.HTTPException):
            pass
        return True


class Moves(ReplicasTestCase):
    def wait_for_leader(self, job_id, *, other_than=None):
        def look():
            leader = self.leaders()[job_id][0]
            return leader if leader not in (None, other_than) else None

        return wait_until(look, "the job to be led")

    def wait_for_reader(self, reader, more):
        """Waits until the reader has received n more rounds."""
        wanted = self.leaders()[reader.job_id][2] + more
        wait_until(lambda: len(reader.rounds) >= wanted, f"round {wanted} to be told")

    def test_streams_survive(self):
        self.build("a", "b", options=("--heartbeat-ms", 500))
        proxy = self.start_proxy()
        self.start_workers([CLIENTS] * 2, proxy.url)
        document = documents("synthetic-ceal-long", ENDLESS)[0]
        job_id = self.client.submit(document)
        readers = {where: Reader(self.network.address(where), job_id) for where in ("lb", *self.replicas)}
        for kind in STRIKES:
            leader = self.wait_for_leader(job_id)
            (other,) = set(self.replicas) - {leader}
            self.wait_for_reader(readers[other], 1)
            time.sleep(self.random.uniform(0, 1))  # at any moment
            unbroken = readers[other].connections
            self.strike(kind, leader)
            self.assertEqual(self.wait_for_leader(job_id, other_than=leader), other)
            self.wait_for_reader(readers[other], 3)
            time.sleep(self.random.uniform(0, AWAY_S))  # duration of the fault
            self.assertEqual(readers[other].connections, unbroken, "the stream of the other replica broke")
            self.revive()
            wait_until(self.all_are_ready, "all replicas to be ready")
        self.assertEqual(self.client.post(f"/v1/jobs/{job_id}/cancel").status, 200)
        detail = self.client.wait_status(job_id, "cancelled")
        self.assertEqual(*essence_so_far(detail, document))
        records = self.client.rounds(job_id)
        for where, reader in readers.items():
            wait_until(lambda: not reader.is_alive(), f"the reader at {where} to be told the end")
            if reader.error is not None:
                raise reader.error
            self.say(f"{where}: {len(reader.rounds)} rounds over {reader.connections} connections")
            assert_same_rounds(self, reader.rounds, records)
        self.assertGreater(readers["lb"].connections, 1)
        self.assert_ends_well(*self.workers, *self.replicas.values())

    def test_long_polls_survive(self):
        """Behind nginx, one worker has answered and waits for the next round. The other answers once the leader is
        gone."""
        self.build("a", "b")
        document = documents("synthetic-ceal-long", ENDLESS)[0] | {"clients": 2, "quorum": 2}
        for kind in STRIKES:
            job_id = self.client.submit(document)
            early, late = (SteadyWorker(self.client, name, job_id) for name in ("early", "late"))
            tasks = [worker.next_task() for worker in (early, late)]
            early.answer(tasks[0])
            with concurrent.futures.ThreadPoolExecutor() as pool:
                poll = pool.submit(early.next_task)
                time.sleep(0.5)  # nothing happens for the time of many rounds
                self.assertFalse(poll.done(), "there was nothing to wait for")
                leader = self.wait_for_leader(job_id)
                began, lateness = time.monotonic(), self.lateness()
                self.strike(kind, leader)
                late.answer(tasks[1])
                task = poll.result()
            took_s, late_s = time.monotonic() - began, lateness.seconds()
            self.say(f"{kind}: the next round came after {took_s:.1f} s, {late_s:.1f} s of it without a processor, "
                     f"over {early.joins} sessions")
            self.assertNotEqual(self.leaders()[job_id][0], leader)
            self.assertEqual((task.job_id, task.round), (job_id, tasks[0].round + 1))
            self.assertLess(took_s - late_s, POLL_S)
            self.assertEqual(self.client.post(f"/v1/jobs/{job_id}/cancel").status, 200)
            self.revive()
            wait_until(self.all_are_ready, "all replicas to be ready")
        self.assertEqual(self.stray_writes(), [])

    def test_two_workers_of_one_name_are_told_when_they_meet(self):
        """At different replicas they do not disturb each other. A job that needs both brings them together."""
        self.build("a", "b", options=("--heartbeat-ms", 500))
        for name, replica in self.replicas.items():
            folder = Path(self.folder, f"at-{name}")
            folder.mkdir()
            self.workers.append(Worker(folder, replica.url, "twin", options=WORKER_OPTIONS))
        self.processes.extend(self.workers)

        def listed():
            return self.client.get_json("/v1/workers")["workers"]

        def both():  # a list may lack the workers of a replica that does not answer in time
            workers = listed()
            return workers if len(workers) == 2 else None

        self.assertEqual([worker["rival"] for worker in wait_until(both, "both workers in the list")], [None, None])
        self.client.submit(documents("synthetic-ceal-long", ENDLESS)[0] | {"clients": 2, "quorum": 2})
        for worker in self.workers:
            wait_until(lambda log=worker.log: 'event="another worker has the same name" worker=twin' in log(),
                       "the worker's warning")
        wait_until(lambda: any(worker["rival"] for worker in listed()), "the rival in the list")
        self.assertIn('event="two workers have the same name" worker=twin',
                      "".join(replica.log() for replica in self.replicas.values()))
        self.assert_ends_well(*self.workers, *self.replicas.values())


class SteadyWorker:
    """A client that repeats requests as a worker does, and joins again if its session is unknown."""

    def __init__(self, client, name, job_id):
        self.client, self.name, self.job_id = client, name, job_id
        self.held = ()
        self.joins = 0
        self.join()

    def join(self):
        self.worker = ForeignWorker(self.client, self.name, job_id=self.job_id, held=self.held)
        self.joins += 1

    def _until_answered(self, call):
        while True:
            try:
                return call()
            except ConnectError as error:
                if error.code != "not_found":
                    raise
                self.join()

    def next_task(self):
        def look():
            answer = self._until_answered(lambda: self.worker.poll(wait_ms=30000))
            return answer.task if answer.WhichOneof("kind") == "task" else None

        task = wait_until(look, "a task")
        self.held = [(self.job_id, client) for client in task.clients]
        return task

    def answer(self, task):
        self._until_answered(lambda: self.worker.post(self.worker.update(task, task.clients[0])))


if __name__ == "__main__":
    unittest.main()
