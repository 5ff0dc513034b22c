#!/usr/bin/python3
"""The three logistic regressions of services/algorithms/CALM.md: makes their data, runs CALM on them.

    tests/bench/logistic.py DIR [--grid] [--runs 20]      TALLY_BIN: folder of the programs

Writes the data files and job documents to DIR and prints the regret and the bits: of one client up, of the
broadcasts down, and control. --grid also runs the baselines, over step sizes by factors of two: Minibatch
SGD and FedAvg, with 20 and 100 queries between two rounds. All jobs have seed 11, l2 0.01, 4 clients,
minibatches of 16 points and a horizon of 4000.

  heart_scale  270 points of dim 13, from Debian's package liblinear-tools
  digits       scikit-learn's (python3-sklearn), even against odd; standardised, shuffled
  synthetic    4000 points of dim 30: normal, with a spectrum i^-a such that the largest eigenvalue of
               their covariance is 13, turned at random and standardised; labels are drawn from a logistic
               model whose margins have a mean square of 16
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess

import numpy
from sklearn.datasets import load_digits

TALLY = str(pathlib.Path(os.environ.get("TALLY_BIN", "build/release/bin")).resolve() / "tally")
HEART = pathlib.Path("/usr/share/doc/liblinear-tools/examples/heart_scale")
STEP_SIZES = 0.25, 0.5, 1
GRID = [2.0 ** k for k in range(-5, 4)]


def write_csv(path, points, labels):
    columns = [f"c{i}" for i in range(points.shape[1])]
    rows = (",".join([*(f"{value:.9g}" for value in point), f"{label:.0f}"]) for point, label in zip(points, labels))
    path.write_text("\n".join([",".join([*columns, "y"]), *rows]) + "\n")


def spectrum(dim, largest):
    """Returns i^-a scaled to mean 1, with a such that the first is at most `largest`, or 0.45 dim."""
    low, high = 0.0, 6.0
    for _ in range(60):
        exponent = (low + high) / 2
        values = numpy.arange(1, dim + 1) ** -exponent
        values *= dim / values.sum()
        low, high = (exponent, high) if values[0] < min(largest, 0.45 * dim) else (low, exponent)
    return values


def synthetic(n=4000, dim=30):
    draw = numpy.random.default_rng(300)
    turn = numpy.linalg.qr(draw.standard_normal((dim, dim)))[0]
    points = draw.standard_normal((n, dim)) * numpy.sqrt(spectrum(dim, 13)) @ turn.T
    points -= points.mean(0)
    points /= points.std(0)
    normal = draw.standard_normal(dim)
    normal *= 4 / numpy.sqrt(numpy.mean((points @ normal) ** 2))
    return points, numpy.where(draw.random(n) < 1 / (1 + numpy.exp(-points @ normal)), 1, -1)


def digits():
    data = load_digits()
    spread = data.data.std(0)
    points = (data.data - data.data.mean(0)) / (spread + 1e-9)
    points[:, spread < 1e-9] = 0
    order = numpy.random.default_rng(1).permutation(len(points))
    return points[order], numpy.where(data.target % 2, 1, -1)[order]


def make_data(folder):
    """Returns the `data` of each problem's document."""
    shutil.copyfile(HEART, folder / "heart_scale")
    write_csv(folder / "synthetic.csv", *synthetic())
    write_csv(folder / "digits.csv", *digits())
    return {"heart_scale": {"type": "libsvm", "file": "heart_scale", "features": 13},
            "synthetic": {"type": "csv", "file": "synthetic.csv", "features": 30, "label": "y"},
            "digits": {"type": "csv", "file": "digits.csv", "features": 64, "label": "y"}}


def run(folder, name, data, algorithm, runs):
    """Returns the details of this many runs; None if one diverges."""
    document = {"name": name, "clients": 4, "horizon": 4000, "minibatch": 16, "evaluate_every": 10, "seed": 11,
                "initial_point": {"type": "zeros"}, "algorithm": algorithm,
                "objective": {"type": "logistic_regression", "l2": 0.01, "data": data}}
    path = folder / f"{name}.json"
    path.write_text(json.dumps(document, indent=2) + "\n")
    done = subprocess.run([TALLY, "simulate", path, "--runs", str(runs), "--json", "--data-dir", folder],
                          capture_output=True, text=True, check=False)
    details = json.loads(done.stdout) if done.stdout else []
    details = details if isinstance(details, list) else [details]
    return details if details and all(detail["status"] == "completed" for detail in details) else None


def regret(details):
    values = [detail["cumulative_regret"] for detail in details]
    return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0


def calm_rows(folder, name, data, runs):
    for step_size in STEP_SIZES:
        details = run(folder, f"{name}-calm-{step_size}", data, {"type": "calm", "step_size": step_size},
                      runs if step_size == 0.5 else (runs + 1) * 2 // 5)
        mean, spread = regret(details)
        bits = [detail["bits"] for detail in details]
        up, down, control = (statistics.mean(values) for values in (
            [each["uplink_per_client"]["payload"] for each in bits], [each["downlink"]["payload"] for each in bits],
            [each["control"] for each in bits]))
        print(f"{name:12} calm           step size {step_size:<5g} {mean:8.1f} +- {spread:5.1f}  "
              f"{up:.0f} / {down:.0f} + {control:.0f}", flush=True)


def baseline_rows(folder, name, data, runs):
    for kind in ("minibatch_sgd", "fedavg"):
        for local_steps in (20, 100):
            for step_size in GRID:
                algorithm = {"type": kind, "step_size": step_size, "local_steps": local_steps}
                details = run(folder, f"{name}-{kind}-{local_steps}-{step_size}", data, algorithm, runs)
                words = "diverged" if details is None else "{:8.1f} +- {:5.1f}".format(*regret(details))
                print(f"{name:12} {kind:14} step size {step_size:<9g} K {local_steps:<3} {words}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", metavar="DIR", type=pathlib.Path)
    parser.add_argument("--grid", action="store_true", help="run the baselines too")
    parser.add_argument("--runs", type=int, default=20, help="runs at step size 1/2; 2/5 of them at the others")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name, data in make_data(arguments.folder).items():
        calm_rows(arguments.folder, name, data, arguments.runs)
        if arguments.grid:
            baseline_rows(arguments.folder, name, data, 4)


if __name__ == "__main__":
    main()
