"""A job's document and results, handed on: what a coordinator gives out is taken again, here or elsewhere."""

import hashlib
import json
import resource
import signal
import struct
import subprocess
import tarfile
import unittest
from pathlib import Path

from common import (
    BIN, ENDLESS, HANG_S, JOBS, ForeignWorker, TallyTestCase, changed, essence, job_document, messages, simulate,
)
from test_plugins import MOODY, moody_job

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
        origin, = provenance["workers"]
        self.assertEqual({**here, "from_round": 1, "data": program["data"], "code": None}, origin)
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


    def test_workers_say_which_code_and_data_their_updates_come_from(self):
        """A plug-in in the worker and in a child process. The same again after a crash adds nothing, another file of the
        same name does."""
        plugin = Path(self.folder, "lines.so")
        plugin.write_bytes(MOODY.read_bytes())
        digest = hashlib.sha256(plugin.read_bytes()).hexdigest()
        coordinator = self.start_coordinator()
        client = coordinator.client
        job_id = client.submit(moody_job(clients=1, horizon=ENDLESS))
        codes = lambda: [each["code"] for each in self.provenance(client, job_id)["workers"]]
        for isolated in (), ["--plugin-isolated"]:
            worker = self.start_worker(coordinator, "w", options=["--plugin", plugin, *isolated])
            client.wait_rounds(job_id, 2)
            self.assertEqual(codes(), [{"name": "moody", "sha256": digest}], isolated)
            worker.terminate()
            coordinator.kill()
            coordinator = self.start_coordinator(port=coordinator.port)
        with plugin.open("ab") as file:
            file.write(b"another")
        self.start_worker(coordinator, "w", options=["--plugin", plugin])
        client.wait_rounds(job_id, 2)
        self.assertEqual([code["sha256"] for code in codes()],
                         [digest, hashlib.sha256(plugin.read_bytes()).hexdigest()])
        self.assertGreater(self.provenance(client, job_id)["workers"][1]["from_round"], 2)

    def test_a_foreign_worker_may_describe_itself(self):
        coordinator = self.start_coordinator()
        client = coordinator.client
        job_id = client.submit(job_document(clients=2, quorum=2))
        first, other = ForeignWorker(client, "first"), ForeignWorker(client, "other", slots=1)
        first.poll_task()
        describe = lambda worker, origin, job=job_id: client.call_raw("Describe", messages.DescribeRequest(
            session=worker.session, job_id=job, origin=origin).SerializeToString())
        self.assertEqual(describe(first, '{"version": "mine", "code": {"name": "é.py"}}').status, 200)
        self.assertEqual(describe(first, '{"version": "mine", "code": {"name": "é.py"}}').status, 200)
        origin, = self.provenance(client, job_id)["workers"]
        self.assertEqual((origin["version"], origin["code"]), ("mine", {"name": "é.py", "sha256": None}))
        for answer, status, field in (
                (describe(first, "[]"), 400, "origin"), (describe(first, " " * 2049), 400, "origin"),
                (describe(first, "{}", "other"), 404, "job_id")):
            self.assertEqual(answer.status, status, answer)
            self.assertIn(field, answer.json()["message"])
        other.leave()
        self.assertEqual(describe(other, "{}").status, 404)
        alone = client.submit(job_document(clients=1, quorum=1))
        self.assertEqual(describe(first, "{}", alone).status, 403)
        self.assertEqual(len(self.provenance(client, job_id)["workers"]), 1)


