"""Health checks: `--health` of the programs, and deploy/health, which the images run, with the options of a container."""

import os
import re
import subprocess
from pathlib import Path

from common import BIN, HANG_S, REPO, Process, TallyTestCase, free_port, job_document, wait_until
from test_tls import Authority

DOCKERFILE = (REPO / "Dockerfile").read_text()


class HealthTestCase(TallyTestCase):
    def ask(self, program, *options, launcher=(), **variables):
        """Returns (exit code, stdout, stderr)."""
        plain = {name: value for name, value in os.environ.items() if not name.startswith("TALLY_")}
        done = subprocess.run([*launcher, program, *options], cwd=self.folder, timeout=HANG_S, capture_output=True,
                              text=True, env={**plain, "PATH": f"{BIN}:{plain['PATH']}", **variables})
        return done.returncode, done.stdout, done.stderr

    def health(self, program, *options, **variables):
        return self.ask(BIN / program, "--health", *options, **variables)

    def wait_healthy(self, *arguments, **rest):
        wait_until(lambda: self.ask(*arguments, **rest)[0] == 0, "the health check to succeed")


class Options(HealthTestCase):
    def test_every_source_of_options(self):
        port = free_port()
        self.start_coordinator(port=port)
        address = f"127.0.0.1:{port}"
        (Path(self.folder) / "tally.conf").write_text(f"listen = {address}\nmax-jobs = 7\n")
        ready = (0, "ready\n", "")
        self.assertEqual(self.health("tally-coordinator", "--listen", address), ready)
        self.assertEqual(self.health("tally-coordinator", TALLY_LISTEN=address), ready)
        self.assertEqual(self.health("tally-coordinator", "--config", "tally.conf"), ready)
        self.assertEqual(self.health("tally-coordinator", "--listen", address, "--store", "sqlite:nowhere/x.db"), ready)
        self.assertEqual(self.health("tally-worker", "--coordinator", f"http://{address}", "--clients", "3"), ready)
        self.assertEqual(self.health("tally-worker", TALLY_COORDINATOR=address), ready)
        self.assertEqual([], [name for name in os.listdir(self.folder) if "nowhere" in name])

    def test_wildcards(self):
        for host in ("0.0.0.0", "[::]"):
            with self.subTest(host=host):
                coordinator = self.start_coordinator(options=["--insecure"], host=host, name=f"on-{host}", wait=False)
                address = f"{host}:{coordinator.port}"
                self.wait_healthy(BIN / "tally-coordinator", "--health", "--listen", address)
                coordinator.kill()
                code, out, error = self.health("tally-coordinator", "--listen", address)
                self.assertEqual((code, out), (1, ""))
                self.assertRegex(error, rf"^tally-coordinator: no coordinator at http://127\.0\.0\.1:{coordinator.port} ")

    def test_not_ready(self):
        """A coordinator that serves requests but cannot write is not healthy."""
        coordinator = self.start_coordinator()
        coordinator.client.submit(job_document())
        (Path(self.folder) / "tally.db").unlink()
        wait_until(lambda: coordinator.client.get("/readyz").status == 503, "the coordinator to notice")
        code, out, _ = self.health("tally-coordinator", "--listen", f"127.0.0.1:{coordinator.port}")
        self.assertEqual((code, out), (1, ""))

    def test_nowhere_to_ask(self):
        for address in ("127.0.0.1:0", "8080", ""):
            code, out, error = self.health("tally-coordinator", f"--listen={address}")
            self.assertEqual((code, out), (2, ""))
            self.assertIn("--listen", error)
        self.assertEqual(self.health("tally-worker", "--coordinator", f"127.0.0.1:{free_port()}")[0], 1)

    def test_tls(self):
        """The certificate must be that of --tls-cert, whatever names it has and whoever signed it."""
        authority = Authority(self.folder)
        cert, key = authority.issue("tally", names="DNS:tally.example.org")
        other, _ = authority.issue("other", names="DNS:tally.example.org")
        coordinator = self.start_coordinator(options=["--tls-cert", cert, "--tls-key", key], wait=False)
        own = ("--listen", f"127.0.0.1:{coordinator.port}")
        self.wait_healthy(BIN / "tally-coordinator", "--health", *own, "--tls-cert", cert, "--tls-key", key)
        for options in (("--tls-cert", other), ("--tls-cert", "nowhere.pem"), ()):
            self.assertEqual(self.health("tally-coordinator", *own, *options)[:2], (1, ""), options)
        # A worker is told which name to expect.
        code, _, error = self.health("tally-worker", "--coordinator", f"https://127.0.0.1:{coordinator.port}",
                                     "--tls-ca", authority.cert)
        self.assertEqual(code, 1)
        self.assertRegex(error, "certificate")


