"""The installed libtally: pkg-config and CMake find it, its ABI is stable, it has a man page; and the Python wheel
works.

TALLY_BIN is the folder of the programs, inside the build that is installed.
"""

import os
import pathlib
import re
import shlex
import signal
import subprocess
import tempfile
import unittest

from common import HANG_S, TallyTestCase, job_document, wait_until
from test_install import BIN, REPO, InstalledCase, environment, run

SOURCES = REPO / "tests/unit/services/libtally/installed"
ABI = REPO / "services/libtally/libtally.abi"


def sanitizer():
    """Returns the compiler flags to link with a sanitized build's library."""
    cache = (BIN.parent / "CMakeCache.txt").read_text()
    kinds = re.search(r"(?m)^TALLY_SANITIZE:\w+=(.*)$", cache)[1]
    return [f"-fsanitize={kinds}"] if kinds else []


class LibraryCase(InstalledCase):
    """An installed tree, and programs in a separate folder that are built against that tree alone."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.library = cls.root / "lib/libtally.so.1"
        cls.include = cls.root / "include"
        cls.work = pathlib.Path(cls.folder.name) / "work"
        cls.work.mkdir()

    @classmethod
    def pkg_config(cls, *words):
        done = run("pkg-config", *words, "tally", env=environment(PKG_CONFIG_PATH=str(cls.root / "lib/pkgconfig")))
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        return shlex.split(done.stdout)

    @classmethod
    def build_by_pkg_config(cls, name):
        program = cls.work / f"{name}-by-pkg-config"
        done = run("cc", "-std=c17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", *sanitizer(), *cls.pkg_config("--cflags"),
                   "-o", program, SOURCES / f"{name}.c", *cls.pkg_config("--libs"), "-pthread",
                   f"-Wl,-rpath,{cls.root}/lib")
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        return program


class Installed(LibraryCase):
    def test_names_of_the_library(self):
        self.assertTrue(os.path.samefile(self.root / "lib/libtally.so", self.library))
        dynamic = run("readelf", "-d", self.library).stdout
        self.assertIn("Library soname: [libtally.so.1]", dynamic)
        self.assertNotRegex(dynamic, "RPATH|RUNPATH|TEXTREL")

    def test_headers_stand_alone(self):
        headers = sorted(path.name for path in (self.include / "tally").iterdir())
        self.assertEqual(headers, ["plugin.h", "tally.h"])
        for header in headers:
            for compiler, standard in (("cc", "c99"), ("c++", "c++11")):
                done = run(compiler, f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only",
                           "-x", "c" if compiler == "cc" else "c++", self.include / "tally" / header)
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_pkg_config(self):
        version = self.pkg_config("--modversion")[0]
        done = run(self.root / "bin/tally", "--version")
        self.assertEqual(done.stdout.split()[1], version)
        done = run(self.build_by_pkg_config("two_workers"), "nonsense://")
        self.assertEqual((done.returncode, done.stdout.split(":")[0]), (2, "coordinator"), done.stderr)

    def test_find_package(self):
        build = self.work / "cmake"
        flags = " ".join(sanitizer())
        for words in ([SOURCES, f"-DCMAKE_PREFIX_PATH={self.root}", f"-DCMAKE_C_FLAGS={flags}", f"-DCMAKE_CXX_FLAGS={flags}",
                       "-B", build], ["--build", build]):
            done = run("cmake", *words)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        done = run(build / "from_cxx")
        self.assertEqual(done.returncode, 0, done.stdout)
        version, formula_bits, payload_bits, is_same = done.stdout.split()
        self.assertEqual((version, formula_bits, is_same), (self.pkg_config("--modversion")[0], "10", "1"))
        self.assertLess(int(payload_bits), 32)
        self.assertEqual(run(build / "two_workers", "nonsense://").returncode, 2)

    @unittest.skipUnless(os.path.exists("/usr/bin/mandoc"), "mandoc is not installed")
    def test_man_page(self):
        page = self.root / "share/man/man3/libtally.3"
        done = run("mandoc", "-T", "lint", "-W", "warning", page)
        self.assertEqual([line for line in done.stdout.splitlines() if "missing date" not in line], [])
        text = page.read_text().replace("\\-", "-")
        self.assertNotRegex(text, r"@[A-Z]+@")
        header = (self.include / "tally/tally.h").read_text()
        for function in re.findall(r"TALLY_API[^(;]*?\b(tally_\w+)\(", header):
            self.assertIn(function, text)


class Abi(LibraryCase):
    """Everything that programs rely on is a line in services/libtally/libtally.abi. Lines may be added, but not changed
    or removed."""

    def members(self, body):
        body = re.sub(r"/\*.*?\*/", " ", body, flags=re.S)
        for declaration in filter(None, (part.strip() for part in body.split(";"))):
            pointer = re.search(r"\(\*(\w+)\)\s*\(", declaration)
            if pointer:
                yield pointer[1]
                continue
            for word in declaration.split(","):
                yield re.search(r"(\w+)\s*(\[\w+\])?$", word.strip())[1]

    def of_headers(self):
        """Returns the offsets, sizes and constants, as the compiler reports them."""
        lines = ["#include <stddef.h>", "#include <stdio.h>", "#include <tally/plugin.h>", "#include <tally/tally.h>",
                 "int main(void) {"]
        for header in ("tally.h", "plugin.h"):
            text = (self.include / "tally" / header).read_text()
            for name, body in re.findall(r"(?m)^struct (tally_\w+) \{(.*?)^\};", text, flags=re.S):
                for member in self.members(body):
                    lines.append(f'printf("struct {name}.{member} at %zu size %zu\\n", offsetof(struct {name}, {member}), '
                                 f"sizeof(((struct {name} *)0)->{member}));")
            for body in re.findall(r"(?m)^enum(?: tally_\w+)? \{(.*?)\}", text, flags=re.S):
                for constant in re.findall(r"\b(TALLY_\w+)\b", re.sub(r"/\*.*?\*/", " ", body, flags=re.S)):
                    lines.append(f'printf("constant {constant} %d\\n", (int){constant});')
        lines.append('printf("constant TALLY_PLUGIN_ABI %d\\n", TALLY_PLUGIN_ABI); return 0; }')
        source = self.work / "abi.c"
        source.write_text("\n".join(lines))
        done = run("cc", "-I", self.include, "-o", self.work / "abi", source)
        self.assertEqual(done.returncode, 0, done.stderr)
        return run(self.work / "abi").stdout.splitlines()

    def of_library(self):
        names = run("nm", "-D", "--defined-only", "--with-symbol-versions", self.library).stdout.splitlines()
        symbols = [line.split()[-1] for line in names]
        versioned = [symbol for symbol in symbols if "@@" in symbol]
        self.assertEqual([symbol for symbol in symbols if "@" not in symbol and not symbol.startswith("LIBTALLY_")], [])
        return ["function {} of {}".format(*symbol.split("@@")) for symbol in versioned]

    def test_it_only_grows(self):
        actual = sorted(self.of_library() + self.of_headers())
        promised = [line for line in ABI.read_text().splitlines() if line and not line.startswith("#")]
        gone = sorted(set(promised) - set(actual))
        self.assertEqual(gone, [], "programs that are linked already rely on these")
        new = sorted(set(actual) - set(promised))
        self.assertEqual(new, [], f"promise these in {ABI.relative_to(REPO)}, for ever")


class TwoWorkers(LibraryCase, TallyTestCase):
    def setUp(self):
        self.workplace = tempfile.TemporaryDirectory()
        self.addCleanup(self.workplace.cleanup)
        TallyTestCase.setUp(self)

    def test_in_two_threads(self):
        program = self.build_by_pkg_config("two_workers")
        coordinator = self.start_coordinator()
        job = coordinator.client.submit(job_document(
            objective={"type": "plugin", "name": "python", "dim": 5}, clients=4, quorum=4, horizon=1000,
            reference={"type": "value", "value": 0.0}))
        done = run(program, coordinator.url)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        uplink = coordinator.client.wait_status(job, "completed")["bits"]["uplink"]
        said = [[int(word) for word in line.split() if word.isdigit()] for line in done.stdout.splitlines()]
        self.assertEqual([sum(column) for column in zip(*said)], [uplink["messages"], uplink["payload"]])
        self.assertGreater(min(messages for messages, _ in said), 0)
        self.assertEqual(sorted(done.stderr.splitlines()),
                         ["left level 1: event=joined worker=left slots=2", "right level 1: event=joined worker=right slots=2"])

    def test_a_signal_handler_may_stop_them(self):
        program = self.build_by_pkg_config("two_workers")
        coordinator = self.start_coordinator()
        with subprocess.Popen([program, "stay", coordinator.url], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as both:
            try:
                wait_until(lambda: [worker["state"] for worker in
                                    coordinator.client.get_json("/v1/workers")["workers"]] == ["waiting"] * 2,
                           "both to wait for work")
                both.send_signal(signal.SIGINT)
                out, err = both.communicate(timeout=HANG_S)
            finally:
                both.kill()
        self.assertEqual((both.returncode, out), (0, "0 messages 0 payload_bits\n" * 2), err)
        self.assertEqual(coordinator.client.get_json("/v1/workers")["workers"], [])


def imports(module):
    return run("/usr/bin/python3", "-c", f"import {module}").returncode == 0


@unittest.skipIf(sanitizer(), "an interpreter cannot load a library with a sanitizer")
class Wheel(TallyTestCase):
    """The wheel is built without a network and installed into an environment of its own, next to Debian's NumPy."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.place = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.place.cleanup)
        # There is no index and no working proxy, so every download fails.
        closed = environment(PIP_INDEX_URL="http://127.0.0.1:1", https_proxy="http://127.0.0.1:1",
                             http_proxy="http://127.0.0.1:1")
        cls.python = pathlib.Path(cls.place.name) / "venv/bin/python3"
        for words in (["cmake", "--build", BIN.parent, "--target", "wheel"],
                      ["/usr/bin/python3", "-m", "venv", "--system-site-packages", cls.python.parents[1]]):
            cls.expect(words, closed)
        (cls.wheel,) = (BIN.parent / "python").glob("*.whl")
        cls.expect([cls.python, "-m", "pip", "install", "--no-index", "--quiet", cls.wheel], closed)

    @staticmethod
    def expect(words, environment_):
        done = run(*words, env=environment_)
        if done.returncode != 0:
            raise AssertionError(done.stdout + done.stderr)
        return done.stdout

    def test_its_name_says_where_it_runs(self):
        version = run(BIN / "tally", "--version").stdout.split()[1]
        machine = os.uname().machine
        self.assertEqual(self.wheel.name, f"tally-{version}-py3-none-linux_{machine}.whl")

    def test_the_library_inside_is_the_one_that_is_loaded(self):
        out = self.expect([self.python, "-c",
                           "import tally, pathlib\n"
                           "print(pathlib.Path(tally.__file__).parent)\n"
                           "print([line.split()[-1] for line in open('/proc/self/maps') if 'libtally' in line][0])"],
                          environment())
        package, library = out.split()
        self.assertTrue(package.startswith(str(self.python.parents[1])), package)
        self.assertEqual(library, f"{package}/libtally.so.1")
        self.assertTrue(pathlib.Path(package, "py.typed").exists())

    def run_example(self, name):
        coordinator = self.start_coordinator()
        out = self.expect([self.python, REPO / "api/python/examples" / name, coordinator.url], environment())
        losses = [float(loss) for loss in re.findall(r"loss ([0-9.]+)", out)]
        self.assertLess(losses[-1], losses[0])
        self.assertIn("completed: ", out)
        return float(re.search(r"([0-9.]+)% of the points are right", out)[1])

    def test_numpy_example(self):
        self.assertGreater(self.run_example("numpy_logistic_regression.py"), 80)

    def test_pytorch_example(self):
        if not imports("torch"):
            print("\n*** SKIPPED: the PyTorch example was not run, python3-torch (0.6 GB) is not installed")
            self.skipTest("no torch")
        self.assertGreater(self.run_example("pytorch_softmax_regression.py"), 75)


if __name__ == "__main__":
    unittest.main()
