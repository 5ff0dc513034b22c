"""Permissions: tokens, and the sessions that belong to them.

After every refusal, the tests check that nothing has changed.
"""

import contextlib
import datetime
import http.client
import itertools
import json
import os
import secrets
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
import unittest
from pathlib import Path

import common
from common import (ENDLESS, FORMAT, Client, ForeignWorker, TallyTestCase, essence_so_far, free_port,
                    job_document, messages, wait_until)

METHODS = ("Join", "PollTask", "PostUpdate", "Progress", "Describe", "Leave")


def utc(seconds_from_now):
    moment = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds_from_now)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TokenClient(Client):
    """Sends its token with every request; None sends no token."""

    def __init__(self, port, token):
        super().__init__(port)
        self.token = token

    def request(self, method, path, body=None, headers=None, timeout_s=common.SILENCE_S):
        bearer = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        return super().request(method, path, body, {**bearer, **(headers or {})}, timeout_s)


class AccessTestCase(TallyTestCase):
    def setUp(self):
        super().setUp()
        self.tokens = {name: secrets.token_hex(24) for name in
                       ("admin", "alice", "alice2", "bob", "metrics", "expired", "old-admin")}
        self.write("admin-tokens", self.tokens["admin"] + " name=operator",
                   self.tokens["old-admin"] + " until=2026-01-01T00:00:00Z")
        self.write_workers("alice name=alice", "bob", "expired until=2026-01-01T00:00:00Z")
        self.write("metrics-tokens", self.tokens["metrics"])

    def write(self, name, *lines):
        path = Path(self.folder) / name
        fresh = path.with_suffix(".new")
        fresh.write_text("".join(line + "\n" for line in lines))
        fresh.chmod(0o600)
        os.replace(fresh, path)  # replaced atomically: a reader sees either the old file or the new one
        return path

    def write_workers(self, *lines):
        """The workers' token file; the first word of a line is the name of a token above."""
        words = [line.partition(" ") for line in lines]
        return self.write("worker-tokens", *(f"{self.tokens[who]} {rest}" for who, _, rest in words))

    def token_options(self):
        return ("--admin-token-file", "admin-tokens", "--worker-token-file", "worker-tokens",
                "--metrics-token-file", "metrics-tokens")

    def start(self, *options, **more):
        self.coordinator = self.start_coordinator(
            options=(*self.token_options(), "--log-level", "debug", *options), **more)
        self.admin = self.client("admin")
        return self.coordinator

    def client(self, who):
        return TokenClient(self.coordinator.port, self.tokens.get(who, who))

    def worker(self, who, name, **more):
        return ForeignWorker(self.client(who), name, **more)

    def reload(self, event="tokens reloaded"):
        before = self.coordinator.log().count(event)
        self.coordinator.popen.send_signal(signal.SIGHUP)
        wait_until(lambda: self.coordinator.log().count(event) > before, event)

    def playing(self, job_id):
        """Returns which worker serves which client of the job."""
        return {(worker["name"], each["client"]) for worker in self.admin.get_json("/v1/workers")["workers"]
                for each in worker["assignments"] if each["job"] == job_id}

    def wait_playing(self, job_id, *wanted):
        wait_until(lambda: self.playing(job_id) == set(wanted), f"{wanted} to play {job_id}")

    def everything(self):
        """Returns everything that a request could have changed: jobs, workers, and every row of the database, without
        the time since each worker's last contact, which changes by itself."""
        jobs = self.admin.get_json("/v1/jobs")["jobs"]
        details = [self.admin.job(job["id"]) for job in jobs]
        workers = self.admin.get_json("/v1/workers")
        for worker in workers["workers"]:
            del worker["last_contact_age_ms"]
        with contextlib.closing(sqlite3.connect(self.coordinator.store.removeprefix("sqlite:"))) as database:
            rows = list(database.iterdump())
        return json.dumps([details, workers, rows], default=repr)

    @contextlib.contextmanager
    def nothing_changes(self):
        # The wire counters of earlier requests are stored within a second. After that nothing changes.
        def settled():
            counters = [self.admin.job(job["id"])["bits"]["wire_bytes"] for job in
                        self.admin.get_json("/v1/jobs")["jobs"]]
            steady = counters == self.last_counters
            self.last_counters = counters
            return steady

        self.last_counters = None
        wait_until(settled, "the wire counters to stand still", pause_s=1.2)
        before = self.everything()
        yield
        self.assertEqual(self.everything(), before)


