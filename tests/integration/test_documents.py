"""The documents: every link and path exists, the README is short, and examples print what is shown.

A path is text between backticks that begins with a top-level folder, that is the name of a source file or the end of
its path, or that is the name of a folder with a trailing slash.
"""

import fnmatch
import functools
import json
import os
import re
import shlex
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path

from common import BIN, HANG_S, JOBS, REPO, TallyTestCase, free_port

MAX_README_LINES = 150
MAX_HEADING = 80  # characters; a paragraph that was joined to its heading is longer
HISTORY = {"deploy/CHANGELOG.md"}  # names from older versions
TOP = ("services", "api", "codec", "storage", "deploy", "tests", ".github", ".ci")
MADE = ("deploy/secrets", "deploy/kubernetes/secrets")  # made by deploy/init-secrets and ignored by git
FOREIGN_HEADERS = {"cblas.h", "curl.h", "jansson.h", "libpq-fe.h", "microhttpd.h", "pb.h", "sqlite3.h", "zip.h",
                   "zlib.h", "tally/plugin.h"}

PLACEHOLDER = re.compile(r"NAME|TARGET|ENCODING")

FENCE = re.compile(r"(?ms)^```.*?^```$")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")


@functools.cache
def files():
    """Returns the paths, from the top of the repository, that git tracks or would add."""
    listed = subprocess.run(["git", "-c", f"safe.directory={REPO}", "ls-files", "-coz", "--exclude-standard"], cwd=REPO,
                            check=True, capture_output=True, text=True).stdout
    return [path for path in listed.split("\0") if path and (REPO / path).exists()]


@functools.cache
def paths():
    """Returns the paths of files and of folders."""
    return {str(place) for path in files() for place in (Path(path), *Path(path).parents)}


def documents():
    return [path for path in files() if path.endswith(".md")]


def prose(document):
    """Returns the text without fenced blocks."""
    return FENCE.sub("", (REPO / document).read_text())


@functools.cache
def anchors(document):
    """Returns the anchors of the headings, formed as GitHub forms them."""
    headings = re.findall(r"(?m)^#+ (.*)$", prose(document))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def expand(text):
    """Expands `a/{b,c}.h` to two paths."""
    braces = re.search(r"\{([\w.,-]+)\}", text)
    if not braces:
        return [text]
    return [each for part in braces[1].split(",")
            for each in expand(text[:braces.start()] + part + text[braces.end():])]


def is_there(path, known):
    return path in known or "*" in path and bool(fnmatch.filter(known, path))


def missing_paths(code):
    """Returns the paths in a piece of inline code, from the top or ends of paths, that do not exist."""
    missing = []
    for word in code.split():
        word = PLACEHOLDER.sub("*", re.sub(r"^(\.\./)+", "", word).rstrip(".,;:)").split(":")[0])
        if not re.fullmatch(r"[\w.*{},/-]+", word) or word in FOREIGN_HEADERS or word[0] in "_/":
            continue
        for path in expand(word.rstrip("/")):
            if word.split("/")[0] in TOP and "/" in word:
                missing += [] if path.startswith(MADE) or is_there(path, paths()) else [path]
            elif re.search(r"\w\.(c|h|py|mjs|md)$", word) or re.fullmatch(r"([\w*-]+/)+", word):
                missing += [] if is_there("*/" + path, paths()) or path in paths() else [path]
    return missing


