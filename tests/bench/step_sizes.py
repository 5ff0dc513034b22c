#!/usr/bin/python3
"""How good the step sizes are that `tally plan` suggests: the table of services/job/README.md.

    tests/bench/step_sizes.py NAME... [--data-dir DIR]      TALLY_BIN: folder of the programs

NAME is a job of deploy/jobs, such as synthetic-fedavg, or SET-GRADIENTS-METHOD of deploy/experiments/logistic.json,
such as wine-exact-fedavg. For each, prints the suggestion, the best step size of a grid of factor 2 around it, and
the regret at both. Jobs of synthetic data have seeds 101 to 104, others seed 1.
"""

import argparse
import json
import math
import os
import pathlib
import subprocess
import tempfile

REPO = pathlib.Path(__file__).resolve().parents[2]
TALLY = str(pathlib.Path(os.environ.get("TALLY_BIN", REPO / "build/release/bin")).resolve() / "tally")
POWERS = range(-4, 5)


def set_member(document, path, value):
    *parents, last = path.split(".")
    for key in parents:
        document = document.setdefault(key, {})
    document[last] = value


def document_of(name):
    path = REPO / f"deploy/jobs/{name}.json"
    if path.exists():
        return json.loads(path.read_text())
    sweep = json.loads((REPO / "deploy/experiments/logistic.json").read_text())
    row = next(row for row in sweep["rows"] if row["name"].replace(" ", "-") == name)
    document = json.loads(json.dumps(sweep["base"]))
    for path, value in row["set"].items():
        set_member(document, path, value)
    return {**document, "seed": 1}


def measure(name, folder, options):
    document = document_of(name)
    document["evaluate_every"] = 10
    path = folder / "job.json"
    path.write_text(json.dumps(document))
    plan = json.loads(subprocess.run([TALLY, "plan", path, "--json", *options], check=True, stdout=subprocess.PIPE).stdout)
    suggested = plan["suggested_step_size"]
    steps = [suggested * 2.0 ** k for k in POWERS]
    seeds = "101-104" if name.startswith("synthetic") else "1"
    path.write_text(json.dumps({"base": document, "seeds": seeds, "grid": {"algorithm.step_size": steps}}))
    done = json.loads(subprocess.run([TALLY, "sweep", path, "--json", *options], check=True, stdout=subprocess.PIPE,
                                     stderr=subprocess.DEVNULL).stdout)
    means = [row["results"]["regret"]["mean"] for row in done["rows"]]
    regrets = [math.inf if mean is None else mean for mean in means]
    best = min(range(len(regrets)), key=lambda i: regrets[i])
    own = regrets[POWERS.index(0)]
    print(f"| {name} | {suggested:.3g} | {steps[best]:.3g} | {own:.4g} | {regrets[best]:.4g} | {own / regrets[best]:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--data-dir", default="data")
    arguments = parser.parse_args()
    print("| job | suggested | best | regret | at the best | ratio |\n|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.names:
            measure(name, pathlib.Path(folder), ("--data-dir", arguments.data_dir))


if __name__ == "__main__":
    main()
