"""Tally in Python: workers with gradients of your own, jobs, and the codec.

Arithmetic, random numbers and bits are those of libtally, which is built from the same code as the programs:
for the same gradients a Python worker sends the same bytes as a C worker.

    import numpy as np, tally

    def gradient(x, query):                 # of f_m at x, a stochastic one
        rows = shards[query.client]
        points = query.draws(len(rows))     # as many as the round needs, by the job's random numbers
        return mean_gradient(rows[points], x)

    tally.run_worker("http://127.0.0.1:8080", gradient=gradient, dim=30, clients=4)
"""

from . import arrays as arrays  # for models; not in __all__, whose names "import *" would put over those of torch
from . import torch as torch
from ._client import (
    Client, Event, cancel, client_metrics, client_traffic, delete, document, import_job, jobs, model, models, rounds,
    scaling, show, submit, to_pandas, wait, watch, workers,
)
from ._codec import ENCODINGS, Message, decode, encode, grid
from ._data import JobData
from ._library import Error, version
from ._simulate import simulate
from ._sweep import sweep
from ._worker import (
    Evaluate, Gradient, Loss, Metrics, Problem, Query, Task, Totals, Train, Update, Worker, report, run_worker,
)
from ._worker import RoundClient as RoundClient  # for annotations; help() would list all of int

__version__ = version()

__all__ = [
    "ENCODINGS", "Client", "Error", "Evaluate", "Event", "Gradient", "JobData", "Loss", "Message", "Metrics",
    "Problem", "Query", "Task", "Totals", "Train", "Update", "Worker", "cancel", "client_metrics", "client_traffic", "decode", "delete",
    "document", "encode", "grid", "import_job", "jobs", "model", "models", "report", "rounds", "run_worker", "scaling", "show",
    "simulate", "submit", "sweep", "to_pandas", "version", "wait", "watch", "workers",
]
