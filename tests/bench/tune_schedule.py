#!/usr/bin/python3
"""Tunes the `scheduled` presets of FedAvg and FedPAQ: steps that decay, rounds that grow.

    tests/bench/tune_schedule.py loud|quiet fedavg|fedpaq [--seeds 1-60] [--rounds 20]
                                 TALLY_BIN: folder of the programs

Minimises the mean regret of `tally reproduce synthetic` over step_size, step_decay, local_steps and
local_steps_growth, on the grids below, among the schedules with at most --rounds rounds with messages. FedPAQ has the
paper's three levels, so within 20 rounds no preset sends more bits than Table I allows. The search begins at START and
tries the neighbours of the best point along every axis and along the two diagonals of step_size and step_decay, and of
local_steps and local_steps_growth, until none is better: first on ten of the seeds, then on all of them. It prints the
neighbours of the result, and which values are at the edge of their grid. Growth 0, decay 0 and one local step do not
count as edges, because they are limits of the document.
"""

import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import subprocess

JOBS = pathlib.Path(__file__).resolve().parents[2] / "deploy/jobs"
TALLY = str(pathlib.Path(os.environ.get("TALLY_BIN", "build/release/bin")).resolve() / "tally")
HORIZON, COARSE_SEEDS = 2000, 10
GRID = {"step_size": [0.02 * 1.25 ** i for i in range(22)],
        "step_decay": [0, *(0.001 * 1.5 ** i for i in range(16))],
        "local_steps": [1, 2, 3, 4, 6, 8, 11, 15, 20, 30, 40, 60, 80, 100, 130],
        "local_steps_growth": [0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.8, 1]}
START = {"loud": {"step_size": 11, "step_decay": 12, "local_steps": 2, "local_steps_growth": 7},
         "quiet": {"step_size": 15, "step_decay": 12, "local_steps": 0, "local_steps_growth": 8}}
DIAGONALS = ("step_size", "step_decay"), ("local_steps", "local_steps_growth")


def messages(local_steps, growth):
    """Returns the number of rounds that the horizon does not cut."""
    done = count = 0
    while (done := done + local_steps + math.floor(growth * done)) <= HORIZON:
        count += 1
    return count


def regret_of(document):
    done = subprocess.run([TALLY, "simulate", "-", "--json"], input=json.dumps(document), text=True,
                          capture_output=True, check=False)
    detail = json.loads(done.stdout) if done.stdout else {}
    return detail["cumulative_regret"] if detail.get("status") == "completed" else math.inf


class Tuner:
    def __init__(self, arguments, pool):
        name = f"synthetic-{'quiet-' if arguments.reading == 'quiet' else ''}{arguments.algorithm}.json"
        first, last = map(int, arguments.seeds.split("-"))
        self.document = json.loads((JOBS / name).read_text())
        self.axes = list(GRID)
        self.all_seeds, self.rounds, self.pool, self.known = range(first, last + 1), arguments.rounds, pool, {}
        self.seeds = self.all_seeds[:COARSE_SEEDS]

    def values(self, point):
        return {key: GRID[key][i] for key, i in zip(self.axes, point)}

    def regret(self, point):
        """Returns the mean over the seeds; infinity if a run diverges or there are too many rounds."""
        values = self.values(point)
        if messages(values["local_steps"], values["local_steps_growth"]) > self.rounds:
            return math.inf
        if (point, self.seeds) not in self.known:
            algorithm = {**self.document["algorithm"], **values}
            documents = [{**self.document, "seed": seed, "algorithm": algorithm} for seed in self.seeds]
            self.known[point, self.seeds] = sum(self.pool.map(regret_of, documents)) / len(self.seeds)
        return self.known[point, self.seeds]

    def neighbours(self, point):
        moves = [{key: step} for key in self.axes for step in (-1, 1)]
        moves += [{a: i, b: j} for a, b in DIAGONALS for i in (-1, 1) for j in (-1, 1)]
        for move in moves:
            beside = tuple(i + move.get(key, 0) for key, i in zip(self.axes, point))
            if all(0 <= i < len(GRID[key]) for key, i in zip(self.axes, beside)):
                yield move, beside

    def search(self, best):
        while True:
            beside = min((other for _, other in self.neighbours(best)), key=self.regret)
            if self.regret(beside) >= self.regret(best):
                return best
            best = beside


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("reading", choices=("loud", "quiet"))
    parser.add_argument("algorithm", choices=("fedavg", "fedpaq"))
    parser.add_argument("--seeds", default="1-60", metavar="A-B")
    parser.add_argument("--rounds", type=int, default=20, help="the most rounds with messages")
    arguments = parser.parse_args()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        tuner = Tuner(arguments, pool)
        best = tuner.search(tuple(START[arguments.reading][key] for key in tuner.axes))
        tuner.seeds = tuner.all_seeds
        best = tuner.search(best)
        values = tuner.values(best)
        print(", ".join(f"{key} {value:.4g}" for key, value in values.items()))
        print(f"regret {tuner.regret(best):.2f} in {messages(values['local_steps'], values['local_steps_growth'])} "
              f"rounds with messages, seeds {arguments.seeds}; neighbours:")
        for move, beside in tuner.neighbours(best):
            changed = ", ".join(f"{key} {tuner.values(beside)[key]:.4g}" for key in move)
            print(f"  {changed:48} {tuner.regret(beside):.2f}")
        edges = [key for key, i in zip(tuner.axes, best)
                 if i == len(GRID[key]) - 1 or (i == 0 and key == "step_size")]
        print("at the edge of the grid: " + (", ".join(edges) or "none"))


if __name__ == "__main__":
    main()
