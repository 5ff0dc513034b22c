"""A training loop of one's own: four clients train a small network with NumPy, each on its own points, by SGD with
momentum. The whole job runs here: `python3 training_loop.py`. On a coordinator, submit `job` and run
`tally.run_worker(url, train=train, clients=4)`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import tally

Array = NDArray[Any]
CLIENTS, HIDDEN = 4, 16
SHAPES: tuple[tuple[int, ...], ...] = (2, HIDDEN), (HIDDEN,), (HIDDEN, 2), (2,)
DIM = sum(int(np.prod(shape)) for shape in SHAPES)


def points(draw: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Returns n points of a plane, and whether each is in the first or third quarter."""
    x = draw.standard_normal((n, 2))
    return x, (x[:, 0] * x[:, 1] > 0).astype(int)


DATA = [points(np.random.default_rng(client), 200 + 100 * client) for client in range(CLIENTS)]
TEST = points(np.random.default_rng(99), 1000)


def layers(weights: Array) -> list[Array]:
    """Returns views of the parts of a flat vector."""
    ends = np.cumsum([int(np.prod(shape)) for shape in SHAPES])
    return [part.reshape(shape) for part, shape in zip(np.split(weights, ends[:-1]), SHAPES)]


def forward(weights: Array, x: Array) -> tuple[Array, Array]:
    a, b, c, d = layers(weights)
    hidden = np.maximum(x @ a + b, 0)
    scores = hidden @ c + d
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return hidden, scores / scores.sum(axis=1, keepdims=True)


def gradient(weights: Array, x: Array, y: Array) -> Array:
    hidden, error = forward(weights, x)
    error[np.arange(len(y)), y] -= 1
    back = (error @ layers(weights)[2].T) * (hidden > 0)
    parts = x.T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0)
    return np.asarray(np.concatenate([part.ravel() for part in parts]) / len(y))


def accuracy(weights: Array) -> float:
    return float((forward(weights, TEST[0])[1].argmax(axis=1) == TEST[1]).mean())


def train(weights: Array, task: tally.Task) -> tally.Update:
    if task.round == 1:  # the job starts at zeros; a network starts at random weights, the same at all clients
        weights = np.random.default_rng(task.seed).standard_normal(DIM) * 0.5
    x, y = DATA[task.client]
    draw = np.random.default_rng([task.seed, task.client, task.round])
    speed = np.zeros(DIM)
    before = accuracy(weights)
    for batch in np.array_split(draw.permutation(len(y)), len(y) // 20):
        speed = 0.9 * speed - 0.1 * 0.95 ** (task.round - 1) * gradient(weights, x[batch], y[batch])
        weights = weights + speed
    return tally.Update(weights, samples=len(y), metrics={"test_accuracy": before})


job = {
    "name": "quarters", "seed": 1, "clients": CLIENTS, "horizon": 30, "weighting": "points",
    "objective": {"type": "training", "name": "python", "dim": DIM}, "algorithm": {"type": "fedavg"},
}

if __name__ == "__main__":
    detail = tally.simulate(job, train=train)
    print(f"{detail['round']} rounds, {detail['bits']['uplink_per_client']['payload']:.0f} bits up for each client, "
          f"accuracy before the last round {detail['metrics']['test_accuracy']['mean']:.3f}")