class Paths(unittest.TestCase):
    def test_links(self):
        for document in documents():
            for target in LINK.findall(prose(document)):
                with self.subTest(document=document, target=target):
                    if re.match(r"https?://", target):
                        continue
                    path, _, anchor = target.partition("#")
                    place = os.path.normpath(Path(document).parent / path) if path else document
                    self.assertIn(place, paths())
                    if anchor:
                        self.assertIn(anchor, anchors(place))

    def test_named_paths(self):
        for document in documents():
            if document in HISTORY:
                continue
            for code in CODE.findall(prose(document)):
                with self.subTest(document=document, code=code):
                    self.assertEqual(missing_paths(code), [])

    def test_documents_that_sources_cite(self):
        kinds = (".c", ".h", ".py", ".mjs", ".proto", ".yaml", ".txt", ".in")
        sources = [path for path in files() if path.endswith(kinds) or "." not in Path(path).name]
        for source in sources:
            try:
                text = (REPO / source).read_text()
            except UnicodeDecodeError:
                continue
            for name in re.findall(r"(?<![\w./-])(?:\.\./)*((?:[\w.-]+/)*[A-Z][A-Z]+\.md)\b", text):
                with self.subTest(source=source, name=name):
                    near = [str(folder / name) for folder in Path(source).parents]
                    by_end = [path for path in documents() if path.endswith("/" + name)]
                    self.assertTrue(any(path in paths() for path in near) or by_end, f"{source} cites {name}")

    def test_the_checks_find_what_is_missing(self):
        self.assertEqual(missing_paths("services/nowhere/x.c"), ["services/nowhere/x.c"])
        self.assertEqual(missing_paths("nowhere_at_all.c"), ["nowhere_at_all.c"])
        self.assertEqual(missing_paths("base/nowhere.h"), ["base/nowhere.h"])
        self.assertEqual(missing_paths("nowhere/"), ["nowhere"])
        self.assertEqual(missing_paths("ledger.h unary/ ledger.h"), [])
        self.assertEqual(missing_paths("codec/{ledger,nothing}.h"), ["codec/nothing.h"])
        self.assertEqual(missing_paths("tests/run --help"), [])
        self.assertEqual(missing_paths("deploy/jobs/*.json"), [])
        self.assertNotIn("codec/nothing", paths())

    def test_every_room_is_in_the_readme_above_it(self):
        rooms = {str(Path(path).parent) for path in files() if re.match(r"(services|api|codec|storage)/.*\.[ch]$", path)}
        rooms |= {str(parent) for room in rooms for parent in Path(room).parents} - {"."}
        for document in documents():
            if Path(document).name != "README.md":
                continue
            folder = Path(document).parent
            text = prose(document)
            for room in sorted(room for room in rooms if Path(room).parent == folder):
                with self.subTest(document=document, room=room):
                    self.assertTrue(re.search(rf"\b{Path(room).name}/", text), f"{document} does not name {room}")
        for room in sorted(room for room in rooms if Path(room).parent == Path("services")):
            with self.subTest(document="README.md", room=room):
                self.assertIn(room + "/", prose("README.md"))

    def test_headings_stand_alone(self):
        for document in documents():
            for heading in re.findall(r"(?m)^#+ .*$", prose(document)):
                with self.subTest(document=document):
                    self.assertLessEqual(len(heading), MAX_HEADING, heading)

    def test_length_of_the_readme(self):
        self.assertLessEqual(len((REPO / "README.md").read_text().splitlines()), MAX_README_LINES)


def fences(document):
    return [block.split("\n", 1)[1].rsplit("\n", 1)[0] for block in FENCE.findall((REPO / document).read_text())]


