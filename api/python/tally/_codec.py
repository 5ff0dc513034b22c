"""The codec: from levels or vectors to the exact bits of a message, and back."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._library import Payload, Rounding, call, library, text


def _encodings() -> tuple[str, ...]:
    names: list[str] = []
    while (name := library.tally_encoding_name(len(names))) is not None:
        names.append(name.decode())
    return tuple(names)


ENCODINGS: tuple[str, ...] = _encodings()
"""The encodings of levels on a grid. "float32" and "qsgd" exist as well; "dithered", that of jobs of calm, cannot be
coded by itself, because its messages mean nothing without the job's seed, client and round."""


@dataclass(frozen=True)
class Message:
    """An encoded vector, with all that is needed to decode it."""

    data: bytes
    """The bit string; the last byte is padded with zero bits."""
    payload_bits: int
    """Exact length of the bit string."""
    dim: int
    encoding: str
    intervals: int = 0
    """p of the grid: levels are in [-p/2, p/2]. For "qsgd" its s; ignored for "float32"."""
    step: float = 1.0
    """Distance between two points of the grid."""
    formula_bits: int | None = None
    """What the paper counts: dim + sum of |level|. Set by encode(), like the two below."""
    nonzeros: int | None = None
    clipped: int | None = None
    """Number of coordinates outside the grid, which were moved to its end."""


def grid(radius: float, eps: float, dim: int) -> tuple[int, float]:
    """The intervals and step of the paper's quantizer, for vectors of norm up to `radius` and errors up to `eps`."""
    step, intervals = ctypes.c_double(), ctypes.c_uint32()
    call("tally_grid_for", float(radius), float(eps), index(dim), ctypes.byref(step), ctypes.byref(intervals))
    return intervals.value, step.value


def _pointer(array: NDArray[Any], kind: Any) -> Any:
    return array.ctypes.data_as(ctypes.POINTER(kind))


def _vector(values: ArrayLike) -> NDArray[Any]:
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"an array of shape {array.shape} is not a vector")
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{array.dtype} is neither levels (integers) nor values (floats)")
    return array


def _levels(array: NDArray[Any]) -> NDArray[np.int32]:
    limits = np.iinfo(np.int32)
    if array.size and (array.max() > limits.max or array.min() < limits.min):
        raise OverflowError("a level does not fit into 32 bits")
    return np.ascontiguousarray(array, dtype=np.int32)


def encode(
    values: ArrayLike,
    *,
    encoding: str = "entropy",
    intervals: int = 0,
    step: float = 1.0,
    seed: int = 1,
    run: int = 0,
    client: int = 0,
    round: int = 0,
) -> Message:
    """Encodes a vector of shape (dim,), as `tally encode` does.

    Integers are levels, in [-intervals/2, intervals/2]. Floats are first rounded to multiples of step, at random
    and without bias; seed, run, client and round select the random numbers. "qsgd" rounds floats to `intervals`
    levels of their norm; "float32" keeps them.
    """
    array = _vector(values)
    intervals, seed, run, client, round = map(index, (intervals, seed, run, client, round))
    step = float(step)
    for number, limit in ((intervals, 2**32), (seed, 2**64), (run, 2**32), (client, 2**32), (round, 2**32)):
        if not 0 <= number < limit:  # ctypes would truncate it
            raise ValueError(f"{number} outside [0, {limit - 1}]")
    rounding = ctypes.byref(Rounding(seed, run, client, round))
    payload = ctypes.POINTER(Payload)()
    ret = ctypes.byref(payload)
    if encoding not in ("float32", "qsgd") and array.dtype.kind in "iu":
        levels = _levels(array)
        call("tally_encode_levels", text(encoding), intervals, step, _pointer(levels, ctypes.c_int32), array.size, ret)
    else:
        with np.errstate(over="ignore"):  # the library refuses values that float32 cannot represent
            floats = np.ascontiguousarray(array, dtype=np.float32)
        at = _pointer(floats, ctypes.c_float)
        if encoding == "float32":
            call("tally_encode_float32", at, array.size, ret)
        elif encoding == "qsgd":
            call("tally_encode_qsgd", intervals, at, array.size, rounding, ret)
        else:
            call("tally_encode_values", text(encoding), intervals, step, at, array.size, rounding, ret)
    try:
        made = payload.contents
        return Message(data=ctypes.string_at(made.data, made.size), payload_bits=made.payload_bits, dim=array.size,
                       encoding=encoding, intervals=intervals, step=step, formula_bits=made.formula_bits,
                       nonzeros=made.nonzeros, clipped=made.clipped)
    finally:
        library.tally_payload_free(payload)


def decode(message: Message, *, values: bool = False) -> NDArray[Any]:
    """Returns the levels of a message as int32, or its values as float64; shape (dim,). "float32" has only values.

    Raises Error with the code "malformed" if the bytes are not a valid message.
    """
    data = np.frombuffer(message.data, dtype=np.uint8)
    at = _pointer(data, ctypes.c_uint8)
    if message.encoding == "float32":
        floats = np.empty(message.dim, dtype=np.float32)
        call("tally_decode_float32", at, data.size, message.payload_bits, message.dim, _pointer(floats, ctypes.c_float))
        return floats.astype(np.float64) if values else floats
    levels = np.empty(message.dim, dtype=np.int32)
    ret = _pointer(levels, ctypes.c_int32)
    if message.encoding == "qsgd":
        norm = ctypes.c_float()
        call("tally_decode_qsgd", message.intervals, at, data.size, message.payload_bits, message.dim,
             ctypes.byref(norm), ret)
        return norm.value * levels / message.intervals if values else levels
    call("tally_decode_levels", text(message.encoding), message.intervals, message.step, at, data.size,
         message.payload_bits, message.dim, ret)
    return levels * message.step if values else levels
