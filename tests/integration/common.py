"""What the integration tests share: real processes on loopback, an HTTP client, and the job documents.

Waits poll a condition; their limits only keep a broken program from hanging the run. Processes are ended by their id.
"""

import contextlib
import functools
import http.client
import json
import os
import random
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

REPO = Path(__file__).resolve().parents[2]
BIN = Path(os.environ.get("TALLY_BIN", REPO / "build/release/bin")).resolve()
IS_SANITIZED = BIN.parent.name in ("asan", "tsan")  # under a sanitizer, memory includes the sanitizer's own
JOBS = REPO / "deploy/jobs"
FORMAT = int(re.match(r"# .*, version (\d+)\n", (REPO / "codec/FORMAT.md").read_text())[1])
# A runner started in the background ignores SIGINT, and the processes that it starts would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long a test waits while nothing happens: far above what any single step takes on a machine that is ten times
# overloaded, so that a test of a broken program fails within minutes.
SILENCE_S = 600 if IS_SANITIZED else 120
HANG_S = 1200  # the same for what computes without a sign of life, such as a command, and for a wait in all


def _generate_messages():
    """Makes and imports worker_pb2 with protoc; returns the module."""
    folder = Path(os.environ.get("TALLY_PYTHON_PROTO", REPO / "build/python-proto"))
    proto = REPO / "api/worker/proto/tally/v1/worker.proto"
    made = folder / "worker_pb2.py"
    if not made.exists() or made.stat().st_mtime < proto.stat().st_mtime:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            subprocess.run(
                ["protoc", f"--python_out={scratch}", f"--proto_path={proto.parent}", proto.name],
                check=True,
            )
            os.replace(Path(scratch) / made.name, made)
    sys.path.insert(0, str(folder))
    import worker_pb2

    return worker_pb2


messages = _generate_messages()


def wait_until(condition, what, timeout_s=SILENCE_S, pause_s=0.01, progress=None):
    """Polls until condition() is true and returns its value. If progress() has a new value, the time begins again."""
    began = moved = time.monotonic()
    known = progress and progress()
    while True:
        value = condition()
        if value:
            return value
        now = time.monotonic()
        if progress and known != (latest := progress()):
            known, moved = latest, now
        if now > moved + timeout_s or now > began + max(timeout_s, HANG_S):
            raise AssertionError(f"waited {now - began:.0f} s for {what}")
        time.sleep(pause_s)


def wait_until_listening(port, host="127.0.0.1"):
    """Waits until a server that the test started accepts connections."""
    wait_until(lambda: _accepts(port, host), f"a listener on port {port}")


def _accepts(port, host):
    try:
        with socket.create_connection((host, port), SILENCE_S):
            return True
    except ConnectionRefusedError:
        return False


_claims = []  # sockets, held as long as this process lives


def free_port():
    """Returns a port without a listener, below the range from which the kernel takes source ports: a worker that keeps
    trying a dead coordinator's port in that range could connect to itself. The UDP port of the same number is held as a
    claim, so that no other test gets the port before a program listens on it."""
    while True:
        port = random.randrange(20000, 30000)
        claim = socket.socket(type=socket.SOCK_DGRAM)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            claim.bind(("127.0.0.1", port))
            probe.bind(("127.0.0.1", port))
            _claims.append(claim)
            return port
        claim.close()


def job_document(base="synthetic-ceal", /, **changes):
    """Returns a job document of deploy/jobs with members replaced: algorithm__sigma is a nested member, and None
    removes a member."""
    document = json.loads((JOBS / f"{base}.json").read_text())
    return changed(document, {key.replace("__", "."): value for key, value in changes.items()})


ENDLESS = 10**8  # a horizon that no test reaches


def essence_so_far(detail, document):
    """Returns the essence of a job before its horizon, and that of an undisturbed run whose horizon is the job's time
    step."""
    so_far = simulate({**document, "horizon": detail["time_step"]})
    return {**essence(detail), "status": None}, {**essence(so_far), "status": None}


def changed(document, changes):
    document = json.loads(json.dumps(document))
    for path, value in changes.items():
        *parents, last = path.split(".")
        parent = document
        for key in parents:
            parent = parent[key]
        if value is None:
            parent.pop(last, None)
        else:
            parent[last] = value
    return document


class Answer:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def type(self):
        return self.headers.get("Content-Type", "").split(";")[0].strip()

    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"HTTP {self.status} {self.type} {self.body[:400]!r}"


