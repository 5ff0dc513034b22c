#!/usr/bin/python3
"""A network's accuracy against the bits of its training: the picture and the figures of README.md.

    tests/bench/training.py DIR IMAGES [--seeds 101,102,103] [--rounds 20] [--only WORDS] [--draw]
        TALLY_BIN: folder of the programs, TALLY_LIBRARY: path of libtally.so.1

IMAGES is the folder of the four files that deploy/fetch-mnist makes. Ten clients, each with a tenth of the training
images in an order drawn from the seed, train a network of 784, 128 and 10 units by SGD with momentum 0.9, batches of 64
and a step of 0.05, which shrinks by 5 % a round; a round is one pass over a client's images. Needs PyTorch.

Jobs run on a coordinator, whose round records have the bits: payload and control, what one client sends and receives.
Top-k is not among Tally's algorithms for training loops. It runs in this process, with the same clients, order of
images and start: clients and server keep the k coordinates that are largest and add what they leave out to the next
message (error feedback at both ends). Its bits are a lower bound: 32 for each value, and the entropy of which
coordinates they are.

Writes rounds.csv to DIR, a line for each round of each run, appending to what is there; runs that are there already
are left out. Prints means over seeds. --draw draws training.svg and .png with gnuplot from the means, by training.gnuplot,
which stays in DIR.
"""

import argparse
import csv
import dataclasses
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy
import torch
from network import HANG_S, Coordinator, read_images, tally
from torch.nn import Conv2d, Flatten, Linear, MaxPool2d, ReLU, Sequential, Unflatten
from torch.nn.functional import cross_entropy

NETWORKS = {
    "MLP": lambda: Sequential(Linear(784, 128), ReLU(), Linear(128, 10)),
    "large MLP": lambda: Sequential(Linear(784, 1024), ReLU(), Linear(1024, 196), ReLU(), Linear(196, 10)),
    "CNN": lambda: Sequential(
        Unflatten(1, (1, 28, 28)), Conv2d(1, 8, 5), ReLU(), MaxPool2d(2), Conv2d(8, 16, 5), ReLU(), MaxPool2d(2),
        Flatten(), Linear(256, 400), ReLU(), Linear(400, 10)),
}
FEDAVG, AUTO = "FedAvg", "FedAvg, compression auto"
ALGORITHMS = {FEDAVG: {"type": "fedavg"}, AUTO: {"type": "fedavg", "compression": "auto"},
              "FedPAQ, 7 levels": {"type": "fedpaq", "levels": 7}}
TOP_K = {"Top-k, 1 %": 0.01, "Top-k, 5 %": 0.05}
# Colour, mostly of Okabe and Ito, dash and mark. Of FedPAQ, 7 levels: the fewest bits without a loss in a run with seed 7 and
# six rounds (1 level 79.9 %, 3 levels 84.1 %, 7, 31, 127 and 511 levels 84.6 to 84.7 %, float32 84.7 %).
DRAWN = {FEDAVG: ("#e69f00", 2, 5), "FedPAQ, 7 levels": ("#009e73", 3, 9), "Top-k, 1 %": ("#66a61e", 4, 13),
         "Top-k, 5 %": ("#56b4e9", 5, 11), AUTO: ("#000000", 1, 7)}
FIELDS = "method", "seed", "round", "bits_up", "bits_down", "accuracy"


@dataclasses.dataclass(frozen=True)
class Setup:
    """What is trained. The defaults are the picture's."""

    rounds: int = 20
    network: str = "MLP"
    clients: int = 10
    cohort: int = 0  # clients of a round; 0: all
    images: int = 0  # of all clients together; 0: all there are
    concentration: float = 0  # of the Dirichlet distribution of each class over the clients; 0: equal shards
    batch: int = 64
    adam: bool = False  # with its usual step of 0.001, begun anew in each round, instead of momentum

    @property
    def of_round(self):
        return self.cohort or self.clients


def shards_of(setup, labels, rng):
    """Returns the numbers of each client's images."""
    order = rng.permutation(len(labels))
    if setup.concentration == 0:
        return numpy.array_split(order[:setup.images or len(order)], setup.clients)
    parts = [[] for _ in range(setup.clients)]
    for label in range(10):
        those = order[labels[order] == label]
        shares = rng.dirichlet([setup.concentration] * setup.clients).cumsum()[:-1]
        for part, chosen in zip(parts, numpy.split(those, (shares * len(those)).astype(int))):
            part.append(chosen)
    shards = [numpy.concatenate(part) for part in parts]
    # A client without images gets one: `samples` is at least 1.
    return [shard if len(shard) else order[i:i + 1] for i, shard in enumerate(shards)]


