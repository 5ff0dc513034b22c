"""Softmax regression with PyTorch. Any model whose loss torch can differentiate works in this way.

    tally-coordinator &
    python3 pytorch_softmax_regression.py [URL]

The concatenated parameters of the model are Tally's x, and a query is one backward pass over random points of a
client. Tally does the quantization, the encoding and the server's step.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import tally

CLIENTS, POINTS, FEATURES, CLASSES, L2 = 4, 300, 8, 3, 0.01

torch.manual_seed(1)
MODEL = torch.nn.Linear(FEATURES, CLASSES).double()
DIM = sum(parameter.numel() for parameter in MODEL.parameters())
_truth = torch.randn(FEATURES, CLASSES, dtype=torch.float64)
X = torch.randn(CLIENTS, POINTS, FEATURES, dtype=torch.float64)
Y = (X @ _truth + torch.randn(CLIENTS, POINTS, CLASSES, dtype=torch.float64)).argmax(2)


def loss_at(x: NDArray[np.float64], points: Any, labels: Any) -> Any:
    vector_to_parameters(torch.from_numpy(x), MODEL.parameters())
    squares = sum((parameter**2).sum() for parameter in MODEL.parameters())
    return torch.nn.functional.cross_entropy(MODEL(points), labels) + L2 * squares


def gradient(x: NDArray[np.float64], query: tally.Query) -> Any:
    at = torch.from_numpy(query.draws(POINTS))
    MODEL.zero_grad()
    loss_at(x, X[query.client][at], Y[query.client][at]).backward()
    return parameters_to_vector(parameter.grad for parameter in MODEL.parameters()).numpy()


def loss(x: NDArray[np.float64], client: int) -> float:
    with torch.no_grad():
        return float(loss_at(x, X[client], Y[client]))


JOB = {
    "name": "pytorch-softmax-regression",
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

    vector_to_parameters(torch.from_numpy(client.model(job)), MODEL.parameters())
    right = (MODEL(X).argmax(2) == Y).double().mean().item()
    print(f"{client.show(job)['status']}: {right:.1%} of the points are right")


if __name__ == "__main__":
    main()