class Tokens(AccessTestCase):
    # The owner of the token, and the status at the routes of REST, workers and metrics.
    STATUS = {None: (401, 401, 401), "": (401, 401, 401), "nonsense-nonsense": (401, 401, 401),
              "expired": (401, 401, 401), "old-admin": (401, 401, 401),
              "alice": (403, None, 403), "bob": (403, None, 403), "metrics": (403, 403, None),
              "admin": (None, 403, None)}
    ROUTES = [("POST", "/v1/jobs"), ("POST", "/v1/jobs/import"), ("GET", "/v1/jobs"), ("GET", "/v1/jobs/ID"),
              ("POST", "/v1/jobs/ID/cancel"), ("POST", "/v1/jobs/ID/pause"), ("POST", "/v1/jobs/ID/resume"), ("GET", "/v1/jobs/ID/rounds"),
              ("GET", "/v1/jobs/ID/rounds.csv"), ("GET", "/v1/jobs/ID/model"), ("GET", "/v1/jobs/ID/models"),
              ("GET", "/v1/jobs/ID/scaling"),
              ("GET", "/v1/jobs/ID/series"),
              ("GET", "/v1/jobs/ID/events"), ("GET", "/v1/workers")]

    def test_wrong_tokens_open_nothing_and_change_nothing(self):
        self.start("--session-timeout-ms", "600000")
        document = json.dumps(job_document(clients=2, quorum=2)).encode()
        job_id = self.admin.submit(document.decode())
        bob = self.worker("bob", "bob")
        alice = self.worker("alice", "alice")
        self.wait_playing(job_id, ("alice", 0), ("bob", 1))  # the worker that joined last is assigned the first client
        task = alice.poll_task()
        right = alice.update(task, 0)
        calls = {"Join": messages.JoinRequest(name="alice", slots=1, format=FORMAT), "PollTask":
                 messages.PollTaskRequest(session=alice.session), "PostUpdate": right,
                 "Progress": messages.ProgressRequest(session=alice.session, bytes=1, of_bytes=2),
                 "Describe": messages.DescribeRequest(session=alice.session, job_id=job_id, origin="{}"),
                 "Leave": messages.LeaveRequest(session=alice.session)}
        with self.nothing_changes():
            for who, (rest, worker, metrics) in self.STATUS.items():
                client = self.client(who)
                for method, path in self.ROUTES if rest is not None else []:
                    answer = client.request(method, path.replace("ID", job_id), document if path == "/v1/jobs" else b"",
                                            {"Content-Type": "application/json"})
                    problem = self.assert_problem(answer, rest)
                    self.assertEqual(problem["code"], {401: "unauthenticated", 403: "permission_denied"}[rest])
                    self.assertEqual(answer.headers.get("WWW-Authenticate"), "Bearer" if rest == 401 else None)
                    expired = who in ("expired", "old-admin")
                    self.assertEqual(problem["detail"] == "the token has expired", expired, problem)
                if metrics is not None:
                    self.assert_problem(client.get("/metrics"), metrics)
                for method in METHODS if worker is not None else []:
                    answer = client.call_raw(method, calls[method].SerializeToString())
                    self.assertEqual(answer.status, worker, (who, method, answer))
                    self.assertEqual(answer.json()["code"],
                                     {401: "unauthenticated", 403: "permission_denied"}[worker])
                for path in ("/healthz", "/readyz", "/", "/openapi.yaml"):
                    self.assertEqual(client.get(path).status, 200)
        # Only the tokens were wrong; the calls themselves are valid.
        alice.post(right)
        self.assertEqual(bob.poll_task().round, task.round)
        self.assertEqual(self.client("metrics").get("/metrics").status, 200)
        self.assertEqual(self.admin.get("/metrics").status, 200)

    def test_a_large_body_of_a_refused_request_is_not_read(self):
        """The response comes before any byte of the body is sent."""
        self.start(store="memory:")
        join = "/tally.v1.WorkerService/Join"
        for (who, path, status), framing in itertools.product(
                ((None, "/v1/jobs", 401), ("alice", "/v1/jobs", 403), (None, join, 401), ("admin", join, 403),
                 ("admin", "/v1/nothing", 404), ("admin", "/healthz", 405)),
                (("Content-Length", str(1 << 20)), ("Transfer-Encoding", "chunked"))):
            with self.subTest(who=who, path=path, framing=framing), \
                    contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.coordinator.port,
                                                                  timeout=common.HANG_S)) as connection:
                connection.putrequest("POST", path)
                connection.putheader(*framing)
                if who is not None:
                    connection.putheader("Authorization", f"Bearer {self.tokens[who]}")
                connection.endheaders()
                answer = connection.getresponse()
                self.assertEqual((answer.status, answer.headers["Connection"]), (status, "close"))
                self.assertEqual(answer.headers["WWW-Authenticate"], "Bearer" if status == 401 else None)
                error = json.loads(answer.read())
                self.assertEqual(error["code"], {401: "unauthenticated", 403: "permission_denied", 404: "not_found",
                                                 405: "method_not_allowed"}[status])
        self.assertEqual(self.admin.get("/v1/jobs").status, 200)

    def test_other_schemes_and_spellings(self):
        self.start(store="memory:")
        token = self.tokens["admin"]
        for header, status in ((f"Bearer {token}", 200), (f"bearer {token}", 200), (f"BEARER {token}", 200),
                               (token, 401), (f"Basic {token}", 401), (f"Bearer{token}", 401), ("Bearer", 401),
                               ("Bearer ", 401), (f"Bearer {token[:-1]}", 401), (f"Bearer {token}0", 401),
                               (f"Bearer {token} {token}", 401), (f"Bearer {token.upper()}", 401),
                               (f"Bearer {'x' * 8000}", 401)):
            answer = Client(self.coordinator.port).get("/v1/jobs", Authorization=header)
            self.assertEqual(answer.status, status, header[:100])

    def test_a_token_ends_in_time(self):
        """An open event stream ends when the token that opened it expires."""
        self.write("admin-tokens", self.tokens["admin"], f"{self.tokens['old-admin']} until={utc(3)}")
        self.start(store="memory:")
        job_id = self.admin.submit(job_document())
        ending = self.client("old-admin")
        streams = []
        reader = threading.Thread(target=lambda: streams.append(ending.get(f"/v1/jobs/{job_id}/events")))
        reader.start()
        wait_until(lambda: "tally_event_streams 1" in self.admin.get("/metrics").body.decode() or streams, "a stream")
        wait_until(lambda: ending.get("/v1/jobs").status != 200, "the token to end")
        answer = ending.get("/v1/jobs")
        self.assertEqual(self.assert_problem(answer, 401)["detail"], "the token has expired")
        reader.join(common.HANG_S)
        self.assertEqual(streams[0].status, 200)
        self.assertEqual(self.admin.get("/v1/jobs").status, 200)


