#!/usr/bin/python3
"""What a call of a worker costs the coordinator with few sessions and with many, as ratios.

    tests/bench/bench_sessions.py [--few N] [--many N] [--queued N]
        TALLY_BIN: folder of the programs, TALLY_PYTHON_PROTO: that of the Python messages

One coordinator serves one run. Besides the sessions there are queued jobs that are too large for all sessions
together, and a running job. The output shows the coordinator's processor time per call, as the kernel counts it,
first with few and then with many sessions; the ratios do not depend on the machine's speed. It also shows the memory
per session and the time of a page of GET /v1/workers. Fails if a ratio is above 2.
"""

import argparse
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration"))

from common import FORMAT, job_document, messages  # noqa: E402

BIN = Path(os.environ.get("TALLY_BIN", "build/release/bin")).resolve()
MOST = 2.0
N_CALLS, N_BATCHES = 500, 5  # batches of each kind of call; the median counts
SESSIONS = 20000  # the default of --max-connections, which limits them
LARGE = 100000  # clients of a queued job, more than the number of slots
HANG_S = 120


class Coordinator:
    def __init__(self, folder):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        options = ("--listen", f"127.0.0.1:{port}", "--store", "memory:", "--session-timeout-ms", "86400000",
                   "--log-level", "error", "--max-connections", "1000000")  # for --many
        self.process = subprocess.Popen([BIN / "tally-coordinator", *options], cwd=folder)
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_S)
        until = time.monotonic() + HANG_S
        while True:
            try:
                self.get("/healthz")
                return
            except OSError:
                self.connection.close()
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def stop(self):
        self.process.terminate()
        self.process.wait()

    def request(self, method, path, body=None, kind="application/json"):
        self.connection.request(method, path, body, {"Content-Type": kind})
        answer = self.connection.getresponse()
        content = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {content[:300]}")
        return content

    def get(self, path):
        return json.loads(self.request("GET", path))

    def submit(self, **changes):
        objective = {"type": "plugin", "name": "nobodys", "dim": 30}  # whose data has no bounds
        document = job_document("synthetic-minibatch-sgd", reference={"type": "none"}, objective=objective, **changes)
        return json.loads(self.request("POST", "/v1/jobs", json.dumps(document)))["id"]

    def call(self, method, message, answer):
        path = f"/tally.v1.WorkerService/{method}"
        return answer.FromString(self.request("POST", path, message.SerializeToString(), "application/proto"))

    def cpu_us(self):
        """Returns the processor time of all threads. It is complete, because the coordinator sleeps after a response."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1000

    def memory(self):
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def join(self, name, **more):
        request = messages.JoinRequest(name=name, slots=1, format=FORMAT, **more)
        return self.call("Join", request, messages.JoinResponse).session

    def leave(self, session):
        self.call("Leave", messages.LeaveRequest(session=session), messages.LeaveResponse)

    def poll(self, session, wait_ms=0):
        request = messages.PollTaskRequest(session=session, wait_ms=wait_ms)
        return self.call("PollTask", request, messages.PollTaskResponse)


class Player:
    """Serves the only client of the running job: the response to an update contains the next task."""

    def __init__(self, coordinator):
        self.coordinator = coordinator
        self.job = coordinator.submit(clients=1, quorum=1, horizon=10 ** 9)
        self.session = coordinator.join("player", job_id=self.job)
        self.task = coordinator.poll(self.session, wait_ms=10000).task

    def update(self):
        task = self.task
        request = messages.PostUpdateRequest(session=self.session, job_id=task.job_id, round=task.round)
        update = request.updates.add()
        if not task.cut:
            update.payload, update.payload_bits = bytes(4 * 30), 32 * 30  # a gradient of zeros
        if task.evaluate:
            update.loss = 0.5
        request.poll.session, request.poll.wait_ms = self.session, 10000
        cursor = request.poll.cursors.add()
        cursor.job_id, cursor.iterate = task.job_id, task.iterate
        answer = self.coordinator.call("PostUpdate", request, messages.PostUpdateResponse)
        if answer.next.WhichOneof("kind") != "task":
            raise RuntimeError(f"no task, but {answer}")
        self.task = answer.next.task


def measure(coordinator, player, idle):
    """Returns the microseconds of processor time of one call of each kind."""
    kinds = {"Join": [], "Leave": [], "PollTask": [], "PostUpdate": []}

    def batch(kind, one):
        before = coordinator.cpu_us()
        results = [one(i) for i in range(N_CALLS)]
        time.sleep(0.02)  # the last response is sent before its turn is over
        kinds[kind].append((coordinator.cpu_us() - before) / N_CALLS)
        return results

    for _ in range(N_BATCHES):
        sessions = batch("Join", lambda i: coordinator.join(f"guest-{i}"))
        batch("Leave", lambda i: coordinator.leave(sessions[i]))
        batch("PollTask", lambda i: coordinator.poll(idle))
        batch("PostUpdate", lambda i: player.update())
    return {kind: statistics.median(values) for kind, values in kinds.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--few", type=int, default=10, help="sessions (%(default)s)")
    parser.add_argument("--many", type=int, default=SESSIONS - N_CALLS - 100, help="sessions (%(default)s)")
    parser.add_argument("--queued", type=int, default=200, help="jobs (%(default)s)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tally-bench-") as folder:
        coordinator = Coordinator(folder)
        try:
            return run(coordinator, arguments)
        finally:
            coordinator.stop()


def run(coordinator, arguments):
    player = Player(coordinator)
    for _ in range(arguments.queued):
        coordinator.submit(clients=LARGE, quorum=LARGE)
    sessions = [coordinator.join(f"idle-{i}") for i in range(arguments.few)]
    measure(coordinator, player, sessions[0])  # warms up
    few = measure(coordinator, player, sessions[0])
    empty = coordinator.memory()
    for i in range(arguments.few, arguments.many):
        sessions.append(coordinator.join(f"idle-{i}"))
    memory = (coordinator.memory() - empty) / (arguments.many - arguments.few)
    many = measure(coordinator, player, sessions[0])
    print(f"processor time of a call, {arguments.queued} jobs queued: with {arguments.few} sessions, with {arguments.many}")
    missed = False
    for kind, value in few.items():
        ratio = many[kind] / value
        missed = missed or ratio > MOST
        print(f"{kind:10} {value:7.1f} us {many[kind]:9.1f} us, ratio {ratio:.2f}, at most {MOST:.2f}"
              + (" MISSED" if ratio > MOST else ""))
    before = coordinator.cpu_us()
    page = coordinator.get("/v1/workers?limit=100")
    took = coordinator.cpu_us() - before
    print(f"memory of a session: {memory:.0f} bytes; a page of {len(page['workers'])} workers: {took:.0f} us")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
