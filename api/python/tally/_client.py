"""Jobs over REST (api/openapi.yaml)."""

from __future__ import annotations

import csv
import http.client
import importlib
import io
import ipaddress
import json
import os
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from ._library import Error, coordinator_url, version
from ._library import document as _document

_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.25, 5.0  # between attempts to reach the coordinator
_POLL_S = 0.2  # between two requests for the state of a job
_PAGE = 1000  # elements per page of a list
_PASSING = (429, 502, 503, 504)


@dataclass(frozen=True)
class Event:
    """A change of a job."""

    kind: str
    """"job": the status or another part of the detail has changed; data is the detail. "round": a round has
    closed; data is its record. "evaluation": the metrics of a round now have those of its model; data is the round and
    all its metrics."""
    data: dict[str, Any]


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirections, so that no token is sent to another host."""

    def redirect_request(self, *arguments: Any, **named: Any) -> None:
        return None


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read_token(path: str | os.PathLike[str]) -> str:
    """Returns the first unexpired token of a file with lines TOKEN [name=NAME] [until=TIME]."""
    now = datetime.now(timezone.utc)
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        until = [word[6:] for word in words[1:] if word.startswith("until=")]
        if not until or datetime.fromisoformat(until[0].replace("Z", "+00:00")) > now:
            return words[0]
    raise ValueError(f"{os.fspath(path)} contains no valid token")


def _error_of(status: int, body: bytes, reason: str, where: str) -> Error:
    """The error in a problem document (RFC 9457), or in any other response."""
    try:
        problem = json.loads(body)
        return Error(problem.get("detail") or problem["title"], problem.get("code", "internal"),
                     problem.get("field", ""), status)
    except (ValueError, KeyError, TypeError, AttributeError):
        return Error(f"HTTP {status} from {where}: {reason}", "unavailable" if status in _PASSING else "internal", "", status)


class Client:
    """The REST interface of a coordinator.

    url         default TALLY_COORDINATOR, or http://127.0.0.1:8080
    token, token_file   admin token, or a file that contains it; default TALLY_TOKEN
    tls_ca      PEM file of the only certificates to trust for https://; default those of the system
    timeout_s   how long to wait for a coordinator that sends nothing
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        tls_ca: str | os.PathLike[str] | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        self.url = coordinator_url(url).rstrip("/")
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
            raise ValueError("url is not http://HOST:PORT or https://HOST:PORT, without user and query")
        if token is not None and token_file is not None:
            raise ValueError("token and token_file: give one of them")
        token = _read_token(token_file) if token_file is not None else token or os.environ.get("TALLY_TOKEN")
        self._headers = {"User-Agent": f"tally-python/{version()}"}
        if token:
            if not token.isascii() or not token.isprintable() or " " in token:
                raise ValueError("token contains a character other than visible ASCII")
            self._headers["Authorization"] = f"Bearer {token}"
        self._timeout_s = timeout_s
        handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
        self._through = ""
        if _is_loopback(parts.hostname):
            handlers.append(urllib.request.ProxyHandler({}))  # never through a proxy
        elif not urllib.request.proxy_bypass(parts.hostname):
            proxy = urllib.request.getproxies().get(parts.scheme, "")
            self._through = f" through the proxy {proxy.rpartition('@')[2]}" if proxy else ""  # without a password
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=os.fspath(tls_ca) if tls_ca is not None else None)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            handlers.append(urllib.request.HTTPSHandler(context=context))
        self._opener = urllib.request.build_opener(*handlers)

    def _open(
        self, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None, method: str | None = None
    ) -> Any:
        request = urllib.request.Request(self.url + path, body, {**self._headers, **(headers or {})}, method=method)
        try:
            answer = self._opener.open(request, timeout=self._timeout_s)
        except urllib.error.HTTPError as error:
            with error:
                raise _error_of(error.code, error.read(), error.reason, self._where(error)) from None
        except urllib.error.URLError as error:
            raise Error(f"{self.url}{self._through}: {error.reason}", "unavailable") from error
        if answer.headers.get_content_type() == "text/html":
            with answer:
                raise Error(f'HTTP {answer.status} from {self._where(answer)}: response of type "text/html": this is no '
                            "Tally coordinator", "internal", "", answer.status)
        return answer

    def _where(self, answer: Any) -> str:
        """Which server has answered, and how it was reached."""
        server = answer.headers.get("Server")
        return f"{self.url}{f' ({server})' if server else ''}{self._through}"

    def _json(self, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        try:
            with self._open(path, body, headers) as answer:
                value = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Error(f"{self.url}{path}: {error}", "unavailable") from error
        if not isinstance(value, dict):
            raise Error(f"{self.url}{path}: the response is not a JSON object", "malformed")
        return value

    def submit(self, job: Mapping[str, Any], *, idempotency_key: str | None = None) -> str:
        """Submits a job document and returns the job's id. Raises Error, whose field says which member is wrong."""
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if idempotency_key is not None:
            headers["Idempotency-Key"] = idempotency_key
        return str(self._json("/v1/jobs", _document(job), headers)["id"])

    def import_job(self, path: str | os.PathLike[str]) -> str:
        """Imports the job in a bundle, a file that `tally export --bundle` wrote on another coordinator, and returns the
        job's id, which it keeps. Importing it again changes nothing. Raises Error, whose field says what is wrong with the
        bundle; its code is "already_exists" if another job has the id."""
        with open(path, "rb") as file:
            bundle = file.read()
        headers = {"Content-Type": "application/x-tar", "Accept": "application/json"}
        return str(self._json("/v1/jobs/import", bundle, headers)["id"])

    def show(self, job_id: str) -> dict[str, Any]:
        """Returns the detail of a job: document, status, progress and bit counters. Once the job has ended,
        `reason_code` gives the reason (services/job/REASONS.md), and `reason` describes it as text."""
        return self._json(_job_path(job_id))

    def document(self, job_id: str) -> dict[str, Any]:
        """Returns the document of a job alone, with every default written out: submit() of it gives the same job."""
        return self._json(_job_path(job_id, "/document"))

    def models(self, job_id: str) -> list[dict[str, Any]]:
        """The models that a job has: the best, those kept every so many rounds, and the last.

        Each has `which` (the argument of model()), `round`, `iterate`, `bytes` and `x_checksum`; the best one has
        `metric` and `value` in addition.
        """
        answer = self._json(_job_path(job_id, "/models"))
        models: list[dict[str, Any]] = answer["models"]
        return models

    def model(self, job_id: str, *, which: str | int = "last") -> NDArray[np.float64]:
        """A model of a job, of shape (dim,): the "last", the "best" or that of a round, if the job keeps it."""
        path = _job_path(job_id, f"/model?which={urllib.parse.quote(str(which), safe='')}")
        return self._npy(path)

    def _npy(self, path: str) -> NDArray[np.float64]:
        try:
            with self._open(path, None, {"Accept": "application/x-npy"}) as answer:
                x: NDArray[np.float64] = np.load(io.BytesIO(answer.read()), allow_pickle=False)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Error(f"{self.url}{path}: {error}", "unavailable") from error
        return x

    def scaling(self, job_id: str) -> NDArray[np.float64]:
        """The numbers by which the features of a job are scaled, if it began with a survey of its clients' points: of
        shape (3, features), what missing values become, the means and the deviations."""
        path = _job_path(job_id, "/scaling")
        numbers = self._npy(path)
        return numbers.reshape(3, -1)

    def jobs(
        self,
        *,
        status: str | None = None,
        name: str | None = None,
        label: str | Mapping[str, str | None] | Iterable[str] = (),
        sort: str | None = None,
        limit: int | None = None,
    ) -> list[dict[str, Any]]:
        """The details of the jobs, newest first unless `sort` says otherwise.

        status: only jobs of this status ("queued", "running", "paused", "completed", "failed" or "cancelled").
        name: only jobs with exactly this name.
        label: only jobs with this label: "key=value", or "key" for any value. For several labels, all of which a job
            must have, pass a list of such strings or a mapping of keys to values, where None stands for any value.
        sort: the order: "created", "id", "name", "algorithm", "status", "time_step", "progress", "round", "regret",
            "loss", "uplink_bits", "uplink_bits_per_client", "downlink_bits" or "metric:NAME"; descending with a leading "-".
        limit: the maximum number of jobs; None = all.
        """
        query = [("label", text) for text in _labels_of(label)]
        others = (("status", status), ("name", name), ("sort", sort))
        query += [(key, value) for key, value in others if value is not None]
        return self._pages("/v1/jobs", "jobs", limit, query)

    def workers(self, *, limit: int | None = None) -> list[dict[str, Any]]:
        """Returns the workers that have joined, newest first: name, slots, state and clients of each."""
        return self._pages("/v1/workers", "workers", limit, [])

    def _pages(
        self, path: str, member: str, limit: int | None, query: list[tuple[str, str]]
    ) -> list[dict[str, Any]]:
        """Returns a list that is served in pages: all of it, or its first `limit` elements."""
        if limit is not None and limit < 0:
            raise ValueError("limit is negative")
        found: list[dict[str, Any]] = []
        cursor: str | None = ""
        while cursor is not None and (limit is None or len(found) < limit):
            size = _PAGE if limit is None else min(_PAGE, limit - len(found))
            page = [*query, ("limit", str(size)), *([("cursor", cursor)] if cursor else [])]
            answer = self._json(f"{path}?{urllib.parse.urlencode(page)}")
            found += answer[member]
            cursor = answer["next_cursor"]
        return found

    def cancel(self, job_id: str) -> dict[str, Any]:
        """Ends a job for good and returns its detail. Raises Error if it has already ended."""
        return self._change(job_id, "cancel")

    def pause(self, job_id: str) -> dict[str, Any]:
        """Stops a job until resume() is called, and returns its detail."""
        return self._change(job_id, "pause")

    def resume(self, job_id: str) -> dict[str, Any]:
        """Resumes a paused job and returns its detail."""
        return self._change(job_id, "resume")

    def delete(self, job_id: str, *, force: bool = False) -> None:
        """Deletes a job that has ended, with its model and its rounds. This cannot be undone.

        force: also delete a job that has not ended; it is cancelled first. Without `force`, such a job raises an
            Error with the code "failed_precondition". A job that does not exist, or no longer exists, raises an Error
            with the code "not_found".
        """
        path = _job_path(job_id, "?force=1" if force else "")
        try:
            with self._open(path, None, None, "DELETE") as answer:
                answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise Error(f"{self.url}{path}: {error}", "unavailable") from error

    def _change(self, job_id: str, verb: str) -> dict[str, Any]:
        return self._json(_job_path(job_id, f"/{verb}"), b"")

    def wait(self, job_id: str, *, wait_s: float | None = None) -> dict[str, Any]:
        """Waits until a job has ended and returns its final detail, whose `status` shows how it ended.

        Keeps waiting while the coordinator is unreachable. Raises TimeoutError after `wait_s` seconds; the job
        continues.
        """
        until = None if wait_s is None else time.monotonic() + wait_s
        while True:
            detail: dict[str, Any] = {}
            try:
                detail = self.show(job_id)
            except Error as error:
                if error.code != "unavailable" and error.status not in _PASSING:
                    raise
            if _has_ended(detail):
                return detail
            left_s = _POLL_S if until is None else until - time.monotonic()
            if left_s <= 0:
                raise TimeoutError(f"job {job_id} is {detail.get('status', 'out of reach')} after {wait_s:g} s")
            time.sleep(min(_POLL_S, left_s))

    def rounds(self, job_id: str) -> NDArray[np.void]:
        """Returns the closed rounds of a job as a structured array of shape (rounds,).

        The fields are the columns of rounds.csv (api/README.md): integers as int64, `passed` and `cut` as bool,
        `missing` as text, and all others as float64, where nan means unknown. For example, `rounds["regret"]` over
        `rounds["t"]` is the regret curve. to_pandas() converts the array to a DataFrame.
        """
        path = _job_path(job_id, "/rounds.csv")
        try:
            with self._open(path, None, {"Accept": "text/csv"}) as answer:
                names, *rows = csv.reader(io.TextIOWrapper(answer, encoding="utf-8", newline=""))
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Error(f"{self.url}{path}: {error}", "unavailable") from error
        columns = [_column(name, [row[i] for row in rows]) for i, name in enumerate(names)]
        table = np.empty(len(rows), [(name, column.dtype) for name, column in zip(names, columns)])
        for name, column in zip(names, columns):
            table[name] = column
        return table

    def client_metrics(self, job_id: str) -> dict[int, dict[str, float]]:
        """Returns what each client reported in the last closed round that has metrics: `{client: {name: value}}`.

        Clients that reported nothing are absent. rounds() gives mean, minimum and maximum of every round.
        """
        found: dict[int, dict[str, float]] = {}
        first: int | None = 0
        round_ = None
        while first is not None:
            answer = self._json(_job_path(job_id, f"/metrics?first={first}&limit={_PAGE}"))
            if first > 0 and answer["round"] != round_:  # another round has closed: start again
                found, first = {}, 0
                continue
            round_ = answer["round"]
            found |= {each["client"]: each["metrics"] for each in answer["clients"]}
            first = answer["next_client"]
        return found

    def client_traffic(self, job_id: str) -> list[dict[str, Any]]:
        """Returns the traffic of each client, as the coordinator counts it: `client`, `updates`, `payload_bits` and
        `wire_bytes`.

        Clients without traffic are absent.
        """
        found: list[dict[str, Any]] = []
        first: int | None = 0
        while first is not None:
            answer = self._json(_job_path(job_id, f"/traffic?first={first}&limit={_PAGE}"))
            found += answer["clients"]
            first = answer["next_client"]
        return found

    def watch(self, job_id: str, *, after: int | None = None) -> Iterator[Event]:
        """Yields the events of a job until it has ended; the last event is its final detail.

        after: the last round that the caller already has; the rounds after it are yielded first. Without `after`,
            only new events are yielded.
        Keeps waiting while the coordinator is unreachable.
        """
        path = _job_path(job_id, "/events")
        last = after
        pause_s = _FIRST_PAUSE_S
        has_ended = False  # as the last event says
        while True:
            headers = {"Accept": "text/event-stream"} | ({} if last is None else {"Last-Event-ID": str(last)})
            try:
                with self._open(path, None, headers) as stream:
                    if stream.status == 204:  # the job has ended, and there is no new event
                        if not has_ended:
                            yield Event("job", self.show(job_id))
                        return
                    for event, event_id in _read_events(stream):
                        pause_s = _FIRST_PAUSE_S
                        if event_id is not None:
                            last = event_id
                        elif last is None and event.kind == "job":
                            last = event.data["round"]  # "now", for later connections
                        yield event
                        has_ended = event.kind == "job" and _has_ended(event.data)
                    if has_ended:  # the connection may have ended before the last rounds: ask until 204
                        continue
            except Error as error:
                if error.code != "unavailable" and error.status not in _PASSING:
                    raise
            except (OSError, http.client.HTTPException, ValueError):  # the connection broke in the middle of an event
                pass
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LAST_PAUSE_S)


