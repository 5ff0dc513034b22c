"""The benchmarks in C (tests/bench): the contents of its output, not the speed of the machine."""

import json
import math
import os
import re
import shutil
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path

from common import BIN, HANG_S, wait_until

KEYS = {"clients", "dim", "store", "updates_per_s", "echo_requests_per_s", "updates_over_echo", "round_ms_p50",
        "round_ms_p99", "rss_mb", "wire_bytes_per_update", "payload_bytes_per_update"}
MORE_NUMBERS = {"rounds_per_s", "post_ms_p99", "echo_ms_p50", "commit_ms", "cpu_us_per_update",
                "echo_cpu_us_per_request", "accumulate_us_per_update", "protobuf_bytes_per_update",
                "http_bytes_per_update"}
RANGES = {"updates_per_s_range": "updates_per_s", "echo_requests_per_s_range": "echo_requests_per_s",
          "updates_over_echo_range": "updates_over_echo"}
COUNTS = {"updates", "messages", "idle", "clients_per_worker"}


class BenchCase(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)
        self.environment = {**os.environ, "TMPDIR": scratch.name}

    def bench(self, *options):
        return subprocess.run([BIN / "tally-bench", "coordinator", *map(str, options)], capture_output=True,
                              env=self.environment, timeout=HANG_S)

    def expect(self, *options):
        done = self.bench(*options)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertEqual(list(self.folder.iterdir()), [], "left behind")
        return done.stdout.decode()


class Results(BenchCase):
    def check_row(self, row):
        self.assertEqual(set(row), KEYS | MORE_NUMBERS | set(RANGES) | COUNTS | {"encoding", "idle_bytes_each"})
        for key in KEYS - {"store"} | MORE_NUMBERS:
            self.assertIsInstance(row[key], (int, float), key)
            self.assertGreater(row[key], 0, key)
        for key in COUNTS | {"clients", "dim"}:
            self.assertIsInstance(row[key], int, key)
        for key, median in RANGES.items():
            least, most = row[key]
            self.assertLessEqual(least, row[median], key)
            self.assertLessEqual(row[median], most, key)
        self.assertEqual(row["updates"], row["messages"])
        self.assertAlmostEqual(row["rounds_per_s"], row["updates_per_s"] / row["clients"], places=6)
        self.assertLessEqual(row["round_ms_p50"], row["round_ms_p99"])
        parts = sum(row[f"{part}_bytes_per_update"] for part in ("payload", "protobuf", "http"))
        self.assertAlmostEqual(row["wire_bytes_per_update"], parts, places=3)
        # One payload up and one down: at least one bit per coordinate, and at most a few.
        self.assertGreater(row["payload_bytes_per_update"], row["dim"] / 8)
        self.assertLess(row["payload_bytes_per_update"], 2 * row["dim"])

    def test_points(self):
        options = ["--clients", "2,5", "--dim", "30,1000", "--runs", 2, "--rounds", 20, "--seconds", 0.1, "--json"]
        rows = json.loads(self.expect(*options))
        self.assertEqual([(row["clients"], row["dim"], row["store"]) for row in rows],
                         [(clients, dim, store) for clients in (2, 5) for dim in (30, 1000)
                          for store in ("sqlite", "memory")])
        for row in rows:
            with self.subTest(clients=row["clients"], dim=row["dim"], store=row["store"]):
                self.check_row(row)
                self.assertEqual(row["updates"], 2 * 20 * row["clients"])  # two runs of 20 rounds each
                self.assertLess(row["http_bytes_per_update"], 450)  # one exchange; two would take 660
                self.assertEqual((row["encoding"], row["idle"], row["idle_bytes_each"]), ("unary", 0, None))

    def test_wire_bytes_of_batches(self):
        """wire_bytes counts everything on the wire: responses, tasks and HTTP too. Posted alone, an update of 30
        coordinates takes more than 400 bytes."""
        for clients_per_worker, most in ((10, 60), (64, 30)):
            row, = json.loads(self.expect("--clients", 640, "--dim", 30, "--clients-per-worker", clients_per_worker,
                                          "--store", "memory", "--runs", 1, "--rounds", 200, "--seconds", 0.1, "--json"))
            self.assertLess(row["wire_bytes_per_update"], most)

    def test_seconds(self):
        """With --seconds, jobs are as long as the measurement requires, and all of them complete."""
        row, = json.loads(self.expect("--clients", 3, "--dim", 30, "--store", "memory", "--encoding", "entropy",
                                      "--runs", 1, "--seconds", 1, "--json"))
        self.check_row(row)
        self.assertEqual(row["encoding"], "entropy")
        self.assertEqual(row["updates"] % row["clients"], 0)
        self.assertGreater(row["updates"], 3 * row["clients"])

    def test_idle(self):
        """With --idle, workers without a client wait, and they have a row of their own."""
        plain, idle = json.loads(self.expect("--clients", 2, "--dim", 30, "--store", "sqlite", "--idle", 50,
                                             "--rounds", 20, "--runs", 1, "--seconds", 0.1, "--json"))
        for row, n in ((plain, 0), (idle, 50)):
            self.check_row(row)
            self.assertEqual((row["idle"], row["updates"]), (n, 40))
        self.assertIsNone(plain["idle_bytes_each"])
        self.assertGreaterEqual(idle["idle_bytes_each"], 0)

    def test_clients_per_worker(self):
        """A worker posts the updates of its clients in one request, and each update is counted."""
        rows = {}
        for n in (1, 6):
            rows[n], = json.loads(self.expect("--clients", 12, "--dim", 30, "--store", "memory", "--rounds", 20,
                                              "--clients-per-worker", n, "--runs", 1, "--seconds", 0.1, "--json"))
            self.check_row(rows[n])
            self.assertEqual((rows[n]["clients_per_worker"], rows[n]["updates"]), (n, 240))
        self.assertLess(5 * rows[6]["http_bytes_per_update"], rows[1]["http_bytes_per_update"])

    def test_table(self):
        text = self.expect("--clients", 2, "--dim", 30, "--rounds", 10, "--runs", 1, "--seconds", 0.1)
        speed, costs = (block.splitlines() for block in text.split("\n\n")[1::2])
        for table, last in ((speed, "COMMIT MS"), (costs, "IDLE B")):
            self.assertEqual(re.split(r"\s{2,}", table[0])[:3], ["CLIENTS", "DIM", "STORE"])
            self.assertTrue(table[0].endswith(last))
            self.assertEqual([line.split()[:3] for line in table[1:]],
                             [["2", "30", "sqlite"], ["2", "30", "memory"]])

    def test_environment(self):
        """TALLY_STORE names the user's own database: only its kind is used, and the file is not touched. Other
        variables are meant for other coordinators and are ignored."""
        self.environment["TALLY_ADMIN_TOKEN"] = "0123456789abcdef"
        self.environment["TALLY_STORE"] = f"sqlite:{self.folder}/mine.db"
        row, = json.loads(self.expect("--clients", 1, "--dim", 30, "--rounds", 1, "--runs", 1, "--seconds", 0.1,
                                      "--json"))
        self.assertEqual(row["store"], "sqlite")


