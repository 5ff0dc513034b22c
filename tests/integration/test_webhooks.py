"""Webhooks: changes of a job's status are posted to the URL of its document, signed, at least once, and only where the
operator allows it. Receivers are real HTTP servers on loopback."""

import base64
import hashlib
import hmac
import http.server
import json
import subprocess
import threading
import time
import unittest
from pathlib import Path

from common import BIN, HANG_S, Process, TallyTestCase, free_port, job_document, wait_until
from databases import query
from private_postgres import PostgresTestCase
from test_stragglers import Hand, by_hand

SECRET = "a-secret-of-32-characters-or-so!"


class Receiver:
    """Keeps the requests that it gets in `requests`; `answer(n)` gives the status of the n-th, or None to say nothing
    for ever."""

    def __init__(self, answer=lambda n: 204, port=0):
        self.requests, self.held = [], threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.requests.append((self.path, dict(self.headers), body))
                status = answer(len(outer.requests))
                if status is None:
                    outer.held.wait()
                    self.close_connection = True
                    return
                self.send_response(status)
                if status // 100 == 3:
                    self.send_header("Location", f"http://127.0.0.1:{outer.port}/elsewhere")
                self.send_header("Content-Length", "0")
                self.send_header("Connection", "close")  # or it would be served after close()
                self.end_headers()

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads, allow_reuse_address = True, True

        self.server = Server(("127.0.0.1", port), Handler)
        self.port = self.server.server_port
        self.url = f"http://127.0.0.1:{self.port}/hooks/"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self):
        self.held.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def statuses(self):
        return [json.loads(body)["status"] for _, _, body in self.requests]

    def wait_for(self, n):
        wait_until(lambda: len(self.requests) >= n, f"{n} notifications", progress=lambda: len(self.requests))
        return self.requests[:n]


class WebhookCase(TallyTestCase):
    def setUp(self):
        super().setUp()
        self.secret = Path(self.folder, "secret")
        self.secret.write_text(SECRET + "\n")
        self.secret.chmod(0o600)

    def receive(self, *arguments, **options):
        receiver = Receiver(*arguments, **options)
        self.addCleanup(receiver.close)
        return receiver

    def start(self, *prefixes, port=None, **others):
        options = ["--webhook-secret-file", self.secret, "--session-timeout-ms", "3600000"]
        for prefix in prefixes:
            options += ["--webhook-allow", prefix]
        return self.start_coordinator(options=options, port=port, **others)

    def counts(self, coordinator):
        found = {}
        for line in coordinator.client.get("/metrics").body.decode().splitlines():
            if line.startswith("tally_webhooks_total{"):
                found[line.split('"')[1]] = int(line.split()[-1])
            elif line.startswith("tally_webhook_jobs_waiting "):
                found["waiting"] = int(line.split()[-1])
        return found

    def wait_delivered(self, coordinator):
        wait_until(lambda: self.counts(coordinator)["waiting"] == 0, "everything to be delivered")


