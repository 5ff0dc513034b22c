"""Writes valid inputs for every fuzz target, as initial seeds.

TALLY_BIN=build/release/bin /usr/bin/python3 tests/fuzz/seed_corpus.py FOLDER

writes FOLDER/TARGET/seed-N. The archives in tests/fuzz/seeds contain these and what libFuzzer has found since
(README.md, "Seeds").
"""

import io
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))
sys.path.insert(0, str(HERE.parent / "golden"))
from common import BIN, JOBS, messages  # noqa: E402
from test_codec import npy  # noqa: E402
from test_survey import survey_of  # noqa: E402
import decoder  # noqa: E402
import make_golden  # noqa: E402

JOB = "0123456789abcdef0123456789abcdef"
DRAWN = 40000  # extra coordinates of a selected long message (fuzz_entropy_long.c)


def encode(encoding, levels, intervals):
    """Returns (payload, payload_bits)."""
    with tempfile.TemporaryDirectory() as scratch:
        out = pathlib.Path(scratch) / "payload"
        facts = json.loads(subprocess.run(
            [BIN / "tally", "encode", "-", "--encoding", encoding, "--intervals", str(intervals), "--out", out],
            input=npy("<i4", levels), capture_output=True, check=True).stdout)
        return out.read_bytes(), facts["payload_bits"]


def head(dim, power, bits, choice=0):
    """Returns the head described in fuzz.h. dim <= 256, p = 2^power, choice < 11 for fuzz_cpu() and `twice`."""
    return bytes([dim - 1, 0, power - 1 + 22 * choice, -bits % 8])


def checksum(content):
    """Returns the checksum of FORMAT.md, section 9."""
    most = 2**64 - 1
    h = 0xcbf29ce484222325
    for first in range(0, len(content), 8):
        h = (h ^ int.from_bytes(content[first:first + 8], "little")) * 0x100000001b3 & most
        h ^= h >> 32
    h = (h ^ len(content)) * 0x100000001b3 & most
    h = (h ^ h >> 33) * 0xff51afd7ed558ccd & most
    h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53 & most
    return h ^ h >> 33


