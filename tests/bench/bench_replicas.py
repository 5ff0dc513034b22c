#!/usr/bin/python3
"""200 jobs at once: two coordinators on one PostgreSQL, one on PostgreSQL, one on SQLite, side by side.

    tests/bench/bench_replicas.py [--runs N] [--scale N]        TALLY_BIN: folder of the programs

The jobs are tiny, so the coordinators and the store dominate. Everything, the workers included, shares one machine,
so more coordinators do not have more processors. --scale makes the jobs longer. Runs are interleaved. The output
shows all runs and the median. Fails if a result differs from the simulation's, or if a replica lost a job to another.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "replicas"))

import crowd  # noqa: E402
from postgres import Cluster  # noqa: E402

SAFE = ("--power-loss-safe",)
KINDS = (  # name, whether on PostgreSQL, coordinators, options
    ("SQLite", False, 1, ()),
    ("SQLite, power-loss-safe", False, 1, SAFE),
    ("PostgreSQL", True, 1, ()),
    ("PostgreSQL, two coordinators", True, 2, ()),
)


def run_one(kind, number, cluster, folder, jobs):
    """Returns the outcome of one kind, and whether all results were right."""
    name, is_postgres, n_coordinators, options = kind
    place = Path(folder) / f"{number}-{name.replace(' ', '-')}"
    store = cluster.new_database().uri if is_postgres else f"sqlite:{place}.db"
    with crowd.Crowd(name, place, store, n_coordinators=n_coordinators, options=options) as each:
        outcome = each.run(jobs)
    wrong = crowd.differing(outcome, jobs)
    print(outcome.line() + (f"  WRONG: {' '.join(wrong)}" if wrong else ""), flush=True)
    return outcome, not wrong and outcome.fenced == outcome.takeovers == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3, help="of each kind (%(default)s)")
    parser.add_argument("--scale", type=int, default=5, help="length of the jobs (%(default)s)")
    arguments = parser.parse_args()
    jobs = crowd.documents(scale=arguments.scale)
    outcomes = {kind[0]: [] for kind in KINDS}
    is_right = True
    with tempfile.TemporaryDirectory(prefix="tally-bench-") as folder, Cluster() as cluster:
        for number in range(arguments.runs):
            for kind in KINDS:
                outcome, right = run_one(kind, number, cluster, folder, jobs)
                outcomes[kind[0]].append(outcome)
                is_right = is_right and right
    for name, each in outcomes.items():
        speeds = sorted(outcome.updates / outcome.seconds for outcome in each)
        print(f"{name}: median {statistics.median(speeds):.0f} updates/s ({speeds[0]:.0f} to {speeds[-1]:.0f})")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
