#!/usr/bin/python3
"""How the coordinator scales: the figures and the picture of services/coordinator/DESIGN.md, "How it scales".

    tests/bench/bench_scaling.py [--out DIR] [--runs R] [--seconds S] [--draw] [--update]

TALLY_BIN: folder of the programs.

Measures every combination of clients and dimension with `tests/bench/run coordinator`, one after the other, in about a
quarter of an hour. It writes scaling.json to DIR (default build/scaling) after every point, and finally the tables
(scaling.md) and the picture (scaling.svg, drawn by gnuplot). --draw skips the measurement and draws what is in DIR.
--update copies tables and picture to where DESIGN.md shows them. A point that cannot be measured is shown with the
reason.
"""

import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys
import time

REPO = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("TALLY_BIN", REPO / "build/release/bin")).resolve()
DESIGN = REPO / "services/coordinator/DESIGN.md"
PICTURE = REPO / "deploy/pictures/scaling.svg"
BEGIN, END = "<!-- tests/bench/bench_scaling.py writes from here -->", "<!-- to here -->"

CLIENTS = (10, 64, 256, 1024, 4096)
DIMS = (30, 1000, 7840, 10 ** 5, 10 ** 6)
STORE = "sqlite"
HANG_S = 900  # of one point

# Memory is measured with two jobs of so few rounds, so that the stored rounds count alike at every point.
FEW_ROUNDS = 2
# Where a round has gigabytes, only these two jobs run; the first is the warm-up.
LARGE = 10 ** 9

OVERHEAD_CLIENTS, OVERHEAD_DIMS = 64, (30, 7840)


# Measuring.

def bench(clients, dim, *options):
    """Returns the rows of one point. Raises RuntimeError with the reason if there are none."""
    words = [BIN / "tally-bench", "coordinator", "--json", "--clients", clients, "--dim", dim,
             "--store", STORE, *options]
    try:
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=HANG_S)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"not done after {HANG_S} s") from None
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise RuntimeError(said[-1] if said else f"ended with {done.returncode}")
    return json.loads(done.stdout)


def measure_point(arguments, clients, dim):
    point = {"clients": clients, "dim": dim, "error": None, "rows": []}
    try:
        few = bench(clients, dim, "--runs", 1, "--seconds", 0.1, "--rounds", FEW_ROUNDS)
        many = few
        if clients * dim < LARGE:
            many = bench(clients, dim, "--runs", arguments.runs, "--seconds", arguments.seconds)
        point["rows"] = [{**row, "job_rss_mb": of_few["rss_mb"]} for row, of_few in zip(many, few)]
    except RuntimeError as problem:
        point["error"] = str(problem)
    return point


def machine():
    info = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in info if line.startswith("model name")), platform.machine())
    system = platform.freedesktop_os_release()["PRETTY_NAME"]
    memory_gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2 ** 30
    return f"{len(os.sched_getaffinity(0))} cores of {model}, {memory_gib:.0f} GiB, {system}"


def measure(arguments):
    command = f"tests/bench/bench_scaling.py --runs {arguments.runs} --seconds {arguments.seconds:g}"
    report = {"machine": machine(), "command": command, "date": time.strftime("%Y-%m-%d"), "points": []}
    n, begin = len(CLIENTS) * len(DIMS), time.monotonic()
    for dim in DIMS:
        for clients in CLIENTS:
            print(f"{len(report['points']) + 1} of {n}, after {time.monotonic() - begin:.0f} s: "
                  f"{clients} clients, d = {dim}", end=": ", flush=True)
            point = measure_point(arguments, clients, dim)
            report["points"].append(point)
            print(point["error"] or ", ".join(
                f"{row['store']} {row['updates_per_s']:.0f} updates/s {row['job_rss_mb']:.0f} MB" for row in point["rows"]),
                flush=True)
            (arguments.out / "scaling.json").write_text(json.dumps(report, indent=1) + "\n")
    return report


# Tables.

def values(report, key):
    """Returns {(clients, dim): value} for the points that have a value."""
    return {(point["clients"], point["dim"]): row[key]
            for point in report["points"] for row in point["rows"]}


def written(dim):
    return f"10^{len(str(dim)) - 1}" if dim >= 10 ** 5 else f"{dim:,}"


def table(heads, rows):
    lines = ["| " + " | ".join(heads) + " |", "|--:" * len(heads) + "|"]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def memory_rows(report):
    """Returns the RSS at every number of clients, the memory per additional client, and the size of a message."""
    rss = values(report, "job_rss_mb")
    payload = values(report, "payload_bytes_per_update")
    for dim in DIMS:
        have = [clients for clients in CLIENTS if (clients, dim) in rss]
        cells = [f"{rss[clients, dim]:.1f}" if clients in have else "-" for clients in CLIENTS]
        if len(have) < 2:
            yield [written(dim), *cells, "-", "-"]
            continue
        each = 1e6 * (rss[have[-1], dim] - rss[have[0], dim]) / (have[-1] - have[0])
        yield [written(dim), *cells, f"{each:,.0f}", f"{payload[have[-1], dim]:,.0f}"]


def speed_rows(report, key, form):
    found = values(report, key)
    for dim in DIMS:
        yield [written(dim), *(form(found[clients, dim]) if (clients, dim) in found else "-" for clients in CLIENTS)]


def overhead_rows(report):
    for dim in OVERHEAD_DIMS:
        row = [values(report, f"{part}_bytes_per_update").get((OVERHEAD_CLIENTS, dim))
               for part in ("payload", "protobuf", "http", "wire")]
        yield [written(dim), *("-" if value is None else f"{value:,.1f}" for value in row)]


