"""The program `tally` against a small stand-in for the coordinator.

TALLY_BIN is the folder of the programs. Each test scripts the responses of the stand-in, so that outages, refusals and
slow jobs happen when the test requires them, whatever the speed of the machine.
"""

import contextlib
import fcntl
import http.server
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import termios
import threading
import time
import unicodedata
import unittest

TALLY = str(pathlib.Path(os.environ.get("TALLY_BIN", "build/dev/bin")).resolve() / "tally")
PATIENCE_S = 1200  # a command that takes longer has hung


def detail(job_id="ab12", **changes):
    """Returns a job detail as in api/openapi.yaml."""
    job = {
        "id": job_id, "name": "synthetic", "algorithm": {"type": "ceal"}, "encoding": "unary",
        "clients": 10, "horizon": 2000, "status": "running", "reason": None, "time_step": 0,
        "round": 0, "iterate": 1, "stage": 3, "cumulative_regret": 0.0, "f_star": None,
        "x_checksum": "0123456789abcdef", "created_ms": 1795232400123, "started_ms": None,
        "finished_ms": None,
        "bits": {
            "uplink": {"formula": 598, "payload": 600, "messages": 20, "clipped": 0},
            "downlink": {"formula": 628, "payload": 640, "messages": 2, "clipped": 0,
                         "delivered_payload": 6400},
            "uplink_per_client": {"formula": 59.8, "payload": 60.0},
            "recovery": 0, "control": 0, "telemetry": 0, "wire_bytes": {"in": 1, "out": 2}},
    }
    job.update(changes)
    return job


class Answer:
    def __init__(self, status, body=b"", content_type="application/json", **headers):
        self.status, self.content_type, self.headers = status, content_type, headers
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()


def problem(status, code, message, field=None):
    body = {"type": "about:blank", "title": "t", "status": status, "detail": message, "code": code}
    if field:
        body["field"] = field
    return Answer(status, body, "application/problem+json")


class Coordinator:
    """Responds with `answer(method, path, headers, body)` and records the requests in `requests`."""

    def __init__(self, answer, port=0):
        self.requests, self.connections = [], []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self):
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                outer.requests.append((self.command, self.path, dict(self.headers), body))
                reply = answer(self.command, self.path, self.headers, body)
                self.send_response(reply.status)
                self.send_header("Content-Type", reply.content_type)
                self.send_header("Content-Length", str(len(reply.body)))
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(reply.body)

            do_GET = do_POST = do_DELETE = handle_any

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def process_request(self, request, client_address):
                outer.connections.append(request)
                super().process_request(request, client_address)

            def handle_error(self, *_):
                pass  # some tests kill a client in the middle of a response

        self.server = Server(("127.0.0.1", port), Handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def close(self):
        """Stops as if the process had been killed: keep-alive connections break too."""
        self.server.shutdown()
        for connection in self.connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # already closed
        self.server.server_close()
        self.thread.join()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class CliCase(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.cwd = pathlib.Path(self.folder.name)
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith("TALLY_")}

    def serve(self, answer, port=0):
        coordinator = Coordinator(answer, port)
        self.addCleanup(coordinator.close)
        self.environment["TALLY_COORDINATOR"] = coordinator.url
        return coordinator

    def tally(self, *words, stdin=b""):
        return subprocess.run([TALLY, *words], input=stdin, capture_output=True, cwd=self.cwd,
                              env=self.environment, timeout=PATIENCE_S, check=False)

    @contextlib.contextmanager
    def running(self, *words, **pipes):
        """Runs the command as a child process, which is killed at the end of the block or when the test gives up."""
        with subprocess.Popen([TALLY, *words], cwd=self.cwd, env=self.environment,
                              **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
                                 "text": True, **pipes}) as child:
            watchdog = threading.Timer(PATIENCE_S, child.kill)
            watchdog.start()
            try:
                yield child
            finally:
                watchdog.cancel()
                child.kill()

    def expect(self, exit_code, *words, stdin=b""):
        done = self.tally(*words, stdin=stdin)
        self.assertEqual(done.returncode, exit_code, (words, done.stdout, done.stderr))
        return done.stdout.decode(), done.stderr.decode()


