"""Coordinator and workers at the two ends of a bad link (link.py), with or without a proxy.

The rates fit the size of the messages, so that each takes several session timeouts. No test measures time: what takes
how long on which link is in deploy/README.md, and tests/bench/bench_links.py measures it."""

import os
import re
import time
import unittest
from pathlib import Path
from unittest import mock

from link import NEAR, Link
from namespaces import skip
from service import FaultTestCase, job_document, wait_until

from common import (  # service.py has found the folder
    HANG_S, Process, essence, free_port, simulate, wait_until_listening,
)

# On a busy machine, a worker may take longer than the session timeout to compute. Then a test is repeated with a longer
# timeout and a slower link.
SCALES = (1, 3)
TIMEOUT_S = 5
BASES = {"ceal": "synthetic-ceal", "calm": "synthetic-calm-auto", "fedpaq": "synthetic-fedpaq",
         "fedavg": "synthetic-fedavg"}
NGINX = Path("/usr/sbin/nginx")


def document(algorithm, dim, clients=2, horizon=None):
    """A job of two to five rounds; of fedavg and fedpaq, half of the horizon."""
    local = algorithm in ("fedavg", "fedpaq")
    horizon = horizon or (4 if local else 200)
    changes = {"objective__data__dim": dim, "objective__data__points": 8 * clients,
               "objective__data__frobenius_norm": 4, "clients": clients, "quorum": clients, "horizon": horizon,
               "reference": {"type": "none"},
               "name": f"{algorithm}-{dim}"}
    if local:
        changes |= {"algorithm__step_size": 0.01, "algorithm__local_steps": 2}
    return job_document(BASES[algorithm], **changes)


