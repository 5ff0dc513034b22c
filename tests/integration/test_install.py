"""cmake --install: files are installed in the right places, the programs run, and man pages and systemd units are
valid.

TALLY_BIN is the folder of the programs, inside the build that is installed.
"""

import os
import pathlib
import re
import shutil
import stat
import subprocess
import tempfile
import unittest

REPO = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("TALLY_BIN", REPO / "build/release/bin")).resolve()
PROGRAMS = ("tally", "tally-coordinator", "tally-worker")
UNITS = ("tally-coordinator.service", "tally-worker@.service")


def run(*words, **more):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True,
                          timeout=600, check=False, **more)


def environment(**more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TALLY_")}
    return {**kept, **more}


class InstalledCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.destdir = pathlib.Path(cls.folder.name) / "root"
        cls.root = cls.destdir / "usr/local"
        cls.install()

    @classmethod
    def install(cls):
        done = run("cmake", "--install", BIN.parent, env=environment(DESTDIR=str(cls.destdir)))
        if done.returncode != 0:
            raise AssertionError(done.stdout + done.stderr)
        return done.stdout


class Install(InstalledCase):
    def test_the_programs_run(self):
        for program in PROGRAMS:
            done = run(self.root / "bin" / program, "--version", env=environment())
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue(done.stdout.startswith(program + " "), done.stdout)
        done = run(self.root / "bin/tally", "simulate",
                   self.root / "share/tally/jobs/synthetic-ceal.json", "--json", env=environment())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('"completed"', done.stdout)

    def test_configuration_that_is_there_is_kept(self):
        config = self.root / "etc/tally/coordinator.conf"
        original = config.read_text()
        config.write_text("log-format = json\n")
        self.addCleanup(config.write_text, original)
        self.install()
        self.assertEqual(config.read_text(), "log-format = json\n")

    def test_a_prefix_given_late_is_heeded(self):
        prefix = pathlib.Path(self.folder.name) / "elsewhere"
        done = run("cmake", "--install", BIN.parent, "--prefix", prefix, env=environment())
        self.assertEqual(done.returncode, 0, done.stderr)
        for file in ("bin/tally", "etc/tally/worker.conf", "share/man/man1/tally.1",
                     "share/bash-completion/completions/tally", "share/zsh/site-functions/_tally",
                     "lib/systemd/system/tally-coordinator.service"):
            self.assertTrue((prefix / file).is_file(), file)

    def test_the_programs_understand_the_example_configuration(self):
        for program, config in (("tally-coordinator", "coordinator"), ("tally-worker", "worker")):
            source = (self.root / f"etc/tally/{config}.conf").read_text()
            # Every commented-out line must work once it is enabled.
            options = re.findall(r"(?m)^#(\S+ = .*)$", source)
            self.assertTrue(options)
            changed = pathlib.Path(self.folder.name) / f"{config}.conf"
            changed.write_text("\n".join(options) + "\nno-such-option = 1\n")
            done = run(self.root / "bin" / program, "--config", changed, env=environment())
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"{len(options) + 1}", done.stderr)  # the line just added
            self.assertIn("no-such-option", done.stderr)

    def test_init_secrets(self):
        folder = pathlib.Path(self.folder.name) / "secrets"
        script = self.root / "share/tally/init-secrets"
        done = run(script, folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(stat.S_IMODE(folder.stat().st_mode), 0o700)
        self.assertEqual(stat.S_IMODE((folder / "curl-admin").stat().st_mode), 0o600)
        tokens = [(folder / name).read_text() for name in ("admin-token", "worker-token")]
        self.assertNotEqual(*tokens)
        for token in tokens:
            self.assertRegex(token, r"^[0-9a-f]{64} name=(admin|worker)\n$")
        self.assertRegex((folder / "metrics-token").read_text(), r"^[0-9a-f]{64}\n$")  # Prometheus can read it
        password = (folder / "postgres-password").read_text()
        self.assertRegex(password, r"^[0-9a-f]{64}\n$")
        self.assertTrue((folder / "pg_service.conf").read_text().endswith(f"\npassword={password}"))
        self.assertEqual(run(script, folder).stdout, "")
        (folder / "admin-token").unlink()
        run(script, folder)
        changed = (folder / "admin-token").read_text()
        self.assertNotEqual(changed, tokens[0])
        self.assertEqual((folder / "worker-token").read_text(), tokens[1])
        self.assertIn(f'Bearer {changed.split()[0]}"', (folder / "curl-admin").read_text())
        for words in (["--nonsense"], ["--name"], ["--name", "a b"], ["a", "b"], ["--rotate"], ["--rotate", "metrics"],
                      ["--rotate", "admin", "--keep"], ["--rotate", "admin", "--keep", "nonsense"]):
            self.assertEqual(run(script, *words).returncode, 2, words)
        self.assertEqual((folder / "admin-token").read_text(), changed)

    def test_rotating_secrets(self):
        folder = pathlib.Path(self.folder.name) / "rotated"
        script = self.root / "share/tally/init-secrets"
        run(script, folder)
        file = folder / "admin-token"
        first, worker = file.read_text().split()[0], (folder / "worker-token").read_text()
        place = file.stat().st_ino
        for _ in range(2):
            done = run(script, "--rotate", "admin", "--keep", "2099-01-02 03:04:05 UTC", folder)
            self.assertEqual(done.returncode, 0, done.stderr)
        lines = file.read_text().splitlines()
        fresh = lines[0].split()[0]
        self.assertEqual(len({line.split()[0] for line in lines}), 3)
        self.assertRegex(lines[0], r"^[0-9a-f]{64} name=admin$")
        for line in lines[1:]:
            self.assertRegex(line, r"^[0-9a-f]{64} name=admin until=2099-01-02T03:04:05Z$")
        self.assertEqual(lines[2].split()[0], first)
        self.assertEqual(file.stat().st_ino, place)  # a container has mounted this very file
        self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o444)
        self.assertIn(f'Bearer {fresh}"', (folder / "curl-admin").read_text())
        self.assertEqual((folder / "worker-token").read_text(), worker)
        # Earlier end dates are kept, and expired tokens are removed; this applies to tokens without a name as well.
        file.chmod(0o600)
        file.write_text(f"# ours\n{first}\n{fresh} until=2098-01-01T00:00:00Z name=x\n"
                        "0123456789abcdef until=2020-01-01T00:00:00Z\nthe-last-has-no-end")
        self.assertEqual(run(script, "--rotate", "admin", "--keep", "2099-01-01 UTC", folder).returncode, 0)
        lines = file.read_text().splitlines()
        self.assertEqual(lines[1:], [f"{first} until=2099-01-01T00:00:00Z",
                                     f"{fresh} name=x until=2098-01-01T00:00:00Z",
                                     "the-last-has-no-end until=2099-01-01T00:00:00Z"])
        done = run(BIN / "tally-coordinator", "--admin-token-file", file, "--listen", "0.0.0.0:0", "--store", "memory:",
                   env=environment())
        self.assertIn("can be reached by others", done.stderr)  # which shows that the file itself is valid