class Problem:
    """The clients of one seed: their images, their training loop, and the test images."""

    def __init__(self, setup, images, seed):
        (self.points, self.labels), self.test = ([torch.from_numpy(part.astype(kind)) for part, kind in zip(
            images[name], (numpy.float32, numpy.int64))] for name in ("train", "t10k"))
        self.shards = shards_of(setup, self.labels.numpy(), numpy.random.default_rng(seed))
        torch.manual_seed(seed)
        self.model = NETWORKS[setup.network]()
        self.setup, self.seed, self.start = setup, seed, tally.torch.flatten(self.model)

    def optimizer(self, round_):
        shrunk = 0.95 ** (round_ - 1)
        if self.setup.adam:
            return torch.optim.Adam(self.model.parameters(), lr=0.001 * shrunk)
        return torch.optim.SGD(self.model.parameters(), lr=0.05 * shrunk, momentum=0.9)

    def steps(self, weights, client, round_):
        """Returns the weights after one pass over the client's images."""
        tally.torch.load(self.model, weights)
        optimizer = self.optimizer(round_)
        order = numpy.random.default_rng([self.seed, client, round_]).permutation(self.shards[client])
        for batch in torch.from_numpy(order).split(self.setup.batch):
            optimizer.zero_grad()
            cross_entropy(self.model(self.points[batch]), self.labels[batch]).backward()
            optimizer.step()
        return tally.torch.flatten(self.model)

    def accuracy(self, weights):
        tally.torch.load(self.model, weights)
        with torch.no_grad():
            return float((self.model(self.test[0]).argmax(1) == self.test[1]).double().mean())


def run_job(problem, algorithm):
    """Returns bits up of one client, bits down and accuracy of each round."""
    setup = problem.setup
    with tempfile.TemporaryDirectory() as folder, Coordinator(pathlib.Path(folder)) as coordinator:
        client = coordinator.client
        job = client.submit({
            "objective": {"type": "training", "name": "python", "dim": len(problem.start)}, "algorithm": algorithm,
            "clients": setup.clients, "cohort": setup.of_round, "horizon": setup.rounds, "seed": problem.seed,
            "weighting": "points", "initial_point": {"type": "first"}})
        tally.run_worker(
            client.url, clients=setup.clients, job=job, initial=problem.start,
            train=lambda weights, task: tally.Update(problem.steps(weights, task.client, task.round),
                                                     samples=len(problem.shards[task.client])),
            evaluate=lambda weights, task: {"accuracy": problem.accuracy(weights)})
        client.wait(job, wait_s=HANG_S)
        return [(float(each["uplink_payload_bits"]) / setup.of_round,
                 float(each["downlink_payload_bits"] + each["control_bits"]), float(each["accuracy_mean"]))
                for each in client.rounds(job)]


def largest(vector, k):
    """Returns the vector with all but the k coordinates of largest magnitude set to zero."""
    kept = numpy.zeros_like(vector)
    chosen = numpy.argpartition(numpy.abs(vector), -k)[-k:]
    kept[chosen] = vector[chosen]
    return kept


def run_top_k(problem, share):
    dim = len(problem.start)
    k = math.ceil(share * dim)
    bits = 32 * k + dim * (-share * math.log2(share) - (1 - share) * math.log2(1 - share))
    x = problem.start.astype(numpy.float64)  # what the clients have
    z = x.copy()  # the server's; z - x is what its broadcasts have left out
    left_out, rows = numpy.zeros((problem.setup.clients, dim)), []
    shares = numpy.array([len(shard) for shard in problem.shards]) / len(problem.labels)
    for round_ in range(1, problem.setup.rounds + 1):
        for m in range(problem.setup.clients):
            change = problem.steps(x.astype(numpy.float32), m, round_) - x + left_out[m]
            sent = largest(change, k)
            left_out[m] = change - sent
            z += shares[m] * sent
        x = x + largest(z - x, k)
        rows.append((bits, bits, problem.accuracy(x.astype(numpy.float32))))
    return rows


def run(problem, method):
    if method in TOP_K:
        return run_top_k(problem, TOP_K[method])
    return run_job(problem, ALGORITHMS[method])


def images_of(folder):
    return {part: read_images(folder, part) for part in ("train", "t10k")}


def read_runs(path):
    """Returns {(method, seed): [(bits up, bits down, accuracy), ...]}."""
    runs = {}
    if path.exists():
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                runs.setdefault((row["method"], int(row["seed"])), []).append(
                    tuple(float(row[name]) for name in FIELDS[3:]))
    return runs


