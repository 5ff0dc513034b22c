"""Makes the golden files; README.md says what they are.

    TALLY_BIN=build/release/bin /usr/bin/python3 tests/golden/make_golden.py

Valid messages of `unary` and `entropy` come from `tally encode`, those of `dithered` from `tally-dithered-messages`, those of
`adaptive` from `tally-random-messages` or from an encoder made of the second decoder's contexts. Malformed ones are valid ones with one
defect, which takes, for `entropy`, an encoder that errs on request; it is here. A file that exists with
another content is a change of the format: the script says so and changes nothing, unless --renew.
"""

import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

import decoder
from decoder import LONG, blocks, n_class_bits, shift_and_prior, shortest_string, symbol_of

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))
from test_codec import npy  # noqa: E402

TALLY = pathlib.Path(os.environ.get("TALLY_BIN", "build/release/bin")).resolve() / "tally"
MOST = 2**22  # intervals


def pack(whole):
    """Returns [[times, piece], ...], in which runs that repeat with a short period are written once."""
    pieces, start, i = [], 0, 0
    text = (lambda piece: piece.hex()) if isinstance(whole, bytes) else list
    while i < len(whole):
        best = (0, 0)
        for period in range(1, 65):
            if whole[i:i + period] != whole[i + period:i + 2 * period]:
                continue
            times = 1
            while whole[i + times * period:i + (times + 1) * period] == whole[i:i + period]:
                times += 1
            best = max(best, ((times - 1) * period, period))
        gain, period = best
        if gain < 24:
            i += 1
            continue
        if start < i:
            pieces.append([1, text(whole[start:i])])
        pieces.append([gain // period + 1, text(whole[i:i + period])])
        i += gain + period
        start = i
    return pieces + ([[1, text(whole[start:])]] if start < len(whole) else [])


def encode(encoding, levels, intervals):
    """Returns a valid vector, encoded by the program."""
    with tempfile.TemporaryDirectory() as scratch:
        out = pathlib.Path(scratch) / "payload"
        done = subprocess.run(
            [TALLY, "encode", "-", "--encoding", encoding, "--intervals", str(intervals), "--out", out],
            input=npy("<i4", levels), capture_output=True, check=True)
        facts = json.loads(done.stdout)
        return {"encoding": encoding, "dim": len(levels), "intervals": intervals,
                "payload_bits": facts["payload_bits"], "formula_bits": facts["formula_bits"],
                "payload": out.read_bytes(), "levels": levels}


def refused(vector, reason, says, payload=None, payload_bits=None, **changes):
    """Returns the vector with a defect."""
    bad = {key: value for key, value in vector.items()
           if key not in ("levels", "values", "indices", "norm", "formula_bits")}
    if payload is not None:
        bad["payload"] = payload
        bad["payload_bits"] = 8 * len(payload) if payload_bits is None else payload_bits
    elif payload_bits is not None:
        bad["payload_bits"] = payload_bits
    return bad | changes | {"refused": reason, "says": says}


def to_bits(payload, n):
    return [payload[i // 8] >> i % 8 & 1 for i in range(n)]


def from_bits(bits):
    return sum(bit << i for i, bit in enumerate(bits)).to_bytes((len(bits) + 7) // 8, "little")


def flip(payload, *positions):
    for position in positions:
        payload = bytes(byte ^ (1 << position % 8 if i == position // 8 else 0) for i, byte in enumerate(payload))
    return payload


def framing_defects(good):
    """Yields framing defects, which every encoding refuses with the same words."""
    payload, n = good["payload"], good["payload_bits"]
    says = "do not frame"
    yield "byte-missing", refused(good, "framing", says, payload[:-1], n)
    yield "byte-too-many", refused(good, "framing", says, payload + b"\0", n)
    yield "no-bytes", refused(good, "framing", says, b"", n)
    yield "bits-of-another-length", refused(good, "framing", says, payload_bits=n + 8)
    yield "bits-2-to-64", refused(good, "framing", says, payload_bits=str(2**64 - 1))
    if n % 8:
        yield "one-in-the-padding", refused(good, "framing", says, flip(payload, n), n)


# --- unary -------------------------------------------------------------------------------------


def gaussian(generator, dim, std, top=2**21):
    return [max(-top, min(top, round(generator.gauss(0, std)))) for _ in range(dim)]


def unary_valid(generator):
    for name, levels, intervals in [
            ("zero", [0], 2), ("one", [1], 2), ("minus-one", [-1], 2), ("top-of-2", [1, -1, 1], 2),
            ("example", [0, 1, -1, 2, -3, 0, 4], 10),
            ("example-two-blocks", [0] * 63 + [1, -2, 0], 8),
            ("block-of-tops", [5, -5] * 32, 10), ("all-negative", [-1] * 70, 4),
            ("one-far-level", [0] * 40 + [-700] + [0] * 50, MOST), ("around-127", list(range(120, 135)), 300),
            ("20000-zeros", [0] * 20000, 8), ("100000-sparse", sparse(100000, 25000, [1, -2, 3]), 8)]:
        yield name, encode("unary", levels, intervals)
    for dim in (2, 30, 63, 64, 65, 127, 128, 129, 500):
        yield f"gaussian-{dim}", encode("unary", gaussian(generator, dim, 1.5, 8), 16)


def unary_malformed():
    good = encode("unary", [0, 1, -1, 2, -3, 0, 4], 10)
    yield from framing_defects(good)
    bits = to_bits(good["payload"], 23)
    yield "plane-above-the-top", refused(good, "above", "level of coordinate 6 is above 3", intervals=6)
    yield "end-in-a-plane", refused(good, "early-end", "ends in coordinates 0 to 6", from_bits(bits[:15]), 15)
    yield "end-in-the-signs", refused(good, "early-end", "ends in coordinates 0 to 6", from_bits(bits[:22]), 22)
    yield "end-after-the-ones", refused(good, "early-end", "ends in coordinates 0 to 6", from_bits(bits[:7]), 7)
    yield "bit-left-over", refused(good, "length", "24 bits announced, 7 coordinates take 23",
                                   from_bits(bits + [0]), 24)
    yield "no-bits", refused(good, "early-end", "ends in coordinates 0 to 6", b"", 0)
    two = encode("unary", [0] * 63 + [1, -2, 0], 8)
    bits = to_bits(two["payload"], 71)
    yield "end-between-blocks", refused(two, "early-end", "ends in coordinates 64 to 65", from_bits(bits[:66]), 66)
    yield "block-left-over", refused(two, "length", "71 bits announced, 64 coordinates take 66", dim=64)
    yield "dim-too-large", refused(two, "early-end", "ends in coordinates 64 to 66", dim=67)
    yield "dim-too-small", refused(two, "length", "bits announced", dim=65)


# --- float32, top_k, rand_k and qsgd, which `tally encode` does not write -----------------------


def float32(values):
    payload = struct.pack(f"<{len(values)}f", *values)
    values = list(struct.unpack(f"<{len(values)}f", payload))
    return {"encoding": "float32", "dim": len(values), "payload_bits": 8 * len(payload),
            "formula_bits": 8 * len(payload), "payload": payload, "values": values}


def float32_valid(generator):
    yield "example", float32([1, -2.5, 0])
    yield "zeros-of-both-signs", float32([0.0, -0.0])
    yield "borders", float32([2**-149, -(2**-126), (2 - 2**-23) * 2.0**127, -(2 - 2**-23) * 2.0**127])
    yield "gaussian-30", float32([generator.gauss(0, 1) for _ in range(30)])
    yield "5000-zeros", float32([0.0] * 5000)


def float32_malformed():
    good = float32([1, -2.5, 0])
    payload = good["payload"]
    says = "float32 values"
    yield "byte-missing", refused(good, "length", says, payload[:-1], 96)
    yield "byte-too-many", refused(good, "length", says, payload + b"\0", 96)
    yield "bits-of-another-length", refused(good, "length", says, payload_bits=95)
    yield "bits-2-to-64", refused(good, "length", says, payload_bits=str(2**64 - 1))
    yield "dim-too-large", refused(good, "length", says, dim=4)
    for name, word in [("nan", "0000c07f"), ("signalling-nan", "010080ff"), ("infinity", "0000807f"),
                       ("minus-infinity", "000080ff")]:
        yield name, refused(good, "not-finite", "coordinate 1 is not finite",
                            payload[:4] + bytes.fromhex(word) + payload[8:])


def gaps_of(indices, dim):
    """Returns FORMAT.md, section 4.1, as bits."""
    chosen = set(indices)
    written = indices if 2 * len(indices) <= dim else [i for i in range(dim) if i not in chosen]
    n, r, bits, start = len(written), 0, [], 0
    while 4 * (n + 1) * 2**r < 2 * dim - n + 1:
        r += 1
    for index in written:
        gap = index - start
        bits += [1] * (gap >> r) + [0] + [gap >> b & 1 for b in range(r)]
        start = index + 1
    return bits


def top_k(dim, indices, values, gaps=None):
    payload = struct.pack(f"<{len(values)}f", *values)
    bits = gaps_of(indices, dim) if gaps is None else gaps
    return {"encoding": "top_k", "dim": dim, "k": len(indices), "payload_bits": 8 * len(payload) + len(bits),
            "formula_bits": len(indices) * (32 + (dim - 1).bit_length()), "payload": payload + from_bits(bits),
            "indices": indices, "values": list(struct.unpack(f"<{len(values)}f", payload))}


def top_k_valid():
    generator = random.Random(41)
    yield "example", top_k(10, [1, 4, 5], [-3, 3, 2])
    yield "one-of-one", top_k(1, [0], [7.5])
    yield "one-of-two", top_k(2, [1], [-1])
    yield "all", top_k(5, [0, 1, 2, 3, 4], [0.0, -0.0, 1, 2, 3])
    yield "half", top_k(6, [0, 2, 5], [1, 2, 3])
    yield "complement", top_k(7, [0, 1, 3, 6], [1, 2, 3, 4])
    yield "exact-r", top_k(9, [0, 4, 8], [1, 2, 3])  # 4 (n + 1) 2^r is 2 d - n + 1
    yield "last-ones", top_k(1000, list(range(990, 1000)), [1.0] * 10)
    yield "first-ones", top_k(1000, list(range(10)), [1.0] * 10)
    yield "largest-index", top_k(2**24, [0, 2**24 - 1], [1, 2])
    for dim, k in [(30, 3), (30, 27), (100, 50), (784, 78), (7840, 100), (100000, 1000)]:
        indices = sorted(generator.sample(range(dim), k))
        yield f"{k}-of-{dim}", top_k(dim, indices, [generator.gauss(0, 1) for _ in indices])


def top_k_malformed():
    good = top_k(10, [1, 4, 5], [-3, 3, 2])
    payload, n = good["payload"], good["payload_bits"]
    bits = to_bits(payload, n)
    yield from framing_defects(good)
    yield "index-above", refused(good, "above", "index 1 of 3 is above 8",
                                 top_k(10, [1, 4, 5], [-3, 3, 2], [0, 0, 1, 1, 1, 1, 0])["payload"], n)
    yield "ones-to-the-end", refused(good, "above", "index 0 of 3 is above 7",
                                     top_k(10, [1, 4, 5], [-3, 3, 2], [1] * 7)["payload"], n)
    yield "no-room-for-the-others", refused(good, "above", "index 0 of 3 is above 7",
                                            top_k(10, [1, 4, 5], [-3, 3, 2], [1, 1, 1, 1, 0, 0, 0])["payload"], n)
    outside = top_k(9, [0, 1, 2, 4, 6, 7], [1, 2, 3, 4, 5, 6])
    yield "no-room-outside", refused(outside, "above", "index 0 of 3 is above 6",
                                     top_k(9, [0, 1, 2, 4, 6, 7], [1, 2, 3, 4, 5, 6], [1] * 7 + [0, 0])["payload"],
                                     192 + 9)
    yield "no-set", refused(good, "early-end", "ends in index 0 of 3", payload[:12], 96)
    yield "end-in-a-gap", refused(good, "early-end", "ends in index 1 of 3", from_bits(bits[:99]), 99)
    yield "end-in-a-remainder", refused(good, "early-end", "ends in index 2 of 3", from_bits(bits[:102]), 102)
    yield "end-in-the-values", refused(good, "early-end", "ends in the 3 values", payload[:8], 64)
    yield "bit-left-over", refused(good, "length", "104 bits announced, 10 coordinates take 103", payload, 104)
    whole = top_k(3, [0, 1, 2], [1, 2, 3])
    yield "set-of-all", refused(whole, "length", "97 bits announced", whole["payload"] + b"\0", 97)
    yield "nan", refused(good, "not-finite", "coordinate 2 is not finite",
                         payload[:8] + bytes.fromhex("0000c07f") + payload[12:], n)


def rand_k(dim, values, **stream):
    vector = float32(values)
    stream = {"seed": 1, "run": 0, "client": 2, "round": 3, "purpose": 7} | stream
    return vector | {"encoding": "rand_k", "dim": dim, "k": len(values), **stream,
                     "indices": decoder.draw_indices(dim, len(values), stream)}


def rand_k_valid():
    yield "example", rand_k(10, [1, -2.5, 0])
    yield "all", rand_k(4, [1, 2, 3, 4])
    yield "all-but-one", rand_k(40, list(range(39)), seed=2**40 + 3)
    yield "one", rand_k(2**31 - 1, [0.5], client=0)
    yield "100-of-784", rand_k(784, list(range(100)), round=2**31, run=5)


def rand_k_malformed():
    good = rand_k(10, [1, -2.5, 0])
    yield "byte-missing", refused(good, "length", "float32 values", good["payload"][:-1], 96)
    yield "dim-values", refused(good, "length", "float32 values", good["payload"] + bytes(28), 320)
    yield "infinity", refused(good, "not-finite", "coordinate 1 is not finite",
                              good["payload"][:4] + bytes.fromhex("0000807f") + good["payload"][8:])


def qsgd(norm, s, levels, signs=None):
    width = s.bit_length()
    bits = to_bits(struct.pack("<f", norm), 32)
    for i, level in enumerate(levels):
        bits += [signs[i] if signs else int(level < 0)] + [abs(level) >> k & 1 for k in range(width)]
    return {"encoding": "qsgd", "dim": len(levels), "s": s, "payload_bits": len(bits), "formula_bits": len(bits),
            "payload": from_bits(bits), "norm": norm, "levels": levels}


def qsgd_valid(generator):
    yield "example", qsgd(2.5, 3, [0, 1, -2, 3, -3])
    yield "zero-vector", qsgd(0.0, 4, [0, 0, 0])
    yield "one-level", qsgd(1.0, 1, [1])
    for s in (1, 2, 7, 8, 255, 32767):
        yield f"gaussian-30-of-{s}", qsgd(struct.unpack("<f", struct.pack("<f", generator.uniform(1, 9)))[0], s,
                                         [generator.randint(-s, s) for _ in range(30)])
    yield "smallest-norm", qsgd(2**-149, 5, [5, -5])


def qsgd_malformed():
    good = qsgd(2.5, 2, [0, 1, -2, 2, -2])
    payload, n = good["payload"], good["payload_bits"]
    says = "bits with zero padding"
    yield "byte-missing", refused(good, "length", says, payload[:-1], n - 8)
    yield "bits-of-another-length", refused(good, "length", says, payload_bits=n + 1)
    yield "bits-2-to-64", refused(good, "length", says, payload_bits=str(2**64 - 1))
    yield "one-in-the-padding", refused(good, "framing", says, flip(payload, n), n)
    yield "level-above-s", refused(good, "above", "level 3 of coordinate 1 is above 2",
                                   qsgd(2.5, 2, [0, 3, 0, 0, 0])["payload"], n)
    yield "negative-zero", refused(good, "negative-zero", "coordinate 2 is a negative zero",
                                   qsgd(2.5, 2, [0] * 5, [0, 0, 1, 0, 0])["payload"], n)
    yield "level-under-norm-zero", refused(good, "norm-zero", "coordinate 4 is not zero though the norm is",
                                           qsgd(0.0, 2, [0, 0, 0, 0, 1])["payload"], n)
    for name, norm in [("norm-negative", -2.5), ("norm-minus-zero", -0.0), ("norm-infinite", float("inf")),
                       ("norm-nan", float("nan"))]:
        yield name, refused(good, "norm", "the norm is not a number >= 0", qsgd(norm, 2, [0] * 5)["payload"], n)


# --- entropy -----------------------------------------------------------------------------------


def sparse(dim, step, values):
    levels = [0] * dim
    for k, i in enumerate(range(step // 2, dim, step)):
        levels[i] = values[k % len(values)]
    return levels


def entropy_valid(generator):
    for name, levels in [
            ("zero", [0]), ("one", [1]), ("minus-one", [-1]), ("farthest", [2**21, -(2**21)]), ("30-zeros", [0] * 30),
            ("example", [0, 1, -1, 2, -3, 0, 4]), ("example-escape", [0, 0, 100]),
            ("example-low-bits", [1000, -3, -777]),
            ("every-symbol", [sign * (11 + 16 * (4**c - 1) // 3 + more) for c in range(9) for sign in (1, -1)
                              for more in (0, 4**(c + 2) - 1)] + list(range(-10, 11)) + [2**21]),
            ("one-far-level", [0] * 500 + [2**21] + [0] * 500),
            ("scale-changes", [0] * 600 + [9, -9, 8] * 200 + [0] * 600),
            ("sampled-zeros", [3 * (i % 2) for i in range(8192)]),
            ("100000-sparse", sparse(100000, 300, [1, -1, 2])), ("100000-wide-repeated", [70000] * 2000),
            ("below-2-to-18", sparse(LONG - 1, 5000, [1, -1, -30]))]:
        yield name, encode("entropy", levels, MOST)
    for dim in (2, 30, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513):
        yield f"gaussian-{dim}", encode("entropy", gaussian(generator, dim, 1), MOST)
    for dim in (4095, 4096, 4097, 4352, 4353):
        yield f"gaussian-{dim}", encode("entropy", gaussian(generator, dim, 0.4), MOST)
    for k in range(0, 20):
        yield f"std-2-to-{k}", encode("entropy", gaussian(generator, 40, 2.0**k), MOST)
    yield from entropy_of_every_scale()


def entropy_of_every_scale():
    """The levels become wider until they have the next scale. Each of the 15 priors begins a message, and each shift."""
    generator, std, levels = random.Random(43), 0.12, [0] * 400
    for scale in range(53):
        while decoder.scale_of(levels) != scale:
            std *= 2**(1 / 64)
            levels = gaussian(generator, 400 if scale < 10 else 40, std)
        yield f"scale-{scale}", encode("entropy", levels, MOST)


def entropy_long_valid(generator):
    busy = [0] * LONG
    for i in range(0, LONG, 150):
        busy[i + generator.randrange(150)] = round(generator.gauss(0, 3))
    for name, levels in [
            ("zeros", [0] * LONG), ("one-more", sparse(LONG + 1, 9000, [1, -1])),
            ("last-block-of-63", sparse(LONG + 63, 9000, [1, 2])), ("last-block-of-64", sparse(LONG + 64, 9000, [1, 2])),
            ("last-block-of-65", sparse(LONG + 65, 9000, [1, 2])), ("farthest-escapes", sparse(LONG, 50000, [2**21, -(2**21)])),
            ("classes", sparse(LONG, 4000, [11, -26, 27, 91, -92, 5000])), ("busy", busy),
            ("all-one-wide-level", [-37000] * LONG), ("wide-alternating", [300, -300] * (LONG // 2)),
            ("300000-sparse", sparse(300000, 7000, [3, -4]))]:
        yield name, encode("entropy", levels, MOST)


def choices(levels, scale, escape_at):
    """Yields, for each block, (first, shares, before, [(symbol, [(n, bits), ...], low)]); bits after the symbol."""
    shift, _ = shift_and_prior(scale)
    for first, end, shares, before in decoder.tables(len(levels), scale, levels):
        block = []
        for i in range(first, end):
            level = levels[i]
            symbol = symbol_of(level, shift)
            raised = level + 2**shift // 2
            high, low = raised >> shift, raised % 2**shift
            extra = 0
            if symbol > 20:
                extra = int(high < 0) | abs(high) - decoder.first_of_class(symbol - 21) << 1
            escapes = shares[symbol] == 0 or i == escape_at
            block.append((31 if escapes else symbol, symbol if escapes else None, (extra, n_class_bits(symbol)), low))
        yield first, shares, before, block


def interval_of(levels, scale, escape_at=None):
    """Returns (L, R, n_units) of a short message."""
    shift, _ = shift_and_prior(scale)
    steps = []
    for _, shares, before, block in choices(levels, scale, escape_at):
        for symbol, escaped, (extra, n), low_bits in block:
            steps.append((before[symbol], shares[symbol], 12))
            if escaped is not None:
                steps += raw_steps(escaped, 5)
            steps += raw_steps(extra | low_bits << n, n + shift)
    return narrowed(steps)


def raw_steps(value, n):
    """Returns the steps of n bits without a model."""
    return [(value >> done & 2**min(16, n - done) - 1, 1, min(16, n - done)) for done in range(0, n, 16)]


def narrowed(steps):
    """Returns (L, R, n_units) of the interval after steps "shares a .. a + n - 1 of 2^m"."""
    low, width, n_units = 0, 2**63, 63
    for a, n, m in steps:
        q = width >> m
        low, width = low + a * q, n * q
        while width < 2**31:
            low, width, n_units = low << 32, width << 32, n_units + 32
    return low, width, n_units


def short_message(scale, n, value):
    """Returns (payload, payload_bits) of a scale and a string."""
    head = [scale >> k & 1 for k in range(4)] if scale < 15 else [1] * 4 + [scale - 15 >> k & 1 for k in range(6)]
    bits = head + [value >> n - 1 - k & 1 for k in range(n)]
    return from_bits(bits), len(bits)


def encode_short(levels, scale=None, **errors):
    scale = decoder.scale_of(levels) if scale is None else scale
    return short_message(scale, *shortest_string(*interval_of(levels, scale, **errors)))


def encode_long(levels, scale=None, escape_at=None, ends=2**15, filling=0):
    scale = decoder.scale_of(levels) if scale is None else scale
    shift, _ = shift_and_prior(scale)
    states, words = [ends] * 64, []
    for _, shares, before, block in reversed(list(choices(levels, scale, escape_at))):
        raw, n_raw = 0, 0
        for _, escaped, (extra, n), _ in block:
            for value, width in [(escaped or 0, 5 * (escaped is not None)), (extra, n)]:
                raw, n_raw = raw | value << n_raw, n_raw + width
        for *_, low in block if shift else []:
            raw, n_raw = raw | low << n_raw, n_raw + shift
        if filling and n_raw % 16:
            raw, filling = raw | 1 << n_raw // 16 * 16 + 15, 0
        words[:0] = [raw >> k & 0xffff for k in range(0, n_raw, 16)]
        coded = []
        for i in reversed(range(len(block))):
            symbol, x = block[i][0], states[i % 64]
            if x >> 19 >= shares[symbol]:
                coded.append(x & 0xffff)
                x >>= 16
            states[i % 64] = 4096 * (x // shares[symbol]) + x % shares[symbol] + before[symbol]
        words[:0] = coded[::-1]
    head = [scale] + [half for x in states for half in (x & 0xffff, x >> 16)]
    return struct.pack(f"<{len(head) + len(words)}H", *head, *words)


def entropy_malformed():
    levels = [0, 1, -1, 2, -3, 0, 4, 0, 0, 12, 1, 1]
    good = encode("entropy", levels, 50)
    assert (good["payload"], good["payload_bits"]) == encode_short(levels)
    scale, (low, width, n_units) = decoder.scale_of(levels), interval_of(levels, decoder.scale_of(levels))
    n, value = shortest_string(low, width, n_units)
    yield from framing_defects(good)
    yield "no-bits", refused(good, "early-end", "ends in the block of coordinate 0", b"", 0)
    yield "end-in-the-scale", refused(good, "early-end", "ends in the block of coordinate 0", b"\x0f\0", 9)
    says = "bits announced, 12 coordinates take"
    yield "bit-left-over", refused(good, "length", says, *short_message(scale, n + 1, 2 * value))
    yield "end-too-early", refused(good, "length", "coordinates take", *short_message(scale, n - 1, value >> 1))
    for wide in range(1, 200):  # until the shortest length has two strings
        some = [0] * wide + [1]
        a, b, c = interval_of(some, decoder.scale_of(some))
        m, first = shortest_string(a, b, c)
        if first + 2 << c <= a + b << m:
            break
    yield "string-not-the-smallest", refused(encode("entropy", some, 50), "string", "not the first string",
                                             *short_message(decoder.scale_of(some), m, first + 1))
    yield "string-in-no-share", outside_all_shares(good)
    yield "scale-too-small", refused(good, "scale", "the scale is 9, that of these levels is", *encode_short(levels, 9))
    yield "scale-too-large", refused(good, "scale", "the scale is 20, that of these levels is",
                                     *encode_short(levels, 20))
    yield "scale-above-52", refused(good, "scale-range", "scale 53 is above 52", *short_message(53, 30, 5))
    yield "escape-without-need", refused(good, "escape", "coordinate 3 escapes from a symbol that has a frequency",
                                         *encode_short(levels, escape_at=3))
    yield "level-above-the-top", refused(good, "above", "level of coordinate 9 is above 11", intervals=22)


def outside_all_shares(good):
    """Returns a string at the very end of an interval that 4096 shares do not fill."""
    levels, width = [1], 0
    while width % 4096 == 0:
        levels.append(-levels[-1])
        scale = decoder.scale_of(levels)
        low, width, n_units = interval_of(levels, scale)
    payload, n = short_message(scale, n_units, low + width - 1)
    return refused(good, "string", "escapes from a symbol", payload, n, dim=len(levels) + 5)


def entropy_long_malformed():
    levels = sparse(LONG, 50000, [1, -2, 40])
    good = encode("entropy", levels, 100)
    payload = good["payload"]
    assert payload == encode_long(levels)
    yield from framing_defects(good)
    says = "ends in the block of coordinate"
    yield "end-in-the-states", refused(good, "early-end", says, payload[:200])
    yield "end-too-early", refused(good, "early-end", says, payload[:-2])
    says = "bits announced, 262144 coordinates take"
    zeros = min(7, 8 - payload[-1].bit_length())  # at the end, which a smaller payload_bits cuts off
    assert zeros > 0
    yield "last-byte-not-counted-whole", refused(good, "length", says, payload_bits=8 * len(payload) - zeros)
    yield "half-a-word", refused(good, "length", "bits announced", payload + b"\0")
    yield "word-left-over", refused(good, "length", says, payload + b"\0\0")
    yield "state-below-2-to-15", refused(good, "state", "state 0 is 32767", payload[:2] + b"\xff\x7f\0\0" + payload[6:])
    yield "state-of-32-bits", refused(good, "state", "state 63 is", payload[:257] + b"\x80" + payload[258:])
    yield "states-that-end-elsewhere", refused(good, "final-state", "ends as 32769, not 32768",
                                               encode_long(levels, ends=2**15 + 1))
    yield "one-in-the-filling", refused(good, "filling", "a one in the padding", encode_long(levels, filling=1))
    yield "escape-without-need", refused(good, "escape", "coordinate 70000 escapes from a symbol that has a frequency",
                                         encode_long(levels, escape_at=70000))
    yield "scale-too-large", refused(good, "scale", "the scale is 3, that of these levels is",
                                     encode_long(levels, 3))
    yield "scale-above-52", refused(good, "scale-range", "scale 53 is above 52", b"\x35" + payload[1:])
    yield "scale-of-16-bits", refused(good, "scale-range", "scale 256 is above 52", b"\0\1" + payload[2:])
    yield "level-above-the-top", refused(good, "above", "is above 39", intervals=78)


# --- dithered ----------------------------------------------------------------------------------


def dithered_messages(n, seed, *form):
    """Yields valid vectors, encoded by the program."""
    done = subprocess.run([TALLY.parent / "tally-dithered-messages", str(n), str(seed), *form], capture_output=True, check=True)
    for line in done.stdout.splitlines():
        vector = json.loads(line)
        yield vector | {key: decoder.expand(vector[key]) for key in ("payload", "levels")}


def dithered_valid():
    for k, vector in enumerate(dithered_messages(40, 71)):
        yield f"{k:02}-scale-{vector['scale']}-dim-{vector['dim']}", vector


def dithered_malformed():
    messages = [vector for vector in dithered_messages(60, 72) if vector["payload_bits"] > 60]
    good = messages[0]
    n, value = good["payload_bits"], string_of(good)
    yield from framing_defects(good)
    yield "bit-left-over", refused(good, "length", "coordinates take", bytes_of(n + 1, 2 * value), n + 1)
    yield "no-bits", refused(good, "above", "level of coordinate 0 is above", b"", 0)  # an endless lower tail
    top = max(map(abs, good["levels"]))
    yield "level-above-the-top", refused(good, "above", f"is above {top - 1}", intervals=2 * (top - 1))
    yield "string-not-the-smallest", next(filter(None, map(not_the_smallest, messages)))


def string_of(vector):
    """Returns the string's bits as a number, highest bit first."""
    text = "".join(str(vector["payload"][i // 8] >> i % 8 & 1) for i in range(vector["payload_bits"]))
    return int(text, 2)


def bytes_of(n, value):
    reverse = int(f"{value:0{n}b}"[::-1], 2)
    return reverse.to_bytes((n + 7) // 8, "little")


def not_the_smallest(vector):
    """Returns the next string of as many bits, if it lies in the same interval."""
    n, value = vector["payload_bits"], string_of(vector) + 1
    if value >> n:
        return None
    bad = refused(vector, "string", "not the first string", bytes_of(n, value), n)
    try:
        decoder.decode(bad | {"payload": [[1, bad["payload"].hex()]]})
    except decoder.Malformed as refusal:
        return bad if str(refusal) == "string" else None
    return None


# --- adaptive ----------------------------------------------------------------------------------


UPLINK = {"seed": 1, "run": 0, "client": 2, "round": 3, "purpose": 7}


def adaptive_steps(levels, stream):
    """Returns the steps of a message, from the contexts of the second decoder."""
    steps, level, code = [], 0, []

    def ask(shares, question, i=None):
        if question == "gamma":
            yes = code.pop(0)
        else:
            yes = {"nonzero": level != 0, "against": (level < 0) != (dither < 0), "more": abs(level) > (i or 0)}[question]
        steps.append((*shares(yes), 16))
        return yes

    model = decoder.Adaptive(ask)
    for level, dither in zip(levels, decoder.adaptive_dithers(len(levels), **stream) if stream else len(levels) * [0]):
        above = f"{max(0, abs(level) - 14):b}"
        code = [bit == "1" for bit in "0" * (len(above) - 1) + above]
        try:
            model.level(dither)
        except decoder.Malformed:
            assert abs(level) > decoder.MOST_ADAPTIVE
            steps += [(bit * 2**15, 2**15, 16) for bit in code]  # what an encoder without a limit would write
            break
    return steps


def adaptive(levels, stream=UPLINK):
    n, value = shortest_string(*narrowed(adaptive_steps(levels, stream)))
    return {"encoding": "adaptive", "dim": len(levels), **stream, "payload_bits": n,
            "formula_bits": len(levels) + sum(map(abs, levels)), "payload": bytes_of(n, value), "levels": levels}


def adaptive_long(levels, stream=None, string=lambda bits: bits, beyond=False, filling=0, last=0):
    """`string` may change the string of the special levels, whose first 15 bits are those of lane 0. `beyond`: the first
    coordinate after the last is plain. `last` is added to the last state of lane 63."""
    dim, model, steps, code, specials = len(levels), decoder.LongAdaptive(len(levels), stream or {}), [], [], []
    side = [-1 if dither < 0 else 1 for dither in model.dithers]

    def answer(i, lane, context):
        level = levels[i] if i < dim else beyond * side[i] * (i == dim)
        symbol = decoder.ZERO if level == 0 else decoder.PLAIN if level == side[i] else decoder.SPECIAL
        steps.append((lane, context.first[symbol], context.first[symbol + 1] - context.first[symbol]))
        specials.extend([i] if symbol == decoder.SPECIAL else [])
        return symbol

    def ask(shares, question, k=None):
        yes = code.pop(0) if question == "gamma" else \
            {"against": levels[i] != 0 and (levels[i] < 0) != (side[i] < 0), "more": abs(levels[i]) > (k or 0)}[question]
        decisions.append((*shares(yes), 16))
        return yes

    model.run(answer)
    asked, decisions = decoder.Specials(ask), []
    for i in sorted(specials):
        above = f"{max(0, abs(levels[i]) - 14):b}"
        code = [bit == "1" for bit in "0" * (len(above) - 1) + above]
        try:
            asked.level(model.dithers[i])
        except decoder.Malformed:
            assert abs(levels[i]) > decoder.MOST_ADAPTIVE
            decisions += [(bit * 2**15, 2**15, 16) for bit in code]
            break
    n, value = shortest_string(*narrowed(decisions))
    bits = string([value >> n - 1 - k & 1 for k in range(n)])
    first = bits[:decoder.IN_STATES] + [0] * (decoder.IN_STATES - len(bits))
    states = [2**15 + sum(bit << k for k, bit in enumerate(first[15 * lane:15 * lane + 15])) for lane in range(64)]
    states[63] += last
    words = []
    for lane, before, f in reversed(steps):
        x = states[lane]
        if x >> 16 >= f:
            words.append(x & 0xffff)
            x >>= 16
        states[lane] = 2**15 * (x // f) + x % f + before
    head = []
    for x in states:
        k = x.bit_length() - 16
        head += [k >> j & 1 for j in range(4)] + [x >> j & 1 for j in range(k + 15)]
    head += [filling] + [0] * (-(len(head) + 1) % 8) if len(head) % 8 else []
    head += [word >> j & 1 for word in reversed(words) for j in range(16)] + bits[decoder.IN_STATES:]
    return {"encoding": "adaptive", "dim": dim, **(stream or {}), "payload_bits": len(head),
            "formula_bits": dim + sum(map(abs, levels)), "payload": from_bits(head), "levels": levels}


def adaptive_messages(n, seed):
    """Yields valid vectors, encoded by the program."""
    done = subprocess.run([TALLY.parent / "tally-random-messages", str(n), str(seed)], capture_output=True, check=True)
    for line in done.stdout.splitlines():
        vector = json.loads(line)
        if vector["encoding"] == "adaptive":
            yield vector | {key: decoder.expand(vector[key]) for key in ("payload", "levels")}


def adaptive_valid():
    top = decoder.MOST_ADAPTIVE
    yield "zero", adaptive([0])
    yield "example", adaptive([0, 1, -1, 2, -3, 0, 20])
    yield "example-without-dither", adaptive([0, 1, -1, 2, -3, 0, 20], {})
    yield "magnitudes", adaptive([sign * (base + more) for base in (1, 8, 14, 15, 16, 17, 18, 21, 22, 29, 30)
                                  for more in (0, 1) for sign in (1, -1)])
    yield "farthest", adaptive([top, -top, top - 1, 0, 0, -(2**19) - 13, 2**19 + 14, 2**19 + 13])
    yield "settled", adaptive([0] * 300 + [1, -1] * 200 + [0] * 300 + [3, -2, 0, 0] * 100)
    yield "zeros-to-the-floor-of-the-density", adaptive([0] * 2000 + [-1], {})
    yield "ones-to-the-top-of-the-density", adaptive([5, -5] * 400, {})
    yield "20000-zeros", adaptive([0] * 20000)
    yield "long", adaptive_long(sparse(LONG + 1, 5000, [1, -1, 30]))
    yield "long-dithered", adaptive_long(sparse(LONG + 64, 300, [1, -1, 2, -15]), UPLINK)
    yield "long-with-a-string-in-the-states-alone", adaptive_long(sparse(LONG, 30000, [1, -1]), UPLINK)
    yield "long-zeros", adaptive_long([0] * LONG, UPLINK)
    yield "long-farthest", adaptive_long(sparse(LONG + 4095, 9000, [top, -top, -(2**19) - 13]))
    dense = sparse(LONG, 9000, [1])
    dense[9000:27000] = [1, 1, 3, -1, 0, -2] * 3000  # contexts with 4096 nonzero levels and more
    yield "long-with-a-dense-part", adaptive_long(dense)
    for k, vector in enumerate(adaptive_messages(40, 73)):
        yield f"{k:02}-{'dithered' if 'seed' in vector else 'plain'}-dim-{vector['dim']}", vector


def adaptive_malformed():
    good = adaptive([0, 1, -1, 2, -3, 0, 20, 0, 0, 0, 15, -1])
    n, value = good["payload_bits"], string_of(good)
    assert n % 8
    yield from framing_defects(good)
    says = "bits announced, 12 coordinates take"
    yield "bit-left-over", refused(good, "length", says, bytes_of(n + 1, 2 * value), n + 1)
    yield "byte-left-over", refused(good, "length", says, bytes_of(n + 8, value << 8), n + 8)
    yield "end-too-early", refused(good, "length", says, bytes_of(n - 1, value >> 1), n - 1)
    yield "no-bits", refused(good, "length", says, b"", 0)
    far = adaptive([300] * 300)
    bits = far["payload_bits"] // 4
    yield "end-blocks-too-early", refused(far, "length", "ends in the block of coordinate 0 of 300",
                                          bytes_of(bits, string_of(far) >> far["payload_bits"] - bits), bits)
    for name, level in [("level-above-2-to-20", 2**20 + 1), ("level-of-2-to-21", -(2**21)), ("gamma-without-end", 2**70)]:
        m, string = shortest_string(*narrowed(adaptive_steps([1, level], UPLINK)))
        yield name, refused(adaptive([1, 0]), "above", "level of coordinate 1 is above 1048576", bytes_of(m, string), m)
    yield "string-not-the-smallest", next(filter(None, map(not_the_smallest, (
        adaptive([0] * wide + [1]) for wide in range(1, 200)))))
    yield "string-in-no-share", outside_both_shares()
    yield from adaptive_long_malformed()


def adaptive_long_malformed():
    levels = sparse(LONG + 1, 5000, [1, -1, 30])
    good, length = adaptive_long(levels), []
    adaptive_long(levels, string=lambda bits: length.append(len(bits)) or bits)
    payload, n = good["payload"], good["payload_bits"]
    assert n % 8 == 0 and length[0] < decoder.IN_STATES - 1
    says = "bits announced, 262145 coordinates take"
    yield "long-no-bits", refused(good, "early-end", "ends in the block of coordinate 0", b"", 0)
    yield "long-end-in-the-states", refused(good, "early-end", "ends in the block of coordinate 0", payload[:200])
    yield "long-end-in-the-words", refused(good, "early-end", "ends in the block of coordinate", payload[:-2])
    yield "long-byte-left-over", refused(good, "length", says, payload + b"\0")
    yield "long-one-after-the-states", refused(good, "filling", "a bit after the states", adaptive_long(levels, filling=1)["payload"])
    for name, more in [("long-one-after-the-string", 0), ("long-one-at-the-end-of-the-states", decoder.IN_STATES - length[0] - 1)]:
        bad = adaptive_long(levels, string=lambda bits, more=more: bits + [0] * more + [1])
        yield name, refused(good, "string", "not the first string", bad["payload"])
    many = adaptive_long(sparse(LONG, 300, [30, -15]))
    end = many["payload_bits"] - 1
    yield "long-end-in-the-string", refused(many, "length", "bits announced, 262144 coordinates take",
                                            from_bits(to_bits(many["payload"], end)), end)
    yield "long-last-state-of-2-to-16", refused(good, "final-state", "state 63 ends as 65536",
                                                adaptive_long(levels, last=2**15)["payload"])
    bad = adaptive_long(levels, beyond=True)
    yield "long-level-beyond", refused(good, "beyond", "a level beyond coordinate 262145", bad["payload"])
    far = levels[:-1] + [2**20 + 1]
    yield "long-level-above-2-to-20", refused(good, "above", "level of coordinate 262144 is above 1048576",
                                              adaptive_long(far)["payload"])


def outside_both_shares():
    """Returns a string at the very end of an interval that 2^16 shares do not fill."""
    levels, width = [1], 0
    while width % 2**16 == 0:
        levels.append(-levels[-1])
        low, width, n_units = narrowed(adaptive_steps(levels, UPLINK))
    return refused(adaptive(levels + [0] * 5), "string", "ends in the block of coordinate 0 of 7",
                   bytes_of(n_units, low + width - 1), n_units)


# --- files -------------------------------------------------------------------------------------


def vectors():
    """Yields (folder, name, vector)."""
    generator = random.Random(7)
    for folder, source in [
            ("unary", unary_valid(generator)), ("unary-malformed", unary_malformed()),
            ("float32", float32_valid(generator)), ("float32-malformed", float32_malformed()),
            ("top_k", top_k_valid()), ("top_k-malformed", top_k_malformed()),
            ("rand_k", rand_k_valid()), ("rand_k-malformed", rand_k_malformed()),
            ("qsgd", qsgd_valid(generator)), ("qsgd-malformed", qsgd_malformed()),
            ("entropy", entropy_valid(generator)), ("entropy-malformed", entropy_malformed()),
            ("entropy-long", entropy_long_valid(generator)),
            ("entropy-long-malformed", entropy_long_malformed()),
            ("dithered", dithered_valid()), ("dithered-malformed", dithered_malformed()),
            ("adaptive", adaptive_valid()), ("adaptive-malformed", adaptive_malformed())]:
        for name, vector in source:
            yield folder, name, vector


def text_of(vector):
    packed = {key: pack(value) if isinstance(value, (bytes, list)) else value for key, value in vector.items()}
    return "{\n" + ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in packed.items()) + "\n}\n"


def main():
    renew = sys.argv[1:] == ["--renew"]
    written, different = 0, 0
    for folder, name, vector in vectors():
        (HERE / folder).mkdir(exist_ok=True)
        file, text = HERE / folder / f"{name}.json", text_of(vector)
        decoder.check(json.loads(text))
        if file.exists() and file.read_text() != text:
            different += 1
            print(f"{file}: has another content")
            if not renew:
                continue
        elif file.exists():
            continue
        file.write_text(text)
        written += 1
    print(f"{written} written, {different} different")
    return 1 if different and not renew else 0


if __name__ == "__main__":
    sys.exit(main())
