"""HTTPS: the whole service over TLS, what clients must refuse, what the server must refuse, and a certificate that is
replaced while the service runs.
"""

import contextlib
import http.client
import os
import signal
import socket
import ssl
import struct
import subprocess
import threading
import unittest
from pathlib import Path

from common import (
    BIN, HANG_S, Client, Coordinator, ForeignWorker, TallyTestCase, Worker, essence, free_port,
    job_document, simulate, wait_until,
)

TLS_1_2 = 0x0303
# (name, version in the hello): what a server must refuse today.
OLD_VERSIONS = (("SSL 3.0", 0x0300), ("TLS 1.0", 0x0301), ("TLS 1.1", 0x0302))
STRONG = (0xC02B, 0xC02F, 0xC02C, 0xC030)  # ECDHE with AES-GCM
WEAK = {
    "RSA-NULL-SHA": 0x0002,
    "RSA-RC4-SHA": 0x0005,
    "RSA-3DES-CBC-SHA": 0x000A,
    "DH-anon-AES128-SHA": 0x0034,
    "RSA-AES128-CBC-SHA, no forward secrecy": 0x002F,
    "RSA-AES128-GCM, no forward secrecy": 0x009C,
    "ECDHE-ECDSA-AES128-CBC-SHA, CBC": 0xC009,
    "ECDHE-RSA-AES128-CBC-SHA, CBC": 0xC013,
}


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=HANG_S)