class ManPages(InstalledCase):
    def page(self, program):
        return self.root / f"share/man/man1/{program}.1"

    def test_no_mark_is_left(self):
        for program in PROGRAMS:
            self.assertNotRegex(self.page(program).read_text(), r"@[A-Z]+@")

    @unittest.skipUnless(shutil.which("mandoc"), "mandoc is not installed")
    def test_mandoc_has_no_warnings(self):
        for program in PROGRAMS:
            done = run("mandoc", "-T", "lint", "-W", "warning", self.page(program))
            # A date would change with every build.
            warnings = [line for line in done.stdout.splitlines() if "missing date" not in line]
            self.assertEqual(warnings, [])

    def test_the_pages_have_the_options_of_the_programs(self):
        for program in PROGRAMS:
            source = self.page(program).read_text().replace("\\-", "-")
            on_page = set(re.findall(r"(?m)^\.TP\n\.BI? (--[a-z-]+)", source))
            helps = [["--help"]]
            if program == "tally":
                commands = re.findall(r"(?m)^  ([a-z]+)  +\S",
                                      run(BIN / program, "--help").stdout.split("Commands:")[1]
                                      .split("\n\n")[0])
                self.assertIn("submit", commands)
                self.assertEqual(re.findall(r"(?m)^\.SS (.*)$", source), commands)
                helps += [[command, "--help"] for command in commands]
            in_help = set()
            for words in helps:
                in_help |= set(re.findall(r"(?m)^  (--[a-z-]+)", run(BIN / program, *words).stdout))
            self.assertEqual(on_page, in_help, program)


class Units(InstalledCase):
    def unit(self, name):
        return (self.root / "lib/systemd/system" / name).read_text()

    def test_what_they_start_was_installed(self):
        for name in UNITS:
            words = re.search(r"(?m)^ExecStart=(.*)$", self.unit(name))[1].split()
            self.assertTrue(os.access(self.destdir / words[0].lstrip("/"), os.X_OK), words[0])
            # init-secrets makes the configuration folder accessible to root alone, who distributes the files.
            config = words[words.index("--config") + 1]
            self.assertTrue(config.startswith("%d/"), config)
            source = re.search(f"(?m)^LoadCredential={config[3:]}:(.*)$", self.unit(name))[1]
            self.assertTrue((self.destdir / source.lstrip("/")).is_file(), source)
            known = run(self.destdir / words[0].lstrip("/"), "--help").stdout
            for option in (word for word in words if word.startswith("--")):
                self.assertIn(f"  {option} ", known)

    def test_they_are_hardened(self):
        for name in UNITS:
            for line in ("DynamicUser=yes", "NoNewPrivileges=yes", "ProtectSystem=strict",
                         "CapabilityBoundingSet=", "MemoryDenyWriteExecute=yes", "LimitCORE=0",
                         "SystemCallFilter=@system-service"):
                self.assertIn(f"\n{line}\n", self.unit(name))

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
    def test_systemd_finds_little_exposed(self):
        """The exposure score, on systemd's scale from 0 to 10, is low; what remains is mostly network access."""
        with tempfile.TemporaryDirectory() as folder:
            for name in UNITS:
                file = pathlib.Path(folder) / name.replace("@.", "@1.")
                file.write_text(self.unit(name))
                done = run("systemd-analyze", "security", "--offline=yes", "--no-pager", "--threshold=14", file)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
    def test_systemd_verifies_them(self):
        with tempfile.TemporaryDirectory() as folder:
            files = []
            for name in UNITS:
                file = pathlib.Path(folder) / name.replace("@.", "@1.")
                file.write_text(self.unit(name).replace("ExecStart=/", f"ExecStart={self.destdir}/"))
                files.append(file)
            done = run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *files)
            said = [line for line in done.stderr.splitlines() if "tally" in line]
            self.assertEqual((done.returncode, said), (0, []), done.stderr)


if __name__ == "__main__":
    unittest.main()