class BadLinks(FaultTestCase):
    def setUp(self):
        super().setUp()
        # The addresses are not those of the loopback interface, so a proxy in the environment must be ignored.
        patch = mock.patch.dict(os.environ, {"no_proxy": "*"})
        patch.start()
        self.addCleanup(patch.stop)
        self.texts = []  # what the job waited for

    def start(self, link, options=(), workers=2, worker_options=(), proxy=None, attempt=0):
        """Starts the coordinator at the near end and workers with a client each at the far end."""
        self.link = Link(**link)
        self.addCleanup(self.link.close)
        self.addCleanup(self._end_processes)  # first, since they hold the namespaces
        self.texts.clear()
        self.coordinator = self.start_coordinator(
            store="memory:", host=NEAR, name=f"coordinator-{attempt}", options=("--insecure", *options))
        self.client = self.coordinator.client
        if proxy is not None:
            self.coordinator.url = self.start_nginx(proxy)
        self.workers = [
            self.start_worker(self.coordinator, f"w{attempt}-{i}", options=worker_options, launcher=self.link.enter())
            for i in range(workers)
        ]

    def finish_on_slow_link(self, way, each, timeout_s=TIMEOUT_S, proxy=None, **rates):
        """Runs a job whose messages take several session timeouts. No session may be lost, no point sent again, and
        the job and the log must say how far a message has got."""
        for attempt, scale in enumerate(SCALES):
            seconds = str(timeout_s * scale)
            self.start({name: rate // scale for name, rate in rates.items()}, workers=each["clients"], proxy=proxy,
                       attempt=attempt, options=(
                           "--session-timeout-ms", seconds + "000", "--request-timeout-s", seconds,
                           "--idle-timeout-s", seconds))
            [detail] = self.finish(each)
            if "session timed out" not in self.coordinator.log():
                break
            self.say("a session was lost")
            self._end_processes()
            self.link.close()
        self.assert_no_session_was_lost()
        self.assert_progress_was_told(way)
        self.assertEqual(detail["bits"]["recovery"], 0)

    def start_nginx(self, settings):
        """Starts nginx in front of the coordinator; returns its URL."""
        if not NGINX.exists():
            skip("proxies: there is no nginx")
        port, folder = free_port(), self.folder
        paths = "".join(f"{kind}_temp_path {folder}/{kind}; "
                        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        Path(folder, "nginx.conf").write_text(f"""
            user root; daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx-error.log; events {{}}
            http {{ access_log {folder}/nginx-access.log; {paths} server {{ listen {NEAR}:{port}; location / {{
                proxy_pass {self.coordinator.url}; {settings} }} }} }}""")
        self.processes.append(Process(folder, "nginx", [NGINX, "-e", "stderr", "-c", f"{folder}/nginx.conf"]))
        wait_until_listening(port, NEAR)
        return f"http://{NEAR}:{port}"

    def look(self, job_id):
        detail = self.client.job(job_id)
        text = detail["waiting"]["text"] if detail["waiting"] else ""
        if text and text not in self.texts[-1:]:
            self.texts.append(text)
        return detail

    def finish(self, *documents):
        """Runs the jobs one after the other. Each must end with the bits of the simulation; returns the details."""
        details = []
        for each in documents:
            began = time.monotonic()
            job_id = self.client.submit(each)
            detail = wait_until(lambda job_id=job_id: next(
                (d for d in [self.look(job_id)] if d["status"] not in ("queued", "running")), None),
                f"{each['name']} to end", HANG_S, pause_s=0.1)
            self.say(f"{each['name']}: {detail['status']} after {time.monotonic() - began:.0f} s")
            self.assertEqual(essence(detail), essence(simulate(each)))
            details.append(detail)
        return details

    def assert_no_session_was_lost(self):
        self.assertNotIn("session timed out", self.coordinator.log())
        for worker in self.workers:
            self.assertNotIn("not reachable", worker.log())

    def assert_progress_was_told(self, way):
        """Checks that `waiting` said at several times how far a message had got, and the worker's log too."""
        shares = [int(share) for text in self.texts for share in re.findall(rf"client 0 is {way}, (\d+) %", text)]
        self.assertGreater(len(set(shares)), 2, self.texts)
        self.assertIn(f"still {way}", self.workers[0].log() + self.workers[-1].log())

    # ---- slow ----

    def test_updates_take_longer_than_the_session_timeout(self):
        self.finish_on_slow_link("sending", document("fedavg", 100000, horizon=2), up_bytes_per_s=50000)

    def test_broadcasts_take_longer_than_the_session_timeout(self):
        self.finish_on_slow_link("receiving", document("fedavg", 60000, clients=1), down_bytes_per_s=16000)

    def test_a_proxy_that_buffers(self):
        """The coordinator sees no byte of a message before nginx has it all, and the worker's own calls must get past
        the message on the full link."""
        self.finish_on_slow_link(
            "sending", document("fedavg", 100000, clients=1, horizon=2), up_bytes_per_s=20000, timeout_s=10,
            proxy="client_max_body_size 0; proxy_request_buffering on; proxy_buffering on;")

    def test_a_link_that_is_cut_in_the_middle_of_an_update(self):
        """Its worker counts as absent, and the update is sent again when the link is back."""
        self.start({"up_bytes_per_s": 40000}, workers=1, options=("--session-timeout-ms", "3000"))
        each = document("fedavg", 100000, clients=1, horizon=2)
        job_id = self.client.submit(each)
        wait_until(lambda: self.look(job_id) and "is sending" in "".join(self.texts), "the update to be sent", HANG_S)
        self.link.become(loss=1)
        wait_until(lambda: self.look(job_id) and self.texts[-1].endswith("it has no worker"), "the session to end", HANG_S)
        self.link.become()
        self.assertEqual(essence(self.client.wait_status(job_id, "completed")), essence(simulate(each)))

    def test_64_kbit_with_600_ms_and_5_percent_lost(self):
        link = {"up_bytes_per_s": 8000, "down_bytes_per_s": 8000, "delay_ms": 300, "loss": 0.05, "seed": self.seed}
        self.start(link)
        self.finish(*(document(algorithm, 30) for algorithm in BASES), document("ceal", 7840), document("calm", 7840))

    # ---- broken ----

    def test_a_link_that_breaks_every_20_s_for_5_s(self):
        self.start({"up_bytes_per_s": 20000, "down_bytes_per_s": 20000, "good_s": 20, "broken_s": 5}, workers=1)
        self.finish(document("fedavg", 100000, clients=1))
        self.assertNotIn("session timed out", self.coordinator.log())

    def test_a_nat_that_forgets_idle_connections_after_30_s(self):
        """Without keep-alive probes, a task that comes after 35 s would be lost."""
        self.start({"forget_s": 30}, workers=1, worker_options=("--wait-ms", "30000"))
        wait_until(lambda: self.client.get_json("/v1/workers")["workers"], "the worker")
        time.sleep(35)  # the connection is idle, but for the end of the first poll
        self.finish(document("ceal", 30, clients=1))
        self.assert_no_session_was_lost()

    # ---- proxies that refuse ----

    def test_a_proxy_that_limits_bodies_to_1_mb(self):
        self.start({}, workers=1, proxy="client_max_body_size 1m;")
        self.finish(*(document(algorithm, dim, clients=1) for algorithm in ("ceal", "fedpaq", "fedavg")
                      for dim in (30, 7840)))
        job_id = self.client.submit(document("fedavg", 300000, clients=1))
        wait_until(lambda: self.look(job_id) and "413" in "".join(self.texts), "the reason in `waiting`", HANG_S)
        self.say(self.texts[-1])

    def test_a_proxy_that_answers_html(self):
        self.start({}, workers=1, proxy="return 200 '<html>Please log in</html>'; default_type text/html;")
        wait_until(lambda: "text/html" in self.workers[0].log(), "the reason in the worker's log")
        self.assertIn(self.coordinator.url, self.workers[0].log())
        job_id = self.client.submit(document("ceal", 30, clients=1))
        wait_until(lambda: self.look(job_id) and "waits for 1 client, 0 slots are free" in self.texts,
                   "the job to say that it has no worker")


if __name__ == "__main__":
    unittest.main()
