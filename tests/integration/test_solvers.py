"""f(x*) and the curvature of f, as the service computes them, against SciPy, scikit-learn and LAPACK.

The tests run `tally simulate` with one time step on generated files. scikit-learn and SciPy, both from Debian, minimise
the same sums with code of their own.
"""

import gzip
import json
import subprocess
import unittest
from pathlib import Path

import numpy as np
from scipy import optimize
from sklearn import datasets
from sklearn.linear_model import LogisticRegression

from common import BIN, HANG_S, TallyTestCase


def detail_of(objective, folder, **more):
    """Returns the detail of one time step of a job on that objective. There is one client, so that all points have
    equal weight."""
    document = {"algorithm": {"type": "minibatch_sgd", "step_size": 1e-9, "local_steps": 1},
                "objective": objective, "clients": 1, "horizon": 1, **more}
    path = Path(folder) / "job.json"
    path.write_text(json.dumps(document))
    done = subprocess.run([BIN / "tally", "simulate", path, "--json", "--data-dir", folder],
                          capture_output=True, text=True, timeout=HANG_S, check=False)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)


def minimum(value_and_gradient, dim, **options):
    """Returns the minimum found by SciPy's L-BFGS at tight tolerances."""
    found = optimize.minimize(value_and_gradient, np.zeros(dim), jac=True, method="L-BFGS-B",
                              options={"maxiter": 50000, "maxfun": 100000, "ftol": 1e-16, "gtol": 1e-11,
                                       "maxcor": 50}, **options)
    return found.fun


def least_squares(X, y, l2):
    return lambda w: (np.mean((X @ w - y) ** 2) + l2 * w @ w, 2 * X.T @ (X @ w - y) / len(y) + 2 * l2 * w)


def huber(X, y, l2, threshold):
    def at(w):
        r = X @ w - y
        inside = np.abs(r) <= threshold
        value = np.where(inside, r ** 2, threshold * (2 * np.abs(r) - threshold))
        return np.mean(value) + l2 * w @ w, X.T @ (2 * np.clip(r, -threshold, threshold)) / len(y) + 2 * l2 * w
    return at


def logistic(X, y, l2):
    def at(w):
        margin = y * (X @ w)
        slope = -y / (1 + np.exp(margin))
        return np.mean(np.logaddexp(0, -margin)) + l2 * w @ w, X.T @ slope / len(y) + 2 * l2 * w
    return at


def softmax(X, y, l2, classes):
    """Uses the signs of the service: logits are -X W."""
    def at(flat):
        W = flat.reshape(X.shape[1], classes)
        z = -X @ W
        z -= z.max(axis=1, keepdims=True)
        logs = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
        residual = np.eye(classes)[y] - np.exp(logs)
        gradient = X.T @ residual / len(y) + 2 * l2 * W
        return -np.mean(logs[np.arange(len(y)), y]) + l2 * flat @ flat, gradient.ravel()
    return at


def with_ones(X):
    return np.hstack([X, np.ones((len(X), 1))])


