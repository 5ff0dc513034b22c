#!/usr/bin/python3
"""The table and the picture of the frontier: the least regret as a function of the bits.

    tally reproduce synthetic --frontier --out DIR       computes frontier.csv and frontier.json
    tests/bench/frontier.py DIR                          prints the table; draws frontier.svg and .png

For each problem, the table gives the least regret of every algorithm at any number of bits, and that of CEAL and CALM
within the paper's bits and within 650 each way. Bits are formula bits, as in the paper. For CALM they are the bits
actually sent, payload and control; for FedPAQ with a schedule, the estimated entropy of what it sends. A schedule
means steps that decay and rounds that grow. The picture has a panel for each problem with CEAL's points, the front of
every algorithm, a dotted line at the bits of Table I, and CALM's limits. The limits are computed, not measured: a grey
line for the regret of the same bits at the rates of information theory, and a flat one for the regret if every query
were shared at no cost. The script that draws the picture stays in DIR as frontier.gnuplot, with points.csv and
limits.csv. Without gnuplot there is no picture.
"""

import argparse
import csv
import json
import math
import pathlib
import subprocess
import sys

READINGS, RADII = ("loud", "quiet"), (1, 2, 3)
PAPER = 263.3, 288.6  # bits of CEAL in Table I, up per client and down
# Okabe and Ito's colours, which readers who cannot tell red from green can distinguish.
ALGORITHMS = {"minibatch_sgd": ("Minibatch-SGD", "#0072b2"), "fedavg": ("FedAvg", "#e69f00"),
              "fedpaq": ("FedPAQ", "#009e73"), "fedcom": ("FedCOM", "#cc79a7"), "ceal": ("CEAL", "#d55e00"),
              "calm": ("CALM", "#000000"), "fedavg scheduled": ("FedAvg, scheduled", "#56b4e9"),
              "fedpaq scheduled": ("FedPAQ, scheduled, entropy-coded", "#7f7f00")}
# Algorithms that the paper does not have, with thinner lines.
NEWER = {"fedprox": ("FedProx", "#999999"), "fedavgm": ("FedAvgM", "#8b0000"), "fedadam": ("FedAdam", "#6a3d9a"),
         "fedyogi": ("FedYogi", "#c77cff"), "scaffold": ("SCAFFOLD", "#a6761d"), "diana": ("DIANA", "#1b9e9e"),
         "ef21": ("EF21, Top-k", "#66a61e"), "ef21_rand_k": ("EF21, Rand-k", "#e7298a")}
ALGORITHMS.update(NEWER)
ANY = math.inf, math.inf
ENTRIES = [*((name, within, limits) for name in ("calm", "ceal")
             for within, limits in (("263.3 / 288.6", PAPER), ("650 / 650", (650, 650)))),
           *((name, "any", ANY) for name in ("calm", "ceal", *(name for name in ALGORITHMS if name[0] != "c")))]
# Constants that only some baselines have, by column of frontier.csv.
OWN = {"server_step_size": "S", "beta1": "beta1", "mu": "mu", "levels": "s", "k": "k"}
HEADS = "reading", "radius", "algorithm", "within bits", "regret", "+- std", "up", "down", "with"
LEFT = {0, 2, 3, 8}  # left-aligned columns


def read_points(path):
    """Returns the rows of frontier.csv, with numeric cells as numbers."""
    texts = {"reading", "algorithm"}
    with open(path, newline="") as file:
        points = [{key: value if key in texts or not value else float(value) for key, value in row.items()}
                  for row in csv.DictReader(file)]
    for point in points:
        if point.get("step_decay") or point.get("local_steps_growth"):
            point["algorithm"] += " scheduled"
            point["uplink_bits"] = point["uplink_entropy_payload"]
    return points


def best(points, reading, radius, algorithm, limits):
    """Returns the point of least regret within the bits, or None."""
    fitting = [point for point in points
               if (point["reading"], point["radius"], point["algorithm"]) == (reading, radius, algorithm)
               and point["uplink_bits"] <= limits[0] and point["downlink_bits"] <= limits[1]]
    return min(fitting, key=lambda point: point["regret_mean"], default=None)


def parameters(point):
    if point["algorithm"] == "calm":
        budget = point["uplink_budget"]
        return f"budget {budget:.0f} / {point['downlink_budget']:.0f}" if budget else "auto"
    if point["algorithm"] != "ceal":
        schedule = (f" + {point['local_steps_growth']:.3g} t, decay {point['step_decay']:.3g}"
                    if "scheduled" in point["algorithm"] else "")
        own = "".join(f", {sign} {point[key]:.3g}" for key, sign in OWN.items() if point.get(key) not in (None, ""))
        return f"eta {point['step_size']:.3g}, K {point['local_steps']:.0f}{schedule}{own}"
    return (f"eta {point['step_size']:.3g}, c {point['sample_scale']:.3g}, j0 {point['first_stage']:.0f}, "
            f"gamma0 {point['gamma0']:.3g}, phi0 {point['phi0']:.3g}, L {point['gradient_bound']:.3g}")


def table_row(points, reading, radius, entry):
    algorithm, within, limits = entry
    row = [reading, f"{radius:g}", ALGORITHMS[algorithm][0], within]
    point = best(points, reading, radius, algorithm, limits)
    if point is None:
        return [*row, "none", "", "", "", ""]
    return [*row, *(f"{point[key]:.1f}" for key in ("regret_mean", "regret_std", "uplink_bits",
                                                    "downlink_bits")), parameters(point)]