class Usage(CliCase):
    COMMANDS = ["submit", "list", "show", "watch", "cancel", "pause", "resume", "export"]

    def test_help_lists_every_command(self):
        out, err = self.expect(0, "--help")
        for name in self.COMMANDS:
            self.assertRegex(out, rf"(?m)^  {name} +\w")
        self.assertEqual(err, "")
        self.assertEqual(out, self.expect(0, "help")[0])
        self.assertEqual(out, self.expect(0, "-h")[0])

    def test_help_of_a_command_in_both_spellings(self):
        for name in self.COMMANDS:
            out, _ = self.expect(0, name, "--help")
            self.assertTrue(out.startswith(f"Usage: tally {name} "), out)
            self.assertIn("TALLY_COORDINATOR", out)
            self.assertEqual(out, self.expect(0, "help", name)[0])
            self.assertLessEqual(max(map(len, out.splitlines())), 79)

    def test_version(self):
        out, _ = self.expect(0, "--version")
        self.assertRegex(out, r"\Atally \d+\.\d+\.\d+\n\Z")
        self.assertEqual(out, self.expect(0, "list", "--version")[0])

    def test_mistakes_are_exit_code_2(self):
        for words, message in [
                ([], "no command"),
                (["wacth"], 'unknown command "wacth"; did you mean watch?'),
                (["help", "zzzz"], 'unknown command "zzzz"'),
                (["--zzz"], "unknown option --zzz"),
                (["show"], "too few arguments; usage: tally show ID"),
                (["show", "a", "b"], 'unexpected argument "b"'),
                *[([verb, empty], f"tally {verb}: the job's id is empty; tally list shows the ids")
                  for verb in ("show", "watch", "cancel", "pause", "resume", "delete", "export", "verify") for empty in ("", " ")],
                (["compare", "a", ""], "tally compare: the job's id is empty; tally list shows the ids"),
                (["compare", "a"], "tally compare: "),
                (["export", "a", "--bundle", "f", "--format", "csv"], "--bundle and --format: choose one"),
                (["list", "--label", "=a"], '--label: "=a" is neither KEY=VALUE nor KEY'),
                (["list", *["--label=a"] * 17], "--label: more than 16 labels"),
                (["show", "a", "--jsn"], "did you mean --json?"),
                (["list", "--limit", "0"], "--limit: 0 outside [1, 1000000]"),
                (["list", "--status", "odd"], '--status: "odd" is not a status'),
                (["watch", "a", "--timeout", "soon"], '--timeout: "soon" is not an integer'),
                (["watch", "a", "--interval-ms", "1"], "--interval-ms: 1 outside [10, "),
                (["export", "a", "--format", "xml"], '--format: "xml" is not one of csv, json, npy'),
                (["submit", "missing.json"], "missing.json: No such file"),
                (["submit", "-", "--idempotency-key", "a b"], "--idempotency-key: must be"),
                (["submit", "-", "--idempotency-key", "a\r\nX: y"], "--idempotency-key: must be"),
                (["list", "--coordinator", "ftp://x"], "--coordinator: "),
                (["list", "--token-file", "missing"], "token file missing: No such file"),
        ]:
            with self.subTest(words=words):
                out, err = self.expect(2, *words)
                self.assertIn(message, err)
                self.assertEqual(out, "")

    def test_options_before_the_command_count(self):
        coordinator = self.serve(lambda *_: Answer(200, {"jobs": [], "next_cursor": None}))
        del self.environment["TALLY_COORDINATOR"]
        self.expect(0, "--coordinator", coordinator.url, "list")
        self.expect(0, f"--coordinator={coordinator.url}", "list")
        self.assertEqual(len(coordinator.requests), 2)

    def test_one_config_file_serves_all_commands(self):
        coordinator = self.serve(lambda *_: Answer(200, {"jobs": [], "next_cursor": None}))
        del self.environment["TALLY_COORDINATOR"]
        (self.cwd / "tally.conf").write_text(
            f"# all commands\ncoordinator = {coordinator.url}\ninterval_ms = 50\nlimit = 7\n")
        self.expect(0, "list", "--config", "tally.conf")
        self.assertEqual(coordinator.requests[0][1], "/v1/jobs?limit=7")
        (self.cwd / "tally.conf").write_text("\ncoordinatr = x\n")
        _, err = self.expect(2, "list", "--config", "tally.conf")
        self.assertIn("tally.conf:2: unknown option coordinatr; did you mean coordinator?", err)

    def test_the_token_goes_into_the_header(self):
        coordinator = self.serve(lambda *_: Answer(200, {"jobs": [], "next_cursor": None}))
        (self.cwd / "token").write_text("s3cret\n")
        self.expect(0, "list", "--token-file", "token")
        self.expect(0, "list")
        self.assertEqual(coordinator.requests[0][2].get("Authorization"), "Bearer s3cret")
        self.assertNotIn("Authorization", coordinator.requests[1][2])

    def test_a_coordinator_that_is_away_is_exit_code_1(self):
        self.environment["TALLY_COORDINATOR"] = f"http://127.0.0.1:{free_port()}"
        for words in (["list"], ["show", "a"], ["cancel", "a"], ["export", "a"]):
            _, err = self.expect(1, *words)
            self.assertRegex(err, rf"^tally: no coordinator at {self.environment['TALLY_COORDINATOR']} \([^()]+\): start "
                                  "one with tally-coordinator, or set TALLY_COORDINATOR or --coordinator\n$")

    def test_a_closed_stdout_is_an_error(self):
        self.serve(lambda *_: Answer(200, detail()))
        with open("/dev/full", "wb") as full:
            for words in (["show", "ab12"], ["show", "ab12", "--json"], ["cancel", "ab12"]):
                done = subprocess.run([TALLY, *words], stdout=full, stderr=subprocess.PIPE,
                                      env=self.environment, timeout=PATIENCE_S, check=False)
                self.assertEqual(done.returncode, 1, words)
                self.assertIn(b"No space left", done.stderr)


class Ready(CliCase):
    """`tally doctor --ready` asks nothing else, and needs no token."""

    def findings(self, status):
        return [(each["check"], each["level"], each["text"])
                for each in json.loads(self.expect(status, "doctor", "--ready", "--json")[0])]

    def test_ready_is_exit_code_0(self):
        coordinator = self.serve(lambda *_: Answer(200, {"status": "ready"}))
        self.assertEqual([found[:2] for found in self.findings(0)], [("coordinator", "ok"), ("ready", "ok")])
        self.assertEqual([request[:2] for request in coordinator.requests], [("GET", "/healthz"), ("GET", "/readyz")])
        self.assertIn("ok    ready", self.expect(0, "doctor", "--ready")[0])

    def test_not_ready_or_away_is_exit_code_1(self):
        coordinator = self.serve(lambda _, path, *__: Answer(200, {}) if path == "/healthz" else
                                 problem(503, "unavailable", "disk full"))
        self.assertIn(("ready", "fail", "not ready: disk full"), self.findings(1))
        coordinator.close()
        self.assertEqual([found[:2] for found in self.findings(1)], [("coordinator", "fail")])


