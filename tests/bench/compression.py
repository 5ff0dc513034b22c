#!/usr/bin/python3
"""The rows of services/algorithms/COMPRESSION.md: networks trained with float32 and with compression "auto".

    tests/bench/compression.py DIR MNIST FASHION [--first-seed 701] [--only WORDS] [--list]
        TALLY_BIN: folder of the programs, TALLY_LIBRARY: path of libtally.so.1

MNIST and FASHION are folders with the four files of each, as deploy/fetch-mnist makes them. The jobs are those of
training.py, with other networks, clients and optimizers. A run takes from three seconds to some minutes, all runs less
than an hour. --only takes the rows that begin with WORDS; --list runs nothing.

Writes a file of rounds for each row to DIR; runs that are there already are left out. Prints the table's rows: mean and
standard deviation of the accuracy after the last round, mean difference of runs with equal seeds, and how many times
fewer bits went up and down.
"""

import argparse
import pathlib
import re
import statistics

from training import AUTO, FEDAVG, Setup, images_of, measure, read_runs

# Name, images, seeds, setup.
ROWS = [
    ("MLP, 20 rounds", "mnist", 3, Setup()),
    ("the same, Adam", "mnist", 3, Setup(adam=True)),
    ("CNN, Fashion-MNIST", "fashion", 3, Setup(network="CNN")),
    ("cohort 5 of 50", "mnist", 6, Setup(clients=50, cohort=5, concentration=0.3, rounds=60)),
    ("large MLP", "mnist", 3, Setup(network="large MLP", rounds=10)),
    ("2 clients", "mnist", 3, Setup(clients=2, rounds=10)),
    ("1 client", "mnist", 3, Setup(clients=1, images=20000, rounds=10)),
    ("3 rounds", "mnist", 3, Setup(rounds=3)),
    ("small CNN job", "fashion", 3, Setup(network="CNN", images=10000, batch=16, rounds=8)),
    ("MLP, Fashion-MNIST", "fashion", 3, Setup()),
]


def spread(values):
    return statistics.stdev(values) if len(values) > 1 else 0.0


def print_row(name, setup, runs, seeds):
    pairs = [(runs[FEDAVG, seed], runs[AUTO, seed]) for seed in seeds if {(FEDAVG, seed), (AUTO, seed)} <= runs.keys()]
    if not pairs:
        return
    accuracies = [[100 * run[-1][2] for run in each] for each in zip(*pairs)]
    up, down = ([sum(sum(row[i] for row in run) for run in each) for each in zip(*pairs)] for i in (0, 1))
    differences = [auto - plain for plain, auto in zip(*accuracies)]
    lower = [f"1/{plain / auto:.1f}" for plain, auto in (up, down)]
    cells = [f"{statistics.mean(each):.2f} ± {spread(each):.2f}" for each in accuracies]
    each_of = ", ".join(f"{each:+.2f}" for each in differences)
    cells += [f"{statistics.mean(differences):+.2f} ({each_of})", *lower]
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", metavar="DIR", type=pathlib.Path)
    parser.add_argument("mnist", metavar="MNIST", type=pathlib.Path)
    parser.add_argument("fashion", metavar="FASHION", type=pathlib.Path)
    parser.add_argument("--first-seed", type=int, default=701, help="the seeds of a row follow each other")
    parser.add_argument("--only", default="", help="only rows that begin with these words")
    parser.add_argument("--list", action="store_true", help="print what is there, run nothing")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    images = {}
    for name, which, n_seeds, setup in ROWS:
        if not name.startswith(arguments.only):
            continue
        path = arguments.folder / f"{re.sub('[^a-z0-9]+', '-', name.lower())}.csv"
        seeds = range(arguments.first_seed, arguments.first_seed + n_seeds)
        if not arguments.list:
            if which not in images:
                images[which] = images_of(getattr(arguments, which))
            measure(path, setup, images[which], [FEDAVG, AUTO], seeds)
        print_row(name, setup, read_runs(path), seeds)


if __name__ == "__main__":
    main()
