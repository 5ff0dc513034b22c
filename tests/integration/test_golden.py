"""The second decoder (tests/golden/decoder.py, written from codec/FORMAT.md alone) against the golden files and the
programs.
"""

import json
import random
import struct
import subprocess
import sys
from unittest import mock

from test_codec import CodecCase, npy, values_of

from common import BIN, REPO

GOLDEN = REPO / "tests/golden"
sys.path += [str(GOLDEN), str(REPO / "tests/fuzz")]
import decoder  # noqa: E402
import seed_corpus  # noqa: E402
import seeds  # noqa: E402


class Golden(CodecCase):
    def each_vector(self, check):
        for file in decoder.golden_files():
            with self.subTest(file=f"{file.parent.name}/{file.name}"):
                check(json.loads(file.read_text()))

    def test_the_second_decoder(self):
        self.assertGreater(len(decoder.golden_files()), 150)
        self.each_vector(decoder.check)

    def test_the_second_decoder_sees_a_difference(self):
        good = json.loads((GOLDEN / "entropy/example.json").read_text())
        for change in ({"formula_bits": 19}, {"levels": [[1, [0, 1, -1, 2, -3, 0, 5]]]}, {"refused": "string"},
                       {"payload": [[1, "1ce5fb1f"]]}):
            with self.assertRaises(AssertionError):
                decoder.check(good | change)

    def test_the_programs(self):
        self.each_vector(self.check_programs)

    def check_programs(self, vector):
        if vector["encoding"] not in ("unary", "entropy"):
            return
        payload = decoder.expand(vector["payload"])
        grid = ["--encoding", vector["encoding"], "--intervals", vector["intervals"], "--out", "-"]
        decode = ["decode", "-", *grid, "--dim", vector["dim"], "--payload-bits", vector["payload_bits"]]
        if "refused" in vector:
            # If no file has that number of bits, the option itself is refused.
            says = "payload-bits" if int(vector["payload_bits"]) >= 2**63 else vector["says"]
            self.refuse(says, *decode, stdin=payload)
            return
        levels = decoder.expand(vector["levels"])
        self.assertEqual(values_of(self.expect(*decode, stdin=payload)), ("<i4", levels))
        self.assertEqual(self.expect("encode", "-", *grid, stdin=npy("<i4", levels)), payload)


class Corpus(CodecCase):
    """The second decoder accepts and refuses the same fuzz corpus inputs as the codec."""

    def test_the_corpus_reads_alike(self):
        for encoding, decode in (("unary", decoder.decode_unary), ("entropy", decoder.decode_entropy)):
            verdicts = [self.read_alike(encoding, decode, name, content)
                        for name, content in seeds.read(encoding).items() if len(content) >= 4]
            self.assertGreater(verdicts.count("accepted"), 20)
            self.assertGreater(verdicts.count("refused"), 20)

    def read_alike(self, encoding, decode, name, content):
        dim, intervals, bits, payload = seed_corpus.message_of(content)
        if bits >= 2**63:
            return "no option"  # the program's option does not take it
        try:
            meaning = decode(payload, bits, dim, intervals)
        except decoder.Malformed:
            meaning = None
        done = self.tally("decode", "-", "--encoding", encoding, "--intervals", intervals, "--dim", dim,
                          "--payload-bits", bits, "--out", "-", stdin=payload)
        with self.subTest(file=f"{encoding}/{name}"):
            self.assertEqual(done.returncode, 2 if meaning is None else 0, done.stderr)
            if meaning is not None:
                self.assertEqual(values_of(done.stdout), ("<i4", meaning))
        return "refused" if meaning is None else "accepted"