class Authority:
    """A certificate authority."""

    def __init__(self, folder, name="authority"):
        self.folder = Path(folder)
        self.cert, self.key = self.make_root(name)

    def make_root(self, name):
        cert, key = self.folder / f"{name}.pem", self.folder / f"{name}-key.pem"
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                "-keyout", key, "-out", cert, "-days", "2", "-subj", f"/CN={name}")
        return cert, key

    def issue(self, name, names="DNS:localhost,IP:127.0.0.1", days=2, algorithm="ec"):
        """Returns the paths of a certificate and its key; days < 0: already expired."""
        cert, key = self.folder / f"{name}.pem", self.folder / f"{name}-key.pem"
        request, extensions = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        kind = ("ec", "-pkeyopt", "ec_paramgen_curve:prime256v1") if algorithm == "ec" else ("rsa:2048",)
        openssl("req", "-newkey", *kind, "-nodes", "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        extensions.write_text(f"subjectAltName={names}\n")
        openssl("x509", "-req", "-in", request, "-CA", self.cert, "-CAkey", self.key, "-CAcreateserial",
                "-days", days, "-extfile", extensions, "-out", cert)
        key.chmod(0o600)
        return cert, key


class TlsClient(Client):
    def __init__(self, port, ca):
        super().__init__(port)
        self.context = ssl.create_default_context(cafile=str(ca))

    def connect(self, timeout_s):
        return http.client.HTTPSConnection("localhost", self.port, timeout=timeout_s, context=self.context)


class TlsCoordinator(Coordinator):
    """A coordinator with TLS, whose client trusts the authority."""

    def __init__(self, folder, authority, cert, key, options=(), **rest):
        self.authority = authority
        super().__init__(folder, options=("--tls-cert", cert, "--tls-key", key, *options), **rest)
        self.url = f"https://localhost:{self.port}"

    def _is_ready(self):
        self.client = TlsClient(self.port, self.authority.cert)
        return super()._is_ready()


def client_hello(version, ciphers):
    """Returns a hand-made ClientHello of TLS 1.2 or older, since no current library speaks SSL 3.0."""
    groups = struct.pack("!HHHHH", 10, 6, 4, 23, 29)
    points = struct.pack("!HHBB", 11, 2, 1, 0)
    signatures = struct.pack("!HHHHHHH", 13, 10, 8, 0x0403, 0x0804, 0x0401, 0x0201)
    extensions = groups + points + signatures
    suites = b"".join(struct.pack("!H", cipher) for cipher in ciphers)
    body = (struct.pack("!H", version) + bytes(range(32)) + b"\0" + struct.pack("!H", len(suites)) + suites
            + b"\1\0" + struct.pack("!H", len(extensions)) + extensions)
    handshake = b"\1" + struct.pack("!I", len(body))[1:] + body
    return struct.pack("!BHH", 22, min(version, 0x0301), len(handshake)) + handshake


def answer_to_hello(port, version, ciphers):
    """Returns ("hello", version), ("alert", its number) or ("closed", None)."""
    with socket.create_connection(("127.0.0.1", port), timeout=HANG_S) as connection:
        connection.sendall(client_hello(version, ciphers))
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while len(received) < 11:
                part = connection.recv(4096)
                if not part:
                    break
                received += part
    if len(received) >= 11 and received[0] == 22 and received[5] == 2:
        return "hello", struct.unpack("!H", received[9:11])[0]
    if len(received) >= 7 and received[0] == 21:
        return "alert", received[6]
    return "closed", None


class Tls(TallyTestCase):
    def setUp(self):
        super().setUp()
        self.authority = Authority(self.folder)
        self.cert, self.key = self.authority.issue("server")

    def start_tls(self, cert=None, key=None, **rest):
        coordinator = TlsCoordinator(self.folder, self.authority, cert or self.cert, key or self.key, **rest)
        self.processes.append(coordinator)
        return coordinator

    def run_tally(self, *arguments):
        return subprocess.run([str(word) for word in (BIN / "tally", *arguments)], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=HANG_S, check=False)


class Service(Tls):
    def test_job_is_the_same_as_without(self):
        coordinator = self.start_tls()
        for i in range(3):
            self.start_worker(coordinator, f"w{i}", clients=4, options=("--tls-ca", self.authority.cert))
        document = job_document()
        job_id = coordinator.client.submit(document)
        detail = coordinator.client.wait_status(job_id, "completed")
        self.assertEqual(essence(detail), essence(simulate(document)))
        # Bytes on the wire are those of HTTP: as many as without TLS, but for the length of names.
        self.assertGreater(detail["bits"]["wire_bytes"]["in"], 0)
        done = self.run_tally("list", "--coordinator", coordinator.url, "--tls-ca", self.authority.cert)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(job_id, done.stdout)

    def test_broadcasts_that_answers_share(self):
        """Broadcasts longer than a TLS record are sent to all workers from one shared buffer."""
        coordinator = self.start_tls()
        for i in range(3):
            self.start_worker(coordinator, f"w{i}", clients=1, options=("--tls-ca", self.authority.cert))
        document = job_document("synthetic-minibatch-sgd", clients=3, quorum=3, horizon=200, objective__data__dim=60000,
                                objective__data__points=9, algorithm__step_size=0.001, reference={"type": "none"})
        job_id = coordinator.client.submit(document)
        detail = coordinator.client.wait_status(job_id, "completed")
        self.assertEqual(essence(detail), essence(simulate(document)))
        self.assertGreater(detail["bits"]["downlink"]["payload"] / detail["bits"]["downlink"]["messages"], 8 * 8192)

    def test_wire_bytes_are_those_of_plain_http(self):
        """The same exchanges have the same sizes with and without TLS."""
        counted = []
        for coordinator in (self.start_tls(), self.start_coordinator(store="memory:", name="plain")):
            tls = coordinator.url.startswith("https")
            self.start_worker(coordinator, f"one-{int(tls)}", clients=10,
                              options=("--tls-ca", self.authority.cert) if tls else ())
            job_id = coordinator.client.submit(job_document())
            coordinator.client.wait_status(job_id, "completed")
            wire = wait_until(
                lambda c=coordinator, j=job_id: c.client.job(j)["bits"]["wire_bytes"], "wire bytes")
            counted.append(wire)
        https, http = counted
        for direction in ("in", "out"):
            # "Host: localhost:N" and "Host: 127.0.0.1:N" differ in length. Encryption would add at least 22 bytes to
            # each of 80 updates.
            self.assertLess(abs(https[direction] - http[direction]) / http[direction], 0.03, counted)

    def test_dashboard_and_metrics(self):
        coordinator = self.start_tls()
        page = coordinator.client.get("/")
        self.assertEqual(page.status, 200)
        self.assertIn("default-src 'none'", page.headers["Content-Security-Policy"])
        self.assertNotIn("http://", page.headers["Content-Security-Policy"])
        self.assertEqual(coordinator.client.get("/metrics").status, 200)

    def test_large_bodies_both_ways(self):
        """A body of 64 MiB, a larger one that is refused, and pipelined requests in one TLS record."""
        coordinator = self.start_tls()
        body = b" " * (64 << 20)
        answer = coordinator.client.request(
            "POST", "/v1/jobs", body, {"Content-Type": "application/json"})
        self.assert_problem(answer, 400)
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            answer = coordinator.client.request(
                "POST", "/v1/jobs", body + b" ", {"Content-Type": "application/json"})
            self.assert_problem(answer, 413)
        context = coordinator.client.context
        with socket.create_connection(("127.0.0.1", coordinator.port), timeout=HANG_S) as plain, \
                context.wrap_socket(plain, server_hostname="localhost") as connection:
            ask = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
            head = b"HEAD /openapi.yaml HTTP/1.1\r\nHost: localhost\r\n\r\n"
            last = b"GET /openapi.yaml HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            connection.sendall(ask * 50 + head + last)
            received = b"".join(iter(lambda: connection.recv(65536), b""))
        self.assertEqual(received.count(b"HTTP/1.1 200 OK"), 52)
        self.assertTrue(received.endswith(coordinator.client.get("/openapi.yaml").body))

    def test_slow_but_steady_reader_gets_every_byte(self):
        """When the socket is full, the library sends part of a record and must resume there."""
        # Through a small receive window, a busy machine may send less than 4 KiB per second.
        coordinator = self.start_tls(options=("--request-timeout-s", "3600"))
        wanted = coordinator.client.get("/openapi.yaml").body
        with socket.socket() as plain:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            plain.settimeout(HANG_S)
            plain.connect(("127.0.0.1", coordinator.port))
            with coordinator.client.context.wrap_socket(plain, server_hostname="localhost") as connection:
                n = 8
                ask = b"GET /openapi.yaml HTTP/1.1\r\nHost: localhost\r\n\r\n"
                connection.sendall(ask * (n - 1) + ask[:-2] + b"Connection: close\r\n\r\n")
                received = b"".join(iter(lambda: connection.recv(3000), b""))
        self.assertEqual(received.count(wanted), n)

    def test_hundreds_of_connections_wait_and_are_answered(self):
        """Long polls over TLS are suspended and resumed, and none is forgotten."""
        # On a busy machine, the last worker joins long after the first.
        coordinator = self.start_tls(options=("--session-timeout-ms", HANG_S * 1000))
        document = job_document(clients=200, quorum=200, horizon=4)
        workers = []
        for i in range(200):
            workers.append(ForeignWorker(coordinator.client, name=f"f{i}"))
        results, is_submitted = [], threading.Event()

        def work(worker):
            kind = "idle"
            while kind == "idle" and not is_submitted.is_set():  # once set, an idle poll was forgotten
                kind = worker.poll(wait_ms=30000).WhichOneof("kind")
            results.append(kind)

        threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
        for thread in threads:
            thread.start()
        waiting = 'tally_workers{state="waiting"} 200'
        wait_until(lambda: waiting in coordinator.client.get("/metrics").body.decode(), "all to wait")
        coordinator.client.submit(document)
        is_submitted.set()
        for thread in threads:
            thread.join(HANG_S)
        self.assertEqual(results.count("task"), 200, results)

    def test_event_stream(self):
        coordinator = self.start_tls()
        job_id = coordinator.client.submit(job_document())
        context = coordinator.client.context
        with socket.create_connection(("127.0.0.1", coordinator.port), timeout=HANG_S) as plain, \
                context.wrap_socket(plain, server_hostname="localhost") as connection:
            connection.sendall(f"GET /v1/jobs/{job_id}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            received = b""
            while b"event: job" not in received:
                received += connection.recv(65536)
            self.start_worker(coordinator, "w", clients=10, options=("--tls-ca", self.authority.cert))
            while received.count(b"event: round") < 9 or not received.endswith(b"0\r\n\r\n"):
                part = connection.recv(65536)
                self.assertTrue(part, received[-500:])
                received += part


class Clients(Tls):
    """Servers that our clients must refuse."""

    def serve_once(self, cert, key):
        """Starts a TLS server in the test, since the coordinator itself would refuse a bad certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        self.requests = []

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    plain, _ = listener.accept()
                    with plain, contextlib.suppress(OSError):
                        plain.settimeout(HANG_S)
                        with context.wrap_socket(plain, server_side=True) as connection:
                            self.requests += filter(None, [connection.recv(65536)])

        threading.Thread(target=serve, daemon=True).start()
        return listener.getsockname()[1]

    def assert_refused(self, why, port, ca, host="localhost"):
        token = Path(self.folder) / "token"
        token.write_text("secret-of-the-admin\n")
        done = self.run_tally("list", "--coordinator", f"https://{host}:{port}", "--token-file", token,
                              *(("--tls-ca", ca) if ca else ()))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(why, done.stderr)
        worker = Worker(self.folder, f"https://{host}:{port}", f"w-{len(self.processes)}",
                        options=(*(("--tls-ca", ca) if ca else ()), "--token-file", token))
        self.processes.append(worker)
        wait_until(lambda: why in worker.log(), f"the worker to say {why!r}")
        self.assertEqual(worker.terminate(), 0)
        return done

    def test_unknown_authority(self):
        coordinator = self.start_tls()
        other = Authority(self.folder, "other")
        self.assert_refused("certificate", coordinator.port, other.cert)
        self.assert_refused("certificate", coordinator.port, None)  # the system's authorities do not include it either
        self.assertNotIn("joined", coordinator.log())

    def test_wrong_host(self):
        cert, key = self.authority.issue("elsewhere", "DNS:elsewhere.example")
        port = self.serve_once(cert, key)
        self.assert_refused("localhost", port, self.authority.cert)
        self.assertEqual(self.requests, [], "the token was sent")

    def test_expired(self):
        cert, key = self.authority.issue("expired", days=-1)
        port = self.serve_once(cert, key)
        self.assert_refused("expired", port, self.authority.cert)
        self.assertEqual(self.requests, [], "the token was sent")

    def test_bundle_must_be_one(self):
        for content, why in ((None, "No such file"), ("hello\n", "no certificate")):
            path = Path(self.folder) / "bundle.pem"
            if content is not None:
                path.write_text(content)
            done = self.run_tally("list", "--coordinator", "https://localhost:1", "--tls-ca", path)
            self.assertEqual(done.returncode, 2)
            self.assertIn("--tls-ca", done.stderr)
            self.assertIn(why, done.stderr)


class Server(Tls):
    """Clients that our server must refuse, and certificates with which it must not start."""

    def test_protocol_versions(self):
        rsa = self.authority.issue("rsa", algorithm="rsa")
        for cert, key in ((self.cert, self.key), rsa):
            coordinator = self.start_tls(cert, key, name=f"scanned-{Path(cert).stem}", store="memory:")
            for name, version in OLD_VERSIONS:
                with self.subTest(name):
                    kind, _ = answer_to_hello(coordinator.port, version, (*STRONG, *WEAK.values()))
                    self.assertIn(kind, ("alert", "closed"))
            self.assertEqual(answer_to_hello(coordinator.port, TLS_1_2, STRONG), ("hello", TLS_1_2))
            for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                context = ssl.create_default_context(cafile=str(self.authority.cert))
                context.minimum_version = context.maximum_version = version
                with socket.create_connection(("127.0.0.1", coordinator.port), timeout=HANG_S) as plain, \
                        context.wrap_socket(plain, server_hostname="localhost") as connection:
                    self.assertEqual(connection.version(), version.name.replace("_", "."))

    def test_weak_ciphers(self):
        rsa = self.authority.issue("rsa", algorithm="rsa")
        for cert, key in ((self.cert, self.key), rsa):
            coordinator = self.start_tls(cert, key, name=f"weak-{Path(cert).stem}", store="memory:")
            for name, cipher in WEAK.items():
                with self.subTest(name):
                    kind, _ = answer_to_hello(coordinator.port, TLS_1_2, (cipher,))
                    self.assertIn(kind, ("alert", "closed"))

    def test_plain_http_is_told(self):
        coordinator = self.start_tls()
        answer = Client(coordinator.port).get("/healthz")
        problem = self.assert_problem(answer, 400)
        self.assertIn("HTTPS", problem["detail"])
        self.assertEqual(coordinator.client.get("/healthz").status, 200)

    def test_unfinished_handshakes(self):
        """They take no processor time, and the request timeout ends them."""
        coordinator = self.start_tls(options=("--request-timeout-s", "2"))
        hello = client_hello(TLS_1_2, STRONG)
        with contextlib.ExitStack() as stack:
            peers = [stack.enter_context(socket.create_connection(("127.0.0.1", coordinator.port)))
                     for _ in range(60)]
            for i, peer in enumerate(peers):
                peer.sendall((b"", hello[:3], hello[:20], hello)[i % 4])
            ticks = self.ticks(coordinator)
            for peer in peers:
                peer.settimeout(HANG_S)
                with contextlib.suppress(ConnectionResetError):
                    while peer.recv(65536):
                        pass
            # Over about two seconds; a busy loop would use all of them.
            self.assertLess(self.ticks(coordinator) - ticks, 1.0)
        self.assertEqual(coordinator.client.get("/healthz").status, 200)

    @staticmethod
    def ticks(process):
        """Returns processor time in seconds."""
        with open(f"/proc/{process.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def test_junk(self):
        coordinator = self.start_tls()
        hello = client_hello(TLS_1_2, STRONG)
        for junk in (b"\0" * 100, b"\x16\x03\x01\xff\xff" + b"x" * 70000, hello[:-1] + b"\xff", hello * 3,
                     b"\x80\x2e\x01\x00\x02" + b"\0" * 60, b"\x15\x03\x01\0\2\2\0"):
            with socket.create_connection(("127.0.0.1", coordinator.port), timeout=HANG_S) as peer:
                with contextlib.suppress(OSError):
                    peer.sendall(junk)
        self.assertEqual(coordinator.client.get("/healthz").status, 200)

    def assert_no_start(self, *why, options):
        done = subprocess.run(
            [str(word) for word in (BIN / "tally-coordinator", "--listen", f"127.0.0.1:{free_port()}",
                                    "--store", "memory:", *options)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=HANG_S, check=False)
        self.assertNotEqual(done.returncode, 0)
        for word in why:
            self.assertIn(word, done.stderr)

    def test_bad_files_are_named(self):
        other_cert, other_key = self.authority.issue("second")
        expired_cert, expired_key = self.authority.issue("old", days=-1)
        junk = Path(self.folder) / "junk.pem"
        junk.write_text("no PEM\n")
        missing = Path(self.folder) / "missing.pem"
        self.assert_no_start("--tls-key", options=("--tls-cert", self.cert))
        self.assert_no_start("--tls-cert", options=("--tls-key", self.key))
        for cert, key, *why in (
            (missing, self.key, "missing.pem", "No such file"),
            (self.cert, missing, "missing.pem", "No such file"),
            (self.folder, self.key, "directory"),
            (junk, self.key, "junk.pem", "certificate"),
            (self.cert, junk, "junk.pem", "key"),
            (self.cert, other_key, "does not belong"),
            (other_cert, self.key, "does not belong"),
            (expired_cert, expired_key, "expired on"),
        ):
            with self.subTest(why=why):
                self.assert_no_start(*why, options=("--tls-cert", cert, "--tls-key", key))

    def test_check_looks_at_the_files_too(self):
        _, other_key = self.authority.issue("second")
        for key, status, line in ((self.key, 0, "ok    certificate"), (other_key, 1, "FAIL  the key in ")):
            done = subprocess.run(
                [str(word) for word in (BIN / "tally-coordinator", "--check", "--store", "memory:",
                                        "--tls-cert", self.cert, "--tls-key", key)],
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=HANG_S, check=False)
            self.assertEqual(done.returncode, status, done.stdout + done.stderr)
            self.assertIn(line, done.stdout)

    def shown_certificate(self, coordinator):
        context = ssl.create_default_context(cafile=str(self.authority.cert))
        with socket.create_connection(("localhost", coordinator.port), timeout=HANG_S) as plain:
            with context.wrap_socket(plain, server_hostname="localhost") as connection:
                return dict(part[0] for part in connection.getpeercert()["subject"])["commonName"]

    def hang_up(self, coordinator, line):
        before = coordinator.log().count(line)
        coordinator.popen.send_signal(signal.SIGHUP)
        wait_until(lambda: coordinator.log().count(line) > before, line)

    def test_certificate_changes_under_a_running_job(self):
        coordinator = self.start_tls()
        document = job_document("synthetic-minibatch-sgd", horizon=10**7)
        self.start_worker(coordinator, "w", clients=10, options=("--tls-ca", self.authority.cert))
        job = coordinator.client.submit(document)

        def goes_on():
            before = coordinator.client.job(job)["round"]
            wait_until(lambda: coordinator.client.job(job)["round"] > before + 3, "rounds")

        wait_until(lambda: coordinator.client.job(job)["round"] > 0, "the first round")
        self.assertEqual(self.shown_certificate(coordinator), "server")
        new_cert, new_key = self.authority.issue("renewed")
        old = (Path(self.cert).read_bytes(), Path(self.key).read_bytes())
        Path(self.cert).write_bytes(Path(new_cert).read_bytes())
        Path(self.key).write_bytes(Path(new_key).read_bytes())
        self.assertEqual(self.shown_certificate(coordinator), "server")
        self.hang_up(coordinator, "certificate in use")
        self.assertEqual(self.shown_certificate(coordinator), "renewed")
        goes_on()
        Path(self.cert).write_bytes(old[0])  # the key has changed
        self.hang_up(coordinator, "certificate not reloaded; the old one remains in use")
        self.assertEqual(self.shown_certificate(coordinator), "renewed")
        goes_on()
        Path(self.key).write_bytes(old[1])
        self.hang_up(coordinator, "certificate in use")
        self.assertEqual(self.shown_certificate(coordinator), "server")
        goes_on()

    def test_exposed_key_is_warned_of(self):
        Path(self.key).chmod(0o644)
        coordinator = self.start_tls()
        self.assertIn("read by others", coordinator.log())
        Path(self.key).chmod(0o600)
        quiet = self.start_tls(name="quiet", store="memory:")
        self.assertNotIn("read by others", quiet.log())


if __name__ == "__main__":
    unittest.main()
