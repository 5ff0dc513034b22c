"""Invalid input is refused, with the place of the error, and changes nothing."""

import gzip
import json
import os
import random
import socket
import subprocess
import unittest
from pathlib import Path

import common
from common import (
    FORMAT, HANG_S, ConnectError, ForeignWorker, TallyTestCase, changed, essence, job_document, messages,
)

GOOD = job_document()
DATA = "objective.data"


def text_with(path, text):
    """Returns the text of a valid document in which raw text replaces one member."""
    marker = "@@@"
    return json.dumps(changed(GOOD, {path: marker})).replace(f'"{marker}"', text)


# (what is wrong, document as object / text / bytes, field that the response must name or None)
WRONG_DOCUMENTS = [
    ("not JSON", "hello", None),
    ("empty body", b"", None),
    ("truncated", json.dumps(GOOD)[:200], None),
    ("truncated by its last byte", json.dumps(GOOD)[:-1], None),
    ("two documents", json.dumps(GOOD) + json.dumps(GOOD), None),
    ("trailing text", json.dumps(GOOD) + "x", None),
    ("an array", "[" + json.dumps(GOOD) + "]", None),
    ("a string", '"job"', None),
    ("null", "null", None),
    ("empty object", "{}", "clients"),
    ("invalid UTF-8", text_with("name", '"x"').encode().replace(b'"x"', b'"\xff\xfe"'), None),
    ("a lone surrogate", text_with("name", '"\\ud800"'), None),
    ("NUL in a string", text_with("name", '"a\\u0000b"'), None),
    ("a control character", text_with("name", '"a\\u0007b"'), "name"),
    ("a C1 control character", text_with("name", '"a\\u009bb"'), "name"),
    ("a line separator", text_with("name", '"a\\u2028b"'), "name"),
    ("a bidirectional override", text_with("name", '"a\\u202eb"'), "name"),
    ("duplicate key", json.dumps(GOOD)[:-1] + ', "clients": 3}', None),
    ("deep nesting", text_with("name", "[" * 100000 + "]" * 100000), None),
    ("NaN", text_with("algorithm.sigma", "NaN"), None),
    ("Infinity", text_with("algorithm.sigma", "Infinity"), None),
    ("a real past the range of doubles", text_with("algorithm.sigma", "1e999"), None),
    ("an integer past the range of 64 bits", text_with("horizon", "99999999999999999999"), None),
    ("name is a number", changed(GOOD, {"name": 5}), "name"),
    ("name is too long", changed(GOOD, {"name": "x" * 10000}), "name"),
    ("clients is missing", changed(GOOD, {"clients": None}), "clients"),
    ("clients is a string", changed(GOOD, {"clients": "10"}), "clients"),
    ("clients is a real", text_with("clients", "10.5"), "clients"),
    ("clients is null", text_with("clients", "null"), "clients"),
    ("clients is true", text_with("clients", "true"), "clients"),
    ("clients is zero", changed(GOOD, {"clients": 0}), "clients"),
    ("clients is negative", changed(GOOD, {"clients": -10}), "clients"),
    ("clients is huge", changed(GOOD, {"clients": 2**40}), "clients"),
    ("horizon is missing", changed(GOOD, {"horizon": None}), "horizon"),
    ("horizon is zero", changed(GOOD, {"horizon": 0}), "horizon"),
    ("horizon is huge", changed(GOOD, {"horizon": 2**62}), "horizon"),
    ("minibatch is negative", changed(GOOD, {"minibatch": -1}), "minibatch"),
    ("seed is negative", changed(GOOD, {"seed": -1}), "seed"),
    ("seed past 2^53", changed(GOOD, {"seed": 2**53}), "seed"),
    ("unknown encoding", changed(GOOD, {"encoding": "morse"}), "encoding"),
    ("quorum above clients", changed(GOOD, {"quorum": 11}), "quorum"),
    ("deadline is negative", changed(GOOD, {"round_deadline_ms": -1}), "round_deadline_ms"),
    ("unknown key", changed(GOOD, {"cleints": 10}), "cleints"),
    ("unknown key in the algorithm", changed(GOOD, {"algorithm.eta": 1}), "algorithm.eta"),
    ("unknown key in the objective", changed(GOOD, {"objective.mu": 1}), "objective.mu"),
    ("unknown key in the data", changed(GOOD, {DATA + ".shards": 1}), DATA + ".shards"),
    ("unknown key in the initial point", changed(GOOD, {"initial_point.x": 1}), "initial_point.x"),
    ("algorithm is missing", changed(GOOD, {"algorithm": None}), "algorithm"),
    ("algorithm is a string", changed(GOOD, {"algorithm": "ceal"}), "algorithm"),
    ("algorithm without type", changed(GOOD, {"algorithm.type": None}), "algorithm.type"),
    ("unknown algorithm", changed(GOOD, {"algorithm.type": "magic"}), "algorithm.type"),
    ("type is a number", changed(GOOD, {"algorithm.type": 1}), "algorithm.type"),
    ("step size is missing", changed(GOOD, {"algorithm.step_size": None}), "algorithm.step_size"),
    ("step size is zero", changed(GOOD, {"algorithm.step_size": 0}), "algorithm.step_size"),
    ("step size is negative", changed(GOOD, {"algorithm.step_size": -2.0}), "algorithm.step_size"),
    ("step size is a string", changed(GOOD, {"algorithm.step_size": "2"}), "algorithm.step_size"),
    ("sigma is negative", changed(GOOD, {"algorithm.sigma": -1}), "algorithm.sigma"),
    ("delta is one", changed(GOOD, {"algorithm.delta": 1}), "algorithm.delta"),
    ("delta is zero", changed(GOOD, {"algorithm.delta": 0}), "algorithm.delta"),
    ("gamma0 is negative", changed(GOOD, {"algorithm.gamma0": -1}), "algorithm.gamma0"),
    ("phi0 is zero", changed(GOOD, {"algorithm.phi0": 0}), "algorithm.phi0"),
    ("log factor is a number", changed(GOOD, {"algorithm.log_factor": 1}), "algorithm.log_factor"),
    ("first stage is zero", changed(GOOD, {"algorithm.first_stage": 0}), "algorithm.first_stage"),
    ("first stage is huge", changed(GOOD, {"algorithm.first_stage": 10**6}), "algorithm.first_stage"),
    ("objective is missing", changed(GOOD, {"objective": None}), "objective"),
    ("unknown objective", changed(GOOD, {"objective.type": "hinge"}), "objective.type"),
    ("data are missing", changed(GOOD, {"objective.data": None}), "objective.data"),
    ("unknown data", changed(GOOD, {DATA + ".type": "imagenet"}), DATA + ".type"),
    ("dim is zero", changed(GOOD, {DATA + ".dim": 0}), DATA + ".dim"),
    ("dim is negative", changed(GOOD, {DATA + ".dim": -30}), DATA + ".dim"),
    ("dim is huge", changed(GOOD, {DATA + ".dim": 10**12}), DATA + ".dim"),
    ("points is huge", changed(GOOD, {DATA + ".points": 10**15}), DATA + ".points"),
    ("fewer points than clients", changed(GOOD, {DATA + ".points": 5}), DATA + ".points"),
    ("noise is negative", changed(GOOD, {DATA + ".noise_std": -1}), DATA + ".noise_std"),
    ("matrix of norm zero", changed(GOOD, {DATA + ".frobenius_norm": 0}), DATA + ".frobenius_norm"),
    ("unknown initial point", changed(GOOD, {"initial_point.type": "here"}), "initial_point.type"),
    ("radius is negative", changed(GOOD, {"initial_point.radius": -1}), "initial_point.radius"),
    ("unknown reference", changed(GOOD, {"reference.type": "guess"}), "reference.type"),
    ("reference without its value", changed(GOOD, {"reference": {"type": "value"}}), "reference.value"),
    ("reference with a needless value", changed(GOOD, {"reference.value": 1}), "reference.value"),
]


