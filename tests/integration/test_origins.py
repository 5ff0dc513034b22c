"""A foreign web page cannot make a browser read or change anything at the coordinator
(services/coordinator/access.h).
"""

import json
import pathlib
import subprocess
import unittest

from common import BIN, HANG_S, TallyTestCase, job_document

DOCUMENT = json.dumps(job_document()).encode()
JSON = {"Content-Type": "application/json"}
ADMIN, WORKER, METRICS = "open-sesame-open-sesame", "open-wheat-open-wheat", "open-barley-open-barley"
READS = ["/v1/jobs", "/v1/jobs/none", "/v1/jobs/none/rounds", "/v1/jobs/none/rounds.csv", "/v1/jobs/none/model",
         "/v1/jobs/none/models",
         "/v1/jobs/none/series", "/v1/jobs/none/events", "/v1/workers", "/healthz", "/readyz", "/metrics", "/",
         "/assets/app.js", "/openapi.yaml", "/nothing"]
WRITES = ["/v1/jobs", *(f"/v1/jobs/none/{action}" for action in ("cancel", "pause", "resume")),
          *(f"/tally.v1.WorkerService/{call}"
            for call in ("Join", "PollTask", "PostUpdate", "Progress", "Leave")), "/nothing"]


class Origins(TallyTestCase):
    def start(self, *options, **rest):
        self.coordinator = self.start_coordinator(store="memory:", options=options, **rest)
        self.client = self.coordinator.client
        self.own = f"127.0.0.1:{self.coordinator.port}"

    def start_guarded(self, *roles):
        options = []
        for role, token in (("admin", ADMIN), ("worker", WORKER), ("metrics", METRICS)):
            if role in roles:
                path = pathlib.Path(self.folder) / f"{role}-token"
                path.write_text(token + "\n")
                path.chmod(0o600)
                options += [f"--{role}-token-file", path]
        self.start(*options)

    def ask(self, method, path, body=None, **headers):
        return self.client.request(method, path, body, {name.replace("_", "-"): v for name, v in headers.items()})

    def assert_misdirected(self, answer, name):
        self.assert_problem(answer, 421, "Host")
        self.assertIn("--allowed-host", answer.json()["detail"])
        self.assertIn(name, answer.json()["detail"])

    def assert_no_job(self, **headers):
        self.assertEqual(self.ask("GET", "/v1/jobs", **headers).json()["jobs"], [])

    def test_rebound_names(self):
        """With evil.test resolving to this machine, the page can neither read nor write, nor see the response."""
        self.start()
        for path in READS:
            for method in ("GET", "HEAD"):
                answer = self.ask(method, path, Host="evil.test:8080")
                self.assertEqual(answer.status, 421, (method, path))
            self.assert_misdirected(self.ask("GET", path, Host="evil.test:8080"), "evil.test")
        for path in WRITES:
            answer = self.ask("POST", path, DOCUMENT, Host="evil.test:8080", Origin="http://evil.test:8080", **JSON)
            self.assertEqual(answer.status, 421, path)
            self.assertIn("--allowed-host", answer.body.decode())
        for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
            self.assert_misdirected(self.ask(method, "/v1/jobs", Host="evil.test"), "evil.test")
        # As the other coordinators forward requests.
        answer = self.ask("GET", "/v1/jobs", Host="evil.test", Tally_Forwarded="1")
        self.assert_misdirected(answer, "evil.test")
        self.assert_no_job()

    def test_workers_are_told_in_their_protocol(self):
        self.start()
        answer = self.client.request("POST", "/tally.v1.WorkerService/Join", b"",
                                     {"Content-Type": "application/proto", "Host": "evil.test"})
        self.assertEqual((answer.status, answer.type, answer.json()["code"]),
                         (421, "application/json", "permission_denied"))
        self.assertIn("--allowed-host", answer.json()["message"])

    def test_names_that_no_stranger_can_have(self):
        self.start()
        for host in ("127.0.0.1", "10.0.0.1:80", "[::1]:8080", "localhost", "LOCALHOST:8080", "localhost.", self.own):
            self.assertEqual(self.ask("GET", "/v1/jobs", Host=host).status, 200, host)
        for host in ("evil.test", "localhost.evil.test", "127.0.0.1.evil.test", "2130706433", "tally", ":80", "a b"):
            self.assert_misdirected(self.ask("GET", "/v1/jobs", Host=host), host)

    def test_allowed_host(self):
        self.start("--allowed-host", "tally.example", "--allowed-host=Other")
        for host in ("tally.example", "Tally.Example.:8080", "other:1", "localhost"):
            self.assertEqual(self.ask("GET", "/v1/jobs", Host=host).status, 200, host)
        self.assert_misdirected(self.ask("GET", "/v1/jobs", Host="evil.test"), "evil.test")
        # A page on that host is still another origin.
        answer = self.ask("POST", "/v1/jobs", DOCUMENT, Origin="http://tally.example", **JSON)
        self.assert_problem(answer, 403, "Origin")

    def test_allowed_host_from_environment_and_file(self):
        path = pathlib.Path(self.folder) / "coordinator.conf"
        path.write_text("allowed-host = tally.example:other\n")
        self.start("--config", path)
        self.assertEqual(self.ask("GET", "/v1/jobs", Host="other:8080").status, 200)

    def test_allowed_hosts_that_are_none(self):
        for name in ("tally:8080", "http://tally", "*.example", "", "8080"):
            with self.subTest(name):
                done = subprocess.run([BIN / "tally-coordinator", "--check", "--store", "memory:",
                                       f"--allowed-host={name}"], capture_output=True, text=True, timeout=HANG_S,
                                      check=False)
                self.assertEqual(done.returncode, 2)
                self.assertIn("--allowed-host", done.stderr)

    def test_insecure_is_open_to_any_name(self):
        self.start("--insecure")
        self.assertEqual(self.ask("GET", "/v1/jobs", Host="evil.test").status, 200)
        answer = self.ask("POST", "/v1/jobs/none/cancel", Origin="http://evil.test", Host=self.own)
        self.assert_problem(answer, 403, "Origin")

    def test_tokens_do_for_a_name(self):
        self.start_guarded("admin", "worker", "metrics")
        bearer = {"Authorization": f"Bearer {ADMIN}"}
        self.assertEqual(self.ask("GET", "/v1/jobs", Host="tally.example", **bearer).status, 200)
        self.assertEqual(self.ask("GET", "/v1/jobs", Host="tally.example").status, 401)
        for path in ("/healthz", "/", "/openapi.yaml"):
            self.assertEqual(self.ask("GET", path, Host="tally.example").status, 200)

    def test_only_where_a_token_is_needed(self):
        """Each interface is judged separately: here, the workers' interface needs no token."""
        self.start_guarded("admin")
        bearer = {"Authorization": f"Bearer {ADMIN}"}
        self.assertEqual(self.ask("GET", "/v1/jobs", Host="tally.example", **bearer).status, 200)
        self.assertEqual(self.ask("GET", "/metrics", Host="tally.example", **bearer).status, 200)
        answer = self.ask("POST", "/tally.v1.WorkerService/Leave", b"", Host="tally.example",
                          Content_Type="application/proto")
        self.assertEqual(answer.status, 421)

    def check_writes(self, **token):
        foreign = [{"Origin": origin} for origin in (
            "http://evil.test", "null", "https://127.0.0.1", f"http://localhost:{self.coordinator.port}",
            "http://127.0.0.1:1", f"http://{self.own}.evil.test")]
        foreign += [{"Sec-Fetch-Site": site} for site in ("cross-site", "same-site", "other")]
        foreign += [{"Sec-Fetch-Site": "cross-site", "Origin": f"http://{self.own}"},
                    {"Origin": "http://evil.test", "Sec-Fetch-Site": "same-origin"}]
        for path in WRITES:
            for headers in foreign:
                with self.subTest(path, **headers):
                    answer = self.ask("POST", path, DOCUMENT, **JSON, **headers, **token)
                    self.assertEqual(answer.status, 403)
                    if "Worker" in path:
                        self.assertEqual(answer.json()["code"], "permission_denied")
                    else:
                        self.assert_problem(answer, 403, list(headers)[0])
        for method in ("DELETE", "PUT", "PATCH"):
            self.assert_problem(self.ask(method, "/v1/jobs", Origin="http://evil.test", **token), 403, "Origin")

    def test_foreign_writes(self):
        self.start()
        self.check_writes()
        self.assert_no_job()

    def test_foreign_writes_with_a_token(self):
        self.start_guarded("admin", "worker")
        bearer = {"Authorization": f"Bearer {ADMIN}"}
        self.check_writes(**bearer)
        self.assert_no_job(**bearer)

    def test_a_running_job_is_not_cancelled(self):
        self.start()
        job = self.client.submit(job_document())
        for action in ("cancel", "pause", "resume"):
            self.assert_problem(self.ask("POST", f"/v1/jobs/{job}/{action}", Origin="http://evil.test"), 403, "Origin")
        self.assertEqual(self.client.job(job)["status"], "queued")
        own = {"Origin": f"http://{self.own}", "Sec-Fetch-Site": "same-origin"}
        self.assertEqual(self.ask("POST", f"/v1/jobs/{job}/cancel", **own).status, 200)

    def test_own_writes_and_foreign_reads(self):
        self.start()
        for headers in ({}, {"Origin": f"http://{self.own}"}, {"Sec-Fetch-Site": "same-origin"},
                        {"Sec-Fetch-Site": "none"},
                        {"Host": "localhost", "Origin": "https://localhost"},  # a proxy in front ends TLS
                        {"Host": "localhost:8443", "Origin": "https://localhost:8443"}):
            answer = self.client.request("POST", "/v1/jobs", DOCUMENT, {**JSON, **headers})
            self.assertEqual(answer.status, 201, headers)
        # A page may send requests, but the browser hides the responses, since nothing here allows it to read them.
        answer = self.ask("GET", "/v1/jobs", Origin="http://evil.test", Sec_Fetch_Site="cross-site")
        self.assertEqual(answer.status, 200)
        self.assertNotIn("Access-Control-Allow-Origin", answer.headers)

    def test_json_is_json_and_nobody_keeps_it(self):
        self.start()
        job = self.client.submit(job_document())
        answers = [self.client.request("POST", "/v1/jobs", DOCUMENT, JSON), self.client.post_job("hello"),
                   self.client.get("/nothing"), self.client.request("PUT", "/v1/jobs"),
                   self.ask("GET", "/v1/jobs", Host="evil.test"),
                   self.ask("POST", f"/v1/jobs/{job}/cancel", Origin="null"),
                   self.client.request("POST", "/tally.v1.WorkerService/Join", b"", JSON),
                   self.client.get("/v1/jobs", **{"X": "y" * 9000}),
                   *(self.client.get(path) for path in (
                       "/v1/jobs", f"/v1/jobs/{job}", f"/v1/jobs/{job}/rounds", f"/v1/jobs/{job}/model",
                       f"/v1/jobs/{job}/series", "/v1/workers", "/healthz", "/readyz"))]
        for answer in answers:
            self.assertRegex(answer.type, "json$")
            self.assertEqual(answer.headers.get_all("X-Content-Type-Options"), ["nosniff"], answer)
            self.assertEqual(answer.headers.get_all("Cache-Control"), ["no-store"], answer)
        # The dashboard's files are revalidated, not uncached.
        self.assertEqual(self.client.get("/").headers.get_all("Cache-Control"), ["no-cache"])


if __name__ == "__main__":
    unittest.main()
