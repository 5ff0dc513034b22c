"""The bits on the wire, counted independently: a decoder written from codec/FORMAT.md reads every message of a job, and
the sums equal the job's counters.
"""

import contextlib
import http.client
import select
import sqlite3
import struct
import threading
import unittest

from common import (
    HANG_S, ForeignWorker, TallyTestCase, essence, job_document, simulate, task_of, updates_of, wait_until,
)
from recording_proxy import RecordingProxy


class MessagesTestCase(TallyTestCase):
    def n_stored(self):
        """Returns the number of stored updates of the open round, read from outside as a kill -9 would leave them."""
        with contextlib.closing(sqlite3.connect(f"file:{self.folder}/tally.db?mode=ro", uri=True)) as database:
            return database.execute("SELECT count(*) FROM updates WHERE round > 0").fetchone()[0]


def decode_unary(payload, payload_bits, dim):
    """Returns the levels of a unary message (codec/FORMAT.md, section 3): blocks of 64 coordinates, each with its
    planes and then its signs; bit i is bit i % 8 of byte i / 8. Raises unless exactly payload_bits are used and the
    padding is zero."""
    bits = [byte >> i & 1 for byte in payload for i in range(8)]
    if len(payload) != (payload_bits + 7) // 8 or any(bits[payload_bits:]):
        raise ValueError("framing")
    stream = iter(bits[:payload_bits])
    levels = [0] * dim
    for first in range(0, dim, 64):
        block = range(first, min(first + 64, dim))
        active = list(block)
        while active:
            active = [i for i in active if next(stream)]
            for i in active:
                levels[i] += 1
        for i in block:
            if levels[i] and next(stream):
                levels[i] = -levels[i]
    if next(stream, None) is not None:
        raise ValueError("bits left over")
    return levels


def costs_of(payload, payload_bits, dim):
    """Returns the (formula, payload) bits of a message: d + sum |level|, and that plus the number of nonzero levels."""
    levels = decode_unary(payload, payload_bits, dim)
    formula = dim + sum(map(abs, levels))
    return formula, formula + sum(level != 0 for level in levels)