class Container(HealthTestCase):
    """deploy/health where the program is the first process, as in a container."""

    def health_check(self, program):
        """The command of the image's HEALTHCHECK, with our script."""
        image = DOCKERFILE.split(f" AS {program.removeprefix('tally-')}\n")[1].split("\nFROM ")[0]
        script, argument = re.search(r'^HEALTHCHECK .* CMD \["([^"]+)", "([^"]+)"\]$', image, re.MULTILINE).groups()
        self.assertIn("COPY deploy/health /usr/local/libexec/tally/\n", image)
        self.assertEqual((script, argument), ("/usr/local/libexec/tally/health", program))
        self.assertIn(f'ENTRYPOINT ["{program}"]', image)
        return REPO / "deploy/health", argument

    def in_namespace(self, *command, launcher=()):
        """Starts the command as the first process of a process namespace; returns what enters it."""
        outside = Process(self.folder, "first", ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc",
                                                 *launcher, *command])
        self.addCleanup(outside.kill)
        children = Path(f"/proc/{outside.pid}/task/{outside.pid}/children")
        wait_until(lambda: children.read_text().strip(), "the first process")
        return ("nsenter", "--target", children.read_text().strip(), "--pid", "--mount")

    def setUp(self):
        super().setUp()
        done = subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True, timeout=HANG_S)
        if done.returncode != 0:
            self.skipTest("a process namespace is not possible here")

    def test_coordinator(self):
        authority = Authority(self.folder)
        cert, key = authority.issue("tally", names="DNS:tally.example.org")
        port = free_port()
        inside = self.in_namespace(BIN / "tally-coordinator", "--store", "memory:", "--listen", f"127.0.0.1:{port}",
                                   "--tls-cert", cert, "--tls-key", key, "--log-format", "json")
        # The image's variable is weaker than the arguments.
        self.wait_healthy(*self.health_check("tally-coordinator"), launcher=inside, TALLY_LISTEN="0.0.0.0:8080")

    def test_variables_and_a_wrapper(self):
        port = free_port()
        inside = self.in_namespace(BIN / "tally-coordinator", "--store", "memory:",
                                   launcher=("env", f"TALLY_LISTEN=127.0.0.1:{port}", "sh", "-c", '"$@" & wait', "sh"))
        check = self.health_check("tally-coordinator")
        self.wait_healthy(*check, launcher=inside, TALLY_LISTEN=f"127.0.0.1:{port}")
        self.assertEqual(self.ask(*check, launcher=inside, TALLY_LISTEN=f"127.0.0.1:{free_port()}")[0], 1)

    def test_worker(self):
        coordinator = self.start_coordinator()
        inside = self.in_namespace(BIN / "tally-worker", "--name", """a 'b' $c""", "--coordinator", coordinator.url)
        check = self.health_check("tally-worker")
        self.assertEqual(self.ask(*check, launcher=inside), (0, "ready\n", ""))
        coordinator.kill()
        self.assertEqual(self.ask(*check, launcher=inside)[:2], (1, ""))
