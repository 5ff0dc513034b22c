"""Tally in Python: workers with gradients of your own, jobs, and the codec.

The arithmetic, the random numbers and the bits are libtally's, which is made of the same code as the
programs: a Python worker beside C workers sends the same bytes for the same gradients.

    import numpy as np, tally

    def gradient(x, query):                 # of f_m at x, a stochastic one
        rows = shards[query.client]
        points = query.draws(len(rows))     # as many as the round asks for, by the job's random numbers
        return mean_gradient(rows[points], x)

    tally.run_worker("http://127.0.0.1:8080", gradient=gradient, dim=30, clients=4)
"""

from ._client import Client, Event, model, show, submit, watch
from ._codec import ENCODINGS, Message, decode, encode, grid
from ._data import JobData
from ._library import Error, version
from ._worker import Gradient, Loss, Problem, Query, Totals, Worker, run_worker

__version__ = version()

__all__ = [
    "ENCODINGS", "Client", "Error", "Event", "Gradient", "JobData", "Loss", "Message", "Problem", "Query",
    "Totals", "Worker", "decode", "encode", "grid", "model", "run_worker", "show", "submit", "version", "watch",
]
