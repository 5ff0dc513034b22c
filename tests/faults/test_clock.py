"""The coordinator's wall clock jumps, as NTP and operators can make it jump. Nothing else changes."""

import subprocess
import time
import unittest
from pathlib import Path

from namespaces import skip
from service import CLIENTS, ENDLESS, LONG_JOB, FaultTestCase, job_document, wait_until

HOUR_S, DAY_S = 3600, 86400
# Forward and back: past every deadline, and to before the job was submitted.
JUMPS_S = (HOUR_S, -HOUR_S, 400 * DAY_S, -400 * DAY_S, 1, 0)


def libfaketime():
    """Returns the path of Debian's libfaketime, or None."""
    listed = subprocess.run(["dpkg", "-L", "libfaketime"], capture_output=True, text=True, check=False)
    return next((line for line in listed.stdout.split() if line.endswith("libfaketime.so.1")), None)


class Clock(FaultTestCase):
    def start_with_clock(self, *options):
        """Returns a coordinator, and a function that sets its wall clock to so many seconds from the real one."""
        library = libfaketime()
        if library is None:
            skip("jumps of the clock: there is no libfaketime")
        offset = Path(self.folder) / "offset"
        offset.write_text("+0\n")

        def jump(jump_s):
            scratch = offset.with_suffix(".new")
            scratch.write_text(f"{jump_s:+d}\n")
            scratch.rename(offset)

        return self.start_coordinator(
            options=options,
            launcher=("env", f"LD_PRELOAD={library}", f"FAKETIME_TIMESTAMP_FILE={offset}",
                      "FAKETIME_NO_CACHE=1", "DONT_FAKE_MONOTONIC=1"),
        ), jump

    def ended_jobs(self, coordinator, n):
        ids = [coordinator.client.submit(job_document(seed=seed)) for seed in range(n)]
        for job_id in ids:
            coordinator.client.post(f"/v1/jobs/{job_id}/cancel")
        return ids

    def wait_for_looks(self, coordinator, n):
        """Waits until the coordinator has done the work of a second n times; it stores the wire bytes then."""
        for _ in range(n):
            time.sleep(1)  # at least; a slow coordinator looks later, and then deletes nothing either
            coordinator.client.get("/healthz")

    def test_a_jump_forward_deletes_no_jobs(self):
        coordinator, jump = self.start_with_clock("--keep-ended-s", str(HOUR_S))
        ids = self.ended_jobs(coordinator, 3)
        self.wait_for_looks(coordinator, 2)
        jump(DAY_S)
        wait_until(lambda: "the clock has jumped forward" in coordinator.log()
                   or "job deleted" in coordinator.log(), "the coordinator to notice it")
        self.wait_for_looks(coordinator, 2)
        self.assertNotIn("job deleted", coordinator.log())
        self.assertEqual([coordinator.client.job(job_id)["status"] for job_id in ids], 3 * ["cancelled"])
        self.assert_ends_well(coordinator)

    def test_a_jump_counts_once_it_has_lasted(self):
        coordinator, jump = self.start_with_clock("--keep-ended-s", "5")
        jump(DAY_S)
        self.wait_for_looks(coordinator, 2)
        self.ended_jobs(coordinator, 3)
        wait_until(lambda: coordinator.log().count("job deleted") == 3, "the jobs to be deleted")
        self.assert_ends_well(coordinator)

    def test_wall_clock_jumps(self):
        coordinator, jump = self.start_with_clock("--session-timeout-ms", 5000)
        workers = [
            self.start_worker(coordinator, f"w{i}", clients=CLIENTS // 2) for i in range(2)
        ]
        document = job_document(LONG_JOB, horizon=ENDLESS)
        began = time.monotonic()
        job_id = coordinator.client.submit(document)
        created_ms = coordinator.client.job(job_id)["created_ms"]
        for jump_s in JUMPS_S:
            self.wait_for_more(coordinator.client, job_id, self.random.randint(1, 200))
            jump(jump_s)
            now_ms = coordinator.client.job(coordinator.client.submit({**document, "seed": 2}))["created_ms"]
            passed_s = time.monotonic() - began
            self.assertAlmostEqual((now_ms - created_ms) / 1000, jump_s, delta=passed_s + 0.5, msg="no jump")
        self.check_endless(coordinator, job_id, document)
        self.assertNotIn("session timed out", coordinator.log())
        self.assertNotIn("past its deadline", coordinator.log())
        self.assert_ends_well(*workers, coordinator)


if __name__ == "__main__":
    unittest.main()