class Identity(AccessTestCase):
    """Token names and sessions: two tokens share the name "alice"; "bob" has one token."""

    def setUp(self):
        super().setUp()
        self.write_workers("alice name=alice", "alice2 name=alice", "bob", "expired until=2026-01-01T00:00:00Z")

    def assert_denied(self, call, *arguments):
        self.assertEqual(self.assert_connect_error("permission_denied", call, *arguments).status, 403)

    def test_nobody_polls_posts_or_leaves_for_another(self):
        self.start("--session-timeout-ms", "600000")
        job_id = self.admin.submit(job_document(clients=1, quorum=1))
        alice = self.worker("alice", "alice")
        self.wait_playing(job_id, ("alice", 0))
        task = alice.poll_task()
        thief = self.worker("bob", "bob")
        thief.session = alice.session
        with self.nothing_changes():
            self.assert_denied(thief.poll, 0)
            self.assert_denied(thief.post, thief.update(task, 0))
            self.assert_denied(thief.post, thief.update(task, 0, failure="made up"))
            self.assert_denied(thief.leave)
        # The other token of the same name is accepted, so tokens can be changed during a job.
        alice.client = self.client("alice2")
        alice.post(alice.update(task, 0))
        self.assertEqual(alice.poll_task().round, task.round + 1)
        alice.leave()
        self.wait_playing(job_id, ("bob", 0))

    def test_nobody_takes_a_name_over(self):
        self.start("--session-timeout-ms", "600000")
        job_id = self.admin.submit(job_document(clients=1, quorum=1))
        alice = self.worker("alice", "w")
        self.wait_playing(job_id, ("w", 0))
        task = alice.poll_task()
        with self.nothing_changes():
            self.assert_denied(lambda: self.worker("bob", "w"))
            self.assert_denied(lambda: self.worker("bob", "w", held=[(job_id, 0)]))
        alice.post(alice.update(task, 0))
        again = self.worker("alice2", "w", held=[(job_id, 0)])  # the owner may reuse the name for a new session
        self.assert_connect_error("not_found", alice.poll, 0)
        self.assertEqual(again.poll_task().round, task.round + 1)
        names = {worker["name"]: worker["token_name"] for worker in self.admin.get_json("/v1/workers")["workers"]}
        self.assertEqual(names, {"w": "alice"})
        again.leave()
        self.worker("bob", "w")  # the name is free again
        names = {worker["name"]: worker["token_name"] for worker in self.admin.get_json("/v1/workers")["workers"]}
        self.assertEqual(names, {"w": None})

    def test_a_token_has_so_many_sessions(self):
        """The session limit applies to all tokens of one name together. A worker that joins again under its name does
        not count twice."""
        self.start("--session-timeout-ms", "600000", "--max-sessions-per-token", "2", store="memory:")
        first = self.worker("alice", "first")
        self.worker("alice2", "second")
        for who in ("alice", "alice2"):
            error = self.assert_connect_error("resource_exhausted", lambda: self.worker(who, "third"))
            self.assertIn("2 workers have a session with this token, the limit is 2", error.message)
        self.worker("bob", "of another")
        second = self.worker("alice", "second")
        self.assert_connect_error("resource_exhausted", lambda: self.worker("alice", "third"))
        first.leave()
        self.worker("alice", "third")
        self.assert_connect_error("resource_exhausted", lambda: self.worker("alice2", "fourth"))
        self.assertEqual(second.poll(wait_ms=1).WhichOneof("kind"), "idle")

    def test_held_clients_go_back_to_whoever_played_them(self):
        self.start("--session-timeout-ms", "600000", store="memory:")
        job_id = self.admin.submit(job_document(clients=3, quorum=3))
        alice = self.worker("alice", "alice", slots=3)
        self.wait_playing(job_id, ("alice", 0), ("alice", 1), ("alice", 2))
        alice.leave()
        # The other owner receives the next free client, not the one that it requests.
        bob = self.worker("bob", "alice", held=[(job_id, 2)])
        self.wait_playing(job_id, ("alice", 0))
        bob.leave()
        self.worker("alice2", "alice", held=[(job_id, 2)])
        self.wait_playing(job_id, ("alice", 2))

    def test_after_a_restart_the_first_to_ask_gets_it(self):
        """The owner that served a client is not stored, so after a restart another owner may request that client and
        get it."""
        self.start("--session-timeout-ms", "600000")
        job_id = self.admin.submit(job_document(clients=3, quorum=3))
        self.worker("alice", "alice", slots=3)
        self.wait_playing(job_id, ("alice", 0), ("alice", 1), ("alice", 2))
        self.coordinator.kill()
        self.start("--session-timeout-ms", "600000", port=self.coordinator.port, name="again")
        self.worker("bob", "bob", held=[(job_id, 2)])
        self.wait_playing(job_id, ("bob", 2))

    def test_a_late_update_counts_if_it_is_by_whoever_played(self):
        self.start("--session-timeout-ms", "8000", store="memory:")
        other = self.admin.submit(job_document(clients=100, quorum=100))  # never starts; for pinned workers
        job_id = self.admin.submit(job_document(clients=1, quorum=1))
        alice = self.worker("alice", "alice")
        self.wait_playing(job_id, ("alice", 0))
        task = alice.poll_task()
        self.wait_playing(job_id)  # the session of alice has timed out
        bob = self.worker("bob", "alice", job_id=other)
        self.assert_denied(bob.post, bob.update(task, 0))
        bob.leave()
        again = self.worker("alice2", "alice", job_id=other)
        again.post(again.update(task, 0))
        self.assertEqual(self.admin.job(job_id)["round"], task.round)

    def test_without_tokens_all_are_the_same(self):
        self.coordinator = self.start_coordinator(store="memory:")
        self.admin = self.client(None)
        job_id = self.admin.submit(job_document(clients=1, quorum=1))
        first = self.worker(None, "w")
        self.wait_playing(job_id, ("w", 0))
        self.worker(None, "w", held=[(job_id, 0)])
        self.assert_connect_error("not_found", first.poll, 0)