class ConnectError(Exception):
    def __init__(self, answer):
        super().__init__(repr(answer))
        self.status = answer.status
        body = answer.json()
        self.code = body["code"]
        self.message = body.get("message", "")


def catches(pid, number):
    """Whether the process has a handler of its own for the signal: SigCgt of proc(5)."""
    caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)[1]
    return int(caught, 16) >> (number - 1) & 1 == 1


def cpu_seconds(process):
    fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Lateness:
    """How long this thread and the given processes have waited for a processor, in total, since this object was made or
    since they began: what a busy machine adds to a time that a test measures. Only the first thread of each process
    counts."""

    def __init__(self, *pids):
        self._pids = (os.getpid() if threading.current_thread() is threading.main_thread()
                      else threading.get_native_id(), *pids)
        self._before = [self._of(pid) for pid in self._pids]

    @staticmethod
    def _of(pid):
        try:  # proc(5): nanoseconds on a processor, nanoseconds that it waited for one, slices
            return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1]) / 1e9
        except OSError:  # the process has ended
            return 0.0

    def seconds(self):
        return sum(max(0.0, self._of(pid) - before) for pid, before in zip(self._pids, self._before))


def memory_bytes(pid, what="VmRSS"):
    """Returns the resident memory of the process, or its peak with VmHWM: proc(5)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(what)).split()[1])


def signal_once_caught(popen, number):
    """Sends a signal to a program once it has installed its handler; before that the signal would just kill it. A
    program that has ended gets no signal."""
    wait_until(lambda: popen.poll() is not None or catches(popen.pid, number),
               f"process {popen.pid} to catch signal {number}", pause_s=0.001)
    popen.send_signal(number)


class Process:
    """A running program whose output goes to a file."""

    def __init__(self, folder, name, arguments):
        self.name = name
        self.output = Path(folder) / f"{name}.log"
        with open(self.output, "ab") as output:
            self.popen = subprocess.Popen(
                [str(argument) for argument in arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
            )

    @property
    def pid(self):
        return self.popen.pid

    def is_alive(self):
        return self.popen.poll() is None

    def log(self):
        return self.output.read_text(errors="replace")

    def kill(self):
        """Sends SIGKILL and waits for the process to end."""
        self.popen.kill()
        self.popen.wait(SILENCE_S)

    def terminate(self):
        """Sends SIGTERM; returns the exit status, negative for a signal."""
        signal_once_caught(self.popen, signal.SIGTERM)
        return self.popen.wait(SILENCE_S)

    def wait(self):
        return self.popen.wait(HANG_S)


class Coordinator(Process):
    """A tally-coordinator process; `launcher` is a command that starts it (nsenter ...)."""

    def __init__(self, folder, port=None, store=None, name="coordinator", options=(),
                 host="127.0.0.1", launcher=(), wait=True, program="tally-coordinator"):
        self.port = port or free_port()
        self.store = store or f"sqlite:{folder}/tally.db"
        self.began = time.monotonic()
        super().__init__(
            folder,
            name,
            [*launcher, BIN / program, "--listen", f"{host}:{self.port}", "--store",
             self.store, *options],
        )
        self.url = f"http://{host}:{self.port}"
        self.client = Client(self.port, host)
        if wait:
            self.wait_ready()

    def wait_ready(self, pause_s=0.01):
        wait_until(self._is_ready, f"{self.name} on port {self.port} to be ready", pause_s=pause_s)

    def _is_ready(self):
        if not self.is_alive():
            raise AssertionError(f"{self.name} ended with {self.popen.returncode}:\n{self.log()}")
        try:
            return self.client.get("/readyz").status == 200
        except OSError:
            return False


class Client:
    """An HTTP client that opens one connection per request."""

    def __init__(self, port, host="127.0.0.1"):
        self.port = port
        self.host = host

    def connect(self, timeout_s):
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)

    def request(self, method, path, body=None, headers=None, timeout_s=SILENCE_S):
        connection = self.connect(timeout_s)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        finally:
            connection.close()

    def get(self, path, **headers):
        return self.request("GET", path, headers=headers)

    def get_json(self, path):
        answer = self.get(path)
        if answer.status != 200:
            raise AssertionError(f"GET {path}: {answer}")
        return answer.json()

    def post(self, path, body=b"", **headers):
        return self.request("POST", path, body, headers)

    def post_job(self, document, headers=None):
        """`document` is an object, or text or bytes that are sent unchanged."""
        if isinstance(document, dict):
            document = json.dumps(document)
        if isinstance(document, str):
            document = document.encode()
        return self.request(
            "POST", "/v1/jobs", document, {"Content-Type": "application/json", **(headers or {})}
        )

    def submit(self, document):
        answer = self.post_job(document)
        if answer.status != 201:
            raise AssertionError(f"submission refused: {answer}")
        return answer.json()["id"]

    def job(self, job_id):
        return self.get_json(f"/v1/jobs/{job_id}")

    def rounds(self, job_id):
        """Returns all round records, page by page."""
        records, after = [], 0
        while after is not None:
            page = self.get_json(f"/v1/jobs/{job_id}/rounds?after={after}")
            records += page["rounds"]
            after = page.get("next_after")
        return records

    def wait_rounds(self, job_id, more):
        """Waits until the job has closed `more` rounds; its horizon must be beyond them. Not for a job at a gate, which
        may have come to its end already: see wait_round()."""
        self.wait_round(job_id, self.job(job_id)["round"] + more)

    def wait_round(self, job_id, wanted):
        """Waits until the job has closed `wanted` rounds in all."""
        most = 0

        def look():
            nonlocal most
            most = max(most, self.job(job_id)["round"])
            return most >= wanted

        wait_until(look, f"round {wanted} of job {job_id}", pause_s=0.002, progress=lambda: most)

    def wait_status(self, job_id, *wanted):
        """Returns the detail once the job has one of the statuses; raises if the job ends with another."""

        most = 0

        def look():
            nonlocal most
            detail = self.job(job_id)
            most = max(most, detail["round"])
            if detail["status"] in wanted:
                return detail
            if detail["status"] in ("completed", "failed", "cancelled"):
                raise AssertionError(f"job ended {detail['status']}: {detail.get('reason')}")
            return None

        return wait_until(look, f"job {job_id} to be {' or '.join(wanted)}", progress=lambda: most)

    def call_raw(self, method, body, headers=None):
        """Makes one Connect call with these bytes as its body."""
        return self.request(
            "POST",
            f"/tally.v1.WorkerService/{method}",
            body,
            {"Content-Type": "application/proto", "Connect-Protocol-Version": "1", **(headers or {})},
        )

    def call(self, method, message, answer_type):
        answer = self.call_raw(method, message.SerializeToString())
        if answer.status != 200:
            raise ConnectError(answer)
        return answer_type.FromString(answer.body)


class Worker(Process):
    """A tally-worker process."""

    def __init__(self, folder, coordinator_url, name, clients=1, options=(), launcher=()):
        super().__init__(
            folder,
            f"worker-{name}",
            [*launcher, BIN / "tally-worker", "--coordinator", coordinator_url, "--name", name,
             "--clients", clients, *options],
        )


class ForeignWorker:
    """A worker in Python, written from worker.proto alone. Its gradients are zero: one bit 0 per
    coordinate in the unary encoding."""

    def __init__(self, client, name="foreign", slots=1, job_id="", held=()):
        self.client = client
        request = messages.JoinRequest(name=name, slots=slots, job_id=job_id, format=FORMAT)
        for job, index in held:
            request.held.add(job_id=job, client=index)
        self.session = client.call("Join", request, messages.JoinResponse).session
        self.cursors = {}

    def poll(self, wait_ms=10000):
        request = messages.PollTaskRequest(session=self.session, wait_ms=wait_ms)
        for job_id, iterate in self.cursors.items():
            request.cursors.add(job_id=job_id, iterate=iterate)
        answer = self.client.call("PollTask", request, messages.PollTaskResponse)
        if answer.WhichOneof("kind") == "released":
            self.cursors.pop(answer.released.job_id, None)
        return answer

    def poll_task(self):
        """Polls until there is a task."""

        def look():
            answer = self.poll()
            return answer.task if answer.WhichOneof("kind") == "task" else None

        return wait_until(look, "a task")

    def update(self, task, client, /, dim=30, **changes):
        """Returns a request with a valid update for the task, with the given fields of either replaced."""
        request = messages.PostUpdateRequest(session=self.session, job_id=task.job_id, round=task.round)
        update = request.updates.add(client=client)
        if not task.cut:
            update.payload = bytes((dim + 7) // 8)
            update.payload_bits = dim
        if task.evaluate:
            update.loss = 0.5
        for field, value in changes.items():
            setattr(update if field in messages.ClientUpdate.DESCRIPTOR.fields_by_name else request, field, value)
        return request

    def say(self, task, client, **fields):
        """Posts why a client has no message: its `failure`, or a `refusal`."""
        return self.post(messages.PostUpdateRequest(session=self.session, job_id=task.job_id, round=task.round,
                                                    updates=[messages.ClientUpdate(client=client, **fields)]))

    def post(self, update):
        return self.client.call("PostUpdate", update, messages.PostUpdateResponse)

    def leave(self):
        return self.client.call(
            "Leave", messages.LeaveRequest(session=self.session), messages.LeaveResponse
        )


def task_of(exchange):
    """Returns the task in the response of an exchange of the recording proxy, or None."""
    answer = messages.PollTaskResponse()
    if exchange.status == 200 and exchange.method == "PollTask":
        answer = messages.PollTaskResponse.FromString(exchange.response_body)
    elif exchange.status == 200 and exchange.method == "PostUpdate":
        answer = messages.PostUpdateResponse.FromString(exchange.response_body).next
    return answer.task if answer.WhichOneof("kind") == "task" else None


def updates_of(exchange):
    """Returns the updates that an exchange of the recording proxy posted, each as (PostUpdateRequest, ClientUpdate,
    result). A result has payload_bits, and a `code` if the update was refused. If all are acknowledged, the response
    has sums; the first result then has all formula_bits."""
    if exchange.method != "PostUpdate":
        return []
    request = messages.PostUpdateRequest.FromString(exchange.request_body)
    results = len(request.updates) * [messages.UpdateResult(code="refused")]
    if exchange.status == 200:
        answer = messages.PostUpdateResponse.FromString(exchange.response_body)
        results = answer.results or shared_out(answer, request.updates)
    return [(request, update, result) for update, result in zip(request.updates, results, strict=True)]


def shared_out(answer, updates):
    assert answer.payload_bits == sum(update.payload_bits for update in updates), answer
    return [messages.UpdateResult(formula_bits=0 if i > 0 else answer.formula_bits, payload_bits=update.payload_bits)
            for i, update in enumerate(updates)]


# What the algorithm and its accounting define, which is equal wherever a job runs.
def essence(detail):
    bits = detail["bits"]
    return {
        **{key: detail[key] for key in
           ("status", "time_step", "round", "iterate", "stage", "cumulative_regret", "loss", "f_star", "x_checksum",
            "estimates", "planned", "stopped_by")},
        **{key: bits[key] for key in ("uplink", "downlink", "uplink_per_client", "control", "telemetry")},
    }


def without_times(text):
    """Returns a rounds.csv without the times of the rounds, which no two runs share."""
    rows = [row.split(",") for row in text.splitlines()]
    at = rows[0].index("closed_ms")
    return "\n".join(",".join(row[:at] + row[at + 1:]) for row in rows)


def sum_of_rounds(records):
    """Returns the job counters that the round records add up to."""

    def total(*path):
        values = []
        for record in records:
            value = record["bits"]
            for key in path:
                value = value[key]
            values.append(value)
        return sum(values)

    common = ("formula", "payload", "messages", "clipped")
    return {
        "uplink": {key: total("uplink", key) for key in common},
        "downlink": {key: total("downlink", key) for key in (*common, "delivered_payload")},
        "control": total("control"),
        "telemetry": total("telemetry"),
    }


def uplink_of_workers(workers):
    """Returns the sum of the workers' own counters, which each worker logs when it stops."""
    names = {"formula": "uplink_formula_bits", "payload": "uplink_payload_bits",
             "messages": "uplink_messages", "clipped": "uplink_clipped"}
    totals = dict.fromkeys(names, 0)
    for worker in workers:
        last = [line for line in worker.log().splitlines() if names["formula"] in line][-1]
        said = dict(word.split("=", 1) for word in last.split() if "=" in word)
        for key, name in names.items():
            totals[key] += int(said[name])
    return totals