class Messages(TallyTestCase):
    def test_every_message_costs_what_is_counted(self):
        document = job_document()
        dim = document["objective"]["data"]["dim"]
        coordinator = self.start_coordinator()
        proxy = RecordingProxy(coordinator.port)
        self.addCleanup(proxy.close)
        url, coordinator.url = coordinator.url, proxy.url
        workers = [self.start_worker(coordinator, f"w{i}", clients=5) for i in range(2)]
        coordinator.url = url
        job_id = coordinator.client.submit(document)
        detail = coordinator.client.wait_status(job_id, "completed")
        self.assertEqual(essence(detail), essence(simulate(document)))
        self.assert_ends_well(*workers, coordinator)

        uplink = {"formula": 0, "payload": 0, "messages": 0, "clipped": 0}
        broadcasts, delivered = {}, 0
        for exchange in proxy.exchanges:
            self.assertEqual(exchange.status, 200)
            counted = formula_of_all = 0
            for _, update, answer in updates_of(exchange):
                self.assertEqual((answer.code, answer.payload_bits), ("", update.payload_bits))
                counted += answer.formula_bits  # updates of a batch arrive together
                if not update.payload:  # the horizon cut the round: the update carries only the loss, no message
                    self.assertTrue(update.HasField("loss"))
                    continue
                formula, payload = costs_of(update.payload, update.payload_bits, dim)
                self.assertEqual(payload, update.payload_bits)
                formula_of_all += formula
                for key, value in zip(uplink, (formula, payload, 1, update.clipped)):
                    uplink[key] += value
            self.assertEqual(counted, formula_of_all)
        for task in filter(None, map(task_of, proxy.exchanges)):
            for broadcast in task.broadcasts:
                broadcasts[broadcast.iterate] = broadcast
                delivered += broadcast.payload_bits
        self.assertEqual(uplink, detail["bits"]["uplink"])

        downlink = {"formula": 0, "payload": 0}
        for broadcast in broadcasts.values():
            formula, payload = costs_of(broadcast.payload, broadcast.payload_bits, dim)
            self.assertEqual(payload, broadcast.payload_bits)
            downlink["formula"] += formula
            downlink["payload"] += payload
        counted = detail["bits"]["downlink"]
        # The point after the last broadcast may never have been requested, since the horizon ended the job.
        missing = counted["messages"] - len(broadcasts)
        self.assertIn(missing, (0, 1))
        if missing == 0:
            self.assertEqual(downlink, {key: counted[key] for key in downlink})
        # Each of the two workers receives a broadcast once for all of its clients.
        self.assertEqual(delivered, 2 * downlink["payload"])

    def test_wire_bytes_are_those_on_the_wire(self):
        """Counts the exchanges that carry the job's messages: tasks and updates."""
        coordinator = self.start_coordinator()
        proxy = RecordingProxy(coordinator.port)
        self.addCleanup(proxy.close)
        url, coordinator.url = coordinator.url, proxy.url
        worker = self.start_worker(coordinator, "w", clients=10)
        coordinator.url = url
        job_id = coordinator.client.submit(job_document())
        detail = coordinator.client.wait_status(job_id, "completed")
        self.assert_ends_well(worker, coordinator)

        carrying = [
            exchange
            for exchange in proxy.exchanges
            if updates_of(exchange) or task_of(exchange) is not None
        ]
        wire = detail["bits"]["wire_bytes"]
        self.assertEqual(wire["in"], sum(len(exchange.request) for exchange in carrying))
        self.assertEqual(wire["out"], sum(len(exchange.response) for exchange in carrying))
        # A round takes one exchange: the updates of all ten clients, and a poll. A round that takes long may need more.
        polls = [exchange for exchange in proxy.exchanges if exchange.method == "PollTask"]
        self.assertLess(len(polls), detail["round"] / 4)
        posts = [exchange for exchange in proxy.exchanges if updates_of(exchange)]
        self.assertLess(len(posts), detail["round"] * 2)

    def test_large_messages_come_over_connections_of_their_own(self):
        """A worker connects once more, when it has sent its first large message; results and counters stay the same."""
        coordinator = self.start_coordinator()
        proxy = RecordingProxy(coordinator.port)
        self.addCleanup(proxy.close)
        url, coordinator.url = coordinator.url, proxy.url
        workers = [self.start_worker(coordinator, f"w{i}", clients=1) for i in range(3)]
        coordinator.url = url
        document = job_document("synthetic-minibatch-sgd", clients=3, quorum=3, horizon=200, objective__data__dim=60000,
                                objective__data__points=9, algorithm__step_size=0.001, reference={"type": "none"})
        job_id = coordinator.client.submit(document)
        detail = coordinator.client.wait_status(job_id, "completed")
        self.assertEqual(essence(detail), essence(simulate(document)))
        self.assert_ends_well(*workers, coordinator)

        updates = [exchange for exchange in proxy.exchanges if exchange.method == "PostUpdate"]
        self.assertGreater(min(len(exchange.request_body) for exchange in updates[:-3]), 64 << 10)
        last = [exchange for exchange in proxy.exchanges if b"\r\nConnection: close\r\n" in exchange.response]
        self.assertEqual(last, updates[:3])
        carrying = updates + [
            exchange for exchange in proxy.exchanges if exchange.method == "PollTask" and task_of(exchange) is not None
        ]
        wire = detail["bits"]["wire_bytes"]
        self.assertEqual(wire["in"], sum(len(exchange.request) for exchange in carrying))
        self.assertEqual(wire["out"], sum(len(exchange.response) for exchange in carrying))


