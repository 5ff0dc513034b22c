"""Workers: processes, or threads, that run clients of a coordinator's jobs."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import inspect
import logging
import math
import os
import pathlib
import re
import signal
import threading
import traceback
from dataclasses import dataclass, field
from operator import index
from typing import Any, Callable, Iterator, Mapping, Optional, Union

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _library as c

log = logging.getLogger("tally")
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)


@dataclass(frozen=True)
class Problem:
    """The job that a query belongs to."""

    dim: int
    clients: int
    """M, the number of clients of the whole job."""
    seed: int
    options: str
    """`objective.options` of the document; you define its meaning."""
    data_dir: str
    rounds: int = 0
    """Of a job whose objective is of type "training": how often each client trains."""
    job: str = ""
    """The id of the job."""
    mu: float = 0.0
    """Of a job with objective "training" and algorithm "fedprox", otherwise 0: weight of the proximal term."""


@dataclass(frozen=True)
class Task:
    """A request to train: one client, one round. Or to evaluate the model that a round made."""

    problem: Problem
    client: int
    """The client, 0 to M - 1."""
    round: int
    """The round, from 1 to `rounds`."""

    @property
    def rounds(self) -> int:
        """The number of rounds of the job."""
        return self.problem.rounds

    @property
    def seed(self) -> int:
        """The seed of the job."""
        return self.problem.seed

    @property
    def options(self) -> str:
        """`objective.options` of the document; you define its meaning."""
        return self.problem.options

    @property
    def job(self) -> str:
        """The id of the job."""
        return self.problem.job

    @property
    def mu(self) -> float:
        """With algorithm "fedprox", weight of the term mu/2 |w - weights|^2 that the loop adds to its loss; otherwise
        0."""
        return self.problem.mu


@dataclass(frozen=True)
class Update:
    """What a client's training led to."""

    weights: ArrayLike
    """The new weights, of shape (dim,)."""
    samples: int = 1
    """How many data points the client used: its weight in the mean, if the job's `weighting` is "points"."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Metrics of this client and round, such as {"train_loss": 0.3}."""


class Query:
    """A request for a gradient."""

    def __init__(self, problem: Problem, query: Any) -> None:
        self._problem = problem
        self._client = int(query.client)
        self._round = int(query.round)
        self._samples = int(query.samples)
        self._below: Callable[[Any, int], int] | None = query.below
        self._stream = query.stream

    # Properties, because help() shows them, and plain attributes not.

    @property
    def problem(self) -> Problem:
        """The job."""
        return self._problem

    @property
    def client(self) -> int:
        """The client, 0 to M - 1."""
        return self._client

    @property
    def round(self) -> int:
        """The round, from 1."""
        return self._round

    @property
    def samples(self) -> int:
        """The number of data points to average the gradient over."""
        return self._samples

    def below(self, n: int) -> int:
        """Returns the next of the job's own random numbers: uniform in [0, n), and the same on every machine.

        A job whose gradients use no other source of randomness is reproducible bit for bit.
        """
        if self._below is None:
            raise RuntimeError("the query has been answered and has no more random numbers")
        if not 1 <= n < 2**32:
            raise ValueError(f"n {n} outside [1, {2**32 - 1}]")
        return self._below(self._stream, index(n))

    def draws(self, n: int) -> NDArray[np.int64]:
        """Returns `samples` random numbers at once, of shape (samples,): the indices, among n data points, of those
        whose gradient to compute."""
        return np.array([self.below(n) for _ in range(self.samples)], dtype=np.int64)


class RoundClient(int):
    """The client whose metrics are asked for: its number, 0 to M - 1, with the job and the round."""

    problem: Problem
    round: int
    """The round, from 1."""

    @classmethod
    def _of(cls, client: int, problem: Problem, round_: int) -> RoundClient:
        made = cls(client)
        made.problem, made.round = problem, round_
        return made