class Solvers(TallyTestCase):
    def points(self, X, y, classes=None):
        np.save(Path(self.folder) / "X.npy", X)
        np.save(Path(self.folder) / "y.npy", y)
        data = {"type": "npy", "points": "X.npy", "labels": "y.npy", "features": X.shape[1]}
        return data if classes is None else {**data, "classes": classes}

    def expect(self, detail, f_star, relative=1e-7):
        self.assertAlmostEqual(detail["f_star"], f_star, delta=relative * abs(f_star))

    def test_generated_points(self):
        random = np.random.default_rng(7)
        X = random.standard_normal((300, 12)) * np.logspace(-2, 2, 12)  # columns of very different scales
        true = random.standard_normal(12) / np.logspace(-2, 2, 12)
        y = X @ true + random.standard_t(2, 300)  # with outliers
        signs = np.where(y > np.median(y), 1, -1)
        classes = np.digitize(y, np.quantile(y, [0.3, 0.6]))
        for l2 in (0.0, 0.01):
            for bias in (False, True):
                Z = with_ones(X) if bias else X
                more = {"l2": l2, "bias": bias}
                with self.subTest("least squares", l2=l2, bias=bias):
                    detail = detail_of({"type": "least_squares", "data": self.points(X, y), **more}, self.folder)
                    n, d = Z.shape
                    hessian = 2 * Z.T @ Z / n + 2 * l2 * np.eye(d)
                    w = np.linalg.solve(hessian, 2 * Z.T @ y / n)
                    self.expect(detail, least_squares(Z, y, l2)(w)[0], 1e-9)
                    values = np.linalg.eigvalsh(hessian)
                    self.assertAlmostEqual(detail["smoothness"], values[-1], delta=1e-9 * values[-1])
                    self.assertAlmostEqual(detail["strong_convexity"], values[0], delta=1e-9 * values[-1])
                with self.subTest("huber", l2=l2, bias=bias):
                    for threshold in (1.345, 0.05, 1000.0):
                        detail = detail_of({"type": "huber_regression", "data": self.points(X, y),
                                            "threshold": threshold, **more}, self.folder)
                        scale = np.sqrt((Z ** 2).mean(axis=0))  # SciPy needs scaled columns
                        f = huber(Z / scale, y, 0, threshold)

                        def scaled(u):
                            value, gradient = f(u)
                            return value + l2 * (u / scale) @ (u / scale), gradient + 2 * l2 * u / scale ** 2
                        self.expect(detail, minimum(scaled, Z.shape[1]))
                with self.subTest("logistic", l2=l2, bias=bias):
                    detail = detail_of({"type": "logistic_regression", "data": self.points(X, signs), **more},
                                       self.folder)
                    scale = np.sqrt((Z ** 2).mean(axis=0))
                    f = logistic(Z / scale, signs, 0)

                    def scaled_logistic(u):
                        value, gradient = f(u)
                        return value + l2 * (u / scale) @ (u / scale), gradient + 2 * l2 * u / scale ** 2
                    self.expect(detail, minimum(scaled_logistic, Z.shape[1]))
                    self.assertAlmostEqual(detail["smoothness"],
                                           np.linalg.eigvalsh(Z.T @ Z / len(Z))[-1] / 4 + 2 * l2,
                                           delta=1e-6 * detail["smoothness"])
                    self.assertEqual(detail["strong_convexity"], 2 * l2)
        with self.subTest("softmax"):
            scaled_x = X / np.logspace(-2, 2, 12)
            detail = detail_of({"type": "softmax_regression", "data": self.points(scaled_x, classes, 3), "l2": 0.01,
                                "bias": True}, self.folder)
            Z = with_ones(scaled_x)
            self.expect(detail, minimum(softmax(Z, classes, 0.01, 3), Z.shape[1] * 3))
            bound = np.linalg.eigvalsh(Z.T @ Z / len(Z))[-1] / 2 + 0.02
            self.assertGreaterEqual(detail["smoothness"], bound * (1 - 1e-9))
            self.assertLessEqual(detail["smoothness"], bound * 1.06)

    def test_raw_columns_of_a_real_table(self):
        """Wisconsin's breast cancer data, unscaled: columns range from 1e-3 to 4e3, and the classes are nearly
        separable."""
        X, y = datasets.load_breast_cancer(return_X_y=True)
        detail = detail_of({"type": "logistic_regression", "l2": 1e-4, "bias": True, "data": self.points(X, y)},
                           self.folder)
        Z = with_ones(X)
        model = LogisticRegression(C=1 / (2 * 1e-4 * len(y)), fit_intercept=False, solver="newton-cholesky",
                                   tol=1e-12, max_iter=1000).fit(Z, y)
        self.expect(detail, logistic(Z, 2 * y - 1, 1e-4)(model.coef_[0])[0], 1e-8)

    def test_a_wide_sparse_file(self):
        """There are more features than a dense matrix may have, most values are zero, and the file is compressed."""
        random = np.random.default_rng(3)
        n, d = 400, 3000
        X = (random.random((n, d)) < 0.01) * random.standard_normal((n, d))
        true = random.standard_normal(d)
        y = np.where(X @ true + 0.5 * random.standard_normal(n) > 0, 1, -1)
        lines = [f"{label:+d} " + " ".join(f"{j + 1}:{row[j]!r}" for j in np.flatnonzero(row)) + "\n"
                 for label, row in zip(y, X)]
        with gzip.open(Path(self.folder) / "wide.gz", "wt") as file:
            file.writelines(lines)
        data = {"type": "libsvm", "file": "wide", "features": d}
        detail = detail_of({"type": "logistic_regression", "l2": 1e-3, "data": data}, self.folder)
        self.expect(detail, minimum(logistic(X, y, 1e-3), d))
        largest = np.linalg.eigvalsh(X @ X.T / n)[-1] / 4 + 2e-3
        self.assertTrue(0.999 * largest < detail["smoothness"] < 1.06 * largest, (detail["smoothness"], largest))

    def test_domains(self):
        random = np.random.default_rng(11)
        X = random.standard_normal((200, 6))
        y = X @ random.standard_normal(6) * 2 + random.standard_normal(200)
        objective = {"type": "least_squares", "data": self.points(X, y)}
        f = least_squares(X, y, 0)
        box = detail_of(objective, self.folder, domain={"type": "box", "lower": -0.5, "upper": 1.0})
        self.expect(box, minimum(f, 6, bounds=[(-0.5, 1.0)] * 6))
        ball = detail_of(objective, self.folder, domain={"type": "ball", "radius": 0.7})
        found = optimize.minimize(f, np.zeros(6), jac=True, method="SLSQP", options={"ftol": 1e-15, "maxiter": 1000},
                                  constraints={"type": "ineq", "fun": lambda w: 0.49 - w @ w, "jac": lambda w: -2 * w})
        self.expect(ball, found.fun, 1e-6)
        free = detail_of(objective, self.folder, domain={"type": "ball", "radius": 100.0})
        self.expect(free, minimum(f, 6))

    def test_quadratic(self):
        random = np.random.default_rng(5)
        half = random.standard_normal((20, 20))
        A, b = half @ half.T + 0.1 * np.eye(20), random.standard_normal(20)
        A = (A + A.T) / 2
        np.save(Path(self.folder) / "A.npy", A)
        np.save(Path(self.folder) / "b.npy", b)
        data = {"type": "matrix", "matrix": "A.npy", "vector": "b.npy", "dim": 20}
        detail = detail_of({"type": "quadratic", "data": data, "noise_std": 0.5}, self.folder)
        self.expect(detail, -b @ np.linalg.solve(A, b) / 2, 1e-9)
        values = np.linalg.eigvalsh(A)
        self.assertAlmostEqual(detail["smoothness"], values[-1], delta=1e-9 * values[-1])
        self.assertAlmostEqual(detail["strong_convexity"], values[0], delta=1e-9 * values[-1])


if __name__ == "__main__":
    unittest.main()
