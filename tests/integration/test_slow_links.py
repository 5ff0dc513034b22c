"""Messages that take several times the session timeout, from a worker that is written from worker.proto alone.

The pace of a message follows from the timeout. On a busy machine, a piece may come so late that the session ends with
good reason, or the job no longer says that bytes move: then the test is repeated with a longer timeout."""

import http.client
import socket
import time
import unittest

from common import Client, ForeignWorker, TallyTestCase, job_document, messages, wait_until

TIMEOUTS_S = (1, 4, 16)
LENGTH = 3  # of a message, in session timeouts
PIECES = 30
DIM = 100000  # updates and broadcasts of 400 KB
POST = "/tally.v1.WorkerService/PostUpdate"
PROTO = "application/proto"


class SmallWindow(http.client.HTTPConnection):
    """Its kernel takes little of a response before the program reads it."""

    def connect(self):
        self.sock = socket.socket()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.sock.connect((self.host, self.port))


class WithToken(Client):
    def __init__(self, port, token):
        super().__init__(port)
        self.token = {"Authorization": f"Bearer {token}"}

    def request(self, method, path, body=None, headers=None, **options):
        return super().request(method, path, body, {**(headers or {}), **self.token}, **options)


class SlowLinks(TallyTestCase):
    def start(self, timeout_s, *options):
        self.coordinator = self.start_coordinator(store="memory:", name=f"coordinator-{timeout_s}", options=(
            "--session-timeout-ms", str(1000 * timeout_s), *options))
        self.pause_s = LENGTH * timeout_s / PIECES
        self.client = self.coordinator.client
        self.worker = ForeignWorker(self.client)
        self.job_id = self.submit(self.client)

    def submit(self, client):
        return client.submit(job_document(
            "synthetic-ceal", algorithm={"type": "fedavg", "step_size": 0.1, "local_steps": 1}, encoding=None,
            clients=1, quorum=1, horizon=2, objective__data__dim=DIM, objective__data__points=2,
            reference={"type": "none"}))

    def patiently(self, attempt):
        for timeout_s in TIMEOUTS_S:
            try:
                attempt(timeout_s)
                self.assertNotIn("session timed out", self.coordinator.log())
                return
            except AssertionError:
                if timeout_s == TIMEOUTS_S[-1]:
                    raise

    def update(self, worker):
        """Returns an update of zeros for the worker's task."""
        return worker.update(worker.poll_task(), 0, payload=bytes(4 * DIM), payload_bits=32 * DIM)

    def connection(self):
        return http.client.HTTPConnection(self.client.host, self.client.port)

    def begin(self, line, body, **headers):
        line.putrequest("POST", POST)
        for name, value in {"Content-Type": PROTO, "Content-Length": str(len(body)), **headers}.items():
            line.putheader(name, value)
        line.endheaders()

    def send_slowly(self, line, body):
        step = -(-len(body) // PIECES)
        for at in range(0, len(body), step):
            line.send(body[at:at + step])
            time.sleep(self.pause_s)

    def assert_accepted(self, line):
        response = line.getresponse()
        self.assertEqual(response.status, 200, response.read())
        line.close()

    def waiting(self):
        waiting = self.client.job(self.job_id)["waiting"]
        return waiting["text"] if waiting else ""

    def test_an_update_on_a_new_connection(self):
        """The session is known from the first bytes. A body may take longer than --request-timeout-s."""

        def attempt(timeout_s):
            self.start(timeout_s, "--request-timeout-s", str(timeout_s), "--idle-timeout-s", str(timeout_s))
            body = self.update(self.worker).SerializeToString()
            line = self.connection()
            self.begin(line, body)
            self.send_slowly(line, body[:len(body) * 3 // 4])
            self.assertRegex(self.waiting(), r"; client 0 is sending, 7[45] %")
            self.send_slowly(line, body[len(body) * 3 // 4:])
            self.assert_accepted(line)

        self.patiently(attempt)

    def test_an_update_with_its_session_at_the_end(self):
        """The session is known from the previous call on the connection."""

        def attempt(timeout_s):
            self.start(timeout_s)
            update = self.update(self.worker)
            line = self.connection()
            line.request("POST", "/tally.v1.WorkerService/PollTask",
                         messages.PollTaskRequest(session=self.worker.session, wait_ms=1).SerializeToString(),
                         {"Content-Type": PROTO})
            self.assertEqual(line.getresponse().read()[:1] != b"", True)
            update.ClearField("session")
            body = (update.SerializeToString()
                    + messages.LeaveRequest(session=self.worker.session).SerializeToString())
            self.begin(line, body)
            self.send_slowly(line, body)
            self.assert_accepted(line)

        self.patiently(attempt)

    def test_a_broadcast(self):
        def attempt(timeout_s):
            self.start(timeout_s, "--request-timeout-s", str(timeout_s), "--idle-timeout-s", str(timeout_s))
            self.worker.post(self.update(self.worker))
            line = SmallWindow(self.client.host, self.client.port)
            poll = messages.PollTaskRequest(session=self.worker.session, wait_ms=10000)
            line.request("POST", "/tally.v1.WorkerService/PollTask", poll.SerializeToString(), {"Content-Type": PROTO})
            response = line.getresponse()
            piece = -(-int(response.headers["Content-Length"]) // PIECES)
            body = b""
            while piece_read := response.read(piece):
                body += piece_read
                time.sleep(self.pause_s)
                if len(body) == PIECES // 2 * piece:
                    self.assertRegex(self.waiting(), r"; client 0 is receiving, \d\d %")
            task = messages.PollTaskResponse.FromString(body).task
            self.assertEqual(task.round, 2)
            self.worker.post(self.worker.update(task, 0, payload=bytes(4 * DIM), payload_bits=32 * DIM))

        self.patiently(attempt)

    def test_progress_through_a_proxy(self):
        """The message is at a proxy, and only the worker knows how far it has got."""

        def attempt(timeout_s):
            self.start(timeout_s)
            update = self.update(self.worker)
            for i in range(PIECES):
                self.client.call("Progress", messages.ProgressRequest(
                    session=self.worker.session, bytes=i, of_bytes=PIECES), messages.ProgressResponse)
                time.sleep(self.pause_s)
            self.assertIn("; client 0 is sending, 96 %", self.waiting())
            self.worker.post(update)

        self.patiently(attempt)

    def test_silence_in_the_middle_of_an_update(self):
        self.start(TIMEOUTS_S[0])
        body = self.update(self.worker).SerializeToString()
        line = self.connection()
        self.begin(line, body)
        line.send(body[:len(body) // 2])
        wait_until(lambda: "session timed out" in self.coordinator.log(), "the session to end")
        line.send(body[len(body) // 2:])
        response = line.getresponse()
        self.assertEqual((response.status, b"join again" in response.read()), (404, True))

    def test_a_stranger_cannot_keep_a_session(self):
        """Bytes that come without a session's token are no contact of its worker."""
        tokens = {name: f"{name}-{name}-{name}-{name}" for name in ("alice", "mallory", "admin")}
        for name in ("worker", "admin"):
            with open(f"{self.folder}/{name}-tokens", "w", encoding="ascii") as file:
                file.writelines(f"{token}\n" for who, token in tokens.items() if (who == "admin") == (name == "admin"))
        self.coordinator = self.start_coordinator(store="memory:", options=(
            "--session-timeout-ms", "1000", "--worker-token-file", "worker-tokens",
            "--admin-token-file", "admin-tokens"))
        self.client = WithToken(self.coordinator.port, tokens["admin"])
        worker = ForeignWorker(WithToken(self.coordinator.port, tokens["alice"]))
        self.submit(self.client)
        body = self.update(worker).SerializeToString()
        line = self.connection()
        self.begin(line, body, Authorization=f"Bearer {tokens['mallory']}")
        sent = 0
        while "session timed out" not in self.coordinator.log():
            self.assertLess(sent, len(body) - 100, "the session is kept")
            line.send(body[sent:sent + 100])
            sent += 100
            time.sleep(0.05)  # many bytes within a session timeout
        line.close()


if __name__ == "__main__":
    unittest.main()