class Rotation(AccessTestCase):
    def test_tokens_change_under_a_running_job(self):
        document = job_document("synthetic-ceal-long", clients=3, quorum=3, horizon=ENDLESS)
        self.write_workers("alice name=site")
        self.start()
        workers = [self.start_worker(self.coordinator, f"w{i}", options=("--token-file", "worker-tokens"))
                   for i in range(3)]
        job_id = self.admin.submit(document)

        self.admin.wait_rounds(job_id, 10)
        self.write_workers("alice2 name=site", "alice name=site")  # both are valid
        self.reload()
        self.admin.wait_rounds(job_id, 10)
        self.write_workers("alice2 name=site")  # now the old one is invalid
        self.reload()
        wait_until(lambda: all("token reloaded" in worker.log() for worker in workers), "new tokens in use")
        self.write("admin-tokens", self.tokens["old-admin"])
        self.reload()
        self.assert_problem(self.admin.get("/v1/jobs"), 401)
        self.admin = self.client("old-admin")
        self.admin.wait_rounds(job_id, 10)
        detail = self.admin.job(job_id)
        self.assertEqual(*essence_so_far(detail, document))
        self.assertEqual(detail["bits"]["recovery"], 0)  # no point had to be sent again
        self.assertEqual([worker.is_alive() for worker in workers], [True] * 3)
        self.assertNotIn("session timed out", self.coordinator.log())

    def test_a_removed_token_ends_what_it_had_opened(self):
        self.start("--session-timeout-ms", "600000")
        job_id = self.admin.submit(job_document(clients=2, quorum=2))
        bob, alice = self.worker("bob", "bob"), self.worker("alice", "alice")
        self.wait_playing(job_id, ("alice", 0), ("bob", 1))  # the worker that joined last is assigned the first client
        task = alice.poll_task()
        alice.post(alice.update(task, 0))
        ended = []
        threads = [threading.Thread(target=lambda: ended.append(alice.poll(30000))),
                   threading.Thread(target=lambda: ended.append(self.admin.get(f"/v1/jobs/{job_id}/events")))]
        for thread in threads:
            thread.start()
        wait_until(lambda: "tally_event_streams 1" in self.admin.get("/metrics").body.decode()
                   and [w["state"] for w in self.admin.get_json("/v1/workers")["workers"] if w["name"] == "alice"]
                   == ["waiting"], "a stream and a poll that wait")
        late = alice.update(task, 0)
        self.write("admin-tokens", self.tokens["old-admin"])
        self.write_workers("bob")
        self.reload()
        for thread in threads:
            thread.join(common.HANG_S)  # both the poll and the stream end at once
        self.assertEqual(len(ended), 2)
        self.assert_problem(self.admin.get("/v1/jobs"), 401)
        self.admin = self.client("old-admin")
        with self.nothing_changes():
            for call in (lambda: alice.poll(0), lambda: alice.post(late), alice.leave):
                self.assertEqual(self.assert_connect_error("unauthenticated", call).status, 401)
        bob.poll_task()

    def test_a_request_that_comes_with_the_hangup_opens_nothing_for_long(self):
        """A stream ends, or is refused, if its token is valid when checked but revoked before the request is
        processed."""
        self.start()
        job_id = self.admin.submit(job_document())
        connection = http.client.HTTPConnection("127.0.0.1", self.coordinator.port, timeout=common.HANG_S)
        self.addCleanup(connection.close)
        connection.request("GET", "/healthz")
        connection.getresponse().read()
        self.coordinator.popen.send_signal(signal.SIGSTOP)
        connection.request("GET", f"/v1/jobs/{job_id}/events",
                           headers={"Authorization": f"Bearer {self.tokens['admin']}"})
        self.write("admin-tokens", self.tokens["old-admin"])
        self.coordinator.popen.send_signal(signal.SIGHUP)
        self.coordinator.popen.send_signal(signal.SIGCONT)
        answer = connection.getresponse()
        if answer.status == 200:
            answer.read()  # until the stream ends
        else:
            self.assertEqual(answer.status, 401)

    def test_a_bad_file_changes_nothing(self):
        self.start(store="memory:")
        bad = {"": "it contains no token", f"{self.tokens['bob']} nonsense\n": "admin-tokens:1: only name=",
               f"# one\n{self.tokens['bob']}\n\nshort\n": "admin-tokens:4: the token has 5 bytes",
               "\x00" * 40: "NUL byte"}
        for text, reason in bad.items():
            Path(self.folder, "admin-tokens").write_text(text)
            self.write_workers("bob")  # this file is valid, but if one of the two files is invalid, neither is loaded
            self.reload("tokens not reloaded; the old ones remain valid")
            self.assertIn(reason, self.coordinator.log().splitlines()[-1] + self.coordinator.log())
            self.assertEqual(self.admin.get("/v1/jobs").status, 200)
            self.worker("alice", "alice").leave()
        os.unlink(Path(self.folder, "admin-tokens"))
        self.reload("tokens not reloaded; the old ones remain valid")
        self.assertIn("admin-tokens: No such file", self.coordinator.log())
        os.mkfifo(Path(self.folder, "admin-tokens"))  # opening a FIFO for reading would block, since it has no writer
        self.reload("tokens not reloaded; the old ones remain valid")
        self.assertIn("admin-tokens: is not a regular file", self.coordinator.log())
        self.assertEqual(self.admin.get("/v1/jobs").status, 200)
        os.unlink(Path(self.folder, "admin-tokens"))
        self.write("admin-tokens", self.tokens["old-admin"])
        self.reload()
        self.assertEqual(self.admin.get("/v1/jobs").status, 401)
        self.assertEqual(self.client("old-admin").get("/v1/jobs").status, 200)

    def test_a_hangup_without_tokens_is_harmless(self):
        self.coordinator = self.start_coordinator(store="memory:")
        for _ in range(20):
            self.coordinator.popen.send_signal(signal.SIGHUP)
        self.reload()
        self.assertEqual(self.coordinator.client.get("/readyz").status, 200)