class Submit(CliCase):
    def test_prints_the_id_and_a_hint(self):
        coordinator = self.serve(lambda *_: Answer(201, detail(), Location="/v1/jobs/ab12"))
        (self.cwd / "job.json").write_bytes(b'{"name": "synthetic"}')
        out, err = self.expect(0, "submit", "job.json")
        self.assertEqual(out, "ab12\n")
        self.assertIn("tally watch ab12", err)
        method, path, headers, body = coordinator.requests[0]
        self.assertEqual((method, path, body), ("POST", "/v1/jobs", b'{"name": "synthetic"}'))
        self.assertEqual(headers["Content-Type"], "application/json")
        self.assertNotIn("Idempotency-Key", headers)

    def test_reads_standard_input_and_sends_the_key(self):
        coordinator = self.serve(lambda *_: Answer(201, detail()))
        out, err = self.expect(0, "submit", "-", "--json", "--idempotency-key", "k-1",
                               stdin=b"{}")
        self.assertEqual(json.loads(out), detail())
        self.assertEqual(err, "")
        self.assertEqual(coordinator.requests[0][2]["Idempotency-Key"], "k-1")
        self.assertEqual(coordinator.requests[0][3], b"{}")

    def test_a_refusal_names_the_field(self):
        self.serve(lambda *_: problem(400, "out_of_range", "horizon 0 outside [1, 10]", "horizon"))
        out, err = self.expect(1, "submit", "-", stdin=b"{}")
        self.assertEqual((out, err), ("", "horizon: horizon 0 outside [1, 10]\n"))

    def test_a_refusal_without_field(self):
        self.serve(lambda *_: problem(401, "unauthenticated", "token needed"))
        self.assertEqual(self.expect(1, "submit", "-", stdin=b"{}")[1],
                         "tally: token needed; a token is needed: --token-file FILE, or TALLY_TOKEN\n")
        (self.cwd / "token").write_text("s3cret\n")
        self.assertEqual(self.expect(1, "submit", "-", "--token-file", "token", stdin=b"{}")[1],
                         "tally: token needed\n")

    def test_an_answer_that_is_no_json(self):
        self.serve(lambda *_: Answer(200, b"{", "application/json"))
        self.assertIn("response to POST /v1/jobs", self.expect(1, "submit", "-", stdin=b"{}")[1])

    def test_a_page_is_not_from_a_coordinator(self):
        server = self.serve(lambda *_: Answer(200, b"<html>", "text/html; charset=utf-8"))
        for words in (["submit", "-"], ["list"], ["show", "ab12"], ["cancel", "ab12"], ["delete", "ab12"],
                      *(["export", "ab12", "--format", kind] for kind in ("csv", "npy", "json"))):
            _, err = self.expect(1, *words, stdin=b"{}")
            self.assertRegex(err, rf'^tally: HTTP 200 from {server.url} \(BaseHTTP.*\): response of type "text/html; '
                                  r'charset=utf-8": this is no Tally coordinator\n$')
        finding = json.loads(self.tally("doctor", "--json").stdout)[0]
        self.assertEqual((finding["check"], finding["level"]), ("coordinator", "fail"))
        self.assertIn("no Tally coordinator", json.dumps(finding))

    def test_an_error_page_of_a_proxy(self):
        self.serve(lambda *_: Answer(502, b"<html>\n<b>Bad Gateway", "text/html"))
        self.assertIn("HTTP 502 from http:", self.expect(1, "submit", "-", stdin=b"{}")[1])

    def test_a_deadline_is_exit_code_3(self):
        self.serve(lambda *_: problem(504, "deadline", "store did not answer in time"))
        self.assertEqual(self.expect(3, "submit", "-", stdin=b"{}")[1],
                         "tally: store did not answer in time\n")

    def test_a_terminal_gets_a_sentence(self):
        self.serve(lambda *_: Answer(201, detail(), Location="/v1/jobs/ab12"))
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        self.addCleanup(os.close, theirs)
        done = subprocess.run([TALLY, "submit", "-"], input=b"{}", stdout=theirs, stderr=subprocess.PIPE,
                              cwd=self.cwd, env=self.environment, timeout=PATIENCE_S, check=True)
        self.assertIn(b"tally watch ab12", done.stderr)
        self.assertEqual(os.read(ours, 1000), b'submitted ab12 "synthetic"\r\n')

    def test_watch_follows(self):
        def answer(method, *_):
            return Answer(201, detail()) if method == "POST" else Answer(
                200, detail(status="completed", time_step=2000))
        self.serve(answer)
        out, _ = self.expect(0, "submit", "-", "--watch", stdin=b"{}")
        first, second, *_ = out.splitlines()
        self.assertEqual(first, 'submitted ab12 "synthetic"')
        self.assertRegex(second, "^completed  time step 2000/2000 ")
        out, _ = self.expect(0, "submit", "-", "--watch", "--json", stdin=b"{}")
        self.assertEqual([json.loads(line)["time_step"] for line in out.splitlines()], [0, 2000])

    def submit_to(self, workers, *words, **changes):
        """Returns what `submit` writes to stderr if the coordinator reports these workers; None: it reports none."""
        def answer(method, path, *_):
            if method == "POST":
                return Answer(201, detail(clients=4, **changes))
            self.assertEqual(path, "/v1/workers?limit=1")
            return problem(503, "unavailable", "busy") if workers is None else Answer(
                200, {"workers_total": workers[0], "slots_total": workers[1], "slots_free": 0, "workers": []})
        self.url = self.serve(answer).url
        return self.expect(0, "submit", "-", *words, stdin=b"{}")[1].replace(
            "hint: follow it with tally watch ab12\n", "")

    def test_without_workers_it_says_how_to_start_one(self):
        err = self.submit_to((0, 0))
        self.assertEqual(err, "no worker is connected, and the job needs 4 clients; start a worker:\n"
                              f"  tally-worker --coordinator {self.url} --clients 4\n")
        err = self.submit_to((0, 0), objective={"type": "plugin", "name": "mine"})
        self.assertTrue(err.endswith(" --clients 4 --plugin FILE\n"), err)
        (self.cwd / "token").write_text("s3cret\n")
        err = self.submit_to((0, 0), "--token-file", "token", "--json")
        self.assertTrue(err.endswith(" --clients 4 --token-file FILE\n"), err)

    def test_with_too_few_slots_it_says_how_to_add_the_rest(self):
        self.assertEqual(self.submit_to((2, 3)),
                         "the workers here have 3 slots, and the job needs 4 clients; start another worker:\n"
                         f"  tally-worker --coordinator {self.url} --clients 1\n")
        cohort = {"cohort": 0.5, "over_selection": 0.5}
        self.assertIn("the job needs 3 clients", self.submit_to((1, 2), **cohort))
        local = {"objective": {"data": {"sharding": "local"}}}
        self.assertIn("the job needs 4 clients", self.submit_to((1, 2), **cohort, **local))

    def test_with_enough_workers_it_says_nothing_more(self):
        for workers in ((1, 4), (9, 90), None):
            self.assertEqual(self.submit_to(workers), "")
        self.assertEqual(self.submit_to((0, 0), status="completed"), "")  # an earlier request with that key created it

    def test_a_document_that_is_too_large_is_not_sent(self):
        coordinator = self.serve(lambda *_: Answer(201, detail()))
        _, err = self.expect(2, "submit", "-", stdin=b" " * ((16 << 20) + 1))
        self.assertIn("too large", err)
        self.assertEqual(coordinator.requests, [])