_INTEGERS = ("round", "t", "k", "j", "samples", "received", "closed_ms")
_FLAGS = ("passed", "cut")


def _column(name: str, cells: list[str]) -> NDArray[Any]:
    """Converts the cells of a column of rounds.csv to its type; an empty number becomes nan."""
    if name in _INTEGERS or name.endswith(("_bits", "_messages", "_clipped")):
        return np.array(cells, dtype=np.int64)
    if name in _FLAGS:
        return np.array([cell == "1" for cell in cells], dtype=bool)
    if name == "missing":
        return np.array(cells, dtype=np.str_) if cells else np.array([], dtype="U1")
    return np.array([float(cell) if cell else np.nan for cell in cells], dtype=np.float64)


def to_pandas(rounds: NDArray[np.void]) -> Any:
    """Converts what rounds() returned to a pandas.DataFrame indexed by round. Raises ImportError without pandas."""
    pandas = importlib.import_module("pandas")  # needed only here
    return pandas.DataFrame({name: rounds[name] for name in rounds.dtype.names or ()}).set_index("round")


def _job_path(job_id: str, rest: str = "") -> str:
    if not job_id.strip():
        raise ValueError("job_id is empty")
    return f"/v1/jobs/{urllib.parse.quote(job_id, safe='')}{rest}"


