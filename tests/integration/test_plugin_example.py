"""The example in services/objectives/example, built and run exactly as its README says, from an installed tree: `cmake
--install` puts the header, the example and the programs where users find them.
"""

import json
import os
import re
import shutil
import subprocess
import unittest
from pathlib import Path

from common import BIN, HANG_S, IS_SANITIZED, Client, Process, TallyTestCase, free_port, wait_until



def commands(readme):
    """Returns what stands between ```bash and ``` in the README."""
    return re.findall(r"(?ms)^```bash\n(.*?)^```$", readme.read_text())


@unittest.skipIf(IS_SANITIZED, "the example is built without sanitizers")
class PluginExample(TallyTestCase):
    def test_readme_word_for_word(self):
        prefix = Path(self.folder) / "prefix"
        subprocess.run(["cmake", "--install", BIN.parent, "--prefix", prefix], check=True, capture_output=True,
                       timeout=HANG_S)
        example = Path(self.folder) / "mine"
        shutil.copytree(prefix / "share/tally/examples/plugin", example)
        port = free_port()
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TALLY_")},
            "PREFIX": str(prefix), "PATH": f"{prefix}/bin:{os.environ['PATH']}",
            "TALLY_LISTEN": f"127.0.0.1:{port}", "TALLY_COORDINATOR": f"http://127.0.0.1:{port}",
        }

        def run(script):
            done = subprocess.run(["bash", "-euc", script], cwd=example, env=environment, capture_output=True,
                                  text=True, timeout=HANG_S, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            return done.stdout

        # As JSON, so that the test can read it.
        build, serve, submit = (re.sub(r"(?m)^tally .*$", r"\g<0> --json", text) for text in commands(example / "README.md"))
        built = run(build)
        simulated = json.loads(built[built.index("{"):])
        self.assertEqual(simulated["status"], "completed")
        for program in serve.splitlines():
            words = program.split()
            self.assertEqual(words.pop(), "&")
            settings = [f"{name}={value}" for name, value in environment.items()]
            self.processes.append(Process(self.folder, words[0], ["env", "-i", "-C", example, *settings, *words]))
        client = Client(port)

        def is_up():
            try:
                return len(client.get_json("/v1/workers")["workers"]) == 1
            except OSError:
                return False

        wait_until(is_up, "coordinator and worker to be up")
        watched = run(submit)
        (job,) = client.get_json("/v1/jobs")["jobs"]
        self.assertIn(job["id"], watched)
        detail = client.job(job["id"])
        self.assertEqual(detail["x_checksum"], simulated["x_checksum"], "as the README promises")
        model = client.get_json(f"/v1/jobs/{job['id']}/model")
        for found, made in zip(model["x"], (1, 2, 3), strict=True):
            self.assertAlmostEqual(found, made, delta=0.05)


if __name__ == "__main__":
    unittest.main()