@dataclass(frozen=True)
class Totals:
    """The counters of a worker."""

    rounds: int
    messages: int
    formula_bits: int
    payload_bits: int
    clipped: int
    wire_out_bytes: int
    wire_in_bytes: int


Gradient = Callable[[NDArray[np.float64], Query], ArrayLike]
"""f(x, query): a stochastic gradient of f_m at x, where m is query.client; both of shape (dim,)."""
Loss = Callable[[NDArray[np.float64], int], float]
"""f(x, client): f_m(x), where m is the client and x has the shape (dim,)."""


Train = Callable[[NDArray[np.float32], Task], Union[Update, ArrayLike]]
"""f(weights, task): trains from the global model's weights, float32 of shape (dim,), a copy that f may change. Returns
an Update, or just the new weights."""

Evaluate = Callable[[NDArray[np.float32], Task], Mapping[str, float]]
"""f(weights, task): evaluates a global model, whose weights are float32 of shape (dim,), a copy that f may change.
task.round is the round that made the model. Returns its metrics."""

Metrics = Callable[[NDArray[np.float64], RoundClient], Mapping[str, float]]
"""f(x, client): the metrics of the client in a round that began at x, which has the shape (dim,). The client is an
int that also has `problem` and `round`."""

_current = threading.local()


def report(name: str, value: float) -> None:
    """Reports a metric of the current round, such as an accuracy or the seconds spent computing.

    Call it from the gradient, the training loop or the evaluation. If a metric is reported again in the same round, the
    last value counts. A round has at most 16 metrics, with names of the form [a-z][a-z0-9_]{0,31}. A value that is not finite is dropped; the log warns
    once per name and job. The job shows mean, minimum and maximum over its clients. Metrics do not affect what the job
    computes.
    """
    reports = getattr(_current, "reports", None)
    if reports is None:
        raise RuntimeError("report() is for the gradient, the training loop or the evaluation, while a worker calls "
                           "it")
    if re.fullmatch("[a-z][a-z0-9_]{0,31}", name) is None:
        raise ValueError(f"metric {name!r} is not named [a-z][a-z0-9_]{{0,31}}")
    try:
        number = float(value)
    except OverflowError:  # an integer beyond a double
        number = math.inf
    if name not in reports and len(reports) == c.METRICS_MOST:
        raise ValueError(f"more than {c.METRICS_MOST} metrics")
    reports[name] = number


def _reason(error: BaseException) -> str:
    """Describes an exception in one line, with the place where it was raised."""
    text = " ".join("".join(traceback.format_exception_only(type(error), error)).split())
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return text
    return f"{text} ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})"


