#!/usr/bin/python3
"""How long `tally reproduce` takes, as a ratio to the matrix products that it cannot avoid.

    tests/bench/bench_reproduce.py [--data-dir DIR] [--runs R]       TALLY_BIN: folder of the programs

The comparison is of processor time, not wall time, so other load on the machine matters little. The products are
computed by the same OpenBLAS on one thread, in the shapes that the objective uses: evaluating f along the clients'
iterates (float32, blocks of 256 images, 6 points at once), and stochastic gradients (float64, 25 images). The output
lists the other costs: starting the program; the data and f(x*), once per seed; and the remainder. For MNIST the
remainder is converting pixels to floats, exponentials and drawing samples. For synthetic it is drawing samples and
products of 30 numbers, which are too short to reach the speed of large products.

Fails if an experiment takes longer than its limit on two processors: 10 s for synthetic, 600 s for MNIST, both for
10 runs; times of fewer runs are scaled up.
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

JOBS = pathlib.Path(__file__).resolve().parents[2] / "deploy/jobs"
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
    """Returns the processor seconds of one C = A B, m x k times k x n, after a warm-up."""
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
    """Returns the processor seconds of the products in one run of all five algorithms."""
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
    """Returns processor seconds and wall seconds of a command."""
    def used():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before, start = used(), time.monotonic()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return used() - before, time.monotonic() - start


def start_s():
    """Returns the median processor seconds of a program that does nothing."""
    return sorted(processor_s([TALLY, "--version"])[0] for _ in range(9))[4]


def prepare_s(name, data_dir, start):
    """Returns the processor seconds for data and f(x*) of one seed: a job of one step, less the start of the program."""
    job = json.loads((JOBS / f"{name}.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "job.json"
        path.write_text(json.dumps({**job, "horizon": 1}))
        return processor_s([TALLY, "simulate", str(path), "--data-dir", data_dir])[0] - start


def report(experiment, runs, arguments, products, prepared_s, start):
    """Runs and prints one experiment; true if it keeps its limit. products: seconds of one run."""
    used, wall = processor_s([TALLY, "reproduce", experiment, "--no-grid", "--json", "--preset",
                              "paper", "--runs", str(runs), *arguments])
    parts = {name: runs * seconds for name, seconds in products.items()}
    whole = sum(parts.values())
    parts["the data and f(x*)"] = runs * prepared_s
    parts["starting"] = start
    parts["the rest"] = used - sum(parts.values())
    limit = LIMITS_S[experiment]
    projected = used / runs * PAPER_RUNS / PROCESSORS
    print(f"{experiment}: {runs} runs, {used:.2f} s of processors, {wall:.2f} s on the clock")
    for name, seconds in parts.items():
        print(f"  {name:<28} {seconds:9.3f} s  {100 * seconds / used:5.1f} %")
    print(f"  {'ratio to the pure products':<28} {used / whole:9.2f}")
    print(f"  {f'{PAPER_RUNS} runs on {PROCESSORS} processors':<28} {projected:9.2f} s, "
          f"limit {limit} s")
    return projected <= limit


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", help="folder of the MNIST files; without it synthetic alone")
    parser.add_argument("--runs", type=int, default=2, help="runs of MNIST (%(default)s)")
    arguments = parser.parse_args()
    library, start = blas(), start_s()
    kept = report("synthetic", PAPER_RUNS, [], {"products": synthetic_products_s(library)},
                  prepare_s("synthetic-fedavg", ".", start), start)
    if arguments.data_dir:
        evaluations, gradients = mnist_products_s(library)
        kept = report("mnist", arguments.runs, ["--data-dir", arguments.data_dir],
                      {"products that evaluate f": evaluations, "products of gradients": gradients},
                      prepare_s("mnist-fedavg", arguments.data_dir, start), start) and kept
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