def measure(path, setup, images, methods, seeds):
    """Appends a line for each round of the runs that are not in the file."""
    runs = read_runs(path)
    wanted = [(method, seed) for seed in seeds for method in methods if (method, seed) not in runs]
    with path.open("a", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        if not runs:
            lines.writerow(FIELDS)
        for method, seed in wanted:
            torch.set_num_threads(1)  # batches are too small for more
            rows = run(Problem(setup, images, seed), method)
            lines.writerows([method, seed, i, *(f"{value:.10g}" for value in row)] for i, row in enumerate(rows, 1))
            file.flush()


def means_of(runs, seeds):
    """Returns, by method, the means over seeds after each round: bits up and down so far, and accuracy. Only methods
    that have run with every seed."""
    means = {}
    for method in dict.fromkeys(method for method, _ in runs):
        every = [numpy.array(runs[method, seed]) for seed in seeds if (method, seed) in runs]
        if len(every) == len(seeds):
            means[method] = numpy.mean([numpy.column_stack([part[:, :2].cumsum(0), part[:, 2]]) for part in every], 0)
    return means


def table(runs, seeds):
    means = means_of(runs, seeds)
    if FEDAVG not in means:
        return
    print(f"{'method':26} {'bits up':>12} {'down':>12}      up    down  accuracy")
    for method, mean in means.items():
        up, down = means[FEDAVG][-1, :2] / mean[-1, :2]
        last = [runs[method, seed][-1][2] for seed in seeds]
        spread = statistics.stdev(last) if len(last) > 1 else 0
        print(f"{method:26} {mean[-1, 0]:12,.0f} {mean[-1, 1]:12,.0f}  1/{up:<5.1f} 1/{down:<5.1f} "
              f"{100 * mean[-1, 2]:.2f} +- {100 * spread:.2f}, " + ", ".join(f"{100 * value:.2f}" for value in last))


def script(methods):
    lines = ", \\\n     ".join(
        f'"means.csv" skip 1 using ($1 == {i} ? $3 : NaN):4 with linespoints lw 2 dt {dash} pt {mark} '
        f'ps 0.7 lc rgb "{colour}" title "{method}"'
        for i, method in enumerate(methods) if method in DRAWN for colour, dash, mark in [DRAWN[method]])
    return """set encoding utf8
set datafile separator comma
set datafile missing NaN
set border 3 lw 1 lc rgb "#444444"
set tics nomirror out textcolor rgb "#222222"
set grid lc rgb "#dddddd" lw 1
set logscale x
set xtics format "%.0s%c"
set ytics format "%.0f %%"
set yrange [70:*]
set xlabel "bits that one client has sent and received"
set ylabel "test accuracy"
set key bottom right reverse Left samplen 3
""" + "".join(f'set terminal {terminal} size 900,420 font "{font},13" background "white" noenhanced\n'
              f'set output "training.{ending}"\nplot {lines}\n'
              for terminal, ending, font in (("svg", "svg", "sans-serif"), ("pngcairo", "png", "sans"))) + "unset output\n"


def draw(folder, means):
    with (folder / "means.csv").open("w", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(("number", "method", "bits", "accuracy"))
        for i, (method, mean) in enumerate(means.items()):
            lines.writerows((i, method, f"{up + down:.9g}", f"{100 * accuracy:.9g}") for up, down, accuracy in mean)
    (folder / "training.gnuplot").write_text(script(means))
    try:
        subprocess.run(["gnuplot", "training.gnuplot"], cwd=folder, check=True)
    except FileNotFoundError:
        print(f"no picture: gnuplot is not installed; its script is {folder}/training.gnuplot", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", metavar="DIR", type=pathlib.Path)
    parser.add_argument("images", metavar="IMAGES", type=pathlib.Path)
    parser.add_argument("--seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=[101, 102, 103])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", default="", help="only methods that begin with these words")
    parser.add_argument("--draw", action="store_true", help="draw the picture")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    methods = [method for method in [*ALGORITHMS, *TOP_K] if method.startswith(arguments.only)]
    measure(arguments.folder / "rounds.csv", Setup(rounds=arguments.rounds), images_of(arguments.images), methods,
            arguments.seeds)
    runs = read_runs(arguments.folder / "rounds.csv")
    table(runs, arguments.seeds)
    if arguments.draw:
        draw(arguments.folder, means_of(runs, arguments.seeds))


if __name__ == "__main__":
    main()
