"""Memory is bounded by bytes: what a job holds while it waits, and what jobs hold together that have started."""

import re
import unittest
from pathlib import Path

from common import TallyTestCase

MIB = 1 << 20


def plain_job(dim, algorithm="ceal", **changes):
    """No data, no f(x*): what is left is what the engine itself holds."""
    return {"algorithm": {"type": algorithm, "step_size": 1.0, **({"sigma": 1.0} if algorithm == "ceal" else {})},
            "objective": {"type": "plugin", "name": "none", "dim": dim}, "clients": 2, "horizon": 1000,
            "reference": {"type": "none"}, **changes}


def resident(process, which="VmRSS"):
    text = Path(f"/proc/{process.pid}/status").read_text()
    return 1024 * int(re.search(rf"^{which}:\s+(\d+) kB$", text, re.MULTILINE)[1])


class Queued(TallyTestCase):
    """A job that waits holds its row, its document, and nothing that grows with dim or clients."""

    JOBS = 12
    MOST = MIB // 2  # of each: well above what one takes (below 100 KB), and far below any vector

    def assert_small(self, document):
        small = {**document, "objective": {**document["objective"], "dim": 10}, "clients": 2}
        coordinator = self.start_coordinator()
        client = coordinator.client
        client.submit(small)
        client.submit(document)  # what is kept for the next one is not that one's
        before = resident(coordinator)
        ids = [client.submit(document) for _ in range(self.JOBS)]
        self.assertLess(resident(coordinator) - before, self.JOBS * self.MOST)
        details = [client.job(job_id) for job_id in ids]
        self.assertEqual({detail["status"] for detail in details}, {"queued"})
        coordinator.kill()

        again = self.start_coordinator(store=coordinator.store)
        self.assertLess(resident(again), before + self.JOBS * self.MOST)
        self.assertEqual([again.client.job(job_id)["x_checksum"] for job_id in ids],
                         [detail["x_checksum"] for detail in details])
        for job_id in ids:
            again.client.post(f"/v1/jobs/{job_id}/cancel")
        self.assertLess(resident(again), before + self.JOBS * self.MOST)

    def test_of_many_coordinates(self):
        self.assert_small(plain_job(10_000_000))

    def test_of_many_clients(self):
        self.assert_small(plain_job(10, clients=100_000))

    def test_its_model_is_the_initial_point(self):
        coordinator = self.start_coordinator()
        client = coordinator.client
        job_id = client.submit(plain_job(5, initial_point={"type": "random_sphere", "radius": 3.0}))
        queued = client.get_json(f"/v1/jobs/{job_id}/model")
        self.assertAlmostEqual(sum(x * x for x in queued["x"]), 9)
        self.assertEqual(queued["x_checksum"], client.job(job_id)["x_checksum"])
        client.post(f"/v1/jobs/{job_id}/cancel")
        self.assertEqual(client.get_json(f"/v1/jobs/{job_id}/model"), queued)


if __name__ == "__main__":
    unittest.main()
