"""The coordinator's wall clock jumps, as NTP and operators can make it jump. Nothing else changes."""

import subprocess
import time
import unittest
from pathlib import Path

from namespaces import skip
from service import CLIENTS, ENDLESS, LONG_JOB, FaultTestCase, job_document

HOUR_S, DAY_S = 3600, 86400
# Forward and back: past every deadline, and to before the job was submitted.
JUMPS_S = (HOUR_S, -HOUR_S, 400 * DAY_S, -400 * DAY_S, 1, 0)


def libfaketime():
    """Returns the path of Debian's libfaketime, or None."""
    listed = subprocess.run(["dpkg", "-L", "libfaketime"], capture_output=True, text=True, check=False)
    return next((line for line in listed.stdout.split() if line.endswith("libfaketime.so.1")), None)


class Clock(FaultTestCase):
    def test_wall_clock_jumps(self):
        library = libfaketime()
        if library is None:
            skip("jumps of the clock: there is no libfaketime")
        offset = Path(self.folder) / "offset"
        offset.write_text("+0\n")
        coordinator = self.start_coordinator(
            options=("--session-timeout-ms", 5000),
            launcher=("env", f"LD_PRELOAD={library}", f"FAKETIME_TIMESTAMP_FILE={offset}",
                      "FAKETIME_NO_CACHE=1", "DONT_FAKE_MONOTONIC=1"),
        )
        workers = [
            self.start_worker(coordinator, f"w{i}", clients=CLIENTS // 2) for i in range(2)
        ]
        document = job_document(LONG_JOB, horizon=ENDLESS)
        began = time.monotonic()
        job_id = coordinator.client.submit(document)
        created_ms = coordinator.client.job(job_id)["created_ms"]
        for jump_s in JUMPS_S:
            self.wait_for_more(coordinator.client, job_id, self.random.randint(1, 200))
            scratch = offset.with_suffix(".new")
            scratch.write_text(f"{jump_s:+d}\n")
            scratch.rename(offset)
            now_ms = coordinator.client.job(coordinator.client.submit({**document, "seed": 2}))["created_ms"]
            passed_s = time.monotonic() - began
            self.assertAlmostEqual((now_ms - created_ms) / 1000, jump_s, delta=passed_s + 0.5, msg="no jump")
        self.check_endless(coordinator, job_id, document)
        self.assertNotIn("session timed out", coordinator.log())
        self.assertNotIn("past its deadline", coordinator.log())
        self.assert_ends_well(*workers, coordinator)


if __name__ == "__main__":
    unittest.main()