class UpdateThatPolls(MessagesTestCase):
    def setUp(self):
        super().setUp()
        self.coordinator = self.start_coordinator()
        self.client = self.coordinator.client
        self.job_id = self.client.submit(job_document(clients=2, quorum=2, horizon=10**8))
        self.one, self.other = (ForeignWorker(self.client, name) for name in ("one", "other"))
        self.first, self.second = self.one.poll_task(), self.other.poll_task()

    def polling(self, wait_ms, **changes):
        update = self.one.update(self.first, self.first.clients[0], **changes)
        update.poll.wait_ms = wait_ms
        update.poll.cursors.add(job_id=self.job_id, iterate=self.first.iterate)
        return update

    def post_in_thread(self, update):
        answers = []

        def post():
            with contextlib.suppress(OSError, http.client.HTTPException):
                answers.append(self.one.post(update))

        thread = threading.Thread(target=post)
        thread.start()
        wait_until(self.somebody_waits, "a poll that waits")
        return thread, answers

    def somebody_waits(self):
        return any(worker["state"] == "waiting" for worker in self.client.get_json("/v1/workers")["workers"])

    def post_other(self):
        return self.other.post(self.other.update(self.second, self.second.clients[0]))

    def test_it_is_answered_with_the_next_task(self):
        thread, answers = self.post_in_thread(self.polling(30000))
        self.assertEqual(answers, [])
        self.assertFalse(self.post_other().HasField("next"))
        thread.join(HANG_S)
        (answer,) = answers
        self.assertEqual((answer.formula_bits, answer.payload_bits), (30, 30))
        self.assertEqual((answer.next.task.round, answer.next.task.job_id), (2, self.job_id))
        self.assertEqual(answer.next.task.job_document, b"")

    def test_without_work_it_is_idle_in_the_end_and_counts_once(self):
        update = self.polling(1)
        for _ in range(2):
            answer = self.one.post(update)
            self.assertEqual(answer.payload_bits, 30)
            self.assertEqual(answer.next.WhichOneof("kind"), "idle")
        self.post_other()
        self.assertEqual(self.client.job(self.job_id)["bits"]["uplink"]["messages"], 2)

    def test_what_waits_is_durable(self):
        thread, answers = self.post_in_thread(self.polling(30000))
        self.coordinator.kill()
        thread.join(HANG_S)
        self.assertEqual(answers, [])
        self.coordinator = self.start_coordinator(port=self.coordinator.port)
        again = ForeignWorker(self.coordinator.client, "other", held=[(self.job_id, self.second.clients[0])])
        again.post(again.update(self.second, self.second.clients[0]))
        self.assertEqual(self.coordinator.client.job(self.job_id)["round"], 1)

    def send(self, connection, update):
        """Sends an update; anything sent after it, on whatever connection, is served after it."""
        connection.request("GET", "/healthz")  # the round is open
        connection.getresponse().read()
        connection.request("POST", "/tally.v1.WorkerService/PostUpdate", update.SerializeToString(),
                           {"Content-Type": "application/proto"})
        for _ in range(2):  # by the time that these are answered, it has been read
            self.assertEqual(self.client.get("/healthz").status, 200)

    def test_what_is_read_is_durable(self):
        """The commit of an update that polls may wait, but no longer than until somebody reads."""
        with contextlib.closing(self.client.connect(HANG_S)) as reader, \
                contextlib.closing(self.client.connect(HANG_S)) as waiting:
            reader.connect()
            self.assertEqual(self.n_stored(), 0)
            self.send(waiting, self.polling(30000))
            reader.request("GET", f"/v1/jobs/{self.job_id}")
            self.assertEqual(reader.getresponse().status, 200)
            self.assertEqual(self.n_stored(), 1)

    def test_one_that_does_not_poll_waits_for_nobody(self):
        """An update that does not poll waits for nobody, even while others wait for their commit: it is answered before
        a poll that came later is over, and before another one that came after that was known."""
        idle = ForeignWorker(self.client, "idle")
        with contextlib.closing(self.client.connect(HANG_S)) as connection:
            for _ in range(4):
                thread, answers = self.post_in_thread(self.polling(30000))
                self.post_other()
                thread.join(HANG_S)
                self.first, self.second = answers[0].next.task, self.other.poll_task()
                self.send(connection, self.one.update(self.first, self.first.clients[0]))
                for wait_ms in (1, 0):
                    self.assertEqual(idle.poll(wait_ms).WhichOneof("kind"), "idle")
                self.assertTrue(select.select([connection.sock], [], [], 0)[0], "it waits for its commit")
                answer = connection.getresponse()
                self.assertEqual((answer.status, answer.read() != b""), (200, True))
                self.post_other()
                self.first, self.second = self.one.poll_task(), self.other.poll_task()

    def test_what_was_computed_at_another_point_does_not_count(self):
        """The store may have lost the history in which a worker computed its update or found that it cannot continue. A
        worker that does not repeat the round's mark is believed."""
        self.assertNotEqual(self.first.mark, 0)
        lost = self.one.update(self.first, self.first.clients[0], mark=self.first.mark ^ 1)
        self.assert_connect_error("failed_precondition", self.one.post, lost)
        lost.updates[0].failure = "the gradient is not a number"
        self.assert_connect_error("failed_precondition", self.one.post, lost)
        self.assertEqual(self.client.job(self.job_id)["status"], "running")
        self.assertEqual(self.n_stored(), 0)
        self.one.post(self.one.update(self.first, self.first.clients[0], mark=self.first.mark))
        self.post_other()
        self.assertEqual(self.client.job(self.job_id)["round"], 1)

    def test_a_refused_one_is_answered_at_once(self):
        update = self.polling(30000, round=7)
        self.assert_connect_error("failed_precondition", self.one.post, update)
        update = self.polling(30000)
        update.poll.cursors.add(job_id="x" * 40)
        self.assert_connect_error("invalid_argument", self.one.post, update)