def _labels_of(label: str | Mapping[str, str | None] | Iterable[str]) -> list[str]:
    """Returns the values of the query parameter `label`."""
    if isinstance(label, str):
        return [label]
    if isinstance(label, Mapping):
        return [key if value is None else f"{key}={value}" for key, value in label.items()]
    return list(label)


def _has_ended(detail: Mapping[str, Any]) -> bool:
    return detail.get("status") in ("completed", "failed", "cancelled")


def _read_events(stream: Any) -> Iterator[tuple[Event, int | None]]:
    """Yields server-sent events, each with its id."""
    fields: dict[str, str] = {}
    for raw in stream:
        line = raw.decode("utf-8").rstrip("\r\n")
        if line:
            name, _, value = line.partition(":")
            fields[name] = value[1:] if value.startswith(" ") else value
            continue
        if "data" in fields:
            event_id = int(fields["id"]) if fields.get("id") else None
            yield Event(fields.get("event", "message"), json.loads(fields["data"])), event_id
        fields = {}


def submit(job: Mapping[str, Any], *, idempotency_key: str | None = None, **where: Any) -> str:
    """Submits a job document and returns the job's id. Other arguments: those of Client."""
    return Client(**where).submit(job, idempotency_key=idempotency_key)


def import_job(path: str | os.PathLike[str], **where: Any) -> str:
    """Imports the job in a bundle and returns its id. Other arguments: those of Client."""
    return Client(**where).import_job(path)


