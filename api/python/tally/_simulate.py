"""Whole jobs in one call, without a coordinator to start."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Callable, Mapping, Optional

from numpy.typing import ArrayLike

from . import _library as c
from ._client import Client, _has_ended
from ._worker import Evaluate, Gradient, Loss, Metrics, Train, Worker

_START_S = 60.0
_LOOK_S = 0.2  # between two requests for the state of the job


def _program(name: str) -> str:
    """Returns the path of a program of Tally: in the folder TALLY_BIN, or on the PATH."""
    folder = os.environ.get("TALLY_BIN")
    found = shutil.which(name, path=folder) if folder else shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"{name} is not installed: add it to PATH, or set TALLY_BIN to its folder")
    return found


def _run_built_in(job: Mapping[str, Any], data_dir: str | os.PathLike[str]) -> dict[str, Any]:
    done = subprocess.run([_program("tally"), "simulate", "-", "--json", "--data-dir", os.fspath(data_dir)],
                          input=c.document(job).decode(), capture_output=True, text=True)
    if done.returncode != 0:
        raise c.Error(done.stderr.strip() or f"tally simulate ended with {done.returncode}", "invalid_argument")
    detail: dict[str, Any] = json.loads(done.stdout)
    return detail


def _port_of(coordinator: subprocess.Popen[bytes], log: Path) -> int:
    """Waits until the coordinator logs its port, and returns it."""
    until = time.monotonic() + _START_S
    while True:
        said = log.read_text(errors="replace")
        listening = re.search(r"event=listening [^\n]*\bport=(\d+) ", said)
        if listening is not None:
            return int(listening[1])
        if coordinator.poll() is not None or time.monotonic() > until:
            raise c.Error(f"the coordinator does not start: {said[-500:]}", "unavailable")
        time.sleep(0.02)


def _run_clients(
    client: Client, job_id: str, gradient: Optional[Gradient], loss: Optional[Loss], metrics: Optional[Metrics],
    train: Optional[Train], initial: Optional[ArrayLike], evaluate: Optional[Evaluate], **options: Any
) -> None:
    """Runs a worker until its job has ended. If gradient, loss or metrics raises, the worker ends and the exception is
    raised again, because no other worker could continue the job. An exception of train is raised again if the job has
    failed, and one of evaluate is only logged."""
    raised: list[Exception] = []
    failed: list[Exception] = []  # of train
    has_run = threading.Event()

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            try:
                return function(*arguments)
            except Exception as error:
                raised.append(error)
                worker.stop()
                raise

        return call

    def noted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            try:
                return function(*arguments)
            except Exception as error:
                failed.append(error)
                raise

        return call

    def look_for_the_end() -> None:  # a worker that has refused the job is not told when the job ends
        while not has_run.wait(_LOOK_S):
            if _has_ended(client.show(job_id)):
                worker.stop()
                return

    worker = Worker(client.url, watched(gradient) if gradient is not None else None,
                    loss=watched(loss) if loss is not None else None,
                    metrics=watched(metrics) if metrics is not None else None,
                    train=noted(train) if train is not None else None, initial=initial, evaluate=evaluate,
                    job=job_id, **options)
    looking = threading.Thread(target=look_for_the_end, name="tally-simulate", daemon=True)
    looking.start()
    try:
        worker.run()
    except c.Error:  # it cannot serve the job, which fails with that reason
        if not raised and not _has_ended(client.show(job_id)):
            raise
    finally:
        has_run.set()
        looking.join()
    if raised:
        raise raised[0]
    if failed and client.show(job_id)["reason_code"] == "client_failed":
        raise failed[-1]


def simulate(
    job: Mapping[str, Any],
    gradient: Optional[Gradient] = None,
    *,
    loss: Optional[Loss] = None,
    metrics: Optional[Metrics] = None,
    train: Optional[Train] = None,
    initial: Optional[ArrayLike] = None,
    evaluate: Optional[Evaluate] = None,
    data_dir: str | os.PathLike[str] = "data",
) -> dict[str, Any]:
    """Runs a job from beginning to end on this machine and returns its final detail.

    job       a job document (services/job/DOCUMENT.md)
    gradient  f(x, query) -> (dim,), where x is float64 of shape (dim,), as for run_worker(). The job's objective must
              be of type "plugin" with the name "python". The job runs on a coordinator of its own, which keeps its
              state in memory, listens on loopback and ends with the job; all clients run in this process. Without a
              gradient, `tally simulate` runs the job.
    loss      f(x, client) -> f_m(x), for the regret
    metrics   f(x, client) -> {"accuracy": 0.9, ...}, as for run_worker()
    train     f(weights, task) -> Update, as for run_worker(); the objective is then of type "training"
    initial   the weights to start from if initial_point is {"type": "first"}, as for run_worker()
    evaluate  f(weights, task) -> {"test_accuracy": 0.9, ...}, as for run_worker()
    data_dir  folder with the files that the document names

    The engine is that of the service, so the result equals that of the same job on any coordinator, bit for bit.
    Requires the programs of Tally on PATH or in the folder TALLY_BIN. Raises Error, with code and field, if the
    document is invalid, and whatever the functions raise. If the job fails, its detail is returned with `status`,
    `reason_code` and `reason`.
    """
    if gradient is None and train is None:
        if loss is not None or metrics is not None or initial is not None:
            raise ValueError("loss, metrics and initial require a gradient or train")
        if evaluate is not None:
            raise ValueError("evaluate requires train")
        return _run_built_in(job, data_dir)
    with tempfile.TemporaryDirectory(prefix="tally-simulate-") as folder:
        log = Path(folder) / "coordinator.log"
        with log.open("wb") as output:
            coordinator = subprocess.Popen(
                [_program("tally-coordinator"), "--listen", "127.0.0.1:0", "--store", "memory:",
                 "--data-dir", os.fspath(data_dir)], stdout=output, stderr=output, stdin=subprocess.DEVNULL,
                env={key: value for key, value in os.environ.items() if not key.startswith("TALLY_")})
        try:
            client = Client(f"http://127.0.0.1:{_port_of(coordinator, log)}")
            job_id = client.submit(job)
            _run_clients(client, job_id, gradient, loss, metrics, train, initial, evaluate, clients=int(job["clients"]),
                         data_dir=data_dir)
            return client.wait(job_id, wait_s=_START_S)
        finally:
            coordinator.kill()
            coordinator.wait()
