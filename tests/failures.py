#!/usr/bin/python3
"""failures.py: what failed tests wrote, at the end of a long log, where a reader looks.

    tests/failures.py REPORT    the failures in a report of ctest (--output-junit)

Both the text of each failure and their number are bounded; the lines "FAILED: name" come last and name all.
"""

import sys
import xml.etree.ElementTree

TEXTS = 10
LINES = 60
WIDTH = 400


def end_of(text):
    lines = text.rstrip("\n").splitlines()
    left_out = [f"({len(lines) - LINES} lines left out)"] if len(lines) > LINES else []
    return left_out + [line[:WIDTH] for line in lines[-LINES:]]


def describe(failed):
    """failed: [(name, output)]. Returns the empty string if there is none."""
    lines = []
    for name, text in failed[:TEXTS]:
        lines += [f"==== what {name} wrote", *end_of(text)]
    if len(failed) > TEXTS:
        lines.append(f"==== and {len(failed) - TEXTS} more, of which only the names follow")
    lines += [f"FAILED: {name}" for name, _ in failed]
    return "".join(line + "\n" for line in lines)


def failed_in(report):
    try:
        cases = xml.etree.ElementTree.parse(report).getroot().iter("testcase")
    except xml.etree.ElementTree.ParseError as error:  # ctest ended before it wrote the report
        return [("ctest", f"no report: {error}")]
    return [(case.get("name"), case.findtext("system-out") or "") for case in cases if has_failed(case)]


def has_failed(case):
    skipped = case.find("skipped")  # "not run" includes programs that do not exist
    return case.find("failure") is not None or (
        skipped is not None and not skipped.get("message").startswith("SKIP_"))


if __name__ == "__main__":
    sys.stdout.write(describe(failed_in(sys.argv[1])))