def exceptions(report):
    large = [point for point in report["points"] if point["clients"] * point["dim"] >= LARGE and not point["error"]]
    for point in large:
        yield f"{point['clients']:,} clients, d = {written(point['dim'])}: one run of {FEW_ROUNDS} rounds."
    for point in report["points"]:
        if point["error"]:
            yield f"{point['clients']:,} clients, d = {written(point['dim'])}: not measured: {point['error']}."


def tables(report):
    heads = ["d", *(f"M = {clients:,}" for clients in CLIENTS)]
    lines = [f"{report['date']}, {report['machine']}; `{report['command']}`.", *exceptions(report), ""]
    lines += [f"Peak RSS in MB after two jobs of {FEW_ROUNDS} rounds. The last two columns are in bytes: memory for each "
              "further client, and the payload of its messages in a round, both ways:", "",
              *table([*heads, "bytes each", "messages"], memory_rows(report)), "",
              "Updates per second:", "",
              *table(heads, speed_rows(report, "updates_per_s", "{:,.0f}".format)), "",
              "Microseconds of processor time for an update:", "",
              *table(heads, speed_rows(report, "cpu_us_per_update", "{:,.1f}".format)), "",
              f"Bytes of an update, there and back, M = {OVERHEAD_CLIENTS}:", "",
              *table(["d", "payload", "protobuf", "HTTP", "together"], overhead_rows(report))]
    return "\n".join(lines) + "\n"


# The picture.

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00")
POINTS = (5, 7, 9, 11, 13)

HEAD = """set terminal svg size 1400,420 font "sans-serif,13" background "#ffffff"
set output "scaling.svg"
set multiplot layout 1,3
set logscale xy
set grid linecolor "#dddddd"
set border 3
set tics nomirror
set format x "10^{%T}"
set format y "%.0s%c"
set key bottom left
"""

# The lines are straight and parallel: the memory per client does not depend on d.
MEMORY = """unset logscale
set format xy "%g"
set key top right maxrows 6
set xrange [0:4400]
set yrange [0:400]
"""


def block(name, series):
    """gnuplot's data: one index for each series."""
    lines = [f"${name} << END"]
    for points in series:
        lines += [f"{x} {y}" for x, y in points] or ["nan nan"]
        lines += ["", ""]
    return "\n".join([*lines, "END"])


def panel(name, title, axes, labels, extra=()):
    curves = [f"${name} index {i} title \"{label}\" with linespoints linecolor \"{COLOURS[i]}\" linewidth 2 pointtype {POINTS[i]}"
              for i, label in enumerate(labels)]
    return "\n".join([f"set title \"{title}\"", f"set xlabel \"{axes[0]}\"", f"set ylabel \"{axes[1]}\"",
                      "plot " + ", \\\n     ".join([*curves, *extra])])


def script(report):
    def over_dims(key):
        found = values(report, key)
        return [[(dim, found[clients, dim]) for dim in DIMS if (clients, dim) in found] for clients in CLIENTS]

    rss = values(report, "job_rss_mb")
    payload = values(report, "payload_bytes_per_update").get((CLIENTS[0], DIMS[-1]), 0)
    codec = values(report, "accumulate_us_per_update")
    clients, dims = [f"M = {m}" for m in CLIENTS], [f"d = {written(dim)}" for dim in DIMS]
    data = [block("speed", over_dims("updates_per_s")), block("cpu", over_dims("cpu_us_per_update")),
            block("codec", [[(dim, codec[64, dim]) for dim in DIMS if (64, dim) in codec]]),
            block("rss", [[(m, rss[m, dim]) for m in CLIENTS if (m, dim) in rss] for dim in DIMS])]
    return "\n".join([
        *data, HEAD,
        panel("speed", "Updates per second", ("dimension d", "updates/s"), clients),
        'set format y "10^{%T}"\nset key top left maxrows 3\nset yrange [0.1:1e6]',
        panel("cpu", "Processor time for an update", ("dimension d", "µs"), clients,
              ["$codec title \"codec alone\" with lines linecolor \"#000000\" dashtype 2"]),
        MEMORY + panel("rss", "Peak memory", ("clients M", "RSS, MB"), dims,
                       [f"{payload / 1e6} * x title \"M messages of d = {written(DIMS[-1])}\" "
                        "linecolor \"#000000\" dashtype 2"])]) + "\n"


def draw(report, out):
    (out / "scaling.gnuplot").write_text(script(report))
    subprocess.run(["gnuplot", "scaling.gnuplot"], cwd=out, check=True)
    (out / "scaling.md").write_text(tables(report))


def update(out):
    text = DESIGN.read_text()
    before, found, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise RuntimeError(f"{DESIGN} has no place for the figures")
    DESIGN.write_text(before + BEGIN + "\n" + (out / "scaling.md").read_text() + END + after)
    PICTURE.write_text((out / "scaling.svg").read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=REPO / "build/scaling",
                        help="folder of what is written (%(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="repetitions (%(default)s)")
    parser.add_argument("--seconds", type=float, default=1, help="of each run (%(default)s)")
    parser.add_argument("--draw", action="store_true", help="measure nothing")
    parser.add_argument("--update", action="store_true", help="put tables and picture into the repository")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    report = json.loads((arguments.out / "scaling.json").read_text()) if arguments.draw else measure(arguments)
    draw(report, arguments.out)
    if arguments.update:
        update(arguments.out)
    print(f"{arguments.out}: scaling.json, scaling.md, scaling.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