class Examples(TallyTestCase):
    def test_result_of_the_quickstart(self):
        """Its job as `tally simulate` shows it; only the id and the wire bytes come from the service."""
        shown = next(block for block in fences("deploy/README.md") if block.startswith("job  "))
        printed = subprocess.run([BIN / "tally", "simulate", REPO / "deploy/jobs/synthetic-ceal.json"], check=True,
                                 capture_output=True, text=True).stdout
        of_service = re.compile(r"(?m)^(job|wire bytes) .*\n?")
        self.assertEqual(of_service.sub("", shown).strip(), of_service.sub("", printed).strip())

    def test_checksum_of_the_simulation(self):
        for document in ("services/job/README.md", "deploy/README.md"):
            checksums = re.findall(r'"x_checksum":"([0-9a-f]+)"|^([0-9a-f]{16})$', "\n".join(fences(document)), re.M)
            self.assertEqual({a or b for a, b in checksums}, {"b02be5970d70ed14"})
        printed = subprocess.run([BIN / "tally", "simulate", REPO / "deploy/jobs/synthetic-ceal.json", "--json"],
                                 check=True, capture_output=True, text=True).stdout
        self.assertEqual(json.loads(printed)["x_checksum"], "b02be5970d70ed14")

    def test_error_of_the_api(self):
        block = next(block for block in fences("api/README.md") if block.startswith("$ curl"))
        command, shown = block.split("\n", 1)
        port = self.start_coordinator().port
        command = command[2:].replace("http://127.0.0.1:8080", f"http://127.0.0.1:{port}")
        printed = subprocess.run(shlex.split(command), check=True, capture_output=True, text=True).stdout
        self.assertEqual(json.loads(printed), json.loads(shown))

    def test_codec_from_a_shell(self):
        import numpy as np

        block = next(block for block in fences("codec/README.md") if block.startswith("$ tally encode"))
        encode, shown, decode = block.split("\n")
        levels = np.array([3, -2, 0, 1, 0, 4, -1], dtype=np.int32)  # 7 coordinates; magnitudes add up to 11
        with tempfile.TemporaryDirectory() as folder:
            np.save(Path(folder, "levels.npy"), levels)
            run = functools.partial(subprocess.run, cwd=folder, check=True, capture_output=True, text=True)
            printed = run([BIN / "tally", *shlex.split(encode)[2:]]).stdout
            self.assertEqual(json.loads(printed), json.loads(shown))
            run([BIN / "tally", *shlex.split(decode)[2:]])
            self.assertEqual(np.load(Path(folder, "levels.npy")).tolist(), levels.tolist())

    def test_session_over_tls(self):
        """The commands in services/coordinator/README.md, "TLS", as shown but on a free port, print what is shown."""
        shown = next(block for block in fences("services/coordinator/README.md") if block.startswith("$ openssl"))
        url = f"https://localhost:{free_port()}"
        shown = shown.replace("https://localhost:8080", url).replace("deploy/jobs", str(JOBS))
        commands = [command.replace("\\\n", " ") for command in re.findall(r"(?m)^\$ ((?:.*\\\n)*.*)$", shown)]
        health = f"tally doctor --ready --coordinator {url} --tls-ca tls-cert.pem"
        ready = f"timeout {HANG_S // 2} sh -c 'until {health}; do sleep 0.1; done' >ready 2>&1"
        at = next(i for i, command in enumerate(commands) if command.startswith("tally-coordinator"))
        commands[at] = commands[at].replace("&", ">coordinator.log 2>&1 &")
        commands[at + 1] = commands[at + 1].replace("&", ">worker.log 2>&1 &")
        commands.insert(at + 1, ready)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TALLY_")}
        environment |= {"PATH": f"{BIN}:{environment['PATH']}", "TALLY_LISTEN": f"127.0.0.1:{url.rsplit(':', 1)[1]}"}
        shell = subprocess.Popen(["bash", "-c", "\n".join(commands)], cwd=self.folder, env=environment, text=True,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 start_new_session=True)
        try:
            output, _ = shell.communicate(timeout=HANG_S)
        finally:
            os.killpg(shell.pid, signal.SIGTERM)  # the coordinator and the worker belong to its session
        shown = re.sub(r"^submitted (\w+) .*$", r"\1", shown, flags=re.MULTILINE)  # as it prints without a terminal
        printed, expected = (
            [re.sub(r"[0-9a-f]{12}", "ID", line) for line in text.splitlines()
             if re.match(r"[0-9a-f]{12}$|\{|tally:", line)] for text in (output, shown))
        self.assertEqual(printed, expected, output)


if __name__ == "__main__":
    unittest.main()
