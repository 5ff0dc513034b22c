"""A job's document and results, handed on: what a coordinator gives out is taken again, here or elsewhere."""

import hashlib
import json
import struct
import subprocess
import unittest
from pathlib import Path

from common import BIN, ENDLESS, HANG_S, JOBS, TallyTestCase, changed, essence, job_document, simulate

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


class Provenance(TallyTestCase):
    def provenance(self, client, job_id):
        return client.job(job_id)["provenance"]

    def test_detail_says_which_program_ran_the_job_on_which_data(self):
        write_images(self.folder)
        coordinator = self.start_coordinator(options=["--data-dir", self.folder])
        client = coordinator.client
        document = shipped(JOBS / "mnist-fedavg.json")
        job_id = client.submit(document)
        self.assertIsNone(self.provenance(client, job_id))
        worker = self.start_worker(coordinator, "w", clients=10, options=["--data-dir", self.folder])
        client.wait_status(job_id, "completed")
        provenance = self.provenance(client, job_id)
        text = client.get(f"/v1/jobs/{job_id}/document").body
        self.assertEqual(provenance["document_sha256"], hashlib.sha256(text).hexdigest())
        here = json.loads(tally("version", "--json").stdout)
        program, = provenance["coordinators"]
        self.assertEqual({**here, "from_round": 1, "data": program["data"]}, program)
        self.assertRegex(program["data"], "^[0-9a-f]{16}$")
        self.assertRegex(here["libraries"]["libc"], "^glibc ")
        self.assertRegex(here["libraries"]["openblas"], "^OpenBLAS ")
        # A simulation says the same of the same data, whatever their order, and something else of other data.
        of = lambda **changes: simulate(changed(document, changes), ("--data-dir", self.folder))["provenance"]
        self.assertEqual(of(), provenance)
        self.assertEqual(of(seed=2)["coordinators"], provenance["coordinators"])
        self.assertNotEqual(of(seed=2)["document_sha256"], provenance["document_sha256"])
        labels = Path(self.folder, "train-labels-idx1-ubyte")
        labels.write_bytes(labels.read_bytes()[:-2] + bytes([9, 8]))
        self.assertNotEqual(of(seed=3)["coordinators"], provenance["coordinators"])
        # Lists and events leave it out.
        self.assertNotIn("provenance", client.get_json("/v1/jobs")["jobs"][0])
        self.assert_ends_well(worker)

    def test_it_is_recorded_at_the_start_and_survives_a_crash(self):
        coordinator = self.start_coordinator()
        job_id = coordinator.client.submit(job_document(horizon=ENDLESS))
        self.start_worker(coordinator, "w", clients=10)
        coordinator.client.wait_rounds(job_id, 3)
        first = self.provenance(coordinator.client, job_id)
        self.assertEqual([each["from_round"] for each in first["coordinators"]], [1])
        coordinator.kill()
        coordinator = self.start_coordinator(port=coordinator.port)
        coordinator.client.wait_rounds(job_id, 3)
        self.assertEqual(self.provenance(coordinator.client, job_id), first)


if __name__ == "__main__":
    unittest.main()