class LargeUpdateThatPolls(MessagesTestCase):
    """The coordinator itself keeps the body of an update above 64 KiB until the round closes or the body is written.
    Above 40 MiB in all, bodies are written at once."""

    dim = 20000  # float32: 80 kB per message
    PATIENT = ("--session-timeout-ms", 3600 * 1000)  # a poll outlasts what the test sends meanwhile

    def start(self, n_workers, **options):
        self.coordinator = self.start_coordinator(options=self.PATIENT, **options)
        document = job_document(
            "synthetic-minibatch-sgd", clients=n_workers, quorum=n_workers, reference={"type": "none"},
            objective__data__dim=self.dim, objective__data__points=n_workers,
            initial_point={"type": "zeros"},
        )
        self.job_id = self.coordinator.client.submit(document)
        self.workers = [ForeignWorker(self.coordinator.client, f"w{n}") for n in range(n_workers)]
        self.tasks = [worker.poll_task() for worker in self.workers]

    def message(self, n):
        task = self.tasks[n]
        client = task.clients[0]
        values = struct.pack("<1000f", *((client + 1) * i / 1024 for i in range(1000)))
        return self.workers[n].update(
            task, client, payload=values * (self.dim // 1000), payload_bits=32 * self.dim
        )

    def post_polling(self, n):
        update = self.message(n)
        update.poll.wait_ms = 30000
        update.poll.cursors.add(job_id=self.job_id, iterate=self.tasks[n].iterate)
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.workers[n].post(update)

    def post_in_threads(self, numbers):
        threads = [threading.Thread(target=self.post_polling, args=(n,)) for n in numbers]
        for thread in threads:
            thread.start()
        return threads

    def wait_for_pollers(self, n):
        def look():
            workers = self.coordinator.client.get_json("/v1/workers")["workers"]
            return sum(worker["state"] == "waiting" for worker in workers) == n

        wait_until(look, f"{n} updates that wait")

    def close_round(self):
        """Lets the last worker answer. Returns the point and the counters."""
        self.workers[-1].post(self.message(-1))
        detail = self.coordinator.client.job(self.job_id)
        self.assertEqual(detail["round"], 1)
        return detail["x_checksum"], detail["bits"]["uplink"]

    def result_without_a_crash(self, n_workers):
        self.start(n_workers, store="memory:")
        for n in range(n_workers - 1):
            self.workers[n].post(self.message(n))
        return self.close_round()

    def check_crash(self, n_workers):
        expected = self.result_without_a_crash(n_workers)
        self.start(n_workers)
        threads = self.post_in_threads(range(n_workers - 1))
        wait_until(lambda: self.n_stored() == n_workers - 1, "all to be written")  # no request forces the commit
        self.wait_for_pollers(n_workers - 1)
        self.coordinator.kill()
        for thread in threads:
            thread.join(HANG_S)
        self.coordinator = self.start_coordinator(port=self.coordinator.port, options=self.PATIENT)
        held = [(self.job_id, self.tasks[-1].clients[0])]
        self.workers[-1] = ForeignWorker(
            self.coordinator.client, f"w{n_workers - 1}", held=held
        )
        self.assertEqual(self.close_round(), expected)

    def test_they_are_the_same_after_a_crash(self):
        self.check_crash(3)

    def test_they_are_the_same_if_they_are_too_much_to_be_kept(self):
        self.dim = 10**6
        self.check_crash(12)  # 11 bodies of 4 MB exceed the limit

    def test_a_round_of_them_closes(self):
        expected = self.result_without_a_crash(4)
        self.start(4)
        threads = self.post_in_threads(range(3))
        self.wait_for_pollers(3)
        self.assertEqual(self.close_round(), expected)
        for thread in threads:
            thread.join(HANG_S)

    def test_a_caller_that_leaves_takes_nothing_along(self):
        """The connection breaks at once, and the worker repeats the update, which may or may not have arrived."""
        expected = self.result_without_a_crash(2)
        self.start(2)
        update = self.message(0)
        update.poll.wait_ms = 30000
        connection = self.workers[0].client.connect(HANG_S)
        connection.request("POST", "/tally.v1.WorkerService/PostUpdate", update.SerializeToString(),
                           {"Content-Type": "application/proto"})
        connection.close()
        self.workers[0].post(self.message(0))
        self.assertEqual(self.close_round(), expected)


if __name__ == "__main__":
    unittest.main()
