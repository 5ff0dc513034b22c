#!/usr/bin/python3
"""How fast the codec is, as ratios to memcpy, a plain loop and zstd in the same run.

    tests/bench/bench_codec.py          TALLY_BIN: folder of the programs

Fails if a ratio is below what codec/DESIGN.md promises for a processor with AVX-512. On other processors, which may
be slower, it only prints the ratios.
"""

import json
import os
import pathlib
import subprocess
import sys

TALLY_BENCH = str(pathlib.Path(os.environ.get("TALLY_BIN", "build/release/bin")).resolve() / "tally-bench")
PROMISES = (
    ("quantize_encode_over_memcpy", "unary", 0.7, "quantize + encode unary, of memcpy"),
    ("decode_accumulate_over_add", "unary", 0.6, "decode + accumulate unary, of adding int8"),
    ("entropy_over_zstd1", "encode", 3, "encode entropy, of zstd -1"),
    ("entropy_over_zstd1", "decode", 1, "decode entropy, of zstd -d"),
)


def main():
    answer = subprocess.run([TALLY_BENCH, "codec", "--json"], check=True, capture_output=True)
    ratios = json.loads(answer.stdout)
    is_promised = "avx512_vbmi2" in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    failed = False
    for group, key, least, text in PROMISES:
        value = ratios[group][key]
        if value is None:  # the program was built without libzstd-dev
            print(f"{text}: not measured")
            continue
        failed |= value < least
        print(f"{text}: {value:.2f}, at least {least}" + (" MISSED" if value < least else ""))
    if not is_promised:
        print("this processor has no AVX-512 VBMI2: the limits do not count")
    return 1 if failed and is_promised else 0


if __name__ == "__main__":
    sys.exit(main())