class BadDocuments(TallyTestCase):
    def setUp(self):
        super().setUp()
        self.coordinator = self.start_coordinator()
        self.client = self.coordinator.client

    def assert_nothing_stored(self):
        self.assertEqual(self.client.get_json("/v1/jobs")["jobs"], [])

    def test_malformed_documents(self):
        self.assertGreaterEqual(len(WRONG_DOCUMENTS), 30)
        for what, document, field in WRONG_DOCUMENTS:
            with self.subTest(what):
                answer = self.client.post_job(document)
                problem = self.assert_problem(answer, 400, field)
                self.assertLess(len(answer.body), 2000, "the answer repeats the input")
                self.assertNotIn("\n", problem["detail"])
        self.assert_nothing_stored()
        # Every document above was invalid; the original is valid.
        self.assertEqual(self.client.post_job(GOOD).status, 201)

    def test_every_prefix_of_a_document(self):
        text = json.dumps(GOOD).encode()
        for n in range(0, len(text), 7):
            self.assert_problem(self.client.post_job(text[:n]), 400)
        self.assert_nothing_stored()

    def test_random_damage(self):
        """Documents with randomly replaced bytes never cause a crash or a status other than 201 and 400."""
        source = random.Random(20240501)
        text = json.dumps(GOOD).encode()
        accepted = 0
        for _ in range(300):
            damaged = bytearray(text)
            for _ in range(source.randrange(1, 4)):
                damaged[source.randrange(len(damaged))] = source.randrange(256)
            answer = self.client.post_job(bytes(damaged))
            self.assertIn(answer.status, (201, 400), answer)
            accepted += answer.status == 201
        listed = self.client.get_json("/v1/jobs?limit=1000")["jobs"]
        self.assertEqual(len(listed), accepted)

    def test_content_type(self):
        body = json.dumps(GOOD).encode()
        for content_type in ("text/plain", "application/xml", "application/jsonx", "application/proto"):
            answer = self.client.request("POST", "/v1/jobs", body, {"Content-Type": content_type})
            self.assert_problem(answer, 415, "Content-Type")
        self.assert_problem(self.client.request("POST", "/v1/jobs", body), 415, "Content-Type")
        self.assert_nothing_stored()
        answer = self.client.request(
            "POST", "/v1/jobs", body, {"Content-Type": "application/json; charset=utf-8"}
        )
        self.assertEqual(answer.status, 201)

    def post_large(self, n_bytes, head):
        """Sends a body of n_bytes for as long as the server reads it; returns the status line."""
        chunk = b" " * (1 << 16)
        with socket.create_connection(("127.0.0.1", self.coordinator.port), timeout=HANG_S) as connection:
            connection.sendall(head)
            sent = 0
            try:
                while sent < n_bytes:
                    connection.sendall(chunk[: n_bytes - sent])
                    sent += len(chunk)
            except (BrokenPipeError, ConnectionResetError):
                pass  # refused before the body was read, as it should be
            try:
                return connection.makefile("rb").readline()
            except ConnectionResetError:
                return b""

    def test_body_of_100_megabytes(self):
        n = 100 * 1000 * 1000
        head = (
            "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {n}\r\n\r\n"
        ).encode()
        with open(f"/proc/{self.coordinator.pid}/statm", encoding="ascii") as statm:
            before = int(statm.read().split()[1])
        # Only the header section: the Content-Length alone is enough to refuse it.
        with socket.create_connection(("127.0.0.1", self.coordinator.port), timeout=HANG_S) as connection:
            connection.sendall(head)
            self.assertIn(b"413", connection.makefile("rb").readline())
        self.assertIn(self.post_large(n, head).split(b" ")[1:2], ([b"413"], []))
        with open(f"/proc/{self.coordinator.pid}/statm", encoding="ascii") as statm:
            grown = (int(statm.read().split()[1]) - before) * os.sysconf("SC_PAGE_SIZE")
        self.assertLess(grown, 80 << 20, "the coordinator kept the body")
        self.assert_nothing_stored()

    def test_endless_chunked_body(self):
        """The limit also holds without a Content-Length."""
        chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        head = (
            b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", self.coordinator.port), timeout=HANG_S) as connection:
            connection.sendall(head)
            try:
                for _ in range(100 * 1000 * 1000 // 0x10000):
                    connection.sendall(chunk)
                line = connection.makefile("rb").readline()
            except (BrokenPipeError, ConnectionResetError):
                line = b""
        self.assertIn(line.split(b" ")[1:2], ([b"413"], []))
        self.assertEqual(self.client.get("/healthz").status, 200)
        self.assert_nothing_stored()

    def test_broken_http(self):
        """Bytes that are not HTTP end only their own connection, at the latest after it has been silent for the idle
        timeout."""
        self.coordinator = self.start_coordinator(
            name="impatient", store="memory:", options=("--idle-timeout-s", "1")
        )
        self.client = self.coordinator.client
        for garbage in (
            b"\x00" * 64, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", os.urandom(4096),
            b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
            b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc",
            b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n\r\n",
            b"GET /v1/jobs HTTP/1.1\r\n" + b"X: y\r\n" * 20000 + b"\r\n",
        ):
            with socket.create_connection(("127.0.0.1", self.coordinator.port), timeout=HANG_S) as connection:
                try:
                    connection.sendall(garbage)
                    connection.shutdown(socket.SHUT_WR)
                    connection.makefile("rb").read()
                except OSError:
                    pass
            self.assertEqual(self.client.get("/healthz").status, 200)
        self.assert_nothing_stored()

    def test_methods_and_routes(self):
        for path, wrong in (
            ("/v1/jobs", ("PUT", "DELETE", "PATCH")),
            ("/v1/jobs/abc", ("POST", "PUT", "PATCH")),
            ("/v1/jobs/abc/cancel", ("GET", "DELETE")),
            ("/v1/workers", ("POST", "DELETE")),
            ("/healthz", ("POST",)),
            ("/readyz", ("POST",)),
        ):
            for method in wrong:
                answer = self.client.request(method, path, b"" if method != "DELETE" else None)
                self.assert_problem(answer, 405)
                self.assertNotIn(method, answer.headers["Allow"].split(", "))
        for path in ("/nothing", "/v1", "/v1/", "/v1/jobs/", "/v1/jobs/nobody", "/v1/jobs/a/b",
                     "/v1/jobs/nobody/rounds", "/v1/jobs/nobody/model", "/v1/jobs/nobody/models",
                     "/v1/jobs/nobody/scaling",
                     "/v1/jobs/nobody/rounds.csv",
                     "/v2/jobs", "//v1/jobs", "/v1/jobs/" + "x" * 500, "/v1/jobs/..",
                     "/tally.v1.WorkerService", "/tally.v1.Other/Join"):
            with self.subTest(path):
                self.assert_problem(self.client.get(path), 404)
        for path in ("/v1/jobs/%00", "/v1/jobs%00/x", "/v1/jobs?limit=1%00", "/v1/jobs?limit=+5", "/v1/jobs?limit=%205"):
            with self.subTest(path):
                self.assert_problem(self.client.get(path.replace("+", "%2B")), 400)
        for action in ("cancel", "pause", "resume"):
            self.assert_problem(self.client.post(f"/v1/jobs/nobody/{action}"), 404)

    def test_bad_queries(self):
        for query, field in (
            ("limit=0", "limit"), ("limit=-1", "limit"), ("limit=1000000000", "limit"),
            ("limit=x", "limit"), ("limit=", "limit"), ("limit=1e3", "limit"),
            ("status=sleeping", "status"), ("status=", "status"), ("cursor=x", "cursor"),
            ("cursor=-1", "cursor"),
        ):
            with self.subTest(query):
                self.assert_problem(self.client.get(f"/v1/jobs?{query}"), 400, field)
        job_id = self.client.submit(GOOD)
        for query in ("after=x", "after=-1", "after=99999999999999999999"):
            with self.subTest(query):
                answer = self.client.get(f"/v1/jobs/{job_id}/rounds?{query}")
                self.assert_problem(answer, 400, "after")


class HugeDocuments(TallyTestCase):
    """A document is measured before it is parsed, so a refusal costs the same whatever the document contains."""

    MANY = 1000000

    def cases(self):
        yield "10^6 unknown keys", "{" + ",".join(f'"k{i}":1' for i in range(self.MANY)) + "}", "the limit is 1048576"
        yield "keys in 1 MiB", "{" + ",".join(f'"k{i}":1' for i in range(80000)) + "}", "more than 1000 members"
        yield "arrays in 1 MiB", "[" + ",".join(["[]"] * 80000) + "]", "more than 1000 members"
        yield "elements in 1 MiB", text_with("name", "[" + "1," * 200000 + "1]"), "more than 1000 members"
        yield "the same key again", "{" + ",".join(['"k":1'] * 80000) + "}", "more than 1000 members"
        yield "nested in 1 MiB", "[" * 500000 + "]" * 500000, "nests more than 16"
        yield "a long key", '{"' + "k" * 1000000 + '":1}', "unknown key"
        yield "a long key, 16 MB", '{"' + "k" * 16000000 + '":1}', "the limit is 1048576"
        yield "a long number", text_with("algorithm.sigma", "9" * 1000000 + ".0"), "real number overflow"
        yield "a long integer", text_with("horizon", "9" * 1000000), "too big"
        yield "nothing but blanks", " " * 16000000, "the limit is 1048576"

    def test_they_are_refused_and_leave_no_memory(self):
        coordinator = self.start_coordinator(store="memory:")
        before = common.memory_bytes(coordinator.pid, "VmHWM")
        largest = 0
        for what, text, words in self.cases():
            with self.subTest(what):
                answer = coordinator.client.post_job(text)
                self.assertEqual(answer.status, 400, answer.body[:300])
                self.assertIn(words, answer.json()["detail"])
                largest = max(largest, len(text))
        grown = common.memory_bytes(coordinator.pid, "VmHWM") - before
        # The body itself and a buffer to receive it. Parsed, 10^6 keys would take eight times as much.
        if not common.IS_SANITIZED:
            self.assertLess(grown, 3 * largest + (16 << 20))
        coordinator.client.submit(GOOD)

    def test_simulate_refuses_them_too(self):
        path = Path(self.folder, "huge.json")
        for what, text, words in self.cases():
            with self.subTest(what):
                path.write_text(text)
                done = subprocess.run([common.BIN / "tally", "simulate", path], capture_output=True, text=True,
                                      check=False, timeout=common.HANG_S)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(words, done.stderr[:1000])


class BadWorkerCalls(TallyTestCase):
    """Invalid calls of a foreign worker to a job in its first round; none of them may end that round."""

    def setUp(self):
        super().setUp()
        self.coordinator = self.start_coordinator()
        self.client = self.coordinator.client
        self.document = job_document(clients=2, quorum=2)
        self.job_id = self.client.submit(self.document)
        self.worker = ForeignWorker(self.client, "honest", slots=2)
        self.task = self.worker.poll_task()
        self.before = self.detail()

    def detail(self):
        detail = self.client.job(self.job_id)
        detail["bits"].pop("wire_bytes")  # counts all attempts, since each is traffic
        detail.pop("waiting")  # the counter lags by up to a second
        return detail

    def assert_unchanged(self):
        self.assertEqual(self.detail(), self.before)
        self.assertEqual(self.client.rounds(self.job_id), [])

    def assert_refused(self, code, method, body, headers=None, status=None):
        answer = self.client.call_raw(method, body, headers)
        self.assertNotEqual(answer.status, 200, answer)
        self.assertEqual(answer.type, "application/json", answer)
        error = answer.json()
        self.assertEqual(error["code"], code, answer)
        self.assertTrue(error["message"], answer)
        if status is not None:
            self.assertEqual(answer.status, status)

    def test_truncated(self):
        whole = self.worker.update(self.task, 0).SerializeToString()
        for n in range(len(whole)):
            answer = self.client.call_raw("PostUpdate", whole[:n])
            self.assertIn(answer.status, (400, 403, 404), answer)  # a prefix may be valid protobuf
            self.assertIn(
                answer.json()["code"],
                ("invalid_argument", "failed_precondition", "not_found", "permission_denied"),
            )
            self.assert_unchanged()

    def test_random_bytes(self):
        source = random.Random(7)
        for method in ("Join", "PollTask", "PostUpdate", "Progress", "Leave"):
            for _ in range(50):
                # 0xFF cannot be the last byte of a varint, so the result is never a valid message by chance.
                body = b"\xff" * 11 + source.randbytes(source.randrange(200))
                self.assert_refused("invalid_argument", method, body, status=400)
        self.assert_unchanged()

    def test_random_damage(self):
        source = random.Random(8)
        whole = self.worker.update(self.task, 0).SerializeToString()
        for _ in range(300):
            damaged = bytearray(whole)
            # The payload itself is not damaged: other levels would be a different, valid message.
            damaged[source.randrange(9, len(whole) - 20)] ^= 1 << source.randrange(8)
            answer = self.client.call_raw("PostUpdate", bytes(damaged))
            self.assertIn(answer.status, (200, 400, 403, 404, 409), answer)
        self.assertEqual(self.client.get("/healthz").status, 200)

    def test_foreign_messages(self):
        join = messages.JoinRequest(name="x", slots=1, format=FORMAT).SerializeToString()
        poll = messages.PollTaskRequest(session=self.worker.session, wait_ms=1)
        poll.cursors.add(job_id=self.job_id, iterate=1)
        for body in (join, poll.SerializeToString(), json.dumps({"session": 1}).encode(),
                     b"\x1f\x8b\x08\x00" + b"\x00" * 20, b"<xml/>", b"\x00\x00\x00\x00\x05hello"):
            answer = self.client.call_raw("PostUpdate", body)
            self.assertIn(answer.json()["code"], ("invalid_argument", "not_found"), answer)
            self.assert_unchanged()

    def test_wrong_values(self):
        post = self.worker.post
        update = lambda **changes: self.worker.update(self.task, 0, **changes)
        for code, wrong in (
            ("not_found", update(session=self.worker.session ^ 1)),
            ("not_found", update(session=0)),
            ("not_found", update(job_id="nobody")),
            ("not_found", update(job_id="")),
            ("permission_denied", update(client=2)),
            ("permission_denied", update(client=2**32 - 1)),
            ("failed_precondition", update(round=self.task.round + 1)),
            ("failed_precondition", update(round=0)),
            ("failed_precondition", update(round=2**32 - 1)),
            ("invalid_argument", update(payload=b"")),
            ("invalid_argument", update(payload=bytes(3))),
            ("invalid_argument", update(payload=bytes(5))),
            ("invalid_argument", update(payload_bits=29)),
            ("invalid_argument", update(payload_bits=31)),
            ("invalid_argument", update(payload_bits=0)),
            ("invalid_argument", update(payload_bits=2**64 - 1)),
            ("invalid_argument", update(payload=b"\xff" * 4, payload_bits=32)),
            ("invalid_argument", update(payload=b"\x00\x00\x00\x40")),  # nonzero padding
            ("invalid_argument", update(payload=b"\xff" * 100000, payload_bits=800000)),
            ("invalid_argument", update(loss=float("nan"))),
            ("invalid_argument", update(loss=float("inf"))),
            ("invalid_argument", update(loss=float("-inf"))),
        ):
            with self.subTest(code=code, update=str(wrong)[:300]):
                self.assert_connect_error(code, post, wrong)
                self.assert_unchanged()

    def test_loss_is_missing_or_uncalled_for(self):
        update = self.worker.update(self.task, 0)
        if self.task.evaluate:
            update.updates[0].ClearField("loss")
            self.assert_connect_error("invalid_argument", self.worker.post, update)
            self.assert_unchanged()

    def test_clients_of_others(self):
        other = ForeignWorker(self.client, "other", slots=2)
        update = other.update(self.task, 0)
        self.assert_connect_error("permission_denied", other.post, update)
        self.assert_unchanged()

    def test_duplicates_and_late_updates(self):
        update = self.worker.update(self.task, 0)
        first = self.worker.post(update)
        self.assertEqual((first.formula_bits, first.payload_bits), (30, 30))
        before = self.detail()
        self.assertEqual(self.worker.post(update), first, "the same bytes, the same answer")
        self.assertEqual(self.detail(), before)
        # One level +1 at the first coordinate: 1, 0, sign 0; 29 zeros.
        other = self.worker.update(self.task, 0, payload=b"\x01\x00\x00\x00", payload_bits=32)
        self.assert_connect_error("already_exists", self.worker.post, other)
        self.assertEqual(self.detail(), before)

        last = self.worker.update(self.task, 1)
        answer = self.worker.post(last)
        after = self.detail()
        self.assertEqual(after["round"], self.before["round"] + 1)
        # The round is closed. A repetition still gets its result, since the first response may have been lost, but an
        # update with other bytes is too late.
        # other bytes for it come too late.
        for repeated, expected in ((update, first), (last, answer)):
            self.assertEqual(self.worker.post(repeated), expected)
        with self.assertRaises(ConnectError) as caught:
            self.worker.post(other)
        self.assertIn(caught.exception.code, ("already_exists", "failed_precondition"))
        self.assertEqual(self.detail(), after)

    def join(self, **fields):
        return messages.JoinRequest(format=FORMAT, **fields)

    def test_bad_join(self):
        for request in (
            self.join(name="w", slots=0),
            self.join(name="w", slots=2**32 - 1),
            self.join(name="", slots=1),
            self.join(name="x" * 100000, slots=1),
            self.join(name="tab\there", slots=1),
            self.join(name="first C1 control \x80", slots=1),
            self.join(name="red \x9b31m", slots=1),
            self.join(name="\x9f", slots=1),
            self.join(name="two\u2028lines", slots=1),
            self.join(name="reads backwards \u202e", slots=1),
            self.join(name="w", slots=1, job_id="x" * 1000),
        ):
            with self.subTest(str(request)[:100]):
                self.assert_connect_error(
                    "invalid_argument", self.client.call, "Join", request, messages.JoinResponse
                )
        request = self.join(name="w", slots=1, job_id="nobody")
        self.assert_connect_error("not_found", self.client.call, "Join", request, messages.JoinResponse)
        workers = self.client.get_json("/v1/workers")["workers"]
        self.assertEqual([worker["name"] for worker in workers], ["honest"])
        self.assert_unchanged()

    def test_bad_sessions(self):
        for session in (0, 1, self.worker.session + 1, 2**64 - 1):
            poll = messages.PollTaskRequest(session=session, wait_ms=60000)
            self.assert_connect_error(
                "not_found", self.client.call, "PollTask", poll, messages.PollTaskResponse
            )
            # Leaving twice is not an error, nor is leaving a session that never existed.
            self.client.call("Leave", messages.LeaveRequest(session=session), messages.LeaveResponse)
        self.assert_unchanged()

    def test_protocol_headers(self):
        body = self.worker.update(self.task, 0).SerializeToString()
        for content_type in ("application/json", "text/plain", "application/grpc", "application/protobuf"):
            answer = self.client.call_raw("PostUpdate", body, {"Content-Type": content_type})
            self.assertEqual(answer.status, 415, answer)
        answer = self.client.call_raw("PostUpdate", body, {"Connect-Protocol-Version": "2"})
        self.assertEqual((answer.status, answer.json()["code"]), (400, "invalid_argument"))
        answer = self.client.call_raw("PostUpdate", body, {"Content-Encoding": "gzip"})
        self.assertEqual((answer.status, answer.json()["code"]), (415, "invalid_argument"))
        self.assertIn("the body is compressed (gzip); send it uncompressed", answer.json()["message"])
        answer = self.client.post_job(gzip.compress(b"{}"), {"Content-Encoding": "gzip"})
        self.assert_problem(answer, 415, "Content-Encoding")
        for method in ("GET", "PUT", "DELETE"):
            answer = self.client.request(method, "/tally.v1.WorkerService/PostUpdate")
            self.assertEqual(answer.status, 405, answer)
        answer = self.client.call_raw("Dance", body)
        self.assertEqual(answer.status, 404, answer)
        self.assert_unchanged()

    def test_job_goes_on_afterwards(self):
        """After all of that, the job still runs to its end. All gradients are zero, so no round passes the test of
        CEAL."""
        task = self.task
        rounds = 0
        while True:
            for client in task.clients:
                self.worker.post(self.worker.update(task, client))
            rounds += 1
            if self.client.job(self.job_id)["status"] == "completed":
                break
            self.worker.cursors = {self.job_id: task.iterate}
            task = self.worker.poll_task()
        detail = self.client.job(self.job_id)
        uplink = detail["bits"]["uplink"]
        sent = uplink["messages"]
        self.assertEqual(uplink, {"formula": 30 * sent, "payload": 30 * sent, "messages": sent, "clipped": 0})
        self.assertEqual(detail["bits"]["downlink"]["messages"], 0)
        self.assertEqual(detail["iterate"], 1)
        self.assertEqual(detail["time_step"], detail["horizon"])
        self.assertGreaterEqual(rounds, sent // 2)
        self.assertEqual(essence(detail)["x_checksum"], self.before["x_checksum"])


if __name__ == "__main__":
    unittest.main()
