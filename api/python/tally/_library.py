"""libtally.so.1 through ctypes: the structs of <tally/tally.h> and <tally/plugin.h>, and errors as exceptions."""

from __future__ import annotations

import ctypes
import json
import os
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_int32, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Mapping

import numpy as np

SONAME = "libtally.so.1"


class Error(Exception):
    """A request that Tally refused or could not serve. The text names the value and its limit."""

    def __init__(self, message: str, code: str, field: str = "", status: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        """"invalid_argument", "not_found", "unauthenticated" ..."""
        self.field = field
        """The member that is wrong, such as "objective.data.dim"; "" if there is none."""
        self.status = status
        """HTTP status of the response, if there was one."""

    def __str__(self) -> str:
        message = str(self.args[0])
        return f"{self.field}: {message}" if self.field and self.field not in message else message


def _plain(value: Any) -> Any:
    """Returns a NumPy scalar as the Python number that it equals."""
    if isinstance(value, (np.generic, np.ndarray)) and value.ndim == 0:
        return value.item()
    raise TypeError(f"{type(value).__name__} is not a value of JSON")


def document(job: Mapping[str, Any]) -> bytes:
    """Returns a job document as JSON."""
    return json.dumps(job, allow_nan=False, default=_plain).encode()


class Failure(ctypes.Structure):
    _fields_ = [("code", c_int), ("field", ctypes.c_char * 96), ("message", ctypes.c_char * 512)]


class Rounding(ctypes.Structure):
    _fields_ = [("seed", c_uint64), ("run", c_uint32), ("client", c_uint32), ("round", c_uint32)]


class Payload(ctypes.Structure):
    _fields_ = [("data", POINTER(c_uint8)), ("size", c_size_t), ("payload_bits", c_uint64),
                ("formula_bits", c_uint64), ("nonzeros", c_uint64), ("clipped", c_uint64)]


class Points(ctypes.Structure):
    _fields_ = [("n", c_size_t), ("features", c_size_t), ("values", POINTER(c_double)), ("labels", POINTER(c_double))]


class PluginProblem(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("dim", c_uint64), ("clients", c_uint32), ("seed", c_uint64),
                ("run", c_uint32), ("options", c_char_p), ("data_dir", c_char_p), ("rounds", c_uint64),
                ("job", c_char_p), ("mu", c_double)]


BELOW = ctypes.CFUNCTYPE(c_uint32, c_void_p, c_uint32)


class PluginQuery(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("client", c_uint32), ("round", c_uint32), ("samples", c_uint64),
                ("below", BELOW), ("stream", c_void_p)]


# A char * that C writes to cannot be a c_char_p, which ctypes would copy.
WHY = c_void_p
OPEN = ctypes.CFUNCTYPE(c_int, POINTER(PluginProblem), POINTER(c_void_p), WHY, c_size_t)
CLOSE = ctypes.CFUNCTYPE(None, c_void_p)
GRADIENT = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(PluginQuery), POINTER(c_double), POINTER(c_double),
                            POINTER(c_uint64), WHY, c_size_t)
LOSS = ctypes.CFUNCTYPE(c_int, c_void_p, c_uint32, POINTER(c_double), POINTER(c_double), WHY, c_size_t)


class PluginMetric(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char * 33), ("value", c_double)]


class PluginTraining(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("client", c_uint32), ("round", c_uint32)]


TRAIN = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(PluginTraining), POINTER(c_float), POINTER(c_uint64), WHY, c_size_t)
INITIAL = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(c_float), WHY, c_size_t)
SAMPLES_MOST = 1 << 25
METRICS_MOST = 16
METRICS = ctypes.CFUNCTYPE(c_int, c_void_p, c_uint32, c_uint32, POINTER(c_double), POINTER(PluginMetric),
                           POINTER(c_size_t), WHY, c_size_t)
EVALUATE = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(PluginTraining), POINTER(c_float), POINTER(PluginMetric),
                            POINTER(c_size_t), WHY, c_size_t)
LOG = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p)
PLUGIN_ABI = 1


class Plugin(ctypes.Structure):
    _fields_ = [("abi", c_uint32), ("size", c_size_t), ("name", c_char_p), ("open", OPEN), ("close", CLOSE),
                ("gradient", GRADIENT), ("loss", LOSS), ("metrics", METRICS), ("train", TRAIN),
                ("initial", INITIAL), ("evaluate", EVALUATE)]


class WorkerConfig(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("coordinator", c_char_p), ("name", c_char_p), ("token", c_char_p),
                ("token_file", c_char_p), ("tls_ca", c_char_p), ("data_dir", c_char_p), ("job", c_char_p),
                ("clients", c_uint32), ("wait_ms", c_uint32), ("exit_when_idle", c_int),
                ("plugin", POINTER(Plugin)), ("dim", c_uint64), ("override", c_int), ("log", LOG),
                ("log_context", c_void_p), ("code_name", c_char_p), ("code_sha256", c_char_p)]