def show(job_id: str, **where: Any) -> dict[str, Any]:
    """Returns the detail of a job. Other arguments: those of Client."""
    return Client(**where).show(job_id)


def document(job_id: str, **where: Any) -> dict[str, Any]:
    """As Client.document(); **where: the arguments of Client."""
    return Client(**where).document(job_id)


def models(job_id: str, **where: Any) -> list[dict[str, Any]]:
    """Returns the models that a job has. Other arguments: those of Client."""
    return Client(**where).models(job_id)


def model(job_id: str, *, which: str | int = "last", **where: Any) -> NDArray[np.float64]:
    """Returns a model of a job, of shape (dim,): the "last", the "best" or that of a round, if the job keeps it. Other
    arguments: those of Client."""
    return Client(**where).model(job_id, which=which)


def scaling(job_id: str, **where: Any) -> NDArray[np.float64]:
    """Returns the numbers by which the features of a job are scaled, if it began with a survey: of shape (3, features), what
    missing values become, the means and the deviations. Other arguments: those of Client."""
    return Client(**where).scaling(job_id)


def watch(job_id: str, *, after: int | None = None, **where: Any) -> Iterator[Event]:
    """Yields the events of a job until it has ended. Other arguments: those of Client."""
    return Client(**where).watch(job_id, after=after)