class Refusals(BenchCase):
    def test_options(self):
        for words, message in [
                (["--clients", "0"], "--clients: 0 outside [1, 20000]"),
                (["--clients", "2,x"], '--clients: "x" is not a number'),
                (["--clients", "2,"], '--clients: "" is not a number'),
                (["--clients", ",".join(["1"] * 17)], "--clients: more than 16 numbers"),
                (["--dim", "9"], "--dim: 9 outside [10, "),
                (["--store", "sqlite,tape"], '--store: "tape" is not one of sqlite, memory'),
                (["--store", ",".join(["memory"] * 5)], "--store: more than 4 stores"),
                (["--encoding", "morse"], '--encoding: "morse" is not one of'),
                (["--runs", "0"], "--runs: 0 outside"),
                (["--rounds", "-1"], "--rounds: -1 outside"),
                (["--idle", "-1"], "--idle: -1 outside"),
                (["--clients-per-worker", "0"], "--clients-per-worker: 0 outside [1, 8192]"),
                (["--clients", "6,7", "--clients-per-worker", "3"],
                 "--clients-per-worker: 7 clients cannot be shared among workers with 3 each"),
                (["--seconds", "0"], "--seconds: 0 outside"),
        ]:
            with self.subTest(words=words):
                done = self.bench(*words)
                self.assertEqual((done.returncode, done.stdout), (2, b""))
                self.assertIn(message, done.stderr.decode())

    def test_no_folder(self):
        self.environment["TMPDIR"] = str(self.folder / "missing")
        done = self.bench("--clients", 1, "--dim", 30, "--runs", 1)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"cannot make a folder in TMPDIR: No such file", done.stderr)

    def test_no_coordinator(self):
        """The bench starts the coordinator in its own folder, wherever that is."""
        alone = self.folder / "bin"
        alone.mkdir()
        shutil.copy2(BIN / "tally-bench", alone)
        done = subprocess.run([alone / "tally-bench", "coordinator", "--clients", "1"], capture_output=True,
                              env=self.environment, timeout=HANG_S)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"{alone}/tally-coordinator: No such file".encode(), done.stderr)