class Webhooks(WebhookCase):
    def check_signature(self, headers, body):
        identity, timestamp = headers["webhook-id"], headers["webhook-timestamp"]
        signed = f"{identity}.{timestamp}.".encode() + body
        digest = hmac.new(SECRET.encode(), signed, hashlib.sha256).digest()
        self.assertEqual(headers["webhook-signature"], "v1," + base64.b64encode(digest).decode())
        self.assertLess(abs(int(timestamp) - time.time()), 600)
        self.assertEqual(json.loads(body)["id"], identity)

    def test_each_change_is_posted_and_signed(self):
        receiver = self.receive()
        coordinator = self.start(receiver.url)
        client = coordinator.client
        url = receiver.url + "a/b?c=d&e=%20"
        job_id = client.submit(by_hand(webhook=url, name="näme"))
        self.assertEqual(client.job(job_id)["webhook"], url)
        hand = Hand(client, "hand", slots=3)
        hand.play()
        receiver.wait_for(1)
        for verb in ("pause", "resume", "cancel"):
            client.post(f"/v1/jobs/{job_id}/{verb}")
        requests = receiver.wait_for(4)
        bodies = [json.loads(body) for _, _, body in requests]
        changes = [("queued", "running"), ("running", "paused"), ("paused", "running"), ("running", "cancelled")]
        self.assertEqual([(each["previous_status"], each["status"]) for each in bodies], changes)
        for (path, headers, body), parsed in zip(requests, bodies):
            self.assertEqual(path, "/hooks/a/b?c=d&e=%20")
            self.assertEqual(headers["Content-Type"], "application/json")
            self.assertRegex(headers["User-Agent"], r"^tally/")
            self.check_signature(headers, body)
            self.assertEqual((parsed["type"], parsed["job_id"], parsed["name"]), ("job.status", job_id, "näme"))
            self.assertLess(abs(parsed["time_ms"] - time.time() * 1000), 600000)
        self.assertEqual([each["round"] for each in bodies], [0, 1, 1, 1])
        self.assertEqual([each["reason"] for each in bodies[:3]], [None] * 3)
        self.assertEqual(bodies[3]["reason"], client.job(job_id)["reason"])
        self.assertEqual(len({each["id"] for each in bodies}), 4)
        self.wait_delivered(coordinator)
        self.assertEqual(self.counts(coordinator),
                         {"delivered": 4, "rejected": 0, "unreachable": 0, "given_up": 0, "waiting": 0})
        # A job that completes, and one without a webhook.
        worker = self.start_worker(coordinator, "w", clients=10)
        quiet = client.submit(job_document())
        loud = client.submit(job_document(webhook=receiver.url))
        for each in (quiet, loud):
            client.wait_status(each, "completed")
        receiver.wait_for(6)
        self.assertEqual(receiver.statuses()[4:], ["running", "completed"])
        self.wait_delivered(coordinator)
        self.assertEqual(len(receiver.requests), 6)
        self.assert_ends_well(worker)

    def test_a_failure_is_tried_again(self):
        receiver = self.receive(lambda n: {1: 503, 2: 302, 3: 404}.get(n, 200))
        coordinator = self.start(receiver.url)
        job_id = coordinator.client.submit(job_document(webhook=receiver.url))
        coordinator.client.post(f"/v1/jobs/{job_id}/cancel")
        began = time.monotonic()
        requests = receiver.wait_for(4)
        self.assertGreater(time.monotonic() - began, 1 + 2 + 4 - 0.5)  # the pauses grow
        self.assertEqual({(path, body) for path, _, body in requests}, {("/hooks/", requests[0][2])})  # no redirect
        self.assertEqual(len({headers["webhook-id"] for _, headers, _ in requests}), 1)
        for _, headers, body in requests:
            self.check_signature(headers, body)
        self.wait_delivered(coordinator)
        self.assertEqual(self.counts(coordinator),
                         {"delivered": 1, "rejected": 3, "unreachable": 0, "given_up": 0, "waiting": 0})

    def test_a_receiver_that_hangs_slows_nothing(self):
        hanging, receiver = self.receive(lambda n: None), self.receive()
        coordinator = self.start(hanging.url, receiver.url)
        client = coordinator.client
        worker = self.start_worker(coordinator, "w", clients=10)
        dead = client.submit(job_document(webhook=hanging.url))
        alive = client.submit(job_document(webhook=receiver.url))
        for each in (dead, alive):
            client.wait_status(each, "completed")
        receiver.wait_for(2)
        wait_until(lambda: self.counts(coordinator)["waiting"] == 1, "the other one to be the only one left")
        self.assertEqual(len(hanging.requests), 1)
        self.assertEqual(self.counts(coordinator)["unreachable"], 0)  # its first exchange, of 10 s, has not ended
        self.assertEqual(coordinator.terminate(), 0)  # without waiting for it
        self.assert_ends_well(worker)

    def test_what_is_undelivered_survives_a_kill(self):
        port = free_port()
        prefix = f"http://127.0.0.1:{port}/hooks"
        coordinator = self.start(prefix)
        client = coordinator.client
        live = client.submit(by_hand(webhook=prefix + "/live"))
        ended = client.submit(job_document(webhook=prefix + "/ended"))
        client.post(f"/v1/jobs/{ended}/cancel")
        hand = Hand(client, "hand", slots=3)
        hand.play()
        wait_until(lambda: self.counts(coordinator)["unreachable"] >= 2, "both to have failed")
        coordinator.kill()
        receiver = self.receive(port=port)
        coordinator = self.start(prefix, port=coordinator.port)
        requests = receiver.wait_for(2)
        self.assertEqual({(path, json.loads(body)["job_id"], json.loads(body)["status"]) for path, _, body in requests},
                         {("/hooks/live", live, "running"), ("/hooks/ended", ended, "cancelled")})
        self.wait_delivered(coordinator)
        coordinator.kill()
        coordinator = self.start(prefix, port=coordinator.port)
        self.wait_delivered(coordinator)
        client.post(f"/v1/jobs/{live}/cancel")
        receiver.wait_for(3)
        self.assertEqual(receiver.statuses()[2:], ["cancelled"])  # nothing twice
        self.wait_delivered(coordinator)
        # What is no longer allowed is not sent.
        receiver.close()
        other = client.submit(job_document(webhook=prefix))
        client.post(f"/v1/jobs/{other}/cancel")
        wait_until(lambda: self.counts(coordinator)["unreachable"] >= 1, "a failure")
        coordinator.kill()
        receiver = self.receive(port=port)
        coordinator = self.start("http://127.0.0.1:1/", port=coordinator.port)
        wait_until(lambda: self.counts(coordinator)["given_up"] == 1, "the notification to be dropped")
        self.wait_delivered(coordinator)
        self.assertEqual(receiver.requests, [])
        self.assertIn("webhook given up", coordinator.log())

    def test_a_damaged_job_has_failed(self):
        receiver = self.receive()
        prefix = f"http://127.0.0.1:{receiver.port}/"
        coordinator = self.start(prefix)
        job_id = coordinator.client.submit(by_hand(webhook=prefix))
        Hand(coordinator.client, "hand", slots=3).poll_task()
        receiver.wait_for(1)
        self.wait_delivered(coordinator)
        coordinator.kill()
        query(coordinator.store.removeprefix("sqlite:"), "UPDATE job_states SET state = zeroblob(length(state))")
        coordinator = self.start(prefix, port=coordinator.port)
        self.assertEqual(coordinator.client.get_json("/v1/jobs")["jobs"][0]["status"], "failed")
        receiver.wait_for(2)
        self.assertEqual(receiver.statuses(), ["running", "failed"])
        self.assertIn("damaged", json.loads(receiver.requests[1][2])["reason"])
        self.assertEqual(json.loads(receiver.requests[1][2])["job_id"], job_id)
        self.wait_delivered(coordinator)

    def test_only_so_many_changes_wait(self):
        port = free_port()
        prefix = f"http://127.0.0.1:{port}/"
        coordinator = self.start(prefix)
        client = coordinator.client
        job_id = client.submit(by_hand(webhook=prefix))
        Hand(client, "hand", slots=3).poll_task()
        for _ in range(40):
            for verb in ("pause", "resume"):
                client.post(f"/v1/jobs/{job_id}/{verb}")
        client.post(f"/v1/jobs/{job_id}/cancel")
        coordinator.kill()
        receiver = self.receive(port=port)
        coordinator = self.start(prefix, port=coordinator.port)
        receiver.wait_for(32)
        self.wait_delivered(coordinator)
        self.assertEqual(receiver.statuses(), ["running", *["paused", "running"] * 15, "cancelled"])

    def test_a_deleted_job_is_forgotten(self):
        prefix = f"http://127.0.0.1:{free_port()}/"
        coordinator = self.start(prefix)
        client = coordinator.client
        job_id = client.submit(job_document(webhook=prefix))
        client.post(f"/v1/jobs/{job_id}/cancel")
        wait_until(lambda: self.counts(coordinator)["unreachable"] >= 1, "a failure")
        self.assertEqual(client.request("DELETE", f"/v1/jobs/{job_id}").status, 204)
        self.wait_delivered(coordinator)

    def test_only_urls_below_a_prefix_are_taken(self):
        coordinator = self.start("https://hooks.example.com/tally", "http://127.0.0.1:9/")
        client = coordinator.client
        for url in ("https://hooks.example.com/tally", "https://hooks.example.com/tally/", "http://127.0.0.1:9/x/y",
                    "https://hooks.example.com/tally?job=1", "https://hooks.example.com/tally/..a/.b?../..",
                    "http://127.0.0.1:9/?@x", "http://127.0.0.1:9/" + "x" * (512 - 19)):
            job_id = client.submit(job_document(webhook=url))
            self.assertEqual(client.get_json(f"/v1/jobs/{job_id}/document")["webhook"], url)
        for url in ("https://hooks.example.com/", "https://hooks.example.com/tallyho", "https://hooks.example.com",
                    "http://hooks.example.com/tally/", "https://hooks.example.com.evil.org/tally/",
                    "https://hooks.example.com:444/tally/", "https://hooks.example.com@evil.org/tally/",
                    "https://evil.org/https://hooks.example.com/tally/", "HTTPS://hooks.example.com/tally/",
                    "https://hooks.example.com/tally/../admin", "https://hooks.example.com/tally/%2e%2E/admin",
                    "https://hooks.example.com/tally/./", "https://hooks.example.com/tally/..",
                    "https://hooks.example.com/tally/\\..\\admin", "https://hooks.example.com/tally/#x",
                    "https://hooks.example.com/tally/ x", "https://hooks.example.com/tally/ü",
                    "http://127.0.0.1:99/", "http://127.0.0.1:9@evil.org/", "http://user@127.0.0.1:9/",
                    "file:///etc/passwd", "gopher://127.0.0.1:9/", "x", "http://", "http:///"):
            with self.subTest(url):
                self.assert_problem(client.post_job(job_document(webhook=url)), 400, "webhook")
                self.assert_problem(client.post("/v1/jobs?dry_run=1", json.dumps(job_document(webhook=url)).encode(),
                                                **{"Content-Type": "application/json"}), 400, "webhook")
        self.assert_problem(client.post_job(job_document(webhook="http://127.0.0.1:9/" + "x" * (513 - 19))), 400, "webhook")
        self.assert_problem(client.post_job(job_document(webhook=7)), 400, "webhook")
        none = self.start_coordinator(store="memory:", name="none").client
        answer = none.post_job(job_document(webhook="http://127.0.0.1:9/"))
        self.assert_problem(answer, 400, "webhook")
        self.assertIn("--webhook-allow", answer.json()["detail"])
        self.assertNotIn("webhook", none.job(none.submit(job_document())))
        self.assertNotIn("tally_webhook", none.get("/metrics").body.decode())

    def test_options_are_checked(self):
        Path(self.folder, "short").write_text("fifteen-letters\n")
        with_secret = ("--webhook-secret-file", self.secret)
        for options, text in (
                (("--webhook-allow", "http://a/"), "--webhook-allow: --webhook-secret-file must be given as well"),
                (with_secret, "--webhook-secret-file: --webhook-allow must be given as well"),
                (("--webhook-allow", "http://a", *with_secret), "not the beginning of a URL with a host and a path"),
                (("--webhook-allow", "ftp://a/", *with_secret), "not the beginning of a URL"),
                (("--webhook-allow", "http://u@a/", *with_secret), "not the beginning of a URL"),
                (("--webhook-allow", "http://a/?b", *with_secret), "not the beginning of a URL"),
                (("--webhook-allow", "http://a/", "--webhook-secret-file", "/nonexistent"), "/nonexistent"),
                (("--webhook-allow", "http://a/", "--webhook-secret-file", f"{self.folder}/short"),
                 "fewer than 16 characters"),
                ((*("--webhook-allow", "http://a/") * 17, *with_secret), "more than 16 URLs")):
            process = Process(self.folder, "refused", [BIN / "tally-coordinator", "--store", "memory:", "--listen",
                                                       "127.0.0.1:0", *options])
            self.processes.append(process)
            self.assertEqual(process.wait(), 2, options)
            self.assertIn(text, process.log())
            self.processes.remove(process)

    def test_the_secret_is_nowhere_to_be_read(self):
        receiver = self.receive()
        coordinator = self.start(receiver.url)
        client = coordinator.client
        job_id = client.submit(job_document(webhook=receiver.url))
        client.post(f"/v1/jobs/{job_id}/cancel")
        receiver.wait_for(1)
        self.wait_delivered(coordinator)
        texts = [client.get(path).body for path in (f"/v1/jobs/{job_id}", "/metrics", f"/v1/jobs/{job_id}/document")]
        texts += [coordinator.log().encode(), *map(repr, receiver.requests), Path(self.folder, "tally.db").read_bytes()]
        for text in texts:
            self.assertNotIn(SECRET.encode(), text if isinstance(text, bytes) else text.encode())


