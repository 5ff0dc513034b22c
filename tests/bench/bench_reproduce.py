#!/usr/bin/python3
"""How long `tally reproduce` takes, as a ratio to the matrix products that it cannot do without.

    tests/bench/bench_reproduce.py [--data-dir DIR] [--runs R]       TALLY_BIN: folder of the programs

Processor time is compared, not wall time, so that other load on the machine matters little. The
products are done by the same OpenBLAS on one thread, in the shapes that the objective uses:
evaluating f along the clients' iterates (float32, blocks of 256 images, 6 points at once), and
stochastic gradients (float64, 25 images). What is left is named: f(x*), which is solved once per
seed, and the rest: turning pixels into floats, exponentials, drawing samples, quantizing.

Fails if the whole needs more than its limit on two processors: 10 s for synthetic, 600 s for MNIST,
both for 10 runs; fewer runs are scaled up.
"""

import argparse
import ctypes
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

TALLY = str(pathlib.Path(os.environ.get("TALLY_BIN", "build/release/bin")).resolve() / "tally")
PROCESSORS = 2
PAPER_RUNS = 10
LIMITS_S = {"synthetic": 10, "mnist": 600}
ROW_MAJOR, NO_TRANS, TRANS = 101, 111, 112

CLIENTS = 10
LOCAL_STEP_ALGORITHMS = 3  # FedAvg, FedPAQ, FedCOM evaluate at every client's own iterate
# Per run: rounds, evaluated points per client and round, steps, images, features, classes, batch.
MNIST = {"rounds": 20, "points": 6, "steps": 1000, "images": 50000, "features": 784, "classes": 10,
         "batch": 25}
SYNTHETIC = {"steps": 2000, "dim": 30}


def blas():
    library = ctypes.CDLL("libopenblas.so.0")
    library.openblas_set_num_threads(1)
    return library


def seconds_per_product(library, kind, trans_a, m, n, k):
    """Processor seconds of one C = A B, m x k times k x n, after a warm-up."""
    number, scalar = {"s": (ctypes.c_float, ctypes.c_float),
                      "d": (ctypes.c_double, ctypes.c_double)}[kind]
    a, b, c = ((number * (rows * columns))(*([1.0] * (rows * columns)))
               for rows, columns in ((m, k), (k, n), (m, n)))
    gemm = getattr(library, f"cblas_{kind}gemm")

    def repeat(times):
        start = time.process_time()
        for _ in range(times):
            gemm(ROW_MAJOR, trans_a, NO_TRANS, m, n, k, scalar(1), a, m if trans_a == TRANS else k,
                 b, n, scalar(0), c, n)
        return time.process_time() - start

    repeat(3)
    times = max(3, int(2e9 / (2 * m * n * k)))
    return repeat(times) / times


def mnist_products_s(library):
    """Of one run of all five algorithms."""
    size = MNIST
    blocks = size["images"] / 256
    evaluation = blocks * seconds_per_product(
        library, "s", NO_TRANS, 256, size["points"] * size["classes"], size["features"])
    evaluations = LOCAL_STEP_ALGORITHMS * size["rounds"] * CLIENTS * evaluation
    gradient = (
        seconds_per_product(library, "d", NO_TRANS, size["batch"], size["classes"], size["features"])
        + seconds_per_product(library, "d", TRANS, size["features"], size["classes"], size["batch"]))
    return evaluations, 5 * size["steps"] * CLIENTS * gradient


def synthetic_products_s(library):
    """Gradients are two passes over a row; f is a quadratic form. As if one large product did it."""
    size = SYNTHETIC
    steps = CLIENTS * size["steps"]
    flops = 5 * steps * 4 * size["dim"] + LOCAL_STEP_ALGORITHMS * steps * 2 * size["dim"] ** 2
    return flops * seconds_per_product(library, "d", NO_TRANS, 256, 256, 256) / (2 * 256 ** 3)


def processor_s(words):
    """Processor seconds and wall seconds of a command."""
    def used():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before, start = used(), time.monotonic()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return used() - before, time.monotonic() - start


def solve_s(data_dir):
    """Processor seconds for f(x*) of one seed: a job of one step with it, less one without."""
    job = {"name": "bench", "algorithm": {"type": "minibatch_sgd", "step_size": 1, "local_steps": 50},
           "objective": {"type": "softmax_regression", "l2": 0.5, "data": {
               "type": "idx", "images": "train-images-idx3-ubyte",
               "labels": "train-labels-idx1-ubyte", "features": 784, "classes": 10,
               "points_per_class": 5000}},
           "clients": CLIENTS, "horizon": 1, "initial_point": {"type": "zeros"}}
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        for reference in ({"type": "solve"}, {"type": "value", "value": 0}):
            path = pathlib.Path(folder) / "job.json"
            path.write_text(json.dumps({**job, "reference": reference}))
            seconds.append(processor_s([TALLY, "simulate", str(path), "--data-dir", data_dir])[0])
    return seconds[0] - seconds[1]


def report(experiment, runs, used, wall, parts):
    """Prints one experiment; true if it keeps its limit."""
    limit = LIMITS_S[experiment]
    products = sum(parts.values())
    projected = used / runs * PAPER_RUNS / PROCESSORS
    print(f"{experiment}: {runs} runs, {used:.2f} s of processors, {wall:.2f} s on the clock")
    for name, seconds in parts.items():
        print(f"  {name:<42} {seconds:9.3f} s  {100 * seconds / used:5.1f} %")
    print(f"  {'ratio to the pure products':<42} {used / products:9.2f}")
    print(f"  {f'{PAPER_RUNS} runs on {PROCESSORS} processors':<42} {projected:9.2f} s, "
          f"limit {limit} s")
    return projected <= limit


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", help="folder of the MNIST files; without it synthetic alone")
    parser.add_argument("--runs", type=int, default=2, help="runs of MNIST (%(default)s)")
    arguments = parser.parse_args()
    library = blas()
    command = [TALLY, "reproduce", "--no-grid", "--json"]

    used, wall = processor_s([*command, "synthetic"])
    kept = report("synthetic", PAPER_RUNS, used, wall,
                  {"products": PAPER_RUNS * synthetic_products_s(library)})
    if arguments.data_dir:
        evaluations, gradients = mnist_products_s(library)
        runs = arguments.runs
        solving = runs * solve_s(arguments.data_dir)
        used, wall = processor_s([*command, "mnist", "--data-dir", arguments.data_dir, "--preset",
                                  "paper", "--runs", str(runs)])
        kept = report("mnist", runs, used, wall,
                      {"products that evaluate f": runs * evaluations,
                       "products of gradients": runs * gradients}) and kept
        print(f"  {'solving f(x*)':<42} {solving:9.3f} s  {100 * solving / used:5.1f} %")
        rest = used - solving - runs * (evaluations + gradients)
        print(f"  {'the rest: pixels to floats, exp, sampling':<42} {rest:9.3f} s  "
              f"{100 * rest / used:5.1f} %")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
