"""A model that is a list of arrays, as the flat weights of a training loop, and back.

    weights = tally.arrays.flatten([w1, b1, w2, b2])     # float32 of shape (dim,)
    w1, b1, w2, b2 = tally.arrays.split(weights, [(784, 128), (128,), (128, 10), (10,)])
    tally.arrays.load([model.coef_, model.intercept_], weights)
"""

from __future__ import annotations

import math
from typing import Any, Iterable, Sequence, Union

import numpy as np
from numpy.typing import ArrayLike, NDArray

Shapes = Iterable[Union[Sequence[int], NDArray[Any]]]
"""Shapes, or arrays that have them."""


def flatten(arrays: Iterable[ArrayLike]) -> NDArray[np.float32]:
    """Returns the values of all arrays, in their order, as one vector: a copy."""
    parts = [np.asarray(array).ravel() for array in arrays]
    return np.concatenate(parts, dtype=np.float32) if parts else np.zeros(0, np.float32)


def split(weights: NDArray[Any], shapes: Shapes) -> list[NDArray[Any]]:
    """Returns views of the parts of a vector, one for each shape. The parts must cover the vector."""
    wanted = [shape.shape if isinstance(shape, np.ndarray) else tuple(shape) for shape in shapes]
    sizes = [math.prod(shape) for shape in wanted]
    if weights.shape != (sum(sizes),):
        raise ValueError(f"weights of shape {weights.shape} for arrays of {sum(sizes)} values")
    ends = np.cumsum([0, *sizes])
    return [weights[begin:begin + size].reshape(shape) for begin, size, shape in zip(ends, sizes, wanted)]


def load(arrays: Iterable[NDArray[Any]], weights: NDArray[Any]) -> None:
    """Sets the arrays to the parts of a vector: the inverse of flatten()."""
    targets = list(arrays)
    for array, part in zip(targets, split(weights, targets)):
        array[...] = part
