"""Logistic regression with NumPy, on data that only this process has.

    tally-coordinator &
    python3 numpy_logistic_regression.py [URL]

Submits a job, runs its four clients, and prints the accuracy of the model. The clients measure gradient bound and
sigma, so only a step size is left to choose.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tally

CLIENTS, POINTS, DIM, L2 = 4, 500, 10, 0.01

# Every client has points of its own: here they are drawn, elsewhere np.load(f"client-{m}.npz").
_random = np.random.default_rng(1)
_truth = _random.normal(size=DIM)
X: NDArray[Any] = _random.normal(size=(CLIENTS, POINTS, DIM))
Y: NDArray[Any] = np.where(X @ _truth + _random.normal(size=(CLIENTS, POINTS)) > 0, 1.0, -1.0)


def gradient(x: NDArray[np.float64], query: tally.Query) -> NDArray[Any]:
    """Returns the mean gradient over as many random points of one client as the round requires."""
    at = query.draws(POINTS)
    points, labels = X[query.client][at], Y[query.client][at]
    weights = -labels / (1 + np.exp(labels * (points @ x)))
    return np.asarray(weights @ points / query.samples + 2 * L2 * x)


def loss(x: NDArray[np.float64], client: int) -> float:
    return float(np.mean(np.log1p(np.exp(-Y[client] * (X[client] @ x)))) + L2 * (x @ x))


JOB = {
    "name": "numpy-logistic-regression",
    "algorithm": {"type": "ceal", "step_size": 1.0, "sigma": "auto", "gradient_bound": "auto"},
    "objective": {"type": "plugin", "name": "python", "dim": DIM},
    "clients": CLIENTS, "horizon": 20000, "seed": 1, "initial_point": {"type": "zeros"},
    "reference": {"type": "none"},
}


def main() -> None:
    url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080"
    client = tally.Client(url)
    job = client.submit(JOB)
    worker = tally.Worker(url, gradient, DIM, loss=loss, clients=CLIENTS, job=job)
    thread = threading.Thread(target=worker.run)
    thread.start()
    for event in client.watch(job, after=0):
        if event.kind == "round":
            print(f"round {event.data['round']}: loss {event.data['loss']:.4f}")
    worker.stop()
    thread.join()

    x = client.model(job)
    detail = client.show(job)
    bits = detail["bits"]["uplink"]["payload"] / CLIENTS
    print(f"{detail['status']}: {np.mean(np.sign(X @ x) == Y):.1%} of the points are right, "
          f"after {bits:.0f} bits from each client")


if __name__ == "__main__":
    main()
