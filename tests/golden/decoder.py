"""A second decoder of all encodings, written from codec/FORMAT.md alone.

    tests/golden/decoder.py FILE...

checks golden files (README.md), or all of them: valid ones decode to their levels and recount to their
bits, malformed ones are refused for their reason. It is meant to be read next to the text and is as
slow as that makes it. The table of priors is taken from the text itself.
"""

import collections
import json
import math
import pathlib
import re
import struct
import sys

HERE = pathlib.Path(__file__).resolve().parent
FORMAT = HERE.parents[1] / "codec/FORMAT.md"


class Malformed(Exception):
    """A message is refused; the argument is the reason, a word from README.md."""


def refuse_unless(condition, reason):
    if not condition:
        raise Malformed(reason)


# --- section 1: bits ---------------------------------------------------------------------------


class Bits:
    """Reads a message bit by bit."""

    def __init__(self, payload, payload_bits):
        refuse_unless(len(payload) == (payload_bits + 7) // 8, "framing")
        self.value = int.from_bytes(payload, "little")
        self.n = payload_bits
        self.at = 0
        refuse_unless(self.value >> payload_bits == 0, "framing")
        self.bits = [payload[i // 8] >> i % 8 & 1 for i in range(payload_bits)]

    def read(self, n):
        """Reads an integer of n bits, lowest bit first."""
        refuse_unless(self.at + n <= self.n, "early-end")
        self.at += n
        return sum(bit << k for k, bit in enumerate(self.bits[self.at - n:self.at]))


# --- section 3: unary --------------------------------------------------------------------------


def decode_unary(payload, payload_bits, dim, intervals):
    bits = Bits(payload, payload_bits)
    levels = []
    for first in range(0, dim, 64):
        block = [0] * min(64, dim - first)
        active = list(range(len(block)))
        k = 0
        while active:
            active = [i for i in active if bits.read(1)]
            refuse_unless(k < intervals // 2 or not active, "above")
            for i in active:
                block[i] += 1
            k += 1
        levels += [-level if level and bits.read(1) else level for level in block]
    refuse_unless(bits.at == payload_bits, "length")
    return levels


# --- sections 4 and 5: float32, top_k, rand_k and qsgd -----------------------------------------


def decode_float32(payload, payload_bits, dim):
    refuse_unless(payload_bits == 32 * dim and len(payload) == 4 * dim, "length")
    values = list(struct.unpack(f"<{dim}f", payload))
    refuse_unless(all(map(math.isfinite, values)), "not-finite")
    return values


def read_index_set(bits, dim, k):
    """Section 4.1: reads k of the indices below dim."""
    n = min(k, dim - k)
    r = 0
    while 4 * (n + 1) * 2**r < 2 * dim - n + 1:
        r += 1
    written = []
    for last in range(dim - n, dim):
        index = written[-1] + 1 if written else 0
        while index <= last and bits.read(1):
            index += 2**r
        refuse_unless(index <= last, "above")
        index += bits.read(r)
        refuse_unless(index <= last, "above")
        written.append(index)
    return written if n == k else sorted(set(range(dim)) - set(written))


def decode_top_k(payload, payload_bits, dim, k):
    """Returns (indices, values)."""
    bits = Bits(payload, payload_bits)
    bits.read(32 * k)
    values = decode_float32(payload[:4 * k], 32 * k, k)
    indices = read_index_set(bits, dim, k)
    refuse_unless(bits.at == payload_bits, "length")
    return indices, values


def draw_indices(dim, k, stream):
    """Section 4.2: draws indices by Floyd's algorithm."""
    words = stream_words(**stream)

    def below(n):
        p = n * next(words)
        while p % 2**32 < 2**32 % n:
            p = n * next(words)
        return p >> 32

    drawn = set()
    for j in range(dim - k, dim) if k < dim else ():
        t = below(j + 1)
        drawn.add(j if t in drawn else t)
    return sorted(drawn) if k < dim else list(range(dim))


def decode_qsgd(payload, payload_bits, dim, s):
    """Returns (norm, levels)."""
    width = s.bit_length()
    refuse_unless(payload_bits == 32 + dim * (1 + width), "length")
    bits = Bits(payload, payload_bits)
    (norm,) = struct.unpack("<f", bits.read(32).to_bytes(4, "little"))
    refuse_unless(math.isfinite(norm) and math.copysign(1, norm) > 0, "norm")
    levels = []
    for _ in range(dim):
        negative = bits.read(1)
        level = bits.read(width)
        refuse_unless(level <= s, "above")
        refuse_unless(level or not negative, "negative-zero")
        refuse_unless(norm > 0 or level == 0, "norm-zero")
        levels.append(-level if negative else level)
    return norm, levels


# --- section 6: entropy, the model -------------------------------------------------------------


def read_priors():
    """Reads (weights[prior][|symbol - 10|], FROM[0 .. 15]) from the table of the text."""
    priors, thresholds = [], []
    for line in FORMAT.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        if len(cells) == 13 and re.fullmatch(r"\d+", cells[0]):
            thresholds.append(int(cells[1]))
            priors.append([int(cell) for cell in cells[2:]])
        elif cells[0] == "(15)":
            thresholds.append(int(cells[1]))
    assert len(priors) == 15 and len(thresholds) == 16
    return priors, thresholds


PRIORS, FROM = read_priors()
ESCAPE = 31
LONG = 2**18


def scale_of(levels):
    sampled = levels[::-(-len(levels) // 4096)]
    total = sum(abs(level).bit_length() for level in sampled)
    n = len(sampled)
    k = max(k for k in range(16) if 4096 * total >= n * FROM[k])
    return k if k < 15 else min(52, 15 + (4096 * total // n - 8456) // 1920)


def shift_and_prior(scale):
    return (0, scale) if scale < 15 else (1 + (scale - 15) // 2, 13 + (scale - 15) % 2)


def first_of_class(c):
    return 11 + 16 * (4**c - 1) // 3


def symbol_of(level, shift):
    high = (level + 2**shift // 2) >> shift
    if abs(high) <= 10:
        return high + 10
    return 21 + max(c for c in range(10) if first_of_class(c) <= abs(high))


def n_class_bits(symbol):
    """Returns the number of bits for the sign and u."""
    return 0 if symbol <= 20 else 1 + 2 * (symbol - 21) + 4


def high_of(symbol, extra):
    if symbol <= 20:
        return symbol - 10
    magnitude = (extra >> 1) + first_of_class(symbol - 21)
    return -magnitude if extra & 1 else magnitude


def frequencies(prior, window, shift):
    """Returns the 32 frequencies after these levels."""
    counts = [0] * 31
    for level in window:
        counts[symbol_of(level, shift)] += 1
    weights = [256 * counts[s] + 2 + (PRIORS[prior][abs(s - 10)] if s <= 20 else 0) for s in range(31)]
    total = sum(weights)
    shares = [4095 * weight // total for weight in weights]
    shares.append(1 + 4095 * sum(w for w, f in zip(weights, shares) if f == 0) // total)
    shares[shares.index(max(shares[:31]))] += 4096 - sum(shares)
    return shares


def blocks(dim):
    """Yields (first, end) of each block."""
    longest = 256 if dim < LONG else 16384
    first, n = 0, 32
    while first < dim:
        yield first, min(first + n, dim)
        first += n
        n = min(first, longest)


def tables(dim, scale, levels):
    """Yields, for each block, (first, end, frequencies, cumulative), computed from the levels decoded by then."""
    shift, prior = shift_and_prior(scale)
    for first, end in blocks(dim):
        shares = frequencies(prior, levels[max(0, first - 4096):first], shift)
        yield first, end, shares, [sum(shares[:s]) for s in range(32)]


def shares_to_symbols(shares):
    return [s for s in range(32) for _ in range(shares[s])]


def escaped(symbol, shares):
    refuse_unless(shares[symbol] == 0, "escape")
    return symbol


# --- section 6.1: short messages ---------------------------------------------------------------


class Interval:
    """The interval [L, L + R), and the position of the string in it: `above` is string - L in whole units."""

    def __init__(self, string):
        self.string = string  # the string's bits, first to last
        self.n_units = 63  # the unit is 2^-n_units
        self.range = 2**63
        self.above = self.window(0, 63)

    def window(self, first, end):
        """Returns these bits of the string as a number; bits beyond its end are zeros."""
        text = "".join(map(str, self.string[first:end]))
        return int(text.ljust(end - first, "0"), 2)

    def share(self, m):
        share = self.above // (self.range >> m)
        refuse_unless(share < 2**m, "string")
        return share

    def narrow(self, a, n, m):
        q = self.range >> m
        self.above -= a * q
        self.range = n * q
        while self.range < 2**31:
            self.above = (self.above << 32) + self.window(self.n_units, self.n_units + 32)
            self.range <<= 32
            self.n_units += 32

    def raw(self, n):
        """Reads n bits without a model."""
        value = 0
        for done in range(0, n, 16):
            m = min(16, n - done)
            share = self.share(m)
            self.narrow(share, 1, m)
            value |= share << done
        return value

    def check_end(self):
        low = self.window(0, self.n_units) - self.above
        n, value = shortest_string(low, self.range, self.n_units)
        refuse_unless(n == len(self.string), "length")
        refuse_unless(n == 0 or value == self.window(0, n), "string")


def shortest_string(low, width, n_units):
    """Returns (n, value) of the shortest string whose continuations all lie in [low, low + width) / 2^n_units; of
    several, the smallest."""
    n = max(0, n_units - width.bit_length())
    while True:
        value = -(-low >> n_units - n) if n <= n_units else low << n - n_units
        if value + 1 << n_units <= low + width << n:
            return n, value
        n += 1


def decode_short(bits, dim):
    scale = bits.read(4)
    if scale == 15:
        scale += bits.read(6)
    refuse_unless(scale <= 52, "scale-range")
    shift, _ = shift_and_prior(scale)
    interval = Interval(bits.bits[bits.at:])
    levels = []
    for first, end, shares, before in tables(dim, scale, levels):
        symbols = shares_to_symbols(shares)
        for _ in range(first, end):
            symbol = symbols[interval.share(12)]
            interval.narrow(before[symbol], shares[symbol], 12)
            if symbol == ESCAPE:
                symbol = escaped(interval.raw(5), shares)
            n = n_class_bits(symbol)
            extra = interval.raw(n + shift)
            low = extra >> n
            levels.append(high_of(symbol, extra & 2**n - 1) * 2**shift + low - 2**shift // 2)
    return scale, levels, interval.check_end


# --- section 6.2: long messages ----------------------------------------------------------------


class Words:
    """Reads 16-bit words."""

    def __init__(self, payload):
        refuse_unless(len(payload) % 2 == 0, "length")
        self.words = struct.unpack(f"<{len(payload) // 2}H", payload)
        self.at = 0

    def next(self):
        refuse_unless(self.at < len(self.words), "early-end")
        self.at += 1
        return self.words[self.at - 1]


class RawBits:
    """Reads bits from the next word on."""

    def __init__(self, words):
        self.words, self.value, self.n = words, 0, 0

    def read(self, n):
        while self.n < n:
            self.value |= self.words.next() << self.n
            self.n += 16
        value = self.value & 2**n - 1
        self.value >>= n
        self.n -= n
        return value


def decode_long_block(words, states, n, shares, before, shift):
    symbols = shares_to_symbols(shares)
    found = []
    for i in range(n):
        share = states[i % 64] % 4096
        symbol = symbols[share]
        state = shares[symbol] * (states[i % 64] // 4096) + share - before[symbol]
        states[i % 64] = state if state >= 2**15 else state << 16 | words.next()
        found.append(symbol)
    bits = RawBits(words)
    highs = []
    for symbol in found:
        if symbol == ESCAPE:
            symbol = escaped(bits.read(5), shares)
        highs.append(high_of(symbol, bits.read(n_class_bits(symbol))))
    levels = [high * 2**shift + bits.read(shift) - 2**shift // 2 for high in highs] if shift else highs
    refuse_unless(bits.value == 0, "filling")
    return levels


def decode_long(bits, payload, dim):
    words = Words(payload)
    refuse_unless(len(words.words) >= 129, "early-end")
    scale = words.next()
    states = [words.next() | words.next() << 16 for _ in range(64)]
    refuse_unless(all(2**15 <= state < 2**31 for state in states), "state")
    refuse_unless(scale <= 52, "scale-range")
    shift, _ = shift_and_prior(scale)
    levels = []
    for first, end, shares, before in tables(dim, scale, levels):
        levels += decode_long_block(words, states, end - first, shares, before, shift)

    def check_end():
        refuse_unless(16 * words.at == bits.n, "length")
        refuse_unless(all(state == 2**15 for state in states), "final-state")

    return scale, levels, check_end


def decode_entropy(payload, payload_bits, dim, intervals):
    bits = Bits(payload, payload_bits)
    scale, levels, check_end = decode_short(bits, dim) if dim < LONG else decode_long(bits, payload, dim)
    refuse_unless(all(abs(level) <= intervals // 2 for level in levels), "above")
    check_end()
    refuse_unless(scale == scale_of(levels), "scale")
    return levels


# --- section 7: dithered -----------------------------------------------------------------------


def philox(rounds, counter, key):
    """Returns the block of Philox4x32 (section 10)."""
    most = 2**32 - 1
    for _ in range(rounds):
        p0, p1 = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [p1 >> 32 ^ counter[1] ^ key[0], p1 & most, p0 >> 32 ^ counter[3] ^ key[1], p0 & most]
        key = [key[0] + 0x9E3779B9 & most, key[1] + 0xBB67AE85 & most]
    return counter


def stream_key(seed, run):
    most = 2**32 - 1
    return philox(10, [run, 0, 0, most], [seed & most, seed >> 32])[:2]


def stream_words(seed, run, client, round, purpose):
    """Yields the words of a stream, block after block."""
    key = stream_key(seed, run)
    for block in range(2**32):
        yield from philox(7, [block, client, round, purpose], key)


def dithers(dim, seed, run, client, round, purpose):
    """Returns U for every coordinate."""
    key = stream_key(seed, run)
    words = [philox(7, [16 * (i // 64) + i % 16, client, round, purpose], key)[i // 16 % 4] for i in range(dim)]
    return [word - 2**32 if word >= 2**31 else word for word in words]


def adaptive_dithers(dim, **stream):
    """Returns U for every coordinate of an uplink message of `adaptive`."""
    words = dithers(dim, **stream)
    halves = [words[64 * (i // 128) + i % 64] >> 16 * (i // 64 % 2) & 0xffff for i in range(dim)]
    return [2**16 * (half - 2**16 * (half >= 2**15)) + 2**15 for half in halves]


def read_normal_table():
    """Reads A_0 .. A_88 from the table of the text."""
    text = FORMAT.read_text().partition("\n### 7.1")[0]
    rows = re.findall(r"^\| (\d+) \| ([\d ]+) \|$", text, re.MULTILINE)
    table = [int(number) for _, row in rows for number in row.split()]
    assert len(table) == 89
    return table


ABOVE = read_normal_table()
INVERSE = [round(2**32 * 2 ** (-j / 16)) for j in range(16)]


def normal(scale, bound):
    """Computes N(scale, bound)."""
    m = abs(bound) >> scale // 16
    z = m * INVERSE[scale % 16] >> 40
    k = z >> 12
    above = 0
    if m < 2**29 and k < 88:
        above = ABOVE[k] - ((ABOVE[k] - ABOVE[k + 1]) * (z % 2**12) >> 12)
    return above if bound < 0 else 2**24 - above


class Dithered:
    """The model: hypotheses and their weights."""

    def __init__(self, scale, least=0):
        e = scale // 16
        self.shift = max(0, e - 9)
        self.half = 2**self.shift // 2
        self.reach = 2 ** max(0, e - 5 - self.shift)
        self.scales = [min(384, max(least, scale + change)) for change in (0, 16, 0, -16, -32, -48, -64)]
        self.weights = [42 * 2**16] + 6 * [2**16]

    def below(self, x, dither):
        """Returns N_h(x) for all h."""
        if x < -self.reach or x > self.reach + 1:
            return 7 * [0 if x < 0 else 2**24]
        bound = (2 * (2**self.shift * x - self.half) - 1) * 2**31 - dither
        return [normal(scale, bound) for scale in self.scales]

    def shares(self, x, below):
        """Returns F(x)."""
        if x < -self.reach or x > self.reach + 1:
            return 0 if x < 0 else 2**16
        mean = sum(w * n for w, n in zip(self.weights, below)) // sum(self.weights)
        return x + self.reach + 1 + (mean * (2**16 - 2 * self.reach - 3) >> 24)

    def learn(self, first, end):
        v = [w * (b - a + 1) for w, a, b in zip(self.weights, first, end)]
        n = max(0, sum(v).bit_length() - 24)
        w = [(product >> n) + 1 for product in v]
        jump = (sum(w[1:]) >> 8) // 6
        self.weights = [w[0]] + [w[h] + jump + 1 - (w[h] >> 8)
                                 + ((w[h - 1] >> 6) - (w[h] >> 6) if h > 1 else 0)
                                 + ((w[h + 1] >> 6) - (w[h] >> 6) if h < 6 else 0) for h in range(1, 7)]

    def decode_symbol(self, interval, dither):
        share = interval.share(16)
        x = -self.reach - 1
        first = self.below(x, dither)
        while True:
            end = self.below(x + 1, dither)
            if share < self.shares(x + 1, end):
                break
            x, first = x + 1, end
        a = self.shares(x, first)
        interval.narrow(a, self.shares(x + 1, end) - a, 16)
        self.learn(first, end)
        return x

    def decode_level(self, interval, dither):
        high = self.decode_symbol(interval, dither)
        if abs(high) > self.reach:
            n = 0
            while interval.raw(1) == 0:
                n += 1
                refuse_unless(n < 32, "above")
            magnitude = self.reach + (2**n | interval.raw(n))
            high = magnitude if high > 0 else -magnitude
        return high * 2**self.shift + interval.raw(self.shift) - self.half


def bin_of(dither, t):
    g = min(15, (2**31 + dither if dither < 0 else 2**31 - 1 - dither) >> t)
    return g if dither < 0 else 31 - g


class Binned(Dithered):
    """The model of a long message: F[bin][symbol], both ends included."""

    def __init__(self, scale):
        super().__init__(scale)
        self.t = min(27, 23 + scale // 16)
        self.n = 2 * self.reach + 3
        self.bounds = [[0, *(self.bound(s, self.middle(b)) for s in range(1, self.n)), 2**14] for b in range(32)]

    def middle(self, b):
        g = min(b, 31 - b)
        m = 2**31 - (2 * g + 1) * 2**self.t // 2 if g < 15 else (2**31 - 15 * 2**self.t) // 2
        return -m if b < 16 else m

    def bound(self, s, dither):
        return s + (self.below(s - self.reach - 1, dither)[0] * (2**14 - self.n) >> 24)

    def decode_block(self, words, states, dithers_here):
        highs = []
        for i, dither in enumerate(dithers_here):
            bounds = self.bounds[bin_of(dither, self.t)]
            share = states[i % 64] % 2**14
            s = max(s for s in range(self.n) if bounds[s] <= share)
            state = (bounds[s + 1] - bounds[s]) * (states[i % 64] >> 14) + share - bounds[s]
            states[i % 64] = state if state >= 2**15 else state << 16 | words.next()
            highs.append(s - self.reach - 1)
        bits = RawBits(words)
        highs = [self.tail(high, bits) if abs(high) > self.reach else high for high in highs]
        levels = [high * 2**self.shift + bits.read(self.shift) - self.half for high in highs] if self.shift else highs
        refuse_unless(bits.value == 0, "filling")
        return levels

    def tail(self, high, bits):
        n = 0
        while bits.read(1) == 0:
            n += 1
            refuse_unless(n < 32, "above")
        magnitude = self.reach + (2**n | bits.read(n))
        return magnitude if high > 0 else -magnitude


def decode_dithered_long(payload, payload_bits, scale, all_dithers):
    words = Words(payload)
    refuse_unless(len(words.words) >= 128, "early-end")
    states = [words.next() | words.next() << 16 for _ in range(64)]
    refuse_unless(all(2**15 <= state < 2**31 for state in states), "state")
    model = Binned(scale)
    levels = []
    for first in range(0, len(all_dithers), 4096):
        levels += model.decode_block(words, states, all_dithers[first:first + 4096])

    def check_end():
        refuse_unless(16 * words.at == payload_bits, "length")
        refuse_unless(all(state == 2**15 for state in states), "final-state")

    return levels, check_end


class Trellis:
    """The grids of a short message."""

    AFTER = [(0, 2), (5, 7), (1, 3), (4, 6), (2, 0), (7, 5), (3, 1), (6, 4)]

    def __init__(self):
        self.state = 0
        self.dither = None

    def follow(self, u, level_of):
        """Returns the level that `level_of` has for U'."""
        self.dither = u + 2**31 * (self.state % 2)
        wraps = self.dither >= 2**31
        self.dither -= 2**32 * wraps
        level = level_of(self.dither)
        self.state = self.AFTER[self.state][(level + u + wraps) % 2]
        return level


def dithers_after(levels, all_dithers):
    """Returns U' for every coordinate of a short message."""
    trellis = Trellis()
    shifted = []
    for level, u in zip(levels, all_dithers):
        trellis.follow(u, lambda _, level=level: level)
        shifted.append(trellis.dither)
    return shifted


def decode_dithered_short(bits, scale, all_dithers):
    interval = Interval(bits.bits)
    model = Dithered(scale, 72)
    trellis = Trellis()
    return [trellis.follow(u, lambda dither: model.decode_level(interval, dither)) for u in all_dithers], interval.check_end


def decode_dithered(payload, payload_bits, dim, intervals, scale, stream):
    """Returns the levels q; the values are (q - U 2^-32) step, of short messages with U' in place of U."""
    bits = Bits(payload, payload_bits)
    all_dithers = dithers(dim, **stream)
    levels, check_end = decode_dithered_short(bits, scale, all_dithers) if dim < LONG else \
        decode_dithered_long(payload, payload_bits, scale, all_dithers)
    refuse_unless(all(abs(level) <= intervals // 2 for level in levels), "above")
    check_end()
    return levels


# --- section 7.3: adaptive ---------------------------------------------------------------------


def read_adaptive_table():
    """Reads the initial shares of no of nonzero[a][b] from the table of the text."""
    text = FORMAT.read_text().partition("\n### 7.3")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| ([\d ]+) \|$", text, re.MULTILINE)
    table = [[int(number) for number in row.split()] for _, row in rows]
    assert [int(a) for a, _ in rows] == list(range(12)) and all(len(row) == 16 for row in table)
    return table


ADAPTIVE = read_adaptive_table()
MOST_ADAPTIVE = 2**20


class Decision:
    """Learns how probable a no is."""

    def __init__(self, z=2**21, n=2):
        self.z, self.n = z, n

    def shares(self, yes):
        """Returns (first, number) of 2^16."""
        p = self.z // 64
        return (p, 2**16 - p) if yes else (0, p)

    def learn(self, yes):
        t = 128 if yes else 2**22 - 128
        if self.n < 126:
            self.n += 1
            quotient = abs(t - self.z) // self.n
            self.z += quotient if t > self.z else -quotient
        else:
            self.z += (t - self.z) // 128


class Adaptive:
    """The contexts. `ask` answers each decision: a decoder reads the answer, an encoder (make_golden.py) knows it."""

    def __init__(self, ask):
        self.ask = ask
        self.nonzero = [[Decision(64 * start, 6) for start in row] for row in ADAPTIVE]
        self.against = [Decision() for _ in range(16)]
        self.more = [[Decision() for _ in range(14)] for _ in range(12)]
        self.density = 1024

    def decide(self, decision, *question):
        yes = self.ask(decision.shares, *question)
        decision.learn(yes)
        return yes

    def bit(self):
        return int(self.ask(Decision().shares, "gamma"))

    def gamma(self):
        n = 0
        while not self.bit():
            n += 1
            refuse_unless(n < 20, "above")  # 2^20 and more, and 14 are added
        value = 1
        for _ in range(n):
            value = 2 * value + self.bit()
        return value

    def level(self, dither):
        a = max(0, max(1, self.density.bit_length()) - 4)
        b = (dither if dither >= 0 else -1 - dither) // 2**27
        magnitude, negative = 0, False
        if self.decide(self.nonzero[a][b], "nonzero"):
            negative = self.decide(self.against[b], "against") != (dither < 0)
            magnitude = 1
            while magnitude <= 14 and self.decide(self.more[a][magnitude - 1], "more", magnitude):
                magnitude += 1
            if magnitude > 14:
                magnitude = 14 + self.gamma()
        refuse_unless(magnitude <= MOST_ADAPTIVE, "above")
        self.density += (min(magnitude, 2) * 2**14 - self.density) // 32
        return -magnitude if negative else magnitude


def decode_adaptive_short(payload, payload_bits, dim, stream):
    interval = Interval(Bits(payload, payload_bits).bits)

    def ask(shares, *_):
        yes = interval.share(16) >= shares(True)[0]
        interval.narrow(*shares(yes), 16)
        return yes

    model = Adaptive(ask)
    levels = [model.level(dither) for dither in (adaptive_dithers(dim, **stream) if stream else dim * [0])]
    interval.check_end()
    return levels


ZERO, PLAIN, SPECIAL = range(3)
IN_STATES = 15 * 64  # bits of the string


def class_of(dither):
    return (dither if dither >= 0 else -1 - dither) // 2**27


class Lane:
    def __init__(self, dithered):
        self.dithered, self.density, self.last = dithered, 1024, 0

    def context(self, dither):
        return max(0, max(1, self.density.bit_length()) - 4), class_of(dither) if self.dithered else self.last

    def learn(self, symbol):
        h = {ZERO: 0, PLAIN: 2**14, SPECIAL: 2**15 if self.dithered else 2**14}[symbol]
        self.density += (h - self.density) // 32
        self.last = self.last % 2 * 2 + (symbol != ZERO)


class Context:
    def __init__(self, z, dithered):
        self.t = self.a = 1536
        self.n = 1536 * (2**16 - z) // 2**16
        self.s = 153 if dithered else 768
        self.settle()

    def settle(self):
        """Sets F of the three symbols, and the end."""
        if self.t >= 2**20:
            self.t, self.n = self.t // 2, self.n // 2
        if self.a >= 2**20:
            self.a, self.s = self.a // 2, self.s // 2
        n = min(2**15 - 1, max(2, 2**15 * self.n // self.t))
        s = min(n - 1, max(1, n * self.s // self.a))
        self.first = 0, 2**15 - n, 2**15 - s, 2**15


class LongAdaptive:
    """The contexts of a long message, and the order of its coordinates."""

    def __init__(self, dim, stream):
        self.dithered, self.dim = bool(stream), dim
        self.length = -(-dim // 4096) * 64  # of a lane
        self.dithers = adaptive_dithers(64 * self.length, **stream) if stream else [0] * (64 * self.length)
        self.contexts = [[Context(row[b] if stream else row[0], self.dithered) for b in range(16)] for row in ADAPTIVE]

    def run(self, code):
        """Calls code(coordinate, lane, context), which returns the symbol, for each coordinate in the order of the coder."""
        lanes = [Lane(self.dithered) for _ in range(64)]
        for first in range(0, self.length, 64):
            here = []
            for step in range(first, first + 64):
                for l, lane in enumerate(lanes):
                    i = l * self.length + step
                    a, b = lane.context(self.dithers[i])
                    symbol = code(i, l, self.contexts[a][b])
                    lane.learn(symbol)
                    here.append((a, b, symbol))
            self.learn(here)

    def learn(self, here):
        for (a, b), n in collections.Counter((a, None if self.dithered else b) for a, b, _ in here).items():
            for context in self.contexts[a] if self.dithered else [self.contexts[a][b]]:
                context.t += 16 * n if self.dithered else 256 * n
        for a, b, symbol in here:
            context = self.contexts[a][b]
            context.n += 256 * (symbol != ZERO)
            context.a += 256 * (symbol != ZERO)
            context.s += 256 * (symbol == SPECIAL)
        for row in self.contexts:
            for context in row:
                context.settle()


class Specials:
    """The decisions of special levels; `ask` as in Adaptive."""

    def __init__(self, ask):
        self.model = Adaptive(ask)

    def level(self, dither):
        model = self.model
        against = model.decide(model.against[class_of(dither)], "against")
        magnitude = 1 if against else 2
        while magnitude <= 14 and model.decide(model.more[0][magnitude - 1], "more", magnitude):
            magnitude += 1
        if magnitude > 14:
            magnitude = 14 + model.gamma()
        refuse_unless(magnitude <= MOST_ADAPTIVE, "above")
        return -magnitude if against != (dither < 0) else magnitude


def decode_adaptive_long(payload, payload_bits, dim, stream):
    every = Bits(payload, payload_bits).bits
    bits = Bits(payload[:payload_bits // 8], payload_bits // 8 * 8)
    states = []
    for _ in range(64):
        k = bits.read(4)
        states.append(2**(k + 15) + bits.read(k + 15))
    refuse_unless(bits.read(-bits.at % 8) == 0, "filling")
    at = bits.at // 8
    model, levels, specials = LongAdaptive(dim, stream), [0] * dim, []

    def code(i, l, context):
        nonlocal at
        share = states[l] % 2**15
        symbol = max(s for s in (ZERO, PLAIN, SPECIAL) if context.first[s] <= share)
        f = context.first[symbol + 1] - context.first[symbol]
        state = f * (states[l] // 2**15) + share - context.first[symbol]
        if state < 2**15:
            refuse_unless(at + 2 <= payload_bits // 8, "early-end")
            state = state << 16 | payload[at] | payload[at + 1] << 8
            at += 2
        states[l] = state
        refuse_unless(symbol == ZERO or i < dim, "beyond")
        if symbol == PLAIN:
            levels[i] = -1 if model.dithers[i] < 0 else 1
        elif symbol == SPECIAL:
            specials.append(i)
        return symbol

    model.run(code)
    refuse_unless(all(state < 2**16 for state in states), "final-state")
    string = [state >> k & 1 for state in states for k in range(15)] + every[8 * at:]
    interval = Interval(string)

    def ask(shares, *_):
        yes = interval.share(16) >= shares(True)[0]
        interval.narrow(*shares(yes), 16)
        return yes

    decisions = Specials(ask)
    for i in sorted(specials):
        levels[i] = decisions.level(model.dithers[i])
    low = interval.window(0, interval.n_units) - interval.above
    n, value = shortest_string(low, interval.range, interval.n_units)
    refuse_unless(max(n, IN_STATES) == len(string), "length")
    refuse_unless(n == 0 or value == interval.window(0, n) and not any(string[n:]), "string")
    return levels


def decode_adaptive(payload, payload_bits, dim, stream):
    """Returns the levels q; `stream` is empty without dither."""
    return (decode_adaptive_short if dim < LONG else decode_adaptive_long)(payload, payload_bits, dim, stream)


# --- golden files ------------------------------------------------------------------------------


def expand(pieces):
    """Expands [[times, piece], ...] to a list or to bytes."""
    whole = [] if not pieces or isinstance(pieces[0][1], list) else b""
    for times, piece in pieces:
        whole += (piece if isinstance(piece, list) else bytes.fromhex(piece)) * times
    return whole


def decode(vector):
    """Returns what a golden file's payload decodes to: levels, values, or norm and levels."""
    payload = expand(vector["payload"])
    message = payload, int(vector["payload_bits"]), vector["dim"]
    if vector["encoding"] == "unary":
        return {"levels": decode_unary(*message, vector["intervals"])}
    if vector["encoding"] == "entropy":
        return {"levels": decode_entropy(*message, vector["intervals"])}
    stream = {key: vector[key] for key in ("seed", "run", "client", "round", "purpose") if key in vector}
    if vector["encoding"] == "dithered":
        return {"levels": decode_dithered(*message, vector["intervals"], vector["scale"], stream)}
    if vector["encoding"] == "adaptive":
        return {"levels": decode_adaptive(*message, stream)}
    if vector["encoding"] == "float32":
        return {"values": decode_float32(*message)}
    if vector["encoding"] == "top_k":
        indices, values = decode_top_k(*message, vector["k"])
        return {"indices": indices, "values": values}
    if vector["encoding"] == "rand_k":
        values = decode_float32(*message[:2], vector["k"])
        return {"indices": draw_indices(vector["dim"], vector["k"], stream), "values": values}
    norm, levels = decode_qsgd(*message, vector["s"])
    return {"norm": norm, "levels": levels}


def formula_bits(vector, meaning):
    if vector["encoding"] in ("unary", "entropy", "dithered", "adaptive"):
        return vector["dim"] + sum(map(abs, meaning["levels"]))
    if vector["encoding"] == "top_k":
        return vector["k"] * (32 + math.ceil(math.log2(vector["dim"])))
    return vector["payload_bits"]


def check(vector):
    """Raises AssertionError unless a golden file matches its payload."""
    try:
        meaning = decode(vector)
    except Malformed as refusal:
        assert vector.get("refused") == str(refusal), f"refused for {refusal}"
        return
    assert "refused" not in vector, "is accepted"
    for key, found in meaning.items():
        expected = vector[key] if key == "norm" else expand(vector[key])
        assert repr(found) == repr(expected), f"other {key}"  # compared by repr, since -0.0 == 0.0
    assert formula_bits(vector, meaning) == vector["formula_bits"], "other formula_bits"


def golden_files():
    return sorted(HERE.glob("*/*.json"))


def main():
    files = [pathlib.Path(name) for name in sys.argv[1:]] or golden_files()
    failed = 0
    for file in files:
        try:
            check(json.loads(file.read_text()))
        except AssertionError as error:
            failed += 1
            print(f"{file}: {error}")
    print(f"{len(files) - failed} passed, {failed} failed")
    return 1 if failed or not files else 0


if __name__ == "__main__":
    sys.exit(main())
