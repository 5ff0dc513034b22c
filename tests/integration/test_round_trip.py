"""A job's document and results, handed on: what a coordinator gives out is taken again, here or elsewhere."""

import json
import struct
import subprocess
import unittest
from pathlib import Path

from common import BIN, HANG_S, JOBS, TallyTestCase, changed, essence, job_document, simulate

SHIPPED = sorted(JOBS.rglob("*.json"))
CLASSES, OF_CLASS, SIDE = 10, 12, 28


def tally(*arguments):
    return subprocess.run([BIN / "tally", *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=HANG_S, check=False)


def write_images(folder):
    """Writes IDX files as those of MNIST, with few images."""
    n = CLASSES * OF_CLASS
    pixels = bytes((7 * i * i + 13 * (i % SIDE) + i // 91) % 251 for i in range(n * SIDE * SIDE))
    Path(folder, "train-images-idx3-ubyte").write_bytes(struct.pack(">4I", 0x803, n, SIDE, SIDE) + pixels)
    Path(folder, "train-labels-idx1-ubyte").write_bytes(
        struct.pack(">2I", 0x801, n) + bytes(i % CLASSES for i in range(n)))


def shipped(path):
    """The document in a file; one of images is made to fit the few that are written here."""
    document = json.loads(path.read_text())
    if document["objective"]["data"]["type"] == "idx":
        document = changed(document, {"horizon": 100})
        document["objective"]["data"]["points_per_class"] = OF_CLASS
    return document


class Documents(TallyTestCase):
    def test_every_shipped_document_gives_the_same_job_again(self):
        write_images(self.folder)
        coordinator = self.start_coordinator(options=["--data-dir", self.folder])
        client = coordinator.client
        pairs = []
        self.assertGreater(len(SHIPPED), 50)
        for path in SHIPPED:
            document = shipped(path)
            first = client.submit(document)
            given = client.get_json(f"/v1/jobs/{first}/document")
            client.post(f"/v1/jobs/{first}/cancel")
            second = client.submit(given)
            self.assertEqual(client.get_json(f"/v1/jobs/{second}/document"), given, path.name)
            pairs.append((path.name, document, second))
        # The detail itself is no document.
        self.assert_problem(client.post_job(client.job(pairs[0][2])), 400)
        worker = self.start_worker(coordinator, "w", clients=10, options=["--data-dir", self.folder])
        for name, document, job_id in pairs:
            with self.subTest(name):
                expected = essence(simulate(document, ("--data-dir", self.folder)))
                self.assertEqual(essence(client.wait_status(job_id, "completed")), expected)
        self.assert_ends_well(worker)

    def test_the_command_prints_a_document_that_submit_takes(self):
        coordinator = self.start_coordinator()
        job_id = coordinator.client.submit(job_document(labels={"a": "b"}, horizon=77))
        at = ("--coordinator", coordinator.url)
        shown = tally("show", job_id, "--document", *at)
        self.assertEqual(shown.returncode, 0, shown.stderr)
        path = Path(self.folder, "again.json")
        path.write_text(shown.stdout)
        again = tally("submit", path, *at)
        self.assertEqual(again.returncode, 0, again.stderr)
        documents = [coordinator.client.get_json(f"/v1/jobs/{each}/document") for each in (job_id, again.stdout.strip())]
        self.assertEqual(documents[0], documents[1])
        self.assertEqual(json.loads(shown.stdout), documents[0])
        self.assertEqual((documents[0]["labels"], documents[0]["horizon"]), ({"a": "b"}, 77))
        both = tally("show", job_id, "--document", "--traffic", *at)
        self.assertEqual((both.returncode, both.stderr), (2, "tally: --document and --traffic: choose one\n"))
        self.assert_problem(coordinator.client.get("/v1/jobs/000000000000/document"), 404)


if __name__ == "__main__":
    unittest.main()
