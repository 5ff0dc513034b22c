"""Whole messages are delayed, reordered or duplicated, or arrive when nobody is waiting for them any more."""

import contextlib
import socket
import threading
import time
import unittest

from service import (
    CLIENTS, ENDLESS, LONG_JOB, Exchange, FaultTestCase, RecordingProxy, job_document, read_message,
)

WORKERS = 5
OPTIONS = ("--session-timeout-ms", "500")
WORKER_OPTIONS = ("--wait-ms", "300")
KILLS = 5
LATE_S = 60  # the longest that a delivery waits for its response


class Courier(RecordingProxy):
    """Delivers requests and responses at random times. When a request is late, its worker has already seen a broken
    connection and repeated the request."""

    FATES = {"pass": 88, "late": 3, "twice": 5, "answer lost": 2, "stuck": 2}

    def __init__(self, port, random):
        super().__init__(port)
        self._random = random
        self._closed = False
        self.fates = dict.fromkeys(self.FATES, 0)

    def _draw(self):
        with self._lock:
            fate = self._random.choices(list(self.FATES), self.FATES.values())[0]
            self.fates[fate] += 1
            quick = self._random.random() < 0.97
            delays = [self._random.uniform(0, 0.004 if quick else 0.2) for _ in range(2)]
            return fate, delays, self._random.uniform(0, 0.8)

    def _pass_on(self, connection, upstream):
        from_worker, from_coordinator = connection.makefile("rb"), upstream.makefile("rb")
        while request := read_message(from_worker):
            fate, delays, late_s = self._draw()
            if fate in ("late", "twice"):
                threading.Timer(late_s, self._deliver_late, [request]).start()
            if fate == "late":
                return
            # Longer than the session timeout, so the worker's clients are reassigned in the meantime.
            time.sleep(late_s if fate == "stuck" else delays[0])
            response = self._deliver(request, upstream, from_coordinator)
            if not response or fate == "answer lost":
                return
            time.sleep(delays[1])
            connection.sendall(response)

    def _deliver(self, request, upstream, from_coordinator):
        with self._lock:
            n_before = len(self.exchanges)
        upstream.sendall(request)
        response = read_message(from_coordinator)
        if response:
            with self._lock:
                self.exchanges.append(Exchange(request, response, n_before))
        return response

    def _deliver_late(self, request):
        with contextlib.suppress(OSError):
            with socket.create_connection(self.address, LATE_S) as upstream:
                self._deliver(request, upstream, upstream.makefile("rb"))


class Disorder(FaultTestCase):
    def test_messages_late_twice_and_out_of_order(self):
        document = job_document(LONG_JOB, horizon=ENDLESS)
        coordinator = self.start_coordinator(options=OPTIONS)
        courier = Courier(coordinator.port, self.random)
        self.addCleanup(courier.close)
        url, coordinator.url = coordinator.url, courier.url
        workers = [
            self.start_worker(coordinator, f"w{i}", clients=CLIENTS // WORKERS, options=WORKER_OPTIONS)
            for i in range(WORKERS)
        ]
        coordinator.url = url
        job_id = coordinator.client.submit(document)
        for point in sorted(self.random.sample(range(1, 100), KILLS)):
            self.wait_for_round(coordinator.client, job_id, point)
            coordinator.kill()
            coordinator = self.start_coordinator(
                port=coordinator.port, store=coordinator.store, options=OPTIONS
            )
        self.check_endless(coordinator, job_id, document)
        self.check_acknowledged(courier, job_id, coordinator.client.rounds(job_id))
        self.say(f"fates of {len(courier.exchanges)} exchanges: {courier.fates}")
        for fate, n in courier.fates.items():
            self.assertGreater(n, 0, f"no message was {fate}")
        self.assert_ends_well(*workers, coordinator)


if __name__ == "__main__":
    unittest.main()
