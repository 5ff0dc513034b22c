"""deploy/quickstart shows the progress of its build. A stand-in for cmake builds as far as the test tells it to."""

import fcntl
import os
import pathlib
import pty
import select
import subprocess
import tempfile
import time
import unittest

from common import HANG_S, REPO, free_port

CMAKE = """#!/bin/sh
[ "$1" = --build ] || exit 0
i=0
while read -r word; do
    i=$((i + 1))
    echo "[$i/3] Building C object $word"
done <"$STEPS"
echo "ninja: build stopped"
exit 1
"""


class Progress(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "cmake").write_text(CMAKE)
        (self.folder / "cmake").chmod(0o755)
        os.mkfifo(self.folder / "steps")

    def start(self, output):
        environment = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}", "STEPS": str(self.folder / "steps")}
        process = subprocess.Popen([REPO / "deploy/quickstart", "--once", "--port", str(free_port())], stdout=output,
                                   stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment)
        os.close(output)
        self.addCleanup(process.wait, HANG_S)
        self.addCleanup(process.terminate)
        return process

    def read(self, source, wanted):
        text, until = "", time.monotonic() + HANG_S
        while wanted not in text:
            self.assertLess(time.monotonic(), until, text)
            if select.select([source], [], [], 1)[0]:
                more = os.read(source, 65536)
                self.assertTrue(more, text)
                text += more.decode()
        return text

    def build(self, source, output, before):
        """Builds one step at a time, each after the previous one has been shown."""
        process = self.start(output)
        with open(self.folder / "steps", "w", buffering=1, encoding="ascii") as steps:
            for i in range(1, 4):
                steps.write("x\n")
                self.read(source, f"{before}building [{i}/3]")
        self.read(source, "the build failed")
        self.assertEqual(process.wait(HANG_S), 1)
        os.close(source)

    def test_two_builds_in_one_folder_wait_for_each_other(self):
        lock = REPO / "build/release.lock"
        lock.parent.mkdir(exist_ok=True)
        with open(lock, "w", encoding="ascii") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            source, output = os.pipe()
            self.start(output)
            self.read(source, "waiting for another build")
        open(self.folder / "steps", "w", encoding="ascii").close()
        self.read(source, "the build failed")
        os.close(source)

    def test_on_a_terminal_on_one_line(self):
        self.build(*pty.openpty(), "\r\033[K")

    def test_without_a_terminal_in_lines(self):
        self.build(*os.pipe(), "")


if __name__ == "__main__":
    unittest.main()
