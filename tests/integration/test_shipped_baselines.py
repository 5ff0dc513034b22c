"""The baselines of deploy/jobs are tuned.

This is about figures, so tests/run leaves the module out of the sanitized runs; test_reproduce runs the same code for
less time.
"""

import json

import test_reproduce


class ShippedBaselines(test_reproduce.ReproduceCase):
    """A baseline of deploy/jobs has the step size of least regret. A newcomer who compares it with CEAL or CALM then
    sees how good the baseline is, not how badly the paper's step size suits the loud problem."""

    def check_reading(self, reading, prefix):
        out = self.cwd / reading
        rows = self.rows("synthetic", "--reading", reading, "--seeds", "1-20", "--out", str(out))
        baselines = [row for row in rows if row["algorithm"] in test_reproduce.FORMULA]
        tuned = {row["algorithm"]: row for row in baselines if row["tuned"]}
        self.assertEqual(set(tuned), set(test_reproduce.FORMULA))
        for row in baselines:
            name = test_reproduce.job_name(prefix, row)
            with self.subTest(name):
                shipped = json.loads((test_reproduce.JOBS / name).read_text())
                written = json.loads((out / "jobs" / name).read_text())
                self.assertEqual(shipped["name"] + ".json", name)
                # Neighbouring step sizes differ by 25 %, and there are a third of the seeds that were used to choose.
                ratio = written["algorithm"].pop("step_size") / shipped["algorithm"].pop("step_size")
                self.assertTrue(1 / 1.3 < ratio < 1.3, ratio)
                self.assertEqual(written, shipped)

    def test_loud(self):
        self.check_reading("loud", "synthetic")

    def test_quiet(self):
        self.check_reading("quiet", "synthetic-quiet")
