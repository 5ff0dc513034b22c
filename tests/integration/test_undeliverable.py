"""Updates that never get through: a coordinator that takes no body of their length, a proxy that limits bodies or
refuses the path, redirects, a proxy that wants a password.

No test measures time. How often a worker posts is compared with how often it polls, or with the attempts that its log
announces.
"""

import collections
import contextlib
import os
import sqlite3
import subprocess
import threading
import unittest
from pathlib import Path
from unittest import mock

from common import (
    ForeignWorker, TallyTestCase, Worker, free_port, job_document, messages, uplink_of_workers, wait_until,
)
from recording_proxy import RecordingProxy

PROGRAMS = Path(os.environ.get("TALLY_BIN", "build/release/bin")).resolve()
POST = "PostUpdate"
PAGE = "<html>\r\n<head><title>{0} Go Away</title></head>\r\n<body>{0} Go Away</body>\r\n</html>\r\n"


def method_of(request):
    return request.split(b" ", 2)[1].rsplit(b"/", 1)[-1].decode()


def answer(status, *headers, kind="text/html", body=None):
    body = PAGE.format(status) if body is None else body
    body = body if isinstance(body, bytes) else body.encode()
    lines = [f"HTTP/1.1 {status} Go Away", "Server: gateway/7", f"Content-Type: {kind}",
             f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


class RefusingProxy(RecordingProxy):
    """Calls refuse(method, request) for each request, and sends the response that it returns instead of forwarding
    the request. `methods` lists all requests by method, `n_begun` counts them before they
    are answered, `n_connections` counts also those that found no coordinator."""

    def __init__(self, port, refuse):
        self.refuse = refuse
        self.methods, self.refused = [], []
        self.n_begun = collections.Counter()
        self.n_connections = 0
        super().__init__(port, keeps=False)

    def _serve(self, connection):
        self.n_connections += 1
        super()._serve(connection)

    def _may_pass(self, request, connection):
        method = method_of(request)
        self.n_begun[method] += 1
        response = self.refuse(method, request)
        self.methods.append(method)
        if response is not None:
            self.refused.append(method)
            connection.sendall(response)
        return response is None


def float32_job(dim, **changes):
    """A job whose updates have 4 bytes per coordinate, of clients that take no time to compute."""
    fixed = {"algorithm": {"type": "fedavg", "step_size": 0.1, "local_steps": 1},
             "objective__data": {"type": "synthetic_linear", "dim": dim, "points": 8, "frobenius_norm": 1,
                                 "noise_std": 1},
             "encoding": None, "reference": {"type": "none"}, "clients": 1, "quorum": None, "horizon": 3}
    return job_document("synthetic-ceal", **{**fixed, **changes})


class Undeliverable(TallyTestCase):
    def start(self, refuse=lambda method, request: None, options=()):
        self.coordinator = self.start_coordinator(store="memory:", options=options)
        self.client = self.coordinator.client
        self.proxy = RefusingProxy(self.coordinator.port, refuse)
        self.addCleanup(self.proxy.close)

    def start_behind(self, name="behind", **options):
        worker = Worker(self.folder, self.proxy.url, name, **options)
        self.processes.append(worker)
        return worker

    def reason(self, job_id, words):
        """Waits until the job says what its worker cannot post, and returns the whole text."""

        def look():
            waiting = self.client.job(job_id)["waiting"]
            return waiting["text"] if waiting and words in waiting["text"] else None

        return wait_until(look, f"{words!r} among what the job waits for")

    def posts(self):
        return self.proxy.methods.count(POST)

    # ---- at submission ----

    def refused(self, document):
        refusal = self.client.post_job(document)
        self.assertEqual(refusal.status, 400, refusal)
        return refusal.json()["field"], refusal.json()["detail"]

    def test_a_job_whose_updates_are_too_long_is_refused(self):
        self.start(options=("--max-body-bytes", "20000"))
        field, detail = self.refused(float32_job(5000))
        self.assertEqual(field, "objective.data.dim")
        self.assertIn("--max-body-bytes 20000", detail)
        ef21 = {"type": "ef21", "step_size": 0.1, "local_steps": 1, "k": 4990}
        self.assertEqual(self.refused(float32_job(6000, algorithm=ef21))[0], "algorithm.k")
        # The length of these depends on the data.
        ceal = float32_job(6000, algorithm=job_document()["algorithm"])
        self.client.submit({**ceal, "encoding": "entropy"})
        self.client.submit({**ceal, "encoding": "unary"})

    def test_the_longest_job_that_is_accepted_completes(self):
        self.start(options=("--max-body-bytes", "20000"))
        accepted = (self.client.post_job(float32_job(dim)) for dim in range(5000, 4900, -1))
        job_id = next(answer for answer in accepted if answer.status == 201).json()["id"]
        self.start_behind()
        self.client.wait_status(job_id, "completed")

    # ---- a permanent answer ----

    def check_answer(self, response, words):
        """A worker whose posts get this response posts once, and leaves the job with the reason."""
        self.start(lambda method, request: response if method == POST else None)
        job_id = self.client.submit(float32_job(30))
        worker = self.start_behind(options=("--wait-ms", "50"))
        text = self.reason(job_id, "cannot post its update")
        self.assertIn(f"{words[0]} from {self.proxy.url} (gateway/7)", text)
        for word in words[1:]:
            self.assertIn(word, text)
        n_polls = self.proxy.methods.count("PollTask")
        wait_until(lambda: self.proxy.methods.count("PollTask") >= n_polls + 20, "20 polls")
        self.assertLessEqual(10 * self.posts(), self.proxy.methods.count("PollTask"))
        self.assertEqual([w["name"] for w in self.client.get_json("/v1/workers")["workers"]], ["behind"])
        self.assertEqual(self.posts(), worker.log().count("update cannot be posted"))
        self.assertEqual(self.client.job(job_id)["status"], "running")

    def test_a_temporary_answer_to_posts_alone(self):
        is_over = False
        self.start(lambda method, request: answer(503) if method == POST and not is_over else None)
        job_id = self.client.submit(float32_job(30))
        worker = self.start_behind(options=("--wait-ms", "50"))
        self.assertIn("HTTP 503", self.reason(job_id, "cannot post its update"))
        self.assertLessEqual(self.posts(), 10 * worker.log().count("update cannot be posted"))
        is_over = True
        self.client.wait_status(job_id, "completed")

    def check_silence(self, **options):
        """A worker whose posts get no answer, while its polls do, backs off and says why until the posts pass."""
        is_over = False
        self.start(lambda method, request: b"" if method == POST and not is_over else None)
        job_id = self.client.submit(float32_job(30, **options))
        worker = self.start_behind(options=("--wait-ms", "50"), **options)
        text = self.reason(job_id, "cannot post its update")
        self.assertRegex(text, rf"POST {self.proxy.url}/tally.v1.WorkerService/PostUpdate: (Empty reply|Recv failure)")
        self.assertLessEqual(self.posts(), 12 * worker.log().count("update cannot be posted"))
        is_over = True
        self.client.wait_status(job_id, "completed")

    def test_no_answer_to_posts_alone(self):
        self.check_silence()

    def test_no_answer_to_batches_alone(self):
        self.check_silence(clients=8)

    def check_swallowed(self, n_posts, **options):
        """A proxy takes posts and never answers, while polls pass. After as many posts, the first with a silence of
        POST_TIMEOUT_MS and the others of SUSPECT_MS, which is less than a minute, the job says why."""
        is_over = threading.Event()
        self.addCleanup(is_over.set)

        def refuse(method, request):
            if method == POST and not is_over.is_set():
                is_over.wait()
                return b""
            return None

        self.start(refuse)
        job_id = self.client.submit(float32_job(30, **options))
        self.start_behind(options=("--wait-ms", "50"), **options)
        self.assertIn("nothing was sent or received for 8000 ms", self.reason(job_id, "cannot post its update"))
        self.assertLessEqual(self.proxy.n_begun[POST], n_posts + 1)
        is_over.set()
        self.client.wait_status(job_id, "completed")

    def test_swallowed_posts(self):
        self.check_swallowed(3)

    def test_swallowed_batches(self):
        self.check_swallowed(4, clients=8)

    def test_an_outage_is_no_obstacle_of_an_update(self):
        self.check_outage(answer(503))

    def test_an_outage_without_answers_is_no_obstacle_of_an_update(self):
        self.check_outage(b"")

    def check_return(self, response):
        """Once the worker has given its update up, the coordinator is back, and hears of no obstacle."""
        worker = None

        def refuse(method, request):
            has_given_up = worker is not None and "cannot be posted" in worker.log()
            return response if method == POST and not has_given_up else None

        self.start(refuse)
        job_id = self.client.submit(float32_job(30))
        worker = self.start_behind()
        self.client.wait_status(job_id, "completed")
        self.assertEqual(worker.log().count("cannot be posted"), 1)
        self.assertNotIn("cannot post", self.coordinator.log())

    def test_a_coordinator_that_is_back_when_it_is_polled(self):
        self.check_return(answer(503))

    def test_a_coordinator_that_is_back_after_silence_when_it_is_polled(self):
        self.check_return(b"")

    def check_outage(self, response):
        state = "up"

        def refuse(method, request):
            return response if state == "down" or (state == "up" and method == POST) else None

        self.start(refuse)
        job_id = self.client.submit(float32_job(30))
        worker = self.start_behind()
        wait_until(lambda: POST in self.proxy.refused, "a post")
        state = "down"
        wait_until(lambda: self.proxy.refused.count(POST) >= 10, "ten posts")
        n_polls = self.proxy.methods.count("PollTask")
        state = "up again"
        self.client.wait_status(job_id, "completed")
        # The update was kept and computed once.
        self.assertNotIn("cannot be posted", worker.log())
        self.assertEqual(self.proxy.refused.count("PollTask"), 0)
        self.assertEqual(n_polls, 1)
        asked = [event for event in self.coordinator.log().splitlines() if "cannot post" in event]
        self.assertEqual(asked, [])

    def test_an_update_is_counted_although_its_acknowledgement_was_lost_in_an_outage(self):
        """The worker of a client keeps the update that the coordinator stored before it was killed, and learns that it
        counts, however long the outage was."""
        self.coordinator = self.start_coordinator()
        self.client = self.coordinator.client
        self.proxy = RefusingProxy(self.coordinator.port, lambda method, request: None)
        self.addCleanup(self.proxy.close)
        other = ForeignWorker(self.client, "other")
        worker = self.start_behind()
        job_id = self.client.submit(float32_job(30, clients=2, quorum=2, horizon=1))
        client = other.poll_task().clients[0]
        with contextlib.closing(sqlite3.connect(f"{self.folder}/tally.db")) as store:
            wait_until(lambda: store.execute("SELECT count(*) FROM updates WHERE round > 0").fetchone() == (1,),
                       "the update to be stored")
        self.coordinator.kill()
        n_before = self.proxy.n_connections
        wait_until(lambda: self.proxy.n_connections >= n_before + 12, "a dozen attempts")
        self.coordinator = self.start_coordinator(port=self.coordinator.port, store=self.coordinator.store)
        self.client = self.coordinator.client
        other = ForeignWorker(self.client, "other", held=[(job_id, client)])
        other.post(other.update(other.poll_task(), client, payload=bytes(120), payload_bits=960))
        detail = self.client.wait_status(job_id, "completed")
        self.assertEqual(detail["bits"]["uplink"]["messages"], 2)
        self.wait_until_heard(self.client, [worker])
        self.assert_ends_well(worker)
        self.assertEqual(uplink_of_workers([worker])["messages"], 1)

    def test_413(self):
        self.check_answer(answer(413), ["HTTP 413", "body of "])

    def test_another_worker_with_a_way_of_its_own_gets_the_clients(self):
        self.start(lambda method, request: answer(403) if method == POST else None)
        job_id = self.client.submit(float32_job(30))
        self.start_behind()
        self.reason(job_id, "cannot post its update")
        self.start_worker(self.coordinator, "direct")
        self.client.wait_status(job_id, "completed")

    def test_the_worker_tries_again_and_the_job_completes(self):
        blocks = [True]
        self.start(lambda method, request: answer(413) if blocks and method == POST else None)
        job_id = self.client.submit(float32_job(30))
        self.start_behind()
        self.reason(job_id, "cannot post its update")
        blocks.clear()
        self.client.wait_status(job_id, "completed")

    def test_a_coordinator_that_restarts_learns_of_it_again(self):
        self.coordinator = self.start_coordinator()
        self.client = self.coordinator.client
        self.proxy = RefusingProxy(self.coordinator.port,
                                   lambda method, request: answer(413) if method == POST else None)
        self.addCleanup(self.proxy.close)
        job_id = self.client.submit(float32_job(30))
        self.start_behind(options=("--wait-ms", "50"))
        self.reason(job_id, "cannot post its update")
        self.coordinator.kill()
        self.coordinator = self.start_coordinator(port=self.coordinator.port, name="again")
        self.client = self.coordinator.client
        self.reason(job_id, "cannot post its update")

    def test_the_coordinators_own_refusal_of_a_message_is_told(self):
        body = '{"code": "invalid_argument", "message": "loss: inf is not finite"}'
        self.start(lambda method, request: answer(400, kind="application/json", body=body) if method == POST else None)
        job_id = self.client.submit(float32_job(30))
        self.start_behind(options=("--wait-ms", "50"))
        self.assertIn("client 0 cannot post its update: loss: inf", self.reason(job_id, "cannot post"))

    def check_batch(self, *results):
        """A batch of which these are the results is one attempt."""
        body = '{"code": "invalid_argument", "message": "loss: inf is not finite"}'
        batch = b"".join(b"\x1a" + bytes((len(result),)) + result for result in results)  # PostUpdateResponse.results
        alone = []

        def respond(method, request):
            if method != POST:
                return None
            if len(messages.PostUpdateRequest.FromString(request.partition(b"\r\n\r\n")[2]).updates) > 1:
                return answer(200, kind="application/proto", body=batch)
            alone.append(request)
            return answer(400, kind="application/json", body=body)

        self.start(respond)
        job_id = self.client.submit(float32_job(30, clients=len(results)))
        worker = self.start_behind(clients=len(results), options=("--wait-ms", "50"))
        self.reason(job_id, "cannot post its update")
        wait_until(lambda: self.proxy.methods.count("PollTask") >= 20, "20 polls")
        self.assertEqual(alone, [])
        self.assertEqual(worker.log().count("update cannot be posted"), self.posts())
        self.assertLessEqual(10 * self.posts(), self.proxy.methods.count("PollTask"))

    def test_updates_after_an_invalid_one_are_not_posted_alone(self):
        self.check_batch(b"\x1a\x10invalid_argument", *[b"\x1a\x0bunavailable"] * 7)

    def test_another_client_whose_update_is_accepted_hides_no_invalid_one(self):
        accepted = b"\x08\xc0\x07\x10\xc0\x07"  # 960 bits, as counted and as sent
        self.check_batch(b"\x1a\x10invalid_argument", *[accepted] * 7)

    def test_a_temporary_answer_is_tried_again(self):
        left = [answer(503), answer(429), answer(502)]
        self.start(lambda method, request: left.pop() if left and method == POST else None)
        job_id = self.client.submit(float32_job(30))
        worker = self.start_behind()
        self.client.wait_status(job_id, "completed")
        self.assertNotIn("cannot be posted", worker.log())

    def test_a_batch_that_a_proxy_finds_too_long_is_posted_in_parts(self):
        def refuse(method, request):
            return answer(413) if len(request) > 1500 else None

        self.start(refuse)
        job_id = self.client.submit(float32_job(200, clients=8, horizon=20))  # 8 updates of 800 bytes
        worker = self.start_behind(clients=8)
        self.client.wait_status(job_id, "completed")
        self.assertNotIn("cannot be posted", worker.log())
        self.assertLess(self.proxy.refused.count(POST), 8)  # of 20 rounds

    def test_nginx_as_it_is_installed_takes_no_update_of_a_megabyte(self):
        self.start()
        port = free_port()
        config = Path(self.folder, "nginx.conf")
        config.write_text(f"""daemon off; pid {self.folder}/nginx.pid; error_log {self.folder}/nginx-error.log;
            events {{}} http {{ access_log {self.folder}/access; client_body_temp_path {self.folder}/body;
            proxy_temp_path {self.folder}/p; fastcgi_temp_path {self.folder}/f; uwsgi_temp_path {self.folder}/u;
            scgi_temp_path {self.folder}/s;
            server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass {self.coordinator.url}; }} }} }}""")
        nginx = subprocess.Popen(["/usr/sbin/nginx", "-c", config, "-p", self.folder], stderr=subprocess.DEVNULL)
        self.addCleanup(nginx.wait)
        self.addCleanup(nginx.terminate)
        job_id = self.client.submit(float32_job(300_000))
        behind = Worker(self.folder, f"http://127.0.0.1:{port}", "behind", options=("--wait-ms", "100"))
        self.processes.append(behind)
        self.assertRegex(self.reason(job_id, "cannot post"),
                         rf"client 0 cannot post its update: HTTP 413 from http://127.0.0.1:{port} \(nginx/.*\): "
                         r"body of 1200\d\d\d bytes")
        posts = Path(self.folder, "access").read_text().count("PostUpdate")
        self.assertLessEqual(posts, 1 + behind.log().count("update cannot be posted"))
        self.start_worker(self.coordinator, "direct")
        self.client.wait_status(job_id, "completed")

    # ---- redirects and proxies ----

    def refuse_join(self, response, **environment):
        self.start(lambda method, request: response)
        with mock.patch.dict(os.environ, environment):
            worker = self.start_behind()
            self.assertEqual(worker.wait(), 1)
        return worker.log()

    def test_a_permanent_redirect_ends_the_worker_and_says_where_to(self):
        for status in (301, 308):
            log = self.refuse_join(answer(
                status, "Location: https://tally.example/tally.v1.WorkerService/Join"))
            self.assertIn(f"HTTP {status} from {self.proxy.url} (gateway/7): redirects to https://tally.example: use that",
                          log)
            self.processes = [p for p in self.processes if p.is_alive()]
            self.coordinator.terminate()

    def test_a_temporary_redirect_is_told_and_tried_again(self):
        left = [answer(302, "Location: http://login.example/"), answer(307, "Location: http://login.example/")]
        self.start(lambda method, request: left.pop() if left else None)
        job_id = self.client.submit(float32_job(30))
        worker = self.start_behind()
        self.client.wait_status(job_id, "completed")
        self.assertIn("HTTP 307", worker.log())
        self.assertIn("redirects to http://login.example/", worker.log())

    def test_a_worker_tells_when_its_reason_for_waiting_changes(self):
        current = [answer(302, "Location: http://login.example/")]
        self.start(lambda method, request: current[0])
        worker = self.start_behind()
        wait_until(lambda: "login.example" in worker.log(), "the first reason")
        current[0] = answer(200)
        wait_until(lambda: "text/html" in worker.log(), "the second reason")
        self.assertEqual(worker.log().count("retrying"), 2)

    def test_a_worker_tells_of_each_outage(self):
        login = answer(302, "Location: http://login.example/")
        current = [login]
        self.start(lambda method, request: current[0])
        worker = self.start_behind(options=("--wait-ms", "100"))
        for n in (1, 2, 3):  # the first meets a worker that joins, the others one that polls
            wait_until(lambda n=n: worker.log().count("login.example") == n, f"outage {n}")
            current[0] = None
            known = self.proxy.n_begun["PollTask"]
            wait_until(lambda known=known: self.proxy.n_begun["PollTask"] > known + 1, "an answered poll")
            current[0] = login

    def test_the_command_says_where_a_redirect_leads_to(self):
        self.start(lambda method, request: answer(308, "Location: https://tally.example/v1/jobs?limit=100"))
        ran = subprocess.run([PROGRAMS / "tally", "list", "--coordinator", self.proxy.url], capture_output=True,
                             text=True)
        self.assertEqual(ran.returncode, 1)
        self.assertIn("redirects to https://tally.example: use that", ran.stderr)

    def test_a_dead_proxy_is_named(self):
        proxy = f"127.0.0.1:{free_port()}"
        for scheme in ("http", "https"):
            url = f"{scheme}://tally.example:8080"
            environment = {**os.environ, f"{scheme}_proxy": f"http://user:s3cret@{proxy}"}
            for words in (["tally", "list"], ["tally-worker", "--health"], ["tally-worker", "--give-up-after", "1"]):
                ran = subprocess.run([PROGRAMS / words[0], *words[1:], "--coordinator", url], env=environment,
                                     capture_output=True, text=True)
                self.assertNotEqual(ran.returncode, 0)
                self.assertRegex(ran.stderr, rf"{url}/\S+ through the proxy http://{proxy}: Failed to connect")
                self.assertNotIn("s3cret", ran.stderr)

    def test_no_proxy_is_named_that_is_not_used(self):
        url = f"http://tally.invalid:{free_port()}"
        environment = {**os.environ, "http_proxy": "http://127.0.0.1:9", "no_proxy": "tally.invalid"}
        ran = subprocess.run([PROGRAMS / "tally", "list", "--coordinator", url], env=environment, capture_output=True,
                             text=True)
        self.assertIn(f"no coordinator at {url} (", ran.stderr)
        self.assertNotIn("proxy", ran.stderr)

    def test_the_command_names_a_proxy_that_refuses(self):
        for response, words in ((answer(403), "HTTP 403 from http://tally.example:8080 (gateway/7)"),
                                (b"", "GET http://tally.example:8080/v1/jobs?limit=100")):
            self.start(lambda method, request, response=response: response)
            environment = {**os.environ, "http_proxy": self.proxy.url}
            ran = subprocess.run([PROGRAMS / "tally", "list", "--coordinator", "http://tally.example:8080"],
                                 env=environment, capture_output=True, text=True)
            self.assertEqual(ran.returncode, 1)
            self.assertIn(f"{words} through the proxy {self.proxy.url}: ", ran.stderr)
            self.coordinator.terminate()

    def test_a_proxy_that_wants_a_password_is_named(self):
        self.start(lambda method, request: answer(407))
        address = self.proxy.url.removeprefix("http://")
        with mock.patch.dict(os.environ, http_proxy=f"http://user:s3cret@{address}"):
            worker = Worker(self.folder, "http://tally.example:8080", "behind")
            self.assertEqual(worker.wait(), 1)
        self.assertIn(f"HTTP 407 from http://tally.example:8080 (gateway/7) through the proxy http://{address}",
                      worker.log())
        self.assertNotIn("s3cret", worker.log())


def _add_answers():
    """One test for each status code."""
    for status in (400, 401, 403, 404, 405, 407, 411, 414, 415, 421, 451, 501):
        def test(self, status=status):
            self.check_answer(answer(status), [f"HTTP {status}", f"{status} Go Away"])

        setattr(Undeliverable, f"test_{status}", test)
    for status in (301, 302, 303, 307, 308):
        def test(self, status=status):
            self.check_answer(answer(status, "Location: http://elsewhere.example/"),
                              [f"HTTP {status}", "redirects to http://elsewhere.example/"])

        setattr(Undeliverable, f"test_{status}", test)

    def test_a_page(self):
        self.check_answer(answer(200), ["HTTP 200", 'response of type "text/html": this is no Tally coordinator'])

    Undeliverable.test_a_page = test_a_page


_add_answers()

if __name__ == "__main__":
    unittest.main()
