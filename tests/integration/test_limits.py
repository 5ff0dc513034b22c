"""Every limit of the coordinator that an option sets: what it refuses, with which message, and what it admits."""

import json
import socket
import unittest

from common import HANG_S, Client, ForeignWorker, Process, TallyTestCase, BIN, job_document


class Limits(TallyTestCase):
    def start(self, *options):
        self.coordinator = self.start_coordinator(store="memory:", options=options)
        self.client = self.coordinator.client

    def refusals(self, reason):
        for line in self.client.get("/metrics").body.decode().splitlines():
            if line.startswith(f'tally_http_refused_total{{reason="{reason}"}}'):
                return int(line.split()[1])
        raise AssertionError(f"no metric for {reason}")

    def test_clients(self):
        self.start("--max-clients", "10")
        self.client.submit(job_document(clients=10, quorum=10))
        problem = self.assert_problem(self.client.post_job(job_document(clients=11, quorum=11)), 400, "clients")
        self.assertIn("11", problem["detail"])
        self.assertIn("--max-clients 10", problem["detail"])
        self.assertEqual(len(self.client.get_json("/v1/jobs")["jobs"]), 1)

    def test_dim(self):
        self.start("--max-dim", "30")
        self.client.submit(job_document())
        document = job_document(objective__data__dim=31)
        problem = self.assert_problem(self.client.post_job(document), 400)
        self.assertEqual(problem["field"], "objective.data.dim")
        self.assertIn("31", problem["detail"])
        self.assertIn("--max-dim 30", problem["detail"])
        self.assertEqual(len(self.client.get_json("/v1/jobs")["jobs"]), 1)

    def test_the_largest_dim_is_that_of_documents(self):
        self.start()
        largest = 10_000_000
        for name, document in (("objective.data.dim", job_document(objective__data__points=10)),
                               ("objective.dim", job_document(objective={"type": "plugin", "name": "none"}))):
            document["reference"] = {"type": "none"}
            place = document["objective"].get("data", document["objective"])
            with self.subTest(name):
                place["dim"] = largest + 1
                problem = self.assert_problem(self.client.post_job(document), 400, name)
                self.assertIn(f"{largest + 1} outside [1, {largest}]", problem["detail"])
                place["dim"] = largest
                self.client.post(f"/v1/jobs/{self.client.submit(document)}/cancel")
        process = Process(self.folder, "larger", [BIN / "tally-coordinator", f"--max-dim={largest + 1}"])
        self.processes.append(process)
        self.assertEqual(process.wait(), 2)
        self.assertIn(f"--max-dim: {largest + 1} outside [1, {largest}]", process.log())
        self.processes.remove(process)

    def test_jobs(self):
        """By default, a thousand jobs may be queued alongside fifty running ones."""
        self.start()
        document = job_document(clients=1, quorum=1, reference={"type": "none"})
        for _ in range(1050):
            self.client.submit(document)
        self.coordinator.kill()
        self.start("--max-jobs", "2")
        for _ in range(2):
            job_id = self.client.submit(document)
        problem = self.assert_problem(self.client.post_job(document), 429)
        self.assertIn("the limit is 2", problem["detail"])
        self.client.post(f"/v1/jobs/{job_id}/cancel")
        self.client.submit(document)

    def test_sessions(self):
        self.start("--max-sessions", "2")
        first = ForeignWorker(self.client, name="first")
        second = ForeignWorker(self.client, name="second")
        error = self.assert_connect_error("resource_exhausted", lambda: ForeignWorker(self.client, name="third"))
        self.assertIn("the limit is 2", error.message)
        second = ForeignWorker(self.client, name="second")  # after a restart, a worker reuses its own place
        first.leave()
        ForeignWorker(self.client, name="third")
        self.assertEqual(second.poll(wait_ms=1).WhichOneof("kind"), "idle")

    def test_no_more_sessions_than_connections(self):
        for more in ((), ("--max-sessions", "100")):
            self.start("--max-connections", "3", *more)
            for i in range(3):
                ForeignWorker(self.client, name=f"w{i}")
            error = self.assert_connect_error("resource_exhausted", lambda: ForeignWorker(self.client, name="one more"))
            self.assertIn("3 workers have a session, the limit is 3: --max-sessions, or --max-connections", error.message)
            self.coordinator.kill()

    def test_headers(self):
        self.start("--max-header-bytes", "3000")
        self.assertEqual(self.client.get("/healthz", **{"X-Long": "x" * 2000}).status, 200)
        answer = self.client.get("/healthz", **{"X-Long": "x" * 3000, "X-Request-Id": "mine"})
        problem = self.assert_problem(answer, 431)
        self.assertIn("3000", problem["detail"])
        self.assertEqual(answer.headers["X-Request-Id"], "mine")
        self.assertEqual(self.refusals("headers"), 1)
        requests = self.client.get("/metrics").body.decode()
        self.assertIn('tally_http_requests_total{method="other",route="unmatched",code="431"} 1', requests)

    def test_body(self):
        """A client that sends everything before it reads receives the response, not a reset."""
        self.start("--max-body-bytes", "2048")
        self.assert_problem(self.client.post_job(b" " * 2048), 400)
        n = 20 << 20
        with socket.create_connection(("127.0.0.1", self.coordinator.port), timeout=HANG_S) as connection:
            connection.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                               + f"Content-Length: {n}\r\n\r\n".encode())
            connection.sendall(b" " * n)
            received = b"".join(iter(lambda: connection.recv(65536), b""))
        self.assertIn(b"413 ", received.splitlines()[0])
        self.assertIn(b"X-Request-Id: ", received)
        self.assertIn(b"body longer than 2048 bytes", received)
        self.assertEqual(self.refusals("body"), 1)

    def test_connections(self):
        self.start("--max-connections", "3", "--max-connections-per-address", "2")
        mine = [socket.create_connection(("127.0.0.1", self.coordinator.port), source_address=("127.0.0.2", 0))
                for _ in range(2)]
        for peer in mine:  # both are admitted before the third arrives
            peer.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.assertIn(b"200", peer.recv(4096))
        with socket.create_connection(("127.0.0.1", self.coordinator.port), source_address=("127.0.0.2", 0)) as third:
            self.assertIn(b"of one address are taken", third.recv(4096))
        with socket.create_connection(("127.0.0.1", self.coordinator.port)) as last:
            last.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.assertIn(b"200", last.recv(4096))
            problem = self.assert_problem(Client(self.coordinator.port).get("/healthz"), 503)
            self.assertIn("all 3 connections are taken", problem["detail"])
        for peer in mine:
            peer.close()

    def test_a_model_is_not_what_was_refused(self):
        self.start()
        job_id = self.client.submit(job_document())
        for accept, wanted in (("application/x-npy;q=0", None), ("application/x-npy; q=0.0, */*", "application/json"),
                               ("application/x-npy;q=0.5", "application/x-npy"), ("text/html, */*;q=0.1", "application/json")):
            answer = self.client.get(f"/v1/jobs/{job_id}/model", Accept=accept)
            if wanted is None:
                self.assert_problem(answer, 406, "Accept")
            else:
                self.assertEqual((answer.status, answer.type), (200, wanted), accept)

    def test_values_outside_are_named(self):
        for name, value in (("max-header-bytes", "1023"), ("max-job-bytes", "1048575"), ("max-clients", "0"), ("max-dim", "0"), ("max-sessions", "x"), ("max-sessions-per-token", "0"),
                            ("request-timeout-s", "0"), ("max-connections-per-address", "-1"),
                            ("max-held-bytes", "1024")):
            with self.subTest(name):
                process = Process(self.folder, name, [BIN / "tally-coordinator", f"--{name}", value])
                self.processes.append(process)
                self.assertEqual(process.wait(), 2)
                self.assertIn(f"--{name}", process.log())
                self.processes.remove(process)

    def test_request_timeout(self):
        self.start("--request-timeout-s", "1")
        with socket.create_connection(("127.0.0.1", self.coordinator.port), timeout=HANG_S) as connection:
            connection.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{")
            received = b"".join(iter(lambda: connection.recv(65536), b""))
        head, body = received.split(b"\r\n\r\n", 1)
        self.assertTrue(head.startswith(b"HTTP/1.1 408 "), head)
        self.assertEqual(json.loads(body)["code"], "deadline")
        self.assertEqual(self.refusals("request_timeout"), 1)


if __name__ == "__main__":
    unittest.main()
