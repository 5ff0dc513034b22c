"""A training loop of one's own: four clients train a small network with NumPy, each on its own points, by SGD with
momentum. The whole job runs here, in seconds: `python3 training_loop.py`.

Expected: an accuracy of 0.97 to 1, and 9,000 to 12,000 bits up for each client and 11,500 to 15,000 down. With
"compression": "none" these are 79,680 and 78,720: grids are fine for so few weights. On a coordinator, submit `JOB`
and run `tally.run_worker(url, train=train, initial=START, clients=4)`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import tally

Array = NDArray[Any]
CLIENTS, HIDDEN = 4, 16
SHAPES = (2, HIDDEN), (HIDDEN,), (HIDDEN, 2), (2,)
_draw = np.random.default_rng(1)
START = tally.arrays.flatten(0.5 * _draw.standard_normal(shape) for shape in SHAPES)


def points(draw: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Returns n points of a plane, and whether each is in the first or third quarter."""
    x = draw.standard_normal((n, 2))
    return x, (x[:, 0] * x[:, 1] > 0).astype(int)


DATA = [points(np.random.default_rng(client), 200 + 100 * client) for client in range(CLIENTS)]
TEST = points(np.random.default_rng(99), 1000)


def forward(weights: Array, x: Array) -> tuple[Array, Array]:
    a, b, c, d = tally.arrays.split(weights, SHAPES)
    hidden = np.maximum(x @ a + b, 0)
    scores = hidden @ c + d
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return hidden, scores / scores.sum(axis=1, keepdims=True)


def gradient(weights: Array, x: Array, y: Array) -> Array:
    hidden, error = forward(weights, x)
    error[np.arange(len(y)), y] -= 1
    back = (error @ tally.arrays.split(weights, SHAPES)[2].T) * (hidden > 0)
    return tally.arrays.flatten([x.T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0)]) / len(y)


def accuracy(weights: Array) -> float:
    return float((forward(weights, TEST[0])[1].argmax(axis=1) == TEST[1]).mean())


def train(weights: Array, task: tally.Task) -> tally.Update:
    x, y = DATA[task.client]
    draw = np.random.default_rng([task.seed, task.client, task.round])
    speed = np.zeros_like(weights)
    before = accuracy(weights)
    for batch in np.array_split(draw.permutation(len(y)), len(y) // 20):
        speed = 0.9 * speed - 0.1 * 0.95 ** (task.round - 1) * gradient(weights, x[batch], y[batch])
        weights += speed
    return tally.Update(weights, samples=len(y), metrics={"test_accuracy": before})


JOB = {
    "name": "quarters", "seed": 1, "clients": CLIENTS, "horizon": 30, "weighting": "points",
    "objective": {"type": "training", "name": "python", "dim": len(START)},
    "algorithm": {"type": "fedavg", "compression": "auto"}, "initial_point": {"type": "first"},
}

if __name__ == "__main__":
    detail = tally.simulate(JOB, train=train, initial=START)
    print(f"{detail['round']} rounds, {detail['bits']['uplink_per_client']['payload']:.0f} bits up for each client, "
          f"{detail['bits']['downlink']['payload']} down, "
          f"accuracy before the last round {detail['metrics']['test_accuracy']['mean']:.3f}")