class Bundles(TallyTestCase):
    def setUp(self):
        super().setUp()
        self.coordinator = self.start_coordinator(options=["--data-dir", self.folder])
        self.client = self.coordinator.client
        self.at = ("--coordinator", self.coordinator.url)

    def path(self, name):
        return Path(self.folder, name)

    def run_job(self, document):
        job_id = self.client.submit(document)
        worker = self.start_worker(self.coordinator, f"w-{job_id}", clients=10,
                                   options=["--data-dir", self.folder, "--job", job_id, "--exit-when-idle"])
        self.client.wait_status(job_id, "completed")
        worker.wait()
        return job_id

    def export(self, job_id, name="job.tar"):
        done = tally("export", job_id, "--bundle", self.path(name), *self.at)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, f"wrote {self.path(name)}, {self.path(name).stat().st_size} bytes\n")
        return self.path(name)

    def members(self, path):
        with tarfile.open(path) as archive:
            return {each.name: archive.extractfile(each).read() for each in archive}

    def check(self, done, exit_code, *texts):
        self.assertEqual(done.returncode, exit_code, done.stdout + done.stderr)
        for text in texts:
            self.assertIn(text, done.stdout if exit_code == 0 or done.stdout else done.stderr)

    def test_a_bundle_has_all_of_a_job(self):
        job_id = self.run_job(job_document("synthetic-minibatch-sgd", horizon=2300, algorithm__local_steps=1,
                                           keep={"best": "loss", "every": 1000}))
        path = self.export(job_id)
        members = self.members(path)
        detail = self.client.job(job_id)
        self.assertEqual(json.loads(members["job.json"]), detail)
        self.assertEqual(members["document.json"], self.client.get(f"/v1/jobs/{job_id}/document").body)
        rounds = [json.loads(line) for line in members["rounds.jsonl"].splitlines()]
        self.assertEqual(rounds, self.client.rounds(job_id))
        self.assertEqual(len(rounds), 2300)  # more than a page
        models = json.loads(members["models.json"])
        self.assertEqual(models, self.client.get_json(f"/v1/jobs/{job_id}/models"))
        for which, name in (("last", ""), ("best", "-best"), ("1000", "-1000"), ("2000", "-2000")):
            answer = self.client.get(f"/v1/jobs/{job_id}/model?which={which}", Accept="application/x-npy")
            self.assertEqual(members[f"model{name}.npy"], answer.body)
        traffic = [json.loads(line) for line in members["traffic.jsonl"].splitlines()]
        self.assertEqual(traffic, self.client.get_json(f"/v1/jobs/{job_id}/traffic")["clients"])
        self.assertEqual((len(traffic), members["metrics.jsonl"]), (10, b""))  # this job reports no metrics
        self.assertEqual(json.loads(members["bundle.json"]), {"format": 2, "version": tally("version").stdout.split()[1]})
        self.assertEqual(list(members), ["bundle.json", "document.json", "job.json", "rounds.jsonl", "metrics.jsonl",
                                         "traffic.jsonl", "models.json", "model-best.npy", "model-1000.npy",
                                         "model-2000.npy", "model.npy", "SHA256SUMS"])
        unpacked = Path(self.folder, "unpacked")
        unpacked.mkdir()
        subprocess.run(["tar", "-xf", path, "-C", unpacked], check=True)
        subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=unpacked, check=True)
        self.assertEqual(self.export(job_id, "again.tar").read_bytes(), path.read_bytes())
        # It is read where there is no coordinator.
        away = ("--coordinator", "http://127.0.0.1:1")
        for options in ((), ("--json",), ("--document",)):
            here, there = (tally("show", word, *options, *at) for word, at in ((path, away), (job_id, self.at)))
            self.check(here, 0)
            self.assertEqual(here.stdout, there.stdout)
        self.check(tally("verify", path, *away), 0, f"verified: x_checksum {detail['x_checksum']}, 2300 rounds\n")
        self.check(tally("verify", job_id, *self.at), 0, "verified: ")
        self.check(tally("compare", path, job_id, *self.at), 0,
                   "document     the same\nenvironment  the same\nresult       the same\n")
        self.check(tally("show", path, "--traffic", *away), 2, "--traffic: a file does not have it")

    def test_verify_says_what_differs(self):
        write_images(self.folder)
        document = shipped(JOBS / "mnist-fedavg.json")
        path = self.export(self.run_job(document))
        here = ("--data-dir", self.folder, "--coordinator", "http://127.0.0.1:1")
        self.check(tally("verify", path, *here), 0, "verified: ")
        images = self.path("train-images-idx3-ubyte")
        before = images.read_bytes()
        images.write_bytes(before[:5000] + bytes([before[5000] ^ 1]) + before[5001:])
        done = tally("verify", path, *here)
        self.check(done, 1, "NOT the same result\n", "\nx_checksum ", "\ndata ", "other data")
        self.assertNotIn("libraries", done.stdout)
        images.write_bytes(before)
        # Another machine, another version, another result.
        detail = json.loads(self.members(path)["job.json"])
        program = detail["provenance"]["coordinators"][0]
        program["version"], program["machine"]["processor"] = "0.0.1", "an abacus"
        other = self.path("other.json")
        other.write_text(json.dumps(detail))
        self.check(tally("verify", other, *here), 0, "verified: ", "abacus", "0.0.1")
        detail["x_checksum"], detail["bits"]["uplink"]["payload"] = "0" * 16, 1
        other.write_text(json.dumps(detail))
        self.check(tally("verify", other, *here), 1, "NOT the same", "an abacus", "version ", "x_checksum ", "0" * 16,
                   "bits.uplink.payload ", "the same\n")
        done = tally("compare", path, other, "--json", *here[2:])
        self.assertEqual(done.returncode, 1)
        differences = json.loads(done.stdout)
        self.assertEqual({section: [each["path"] for each in found] for section, found in differences.items()},
                         {"document": [], "environment": ["version", "machine.processor"],
                          "result": ["x_checksum", "bits.uplink.payload"]})
        self.assertEqual(differences["environment"][0], {"path": "version", "a": tally("version").stdout.split()[1],
                                                         "b": "0.0.1"})

    def test_compare_names_the_members_that_differ(self):
        paths = []
        for changes in ({}, {"seed": 2, "algorithm__step_size": 1.5}):
            path = self.path(f"{len(paths)}.json")
            path.write_text(json.dumps(simulate(job_document(**changes))))
            paths.append(path)
        done = tally("compare", *paths)
        self.check(done, 1, "environment  the same\n")
        lines = [line.split() for line in done.stdout.splitlines()]
        self.assertEqual([line for line in lines if "algorithm.step_size" in line][0][-2:], ["2.0", "1.5"])
        self.assertIn(["document", "seed", "1", "2"], lines)

    def test_what_cannot_be_verified_says_why(self):
        job_id = self.client.submit(job_document())
        for verb, text in (("export", f"job {job_id} is queued: a bundle is of a job that has ended"),
                           ("verify", "cannot verify: the job is queued: only a completed job can be verified")):
            options = ("--bundle", self.path("x.tar")) if verb == "export" else ()
            done = tally(verb, job_id, *options, *self.at)
            self.assertEqual((done.returncode, done.stderr), (1, f"tally: {text}\n"))
        self.assertFalse(self.path("x.tar").exists())
        self.client.post(f"/v1/jobs/{job_id}/cancel")
        cancelled = self.export(job_id)  # it has not started
        self.assertNotIn("model.npy", self.members(cancelled))
        self.check(tally("verify", cancelled), 1, "the job is cancelled")
        training = json.loads((JOBS / "synthetic-fedavg.json").read_text())
        training |= {"objective": {"type": "training", "name": "mine", "dim": 3}, "reference": {"type": "none"},
                     "status": "completed"}
        training["algorithm"] = {"type": "fedavg"}
        path = self.path("training.json")
        path.write_text(json.dumps(training))
        self.check(tally("verify", path), 1, "its clients train by loops of their own")
        path.write_text("[1]")
        self.check(tally("verify", path), 1, "is neither a bundle of tally export nor a job's detail: it is no job")
        self.check(tally("verify", JOBS / "synthetic-ceal.json"), 1, "this is only a document, without results")

    def test_damage_shows(self):
        path = self.export(self.run_job(job_document()))
        whole = path.read_bytes()
        at = whole.index(b"\x93NUMPY") + 130
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
        self.check(tally("verify", path), 1, "the bundle is damaged: the checksum of model.npy is ")
        path.write_bytes(whole[:at])
        self.check(tally("verify", path), 1, "ends early, in model.npy")
        at = whole.index(b"job.json")
        path.write_bytes(whole[:at] + b"x" + whole[at + 1:])
        self.check(tally("show", path), 1, "has no member job.json, or is damaged before it")
        path.write_bytes(whole[:at - 10])
        self.check(tally("show", path), 1, "has no member job.json")
        for size in (0, 100, 600):  # no bundle at all
            path.write_bytes(whole[:size].replace(b"bundle", b"bungle"))
            self.check(tally("show", path), 1, "is neither a bundle of tally export nor a job's detail")

    def test_a_full_disk_leaves_no_file(self):
        job_id = self.run_job(job_document())
        path = self.path("full.tar")
        path.write_text("before")

        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

        done = subprocess.run([BIN / "tally", "export", job_id, "--bundle", path, *self.at], capture_output=True,
                              text=True, preexec_fn=limit, timeout=HANG_S, check=False)
        self.assertEqual((done.returncode, done.stderr), (1, f"tally: {path}: File too large\n"))
        self.assertEqual(path.read_text(), "before")
        self.assertEqual([each.name for each in Path(self.folder).glob("full.tar*")], ["full.tar"])


if __name__ == "__main__":
    unittest.main()