class Codec(BenchCase):

    def expect_codec(self, *options):
        done = subprocess.run([BIN / "tally-bench", "codec", *map(str, options)], capture_output=True, timeout=HANG_S)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        return done.stdout.decode()

    def test_json(self):
        answer = json.loads(self.expect_codec("--dim", 20000, "--seconds", 0.05, "--json"))
        self.assertEqual(set(answer), {"quantize_encode_over_memcpy", "decode_accumulate_over_add",
                                       "entropy_over_zstd1", "dithered_over_entropy", "bits"})
        self.assertEqual(set(answer["dithered_over_entropy"]), {"encode", "decode"})
        self.assertEqual(set(answer["entropy_over_zstd1"]), {"encode", "decode"})
        for key in ("quantize_encode_over_memcpy", "decode_accumulate_over_add"):
            self.assertIn("unary", answer[key])
            for ratio in answer[key].values():
                self.assertGreater(ratio, 0)
        encodings = set(answer["quantize_encode_over_memcpy"])
        self.assertEqual({row["encoding"] for row in answer["bits"]}, encodings)
        self.assertEqual({row["dim"] for row in answer["bits"]}, {30, 7840})
        self.assertEqual({row["std"] for row in answer["bits"]}, {0.3, 0.5, 1, 1.6, 3})
        for row in answer["bits"]:
            self.assertEqual(set(row), {"encoding", "dim", "std", "bits_per_coordinate",
                                        "entropy_per_coordinate"})
        unary = {(row["dim"], row["std"]): row for row in answer["bits"] if row["encoding"] == "unary"}
        for row in unary.values():  # a prefix code of each level separately
            self.assertGreaterEqual(row["bits_per_coordinate"], row["entropy_per_coordinate"])
        # A terminated unary code costs about 54 bits at d = 30 and std 0.5.
        self.assertAlmostEqual(30 * unary[30, 0.5]["bits_per_coordinate"], 54, delta=1)
        # For unbiased rounding, in units of the step: E|level| = E|y| and P(0) = E max(0, 1 - |y|).
        for std in (0.3, 0.5, 1, 1.6, 3):
            def density(t):
                return math.exp(-t * t / 2) / math.sqrt(2 * math.pi)

            zero = math.erf(1 / std / math.sqrt(2)) - 2 * std * (density(0) - density(1 / std))
            exact = 1 + 2 * std * density(0) + 1 - zero
            self.assertAlmostEqual(unary[7840, std]["bits_per_coordinate"], exact, delta=0.02)

    def test_table(self):
        text = self.expect_codec("--dim", 1000, "--seconds", 0)
        for word in ("memcpy", "add int8 levels", "quantize + encode", "decode + accumulate", "portable",
                     "ENTROPY", "FORMULA", "zstd -1", "3 repetitions"):
            self.assertIn(word, text)
        # Cells are separated by two spaces: operation, encoding, instructions, GB/s, median, ratio.
        rows = [re.split(r"\s{2,}", line) for line in text.split("\n\n")[1].splitlines()[1:]]
        speed = {row[0]: float(row[1]) for row in rows if len(row) == 3}
        measured = [row for row in rows if len(row) == 6]
        self.assertGreaterEqual(len(measured), 4)
        self.assertEqual({row[1] for row in measured}, {"unary", "entropy", "dithered"})
        for operation, encoding, instructions, best, *_ in measured:
            speed[operation, encoding, instructions] = float(best)
        for operation, encoding, instructions, best, median, ratio in measured:
            self.assertGreaterEqual(float(best), float(median))
            yardstick = (operation, "entropy", instructions) if encoding == "dithered" else {"quantize + encode": "memcpy", "decode + accumulate": "add int8 levels",
                         "encode": "zstd -1", "decode": "zstd -d"}[operation]
            if yardstick not in speed:  # the program was built without zstd
                self.assertEqual(ratio, "-")
                continue
            numbers = [float(best), speed[yardstick]]
            if min(numbers) < 0.02:  # so slow under a sanitizer that two digits are too few
                continue
            expected = numbers[0] / numbers[1]
            delta = 0.006 + expected * sum(0.006 / number for number in numbers)
            self.assertAlmostEqual(float(ratio.split()[0]), expected, delta=delta)

    def test_options(self):
        for words, message in [
                (["disk"], 'unknown benchmark "disk"; choose codec or coordinator'),
                (["codec", "--dim", "1"], "--dim: 1 outside"),
        ]:
            with self.subTest(words=words):
                done = subprocess.run([BIN / "tally-bench", *words], capture_output=True, timeout=HANG_S)
                self.assertEqual((done.returncode, done.stdout), (2, b""))
                self.assertIn(message, done.stderr.decode())


def children_of(pid):
    """Returns the processes whose parent is this one."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rsplit(")", 1)[1].split()
        except OSError:  # it has ended in the meantime
            continue
        if int(fields[1]) == pid:
            found.append(int(status.parent.name))
    return found


class Ends(BenchCase):
    def interrupted(self, number):
        """Interrupts a run that would take an hour; returns its children and how it ended."""
        bench = subprocess.Popen([BIN / "tally-bench", "coordinator", "--clients", "2", "--dim", "30",
                                  "--rounds", "1", "--runs", "100", "--seconds", "36"], env=self.environment,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.addCleanup(bench.kill)
        children = wait_until(lambda: len(children_of(bench.pid)) == 3 and children_of(bench.pid), "its children")
        bench.send_signal(number)
        _, said = bench.communicate(timeout=HANG_S)
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children), "the end of its children")
        return bench.returncode, said

    def test_a_signal_ends_it_and_its_children(self):
        self.assertEqual(self.interrupted(signal.SIGTERM), (128 + signal.SIGTERM, b""))
        self.assertEqual(list(self.folder.iterdir()), [], "left behind")

    def test_children_do_not_outlive_it(self):
        self.assertEqual(self.interrupted(signal.SIGKILL)[0], -signal.SIGKILL)


if __name__ == "__main__":
    unittest.main()