@contextlib.contextmanager
def _leaving_on_sigterm(stop: Callable[[], None]) -> Iterator[None]:
    """Has SIGTERM call stop() within the block, and end the process after it. A second SIGTERM ends it at once."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    came: list[int] = []

    def end() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)

    def terminate(number: int, frame: object) -> None:
        if came:
            end()
        came.append(number)
        stop()

    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if came:
            end()


class _Plugin:
    """The table of plugin.h with Python functions. An exception becomes the reason why the client fails."""

    def __init__(self, name: str, gradient: Gradient | None, loss: Loss | None, metrics: Metrics | None,
                 train: Train | None, initial: NDArray[np.float32] | None, evaluate: Evaluate | None) -> None:
        self.gradient_of = gradient
        self.train_of = train
        self.evaluate_of = evaluate
        self.loss_of = loss
        self.metrics_of = metrics
        self.start = initial
        self.reports: dict[tuple[int, int], dict[str, float]] = {}  # by job and client, of the present round
        self.problems: dict[int, Problem] = {}
        self.n_opened = 0
        self.name = c.text(name)
        # The table borrows its functions: they live as long as this object.
        self.table = c.Plugin(c.PLUGIN_ABI, ctypes.sizeof(c.Plugin), self.name, c.OPEN(self.open),
                              c.CLOSE(self.close),
                              ctypes.cast(0, c.GRADIENT) if gradient is None else c.GRADIENT(self.gradient),
                              ctypes.cast(0, c.LOSS) if loss is None else c.LOSS(self.loss),
                              c.METRICS(self.metrics),
                              ctypes.cast(0, c.TRAIN) if train is None else c.TRAIN(self.train),
                              ctypes.cast(0, c.INITIAL) if initial is None else c.INITIAL(self.initial),
                              ctypes.cast(0, c.EVALUATE) if evaluate is None else c.EVALUATE(self.evaluate))

    @staticmethod
    def fail(error: BaseException, why: int, capacity: int) -> int:
        cut = _reason(error).encode("utf-8", "replace")[:capacity - 1]
        reason = cut.decode("utf-8", "ignore").encode() + b"\0"  # ends at a whole character
        ctypes.memmove(why, reason, len(reason))
        log.error("%s", _reason(error), exc_info=error)
        return 1

    def open(self, problem: Any, ret_state: Any, why: int, capacity: int) -> int:
        try:
            given = problem.contents
            self.n_opened += 1
            self.problems[self.n_opened] = Problem(
                dim=given.dim, clients=given.clients, seed=given.seed,
                options=given.options.decode("utf-8", "replace"), data_dir=os.fsdecode(given.data_dir),
                rounds=given.rounds, job=given.job.decode("utf-8", "replace"), mu=given.mu)
            ret_state[0] = self.n_opened
            return 0
        except BaseException as error:
            return self.fail(error, why, capacity)

    def close(self, state: int) -> None:
        self.problems.pop(state, None)
        self.reports = {key: reports for key, reports in self.reports.items() if key[0] != state}

    def gradient(self, state: int, query: Any, x: Any, ret: Any, ret_dim: Any, why: int, capacity: int) -> int:
        try:
            assert self.gradient_of is not None
            problem = self.problems[state]
            asked = Query(problem, query.contents)
            point = np.ctypeslib.as_array(x, (problem.dim,)).copy()
            _current.reports = self.reports.setdefault((state, asked.client), {})
            try:
                answer = np.asarray(self.gradient_of(point, asked), dtype=np.float64)
            finally:
                asked._below = None
                _current.reports = None
            if answer.shape != (problem.dim,):
                raise ValueError(f"gradient of shape {answer.shape} in a job of dim {problem.dim}")
            np.ctypeslib.as_array(ret, (problem.dim,))[:] = answer
            ret_dim[0] = problem.dim
            return 0
        except BaseException as error:
            return self.fail(error, why, capacity)

    def train(self, state: int, task: Any, weights: Any, ret_samples: Any, why: int, capacity: int) -> int:
        try:
            assert self.train_of is not None
            problem = self.problems[state]
            asked = Task(problem, int(task.contents.client), int(task.contents.round))
            ours = np.ctypeslib.as_array(weights, (problem.dim,))
            _current.reports = self.reports[state, asked.client] = {}
            try:
                update = self.train_of(ours.copy(), asked)
                if not isinstance(update, Update):
                    update = Update(update)
                for name, value in update.metrics.items():
                    report(name, value)
            finally:
                _current.reports = None
            trained = np.asarray(update.weights)
            if trained.dtype.kind not in "fiu":
                what = (f"an array of {trained.dtype}" if isinstance(update.weights, np.ndarray)
                        else "None" if update.weights is None else type(update.weights).__name__)
                raise TypeError(f"train returned {what}, not the new weights or a tally.Update")
            if trained.shape != (problem.dim,):
                raise ValueError(f"weights of shape {trained.shape} in a job of dim {problem.dim}")
            try:
                samples = index(update.samples)
            except TypeError:
                raise TypeError(f"samples {update.samples} is no integer") from None
            if not 1 <= samples <= c.SAMPLES_MOST:
                raise ValueError(f"samples {samples} outside [1, {c.SAMPLES_MOST}]")
            with np.errstate(over="ignore"):  # what float32 cannot hold is refused by the library, which names it
                ours[:] = trained
            ret_samples[0] = samples
            return 0
        except BaseException as error:
            return self.fail(error, why, capacity)

    def initial(self, state: int, ret: Any, why: int, capacity: int) -> int:
        try:
            assert self.start is not None
            dim = self.problems[state].dim
            if self.start.shape != (dim,):
                raise ValueError(f"initial of shape {self.start.shape} in a job of dim {dim}")
            np.ctypeslib.as_array(ret, (dim,))[:] = self.start
            return 0
        except BaseException as error:
            return self.fail(error, why, capacity)

    def evaluate(self, state: int, task: Any, weights: Any, ret: Any, ret_n: Any, why: int, capacity: int) -> int:
        try:
            assert self.evaluate_of is not None
            problem = self.problems[state]
            asked = Task(problem, int(task.contents.client), int(task.contents.round))
            model = np.ctypeslib.as_array(weights, (problem.dim,)).copy()
            reports: dict[str, float] = {}
            _current.reports = reports
            try:
                metrics = self.evaluate_of(model, asked)
                if not isinstance(metrics, Mapping):
                    raise TypeError(f"evaluate returned {type(metrics).__name__}, not a mapping of metrics")
                for name, value in metrics.items():
                    report(name, value)
            finally:
                _current.reports = None
            self.write_metrics(reports, ret, ret_n)
            return 0
        except BaseException as error:
            return self.fail(error, why, capacity)

    @staticmethod
    def write_metrics(reports: Mapping[str, float], ret: Any, ret_n: Any) -> None:
        for i, (name, value) in enumerate(reports.items()):
            ret[i].name, ret[i].value = name.encode(), value
        ret_n[0] = len(reports)

    def loss(self, state: int, client: int, x: Any, ret: Any, why: int, capacity: int) -> int:
        try:
            assert self.loss_of is not None
            point = np.ctypeslib.as_array(x, (self.problems[state].dim,)).copy()
            ret[0] = float(self.loss_of(point, client))
            return 0
        except BaseException as error:
            return self.fail(error, why, capacity)

    def metrics(self, state: int, client: int, round_: int, x: Any, ret: Any, ret_n: Any, why: int,
                capacity: int) -> int:
        try:
            _current.reports = reports = self.reports.pop((state, client), {})
            if self.metrics_of is not None:
                problem = self.problems[state]
                point = np.ctypeslib.as_array(x, (problem.dim,)).copy()
                asked = RoundClient._of(client, problem, round_)
                for name, value in self.metrics_of(point, asked).items():
                    report(name, value)
            _current.reports = None
            self.write_metrics(reports, ret, ret_n)
            return 0
        except BaseException as error:
            return self.fail(error, why, capacity)


def _start(initial: ArrayLike) -> NDArray[np.float32]:
    """Returns a copy of the weights that a worker offers as a start."""
    given = np.asarray(initial)
    if given.dtype.kind not in "fiu" or given.ndim != 1:
        raise ValueError(f"initial is an array of {given.dtype} and of shape {given.shape}, not of numbers and of shape "
                         "(dim,)")
    with np.errstate(over="ignore"):
        start = np.array(given, dtype=np.float32)
    finite = np.isfinite(start)
    if not finite.all():
        first = int(np.argmin(finite))
        raise ValueError(f"initial[{first}] is {given[first]}, which float32 cannot hold as a number")
    return start


def _code_of(function: Any) -> tuple[str, str | None]:
    """Returns the name of a function, with the file that defines it, and the file's SHA-256 digest, if it has one."""
    function = inspect.unwrap(function)
    if not hasattr(function, "__qualname__"):  # an object that can be called, or a functools.partial
        function = getattr(function, "func", type(function))
    name, digest = str(function.__qualname__), None
    try:
        file = inspect.getsourcefile(function)
        if file is not None:
            digest = hashlib.sha256(pathlib.Path(file).read_bytes()).hexdigest()
            name = f"{pathlib.Path(file).name}:{name}"
    except (TypeError, OSError):
        pass
    return name, digest


