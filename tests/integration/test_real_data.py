"""Real data sets, each with a coordinator and four workers, compared with the results of scikit-learn.

    heart_scale     LIBSVM, sparse: Debian's liblinear-tools (Statlog heart, 270 points, 13 features)
    iris.csv        CSV with a header: Debian's python3-sklearn (Fisher's iris, 150 points, 4 features, 3 classes;
                    its header is that of scikit-learn, whose last word names the column of the labels)
    Fashion-MNIST   IDX, gzip: Debian's dataset-fashion-mnist, the 10,000 images of its test set

Shards are `contiguous`, so that it is known here which point counts how much: clients count alike, and the first
ones have a point more where the number is no multiple of four. With a step size that does not shrink, the noise of
the gradients leaves a gradient above zero at the end; the bounds below are some 1/10 of that at the start.
"""

import gzip
import struct
import unittest
from pathlib import Path

import numpy as np
import sklearn.datasets
from sklearn.linear_model import LogisticRegression

from common import TallyTestCase, essence, simulate

HEART = Path("/usr/share/doc/liblinear-tools/examples")
IRIS = Path(sklearn.datasets.__file__).parent / "data"
FASHION = Path("/usr/share/datasets/fashion-mnist")
CLIENTS = 4


def weights_of(n):
    """Returns the weights of the points of a file that is split into runs whose sizes differ by at most one, longer
    runs first."""
    sizes = [n // CLIENTS + (m < n % CLIENTS) for m in range(CLIENTS)]
    return np.repeat([1 / (CLIENTS * size) for size in sizes], sizes)


def with_ones(X):
    return np.hstack([X, np.ones((len(X), 1))])


def softmax(X, y, weights, W, l2):
    """Returns f and its gradient. W has a column per class, with the usual signs."""
    z = X @ W
    z -= z.max(axis=1, keepdims=True)
    logs = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    residual = np.exp(logs) - np.eye(W.shape[1])[y]
    value = -weights @ logs[np.arange(len(y)), y] + l2 * np.sum(W ** 2)
    return value, X.T @ (weights[:, None] * residual) + 2 * l2 * W


def logistic(X, y, weights, w, l2):
    margin = y * (X @ w)
    slope = -y / (1 + np.exp(margin))
    return weights @ np.logaddexp(0, -margin) + l2 * w @ w, X.T @ (weights * slope) + 2 * l2 * w


def fit(X, y, weights, l2):
    """Returns scikit-learn's minimiser. The weights add up to 1, so that C is 1 / (2 l2)."""
    return LogisticRegression(C=1 / (2 * l2), fit_intercept=False, tol=1e-10, max_iter=10000).fit(
        X, y, sample_weight=weights).coef_


class RealData(TallyTestCase):
    def run_job(self, folder, **document):
        """Returns the detail and the final model of a job served by four workers."""
        coordinator = self.start_coordinator(options=("--data-dir", folder))
        for i in range(CLIENTS):
            self.start_worker(coordinator, f"w{i}", clients=1, options=("--data-dir", folder))
        document = {"clients": CLIENTS, "seed": 1, **document}
        job_id = coordinator.client.submit(document)
        detail = coordinator.client.wait_status(job_id, "completed")
        if folder != FASHION:  # computing f(x*) can take seconds
            expected = simulate(document, ("--data-dir", folder))
            self.assertEqual(essence(detail), essence(expected))
            for key in ("smoothness", "strong_convexity"):
                self.assertEqual(detail[key], expected[key])
        self.assertEqual(detail["warnings"], [])
        return detail, np.array(coordinator.client.get_json(f"/v1/jobs/{job_id}/model")["x"])

    def check(self, detail, f, x, best, first_norm, last_norm):
        """Checks a job's result; f(point) returns (value, gradient)."""
        start, end, least = f(np.zeros_like(x)), f(x), f(best)
        norms = np.linalg.norm(start[1]), np.linalg.norm(end[1])
        print(f"{self.id().split('.')[-1]}: f {start[0]:.6f} -> {end[0]:.6f}, least {least[0]:.6f}; "
              f"|gradient| {norms[0]:.4f} -> {norms[1]:.4f}", flush=True)
        self.assertAlmostEqual(detail["f_star"], least[0], delta=1e-6 * least[0])
        self.assertGreater(norms[0], first_norm)
        self.assertLess(norms[1], last_norm)
        self.assertLess(end[0] - least[0], 0.01 * least[0])

    def test_libsvm(self):
        """CEAL with nothing set but the step size."""
        X, y = np.zeros((270, 13)), np.zeros(270)
        for i, line in enumerate((HEART / "heart_scale").read_text().splitlines()):
            label, *cells = line.split()
            y[i] = float(label)
            for column, value in (cell.split(":") for cell in cells):
                X[i, int(column) - 1] = float(value)
        detail, x = self.run_job(
            HEART, horizon=20000, minibatch=10,
            algorithm={"type": "ceal", "step_size": 0.5, "sigma": "auto", "gradient_bound": "auto"},
            objective={"type": "logistic_regression", "l2": 0.01, "bias": True,
                       "data": {"type": "libsvm", "file": "heart_scale", "features": 13, "sharding": "contiguous"}})
        X, weights = with_ones(X), weights_of(270)
        self.check(detail, lambda w: logistic(X, y, weights, w, 0.01), x, fit(X, y, weights, 0.01)[0], 0.4, 0.03)

    def test_csv(self):
        """Minibatch SGD on a file that is sorted by class, so that every client has different classes."""
        table = np.loadtxt(IRIS / "iris.csv", delimiter=",", skiprows=1)
        X, y, weights = with_ones(table[:, :4]), table[:, 4].astype(int), weights_of(150)
        detail, x = self.run_job(
            IRIS, horizon=40000, minibatch=10,
            algorithm={"type": "minibatch_sgd", "step_size": 0.06, "local_steps": 40},
            objective={"type": "softmax_regression", "l2": 0.01, "bias": True,
                       "data": {"type": "csv", "file": "iris.csv", "features": 4, "label": "virginica", "classes": 3,
                                "sharding": "contiguous"}})
        # The service's logits have the opposite sign.
        self.check(detail, lambda w: softmax(X, y, weights, w, 0.01), -x.reshape(5, 3), fit(X, y, weights, 0.01).T,
                   1.0, 0.1)

    def test_fashion_mnist(self):
        with gzip.open(FASHION / "t10k-images-idx3-ubyte.gz") as file:
            _, n, rows, columns = struct.unpack(">4I", file.read(16))
            X = np.frombuffer(file.read(), dtype=np.uint8).reshape(n, rows * columns) / 255
        with gzip.open(FASHION / "t10k-labels-idx1-ubyte.gz") as file:
            y = np.frombuffer(file.read()[8:], dtype=np.uint8).astype(int)
        detail, x = self.run_job(
            FASHION, horizon=800, minibatch=100,
            algorithm={"type": "minibatch_sgd", "step_size": 0.03, "local_steps": 8},
            objective={"type": "softmax_regression", "l2": 0.5,
                       "data": {"type": "idx", "images": "t10k-images-idx3-ubyte", "labels": "t10k-labels-idx1-ubyte",
                                "features": 784, "classes": 10, "points_per_class": 1000}})
        weights = weights_of(n)  # 2500 each, in whatever order
        self.check(detail, lambda w: softmax(X, y, weights, w, 0.5), -x.reshape(784, 10), fit(X, y, weights, 0.5).T,
                   1.0, 0.1)


if __name__ == "__main__":
    unittest.main()
