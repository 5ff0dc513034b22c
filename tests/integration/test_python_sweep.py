"""tally.sweep() of the Python package: the table is that of `tally sweep`, here and on a coordinator."""

import importlib
import json
import math
import os
import subprocess
import unittest
from pathlib import Path
from unittest import mock

import numpy as np

from common import BIN, HANG_S, IS_SANITIZED, TallyTestCase, job_document, simulate
from test_python import setUpModule  # noqa: F401: no library with a sanitizer

if not IS_SANITIZED:
    import tally

GRID = {"algorithm.step_size": [0.001, 0.003], "algorithm.local_steps": [1, 5]}


def fedavg(**changes):
    return job_document("synthetic-fedavg", horizon=100, **changes)


class Sweep(TallyTestCase):
    def setUp(self):
        super().setUp()
        patch = mock.patch.dict(os.environ, {"TALLY_BIN": str(BIN), "TALLY_COORDINATOR": "http://127.0.0.1:1"})
        patch.start()
        self.addCleanup(patch.stop)

    def without_pandas(self):
        real = importlib.import_module

        def without(name, *rest):
            if name == "pandas":
                raise ImportError(name)
            return real(name, *rest)

        return mock.patch("importlib.import_module", without)

    def test_the_table_has_means_and_spread_of_simulations(self):
        frame = tally.sweep(fedavg(), grid=GRID, seeds="101-103", threads=1)
        self.assertEqual(type(frame).__name__, "DataFrame")
        self.assertEqual(len(frame), 4)
        self.assertEqual(list(frame["runs"]), [3] * 4)
        for _, row in frame.iterrows():
            changes = {"algorithm__step_size": row["algorithm.step_size"],
                       "algorithm__local_steps": int(row["algorithm.local_steps"])}
            regrets = [simulate(fedavg(seed=seed, **changes))["cumulative_regret"] for seed in (101, 102, 103)]
            self.assertAlmostEqual(row["regret"], np.mean(regrets), delta=1e-9 * row["regret"])
            self.assertAlmostEqual(row["regret_std"], np.std(regrets, ddof=1), delta=1e-6 * row["regret"])
        best = frame[frame["best"]]
        self.assertEqual(list(best["regret"]), [frame["regret"].min()])
        document = frame.attrs["best"]
        self.assertEqual(document["algorithm"]["step_size"], best.iloc[0]["algorithm.step_size"])
        self.assertEqual(document["seed"], 101)
        self.assertEqual(simulate(document)["status"], "completed")

    def test_a_sweep_is_a_mapping_or_a_file(self):
        sweep = {"base": fedavg(), "grid": GRID, "seeds": 7}
        path = Path(self.folder, "-sweep.json")
        path.write_text(json.dumps({**sweep, "base": "base.json"}))
        base = Path(self.folder, "base.json")
        base.write_text(json.dumps(fedavg()))
        with self.without_pandas():
            rows = tally.sweep(sweep)
            self.assertEqual(tally.sweep(path), rows)
            self.assertEqual(tally.sweep(base, grid=GRID, seeds=np.int64(7)), rows)
        self.assertIsInstance(rows, list)
        self.assertEqual([row["best"] for row in rows].count(True), 1)
        self.assertEqual([(row["algorithm.step_size"], row["algorithm.local_steps"]) for row in rows],
                         [(0.001, 1), (0.001, 5), (0.003, 1), (0.003, 5)])

    def test_what_diverges_is_nan(self):
        with self.without_pandas():
            rows = tally.sweep(fedavg(), grid={"algorithm.step_size": [0.001, 1e6]})
        self.assertTrue(math.isnan(rows[1]["regret"]))
        self.assertEqual([row["best"] for row in rows], [True, False])

    def test_errors_name_the_member(self):
        for arguments, members, text in (((fedavg(),), {"grid": {"algorithm.step_sze": [1]}}, "step_sze"),
                                         ((fedavg(),), {"grids": {}}, "grids"),
                                         ((f"{self.folder}/missing.json",), {}, "missing.json")):
            with self.assertRaises(tally.Error) as caught:
                tally.sweep(*arguments, **members)
            self.assertEqual(caught.exception.code, "invalid_argument", caught.exception)
            self.assertIn(text, str(caught.exception))

    def test_on_a_coordinator(self):
        coordinator = self.start_coordinator()
        worker = self.start_worker(coordinator, "w", clients=10)
        with self.without_pandas():
            here = tally.sweep(fedavg(), grid=GRID, seeds="1-2")
            there = tally.sweep(fedavg(), grid=GRID, seeds="1-2", url=coordinator.url, parallel=2)
        self.assertEqual(there, here)
        self.assertEqual(len(coordinator.client.get_json("/v1/jobs")["jobs"]), 8)
        self.assert_ends_well(worker)


if __name__ == "__main__":
    unittest.main()
