"""Two coordinators on one PostgreSQL run 200 jobs at once, and every result equals that of the simulation."""

import tempfile
import unittest
from pathlib import Path

import crowd  # so that the other folders are found
from postgres import Cluster


class TwoHundredJobs(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tally-crowd-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.cluster = Cluster()
        self.addCleanup(self.cluster.close)
        self.jobs = crowd.documents()

    def run_on(self, name, store, **options):
        with crowd.Crowd(name, self.folder / name.replace(" ", "-"), store, **options) as each:
            outcome = each.run(self.jobs)
        print(f"*** {outcome.line()}", flush=True)
        self.assertEqual(crowd.differing(outcome, self.jobs), [])
        self.assertGreater(outcome.most_running, crowd.N_JOBS // 2, "they ran at once")
        self.assertEqual((outcome.fenced, outcome.takeovers), (0, 0))
        return outcome

    def test_on_three_kinds_of_store(self):
        self.run_on("one coordinator on SQLite", f"sqlite:{self.folder}/tally.db")
        self.run_on("one coordinator on PostgreSQL", self.cluster.new_database().uri)
        two = self.run_on("two coordinators on PostgreSQL", self.cluster.new_database().uri, n_coordinators=2,
                          options=("--lease-ms", "30000"))  # on a busy machine this limit is not kept
        self.assertGreater(min(two.led), sum(two.led) / 10, "both led jobs")


if __name__ == "__main__":
    unittest.main()
