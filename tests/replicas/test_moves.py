"""Event streams and long polls while the jobs that they watch move from one coordinator to another."""

import concurrent.futures
import http.client
import threading
import time
import unittest

from replicas import PORT, ReplicasTestCase

from common import ForeignWorker, wait_until
from event_stream import Stream, assert_same_rounds
from lanes import CLIENTS, documents, essence, simulate

SILENCE_S = 4  # far above the heartbeat; the reader takes the stream for dead then
AWAY_S = 2  # after the job has moved
STRIKES = ("kill", "pause", "cut off from everybody", "cut off from the database")


class Reader(threading.Thread):
    """Reads the rounds of a job to its end as a browser does: it resumes after the last one it has."""

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
                time.sleep(0.1)
        except BaseException as error:  # for the test to raise
            self.error = error

    def _read(self):
        """One connection; whether there may be more to come."""
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
    def submit_to(self, name, document):
        """A job that this replica leads, as whoever takes a job in does."""
        job_id = self.replicas[name].client.submit(document)
        self.assertEqual(self.leaders()[job_id][0], name)
        return job_id

    def wait_for_leader(self, job_id, *, other_than=None):
        """The replica that leads the job once it gets on."""

        def look():
            leader, _, rounds = self.leaders()[job_id]
            return leader if leader not in (None, other_than) and rounds > 0 else None

        return wait_until(look, "the job to be led")

    def test_streams_survive(self):
        self.build("a", "b")
        proxy = self.start_proxy()
        self.start_workers([CLIENTS] * 2, proxy.url)
        document = documents("synthetic-ceal-long", 800)[0]
        job_id = self.client.submit(document)
        readers = {where: Reader(self.network.address(where), job_id) for where in ("lb", *self.replicas)}
        for kind in STRIKES:
            leader = self.wait_for_leader(job_id)
            time.sleep(self.random.uniform(0, 1))
            (other,) = set(self.replicas) - {leader}
            unbroken = readers[other].connections
            self.strike(kind, leader)
            self.assertEqual(self.wait_for_leader(job_id, other_than=leader), other)
            before = len(readers[other].rounds)
            wait_until(lambda: len(readers[other].rounds) > before, "rounds told by the new leader")
            if self.random.random() < 0.7:
                time.sleep(self.random.uniform(0, AWAY_S))
            self.assertEqual(readers[other].connections, unbroken, "the stream of the other replica broke")
            self.revive()
            wait_until(self.all_are_ready, "all replicas to be ready")
        detail = self.client.wait_status(job_id, "completed")
        self.assertEqual(essence(detail), essence(simulate(document)))
        records = self.client.rounds(job_id)
        for where, reader in readers.items():
            wait_until(lambda: not reader.is_alive(), f"the reader at {where} to be told the end")
            if reader.error is not None:
                raise reader.error
            self.say(f"{where}: {len(reader.rounds)} rounds over {reader.connections} connections")
            assert_same_rounds(self, reader.rounds, records)
        self.assertGreater(readers["lb"].connections, 1)
        self.assert_ends_well(*self.workers, *self.replicas.values())

    def test_a_long_poll_survives(self):
        """Two workers have their sessions at b, and a, which leads their job, goes away."""
        self.build("a", "b")
        document = documents("synthetic-ceal-long", 800)[0] | {"clients": 2, "quorum": 2}
        for kind in ("kill", "pause"):
            job_id = self.submit_to("a", document)
            here = self.replicas["b"].client
            early, late = (ForeignWorker(here, name, job_id=job_id) for name in ("early", "late"))
            tasks = [worker.poll_task() for worker in (early, late)]
            self.assertEqual(self.leaders()[job_id][0], "a", "the job has moved without need")
            early.post(early.update(tasks[0], tasks[0].clients[0]))
            early.cursors[job_id] = tasks[0].iterate
            with concurrent.futures.ThreadPoolExecutor() as pool:
                poll = pool.submit(early.poll, wait_ms=30000)
                time.sleep(0.5)
                self.assertFalse(poll.done(), "there was nothing to wait for")
                self.strike(kind, "a")
                wait_until(lambda: self.leaders()[job_id][0] == "b", "b to lead the job")
                update = late.update(tasks[1], tasks[1].clients[0])
                wait_until(lambda: self.is_taken(late, update), "the late update to be taken")
                task = poll.result().task
            self.assertEqual((task.job_id, task.round), (job_id, tasks[0].round + 1))
            self.assertEqual(self.client.post(f"/v1/jobs/{job_id}/cancel").status, 200)
            for worker in (early, late):
                worker.leave()
            self.revive()
            wait_until(self.all_are_ready, "all replicas to be ready")

    def is_taken(self, worker, update):
        """A worker posts until it is answered for good."""
        answer = worker.client.call_raw("PostUpdate", update.SerializeToString())
        self.assertIn(answer.status, (200, 503, 504), answer)
        return answer.status == 200


if __name__ == "__main__":
    unittest.main()
