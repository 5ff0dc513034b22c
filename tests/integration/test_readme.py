"""Runs every block of services/objectives/README.md, "Your own problem in five minutes", as printed, in one shell. The
address of the coordinator comes from the environment, as for every program; nothing else is changed.

Also runs README.md, from a clone to a job on a CSV file and to a network trained with PyTorch, on another port and with
the build already done.
"""

import datetime
import os
import re
import signal
import subprocess
import unittest
from pathlib import Path

from common import BIN, HANG_S, IS_SANITIZED, REPO, Client, TallyTestCase, free_port, wait_until

README = REPO / "services/objectives/README.md"
HEADING = "## Your own problem in five minutes"
IDLE_POLL_S = 10  # --wait-ms


FLATS = "rooms,age,price\n" + "".join(f"{i % 5},{i % 7},{3 * (i % 5) - 2 * (i % 7) + i % 3}\n" for i in range(100))


def block(*name, readme=README, heading=HEADING):
    return subprocess.run([REPO / "tests/compose/readme_block", readme, heading, *name], check=True,
                          capture_output=True, text=True).stdout


def time_of(line):
    return datetime.datetime.fromisoformat(line.split()[0].replace("Z", "+00:00")).timestamp()


@unittest.skipIf(IS_SANITIZED, "what a user builds has no sanitizer")
class FiveMinutes(TallyTestCase):
    def run_blocks(self, names):
        """Returns the coordinator's jobs after the blocks have run, newest first, and the output."""
        folder = Path(self.folder, "sources")  # the same as the sources, without the files written during tests
        (folder / "build").mkdir(parents=True)
        (folder / "build/release").symlink_to(BIN.parent)
        (folder / "services").symlink_to(REPO / "services")
        port = free_port()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TALLY_")}
        environment |= {"TALLY_LISTEN": f"127.0.0.1:{port}", "TALLY_COORDINATOR": f"http://127.0.0.1:{port}"}
        script = "set -eu\n" + "\n".join(f"echo '== {name}'\n{block(name)}" for name in names)
        log = Path(self.folder, "readme.log")
        with open(log, "wb") as output:
            shell = subprocess.Popen(["bash", "-c", script], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                                     stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            self.assertEqual(shell.wait(HANG_S), 0, log.read_text()[-4000:])
            jobs = Client(port).get_json("/v1/jobs")["jobs"]
            return [Client(port).job(job["id"]) for job in jobs], log.read_text()
        finally:
            os.killpg(shell.pid, signal.SIGTERM)  # including processes that the blocks left running

    def test_every_block_as_printed(self):
        names = block().split()
        self.assertEqual(names, ["coordinator", "csv", "plugin", "python"])
        jobs, log = self.run_blocks(names)
        self.assertEqual([(job["name"], job["status"]) for job in reversed(jobs)],
                         [("flats", "completed"), ("mine", "completed"), ("", "completed")], log[-4000:])
        flats = jobs[2]
        self.assertIsNotNone(flats["f_star"])
        self.assertGreaterEqual(flats["cumulative_regret"], 0)
        # The coefficients that generated the last job's data, up to the noise of a step.
        found = re.findall(r"-?\d+\.\d*", re.search(r"x = \[(.*)\]", log)[1])
        self.assertEqual(len(found), 3)
        for number, true in zip(found, (1, -2, 3)):
            self.assertAlmostEqual(float(number), true, delta=0.1)
        self.check_ends(log)

    def check_ends(self, log):
        """Each example ends with its job, and its worker at once rather than at the end of an idle poll."""
        ends = [time_of(line) for line in log.splitlines() if 'event="job ended"' in line]
        leaves = [time_of(line) for line in log.splitlines() if 'event="worker left"' in line]
        self.assertEqual((len(ends), len(leaves)), (3, 3), log[-4000:])
        waits = sorted(leave - end for end, leave in zip(ends, leaves))
        self.assertLess(waits[1], IDLE_POLL_S / 2, waits)
        self.assertLess(waits[2], IDLE_POLL_S, waits)

    def clone(self):
        """Returns a folder like that of a clone which is built, and an environment whose cmake has nothing to do."""
        folder = Path(self.folder, "clone")
        (folder / "build").mkdir(parents=True)
        (folder / "build/release").symlink_to(BIN.parent)
        (folder / "deploy").symlink_to(REPO / "deploy")
        (folder / "api").symlink_to(REPO / "api")
        Path(self.folder, "cmake").write_text("#!/bin/sh\n")
        Path(self.folder, "cmake").chmod(0o755)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TALLY_")}
        return folder, environment | {"HOME": self.folder, "PATH": f"{self.folder}:{environment['PATH']}"}

    def test_own_training_loop_from_a_clone(self):
        """README.md's train.py in its own two commands, and the line that it says it prints. Another processor adds in
        another order, so the figures are near, not equal."""
        if not Path("/usr/share/datasets/fashion-mnist").exists() or subprocess.run(
                ["/usr/bin/python3", "-c", "import torch"], capture_output=True, check=False).returncode != 0:
            self.skipTest("python3-torch (0.6 GB) or dataset-fashion-mnist is not installed")
        text = (REPO / "README.md").read_text()
        first, second = block("train", readme=REPO / "README.md", heading="## Train your own model").split(
            "# in a second terminal\n")
        folder, environment = self.clone()
        (folder / "train.py").write_text(re.search(r"(?s)```python\n(.*?)```", text)[1])
        (folder / "data").mkdir()
        second = re.sub(r"^apt-get install -y python3-torch && deploy/fetch-mnist --fashion$",
                        f"deploy/fetch-mnist --fashion --dir {folder}/data/fashion", second, count=1, flags=re.M)
        port = free_port()
        environment["TALLY_COORDINATOR"] = f"http://127.0.0.1:{port}"
        log = Path(self.folder, "quickstart.log")
        with open(log, "wb") as output:
            quickstart = subprocess.Popen(
                ["bash", "-euc", first.replace("deploy/quickstart", f"exec deploy/quickstart --port {port}")], cwd=folder,
                env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        try:
            wait_until(lambda: "keep running" in log.read_text() or quickstart.poll() is not None, "quickstart")
            done = subprocess.run(["bash", "-euc", second], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=HANG_S, check=False)
            self.assertEqual(done.returncode, 0, done.stderr[-4000:] + log.read_text()[-4000:])
        finally:
            quickstart.terminate()
            quickstart.wait(HANG_S)
        pattern = r"test accuracy (0\.\d+), (\d+) KB sent and (\d+) KB received by each client; float32: (\d+) KB each"
        shown = [float(number) for number in re.search(pattern, text).groups()]
        printed = [float(number) for number in re.search(pattern, done.stdout).groups()]
        self.assertAlmostEqual(printed[0], shown[0], delta=0.01)
        for number, expected in zip(printed[1:], shown[1:]):
            self.assertAlmostEqual(number / expected, 1, delta=0.05)
        self.assertEqual(shown[3], round(10 * 32 * 101770 / 8000))

    def test_own_file_from_a_clone(self):
        """Cloning included, it takes five commands: the others are mkdir, cp, cat and quickstart."""
        commands = block("own-file", readme=REPO / "README.md", heading="## Two commands")
        outside = re.sub(r"(?s)<<'END'\n.*\nEND\n", "\n", commands)
        self.assertLessEqual(1 + len(re.split(r"\n|&&", outside.strip())), 5)
        folder, environment = self.clone()
        port = free_port()
        Path(self.folder, "flats.csv").write_text(FLATS)
        done = subprocess.run(["bash", "-euc", commands.replace("deploy/quickstart", f"deploy/quickstart --port {port}")],
                              cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=HANG_S, check=False)
        self.assertEqual(done.returncode, 0, done.stdout[-4000:])
        self.assertRegex(done.stdout, r"(?m)^status +completed$")
        self.assertRegex(done.stdout, r"(?m)^regret +\d")


if __name__ == "__main__":
    unittest.main()