class Worker:
    """A worker that can run once and that other threads can stop. Arguments: see run_worker()."""

    def __init__(
        self,
        url: str | None = None,
        gradient: Optional[Gradient] = None,
        dim: int = 0,
        *,
        loss: Optional[Loss] = None,
        metrics: Optional[Metrics] = None,
        train: Optional[Train] = None,
        initial: Optional[ArrayLike] = None,
        evaluate: Optional[Evaluate] = None,
        plugin: str = "python",
        override: bool = False,
        name: str | None = None,
        clients: int = 1,
        job: str | None = None,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        tls_ca: str | os.PathLike[str] | None = None,
        data_dir: str | os.PathLike[str] = "data",
        wait_ms: int = 10000,
        exit_when_idle: bool = False,
    ) -> None:
        self._worker = ctypes.c_void_p()
        if gradient is None and (loss is not None or override):
            raise ValueError("loss and override require a gradient")
        if gradient is None and train is None and metrics is not None:
            raise ValueError("metrics require a gradient or train")
        if gradient is None and train is None and initial is not None:
            raise ValueError("initial requires a gradient or train")
        if train is None and evaluate is not None:
            raise ValueError("evaluate requires train")
        if not 0 <= clients < 2**32 or not 0 <= wait_ms < 2**32 or not 0 <= dim < 2**63:
            raise ValueError("clients, wait_ms and dim are not negative")
        has_functions = gradient is not None or train is not None
        start = None if initial is None else _start(initial)
        self._plugin = _Plugin(plugin, gradient, loss, metrics, train, start, evaluate) if has_functions else None
        self._log = c.LOG(self._say)  # kept as long as this object, like everything that the configuration borrows
        self._config = config = c.WorkerConfig()
        c.library.tally_worker_config_init(ctypes.byref(config), ctypes.sizeof(config))
        config.coordinator = c.text(c.coordinator_url(url))
        config.name = c.text(name)
        if token is None and token_file is None:
            token = os.environ.get("TALLY_TOKEN") or None
        config.token = c.text(token)
        config.token_file = c.text(token_file)
        config.tls_ca = c.text(tls_ca)
        config.data_dir = c.text(data_dir)
        config.job = c.text(job)
        config.clients = index(clients)  # ctypes takes no NumPy scalars
        config.wait_ms = index(wait_ms)
        config.exit_when_idle = bool(exit_when_idle)
        config.log = self._log
        if self._plugin is not None:
            config.plugin = ctypes.pointer(self._plugin.table)
            config.dim = index(dim)
            config.override = bool(override)
            config.code_name, config.code_sha256 = map(c.text, _code_of(train or gradient))
        self._has_run = self._is_running = False
        c.call("tally_worker_new", ctypes.byref(config), ctypes.byref(self._worker))

    @staticmethod
    def _say(context: int, level: int, line: bytes) -> None:
        log.log(_LEVELS[min(max(level, 0), 3)], "%s", line.decode("utf-8", "replace"))

    def stop(self) -> None:
        """Asks the worker to finish its updates and leave. Safe in any thread and in signal handlers."""
        c.library.tally_worker_stop(self._worker)

    def run(self) -> Totals:
        """Runs until stop() is called, Ctrl-C is typed (main thread only), the only job to serve has ended or, with
        exit_when_idle, no job is left.

        SIGTERM, too, lets the worker leave before it ends the process, if this is the main thread and the program does
        not handle the signal itself. The gradient is called in a separate thread, one call at a time.
        """
        if self._has_run:
            raise RuntimeError("a worker runs only once: create another one")
        self._has_run = True
        totals, failure = c.WorkerTotals(), c.Failure()
        codes: list[int] = []
        done = threading.Event()

        def work() -> None:
            codes.append(c.library.tally_worker_run(self._worker, ctypes.byref(totals), ctypes.byref(failure)))
            self._is_running = False
            done.set()

        # Python runs signal handlers between instructions of the main thread, so the main thread waits here.
        thread = threading.Thread(target=work, name="tally-worker", daemon=True)
        self._is_running = True
        try:
            with _leaving_on_sigterm(self.stop):
                thread.start()
                done.wait()
        except BaseException as interruption:
            self.stop()
            while not done.wait(1.0):  # a second Ctrl-C also ends this loop
                if thread.ident is None:  # Ctrl-C came before the thread started
                    codes.append(0)
                    break
            if not isinstance(interruption, KeyboardInterrupt):
                raise
        if codes[0] != 0:
            raise c.error_of(codes[0], failure)
        return Totals(**{name: getattr(totals, name) for name, *_ in c.WorkerTotals._fields_})

    def __del__(self) -> None:
        if self._worker and not self._is_running:
            c.library.tally_worker_free(self._worker)


