"""A first look at Tally in cells (# %%), for an editor, a notebook, or `python3 first_look.py`.

Runs one job with a gradient in Python on a coordinator of its own. The programs of Tally must be on PATH or in the
folder TALLY_BIN.
"""

# %% A problem: four clients, each with its own 50 points of a linear model with three parameters.
from typing import Any

import numpy as np
import tally
from numpy.typing import NDArray

truth = np.array([1.0, -2.0, 0.5])
random = np.random.default_rng(1)
points = random.normal(size=(4, 50, 3))
labels = points @ truth + 0.1 * random.normal(size=(4, 50))


def gradient(x: NDArray[np.float64], query: tally.Query) -> NDArray[Any]:
    at = query.draws(50)  # drawn with the job's random numbers, so that the result is reproducible
    a, b = points[query.client][at], labels[query.client][at]
    slope: NDArray[np.float64] = 2 * (a @ x - b) @ a / query.samples
    return slope


def loss(x: NDArray[np.float64], client: int) -> float:
    return float(((points[client] @ x - labels[client]) ** 2).mean())


# %% A job. f(x*) is the least mean loss, so that there is a regret.
best = np.linalg.lstsq(points.reshape(-1, 3), labels.reshape(-1), rcond=None)[0]
job = {
    "name": "first look", "algorithm": {"type": "fedavg", "step_size": 0.05, "local_steps": 10},
    "objective": {"type": "plugin", "name": "python", "dim": 3}, "clients": 4, "horizon": 200, "seed": 1,
    "reference": {"type": "value", "value": float(np.mean([loss(best, client) for client in range(4)]))},
}
detail = tally.simulate(job, gradient, loss=loss)
print(f"{detail['status']}: regret {detail['cumulative_regret']:.4g}, "
      f"{detail['bits']['uplink_per_client']['payload']:.0f} bits up per client")

# %% The same job on a coordinator that runs elsewhere, and what happened in each round:
#
#     job_id = tally.submit(job, url="http://127.0.0.1:8080")
#     tally.run_worker("http://127.0.0.1:8080", gradient, loss=loss, clients=4, job=job_id)
#     rounds = tally.rounds(job_id, url="http://127.0.0.1:8080")
#     print(rounds["t"], rounds["regret"])
#     tally.to_pandas(rounds).plot(x="t", y="regret")