def jobs(
    *,
    status: str | None = None,
    name: str | None = None,
    label: str | Mapping[str, str | None] | Iterable[str] = (),
    sort: str | None = None,
    limit: int | None = None,
    **where: Any,
) -> list[dict[str, Any]]:
    """Returns the details of the jobs, newest first. The first arguments are those of Client.jobs(), the others those
    of Client."""
    return Client(**where).jobs(status=status, name=name, label=label, sort=sort, limit=limit)


def workers(*, limit: int | None = None, **where: Any) -> list[dict[str, Any]]:
    """Returns the workers that have joined, newest first. Other arguments: those of Client."""
    return Client(**where).workers(limit=limit)


def cancel(job_id: str, **where: Any) -> dict[str, Any]:
    """Ends a job for good and returns its detail. Other arguments: those of Client."""
    return Client(**where).cancel(job_id)


def delete(job_id: str, *, force: bool = False, **where: Any) -> None:
    """Deletes a job that has ended; with `force`, also one that has not. Other arguments: those of Client."""
    Client(**where).delete(job_id, force=force)


def wait(job_id: str, *, wait_s: float | None = None, **where: Any) -> dict[str, Any]:
    """Waits until a job has ended, at most `wait_s` seconds, and returns its final detail. Other arguments: those of
    Client, whose `timeout_s` limits how long the coordinator may send nothing."""
    return Client(**where).wait(job_id, wait_s=wait_s)


def client_metrics(job_id: str, **where: Any) -> dict[int, dict[str, float]]:
    """Returns what each client reported in the last closed round that has metrics: `{client: {name: value}}`. Other
    arguments: those of Client."""
    return Client(**where).client_metrics(job_id)


def client_traffic(job_id: str, **where: Any) -> list[dict[str, Any]]:
    """Returns the traffic of each client as a list of dictionaries. Other arguments: those of Client."""
    return Client(**where).client_traffic(job_id)


def rounds(job_id: str, **where: Any) -> NDArray[np.void]:
    """Returns the closed rounds of a job as a structured array of shape (rounds,). Other arguments: those of
    Client."""
    return Client(**where).rounds(job_id)