def table(points):
    rows = [HEADS, *(table_row(points, reading, radius, entry)
                     for reading in READINGS for radius in RADII for entry in ENTRIES)]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(cell.ljust(width) if i in LEFT else cell.rjust(width)
                               for i, (cell, width) in enumerate(zip(row, widths))).rstrip() for row in rows) + "\n"


def points_csv(points):
    """The points to draw, by bits. A point is on the front if no cheaper one of its algorithm has less regret."""
    lines, least = ["reading,radius,algorithm,bits,regret,on_front"], {}
    for point in sorted(points, key=lambda point: (point["uplink_bits"] + point["downlink_bits"], point["regret_mean"])):
        family = point["reading"], f"{point['radius']:g}", point["algorithm"]
        on_front = point["regret_mean"] < least.get(family, math.inf)
        least[family] = min(point["regret_mean"], least.get(family, math.inf))
        lines.append(",".join([*family, f"{point['uplink_bits'] + point['downlink_bits']:.9g}",
                               f"{point['regret_mean']:.9g}", str(int(on_front))]))
    return "\n".join(lines) + "\n"


# A line of points.csv that is filtered out becomes NaN, which the script declares missing, so that a front is
# one line.
def series(reading, radius, algorithm, only_front, style):
    front = " && $6 == 1" if only_front else ""
    return (f'"points.csv" skip 1 using (strcol(1) eq "{reading}" && $2 == {radius} && '
            f'strcol(3) eq "{algorithm}"{front} ? $4 : NaN):5 {style}')


def limit(reading, radius, column, style):
    """A line of limits.csv: 3 bits up and down together, 4 regret at ideal rates, 5 shared at no cost."""
    return (f'"limits.csv" skip 1 using (strcol(1) eq "{reading}" && $2 == {radius} ? $3 : NaN):{column} '
            f"with lines lw 1.5 {style}")


def limits_csv(limits):
    return "reading,radius,bits,ideal_regret,shared_regret\n" + "".join(
        f"{line['reading']},{line['radius']:g},{line['uplink_bits'] + line['downlink_bits']},"
        f"{line['ideal_regret']:.9g},{line['shared_regret']:.9g}\n" for line in limits)


def panel(reading, radius, has_limits):
    lines = [series(reading, radius, "ceal", False, 'with points pt 7 ps 0.25 lc rgb "#f0c8a8" notitle')]
    for i, (name, (title, colour)) in enumerate(ALGORITHMS.items()):
        dashes = 1 if name in ("ceal", "calm") else 2 + i
        sizes = "lw 1 ps 0.5" if name in NEWER else "lw 2 ps 0.9"
        lines.append(series(reading, radius, name, True, f"with linespoints {sizes} dt {dashes} pt {5 + 2 * i} "
                                                         f'lc rgb "{colour}" title "{title}"'))
    if has_limits:
        lines.append(limit(reading, radius, 4, 'dt 1 lc rgb "#888888" title "CALM, ideal rates (computed)"'))
        lines.append(limit(reading, radius, 5, 'dt 4 lc rgb "#888888" title "every query shared (computed)"'))
    label = "cumulative regret" if radius == RADII[0] else ""
    return f'set title "{reading}, start radius {radius}"\nset ylabel "{label}"\nplot ' + ", \\\n     ".join(lines) + "\n"


def script(has_limits):
    panels = [panel(reading, radius, has_limits) for reading in READINGS for radius in RADII]
    # One key for all panels, to their right.
    plot = ("set key at screen 0.75, screen 0.94 left top vertical Left reverse samplen 2 "
            "font \",11\" spacing 0.86\n"
            "set multiplot layout 2,3 margins screen 0.068, 0.73, 0.11, 0.94 spacing screen 0.045, 0.16\n" + panels[0] +
            "unset key\n" + "".join(panels[1:]) + "unset multiplot\n")
    terminals = (("svg", "svg", "sans-serif"), ("pngcairo", "png", "sans"))
    return f"""set encoding utf8
set datafile separator comma
set datafile missing NaN
set border 3 lw 1 lc rgb "#444444"
set tics nomirror out textcolor rgb "#222222"
set grid lc rgb "#dddddd" lw 1
set logscale xy
set xtics format "%.0s%c"
set ytics format "%.0s%c"
set xlabel "bits up per client + down"
# what Table I reports for CEAL: 263.3 up, 288.6 down
set arrow from {sum(PAPER):.1f}, graph 0 to {sum(PAPER):.1f}, graph 1 nohead dt 3 lc rgb "#888888"
""" + "".join(f'set terminal {terminal} size 1700,850 font "{font},15" background "white" noenhanced\n'
              f'set output "frontier.{ending}"\n{plot}' for terminal, ending, font in terminals) + "unset output\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", metavar="DIR", type=pathlib.Path)
    folder = parser.parse_args().folder
    points = read_points(folder / "frontier.csv")
    result = json.loads((folder / "frontier.json").read_text())
    seeds, limits = result["seeds"], result.get("limits", [])
    print(f"Frontier of the synthetic experiment, seeds {min(seeds)}-{max(seeds)}, {len(points)} points; formula bits, "
          "of CALM those sent, of FedPAQ with a schedule its entropy\n")
    print(table(points), end="")
    (folder / "points.csv").write_text(points_csv(points))
    (folder / "limits.csv").write_text(limits_csv(limits))
    (folder / "frontier.gnuplot").write_text(script(bool(limits)))
    try:
        subprocess.run(["gnuplot", "frontier.gnuplot"], cwd=folder, check=True)
    except FileNotFoundError:
        print(f"no picture: gnuplot is not installed; its script is {folder}/frontier.gnuplot", file=sys.stderr)


if __name__ == "__main__":
    main()