class JobNames(CliCase):
    """Ways to name a job: by its id, by a prefix of the id, or as `latest`."""
    IDS = ["ab12cd34ef56", "ab9900000000", "c0ffee000000"]  # newest first

    def answer(self, method, path, *_):
        match = re.match(r"/v1/jobs/(\w+)(/cancel|/rounds.csv|$)", path)
        if match:
            kind = "text/csv" if match[2] == "/rounds.csv" else "application/json"
            return (Answer(200, detail(match[1]), kind) if match[1] in self.IDS
                    else problem(404, "not_found", "no such job"))
        limit, start = int(re.search(r"limit=(\d+)", path)[1]), int((re.search(r"cursor=(\d+)", path) or [0, 0])[1])
        end = start + min(limit, 2)
        return Answer(200, {"jobs": [detail(i) for i in self.IDS[start:end]],
                            "next_cursor": str(end) if end < len(self.IDS) else None})

    def test_a_beginning_that_is_unique(self):
        coordinator = self.serve(self.answer)
        for name in ("c", "c0ff", "c0ffee000000"):  # the last is on the second page
            self.assertEqual(json.loads(self.expect(0, "show", name, "--json")[0])["id"], self.IDS[2])
        self.assertEqual(self.expect(0, "cancel", "ab1")[0], "ab12cd34ef56 running\n")
        self.assertEqual(coordinator.requests[-1][:2], ("POST", "/v1/jobs/ab12cd34ef56/cancel"))
        self.assertIn("wrote c0ffee000000.csv", self.expect(0, "export", "c0")[1])
        self.assertEqual(json.loads(self.expect(3, "watch", "c", "--json", "--timeout", "1")[0].splitlines()[0])["id"],
                         self.IDS[2])

    def test_a_whole_id_costs_one_request(self):
        coordinator = self.serve(self.answer)
        self.expect(0, "show", self.IDS[1])
        self.assertEqual(len(coordinator.requests), 1)

    def test_a_beginning_of_several_changes_nothing(self):
        coordinator = self.serve(self.answer)
        self.assertEqual(self.expect(1, "cancel", "ab")[1],
                         "tally: several job ids begin with ab, such as ab12cd34ef56 and ab9900000000: type more of "
                         "the id\n")
        self.assertEqual([r[1] for r in coordinator.requests if r[0] == "POST"], ["/v1/jobs/ab/cancel"])

    def test_no_job_of_that_name(self):
        self.serve(self.answer)
        for name in ("dd", "zz", "0123456789ab"):
            self.assertEqual(self.expect(1, "show", name)[1], "tally: no such job\n")

    def test_latest(self):
        coordinator = self.serve(self.answer)
        self.assertEqual(self.expect(0, "cancel", "latest")[0], "ab12cd34ef56 running\n")
        self.assertEqual([r[1] for r in coordinator.requests], ["/v1/jobs?limit=1", "/v1/jobs/ab12cd34ef56/cancel"])
        self.serve(lambda *_: Answer(200, {"jobs": [], "next_cursor": None}))
        self.assertEqual(self.expect(1, "show", "latest")[1],
                         "tally: there is no job yet: submit one with tally submit FILE\n")


class Output(CliCase):
    def test_o_json_is_json(self):
        self.serve(lambda *_: Answer(200, {"jobs": [], "next_cursor": None}))
        for words in (("list", "-o", "json"), ("-o", "json", "list"), ("list", "--json")):
            self.assertEqual(json.loads(self.expect(0, *words)[0]), {"jobs": []})
        self.assertIn("STATUS", self.expect(0, "list", "--json", "-o", "table")[0])
        self.assertIn('-o: "xml" is not one of json, table', self.expect(2, "list", "-o", "xml")[1])
        self.assertIn("unknown option -o", self.expect(2, "completion", "bash", "-o", "json")[1])

    def test_a_variable_does_not_make_it_json(self):
        self.serve(lambda *_: Answer(200, {"jobs": [], "next_cursor": None}))
        self.environment["TALLY_JSON"] = "1"
        self.assertIn("STATUS", self.expect(0, "list")[0])

    def test_the_environment_is_explained_once(self):
        out, _ = self.expect(0, "list", "--help")
        self.assertEqual(out.count("environment"), 2, out)
        self.assertEqual(out.count("TALLY_COORDINATOR"), 1)

    def test_version(self):
        out, _ = self.expect(0, "version")
        self.assertEqual(out, self.expect(0, "--version")[0])
        self.assertEqual(f"tally {json.loads(self.expect(0, 'version', '-o', 'json')[0])['version']}\n", out)

    def test_a_coordinator_without_a_scheme(self):
        coordinator = self.serve(lambda *_: Answer(200, {"jobs": [], "next_cursor": None}))
        self.expect(0, "list", "--coordinator", f"localhost:{coordinator.port}")
        self.expect(0, "list", "--coordinator", f"127.0.0.1:{coordinator.port}/")
        self.assertEqual(len(coordinator.requests), 2)