@functools.lru_cache(maxsize=None)
def _simulate(text, options):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.json"
        path.write_text(text)
        done = subprocess.run(
            [BIN / "tally", "simulate", path, "--json", *options],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=HANG_S, check=False,
        )
    if done.returncode != 0:
        raise AssertionError(f"tally simulate: exit status {done.returncode}\n{done.stderr}")
    return done.stdout


def simulate(document, options=()):
    """Returns the job detail of the undisturbed run in one process."""
    return json.loads(_simulate(json.dumps(document), tuple(str(option) for option in options)))


class TallyTestCase(unittest.TestCase):
    """A test with its own folder and processes."""

    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tally-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.processes = []
        self.addCleanup(self._end_processes)
        self.addCleanup(self._show_logs)

    def _end_processes(self):
        """Ends the remaining processes with SIGTERM and checks their exit status, which also reports leaks
        under a sanitizer."""
        alive = [process for process in self.processes if process.is_alive()]
        ended_badly = []
        for kind in (Worker, Coordinator, Process):
            group = [process for process in alive if isinstance(process, kind)]
            alive = [process for process in alive if process not in group]
            for process in group:
                signal_once_caught(process.popen, signal.SIGTERM)
            for process in group:
                try:
                    status = process.popen.wait(SILENCE_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    status = "no"
                if status != 0:
                    ended_badly.append(f"{process.name}: {status} exit status\n{process.log()[-2000:]}")
        self.assertEqual(ended_badly, [])

    def _show_logs(self):
        outcome = self._outcome.result
        failed = any(
            getattr(test, "test_case", test) is self for test, _ in outcome.failures + outcome.errors
        )
        if failed:
            for log in sorted(Path(self.folder).glob("*.log")):
                lines = log.read_text(errors="replace").splitlines()
                print(f"\n---- {log.name}: the last of {len(lines)} lines", *lines[-15:], sep="\n")

    def start_coordinator(self, **options):
        coordinator = Coordinator(self.folder, **options)
        self.processes.append(coordinator)
        return coordinator

    def start_with_a_disk_that_fills(self, **options):
        """Starts a coordinator that ignores SIGXFSZ, so that a write past RLIMIT_FSIZE fails as on a full disk."""
        wrapper = Path(self.folder) / "bin" / "tally-coordinator"
        wrapper.parent.mkdir()
        wrapper.write_text(f'#!/bin/sh\nexec env --ignore-signal=XFSZ "{BIN}/tally-coordinator" "$@"\n')
        wrapper.chmod(0o755)
        with mock.patch.dict(globals(), BIN=wrapper.parent):
            return self.start_coordinator(**options)

    @contextlib.contextmanager
    def full_disk(self, coordinator, most=1 << 30):
        """Lets the log file grow but not the journal, which is longer. A journal that other jobs fill begins again at
        its front now and then, so they need a limit in bytes, below a page."""
        journal = min(os.stat(f"{self.folder}/tally.db-wal").st_size, most)
        _, hard = resource.prlimit(coordinator.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(coordinator.pid, resource.RLIMIT_FSIZE, (journal, hard))
        yield
        resource.prlimit(coordinator.pid, resource.RLIMIT_FSIZE, (hard, hard))

    def start_worker(self, coordinator, name, **options):
        worker = Worker(self.folder, coordinator.url, name, **options)
        self.processes.append(worker)
        return worker

    def assert_ends_well(self, *processes):
        """Checks that the processes drain and exit with 0 after SIGTERM."""
        for process in processes:
            self.assertEqual(process.terminate(), 0, f"{process.name}:\n{process.log()[-2000:]}")

    def wait_until_heard(self, client, workers):
        """Waits until the workers of an ended job have received all responses and are polling again. SIGTERM would
        interrupt an exchange, and its worker would not count an update that the coordinator has counted."""
        names = {worker.name.removeprefix("worker-") for worker in workers}
        wait_until(lambda: names <= {worker["name"] for worker in client.get_json("/v1/workers")["workers"]
                                     if worker["state"] == "waiting"}, "the workers to wait")

    def assert_connect_error(self, code, call, *arguments):
        with self.assertRaises(ConnectError) as caught:
            call(*arguments)
        self.assertEqual(caught.exception.code, code, caught.exception)
        return caught.exception

    def assert_problem(self, answer, status, field=None):
        """Checks for a problem document (RFC 9457) that names the field."""
        self.assertEqual(answer.status, status, answer)
        self.assertEqual(answer.type, "application/problem+json", answer)
        problem = answer.json()
        self.assertEqual(problem["status"], status)
        self.assertTrue(problem["title"], problem)
        self.assertTrue(problem["detail"], problem)
        if field is not None:
            self.assertEqual(problem.get("field"), field, problem)
        return problem