class Postgres(PostgresTestCase, WebhookCase):
    def test_the_leader_of_a_job_delivers(self):
        port = free_port()
        prefix = f"http://127.0.0.1:{port}/"
        coordinator = self.start(prefix, store=self.store)
        client = coordinator.client
        ids = [client.submit(by_hand(webhook=prefix)) for _ in range(2)]
        Hand(client, "hand", slots=3).play()
        client.post(f"/v1/jobs/{ids[1]}/cancel")
        wait_until(lambda: self.counts(coordinator)["unreachable"] >= 2, "both to have failed")
        coordinator.kill()
        receiver = self.receive(port=port)
        coordinator = self.start(prefix, store=self.store, port=coordinator.port)
        receiver.wait_for(1)
        self.wait_delivered(coordinator)
        coordinator.client.post(f"/v1/jobs/{ids[0]}/cancel")
        receiver.wait_for(2)
        self.wait_delivered(coordinator)
        coordinator.kill()
        coordinator = self.start(prefix, store=self.store, port=coordinator.port)
        self.wait_delivered(coordinator)
        self.assertEqual([(json.loads(body)["job_id"], json.loads(body)["status"]) for _, _, body in receiver.requests],
                         [(ids[0], "running"), (ids[0], "cancelled")])

    def test_what_is_undelivered_moves_to_postgres(self):
        port = free_port()
        prefix = f"http://127.0.0.1:{port}/"
        coordinator = self.start(prefix)
        job_id = coordinator.client.submit(by_hand(webhook=prefix))
        Hand(coordinator.client, "hand", slots=3).play()
        wait_until(lambda: self.counts(coordinator)["unreachable"] >= 1, "a failure")
        self.assertEqual(coordinator.terminate(), 0)
        done = subprocess.run([BIN / "tally", "migrate", coordinator.store, self.store], capture_output=True, text=True,
                              timeout=HANG_S, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        receiver = self.receive(port=port)
        coordinator = self.start(prefix, store=self.store)
        body = json.loads(receiver.wait_for(1)[0][2])
        self.assertEqual((body["job_id"], body["status"]), (job_id, "running"))
        self.wait_delivered(coordinator)


if __name__ == "__main__":
    unittest.main()
