"""The updates of several clients in one PostUpdate. Each has its own result, and all acknowledged updates become durable
together.
"""

import contextlib
import http.client
import random
import sqlite3
import struct
import threading
import time
import unittest

from common import (
    FORMAT, HANG_S, Client, ConnectError, ForeignWorker, essence, job_document, messages, simulate, task_of, wait_until,
    without_times,
)
from recording_proxy import RecordingProxy
from test_messages import MessagesTestCase

ACCEPTED = ("", 30, 30)  # code, and formula and payload bits, of ForeignWorker's messages
# The first level is 1 instead of 0: one more bit, and its sign.
OTHER = {"payload": bytes([1, 0, 0, 0]), "payload_bits": 32}
NOTHING = {"payload": b"", "payload_bits": 0}


class BatchWorker(ForeignWorker):
    """A worker that posts the updates made by ForeignWorker.update() in one request."""

    def join_again(self):
        return self.client.call("Join", messages.JoinRequest(name="other", slots=1, format=FORMAT),
                                messages.JoinResponse)

    def batch(self, task, updates, wait_ms=None, **changes):
        request = messages.PostUpdateRequest(session=self.session, job_id=task.job_id, round=task.round,
                                             mark=task.mark)
        for update in updates:
            request.updates.extend(update.updates)
        if wait_ms is not None:
            request.poll.wait_ms = wait_ms
            request.poll.cursors.add(job_id=task.job_id, iterate=task.iterate)
        for field, value in changes.items():
            setattr(request, field, value)
        return request

    def of_clients(self, task, clients, wait_ms=None, **changes):
        return self.batch(task, [self.update(task, client, **changes) for client in clients], wait_ms)

    def post_all(self, request):
        """Posts the updates and returns their results. Checks that there is one result per update."""
        answer = self.client.call("PostUpdate", request, messages.PostUpdateResponse)
        if not answer.results:  # if all are acknowledged; a message of zeros costs exactly its payload bits
            assert answer.payload_bits == sum(update.payload_bits for update in request.updates), answer
            n = len(request.updates)
            for update in request.updates:
                answer.results.add(formula_bits=answer.formula_bits // n, payload_bits=update.payload_bits)
        else:
            assert any(result.code for result in answer.results) and answer.payload_bits == 0, answer
        return answer


def results_of(answer):
    return [(result.code, result.formula_bits, result.payload_bits) for result in answer.results]


def codes_of(answer):
    return [result.code for result in answer.results]


class BatchTestCase(MessagesTestCase):
    def start(self, clients, document=None, **options):
        self.coordinator = self.start_coordinator(**options)
        self.client = self.coordinator.client
        self.job_id = self.client.submit(document or job_document(clients=clients, quorum=clients, horizon=10**8))

    def counted(self):
        detail = self.client.job(self.job_id)
        return detail["round"], detail["bits"]["uplink"]["messages"]


class Batches(BatchTestCase):
    def setUp(self):
        super().setUp()
        self.start(4)
        self.worker, self.last = BatchWorker(self.client, slots=3), BatchWorker(self.client, "last")
        self.task, self.last_task = self.worker.poll_task(), self.last.poll_task()

    def test_the_coordinator_says_how_long_one_may_be(self):
        self.assertEqual(self.worker.join_again().max_batch_bytes, 48 << 20)
        small = self.start_coordinator(name="small", store="memory:", options=("--max-body-bytes", "2000"))
        self.assertEqual(BatchWorker(small.client).join_again().max_batch_bytes, 2000)

    def test_each_has_a_result_and_counts(self):
        answer = self.worker.post_all(self.worker.of_clients(self.task, self.task.clients))
        self.assertEqual(results_of(answer), 3 * [ACCEPTED])
        self.assertFalse(answer.HasField("next"))
        self.assertEqual(self.n_stored(), 3)
        self.last.post(self.last.update(self.last_task, self.last_task.clients[0]))
        self.assertEqual(self.counted(), (1, 4))

    def test_the_same_once_more_counts_once(self):
        request = self.worker.of_clients(self.task, self.task.clients)
        first = self.worker.post_all(request)
        self.assertEqual(self.worker.post_all(request), first)
        one = self.worker.update(self.task, self.task.clients[1])
        self.assertEqual(self.worker.post(one).payload_bits, 30)
        self.last.post(self.last.update(self.last_task, self.last_task.clients[0]))
        self.assertEqual(self.worker.post_all(request), first, "its round is closed, and it is remembered")
        self.assertEqual(self.counted(), (1, 4))

    def test_each_is_refused_alone(self):
        a, b, c = self.task.clients
        bad_metric = self.worker.update(self.task, b)
        bad_metric.updates[0].metrics.add(name="No Name", value=1)
        request = self.worker.batch(self.task, [
            self.worker.update(self.task, a),
            self.worker.update(self.task, a),
            self.worker.update(self.task, a, **OTHER),
            self.worker.update(self.task, self.last_task.clients[0]),
            self.worker.update(self.task, 77),
            self.worker.update(self.task, c),
            bad_metric,
        ], wait_ms=30000)
        answer = self.worker.post_all(request)  # in the same request
        self.assertEqual(codes_of(answer), [
            "", "", "already_exists", "permission_denied", "permission_denied", "", "invalid_argument"])
        self.assertEqual(results_of(answer)[1], ACCEPTED)
        self.assertIn("metrics: \"No Name\" is not a name", answer.results[-1].message)
        self.assertEqual([bool(result.message) for result in answer.results],
                         [bool(result.code) for result in answer.results])
        self.assertFalse(answer.HasField("next"))
        self.assertEqual(self.n_stored(), 2)
        counts = {line.split('"')[1]: int(line.split()[-1]) for line in
                  self.client.get("/metrics").body.decode().splitlines() if line.startswith("tally_updates_total{")}
        self.assertEqual({key: value for key, value in counts.items() if value},
                         {"accepted": 2, "repeated": 1, "conflicting": 1, "not_played": 2, "invalid": 1})
        again = self.worker.post_all(self.worker.of_clients(self.task, [b]))
        self.assertEqual(results_of(again), [ACCEPTED])

    def test_after_an_invalid_one_the_rest_is_put_off(self):
        a, b, c = self.task.clients
        for invalid in (self.worker.update(self.task, b, clipped=31), self.worker.update(self.task, b, payload_bits=31)):
            with self.subTest(invalid=invalid):
                request = self.worker.batch(self.task, [self.worker.update(self.task, a), invalid,
                                                        self.worker.update(self.task, c), invalid], wait_ms=30000)
                answer = self.worker.post_all(request)
                self.assertEqual(codes_of(answer), ["", "invalid_argument", "unavailable", "unavailable"])
                self.assertIn("post it again", answer.results[2].message)
                self.assertEqual(self.n_stored(), 1, "what is put off is not counted")
        self.assertEqual(results_of(self.worker.post_all(self.worker.of_clients(self.task, [b, c]))), 2 * [ACCEPTED])

    def test_a_longer_request_than_announced_is_refused(self):
        request = self.worker.of_clients(self.task, self.task.clients, wait_ms=30000)
        most = self.worker.join_again().max_batch_bytes
        request.updates[0].payload = bytes(most)
        with self.assertRaises(ConnectError) as caught:
            self.worker.post_all(request)
        self.assertEqual(caught.exception.code, "invalid_argument")
        self.assertIn(f"max_batch_bytes, {most}", str(caught.exception))
        self.assertEqual(self.n_stored(), 0)

    def test_a_cursor_without_a_job_is_of_theirs(self):
        request = self.worker.of_clients(self.task, self.task.clients, wait_ms=30000)
        request.poll.cursors[0].job_id = ""
        thread, answers = self.post_in_thread(request)
        self.last.post(self.last.update(self.last_task, self.last_task.clients[0]))
        thread.join(HANG_S)
        (answer,) = answers
        task = answer.next.task
        self.assertEqual((task.round, task.job_document, task.snapshot), (2, b"", b""))

    def test_junk_among_them_puts_off_the_rest(self):
        a, b, _ = self.task.clients
        head = self.worker.batch(self.task, []).SerializeToString()
        entries = [update.SerializeToString() for update in
                   self.worker.of_clients(self.task, [a, b]).updates]
        junk = b"\x0a\x01"  # `client` of the wrong wire type, and cut short
        body = head + b"".join(b"\x32" + bytes([len(entry)]) + entry for entry in (entries[0], junk, entries[1]))
        answer = messages.PostUpdateResponse.FromString(self.client.call_raw("PostUpdate", body).body)
        self.assertEqual(codes_of(answer), ["", "invalid_argument", "unavailable"])

    def test_what_is_wrong_with_all_of_them_changes_nothing(self):
        some = self.worker.of_clients(self.task, self.task.clients)
        for changes in {"session": 12345}, {"job_id": "nobody"}:
            request = messages.PostUpdateRequest()
            request.CopyFrom(some)
            for field, value in changes.items():
                setattr(request, field, value)
            with self.subTest(**changes):
                self.assert_connect_error("not_found", self.worker.post_all, request)
        none = self.worker.batch(self.task, [])
        self.assert_connect_error("invalid_argument", self.worker.post_all, none)
        many = self.worker.of_clients(self.task, 4097 * [self.task.clients[0]])
        self.assert_connect_error("invalid_argument", self.worker.post_all, many)
        most = self.worker.of_clients(self.task, 4096 * [77])
        self.assertEqual(set(codes_of(self.worker.post_all(most))), {"permission_denied"})
        bad_poll = self.worker.of_clients(self.task, self.task.clients, wait_ms=1)
        bad_poll.poll.cursors.add(job_id="x" * 40)
        self.assert_connect_error("invalid_argument", self.worker.post_all, bad_poll)
        self.assertEqual(self.n_stored(), 0)
        whole, n = some.SerializeToString(), len(self.worker.batch(self.task, []).SerializeToString())
        between = {n := n + 2 + len(update.SerializeToString()) for update in some.updates}
        for n in range(len(whole)):
            answer = self.client.call_raw("PostUpdate", whole[:n])
            self.assertEqual(answer.status, 200 if n in between else 400, n)

    def test_another_round_job_or_mark_is_refused_for_each(self):
        for changes, code in (({"round": 7}, "failed_precondition"), ({"mark": self.task.mark ^ 1}, "failed_precondition")):
            request = self.worker.of_clients(self.task, self.task.clients)
            for field, value in changes.items():
                setattr(request, field, value)
            with self.subTest(**changes):
                self.assertEqual(codes_of(self.worker.post_all(request)), 3 * [code])
        foreign = self.client.submit(job_document(clients=2, quorum=2, seed=9))
        request = self.worker.of_clients(self.task, [0, 1])
        request.job_id = foreign
        self.assertEqual(codes_of(self.worker.post_all(request)), 2 * ["permission_denied"])
        cancelled = self.worker.of_clients(self.task, self.task.clients)
        self.client.post(f"/v1/jobs/{self.job_id}/cancel")
        self.assertEqual(codes_of(self.worker.post_all(cancelled)), 3 * ["failed_precondition"])
        self.assertEqual(self.counted(), (0, 0))

    def test_a_round_that_closes_in_the_middle_ends_the_others(self):
        """The last worker has already posted, so the first three updates close the round while two more follow."""
        self.last.post(self.last.update(self.last_task, self.last_task.clients[0]))
        a, b, c = self.task.clients
        request = self.worker.batch(self.task, [
            self.worker.update(self.task, client, **changes)
            for client, changes in ((a, {}), (b, {}), (c, {}), (c, {}), (a, OTHER))])
        answer = self.worker.post_all(request)
        self.assertEqual(codes_of(answer), ["", "", "", "", "already_exists"])
        self.assertEqual(self.counted(), (1, 4))
        late = self.worker.of_clients(self.task, [a, a], **OTHER)
        self.assertEqual(codes_of(self.worker.post_all(late)), 2 * ["already_exists"])

    def test_a_full_disk_takes_all_of_them_back(self):
        self.start_and_fill()
        request = self.worker.of_clients(self.task, self.task.clients)
        with self.full_disk(self.coordinator):
            self.assert_connect_error("unavailable", self.worker.post_all, request)
        self.assertEqual(self.counted(), (0, 0))
        self.assertIn('tally_updates_total{result="unavailable"} 3', self.client.get("/metrics").body.decode())
        self.assertEqual(results_of(self.worker.post_all(request)), 3 * [ACCEPTED])

    def start_and_fill(self):
        for process in list(self.processes):
            process.terminate()
        self.coordinator = self.start_with_a_disk_that_fills(name="filling", store=f"sqlite:{self.folder}/tally.db")
        self.client = self.coordinator.client
        self.worker = BatchWorker(self.client, slots=3)
        self.task = self.worker.poll_task()

    # ---- With a poll ----

    def post_in_thread(self, request):
        answers = []

        def post():
            with contextlib.suppress(OSError, http.client.HTTPException):
                answers.append(self.worker.post_all(request))

        thread = threading.Thread(target=post)
        thread.start()
        wait_until(lambda: any(worker["state"] == "waiting"
                               for worker in self.client.get_json("/v1/workers")["workers"]), "a poll that waits")
        return thread, answers

    def test_they_are_answered_with_the_next_task(self):
        request = self.worker.of_clients(self.task, self.task.clients, wait_ms=30000)
        thread, answers = self.post_in_thread(request)
        self.assertEqual(answers, [])
        self.last.post(self.last.update(self.last_task, self.last_task.clients[0]))
        thread.join(HANG_S)
        (answer,) = answers
        self.assertEqual(results_of(answer), 3 * [ACCEPTED])
        self.assertEqual((answer.next.task.round, answer.next.task.job_id), (2, self.job_id))
        self.assertEqual(sorted(answer.next.task.clients), sorted(self.task.clients))

    def test_without_work_they_are_idle_in_the_end(self):
        request = self.worker.of_clients(self.task, self.task.clients, wait_ms=1)
        for _ in range(2):
            answer = self.worker.post_all(request)
            self.assertEqual(results_of(answer), 3 * [ACCEPTED])
            self.assertEqual(answer.next.WhichOneof("kind"), "idle")
        self.assertEqual(self.n_stored(), 3)

    def test_what_waits_is_durable(self):
        thread, answers = self.post_in_thread(self.worker.of_clients(self.task, self.task.clients, wait_ms=30000))
        self.coordinator.kill()
        thread.join(HANG_S)
        self.assertEqual(answers, [])
        self.coordinator = self.start_coordinator(port=self.coordinator.port)
        self.client = self.coordinator.client
        again = BatchWorker(self.client, "last", held=[(self.job_id, self.last_task.clients[0])])
        again.post(again.update(self.last_task, self.last_task.clients[0]))
        self.assertEqual(self.counted(), (1, 4))

class AloneAndTogether(BatchTestCase):
    """The refusal of an only update is the error of the call; of several updates each has a result."""

    STATUS = {"already_exists": 409, "failed_precondition": 400, "permission_denied": 403, "invalid_argument": 400}

    def setUp(self):
        super().setUp()
        self.start(4)
        self.worker = BatchWorker(self.client, slots=3)
        self.last = BatchWorker(self.client, "last")
        self.task, self.last_task = self.worker.poll_task(), self.last.poll_task()

    def test_the_same_refusals(self):
        a, b, _ = self.task.clients
        self.worker.post(self.worker.update(self.task, a))
        good = self.worker.update(self.task, a)
        for code, wrong in (
            ("already_exists", self.worker.update(self.task, a, **OTHER)),
            ("permission_denied", self.worker.update(self.task, self.last_task.clients[0])),
            ("invalid_argument", self.worker.update(self.task, b, payload_bits=31)),
            ("invalid_argument", self.worker.update(self.task, b, loss=float("nan"))),
            ("failed_precondition", self.worker.update(self.task, b, round=7)),
            ("failed_precondition", self.worker.update(self.task, b, mark=self.task.mark ^ 1)),
        ):
            with self.subTest(code, wrong=wrong):
                alone = self.client.call_raw("PostUpdate", wrong.SerializeToString())
                error = alone.json()
                self.assertEqual((alone.status, error["code"]), (self.STATUS[code], code))
                request = messages.PostUpdateRequest()
                request.CopyFrom(wrong)
                request.updates.extend(good.updates)
                results = self.client.call("PostUpdate", request, messages.PostUpdateResponse).results
                self.assertEqual((len(results), results[0].code, results[0].message), (2, code, error["message"]))
        self.assertEqual(self.n_stored(), 1)

    def test_a_failure_and_a_refusal_may_come_with_others(self):
        a, b, c = self.task.clients
        answer = self.worker.post_all(self.worker.batch(self.task, [
            self.worker.update(self.task, a), self.worker.update(self.task, b, **NOTHING, refusal="no data")]))
        self.assertEqual(codes_of(answer), ["", ""])
        self.assertEqual(self.n_stored(), 1)
        self.assertEqual(self.client.job(self.job_id)["status"], "running")
        answer = self.worker.post_all(self.worker.batch(self.task, [
            self.worker.update(self.task, c, **NOTHING, failure="it diverges"), self.worker.update(self.task, b)]))
        self.assertEqual(codes_of(answer), ["", "failed_precondition"])
        detail = self.client.job(self.job_id)
        self.assertEqual((detail["status"], detail["reason_code"]), ("failed", "client_failed"))


class Stored(BatchTestCase):
    """The stored bytes are the received ones, also of fields that this release does not know and in another order than
    its own; what is read back after a crash gives the same result and the same answers."""

    UNKNOWN = b"\xf0\x01\x05"  # field 30

    def start_worker_of_four(self, **options):
        self.start(4, **options)
        self.worker = BatchWorker(self.client, slots=4)
        self.task = self.worker.poll_task()

    def requests(self):
        """A request of one update, and one of two."""
        a, b, c, _ = self.task.clients
        entries = []
        for client, changes in ((a, OTHER), (b, {}), (c, {"clipped": 2})):
            (entry,) = self.worker.update(self.task, client, **changes).updates
            entry.metrics.add(name="seconds", value=client + 1)
            entry.MergeFromString(self.UNKNOWN)
            entries.append(entry)
        together = messages.PostUpdateRequest(session=self.worker.session, job_id=self.job_id, round=1,
                                              mark=self.task.mark)
        alone = messages.PostUpdateRequest()
        alone.CopyFrom(together)
        alone.updates.extend(entries[:1])
        together.updates.extend(entries[1:])
        return alone, together

    def stored(self):
        with contextlib.closing(sqlite3.connect(f"{self.folder}/tally.db")) as database:
            return dict(database.execute("SELECT client, body FROM updates WHERE round = 1"))

    def close_round(self):
        last = self.worker.update(self.task, self.task.clients[3])
        self.worker.post(last)
        detail = self.client.job(self.job_id)
        self.assertEqual(detail["round"], 1)
        self.assertEqual([each["metrics"] for each in self.client.get_json(f"/v1/jobs/{self.job_id}/metrics")["clients"]],
                         [{"seconds": client + 1} for client in sorted(self.task.clients[:3])])
        return essence(detail)

    def test_in_the_middle_of_a_round(self):
        self.start_worker_of_four(name="undisturbed", store="memory:")
        for request in self.requests():
            self.worker.post(request)
        expected = self.close_round()
        self.start_worker_of_four()
        requests = self.requests()
        answers = [self.worker.post(request) for request in requests]
        received = {entry.client: entry.SerializeToString() for request in requests for entry in request.updates}
        self.assertIn(self.UNKNOWN, received[self.task.clients[0]])
        self.assertEqual(self.stored(), received)
        self.coordinator.kill()
        self.coordinator = self.start_coordinator(port=self.coordinator.port)
        self.client = self.coordinator.client
        self.worker = BatchWorker(self.client, slots=4, held=[(self.job_id, client) for client in range(4)])
        for request, answer in zip(requests, answers):
            request.session = self.worker.session
            self.assertEqual(self.worker.post(request), answer)
        other = self.worker.update(self.task, self.task.clients[1], **OTHER)
        self.assert_connect_error("already_exists", self.worker.post, other)
        self.assertEqual(self.stored(), received)
        self.assertEqual(self.close_round(), expected)


class WireBytes(BatchTestCase):
    def test_they_are_those_on_the_wire(self):
        self.start(4)
        proxy = RecordingProxy(self.client.port)
        self.addCleanup(proxy.close)
        worker = BatchWorker(Client(int(proxy.url.rsplit(":", 1)[1])), slots=4)
        task = worker.poll_task()
        for _ in range(3):
            task = worker.post_all(worker.of_clients(task, task.clients, wait_ms=30000)).next.task
        refused = worker.of_clients(task, [77, *task.clients[:1]])  # one of the two is acknowledged
        self.assertEqual(codes_of(worker.post_all(refused)), ["permission_denied", ""])
        worker.post_all(worker.of_clients(task, [77, 78]))  # none is: its bytes belong to no job
        carrying = [exchange for exchange in proxy.exchanges
                    if exchange.method == "PostUpdate" or task_of(exchange) is not None][:-1]
        self.assertEqual(len(carrying), 5)
        wanted = {"in": sum(len(exchange.request) for exchange in carrying),
                  "out": sum(len(exchange.response) for exchange in carrying)}
        wait_until(lambda: self.client.job(self.job_id)["bits"]["wire_bytes"] == wanted, f"wire bytes of {wanted}")


class BreakingLink(RecordingProxy):
    """Breaks the connection under every request of more than `most` bytes, and keeps the sizes of all updates."""

    def __init__(self, port, most):
        super().__init__(port)
        self._most = most
        self.sizes = []

    def _may_pass(self, request, connection):
        if b"/PostUpdate " in request.partition(b"\r\n")[0]:
            self.sizes.append(len(request))
        return len(request) <= self._most


class LargeBatches(MessagesTestCase):
    def test_a_link_that_breaks_gets_smaller_ones(self):
        """A link that lives long enough for one update, but not for two."""
        document = job_document("synthetic-fedavg", clients=8, quorum=8, horizon=8, reference={"type": "none"},
                                algorithm={"type": "fedavg", "step_size": 1e-6, "local_steps": 1},
                                objective__data__dim=50_000, objective__data__points=16)
        coordinator = self.start_coordinator(store="memory:")
        link = BreakingLink(coordinator.client.port, 300_000)
        self.addCleanup(link.close)
        worker = self.start_worker(link, "w", clients=8)
        job_id = coordinator.client.submit(document)
        detail = coordinator.client.wait_status(job_id, "completed")
        self.assertEqual(essence(detail), essence(simulate(document)))
        self.assertLess(sum(size > 300_000 for size in link.sizes), 6)  # not again and again
        self.assert_ends_well(worker)


class EqualResults(BatchTestCase):
    """A job has the same result whether its updates arrive alone, together, or both."""

    def play(self, name, sizes):
        coordinator = self.start_coordinator(name=name, store=f"sqlite:{self.folder}/{name}.db")
        self.client = coordinator.client
        job_id = coordinator.client.submit(job_document(clients=7, quorum=7, horizon=10**8))
        worker = BatchWorker(coordinator.client, name, slots=7)
        task = worker.poll_task()
        for _ in range(6):
            updates = [worker.update(task, client, payload=bytes([1 << client % 3, 0, 0, 0]), payload_bits=32)
                       for client in task.clients]
            for update in updates:
                (entry,) = update.updates
                entry.metrics.add(name=f"m{entry.client % 2}", value=entry.client)
            at = 0
            for size in sizes:
                part, at = updates[at:at + size], at + size
                if size == 1:
                    worker.post(part[0])
                else:
                    self.assertEqual(codes_of(worker.post_all(worker.batch(task, part))), size * [""])
            task = worker.poll_task()
        detail = coordinator.client.job(job_id)
        self.assertEqual(detail["round"], 6)
        csv = coordinator.client.get(f"/v1/jobs/{job_id}/rounds.csv").body.decode()
        return essence(detail), without_times(csv)

    def test_alone_and_together(self):
        alone = self.play("alone", 7 * [1])
        self.assertEqual(self.play("together", [7]), alone)
        self.assertEqual(self.play("both", [2, 1, 4]), alone)


class Splitting(MessagesTestCase):
    def test_a_worker_of_more_clients_than_a_request_takes_splits_them(self):
        document = job_document("synthetic-minibatch-sgd", clients=5000, quorum=5000, horizon=150, reference={"type": "none"},
                                objective__data__dim=2, objective__data__points=5000)
        coordinator = self.start_coordinator()
        job_id = coordinator.client.submit(document)
        self.start_worker(coordinator, "w", clients=5000, options=("--exit-when-idle",))
        detail = coordinator.client.wait_status(job_id, "completed")
        self.assertEqual(detail["round"], 3)
        self.assertEqual(essence(detail), essence(simulate(document)))


class LargeBatch(BatchTestCase):
    """Payloads of more than 64 KiB, which are not copied into the common buffer."""

    DIM = 20000

    def start_large(self, **options):
        self.start(4, job_document(
            "synthetic-minibatch-sgd", clients=4, quorum=4, reference={"type": "none"}, objective__data__dim=self.DIM,
            objective__data__points=4, initial_point={"type": "zeros"}),
            options=("--session-timeout-ms", 3600 * 1000), **options)
        self.worker = BatchWorker(self.client, slots=4)
        self.task = self.worker.poll_task()

    def message(self, client):
        values = struct.pack("<1000f", *((client + 1) * i / 1024 for i in range(1000)))
        return self.worker.update(self.task, client, payload=values * (self.DIM // 1000), payload_bits=32 * self.DIM)

    def close_round(self):
        self.worker.post(self.message(self.task.clients[3]))
        detail = self.client.job(self.job_id)
        self.assertEqual(detail["round"], 1)
        return detail["x_checksum"], detail["bits"]["uplink"]

    def test_they_are_the_same_after_a_crash(self):
        self.start_large(name="alone", store="memory:")
        for client in self.task.clients[:3]:
            self.worker.post(self.message(client))
        expected = self.close_round()
        self.start_large()
        batch = self.worker.batch(self.task, [self.message(client) for client in self.task.clients[:3]])
        self.assertEqual(codes_of(self.worker.post_all(batch)), 3 * [""])
        self.assertEqual(self.n_stored(), 3)
        self.coordinator.kill()
        self.coordinator = self.start_coordinator(port=self.coordinator.port)
        self.client = self.coordinator.client
        self.worker = BatchWorker(self.client, slots=4, held=[(self.job_id, client) for client in range(4)])
        self.assertEqual(self.close_round(), expected)


class Kills(BatchTestCase):
    """Kills the coordinator (kill -9) at random moments of a batch: everything acknowledged is stored, and a batch is
    stored either whole or not at all."""

    def test_no_batch_is_half_acknowledged(self):
        draw = random.Random(7)
        self.start(8)
        for trial in range(11):  # so many rounds of this job have messages
            worker = BatchWorker(self.client, "w", slots=8, held=[(self.job_id, client) for client in range(8)])
            task = worker.poll_task()
            clients = task.clients[:7]
            payload = {"payload": bytes([1 << trial % 5, 0, 0, 0]), "payload_bits": 32}
            request = worker.batch(task, [worker.update(task, client, **payload) for client in clients])
            answers = []

            def post():
                with contextlib.suppress(OSError, http.client.HTTPException, ConnectError):
                    answers.append(worker.post_all(request))

            thread = threading.Thread(target=post)
            thread.start()
            time.sleep(draw.random() * 0.004)  # at any point of the exchange; both outcomes are checked
            self.coordinator.kill()
            thread.join(HANG_S)
            n_stored = self.n_stored()
            self.assertIn(n_stored, (0, 7), "a part of a batch is durable")
            if answers and codes_of(answers[0]) == 7 * [""]:
                self.assertEqual(n_stored, 7, "acknowledged, and lost")
            self.coordinator = self.start_coordinator(port=self.coordinator.port)
            self.client = self.coordinator.client
            worker = BatchWorker(self.client, "w", slots=8, held=[(self.job_id, client) for client in range(8)])
            request = worker.batch(task, [worker.update(task, client, **payload) for client in range(8)])
            self.assertEqual(codes_of(worker.post_all(request)), 8 * [""])
            worker.leave()
            self.assertEqual(self.counted(), (trial + 1, 8 * (trial + 1)))


if __name__ == "__main__":
    unittest.main()