class Width(CliCase):
    """The layout of tables and of the progress line on terminals of 80 and 110 columns."""
    NUMBERS = {"cumulative_regret": 12345.678, "loss": 0.123456789, "time_step": 1234567, "horizon": 2000000, "round": 87654}
    WIDE = "中文名字" * 8  # each is two columns wide

    def on_terminal(self, columns, *words):
        """Returns the output of the command on such a terminal, line by line."""
        main_end, other_end = pty.openpty()
        fcntl.ioctl(other_end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        with self.running(*words, stdout=other_end, stderr=other_end) as child:
            os.close(other_end)
            text = Watch.read_terminal(self, main_end, lambda _: False)
            self.assertEqual(child.wait(PATIENCE_S), 0, text)
        os.close(main_end)
        return [line.split("\r")[-1].removeprefix("\x1b[K") for line in text.replace("\r\n", "\n").split("\n")]

    def width(self, line):
        return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)

    def test_list_leaves_out_whole_columns(self):
        jobs = [detail("0123456789ab", name=name, **self.NUMBERS) for name in ("synthetic-ceal-long", "e\u0301" * 20, "日本語の")]
        self.serve(lambda *_: Answer(200, {"jobs": jobs, "next_cursor": None}))
        heads = {}
        for columns in (80, 110):
            lines = self.on_terminal(columns, "list")[:-1]
            heads[columns] = lines[0].split()
            for line in lines:
                self.assertLessEqual(self.width(line), columns, line)
            for line in lines[1:]:
                self.assertTrue(line.startswith("0123456789ab  "))
                for number in ("12345.7", "0.123457", "running"):
                    self.assertIn(number, line)
            # Columns are aligned: the cells under REGRET end where REGRET ends.
            ends = {self.width(line[:line.index("12345.7") + 7]) for line in lines[1:]}
            self.assertEqual(ends, {lines[0].index("REGRET") + 6 if "NAME" in lines[0] else ends.pop()})
        self.assertLess(len(heads[80]), len(heads[110]))
        self.assertIn("REGRET", heads[80])
        self.assertIn("LOSS", heads[80])
        self.assertNotIn("CREATED", heads[80])
        full = self.expect(0, "list")[0].splitlines()  # output to a pipe is not truncated
        self.assertTrue(full[0].endswith("CREATED"))

    def test_a_name_that_is_too_wide_goes_and_the_numbers_stay(self):
        job = detail("0123456789ab", name=self.WIDE, **self.NUMBERS)
        self.serve(lambda *_: Answer(200, {"jobs": [job], "next_cursor": None}))
        head, line = self.on_terminal(80, "list")[:2]
        self.assertNotIn("NAME", head)
        self.assertEqual(line.split(), ["0123456789ab", "running", "12345.7", "0.123457"])

    def test_show_wraps_words(self):
        text = "worker w cannot serve it: " + "long reason " * 20 + "end"
        job = detail(name=self.WIDE, waiting={"for": "clients", "since_ms": 0, "text": text}, **self.NUMBERS)
        self.serve(lambda *_: Answer(200, job))
        for columns in (80, 110):
            lines = self.on_terminal(columns, "show", "ab12")
            self.assertLessEqual(max(map(self.width, lines)), columns)
            shown = "\n".join(lines)
            self.assertIn("12345.678", shown)
            self.assertIn(" ".join(text.split()), " ".join(shown.split()))

    def test_watch_leaves_out_whole_fields(self):
        running, finished = detail(**self.NUMBERS), detail(status="completed", **self.NUMBERS)
        for columns in (80, 110):
            rest = [running] * 3
            self.serve(lambda *_, rest=rest: Answer(200, rest.pop() if rest else finished))
            main_end, other_end = pty.openpty()
            fcntl.ioctl(other_end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            with self.running("watch", "ab12", "--interval-ms", "150", stdout=other_end) as child:
                os.close(other_end)
                text = Watch.read_terminal(self, main_end, lambda _: False)
                self.assertEqual(child.wait(PATIENCE_S), 0)
            os.close(main_end)
            painted = [line for line in re.findall(r"\x1b\[K([^\r\n\x1b]+)", text) if "%" in line]
            self.assertTrue(painted)
            for line in painted:
                self.assertLess(self.width(line), columns, line)
                self.assertIn("  regret 12345.7  loss 0.123457", line)
                fields = re.sub(r"^\[.*\] +\d+%  ", "", line).split("  ")
                for field in fields:
                    self.assertRegex(field, r"^(\S+ left|regret 12345.7|loss 0.123457|time step 1234567/2000000|"
                                            r"round 87654|up 598 bit|down 628 bit|completed|\d+:\d+)$")

    def test_workers(self):
        def worker(name):
            return {"name": name, "state": "waiting", "slots": 4, "free_slots": 3, "pinned_job": None, "refuses": [],
                    "last_contact_age_ms": 1500}
        def answer(_method, path, *_):
            last = "cursor" in path
            return Answer(200, {"workers_total": 2, "slots_total": 8, "slots_free": 6,
                                "next_cursor": None if last else "0-1", "workers": [worker("b" if last else "w" * 60)]})
        self.serve(answer)
        self.assertEqual([w["name"] for w in json.loads(self.expect(0, "workers", "-o", "json")[0])["workers"]],
                         ["w" * 60, "b"])
        out = self.expect(0, "workers")[0].splitlines()
        self.assertEqual(out[2].split(), ["b", "waiting", "4", "3", "0", "1.5", "s", "-"])
        for columns in (80, 110):
            lines = self.on_terminal(columns, "workers")
            self.assertLessEqual(max(map(len, lines)), columns)
            self.assertEqual(lines[0].split()[:1], ["NAME"])
        self.serve(lambda *_: Answer(200, {"workers": [], "next_cursor": None}))
        self.assertIn("start one with tally-worker", self.expect(0, "workers")[1])


class ListAndShow(CliCase):
    def test_list_is_a_table(self):
        jobs = [detail("a"), detail("bb", name="other\n\x1b[2J", status="failed", time_step=12)]
        self.serve(lambda *_: Answer(200, {"jobs": jobs, "next_cursor": None}))
        lines = self.expect(0, "list")[0].splitlines()
        self.assertEqual(len(lines), 3)
        self.assertEqual(lines[0].split()[:4], ["ID", "NAME", "ALGORITHM", "STATUS"])
        self.assertEqual(lines[1].split()[:5], ["a", "synthetic", "ceal", "running", "0/2000"])
        self.assertTrue(lines[2].startswith("bb  other??[2J  ceal"), lines[2])
        self.assertIn("2026-11-21T03:40:00.123Z", lines[1])

    def test_list_follows_cursors_up_to_the_limit(self):
        def answer(_method, path, *_):
            start = int(re.search(r"cursor=(\d+)", path).group(1)) if "cursor" in path else 0
            count = min(int(re.search(r"limit=(\d+)", path).group(1)), 60)
            return Answer(200, {"jobs": [detail(str(i)) for i in range(start, start + count)],
                                "next_cursor": str(start + count)})
        coordinator = self.serve(answer)
        out, _ = self.expect(0, "list", "--limit", "130", "--status", "running", "--json")
        self.assertEqual([job["id"] for job in json.loads(out)["jobs"]],
                         [str(i) for i in range(130)])
        self.assertEqual([request[1] for request in coordinator.requests],
                         ["/v1/jobs?limit=100&status=running",
                          "/v1/jobs?limit=70&status=running&cursor=60",
                          "/v1/jobs?limit=10&status=running&cursor=120"])

    def test_list_shows_no_more_than_the_limit(self):
        jobs = [detail(str(i)) for i in range(5)]
        self.serve(lambda *_: Answer(200, {"jobs": jobs, "next_cursor": None}))
        out, _ = self.expect(0, "list", "--limit", "3", "--json")
        self.assertEqual(len(json.loads(out)["jobs"]), 3)

    def test_list_encodes_the_cursor(self):
        def answer(_method, path, *_):
            last = "cursor" in path
            return Answer(200, {"jobs": [detail()], "next_cursor": None if last else "a=&/ b"})
        coordinator = self.serve(answer)
        self.expect(0, "list")
        self.assertTrue(coordinator.requests[1][1].endswith("&cursor=a%3D%26%2F%20b"))

    def test_list_ends_on_an_empty_page(self):
        coordinator = self.serve(lambda *_: Answer(200, {"jobs": [], "next_cursor": "1"}))
        self.expect(0, "list")
        self.assertEqual(len(coordinator.requests), 1)

    def test_list_without_jobs_key_is_an_error(self):
        self.serve(lambda *_: Answer(200, {}))
        self.assertIn("has no jobs", self.expect(1, "list")[1])

    def test_show_is_a_table_or_json(self):
        job = detail(f_star=0.5, cumulative_regret=412.3, time_step=1200)
        coordinator = self.serve(lambda *_: Answer(200, job))
        out, _ = self.expect(0, "show", "ab12")
        for pattern in (r"^job +ab12  synthetic$", r"^time step +1200 / 2000$",
                        r"^regret +412\.3$", r"^f_star +0\.5$", r"^x_checksum +0123456789abcdef$",
                        r"^uplink +598 +600 +20 +0$", r"^  delivered +6400$",
                        r"^wire bytes  in 1  out 2$"):
            self.assertRegex(out, "(?m)" + pattern)
        self.assertEqual(json.loads(self.expect(0, "show", "ab12", "--json")[0]), job)
        self.assertEqual(coordinator.requests[0][1], "/v1/jobs/ab12")

    def test_show_of_no_job(self):
        coordinator = self.serve(lambda *_: problem(404, "not_found", "no job ../x"))
        self.assertEqual(self.expect(1, "show", "../x")[1], "tally: no job ../x\n")
        self.assertEqual(coordinator.requests[0][1], "/v1/jobs/%2E%2E%2Fx")


class Actions(CliCase):
    def test_each_posts_to_its_path(self):
        for name, status in (("cancel", "cancelled"), ("pause", "paused"), ("resume", "running")):
            coordinator = self.serve(lambda *_, s=status: Answer(200, detail(status=s)))
            self.assertEqual(self.expect(0, name, "ab12")[0], f"ab12 {status}\n")
            self.assertEqual(coordinator.requests[0][:2], ("POST", f"/v1/jobs/ab12/{name}"))
            out, _ = self.expect(0, name, "ab12", "--json")
            self.assertEqual(json.loads(out)["status"], status)

    def test_a_refusal_is_exit_code_1(self):
        self.serve(lambda *_: problem(409, "failed_precondition", "job ab12 is completed"))
        for name in ("cancel", "pause", "resume"):
            self.assertEqual(self.expect(1, name, "ab12")[1], "tally: job ab12 is completed\n")


class Watch(CliCase):
    FAST = ("--interval-ms", "10")

    def script(self, *answers):
        """Sets the responses to the next requests, in order; the last one is repeated."""
        rest = list(answers)
        return lambda *_: rest.pop(0) if len(rest) > 1 else rest[0]

    def test_json_lines_one_per_change(self):
        moved = detail(time_step=10, round=1)
        same = json.loads(json.dumps(moved))
        same["bits"]["wire_bytes"]["in"] = 99
        end = detail(status="completed", time_step=2000, round=2, reason="horizon")
        self.serve(self.script(*[Answer(200, job) for job in (detail(status="queued"), detail(),
                                                              moved, same, same, end)]))
        out, err = self.expect(0, "watch", "ab12", "--json", *self.FAST)
        self.assertEqual([(job["status"], job["time_step"]) for job in
                          map(json.loads, out.splitlines())],
                         [("queued", 0), ("running", 0), ("running", 10), ("completed", 2000)])
        self.assertRegex(err, r"(?m)^time step +2000 / 2000$")
        self.assertNotIn("\x1b", out + err)

    def test_a_plain_line_per_change(self):
        moved = detail(time_step=10, round=1, cumulative_regret=2.5)
        waits = detail(waiting={"for": "workers", "since_ms": 0, "text": "waits for\x1b[2J 2 clients"})
        end = detail(status="completed", time_step=2000, round=2, reason="horizon")
        self.serve(self.script(*[Answer(200, job) for job in (waits, waits, detail(), moved, moved, end)]))
        self.environment["TALLY_JSON"] = "1"  # a variable that does not concern this command
        out, err = self.expect(0, "watch", "ab12", *self.FAST)
        lines = out.splitlines()
        self.assertRegex(lines[0], r"^running  since \d+ s: waits for.\[2J 2 clients$")
        self.assertEqual(lines[1:4], [
            "running  time step 0/2000  round 0  regret 0.0  up 598 bit  down 628 bit",
            "running  time step 10/2000  round 1  regret 2.5  up 598 bit  down 628 bit",
            "completed  time step 2000/2000  round 2  regret 0.0  up 598 bit  down 628 bit"])
        self.assertRegex(lines[4], "^job +ab12")
        self.assertNotIn("\x1b", out)
        self.assertEqual(err, "")

    def test_exit_codes_tell_how_it_ended(self):
        for status, code in (("completed", 0), ("failed", 1), ("cancelled", 1)):
            self.serve(lambda *_, s=status: Answer(200, detail(status=s)))
            self.expect(code, "watch", "ab12", *self.FAST)

    def test_a_watch_of_no_job_ends_at_once(self):
        coordinator = self.serve(lambda *_: problem(404, "not_found", "no job ab12"))
        self.assertEqual(self.expect(1, "watch", "ab12")[1], "tally: no job ab12\n")
        self.assertEqual([request[1] for request in coordinator.requests],
                         ["/v1/jobs/ab12", "/v1/jobs?limit=1000"])  # as an id, and as a prefix of one

    def test_timeout_is_exit_code_3(self):
        self.serve(lambda *_: Answer(200, detail()))
        _, err = self.expect(3, "watch", "ab12", "--timeout", "1", *self.FAST)
        self.assertIn("did not end within 1 s", err)

    def test_timeout_while_the_coordinator_is_away(self):
        self.environment["TALLY_COORDINATOR"] = f"http://127.0.0.1:{free_port()}"
        out, err = self.expect(3, "watch", "ab12", "--timeout", "1")
        self.assertEqual(err.count("the coordinator is not reachable, retrying"), 1)
        self.assertEqual(out, "")

    def test_timeout_while_an_answer_hangs(self):
        hold = threading.Event()
        self.addCleanup(hold.set)

        def answer(*_):
            hold.wait(PATIENCE_S)
            return Answer(200, detail())
        self.serve(answer)
        _, err = self.expect(3, "watch", "ab12", "--timeout", "1")
        self.assertLess(int(re.search(r"timed out: .* for (\d+) ms", err)[1]), 30000, "the limit of an exchange")

    def test_reconnects_after_an_outage(self):
        port = free_port()
        self.environment["TALLY_COORDINATOR"] = f"http://127.0.0.1:{port}"
        with self.running("watch", "ab12", "--json", *self.FAST) as child:
            self.assertIn("the coordinator is not reachable", child.stderr.readline())
            first = Coordinator(lambda *_: Answer(200, detail(time_step=1)), port)
            self.assertEqual(child.stderr.readline(), "tally: the coordinator is reachable again\n")
            self.assertEqual(json.loads(child.stdout.readline())["time_step"], 1)
            first.close()
            self.assertIn("the coordinator is not reachable", child.stderr.readline())
            second = Coordinator(lambda *_: Answer(200, detail(status="completed")), port)
            self.addCleanup(second.close)
            out, err = child.communicate(timeout=PATIENCE_S)
            self.assertEqual(child.returncode, 0)
            self.assertEqual(json.loads(out)["status"], "completed")
            self.assertTrue(err.startswith("tally: the coordinator is reachable again\n"), err)

    def test_waits_while_the_store_is_unavailable(self):
        self.serve(self.script(problem(503, "store", "disk full"),
                               Answer(502, b"<html>", "text/html"),
                               Answer(200, detail(status="completed"))))
        _, err = self.expect(0, "watch", "ab12", *self.FAST)
        self.assertEqual(err.count("the coordinator is not reachable, retrying: disk full"), 1)
        self.assertEqual(err.count("is reachable again"), 1)

    def test_another_reason_for_waiting_is_told(self):
        self.serve(self.script(problem(503, "store", "disk full"), Answer(502, b"<html>", "text/html")))
        with self.running("watch", "ab12", *self.FAST) as child:
            self.assertIn("retrying: disk full", child.stderr.readline())
            self.assertIn("HTTP 502", child.stderr.readline())

    def test_a_signal_ends_it(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            self.serve(lambda *_: Answer(200, detail()))
            with self.running("watch", "ab12") as child:
                child.stdout.readline()
                child.send_signal(number)
                _, err = child.communicate(timeout=PATIENCE_S)
                self.assertEqual(child.returncode, 128 + number)
                self.assertEqual(err, "tally: job ab12 continues; stop it with: tally cancel ab12\n")

    def test_ctrl_c_in_submit_says_that_the_job_goes_on(self):
        """Ctrl-C is typed on the terminal in which the command runs."""
        self.serve(lambda method, *_: Answer(201 if method == "POST" else 200, detail(time_step=7)))
        (self.cwd / "job.json").write_bytes(b"{}")
        main_end, other_end = pty.openpty()
        child = subprocess.Popen([TALLY, "submit", "job.json", "--watch"], cwd=self.cwd, env=self.environment,
                                 stdin=other_end, stdout=other_end, stderr=other_end, start_new_session=True,
                                 preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(other_end)
        self.addCleanup(child.kill)
        self.read_terminal(main_end, lambda seen: "time step 7" in seen)
        os.write(main_end, b"\x03")
        text = self.read_terminal(main_end, lambda _: False)
        self.assertEqual(child.wait(PATIENCE_S), 128 + signal.SIGINT)
        self.assertIn("job ab12 continues; stop it with: tally cancel ab12", text)
        os.close(main_end)

    def read_terminal(self, main_end, enough):
        """Returns what the terminal shows until `enough(text)` holds or it is closed."""
        text, until = "", time.monotonic() + PATIENCE_S
        while not enough(text) and time.monotonic() < until:
            if select.select([main_end], [], [], 1)[0]:
                try:
                    more = os.read(main_end, 65536)
                except OSError:  # the other end has been closed
                    break
                if not more:
                    break
                text += more.decode()
        return text

    def test_a_terminal_gets_a_progress_line_and_the_table(self):
        finish = threading.Event()
        running = detail(time_step=1200, round=31, cumulative_regret=412.3)

        def answer(*_):
            return Answer(200, detail(status="completed", time_step=2000) if finish.is_set()
                          else running)
        self.serve(answer)
        main_end, other_end = pty.openpty()
        self.environment.update(LC_ALL="C.UTF-8")
        with self.running("watch", "ab12", *self.FAST, stdout=other_end) as child:
            os.close(other_end)
            text = self.read_terminal(main_end, lambda seen: "regret 412" in seen)
            self.assertRegex(text, "\r\x1b\\[K\\[█+.*\\]  60%  .*time step 1200/2000  round 31")
            finish.set()
            text = self.read_terminal(main_end, lambda seen: "wire bytes" in seen)
            self.assertRegex(text, "\r\x1b\\[Kjob +ab12")
            self.assertNotIn("{", text)
            child.wait(PATIENCE_S)
            self.assertEqual((child.returncode, child.stderr.read()), (0, ""))
        os.close(main_end)


class Export(CliCase):
    ROUNDS = [{"round": i, "regret": i / 7} for i in range(1, 26)]
    NPY = b"\x93NUMPY\x01\x00\x00\xff\n"

    def answer(self, _method, path, headers, _body):
        if path == "/v1/jobs/ab12":
            return Answer(200, detail())
        if path == "/v1/jobs/ab12/rounds.csv":
            return Answer(200, b"round,t\n1,10\n", "text/csv")
        if path.startswith("/v1/jobs/ab12/rounds?"):
            after = int(re.search(r"after=(\d+)", path).group(1))
            page = self.ROUNDS[after:after + 10]
            last = after + 10
            return Answer(200, {"rounds": page,
                                "next_after": last if last < len(self.ROUNDS) else None})
        if path == "/v1/jobs/ab12/model":
            if headers["Accept"] == "application/x-npy":
                return Answer(200, self.NPY, "application/x-npy")
            return Answer(200, {"x": [0.1, 1e-300]})
        return problem(404, "not_found", "no such thing")

    def test_files_have_default_names(self):
        self.serve(self.answer)
        out, err = self.expect(0, "export", "ab12")
        self.assertEqual((out, err), ("", "wrote ab12.csv, 13 bytes\n"))
        self.assertEqual((self.cwd / "ab12.csv").read_bytes(), b"round,t\n1,10\n")
        self.expect(0, "export", "ab12", "--format", "npy")
        self.assertEqual((self.cwd / "ab12.npy").read_bytes(), self.NPY)
        self.expect(0, "export", "ab12", "--format", "json")
        self.assertEqual(json.loads((self.cwd / "ab12.json").read_bytes()),
                         {"job": detail(), "rounds": self.ROUNDS, "model": {"x": [0.1, 1e-300]}})
        self.assertEqual(sorted(os.listdir(self.cwd)), ["ab12.csv", "ab12.json", "ab12.npy"])

    def test_out_names_a_file_or_standard_output(self):
        self.serve(self.answer)
        (self.cwd / "folder").mkdir()
        self.expect(0, "export", "ab12", "--out", "folder/r.csv")
        self.assertEqual(os.listdir(self.cwd / "folder"), ["r.csv"])
        done = self.tally("export", "ab12", "--format", "npy", "--out", "-")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, self.NPY, b""))

    def test_a_job_without_model_exports_null(self):
        for refusal in (problem(404, "not_found", "no model"),
                        problem(409, "failed_precondition", "job is queued")):
            def answer(method, path, headers, body, refusal=refusal):
                return refusal if path.endswith("/model") else self.answer(method, path, headers,
                                                                           body)
            self.serve(answer)
            out, err = self.expect(0, "export", "ab12", "--format", "json", "--out", "-")
            self.assertIsNone(json.loads(out)["model"])
            self.assertIn("no model yet", err)

    def test_a_failure_leaves_an_old_file_alone(self):
        self.serve(self.answer)
        (self.cwd / "old.csv").write_text("old")
        self.assertIn("no such thing", self.expect(1, "export", "zz", "--out", "old.csv")[1])
        self.assertEqual((self.cwd / "old.csv").read_text(), "old")
        self.assertEqual(os.listdir(self.cwd), ["old.csv"])

    def test_a_model_that_breaks_off_is_no_file(self):
        def answer(method, path, headers, body):
            reply = self.answer(method, path, headers, body)
            if path.endswith("/model"):
                return problem(500, "internal", "broken")
            return reply
        self.serve(answer)
        self.expect(1, "export", "ab12", "--format", "json")
        self.assertEqual(os.listdir(self.cwd), [])

    def test_pages_that_do_not_advance_are_an_error(self):
        def answer(method, path, headers, body):
            if "/rounds?" in path:
                return Answer(200, {"rounds": self.ROUNDS[:1], "next_after": 1})
            return self.answer(method, path, headers, body)
        coordinator = self.serve(answer)
        _, err = self.expect(1, "export", "ab12", "--format", "json")
        self.assertIn("next_after 1 is not above 1", err)
        self.assertLess(len(coordinator.requests), 5)

    def test_an_id_cannot_choose_the_folder(self):
        self.serve(lambda *_: Answer(200, b"x", "text/csv"))
        self.expect(0, "export", "../../evil")
        self.assertEqual(os.listdir(self.cwd), ["______evil.csv"])

    def test_a_folder_that_does_not_exist(self):
        self.serve(self.answer)
        self.assertIn("nowhere/x.csv: No such file",
                      self.expect(1, "export", "ab12", "--out", "nowhere/x.csv")[1])


class Plan(CliCase):
    JOB = {
        "name": "loud", "clients": 10, "horizon": 2000, "encoding": "dithered",
        "algorithm": {"type": "calm", "step_size": 3, "noise": 0.66666667, "noise_growth": 3.3333333,
                      "client_spread": 0.03, "curvature_spread": 0.0144, "initial_variance": 0.16666667,
                      "local_step_limit": 0.1},
        "objective": {"type": "least_squares", "data": {
            "type": "synthetic_linear", "dim": 30, "points": 2000, "frobenius_norm": 100, "noise_std": 1}},
        "budget": {"uplink_bits": 263, "downlink_bits": 289},
    }

    def plan(self, job, *words):
        return json.loads(self.expect(0, "plan", "-", "--json", *words, stdin=json.dumps(job).encode())[0])

    def test_budget_of_the_document(self):
        report = self.plan(self.JOB)
        [plan] = report["plans"]
        self.assertEqual(plan["budget"], self.JOB["budget"])
        self.assertLessEqual(plan["uplink_bits"], 263)
        self.assertLessEqual(plan["downlink_bits"], 289)
        self.assertEqual(sum(epoch["samples"] for epoch in plan["epochs"]), 2000)
        # 522 without reserves (services/algorithms/calm/calm_plan.h).
        self.assertTrue(522 < plan["regret"] < 1.15 * 522, plan["regret"])
        self.assertTrue(0.85 * 263 < plan["uplink_bits"] < 263, plan["uplink_bits"])
        self.assertLess(report["shared_regret"], plan["ideal_regret"])
        self.assertLess(plan["ideal_regret"], plan["regret"])
        self.assertLess(plan["regret"], report["alone_regret"])
        self.assertEqual(report, self.plan(self.JOB))

    def test_budgets_of_the_command_line(self):
        report = self.plan(self.JOB, "--uplink-bits", "65,130,540", "--downlink-bits", "72,145,550")
        self.assertEqual([plan["budget"]["downlink_bits"] for plan in report["plans"]], [72, 145, 550])
        regrets = [plan["regret"] for plan in report["plans"]]
        self.assertEqual(regrets, sorted(regrets, reverse=True))
        one_for_all = self.plan(self.JOB, "--uplink-bits", "65,130", "--downlink-bits", "145")
        self.assertEqual([plan["budget"]["downlink_bits"] for plan in one_for_all["plans"]], [145, 145])
        self.assertEqual(one_for_all["plans"][1], report["plans"][1])

    def test_no_budget(self):
        job = {key: value for key, value in self.JOB.items() if key != "budget"}
        [plan] = self.plan(job)["plans"]
        self.assertEqual(plan["budget"], {"uplink_bits": None, "downlink_bits": None})
        self.assertTrue(200 < plan["uplink_bits"] < 1000, plan)
        self.assertIsNone(plan["ideal_regret"])

    def test_table(self):
        out, err = self.expect(0, "plan", "-", stdin=json.dumps(self.JOB).encode())
        self.assertEqual(err, "")
        self.assertRegex(out, r"(?m)^ +2\d\d\.\d +2\d\d\.\d +5\d\d\.\d +2\.\d\d +45\d\.\d  1\d \d+ \d+ \d+ \| \d+$")
        self.assertRegex(out, r"(?m)^ +5 +\d+ +0 +0 +- +- ")

    def test_out_has_the_numbers_and_a_picture(self):
        for name, words in (("many", ("--uplink-bits", "130,263,540", "--downlink-bits", "145,289,550")), ("one", ())):
            job = self.JOB if words else {key: value for key, value in self.JOB.items() if key != "budget"}
            folder = self.cwd / name
            out, err = self.expect(0, "plan", "-", "--json", "--out", folder, *words, stdin=json.dumps(job).encode())
            self.assertEqual((folder / "plan.json").read_text(), out)
            if shutil.which("gnuplot") is None:
                self.assertIn("gnuplot", err)
                continue
            self.assertTrue((folder / "plan.png").read_bytes().startswith(b"\x89PNG"))
            picture = (folder / "plan.svg").read_text()
            for title in ("planned", "every query shared", "cumulative regret at the horizon"):
                self.assertIn(title, picture)
        self.assertIn("/dev/null", self.expect(2, "plan", "-", "--out", "/dev/null", stdin=json.dumps(self.JOB).encode())[1])

    def test_mistakes(self):
        ceal = {**self.JOB, "algorithm": {"type": "ceal", "step_size": 2, "sigma": 4.47}, "encoding": "unary"}
        del ceal["budget"]
        unknown = {**self.JOB, "algorithm": {**self.JOB["algorithm"], "noise": "auto"}}
        for job, words, message in [
                (ceal, ["--uplink-bits", "130"], "--uplink-bits: only calm jobs have budgets; this one is ceal"),
                (ceal, ["--out", "."], "--out: only calm jobs have budgets; this one is ceal"),
                (unknown, [], "a plan needs a number for algorithm.noise"),
                (self.JOB, ["--uplink-bits", "130,"], '--uplink-bits: "" is not a list of numbers'),
                (self.JOB, ["--uplink-bits", "0"], '--uplink-bits: "0" is not a list of numbers'),
                (self.JOB, ["--uplink-bits", "130,0x10"], '--uplink-bits: "0x10" is not a list of numbers'),
                (self.JOB, ["--downlink-bits", "nan"], '--downlink-bits: "nan" is not a list of numbers'),
                (self.JOB, ["--downlink-bits", ",".join(["9"] * 33)], "--downlink-bits: more than 32 budgets"),
                (self.JOB, ["--uplink-bits", "1,2", "--downlink-bits", "1,2,3"],
                 "--downlink-bits: 3 budgets for 2 of --uplink-bits")]:
            out, err = self.expect(2, "plan", "-", *words, stdin=json.dumps(job).encode())
            self.assertEqual(out, "")
            self.assertIn(message, err)


if __name__ == "__main__":
    unittest.main()