class Random(CodecCase):
    def test_messages_of_all_encodings_recount(self):
        printed = subprocess.run([BIN / "tally-random-messages", "400", "61"], capture_output=True, check=True).stdout
        forms = {}
        for n, line in enumerate(printed.splitlines()):
            vector = json.loads(line)
            form = vector["encoding"], vector.get("form")
            forms[form] = forms.get(form, 0) + 1
            with self.subTest(n=n, form=form, dim=vector["dim"]), \
                    mock.patch.object(decoder, "LONG", 0 if form[1] == "long" else decoder.LONG):
                decoder.check(vector)
        self.assertEqual(forms, dict.fromkeys([("unary", None), ("entropy", None), ("entropy", "long"),
                                               ("float32", None), ("qsgd", None), ("top_k", None),
                                               ("adaptive", None)], 400))

    def test_dithered_messages_recount(self):
        for form, longest in ([], decoder.LONG), (["long"], 0):
            printed = subprocess.run([BIN / "tally-dithered-messages", "300", "62", *form], capture_output=True,
                                     check=True).stdout
            vectors = [json.loads(line) for line in printed.splitlines()]
            self.assertEqual(len(vectors), 300)
            for n, vector in enumerate(vectors):
                with self.subTest(n=n, form=form, dim=vector["dim"], scale=vector["scale"]), \
                        mock.patch.object(decoder, "LONG", longest):
                    decoder.check(vector)

    def test_messages_read_alike(self):
        generator = random.Random(11)
        for n in range(120):
            dim = generator.choice([1, 2, 7, 30, 64, 100, 300, 5000])
            std = 2 ** generator.uniform(-4, 16)
            encoding = "unary" if n % 3 == 0 and std < 8 else "entropy"
            levels = [max(-2**21, min(2**21, round(generator.gauss(0, std)))) for _ in range(dim)]
            with self.subTest(n=n, encoding=encoding, dim=dim, std=std):
                facts = json.loads(self.expect("encode", "-", "--encoding", encoding, "--intervals", 2**22,
                                               "--out", "payload", stdin=npy("<i4", levels)))
                decode = decoder.decode_unary if encoding == "unary" else decoder.decode_entropy
                self.assertEqual(decode(self.read("payload"), facts["payload_bits"], dim, 2**22), levels)
                self.assertEqual(facts["formula_bits"], dim + sum(map(abs, levels)))

    def test_dithered_vectors_read_alike(self):
        generator = random.Random(13)
        for n in range(40):
            dim, step = generator.choice([1, 2, 7, 30, 300]), 2.0 ** generator.randint(-3, 3)
            seed, scale = generator.randrange(1000), generator.randrange(385)
            spread = step * 2 ** (scale / 16 - 8)
            y = [generator.gauss(0, spread) for _ in range(dim)]
            options = ["--encoding", "dithered", "--intervals", 2**21, "--step", step, "--scale", scale, "--seed", seed]
            with self.subTest(n=n, dim=dim, scale=scale):
                facts = json.loads(self.expect("encode", "-", *options, "--out", "payload", stdin=npy("<f4", y)))
                self.assertEqual((facts["scale"], facts["seed"]), (scale, seed))
                options += ["--dim", dim, "--payload-bits", facts["payload_bits"]]
                _, levels = values_of(self.expect("decode", "payload", *options, "--out", "-"))
                _, values = values_of(self.expect("decode", "payload", *options, "--values", "--out", "-"))
                dithers = decoder.dithers_after(levels, decoder.dithers(dim, seed, 0, 0, 0, 7))
                self.assertEqual(values, [(level - u * 2**-32) * step for level, u in zip(levels, dithers)])
                for value, exact in zip(values, struct.unpack(f"<{dim}f", struct.pack(f"<{dim}f", *y))):
                    self.assertLessEqual(abs(value - exact), step)

    def test_a_flipped_bit_is_refused_or_means_the_same_to_both(self):
        generator = random.Random(12)
        levels = [round(generator.gauss(0, 1.5)) for _ in range(40)]
        for encoding in ("unary", "entropy"):
            facts = json.loads(self.expect("encode", "-", "--encoding", encoding, "--intervals", 64, "--out", "payload",
                                           stdin=npy("<i4", levels)))
            payload, bits = self.read("payload"), facts["payload_bits"]
            decode = decoder.decode_unary if encoding == "unary" else decoder.decode_entropy
            for position in range(bits):
                other = (int.from_bytes(payload, "little") ^ 1 << position).to_bytes(len(payload), "little")
                words = ["decode", "-", "--encoding", encoding, "--intervals", 64, "--dim", 40, "--payload-bits", bits,
                         "--out", "-"]
                with self.subTest(encoding=encoding, position=position):
                    try:
                        meaning = decode(other, bits, 40, 64)
                    except decoder.Malformed:
                        self.assertEqual(self.tally(*words, stdin=other).returncode, 2)
                        continue
                    self.assertEqual(values_of(self.expect(*words, stdin=other))[1], meaning)
