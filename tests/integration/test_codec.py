"""`tally encode` and `tally decode`: the codec from a shell."""

import json
import math
import os
import pathlib
import random
import struct
import subprocess
import tempfile
import unittest

from test_messages import decode_unary

TALLY = pathlib.Path(os.environ.get("TALLY_BIN", "build/release/bin")).resolve() / "tally"
PATIENCE_S = 1200
FORMATS = {"|i1": "b", "<i2": "h", "<i4": "i", "<i8": "q", "|u1": "B", "<u4": "I", "<f4": "f", "<f8": "d"}


def npy(descr, values, shape=None):
    """A .npy file, version 1.0."""
    shape = shape or f"({len(values)},)"
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return (b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
            + struct.pack(f"<{len(values)}{FORMATS[descr]}", *values))


def values_of(file):
    """Returns (descr, values) of a .npy file, version 1.0."""
    assert file[:8] == b"\x93NUMPY\x01\x00", file[:8]
    (length,) = struct.unpack("<H", file[8:10])
    header = eval(file[10:10 + length].decode())  # the program under test wrote this dictionary
    (n,) = header["shape"]
    return header["descr"], list(struct.unpack(f"<{n}{FORMATS[header['descr']]}", file[10 + length:]))


class CodecCase(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def tally(self, *words, stdin=b""):
        environment = {key: value for key, value in os.environ.items() if not key.startswith("TALLY_")}
        return subprocess.run([TALLY, *map(str, words)], input=stdin, capture_output=True, cwd=self.folder,
                              timeout=PATIENCE_S, env=environment, check=False)

    def expect(self, *words, stdin=b""):
        done = self.tally(*words, stdin=stdin)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def refuse(self, message, *words, stdin=b""):
        done = self.tally(*words, stdin=stdin)
        self.assertEqual((done.returncode, done.stdout), (2, b""), done.stderr)
        self.assertIn(message, done.stderr.decode())

    def write(self, name, content):
        (self.folder / name).write_bytes(content)
        return name

    def read(self, name):
        return (self.folder / name).read_bytes()

    def decode_options(self, facts):
        return [f"--{key.replace('_', '-')}={facts[key]}" for key in
                ("encoding", "dim", "intervals", "step", "payload_bits")]


class RoundTrip(CodecCase):
    def test_the_example_of_format_md(self):
        levels = [0, 1, -1, 2, -3, 0, 4]
        self.write("levels.npy", npy("<i4", levels))
        facts = json.loads(self.expect("encode", "levels.npy", "--encoding", "unary", "--intervals", 10, "--out", "payload"))
        self.assertEqual(self.read("payload"), bytes.fromhex("5e6e29"))
        self.assertEqual(facts, {"encoding": "unary", "dim": 7, "intervals": 10, "step": 1.0, "payload_bits": 23,
                                 "formula_bits": 18, "nonzeros": 5, "clipped": 0})
        self.assertEqual(json.loads(self.expect("decode", "payload", *self.decode_options(facts),
                                                "--out", "again.npy")), facts)
        self.assertEqual(self.read("again.npy"), self.read("levels.npy"))

    def test_levels_of_both_types_and_every_length(self):
        generator = random.Random(7)
        for dim in [1, 2, 63, 64, 65, 127, 128, 129, 1000, 5003]:
            levels = [round(generator.gauss(0, 1.5)) for _ in range(dim)]
            with self.subTest(dim=dim):
                options = ["--encoding", "unary", "--intervals", 40, "--out", "-"]
                small = self.expect("encode", "-", *options, stdin=npy("|i1", levels))
                large = self.expect("encode", "-", *options, stdin=npy("<i4", levels))
                self.assertEqual(small, large)
                bits = dim + sum(map(abs, levels)) + sum(map(bool, levels))
                self.assertEqual(decode_unary(small, bits, dim), levels)
                file = self.expect("decode", "-", "--dim", dim, "--payload-bits", bits, *options, stdin=small)
                self.assertEqual(values_of(file), ("<i4", levels))

    def test_a_vector_is_rounded_to_its_neighbours(self):
        generator = random.Random(8)
        y = [generator.gauss(0, 1) for _ in range(3000)]
        step = 0.25
        self.write("y.npy", npy("<f8", y))
        self.write("y4.npy", npy("<f4", y))
        grid = ["--step", step, "--intervals", 16]
        facts = json.loads(self.expect("encode", "y.npy", *grid, "--out", "a"))
        self.expect("encode", "y4.npy", *grid, "--out", "b")
        self.expect("encode", "y.npy", *grid, "--out", "c", "--seed", 2)
        self.assertEqual(self.read("a"), self.read("b"))
        self.assertNotEqual(self.read("a"), self.read("c"))
        self.assertEqual(facts["clipped"], sum(abs(v) > 2 for v in y))
        descr, values = values_of(self.expect("decode", "a", *self.decode_options(facts), "--values", "--out", "-"))
        self.assertEqual(descr, "<f8")
        for value, exact in zip(values, y):
            self.assertLess(abs(value - max(-2, min(2, exact))), step * 1.00001)
            self.assertEqual(value / step, round(value / step))
        # Unbiased: the error, a mean over 3000 values, is below one step.
        inside = [value - exact for value, exact in zip(values, y) if abs(exact) < 2]
        self.assertLess(abs(sum(inside) / len(inside)), 5 * step / math.sqrt(len(inside)))

    def test_without_out_there_are_only_facts(self):
        facts = json.loads(self.expect("encode", "-", "--encoding", "unary", "--intervals", 2,
                                       stdin=npy("|i1", [0, 1, -1])))
        self.assertEqual(facts["payload_bits"], 3 + 2 + 2)
        self.assertEqual(list(self.folder.iterdir()), [])


class Refusals(CodecCase):
    def test_files_that_are_no_vectors(self):
        good = npy("<i4", [1, 2, 3])
        for file, message in [
                (b"", "not a .npy file"),
                (b"PK\x03\x04" + bytes(100), "not a .npy file"),
                (good[:50], "ends in its header"),
                (good[:-1], "11 bytes of data for 3 values of 4"),
                (good + b"\0", "13 bytes of data for 3 values of 4"),
                (npy("<i4", [1, 2, 3, 4], "(2, 2)"), "an array of 2 dimensions"),
                (npy("<i4", [], "(4611686018427387904,)"), "0 bytes of data for 4611686018427387904 values"),
                (npy("<i4", []), "0 coordinates outside [1, "),
                (good.replace(b"<i4", b">i4"), "dtype >i4 is not a little-endian"),
                (npy("<i8", [1, 2, 3]), "levels must be int8 or int32"),
                (npy("<i4", [1, 6]), "level 6 of coordinate 1 outside [-5, 5]"),
                (npy("<i4", [-(2**31)]), "level -2147483648 of coordinate 0 outside"),
                (npy("<f8", [0, math.nan]), "coordinate 1 of 2 is NaN"),
                (npy("<f4", [0, 0, -math.inf]), "coordinate 2 of 3 is infinite"),
                (npy("<f8", [1e300]), "coordinate 0 of 1 is infinite"),
        ]:
            with self.subTest(message=message):
                self.refuse(message, "encode", "-", "--intervals", 10, "--out", "payload", stdin=file)
                self.assertFalse((self.folder / "payload").exists())

    def test_payloads_that_are_no_messages(self):
        good = bytes.fromhex("5e6e29")
        for payload, options, message in [
                (good, {"dim": 8}, "ends in coordinates 0 to 7 of 8"),
                (good, {"dim": 6}, "23 bits announced, 6 coordinates take 20"),
                (good, {"payload-bits": 24}, "24 bits announced, 7 coordinates take 23"),
                (good, {"payload-bits": 16}, "do not frame 16 bits"),
                (good, {"payload-bits": 2**62}, "do not frame"),
                (good, {"intervals": 6}, "level of coordinate 6 is above 3"),
                (good[:2] + b"\xa9", {}, "do not frame 23 bits with zero padding"),
                (good[:2], {}, "2 bytes do not frame 23 bits"),
                (b"", {}, "0 bytes do not frame 23 bits"),
        ]:
            with self.subTest(message=message):
                words = {"encoding": "unary", "dim": 7, "payload-bits": 23, "intervals": 10} | options
                self.refuse(message, "decode", "-", "--out", "levels.npy",
                            *[f"--{key}={value}" for key, value in words.items()], stdin=payload)
                self.assertFalse((self.folder / "levels.npy").exists())

    def test_options(self):
        file = npy("|i1", [1])
        for words, message in [
                (["encode", "-"], "--intervals: is required"),
                (["encode", "-", "--intervals", 3], "must be even"),
                (["encode", "-", "--intervals", 1 << 23], "outside [2, 4194304]"),
                (["encode", "-", "--intervals", 4, "--step", 0], "--step"),
                (["encode", "-", "--intervals", 4, "--encoding", "morse"], '"morse" is not one of'),
                (["encode", "missing.npy", "--intervals", 4], "missing.npy: No such file"),
                (["encode", "-", "--intervals", 4, "--encoding", "dithered"], "dithered rounds vectors"),
                (["encode", "-", "--intervals", 4, "--encoding", "dithered", "--scale", 385], "outside [0, 384]"),
                (["encode", "-", "--intervals", 1 << 22, "--encoding", "dithered"], "at most 2097152 intervals"),
                (["decode", "-", "--intervals", 4, "--payload-bits", 3], "--dim: is required"),
                (["decode", "-", "--intervals", 4, "--dim", 3], "--payload-bits: is required"),
        ]:
            with self.subTest(words=words):
                self.refuse(message, *words, stdin=file)

    def test_a_folder_that_is_not_there(self):
        done = self.tally("encode", "-", "--intervals", 4, "--out", "missing/file", stdin=npy("|i1", [1]))
        self.assertEqual((done.returncode, done.stdout), (1, b""))
        self.assertIn(b"missing", done.stderr)


if __name__ == "__main__":
    unittest.main()