class Start(AccessTestCase):
    def run_briefly(self, *options, environment=(), config=None):
        """Stops a coordinator as soon as it listens; returns its exit status and all of its output."""
        if config is not None:
            (Path(self.folder) / "coordinator.conf").write_text(config)
            options = ("--config", "coordinator.conf", *options)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TALLY_")}
        child = subprocess.Popen([common.BIN / "tally-coordinator", "--store", "memory:", *options],
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 text=True, cwd=self.folder, env={**kept, **dict(environment)})
        output = []
        for line in child.stdout:
            output.append(line)
            if "event=listening" in line:
                child.terminate()
        child.stdout.close()
        return child.wait(common.HANG_S), "".join(output)

    def test_others_are_not_let_in_by_oversight(self):
        port = free_port()
        admin, worker = ("--admin-token-file", "admin-tokens"), ("--worker-token-file", "worker-tokens")
        public = ("0.0.0.0:0", f"0.0.0.0:{port}", "[::]:0", "[::ffff:0.0.0.0]:0")
        for address in public:
            for options in ((), admin, worker, ("--metrics-token-file", "metrics-tokens", *admin)):
                for how in ("flag", "environment", "config"):
                    given = {"flag": {"options": ("--listen", address)},
                             "environment": {"environment": {"TALLY_LISTEN": address}},
                             "config": {"config": f"listen = {address}\n"}}[how]
                    status, output = self.run_briefly(*given.pop("options", ()), *options, **given)
                    self.assertEqual(status, 2, (address, options, how, output))
                    self.assertIn(f"{address} can be reached by others", output)
        for address in public:
            for options, words in (((*admin, *worker), "no TLS: tokens and data are sent unencrypted"),
                                   (("--insecure",), "no tokens: others can use this address")):
                status, output = self.run_briefly("--listen", address, *options)
                if "Address family not supported" not in output:
                    self.assertEqual(status, 0, output)
                    self.assertIn(f'level=warn event="{words}"', output)

    def test_this_machine_needs_no_tokens(self):
        for address in ("127.0.0.1:0", "127.8.9.10:0", "[::1]:0", "[::ffff:127.0.0.1]:0", "localhost:0"):
            status, output = self.run_briefly("--listen", address)
            if "Address family not supported" not in output and "Cannot assign" not in output:
                self.assertEqual(status, 0, output)
                self.assertNotIn("level=warn", output)

    def test_a_wrong_address_is_not_taken_for_a_public_one(self):
        for address, words in (("127.0.0.1", "has no port; give ADDRESS:PORT, such as 127.0.0.1:8080"),
                               ("8080", "127.0.0.1:8080 for this machine alone"),
                               ("::1:8080", "an IPv6 address needs brackets: [::1]:8080"),
                               ("example.org:8080", "is not a numeric address or localhost")):
            status, output = self.run_briefly("--listen", address)
            self.assertEqual(status, 2, output)
            self.assertIn(words, output)
            self.assertNotIn("insecure", output)

    def test_tokens_from_the_environment(self):
        token = self.tokens["admin"]
        variables = {"TALLY_ADMIN_TOKEN": token, "TALLY_WORKER_TOKEN": self.tokens["bob"],
                     "TALLY_METRICS_TOKEN": self.tokens["metrics"]}
        self.addCleanup(lambda: [os.environ.pop(name, None) for name in (*variables, "TALLY_TOKEN")])
        os.environ.update(variables)
        self.coordinator = self.start_coordinator(store="memory:")
        for name in variables:
            del os.environ[name]
        self.assertEqual(self.client("admin").get("/v1/jobs").status, 200)
        self.assertEqual(self.client("metrics").get("/metrics").status, 200)
        self.assert_problem(self.client("bob").get("/v1/jobs"), 403)
        self.reload()  # keeps the tokens
        self.assertEqual(self.client("admin").get("/v1/jobs").status, 200)
        environment = Path(f"/proc/{self.coordinator.pid}/environ").read_bytes()
        self.assertIn(b"TALLY_ADMIN_TOKEN=", environment)
        for each in variables.values():
            self.assertNotIn(each.encode(), environment)
        os.environ["TALLY_TOKEN"] = self.tokens["bob"]
        self.start_worker(self.coordinator, "w")
        os.environ["TALLY_TOKEN"] = token
        wait_until(lambda: [w["name"] for w in json.loads(self.client("admin").get("/v1/workers").body)["workers"]]
                   == ["w"], "the worker")
        done = subprocess.run([common.BIN / "tally", "list", "--coordinator", self.coordinator.url],
                              capture_output=True, text=True, check=False, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_wrong_tokens_are_refused_at_the_start(self):
        secret = self.tokens["admin"]
        for text, reason in (("", "admin-tokens: it contains no token"), ("\n", "it contains no token"),
                             ("fifteen-bytes--\n", "admin-tokens:1: the token has 15 bytes, fewer than 16"),
                             (f"{secret}\n{secret}\n", "admin-tokens:2: "),
                             (f"{secret} {secret}\n", "admin-tokens:1: "),
                             (f"{secret}\n{secret[:20]}\u00e9\n", "admin-tokens:2: byte 21 "),
                             (f"{secret} until=never\n", "until= must be a time"),
                             (f"{secret} name=a/b\n", "name= must be")):
            (Path(self.folder) / "admin-tokens").write_text(text)
            status, output = self.run_briefly("--admin-token-file", "admin-tokens")
            self.assertEqual(status, 2, output)
            self.assertIn(reason, output)
            self.assertNotIn(secret[:20], output)
        for variables, reason in (({"TALLY_ADMIN_TOKEN": secret + "\n"}, "TALLY_ADMIN_TOKEN: byte 49 "),
                                  ({"TALLY_ADMIN_TOKEN": secret + " "}, "TALLY_ADMIN_TOKEN: byte 49 "),
                                  ({"TALLY_ADMIN_TOKEN": "short"}, "TALLY_ADMIN_TOKEN: the token has 5 bytes"),
                                  ({"TALLY_WORKER_TOKEN": secret, "TALLY_WORKER_TOKEN_FILE": "worker-tokens"},
                                   "TALLY_WORKER_TOKEN holds a token, and a token file is given, too")):
            status, output = self.run_briefly(environment=variables)
            self.assertEqual(status, 2, output)
            self.assertIn(reason, output)
            self.assertNotIn(secret, output)
        self.write("admin-tokens", f"  {secret}\t\r", "# of old", "")
        self.start(store="memory:")
        self.assertEqual(self.admin.get("/v1/jobs").status, 200)

    def test_a_file_that_others_may_read_is_told(self):
        for mode, is_told in ((0o600, False), (0o400, False), (0o640, True), (0o604, True)):
            os.chmod(Path(self.folder) / "admin-tokens", mode)
            status, output = self.run_briefly("--admin-token-file", "admin-tokens")
            self.assertEqual(status, 0, output)
            self.assertEqual('level=warn event="token file can be read by others" file=admin-tokens' in output,
                             is_told, output)


class SharedTokens(AccessTestCase):
    """A token that is in two files grants both roles. A warning names the two files, but not the token."""

    WORDS = 'level=warn event="one token grants two roles"'
    FIRST = "--admin-token-file admin-tokens:1 name=operator"
    SECOND = "--worker-token-file worker-tokens:2"

    def check(self, *options):
        done = subprocess.run([common.BIN / "tally-coordinator", "--check", "--store", "memory:", *options],
                              capture_output=True, text=True, cwd=self.folder, check=False, timeout=common.HANG_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def doctor(self):
        done = subprocess.run([common.BIN / "tally", "doctor", "--json", "--coordinator", self.coordinator.url,
                               "--token-file", "admin-tokens"], capture_output=True, text=True, cwd=self.folder,
                              check=False, timeout=common.HANG_S)
        self.assertNotIn(self.tokens["admin"], done.stdout + done.stderr)
        return {each["check"]: each["level"] for each in json.loads(done.stdout)}

    def test_start_reload_check_and_doctor(self):
        self.start(store="memory:")
        self.assertNotIn(self.WORDS, self.coordinator.log())
        self.assertNotIn("shared tokens", self.doctor())
        self.assertNotIn("warn", self.check(*self.token_options()))
        self.write_workers("bob", "admin")
        self.reload()
        self.assertIn(f'{self.WORDS} first="{self.FIRST}" second="{self.SECOND}"', self.coordinator.log())
        self.assertEqual(self.doctor()["shared tokens"], "warn")
        self.assertIn(f"warn  {self.FIRST} and {self.SECOND} hold the same token", self.check(*self.token_options()))
        self.assertEqual(self.coordinator.log().count(self.WORDS), 1)
        self.coordinator.terminate()
        again = self.start(store="memory:", name="again")
        self.assertEqual(again.log().count(self.WORDS), 1)
        self.assertNotIn(self.tokens["admin"], again.log())
        self.write_workers("bob")
        self.reload()
        self.assertNotIn("shared tokens", self.doctor())

    def test_every_pair_of_roles(self):
        roles = ("admin", "worker", "metrics")
        for first, second in itertools.combinations(roles, 2):
            options = (f"--{first}-token-file", "metrics-tokens", f"--{second}-token-file", "metrics-tokens")
            self.assertIn(f"warn  --{first}-token-file metrics-tokens:1 and --{second}-token-file metrics-tokens:1 ",
                          self.check(*options))


class Secrecy(AccessTestCase):
    """No output contains a token or a session id, except the response to Join, which must contain the session id."""

    def setUp(self):
        super().setUp()
        self.answers = []

    def ask(self, client, method, path, body=None, **headers):
        answer = client.request(method, path, body, headers)
        self.answers.append(f"{answer.status} {answer.headers}".encode() + answer.body)
        return answer

    def run_program(self, *words):
        done = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, capture_output=True,
                              cwd=self.folder, check=False, timeout=common.HANG_S)
        self.answers += [done.stdout, done.stderr]
        return done.returncode

    def provoke_errors(self, job_id, sessions):
        for who in (*self.tokens, None):
            client = self.client(who)
            for path in ("/v1/jobs", f"/v1/jobs/{job_id}", "/v1/workers", "/metrics", "/nothing", "/openapi.yaml", "/",
                         f"/v1/jobs/{job_id}/rounds?after=x", f"/v1/jobs/{job_id}/model", "/readyz",
                         "/v1/jobs?limit=0"):
                self.ask(client, "GET", path)
                self.ask(client, "DELETE", path)
            for body in (b"", b"{", b"{}", b"\xff" * 100, json.dumps(job_document(clients=0)).encode()):
                self.ask(client, "POST", "/v1/jobs", body, **{"Content-Type": "application/json"})
                for method in METHODS[1:]:
                    self.ask(client, "POST", f"/tally.v1.WorkerService/{method}", body,
                             **{"Content-Type": "application/proto"})
            for session in sessions:
                wrong = messages.PostUpdateRequest(session=session, job_id=job_id, round=77,
                                                   updates=[{"client": 99, "payload": b"x"}])
                for method, message in (("PollTask", messages.PollTaskRequest(session=session)), ("PostUpdate", wrong)):
                    self.ask(client, "POST", f"/tally.v1.WorkerService/{method}", message.SerializeToString(),
                             **{"Content-Type": "application/proto", "Connect-Protocol-Version": "1"})

    def forms_of(self, sessions):
        forms = {token.encode() for token in self.tokens.values()}
        for session in sessions:
            forms |= {str(session).encode(), f"{session:x}".encode(), f"{session:X}".encode(),
                      session.to_bytes(8, "little"), session.to_bytes(8, "big"),
                      messages.LeaveRequest(session=session).SerializeToString()[1:]}
        return forms

    def test_nothing_tells_a_token_or_a_session(self):
        for log_format in ("text", "json"):
            with self.subTest(log_format):
                self.answers.clear()
                self.start("--log-format", log_format, name=f"coordinator-{log_format}",
                           store=f"sqlite:{self.folder}/{log_format}.db")
                job_id = self.admin.submit(job_document("synthetic-ceal-long", clients=4, quorum=4))
                foreign = [self.worker("alice", "foreign"), self.worker("bob", "other")]
                worker = self.start_worker(self.coordinator, f"own-{log_format}", clients=2,
                                           options=("--token-file", "worker-tokens", "--log-level", "debug"))
                task = foreign[0].poll_task()
                client = task.clients[0]
                foreign[0].post(foreign[0].update(task, client))  # stored, together with its body
                self.assert_connect_error("already_exists", foreign[0].post,
                                          foreign[0].update(task, client, payload=b"\xff" * 8, payload_bits=60))
                sessions = [each.session for each in foreign]
                self.provoke_errors(job_id, sessions)
                for name in ("admin-tokens", "worker-tokens", "metrics-tokens", "missing"):
                    for command in (("list",), ("show", job_id), ("cancel", "0" * 12), ("doctor", "--ready")):
                        self.run_program(common.BIN / "tally", *command, "--coordinator", self.coordinator.url,
                                         "--token-file", name)
                self.write("admin-tokens", self.tokens["admin"], f"{self.tokens['metrics']} nonsense")
                self.reload("tokens not reloaded")
                self.write("admin-tokens", self.tokens["admin"])
                self.reload()
                # One worker has a token of another owner and a name that is taken; the other has an invalid token.
                for token_file in ("metrics-tokens", "admin-tokens"):
                    self.run_program(common.BIN / "tally-worker", "--coordinator", self.coordinator.url, "--name",
                                     "foreign", "--token-file", token_file, "--log-level", "debug")
                said = {"answers": b"\n".join(self.answers)}
                for process in (self.coordinator, worker):
                    for name in ("cmdline", "environ"):
                        said[f"{process.name}: {name}"] = Path(f"/proc/{process.pid}/{name}").read_bytes()
                # While the round is open, and after the end of the job.
                for moment in ("running", "ended"):
                    for path in Path(self.folder).iterdir():
                        if path.is_file() and not path.name.endswith("-tokens"):
                            said[f"{path.name}, {moment}"] = path.read_bytes()
                    self.assert_ends_well(*(process for process in (worker, self.coordinator)
                                            if process.is_alive() and moment == "running"))
                self.assertTrue(any(name.startswith(f"{log_format}.db") and len(text) > 4096
                                    for name, text in said.items()), said.keys())
                self.assertIn(f"{log_format}.db, running", said)
                for path in Path(self.folder).glob(f"{log_format}.db*"):
                    self.assertEqual(path.stat().st_mode & 0o077, 0, path.name)
                for name, text in said.items():
                    for form in self.forms_of(sessions):
                        self.assertNotIn(form, text, name)

    def owner_of_its_secrets(self, program, *options, **variables):
        """Returns the owner of the program's files in /proc and the text of its status file, once the program has
        written a line. The program runs as a user other than root; for root, the owner would be the same in either
        case."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TALLY_")}
        user = {"user": 65534, "group": 65534, "extra_groups": []} if os.getuid() == 0 else {}
        # The other user may not be allowed to enter the folder of the tree.
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)
        shutil.copy2(common.BIN / program, folder)
        child = subprocess.Popen([folder / program, "--log-level", "debug", *options], cwd="/", text=True,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 env={**kept, **variables}, **user)
        try:
            child.stdout.readline()
            return Path(f"/proc/{child.pid}/environ").stat().st_uid, Path(f"/proc/{child.pid}/status").read_text()
        finally:
            child.terminate()
            child.wait(common.HANG_S)
            child.stdout.close()

    def test_memory_is_for_the_program_alone(self):
        """A program that holds secrets is not dumpable: its files in /proc belong to root (proc(5)), and it leaves no
        core file."""
        nobody = 65534 if os.getuid() == 0 else os.getuid()
        for program, options, variable in (
                ("tally-coordinator", ("--listen", "127.0.0.1:0", "--store", "memory:"), "TALLY_ADMIN_TOKEN"),
                ("tally-worker", ("--coordinator", f"http://127.0.0.1:{free_port()}"), "TALLY_TOKEN")):
            owner, status = self.owner_of_its_secrets(program, *options, **{variable: self.tokens["admin"]})
            self.assertEqual(owner, 0, program)
            self.assertIn("NoNewPrivs:\t1\n", status)
            self.assertIn("Umask:\t0077\n", status)
            owner, status = self.owner_of_its_secrets(program, *options)
            self.assertEqual(owner, nobody, program)  # a program without secrets can be debugged
            self.assertIn("NoNewPrivs:\t1\n", status)


if __name__ == "__main__":
    unittest.main()