def message_of(content):
    """Returns (dim, intervals, payload_bits, payload) of an input with such a head; payload_bits as claimed."""
    first, second, third, fourth = content[:4]
    dim = 1 + first + (32 * (second - 239) if second > 239 else 0)
    if second == 255 and checksum(content) % 64 == 0:
        dim += 4096
    bits = (8 * (len(content) - 4) - fourth % 8) % 2**64
    return dim, 2 << third % 22, bits ^ (1 << 4 * (fourth // 16) if fourth & 8 else 0), content[4:]


def long_message(levels):
    """Returns a message in the form for 2^18 coordinates and more, whatever its own number of coordinates."""
    real, decoder.LONG = decoder.LONG, 0
    payload = make_golden.encode_long(levels)
    decoder.LONG = real
    return payload


def drawn_message(generator, std, step):
    """Returns a long message that the target selects: a spare bit of the head and the instruction set are varied until
    it does."""
    dim = 1 + generator.randrange(256)
    levels = [0] * (dim + DRAWN)
    for i in range(generator.randrange(step), len(levels), step):
        levels[i] = round(generator.gauss(0, std)) or 1
    payload = long_message(levels)
    for choice in range(11):
        for spare in range(16):
            seed = bytearray(head(dim, 22, 0, choice) + payload)
            seed[3] = 16 * spare
            if checksum(seed) % 1024 == 0:
                return bytes(seed)
    return None


def level_vectors(generator):
    for dim, std, power in [(1, 0, 1), (1, 5, 6), (7, 2, 6), (30, 0.5, 3), (30, 3, 6), (64, 1, 6), (65, 1, 4),
                            (100, 40, 12), (200, 0.1, 4), (256, 3000, 22), (256, 2e5, 22)]:
        top = 2 ** (power - 1)
        yield [max(-top, min(top, round(generator.gauss(0, std)))) for _ in range(dim)], power


def seeds():
    """Yields (target, bytes) for each seed."""
    generator = random.Random(7)
    for levels, power in level_vectors(generator):
        for encoding in ("unary", "entropy"):
            if encoding == "unary" and sum(map(abs, levels)) > 5000:
                continue  # a large message, and a slow one
            payload, bits = encode(encoding, levels, 2**power)
            yield encoding, head(len(levels), power, bits) + payload
        for choice in (0, 7):
            yield "entropy_long", head(len(levels), power, 0, choice) + long_message(levels)
        wide = b"".join(struct.pack("<i", level)[:3] for level in levels)
        for kind in (0, 1, 2):
            yield "levels", bytes([power - 1, kind, 0]) + wide
        if max(map(abs, levels)) < 128:
            yield "levels", bytes([power - 1 | 128, 2, 0]) + struct.pack(f"{len(levels)}b", *levels)
    for std, step in [(0, 50000), (1, 900), (30, 400), (1e5, 3000)]:
        seed = None
        while seed is None:
            seed = drawn_message(generator, std, step)
        yield "entropy_long", seed
    for dim in (1, 5, 64, 130):
        floats = struct.pack(f"<{dim}f", *(generator.gauss(0, 1) for _ in range(dim)))
        yield "float32", head(dim, 1, 32 * dim) + floats
        yield "quantize", bytes([9, 97, dim]) + floats
        yield "quantize", bytes([9 + 66, 97, dim]) + floats
    for s, dim in [(1, 1), (3, 5), (7, 40), (255, 9), (32767, 4)]:
        width = s.bit_length()
        string = "".join(f"{generator.randrange(s + 1) | 1 << width + 1:b}"[:1:-1] + "" for _ in range(dim))
        value, bits = int("0" + string[::-1], 2), 32 + dim * (1 + width)
        yield "qsgd", struct.pack("<H", s - 1) + head(dim, 1, bits) + struct.pack("<f", 2.5) + \
            value.to_bytes((bits - 32 + 7) // 8, "little")
    for dim, k in [(1, 1), (10, 3), (7, 4), (30, 30), (200, 9), (256, 128)]:
        vector = make_golden.top_k(dim, sorted(generator.sample(range(dim), k)), [2.5] * k)
        yield "top_k", struct.pack("<H", k - 1) + head(dim, 1, vector["payload_bits"]) + vector["payload"]
    yield from dithered_seeds()
    yield from adaptive_seeds()
    yield from message_seeds()
    yield from restore_seeds()
    for job in sorted(JOBS.glob("*.json")):
        yield "document", json.dumps(json.loads(job.read_text()), separators=(",", ":")).encode()
    for descr, values in [("|i1", [1, -2]), ("<i4", [70000]), ("<f4", [0.5] * 3), ("<f8", [])]:
        yield "npy", npy(descr, values)
    yield "npy", npy("<f8", [1.0] * 4, "(2, 2)")
    yield from survey_seeds()
    yield from data_seeds()


def dithered_seeds():
    for form, choice in ([], 0), (["long"], 6):
        for vector in make_golden.dithered_messages(60, 71, *form):
            if vector["dim"] <= 256:
                stream = bytes([2 * vector["run"] + vector["purpose"] - 7, vector["client"], vector["round"]])
                yield "dithered", head(vector["dim"], 21, vector["payload_bits"], choice) + vector["payload"] + \
                    struct.pack("<H", vector["scale"]) + stream


def adaptive_seeds():
    """As messages of a stream of the target, in both forms, with and without dither."""
    generator = random.Random(19)
    for levels, _ in level_vectors(generator):
        levels = [max(-2**20, min(2**20, level)) for level in levels]
        for client in (None, 0, 7):
            stream = {} if client is None else {"seed": 71, "run": 1, "client": client, "round": 3, "purpose": 7}
            for is_long, encode in enumerate((make_golden.adaptive, make_golden.adaptive_long)):
                vector = encode(levels, stream)
                yield "adaptive", head(len(levels), 1, vector["payload_bits"], 6 if client is None else 0) + \
                    vector["payload"] + bytes([2, client or 0, 3, is_long])


def survey_seeds():
    tables = ([[[1.0], [2.5]], [[-3.25]]], [[[0.1, None]], [[1e150, 5e-324], [None, -2.0]]],
              [[[0.0, 7.0, 1e-9, None]], [[0.0, 7.0, -1e-9, None]]])
    for first, second in tables:
        one, two = survey_of(first), survey_of(second)
        yield "survey", bytes([len(first[0]) - 1]) + len(one).to_bytes(2, "little") + one + two


def data_seeds():
    real, classes = b"\x01\x00", b"\x01\x32"  # with two features, and classes 0 to 2
    yield "libsvm", real + b"# points\n1.5 1:0.5 2:-2e3 # one\r\n\n-2\t2:1\n0"
    yield "libsvm", classes + b"0 1:1\n2 2:.5\n"
    yield "libsvm", b"\x01\x01" + b"+1 1:1\n-1 2:2\n"
    yield "libsvm", real + b"1 qid:3 1:2\n"
    yield "csv", real + b"\xef\xbb\xbfa,\"b, or \"\"c\"\"\",y\r\n1,-2.5e3,3\r\n\r\n \"4\" ,5,.6"
    yield "csv", real + b"\"two\nlines\", b , y \n1, 2 ,\"3\"\n"
    yield "csv", classes + b"y,a,b\n0,1,2\n2,3,4\n"
    for descr in ("|i1", "<i2", "<i8", "|u1", "<u4", "<f4", "<f8"):
        yield "npy_data", real + npy(descr, [1] * 6, "(3, 2)")
    yield "npy_data", real + npy("<f8", [1.0] * 6, "(3, 2)").replace(b"False", b"True ")
    yield "npy_data", b"\x00\x00" + npy("<f4", [1.0] * 6, "(6,)")
    for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr(zipfile.ZipInfo("X.npy"), npy("<f4", [1.0] * 4, "(2, 2)"), compression)
            archive.writestr(zipfile.ZipInfo("y.npy"), npy("|i1", [1, -2]), compression)
        yield "npz", b"\x01" + packed.getvalue()


def message_seeds():
    task = messages.Task(
        job_id=JOB, job_document=b"{}", round=3, stage=2, iterate=4, samples=9, quantizer_step=0.5,
        quantizer_intervals=8, encoding="entropy", evaluate=True, deadline_ms=5, x_checksum=7, clients=[1, 2, 300],
        broadcasts=[messages.Broadcast(iterate=3, payload=b"abc", payload_bits=23, quantizer_step=1,
                                       quantizer_intervals=4)], cut=True)
    for kind, message in [
            (0, messages.JoinRequest(name="worker", slots=4, job_id=JOB,
                                     held=[messages.HeldClient(job_id=JOB, client=7)], format=3)),
            (1, messages.JoinResponse(session=2**60, session_timeout_ms=30000, format=3, max_wait_ms=3000)),
            (2, messages.PollTaskRequest(session=1, wait_ms=2, cursors=[messages.Cursor(job_id=JOB, iterate=9)])),
            (3, messages.PollTaskResponse(idle={"jobs_pending": 2})),
            (3, messages.PollTaskResponse(task=task)),
            (3, messages.PollTaskResponse(task=messages.Task(job_id=JOB, snapshot=bytes(16)))),
            (3, messages.PollTaskResponse(released={"job_id": JOB})),
            (4, messages.PostUpdateRequest(session=1, job_id=JOB, round=2, mark=3, columns=4, updates=[
                messages.ClientUpdate(client=3, payload=b"xyz", payload_bits=24, clipped=1, loss=0.25),
                messages.ClientUpdate(metrics=[messages.Metric(name="a", value=1)])])),
            (4, messages.PostUpdateRequest(session=1, job_id=JOB, poll={"wait_ms": 5}, updates=[
                messages.ClientUpdate(failure="no data")])),
            (4, messages.PostUpdateRequest(updates=[
                messages.ClientUpdate(client=1, refusal="no plug-in", tried=True, lacks_plugin=True)])),
            (5, messages.PostUpdateResponse(results=[
                messages.UpdateResult(formula_bits=5, payload_bits=6),
                messages.UpdateResult(code="already_exists", message="no")])),
            (5, messages.PostUpdateResponse(formula_bits=5, payload_bits=600, next={"idle": {"jobs_pending": 1}})),
            (6, messages.LeaveRequest(session=77)),
            (7, messages.DescribeRequest(session=1, job_id=JOB, origin='{"version": "1", "code": {"name": "a"}}'))]:
        yield "messages", bytes([kind]) + message.SerializeToString()


def restore_seeds(dim=40):
    """Broadcasts of zeros leave the point unchanged, so that the progress can state its checksum."""

    def broadcast(step, intervals, payload, bits):
        return struct.pack("<dQQQ", step, intervals, bits, len(payload)) + payload

    def change(kind, clients, round, *broadcasts):
        head = bytes([kind, 128 + dim - 1, clients - 1, round, len(broadcasts)])
        return (head + struct.pack("<Qqq", len(broadcasts), round, 1 + len(broadcasts)) + b"".join(broadcasts)
                + bytes(32 * clients))

    unary, entropy = [broadcast(0.5, 4, *encode(encoding, [0] * dim, 4)) for encoding in ("unary", "entropy")]
    yield "restore", change(0, 2, 3)
    yield "restore", change(0, 2, 3, unary)
    yield "restore", change(0, 1, 9, unary, unary)
    yield "restore", change(1, 1, 9, entropy, entropy)
    yield "restore", change(2, 1, 3, broadcast(0.5, 4, bytes(4 * dim), 32 * dim))


def main():
    counts = {}
    for target, content in seeds():
        folder = pathlib.Path(sys.argv[1]) / target
        folder.mkdir(parents=True, exist_ok=True)
        counts[target] = counts.get(target, 0) + 1
        (folder / f"seed-{counts[target]:02}").write_bytes(content)
    print(counts)


if __name__ == "__main__":
    main()