def run_worker(url: str | None = None, gradient: Optional[Gradient] = None, dim: int = 0, **options: Any) -> Totals:
    """Runs clients of a coordinator's jobs and returns the worker's counters.

    url       such as "https://tally.example:8080"; default TALLY_COORDINATOR, or http://127.0.0.1:8080
    gradient  f(x, query) -> (dim,), where x is float64 of shape (dim,). The worker then serves jobs whose objective is
              {"type": "plugin", "name": "python", "dim": dim}. An exception becomes the reason why the client fails.
              Without a gradient and without train, the worker serves the objectives of tally-worker.
    train     f(weights, task) -> Update, or just the new weights: your own training loop. weights are those of the
              global model, float32 of shape (dim,), yours to change. The worker then serves jobs whose objective is
              {"type": "training", "name": "python", "dim": dim}. An exception costs the client this round: it gets the
              task again, at most three times, or under policy "drop" the round does without it
    initial   the weights, of shape (dim,), that jobs of this kind start from if their initial_point is
              {"type": "first"}. Sent once, as float32, by the first worker that offers a start
    evaluate  f(weights, task) -> {"test_accuracy": 0.9, ...}, the metrics of a new global model: task.round has made
              it. Called once for each model, the last one included, on one of the workers; with the job's `evaluation`
              "clients" once for each client of the round, for its own data. The metrics are shown with the round that
              made the model. An exception is logged and shown, and the job goes on
    dim       dimension of the jobs to serve; 0 = any
    loss      f(x, client) -> f_m(x), for the regret; without it the job's reference must be of type "none"
    metrics   f(x, client) -> {"accuracy": 0.9, ...}, reported once per client and round: client.round, of the job
              client.problem (a Problem). tally.report() does the same from within the gradient
    plugin    the name in documents, in place of "python": 1 to 64 of a-z 0-9 - _
    override  serve jobs with other objectives as well, if they have this dim
    name      unique at the coordinator; a worker that returns under the same name gets its clients back. Default
              HOST-PID-NUMBER-DIGEST
    clients   number of clients to run at once; default 1
    job       serve only this job, and return when it has ended
    token, token_file   bearer token of the workers, or a file that contains it; default TALLY_TOKEN
    tls_ca    PEM file of the only certificates to trust for https://; default those of the system
    data_dir  folder with the files that job documents name; default "data"
    wait_ms   how long a poll may wait for a task; default 10000
    exit_when_idle      return when the coordinator has no job left

    Ctrl-C ends it as it ends tally-worker: the worker leaves, and its clients are reassigned to other workers. After
    SIGTERM, too, it leaves, and then the process ends, unless the program handles the signal itself. Log lines go to
    logging.getLogger("tally").
    """
    return Worker(url, gradient, dim, **options).run()
