"""The points of a job, split over its clients in the same way as in the workers."""

from __future__ import annotations

import ctypes
import os
from operator import index
from typing import Any, Mapping

import numpy as np
from numpy.typing import NDArray

from . import _library as c


class JobData:
    """The data that a job document describes, drawn at random or read from the files below data_dir.

    Use it to compute gradients of your own on the same points. shard(query.client) is in the order of the built-in
    objectives, so query.below(len(y)) draws the same points.
    """

    def __init__(self, job: Mapping[str, Any], data_dir: str | os.PathLike[str] = "data") -> None:
        self._data = ctypes.c_void_p()
        document = c.document(job)
        c.call("tally_job_data_load", document, len(document), c.text(data_dir), ctypes.byref(self._data))
        self.clients = int(c.library.tally_job_data_clients(self._data))

    def shard(self, client: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Returns X, of shape (points, features) and without the 1 of "bias", and the labels, of shape (points,)."""
        if not 0 <= client < self.clients:
            raise IndexError(f"client {client} outside [0, {self.clients - 1}]")
        points = ctypes.POINTER(c.Points)()
        c.call("tally_job_data_points", self._data, index(client), ctypes.byref(points))
        try:
            made = points.contents
            values = np.ctypeslib.as_array(made.values, (made.n, made.features)).copy()
            labels = np.ctypeslib.as_array(made.labels, (made.n,)).copy()
        finally:
            c.library.tally_points_free(points)
        return values, labels

    def __del__(self) -> None:
        if self._data:
            c.library.tally_job_data_free(self._data)
