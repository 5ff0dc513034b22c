#!/usr/bin/python3
"""The neural network of services/algorithms/CALM.md: CALM, FedAvg and FedPAQ train it with a gradient in Python.

    tests/bench/network.py MNIST [--seeds 101,102,103] [--only WORDS] [--steps 0.4,0.8] [--json]

MNIST is the folder of the four files that deploy/fetch-mnist makes. TALLY_BIN is the folder of the programs,
TALLY_LIBRARY the path of libtally.so.1.

The network has 784 inputs, 32 hidden units with ReLU and 10 outputs: 25,450 weights. Each of ten clients has
6,000 of the training images, in their order, and makes 1000 gradient queries on minibatches of 25. The weights
start at sqrt(2 / inputs) times normal numbers, drawn from the seed; a job's point is the difference from them.
Every job runs on a coordinator, with one worker that runs all ten clients; its model is the point that the
coordinator holds at the end. Losses are means over seeds, of the training images and of the test images. Bits
are those of one client up and of the broadcasts down; control bits count in both.

The rows are CALM, which is given only a step size, and FedAvg and FedPAQ with 50 queries between two rounds, each at
several step sizes. Ratios are to the best FedAvg.
"""

import argparse
import gzip
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "api" / "python"))

import tally  # noqa: E402

BIN = pathlib.Path(os.environ.get("TALLY_BIN", "build/release/bin")).resolve()
CLIENTS, HORIZON, MINIBATCH, LOCAL_STEPS = 10, 1000, 25, 50
LAYERS = 784, 32, 10
SHAPES = (LAYERS[0], LAYERS[1]), (LAYERS[1],), (LAYERS[1], LAYERS[2]), (LAYERS[2],)
DIM = sum(int(numpy.prod(shape)) for shape in SHAPES)
HANG_S = 600
ROWS = [
    *(({"type": "fedavg", "local_steps": LOCAL_STEPS}, step) for step in (0.2, 0.3, 0.4, 0.6, 0.8)),
    *(({"type": "fedpaq", "local_steps": LOCAL_STEPS, "levels": levels}, step)
      for levels in (1, 4, 16) for step in (0.2, 0.4, 0.8)),
    *(({"type": "calm"}, step) for step in (0.2, 0.4, 0.6, 0.8, 1.1)),
]


def read_idx(folder, name, offset):
    path = folder / name
    data = path.read_bytes() if path.exists() else gzip.decompress((folder / f"{name}.gz").read_bytes())
    return numpy.frombuffer(data, numpy.uint8, offset=offset)


def read_images(folder, part):
    points = read_idx(folder, f"{part}-images-idx3-ubyte", 16).reshape(-1, LAYERS[0])
    return points.astype(numpy.float32) / 255, read_idx(folder, f"{part}-labels-idx1-ubyte", 8)


def split(weights):
    parts, start = [], 0
    for shape in SHAPES:
        size = int(numpy.prod(shape))
        parts.append(weights[start:start + size].reshape(shape))
        start += size
    return parts


def first_weights(seed):
    draw = numpy.random.default_rng(seed)
    parts = [draw.standard_normal(shape) * (2 / shape[0]) ** 0.5 if len(shape) == 2 else numpy.zeros(shape)
             for shape in SHAPES]
    return numpy.concatenate([part.ravel() for part in parts])


def forward(weights, points):
    """Returns the values of the hidden units and the logarithms of the probabilities."""
    into, into_bias, out, out_bias = split(weights)
    hidden = numpy.maximum(points @ into + into_bias, 0)
    logits = hidden @ out + out_bias
    logits -= logits.max(1, keepdims=True)
    return hidden, logits - numpy.log(numpy.exp(logits).sum(1, keepdims=True))


def gradient_of(weights, points, labels):
    out = split(weights)[2]
    hidden, logs = forward(weights, points)
    error = numpy.exp(logs)
    error[numpy.arange(len(labels)), labels] -= 1
    error /= len(labels)
    back = (error @ out.T) * (hidden > 0)
    return numpy.concatenate([(points.T @ back).ravel(), back.sum(0), (hidden.T @ error).ravel(), error.sum(0)])


def loss_and_accuracy(weights, images):
    points, labels = images
    logs = forward(weights.astype(numpy.float32), points)[1]
    return float(-logs[numpy.arange(len(labels)), labels].mean()), float((logs.argmax(1) == labels).mean())


