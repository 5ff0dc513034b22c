"""A worker and a coordinator of different formats (codec/FORMAT.md): Join fails with a clear message, and no message or
payload is decoded in the wrong format.
"""

import http.server
import json
import threading
import unittest

from common import FORMAT, ForeignWorker, TallyTestCase, messages

LAST_OF_OLDER = "0.15 is the last release of format 2"
REFUSED = {"code": "failed_precondition", "message": "format: upgrade the worker, says this one"}


class OtherCoordinator(http.server.ThreadingHTTPServer):
    """A stand-in that answers each method with the entries of `script` in turn: a message, or an error object. `calls`
    lists the methods called, `formats` the formats stated at Join."""

    daemon_threads = True

    def __init__(self, **script):
        self.script = {method: list(answers) for method, answers in script.items()}
        self.calls = []
        self.formats = []
        super().__init__(("127.0.0.1", 0), Answering)
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Answering(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = self.rfile.read(int(self.headers["Content-Length"]))
        method = self.path.rsplit("/", 1)[-1]
        self.server.calls.append(method)
        if method == "Join":
            self.server.formats.append(messages.JoinRequest.FromString(request).format)
        answers = self.server.script.get(method, [])
        answer = answers.pop(0) if answers else {"code": "unimplemented", "message": "not in the script"}
        is_error = isinstance(answer, dict)
        body = json.dumps(answer).encode() if is_error else answer.SerializeToString()
        self.send_response(400 if is_error else 200)
        self.send_header("Content-Type", "application/json" if is_error else "application/proto")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Coordinator(TallyTestCase):
    """A coordinator refuses workers with another format."""

    def setUp(self):
        super().setUp()
        self.coordinator = self.start_coordinator()
        self.client = self.coordinator.client

    def workers(self):
        return self.client.get_json("/v1/workers")["workers"]

    def join(self, request):
        return self.client.call("Join", request, messages.JoinResponse)

    def test_tells_its_own(self):
        answer = self.join(messages.JoinRequest(name="w", slots=1, format=FORMAT))
        self.assertEqual(answer.format, FORMAT)

    def test_another_is_refused(self):
        live = ForeignWorker(self.client, name="w")
        before = self.workers()
        for other, behind in (
            ({"format": 1}, f"worker; {LAST_OF_OLDER}"),
            ({"format": 2}, f"worker; {LAST_OF_OLDER}"),
            ({"format": FORMAT + 1}, "coordinator"),
            ({"format": 2**32 - 1}, "coordinator"),
        ):
            with self.subTest(other):
                request = messages.JoinRequest(name="w", slots=1, **other)
                refused = self.assert_connect_error("failed_precondition", self.join, request)
                self.assertIn(f"format {other['format']}", str(refused))
                self.assertIn(f"upgrade the {behind}", str(refused))
                self.assertIn(f"upgrade the {behind}", self.coordinator.log().splitlines()[-1])
        self.assertEqual([worker["name"] for worker in self.workers()], ["w"])
        self.assertEqual(self.workers()[0]["joined_ms"], before[0]["joined_ms"])
        live.poll(wait_ms=1)  # the refused Join used up no session

    def test_silence(self):
        """Tally's own workers up to 0.5.0 state no format."""
        refused = self.assert_connect_error("failed_precondition", self.join, messages.JoinRequest(name="w", slots=1))
        self.assertIn("the worker states no format", str(refused))
        self.assertIn(f"is {FORMAT}: upgrade the worker", str(refused))

    def test_a_worker_of_0_15(self):
        """The bytes of its calls. After an upgrade of the coordinator it still polls and posts in its old session, which
        is unknown now, and joins again."""
        session = b"\x09" + bytes(range(8))
        job = b"\x12\x0c" + b"0123456789ab"
        poll = session + b"\x10\x90\x4e\x1a\x10\x0a\x0c" + b"0123456789ab" + b"\x10\x01"
        update = session + job + b"\x18\x01\x20\x02\x2a\x04" + bytes(4) + b"\x30\x1e\x41" + bytes(8) + b"\x68\x05"
        updates = session + 2 * (b"\x2a\x0a\x08\x01\x12\x04" + bytes(4) + b"\x18\x1e") + job + b"\x18\x01\x20\x05"
        for method, body, code in (("PollTask", poll, "not_found"), ("PostUpdate", update, "invalid_argument"),
                                   ("PostUpdates", updates, "not_found")):
            with self.subTest(method):
                self.assertEqual(self.client.call_raw(method, body).json()["code"], code)
        join = b"\x0a\x03old\x10\x02\x22\x10\x0a\x0c" + b"0123456789ab" + b"\x10\x01\x28\x02\x30\x01"
        refused = self.client.call_raw("Join", join)
        self.assertEqual((refused.status, refused.json()), (400, {
            "code": "failed_precondition",
            "message": "format: the worker's messages are of format 2, the coordinator's of format 3: upgrade the "
                       f"worker; {LAST_OF_OLDER}"}))

    def test_others_are_told_the_same_before_what_else_is_wrong(self):
        request = messages.JoinRequest(name="", slots=0, job_id="nobody", format=1)
        self.assert_connect_error("failed_precondition", self.join, request)


class Worker(TallyTestCase):
    """A worker that meets a coordinator with another format exits and gives the reason."""

    def run_at(self, **script):
        coordinator = OtherCoordinator(**script)
        self.addCleanup(coordinator.server_close)
        self.addCleanup(coordinator.shutdown)
        worker = self.start_worker(coordinator, "w", clients=2)
        self.assertEqual(worker.wait(), 1, worker.log())
        self.assertIn("fatal error", worker.log())
        self.assertEqual(set(coordinator.formats), {FORMAT})
        return coordinator.calls, worker.log()

    def joined(self, **other):
        return messages.JoinResponse(session=7, session_timeout_ms=10000, **other)

    def test_older_coordinator(self):
        """If such a coordinator accepts the worker, the worker leaves without requesting a task."""
        for stated in ({}, {"format": 2}):
            with self.subTest(**stated):
                calls, log = self.run_at(Join=[self.joined(**stated)], Leave=[messages.LeaveResponse()])
                self.assertEqual(calls, ["Join", "Leave"])
                self.assertIn(f"upgrade the coordinator; {LAST_OF_OLDER}", log)
                self.assertNotIn("event=joined", log)

    def test_a_coordinator_of_0_15(self):
        message = "format: the worker's messages are of format 3, the coordinator's of format 2: upgrade the coordinator"
        calls, log = self.run_at(Join=[{"code": "failed_precondition", "message": message}])
        self.assertEqual(calls, ["Join"])
        self.assertIn(message, log)

    def test_newer_coordinator(self):
        calls, log = self.run_at(Join=[REFUSED])
        self.assertEqual(calls, ["Join"])
        self.assertIn("upgrade the worker, says this one", log)

    def test_newer_coordinator_that_takes_all(self):
        calls, log = self.run_at(Join=[self.joined(format=FORMAT + 1)], Leave=[messages.LeaveResponse()])
        self.assertEqual(calls, ["Join", "Leave"])
        self.assertIn("upgrade the worker", log)

    def test_coordinator_upgraded_under_a_session(self):
        """A restart forgets sessions, so the format is checked again at the next Join."""
        calls, log = self.run_at(
            Join=[self.joined(format=FORMAT), REFUSED],
            PollTask=[{"code": "unavailable", "message": "restarting"},
                      {"code": "not_found", "message": "session: unknown"}],
        )
        self.assertEqual(calls, ["Join", "PollTask", "PollTask", "Join"])
        self.assertIn("upgrade the worker, says this one", log)


if __name__ == "__main__":
    unittest.main()
