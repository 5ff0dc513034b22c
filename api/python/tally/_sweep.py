"""Many variants of a job, and which is best."""

from __future__ import annotations

import importlib
import json
import math
import os
import subprocess
from typing import Any, Mapping, Optional

from . import _library as c
from ._simulate import _program


def _row_of(row: Mapping[str, Any], best: Optional[int]) -> dict[str, Any]:
    flat: dict[str, Any] = {"row": row["row"], "name": row["name"], **row["members"], "runs": row["runs"]}
    values = {**row["results"], **{f"metrics.{name}": value for name, value in row["metrics"].items()}}
    for name, value in values.items():
        for key, part in ((name, "mean"), (f"{name}_std", "std")):
            flat[key] = math.nan if value is None or value[part] is None else value[part]
    return {**flat, "best": row["row"] == best}


def sweep(
    document: Mapping[str, Any] | str | os.PathLike[str],
    *,
    data_dir: str | os.PathLike[str] = "data",
    threads: Optional[int] = None,
    url: Optional[str] = None,
    token_file: Optional[str | os.PathLike[str]] = None,
    tls_ca: Optional[str | os.PathLike[str]] = None,
    parallel: int = 4,
    **members: Any,
) -> Any:
    """Runs many variants of a job and returns the table: a pandas.DataFrame, or without pandas a list of dicts.

    document    a sweep (services/experiment/SWEEP.md), or its file; with members, the job document that is its base
    members     members of the sweep: grid={"algorithm.step_size": [0.1, 0.3]}, seeds="101-110", random, rows, best,
                halving, tune_seeds, ...
    data_dir    folder with the files that the job documents name; with `url`, of those whose features or classes a
                document leaves open
    threads     how many; default as many as there are processors
    url         of a coordinator, whose workers then run the sweep as a group of jobs, at most `parallel` at once: the
                same call again finds the jobs that exist. Without it the sweep runs on this machine
    token_file, tls_ca   for the coordinator, as for Client

    Each row of the table has its number `row`, its `name`, the members that vary, the number of `runs`, the mean over
    the seeds of each result (`regret`, `loss`, `bits`, ..., `metrics.NAME`) with its standard deviation
    (`regret_std`), and whether it is the `best`. nan is a value that is unknown or not finite. The job document of the
    best row, ready for submit(), is `attrs["best"]` of the DataFrame.

    Requires the program `tally` on PATH or in the folder TALLY_BIN. Raises Error if the sweep is invalid or a run fails.
    """
    arguments = [_program("tally"), "sweep", "-", "--json"]
    given: Mapping[str, Any]
    if members:
        given = {"base": dict(document) if isinstance(document, Mapping) else os.path.abspath(document), **members}
    elif isinstance(document, Mapping):
        given = document
    else:
        arguments[2], given = os.path.abspath(document), {}
    arguments += ["--data-dir", os.fspath(data_dir)]
    if url is not None:
        arguments += ["--coordinator", url, "--parallel", str(parallel)]
        arguments += ["--token-file", os.fspath(token_file)] if token_file is not None else []
        arguments += ["--tls-ca", os.fspath(tls_ca)] if tls_ca is not None else []
    elif threads is not None:
        arguments += ["--threads", str(threads)]
    environment = {key: value for key, value in os.environ.items() if key != "TALLY_COORDINATOR"}  # only `url` counts
    done = subprocess.run(arguments, input=c.document(given).decode(), capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        code = "invalid_argument" if done.returncode == 2 else "failed_precondition"
        raise c.Error(done.stderr.strip() or f"tally sweep ended with {done.returncode}", code)
    result: dict[str, Any] = json.loads(done.stdout)
    best = result.get("best") or {}
    rows = [_row_of(row, best.get("row")) for row in result["rows"]]
    try:
        pandas = importlib.import_module("pandas")  # needed only here
    except ImportError:
        return rows
    frame = pandas.DataFrame(rows)
    frame.attrs["best"] = best.get("document")
    return frame