class WorkerTotals(ctypes.Structure):
    _fields_ = [("rounds", c_uint64), ("messages", c_uint64), ("formula_bits", c_uint64),
                ("payload_bits", c_uint64), ("clipped", c_uint64), ("wire_out_bytes", c_uint64),
                ("wire_in_bytes", c_uint64)]


_INT32, _FLOAT, _BYTES = POINTER(c_int32), POINTER(c_float), POINTER(c_uint8)
_FAILURE = POINTER(Failure)
_PAYLOAD = POINTER(POINTER(Payload))
# name: (result, arguments)
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "tally_version": (c_char_p, []),
    "tally_code_name": (c_char_p, [c_int]),
    "tally_encoding_name": (c_char_p, [c_size_t]),
    "tally_grid_for": (c_int, [c_double, c_double, c_size_t, POINTER(c_double), POINTER(c_uint32), _FAILURE]),
    "tally_payload_free": (None, [POINTER(Payload)]),
    "tally_encode_levels": (c_int, [c_char_p, c_uint32, c_double, _INT32, c_size_t, _PAYLOAD, _FAILURE]),
    "tally_encode_values": (c_int, [c_char_p, c_uint32, c_double, _FLOAT, c_size_t, POINTER(Rounding), _PAYLOAD,
                                    _FAILURE]),
    "tally_decode_levels": (c_int, [c_char_p, c_uint32, c_double, _BYTES, c_size_t, c_uint64, c_size_t, _INT32,
                                    _FAILURE]),
    "tally_encode_float32": (c_int, [_FLOAT, c_size_t, _PAYLOAD, _FAILURE]),
    "tally_decode_float32": (c_int, [_BYTES, c_size_t, c_uint64, c_size_t, _FLOAT, _FAILURE]),
    "tally_encode_qsgd": (c_int, [c_uint32, _FLOAT, c_size_t, POINTER(Rounding), _PAYLOAD, _FAILURE]),
    "tally_decode_qsgd": (c_int, [c_uint32, _BYTES, c_size_t, c_uint64, c_size_t, _FLOAT, _INT32, _FAILURE]),
    "tally_job_data_load": (c_int, [c_char_p, c_size_t, c_char_p, POINTER(c_void_p), _FAILURE]),
    "tally_job_data_free": (None, [c_void_p]),
    "tally_job_data_clients": (c_uint32, [c_void_p]),
    "tally_job_data_points": (c_int, [c_void_p, c_uint32, POINTER(POINTER(Points)), _FAILURE]),
    "tally_points_free": (None, [POINTER(Points)]),
    "tally_worker_config_init": (None, [POINTER(WorkerConfig), c_size_t]),
    "tally_worker_new": (c_int, [POINTER(WorkerConfig), POINTER(c_void_p), _FAILURE]),
    "tally_worker_run": (c_int, [c_void_p, POINTER(WorkerTotals), _FAILURE]),
    "tally_worker_stop": (None, [c_void_p]),
    "tally_worker_free": (None, [c_void_p]),
}


def _load() -> ctypes.CDLL:
    """Loads TALLY_LIBRARY; if it is not set, the copy beside this file (in a wheel), or else the system's library."""
    beside = Path(__file__).with_name(SONAME)
    path = os.environ.get("TALLY_LIBRARY") or (str(beside) if beside.exists() else SONAME)
    library = ctypes.CDLL(path)
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library


library = _load()


def call(name: str, *arguments: Any) -> None:
    """Calls a function whose last argument is a failure; raises Error if it fails."""
    failure = Failure()
    code = getattr(library, name)(*arguments, ctypes.byref(failure))
    if code != 0:
        raise error_of(code, failure)


def error_of(code: int, failure: Failure) -> Error:
    return Error(failure.message.decode("utf-8", "replace"), library.tally_code_name(code).decode().lower(),
                 failure.field.decode("utf-8", "replace"))


def coordinator_url(url: str | None) -> str:
    """Returns the given URL, else TALLY_COORDINATOR, else that of this machine. http:// may be omitted."""
    url = url or os.environ.get("TALLY_COORDINATOR") or "127.0.0.1:8080"
    return url if "://" in url else f"http://{url}"


def text(value: str | os.PathLike[str] | None) -> bytes | None:
    """Encodes a string for C. Raises ValueError for a NUL, which would end the string in C."""
    if value is None:
        return None
    encoded = os.fsencode(value)
    if b"\0" in encoded:
        raise ValueError(f"NUL in {value!r}")
    return encoded


def version() -> str:
    """Returns the version of libtally."""
    return str(library.tally_version().decode())