class Coordinator:
    def __init__(self, folder):
        self.log = folder / "coordinator.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [BIN / "tally-coordinator", "--listen", "127.0.0.1:0", "--store", "memory:"],
                cwd=folder, stdout=output, stderr=output)
        self.client = tally.Client(f"http://127.0.0.1:{self.port()}", timeout_s=HANG_S)

    def port(self):
        until = time.monotonic() + HANG_S
        while self.process.poll() is None and time.monotonic() < until:
            listening = re.search(r"event=listening [^\n]*\bport=(\d+) ", self.log.read_text())
            if listening is not None:
                return int(listening[1])
            time.sleep(0.05)
        raise RuntimeError(self.log.read_text())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def run(coordinator, algorithm, seed, train, test):
    """Runs one job and returns its losses and bits; None if it diverges."""
    points, labels = (part.reshape(CLIENTS, -1, *part.shape[1:]) for part in train)
    start = first_weights(seed)

    def gradient(x, query):
        chosen = query.draws(points.shape[1])
        weights = (start + x).astype(numpy.float32)
        return gradient_of(weights, points[query.client][chosen], labels[query.client][chosen])

    job = coordinator.client.submit({
        "name": f"{algorithm['type']}-{algorithm['step_size']}-{seed}", "algorithm": algorithm, "clients": CLIENTS,
        "horizon": HORIZON, "minibatch": MINIBATCH, "seed": seed, "reference": {"type": "none"},
        "initial_point": {"type": "zeros"}, "objective": {"type": "plugin", "name": "python", "dim": DIM}})
    tally.Worker(coordinator.client.url, gradient, DIM, clients=CLIENTS, job=job, exit_when_idle=True).run()
    detail = coordinator.client.wait(job, wait_s=HANG_S)
    if detail["status"] != "completed":
        return None
    weights = start + coordinator.client.model(job)
    bits = detail["bits"]
    train_loss, _ = loss_and_accuracy(weights, train)
    test_loss, accuracy = loss_and_accuracy(weights, test)
    return {"up": bits["uplink_per_client"]["payload"] + bits["control"],
            "down": bits["downlink"]["payload"] + bits["control"], "control": bits["control"],
            "train_loss": train_loss, "test_loss": test_loss, "accuracy": accuracy,
            "rounds": coordinator.client.rounds(job)["samples"].tolist()}


def words_of(algorithm):
    others = [f"{name} {value}" for name, value in algorithm.items() if name not in ("type", "step_size")]
    return " ".join([algorithm["type"], *others])


def summary(algorithm, runs):
    """Returns the means of a row and their spread over seeds."""
    means = {name: statistics.mean(each[name] for each in runs)
             for name in ("up", "down", "control", "train_loss", "test_loss", "accuracy")}
    spread = statistics.stdev(each["test_loss"] for each in runs) if len(runs) > 1 else 0.0
    return {"method": words_of(algorithm), "step_size": algorithm["step_size"], **means, "spread": spread}


def print_row(row):
    print(f"{row['method']:28} {row['step_size']:<5g} {row['up']:12.0f} {row['down']:12.0f} {row['control']:8.0f} "
          f"{row['train_loss']:8.4f} {row['test_loss']:8.4f} +- {row['spread']:.4f} {100 * row['accuracy']:6.2f} %",
          flush=True)


def print_ratios(rows):
    """Prints the ratios to FedAvg at its best step size."""
    baselines = [row for row in rows if row["method"].startswith("fedavg")]
    if not baselines:
        return
    best = min(baselines, key=lambda row: row["test_loss"])
    print(f"\nagainst {best['method']} at {best['step_size']:g}")
    for row in rows:
        print(f"{row['method']:28} {row['step_size']:<5g} 1/{best['up'] / row['up']:.1f} up, "
              f"1/{best['down'] / row['down']:.1f} down, {row['test_loss'] / best['test_loss']:.3f} x the test loss")


def measure(folder, seeds, rows, show):
    train, test = read_images(folder, "train"), read_images(folder, "t10k")
    measured = []
    with tempfile.TemporaryDirectory() as scratch, Coordinator(pathlib.Path(scratch)) as coordinator:
        for algorithm, step_size in rows:
            full = {**algorithm, "step_size": step_size}
            runs = [run(coordinator, full, seed, train, test) for seed in seeds]
            if None in runs:
                print(f"{words_of(full)} at {step_size:g} diverged", file=sys.stderr)
                continue
            measured.append({**summary(full, runs), "runs": runs})
            show(measured[-1])
    return measured


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", metavar="MNIST", type=pathlib.Path)
    parser.add_argument("--seeds", default="101,102,103", help="comma-separated")
    parser.add_argument("--only", default="", help="only rows that begin with these words")
    parser.add_argument("--steps", default="", help="only these step sizes, comma-separated")
    parser.add_argument("--json", action="store_true", help="print JSON, with every run")
    arguments = parser.parse_args()
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    steps = [float(step) for step in arguments.steps.split(",") if step]
    rows = [(algorithm, step) for algorithm, step in ROWS
            if words_of(algorithm).startswith(arguments.only) and (not steps or step in steps)]
    rows = measure(arguments.folder, seeds, rows, (lambda row: None) if arguments.json else print_row)
    if arguments.json:
        print(json.dumps(rows, indent=2))
    else:
        print_ratios(rows)


if __name__ == "__main__":
    main()
