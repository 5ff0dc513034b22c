"""services/objectives/README.md, "Your own problem in five minutes": every block, as printed, in one shell.

Where the coordinator listens comes from the environment, as for every program; nothing else is changed.
"""

import os
import re
import signal
import subprocess
import unittest
from pathlib import Path

from common import BIN, HANG_S, IS_SANITIZED, REPO, Client, TallyTestCase, free_port

README = REPO / "services/objectives/README.md"
HEADING = "## Your own problem in five minutes"


def block(*name):
    return subprocess.run([REPO / "tests/compose/readme_block", README, HEADING, *name], check=True,
                          capture_output=True, text=True).stdout


@unittest.skipIf(IS_SANITIZED, "what a user builds has no sanitizer")
class FiveMinutes(TallyTestCase):
    def run_blocks(self, names):
        """Returns the jobs that the coordinator has in the end, newest first, and what was printed."""
        folder = Path(self.folder, "sources")  # as the sources, without what is written there
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
            os.killpg(shell.pid, signal.SIGTERM)  # what it left in the background is of its session

    def test_every_block_as_printed(self):
        names = block().split()
        self.assertEqual(names, ["coordinator", "csv", "plugin", "python"])
        jobs, log = self.run_blocks(names)
        self.assertEqual([(job["name"], job["status"]) for job in reversed(jobs)],
                         [("flats", "completed"), ("mine", "completed"), ("", "completed")], log[-4000:])
        flats = jobs[2]
        self.assertIsNotNone(flats["f_star"])
        self.assertGreaterEqual(flats["cumulative_regret"], 0)
        # What the last one was made of, to the noise of a step.
        found = re.findall(r"-?\d+\.\d*", re.search(r"x = \[(.*)\]", log)[1])
        self.assertEqual(len(found), 3)
        for number, true in zip(found, (1, -2, 3)):
            self.assertAlmostEqual(float(number), true, delta=0.1)


if __name__ == "__main__":
    unittest.main()
