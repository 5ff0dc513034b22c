"""`tally import` and `POST /v1/jobs/import`: a job of one coordinator, from its bundle, on another one."""

import functools
import hashlib
import http.client
import io
import json
import os
import random
import resource
import sqlite3
import subprocess
import tarfile
import time
import unittest
from contextlib import closing
from pathlib import Path

from common import BIN, ENDLESS, HANG_S, TallyTestCase, job_document, wait_until
from private_postgres import PostgresTestCase
from test_round_trip import tally
from test_training import CLIENTS, TRAINER, training_job

TAR = {"Content-Type": "application/x-tar"}
OTHERS = "provenance", "imported"


def unpack(bundle):
    """Returns {name: bytes} in the order of the archive."""
    with tarfile.open(fileobj=io.BytesIO(bundle)) as archive:
        return {each.name: archive.extractfile(each).read() for each in archive}


def pack(members, sums=None):
    """Returns the archive, as tally export writes it, with right sums unless others are given."""
    members = {name: bytes_ for name, bytes_ in members.items() if name != "SHA256SUMS"}
    lines = "".join(f"{hashlib.sha256(bytes_).hexdigest()}  {name}\n" for name, bytes_ in members.items())
    return pack_as_is([*members.items(), ("SHA256SUMS", lines.encode() if sums is None else sums)])


def pack_as_is(members):
    archive = b""
    for name, bytes_ in members:
        info = tarfile.TarInfo(name)
        info.size = len(bytes_)
        header = bytearray(info.tobuf(tarfile.USTAR_FORMAT))
        archive += bytes(header) + bytes_ + b"\0" * (-len(bytes_) % 512)
    return archive + b"\0" * 1024


def edited(bundle, name, edit):
    """The bundle with another member, and the sums of that."""
    members = unpack(bundle)
    value = edit(members[name])
    if value is None:
        del members[name]
    else:
        members[name] = value
    return pack(members)


def edited_json(bundle, name, edit):
    def change(text):
        value = json.loads(text)
        edit(value)
        return json.dumps(value, indent=2).encode() + b"\n"
    return edited(bundle, name, change)


def edited_line(bundle, name, number, edit):
    """The same for a line, which is an object."""
    def change(text):
        lines = text.splitlines()
        value = json.loads(lines[number])
        edit(value)
        lines[number] = json.dumps(value).encode()
        return b"\n".join(lines) + b"\n"
    return edited(bundle, name, change)


def setter(path, value):
    def edit(object_):
        *parents, last = path.split(".")
        for key in parents:
            object_ = object_[key]
        object_[last] = value
    return edit


class ImportCase(TallyTestCase):
    def setUp(self):
        super().setUp()
        self.here = self.start_coordinator(name="here", store=f"sqlite:{self.folder}/here.db")

    def start_there(self, **options):
        return self.start_coordinator(**{"name": "there", "store": f"sqlite:{self.folder}/there.db"} | options)

    def run_job(self, document, *options, clients=10):
        job_id = self.here.client.submit(document)
        self.start_worker(self.here, f"w-{job_id}", clients=clients, options=["--job", job_id, "--exit-when-idle", *options])
        self.here.client.wait_status(job_id, "completed", "failed")
        # The last exchanges count to the job until it leaves memory.
        worker = self.processes[-1]
        worker.wait()
        return job_id

    def export(self, coordinator, job_id):
        path = Path(self.folder, f"{coordinator.name}-{job_id}.tar")
        done = tally("export", job_id, "--bundle", path, "--coordinator", coordinator.url)
        self.assertEqual(done.returncode, 0, done.stderr)
        return path.read_bytes()

    def bundle_of(self, *arguments, **options):
        return self.export(self.here, self.run_job(*arguments, **options))

    @staticmethod
    def post(coordinator, bundle):
        return coordinator.client.request("POST", "/v1/jobs/import", bundle, TAR)

    def take(self, coordinator, bundle, status=201):
        answer = self.post(coordinator, bundle)
        self.assertEqual(answer.status, status, answer)
        self.assertEqual(answer.headers["Location"], f"/v1/jobs/{answer.json()['id']}")
        return answer.json()

    def shown(self, client, job_id):
        """All that the interface shows of a job, as bytes; of the detail, the members that must be the same."""
        detail = {key: value for key, value in client.job(job_id).items() if key not in OTHERS}
        get = lambda rest, **headers: client.get(f"/v1/jobs/{job_id}{rest}", **headers).body
        models = [each["which"] for each in json.loads(get("/models"))["models"]]
        answers = {rest: get(rest) for rest in ("/document", "/rounds", "/rounds.csv", "/metrics", "/traffic", "/models",
                                                "/series", "/model")}
        answers |= {which: get(f"/model?which={which}", Accept="application/x-npy") for which in models}
        return {"detail": detail, "provenance": client.job(job_id)["provenance"], **answers}

    def check_same(self, there, job_id):
        here, other = (self.shown(coordinator.client, job_id) for coordinator in (self.here, there))
        for part, value in here.items():
            self.assertEqual(other[part], value, part)

    def check_store(self, path):
        done = subprocess.run([BIN / "tally-coordinator", "--store", f"sqlite:{path}", "--check"], text=True,
                              capture_output=True, timeout=HANG_S, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertNotIn("FAIL", done.stdout)


class Import(ImportCase):
    def test_every_kind_of_job_is_there_as_it_was(self):
        """Kept models, plans, estimates, memories of algorithms, rules that stop, metrics of clients, jobs that failed or
        never started."""
        there = self.start_there()
        labels = {"team": "vision", "a/b": ""}
        completed = [
            job_document("synthetic-minibatch-sgd", algorithm__local_steps=1, horizon=2300, labels=labels, name="Zoë 🙂",
                         keep={"best": "loss", "every": 1000}),
            job_document("synthetic-calm-auto"), job_document("synthetic-calm-half-bits"),
            job_document("synthetic-ef21", keep={"every": 7}), job_document("synthetic-scaffold"),
            job_document("synthetic-fedavg-compressed"), job_document("synthetic-fedavg", stop={"loss": 1e300}),
            job_document("synthetic-fedavg", cohort=0.5, quorum=5), job_document("synthetic-diana", stop={"uplink_bits": 20000})]
        jobs = [self.run_job(document) for document in completed]
        jobs.append(self.run_job(training_job(horizon=30, keep={"best": "has_job", "better": "higher"}), "--plugin", TRAINER, clients=CLIENTS))
        failed = job_document("synthetic-fedavg", algorithm__step_size=1e8, algorithm__local_steps=50)
        jobs.append(self.run_job(failed))
        client = self.here.client
        for document, options in ((job_document(horizon=ENDLESS, seed=7), ()),  # cancelled in the middle of a round
                                  (training_job(horizon=ENDLESS, evaluation="clients", weighting="points"),
                                   ("--plugin", TRAINER)),
                                  (job_document("synthetic-fedavg-compressed", horizon=ENDLESS, over_selection=0.2,
                                                cohort=0.5, quorum=5, policy="drop"), ())):
            jobs.append(client.submit(document))
            worker = self.start_worker(self.here, f"w-{jobs[-1]}", clients=document["clients"],
                                       options=["--job", jobs[-1], "--exit-when-idle", *options])
            client.wait_rounds(jobs[-1], 3)
            client.post(f"/v1/jobs/{jobs[-1]}/cancel")
            worker.wait()
        seconds = job_document("synthetic-minibatch-sgd", horizon=ENDLESS, algorithm__local_steps=1, stop={"seconds": 1})
        jobs.append(self.run_job(seconds))
        jobs.append(client.submit(job_document()))
        jobs.append(client.submit(training_job(initial_point={"type": "first"})))
        for job_id in jobs[-2:]:
            client.post(f"/v1/jobs/{job_id}/cancel")
        statuses = {job_id: client.job(job_id)["status"] for job_id in jobs}
        self.assertEqual(set(statuses.values()), {"completed", "failed", "cancelled"})
        for job_id in jobs:
            with self.subTest(job_id, document=client.get_json(f"/v1/jobs/{job_id}/document")):
                bundle = self.export(self.here, job_id)
                before = int(time.time() * 1000)
                detail = self.take(there, bundle)
                self.assertEqual(detail, there.client.job(job_id))
                self.check_same(there, job_id)
                imported = dict(detail["imported"])
                self.assertGreaterEqual(imported.pop("imported_ms"), before)
                self.assertEqual(imported, {"exported_by": tally("version").stdout.split()[1], "before": None,
                                            "bundle_sha256": hashlib.sha256(bundle).hexdigest()})
                self.assertNotIn("imported", client.job(job_id))
                self.assertEqual(self.take(there, bundle, 200), detail)
        self.assertEqual([each["id"] for each in there.client.get_json("/v1/jobs")["jobs"]], jobs[::-1])
        with_label = there.client.get_json("/v1/jobs?label=team=vision")["jobs"]
        self.assertEqual([each["id"] for each in with_label], jobs[:1])
        # After a restart, too; and to the check of the store they are as any others.
        shown = {job_id: self.shown(there.client, job_id) for job_id in jobs}
        there.kill()
        self.check_store(f"{self.folder}/there.db")
        there = self.start_there(port=there.port)
        for job_id in jobs:
            self.assertEqual(self.shown(there.client, job_id), shown[job_id])

    def test_the_programs_read_it(self):
        there = self.start_there()
        job_id = self.run_job(job_document(keep={"every": 2}))
        path = Path(self.folder, "job.tar")
        path.write_bytes(self.export(self.here, job_id))
        at = ("--coordinator", there.url)
        done = tally("import", path, *at)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, f"{job_id}\n", ""))
        done = tally("import", path, *at)
        self.assertEqual((done.returncode, done.stdout), (0, f"{job_id}\n"))
        self.assertIn("has this job already; nothing has changed", done.stderr)
        done = tally("import", path, "--json", *at)
        self.assertEqual(json.loads(done.stdout), there.client.job(job_id))
        for words, text in ((("verify", job_id), "verified: "), (("show", job_id), job_id), (("list",), job_id),
                            (("compare", path, job_id), "result       the same\n")):
            done = tally(*words, *at)
            self.assertEqual(done.returncode, 0, (words, done.stdout, done.stderr))
            self.assertIn(text, done.stdout)
        # A job here may start from its model.
        second = there.client.submit(job_document(initial_point={"type": "job", "job": job_id}))
        there.client.post(f"/v1/jobs/{second}/cancel")
        for words, code, text in (((Path(self.folder, "none.tar"),), 2, "No such file"),
                                  ((there.store.removeprefix("sqlite:"),), 2, "is not a bundle of tally export"),
                                  ((path, path), 2, "")):
            done = tally("import", *words, *at)
            self.assertEqual(done.returncode, code, done)
            self.assertIn(text, done.stderr)
        path.write_bytes(path.read_bytes()[:-1])
        done = tally("import", path, *at)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("bundle: the bundle is damaged", done.stderr)

    def test_it_goes_on_and_comes_back(self):
        there, third = self.start_there(), self.start_there(name="third", store=f"sqlite:{self.folder}/third.db")
        job_id = self.run_job(job_document())
        first = self.export(self.here, job_id)
        self.take(there, first)
        second = self.export(there, job_id)
        parts = {name for name, bytes_ in unpack(first).items() if unpack(second)[name] != bytes_}
        self.assertEqual(parts, {"job.json", "SHA256SUMS"})
        detail = self.take(third, second)
        self.assertEqual(detail["imported"]["before"], there.client.job(job_id)["imported"])
        self.assertEqual(detail["imported"]["bundle_sha256"], hashlib.sha256(second).hexdigest())
        self.check_same(third, job_id)
        # Where it comes from, it is the same, whichever way it went; and nothing changes there.
        for bundle in first, second, self.export(third, job_id):
            self.assertNotIn("imported", self.take(self.here, bundle, 200))

    def test_another_job_of_its_id_is_a_conflict(self):
        there = self.start_there()
        job_id = self.run_job(job_document(keep={"best": "loss"}))
        bundle = self.export(self.here, job_id)
        other = self.export(self.here, self.run_job(job_document(seed=2)))
        other_id = json.loads(unpack(other)["job.json"])["id"]
        self.take(there, bundle)
        before = self.shown(there.client, job_id)
        edit = lambda name, change: edited_json(bundle, name, change)
        provenance = json.loads(unpack(bundle)["job.json"])["provenance"]
        provenance["coordinators"][0]["machine"]["processor"] = "an abacus"
        for changed, part in ((edited_json(other, "job.json", setter("id", job_id)), "document"),
                              (edit("job.json", setter("bits.wire_bytes.in", 1)), "bits"),
                              (edit("job.json", setter("provenance", provenance)), "provenance"),
                              (edit("job.json", setter("provenance", None)), "provenance"),
                              (edited_line(bundle, "rounds.jsonl", 1, setter("closed_ms", 5)), "rounds"),
                              (edit("models.json", setter("models", [
                                  each | ({"value": 5.0} if each["which"] == "best" else {})
                                  for each in json.loads(unpack(bundle)["models.json"])["models"]])), "models")):
            with self.subTest(part):
                problem = self.assert_problem(self.post(there, changed), 409, "id")
                self.assertIn(f"another {part}", problem["detail"])
        self.assertEqual(self.shown(there.client, job_id), before)
        # One that runs.
        running = there.client.submit(self.here.client.get_json(f"/v1/jobs/{job_id}/document"))
        problem = self.assert_problem(self.post(there, edited_json(bundle, "job.json", setter("id", running))), 409, "id")
        self.assertIn("another status", problem["detail"])
        self.assert_problem(there.client.get(f"/v1/jobs/{other_id}"), 404)
        # Deleted, its id is free again.
        self.assertEqual(there.client.request("DELETE", f"/v1/jobs/{job_id}").status, 204)
        self.assert_problem(there.client.get(f"/v1/jobs/{job_id}/rounds"), 404)
        self.take(there, bundle)
        self.check_same(there, job_id)

    def test_retention(self):
        there = self.start_there(options=("--keep-ended-s", "100", "--keep-ended-jobs", "2"))
        bundles = [self.bundle_of(job_document(seed=seed)) for seed in (1, 2, 3)]
        ids = [json.loads(unpack(bundle)["job.json"])["id"] for bundle in bundles]
        old = edited_json(bundles[0], "job.json", lambda detail: detail.update(
            {f"{what}_ms": detail[f"{what}_ms"] - 101000 for what in ("created", "started", "finished")}))
        problem = self.assert_problem(self.post(there, old), 409, "finished_ms")
        self.assertIn("--keep-ended-s", problem["detail"])
        for bundle in bundles:
            self.take(there, bundle)
        listed = lambda: [each["id"] for each in there.client.get_json("/v1/jobs")["jobs"]]
        wait_until(lambda: listed() == ids[:0:-1], "the oldest to be deleted")


class Refusals(ImportCase):
    """Nothing of what is refused stays, and the coordinator goes on."""

    def setUp(self):
        super().setUp()
        self.there = self.start_there()
        self.bundle = self.bundle_of(training_job(horizon=4, keep={"best": "has_job", "better": "higher", "every": 2}), "--plugin", TRAINER,
                                     clients=CLIENTS)
        self.names = list(unpack(self.bundle))

    def tearDown(self):
        self.assertEqual(self.there.client.get_json("/v1/jobs")["jobs"], [])
        with closing(sqlite3.connect(f"file:{self.folder}/there.db?mode=ro", uri=True)) as database:
            for table in "jobs", "job_documents", "job_states", "rounds", "updates", "models", "model_points":
                self.assertEqual(database.execute(f"SELECT count(*) FROM {table}").fetchone(), (0,), table)
        self.take(self.there, self.bundle)
        self.there.kill()
        self.check_store(f"{self.folder}/there.db")

    def refuse(self, bundle, field=None, status=400):
        return self.assert_problem(self.post(self.there, bundle), status, field)

    def test_every_byte_counts(self):
        """Positions in headers, contents, paddings and the end; each with another bit."""
        self.assertEqual(pack(unpack(self.bundle))[-1024:], self.bundle[-1024:])
        chance = random.Random(1)
        positions = set(range(0, len(self.bundle), 61)) | set(range(512)) | set(range(len(self.bundle) - 1024, len(self.bundle), 7))
        for at in sorted(positions):
            flipped = bytearray(self.bundle)
            flipped[at] ^= 1 << chance.randrange(8)
            answer = self.post(self.there, bytes(flipped))
            self.assertEqual(answer.status, 400, (at, answer))

    def test_every_length_but_its_own(self):
        for n in [0, 1, 511, 512, 513, 1024, *range(1000, len(self.bundle), 509), len(self.bundle) - 1]:
            self.refuse(self.bundle[:n])
        for more in b"\0", b"\0" * 512, b"x" * 512:
            self.refuse(self.bundle + more)

    def test_members(self):
        for name in self.names:
            with self.subTest(f"without {name}"):
                members = unpack(self.bundle)
                del members[name]
                self.refuse(pack(members) if name != "SHA256SUMS" else pack_as_is(members.items()),
                            "bundle" if name == "bundle.json" else name)
        members = unpack(self.bundle)
        self.refuse(pack({**members, "model-3.npy": b"x"}), "bundle")
        self.refuse(pack({**members, "../etc": b"x"}), "bundle")
        self.refuse(pack_as_is([*list(members.items())[:-1], ("job.json", b"{}"), ("SHA256SUMS", b"")]), "job.json")
        self.refuse(pack(members, sums=members["SHA256SUMS"] + b"\n"), "SHA256SUMS")
        self.refuse(pack(members, sums=b""), "bundle.json")
        self.refuse(pack_as_is([("bundle.json", b"{}")] + [(f"m{i}", b"") for i in range(1200)]), "bundle")

    def test_other_things(self):
        """Files that are no bundles, and requests that are not right."""
        client = self.there.client
        tar = io.BytesIO()
        with tarfile.open(fileobj=tar, mode="w") as archive:
            archive.addfile(tarfile.TarInfo("bundle.json"))
        for body in b"", b"\x93NUMPY", b"{}", bytes(4096), random.Random(2).randbytes(5000), tar.getvalue():
            self.refuse(body)
        self.assert_problem(client.request("POST", "/v1/jobs/import", self.bundle, {"Content-Type": "application/json"}),
                            415, "Content-Type")
        for method in "GET", "PUT", "DELETE":
            answer = client.request(method, "/v1/jobs/import")
            self.assert_problem(answer, 405)
            self.assertEqual(answer.headers["Allow"], "POST")
        small = self.start_there(name="small", store="memory:", options=("--max-body-bytes", "16384"))
        self.assertGreater(len(self.bundle), 16384)
        self.assertEqual(self.post(small, self.bundle).status, 413)
        for option, value, field in (("--max-clients", "1", "clients"), ("--max-dim", "1", "objective.dim")):
            small = self.start_there(name=f"small{option}", store="memory:", options=(option, value))
            problem = self.assert_problem(self.post(small, self.bundle), 400, field)
            self.assertIn(option, problem["detail"])

    def test_what_does_not_fit_together(self):
        """Edits with right sums: an attacker can compute those."""
        detail = json.loads(unpack(self.bundle)["job.json"])
        hop = {"imported_ms": 5, "exported_by": "0.15.0", "bundle_sha256": "0" * 64, "before": None}
        chain = lambda n: functools.reduce(lambda before, _: {**hop, "before": before}, range(n), None)
        json_edits = {
            "job.json": [
                ("id", "../../etc", "id"), ("id", "0123456789ABCDEF", "id"), ("id", 5, "id"), ("id", "", "id"),
                ("status", "running", "status"), ("status", "done", "status"), ("status", "failed", "reason_code"),
                ("name", "another", "name"), ("clients", detail["clients"] + 1, "clients"), ("dim", 7, "dim"),
                ("horizon", 5, "horizon"), ("more", 1, "more"), ("waiting", {"for": "workers"}, "waiting"),
                ("round", detail["round"] + 1, "round"), ("round", detail["round"] - 1, "round"),
                ("round", -1, "round"), ("round", 2**62, "round"), ("round", "4", "round"), ("round", 4.5, "round"),
                ("iterate", 0, "round"), ("iterate", 2**62, "round"), ("iterate", detail["iterate"] - 1, "models.json"),
                ("finished_ms", 2**62, "finished_ms"), ("stage", 2**62, "round"),
                ("time_step", detail["time_step"] - 1, "rounds.jsonl"), ("stage", -1, "round"),
                ("cumulative_regret", 1.5, "rounds.jsonl"), ("loss", "x", "loss"), ("f_star", True, "f_star"),
                ("x_checksum", "0" * 15 + "1", "models.json"), ("x_checksum", "Z" * 16, "x_checksum"),
                ("created_ms", 0, "finished_ms"), ("finished_ms", detail["started_ms"] - 1, "finished_ms"),
                ("finished_ms", None, "finished_ms"), ("started_ms", None, "round"),
                ("bits.uplink.payload", detail["bits"]["uplink"]["payload"] + 1, "bits"),
                ("bits.uplink.payload", -1, "bits"), ("bits.control", "9" * 20, "bits"), ("bits.recovery", -1, "bits"),
                ("bits.more", 1, "bits"), ("metrics", {"b": {"mean": 1, "min": 1, "max": 1}}, "metrics"),
                ("setback", "two\nlines", "setback"), ("setback", "x" * 1000, "setback"),
                ("reason", "\x1b[2J", "reason"), ("reason", "Ä" * 1000, "reason"), ("reason", "xÄ" * 1000, "reason"),
                ("setback", "Ä" * 1000, "setback"), ("setback", "xÄ" * 1000, "setback"), ("warnings", [], None),
                ("provenance.document_sha256", "0" * 64, "provenance.document_sha256"),
                ("provenance.more", 1, "provenance.document_sha256"),
                ("provenance.coordinators", [], "provenance.coordinators"),
                ("provenance.coordinators", [{}] * 17, "provenance.coordinators"),
                ("provenance.coordinators", [{"from_round": 1}], "provenance.coordinators"),
                ("provenance.workers", [{"from_round": 1, "x": "y" * 9000}], "provenance.workers"),
                ("provenance.workers", [{"from_round": 1}] * 65, "provenance.workers"), ("provenance", 1, "provenance"),
                *((f"provenance.{who}", [{**detail["provenance"][who][0], key: value}], f"provenance.{who}")
                  for who in ("coordinators", "workers")
                  for key, value in (("more", 1), ("version", 1), ("machine", {"processor": "x"}), ("from_round", -1))),
                ("imported", 1, "imported"), ("imported", {}, "imported"), ("imported", {**hop, "more": 1}, "imported"),
                ("imported", {**hop, "bundle_sha256": "0"}, "imported"), ("imported", {**hop, "before": hop | {"before": 1}}, "imported"),
                ("imported", chain(100), "job.json")],
            "document.json": [("horizon", 5, None), ("clients", 0, "clients"), ("more", 1, "more")],
            "bundle.json": [("format", 1, "bundle.json"), ("format", 3, "bundle.json"), ("version", "\x1b", "bundle.json"),
                            ("version", None, "bundle.json")],
            "models.json": [("models", [], "models.json"), ("models", None, "models.json")]}
        for name, edits in json_edits.items():
            for path, value, field in edits:
                with self.subTest(name, path=path, value=str(value)[:30]):
                    changed = edited_json(self.bundle, name, setter(path, value))
                    if field is None and name == "job.json":
                        continue  # computed when it is shown
                    self.refuse(changed, field)
        models = json.loads(unpack(self.bundle)["models.json"])["models"]
        self.assertEqual([each["which"] for each in models], ["best", "2", "4", "last"])
        for i in range(4):
            for key, value in (("which", "3"), ("round", 3), ("iterate", -1), ("iterate", 2**53), ("bytes", 8), ("x_checksum", "0" * 16)):
                if (i, key) != (0, "round"):  # which round has made the best model cannot be told
                    with self.subTest(models=i, key=key):
                        edit = lambda object_: object_["models"][i].update({key: value})
                        problem = self.refuse(edited_json(self.bundle, "models.json", edit))
                        self.assertIn(problem["field"], ("models.json", f"model-{models[i]['which']}.npy", "model-3.npy"))
        for order in ([0, 2, 1, 3], [0, 1, 1, 3], [3], [0, 1, 3], [0, 1, 2]):
            self.refuse(edited_json(self.bundle, "models.json", setter("models", [models[i] for i in order])))

    def test_lines(self):
        members = unpack(self.bundle)
        lines = members["rounds.jsonl"].splitlines(keepends=True)
        self.assertEqual((len(lines), members["metrics.jsonl"].count(b"\n")), (4, CLIENTS))
        joined = lambda *numbers: b"".join(lines[i] for i in numbers)
        for text in (joined(0, 1, 2), joined(1, 2, 3), joined(0, 2, 1, 3), joined(0, 1, 1, 2, 3), joined(0, 1, 2, 3)[:-1],
                     joined(0, 1, 2, 3) + b"\n", joined(0, 1, 2, 3).replace(b": ", b":"), b"", b"[]\n",
                     joined(0, 1, 2) + b'{"round": 4}\n', joined(0, 1, 2) + b"[" * 70000 + b"\n"):
            self.refuse(edited(self.bundle, "rounds.jsonl", lambda _: text), "rounds.jsonl")
        for path, value, field in (("t", 0, "rounds.jsonl"), ("k", 0, "rounds.jsonl"), ("missing", "=1+1", "rounds.jsonl"), ("closed_ms", 2**62, "rounds.jsonl"), ("samples", -1, "rounds.jsonl"),
                                   ("received", CLIENTS + 1, "rounds.jsonl"), ("j", -1, "rounds.jsonl"),
                                   ("missing", "1,2", "rounds.jsonl"), ("missing", "Ä" * 1000, "rounds.jsonl"),
                                   ("missing", "1Ä" * 1000, "rounds.jsonl"), ("passed", 1, "rounds.jsonl"),
                                   ("more", 1, "rounds.jsonl"), ("bits.control", 1, "bits"), ("samples", 1.5, "rounds.jsonl"),
                                   ("metrics", {"Ä": {"mean": 1.0, "min": 1.0, "max": 1.0}}, "rounds.jsonl")):
            with self.subTest(path, value=value):
                self.refuse(edited_line(self.bundle, "rounds.jsonl", 2, setter(path, value)), field)
        for name in "metrics.jsonl", "traffic.jsonl":
            both = members[name].splitlines(keepends=True)
            for text in both[0] + both[0], members[name][:-1], members[name] + b"\n", members[name] + b"{}\n":
                self.refuse(edited(self.bundle, name, lambda _: text), name)
            for value in -1, CLIENTS, 2**32, "0", None:
                self.refuse(edited_line(self.bundle, name, 0, setter("client", value)), name)
            self.refuse(edited_line(self.bundle, name, 0, setter("more", 1)), name)
        self.refuse(edited(self.bundle, "metrics.jsonl", lambda text: b"".join(text.splitlines(keepends=True)[::-1])),
                    "metrics.jsonl")
        for path, value in (("round", 0), ("round", 5), ("metrics", {}), ("metrics", {"a": "x"}), ("metrics", {"a b": 1.0}),
                            ("metrics", {f"m{i:02}": 1.0 for i in range(17)}), ("metrics", {"b": 1.0, "a": 1.0})):
            self.refuse(edited_line(self.bundle, "metrics.jsonl", 0, setter(path, value)), "metrics.jsonl")
        # What is quoted of the line that this coordinator would write ends where that line does, whatever its length.
        first, *others = members["traffic.jsonl"].splitlines(keepends=True)
        for n_digits in range(1, 16):
            line = json.dumps(json.loads(first) | {"payload_bits": int("1" * n_digits)}).encode()
            text = line[:-1] + b" }\n" + b"".join(others)
            problem = self.refuse(edited(self.bundle, "traffic.jsonl", lambda _: text), "traffic.jsonl")
            self.assertEqual(problem["detail"], "line 1: traffic.jsonl: this coordinator would show \"}\" from byte "
                                                f"{len(line) - 1} of the line on")
        for path in "updates", "payload_bits", "wire_bytes.in":
            self.refuse(edited_line(self.bundle, "traffic.jsonl", 0, setter(path, -1)), "traffic.jsonl")

    def test_models(self):
        for name in (each for each in self.names if each.endswith(".npy")):
            npy = unpack(self.bundle)[name]
            for changed in (npy[:-8] + bytes([npy[-8] ^ 1]) + npy[-7:], npy[:-8], npy + bytes(8), b"", npy[:100],
                            npy.replace(b"<f8", b"<f4"), npy.replace(b"(3,)", b"(4,)"), npy[:8] + b"\xff" + npy[9:]):
                with self.subTest(name, n=len(changed)):
                    if changed != npy:
                        self.refuse(edited(self.bundle, name, lambda _: changed), name)


class Atomicity(ImportCase):
    def test_killed_at_any_moment_all_or_nothing(self):
        """Also while it is read or written: the delays go from the request to the response."""
        bundle = self.bundle_of(job_document("synthetic-minibatch-sgd", algorithm__local_steps=1, horizon=3000,
                                             keep={"every": 100}))
        job_id = json.loads(unpack(bundle)["job.json"])["id"]
        shown = self.shown(self.here.client, job_id)
        path = Path(self.folder, "bundle.tar")
        path.write_bytes(bundle)
        trial = self.start_there(name="trial", store=f"sqlite:{self.folder}/trial.db")
        began = time.monotonic()
        self.take(trial, bundle)
        took_s = time.monotonic() - began
        n, found = 16, []
        for i in range(n):
            there = self.start_there(name=f"t{i}", store=f"sqlite:{self.folder}/t{i}.db")
            post = subprocess.Popen([BIN / "tally", "import", path, "--coordinator", there.url], stdout=subprocess.DEVNULL,
                                    stderr=subprocess.DEVNULL)
            time.sleep(took_s * 1.5 * i / n)
            there.kill()
            acknowledged = post.wait(HANG_S) == 0
            self.check_store(f"{self.folder}/t{i}.db")
            there = self.start_there(name=f"t{i}", store=f"sqlite:{self.folder}/t{i}.db")
            found.append(bool(there.client.get_json("/v1/jobs")["jobs"]))
            self.assertLessEqual(acknowledged, found[-1])
            self.take(there, bundle, 200 if found[-1] else 201)
            self.assertEqual(self.shown(there.client, job_id), shown)
            there.kill()

    def test_a_full_disk_leaves_nothing(self):
        bundle = self.bundle_of(job_document("synthetic-minibatch-sgd", algorithm__local_steps=1, horizon=500))
        job_id = json.loads(unpack(bundle)["job.json"])["id"]
        there = self.start_with_a_disk_that_fills()
        mine = there.client.submit(job_document())
        with self.full_disk(there):
            self.assert_problem(self.post(there, bundle), 503)
            self.assertEqual([each["id"] for each in there.client.get_json("/v1/jobs")["jobs"]], [mine])
        wait_until(lambda: there.client.get("/readyz").status == 200, "the store to work again")
        self.take(there, bundle)
        self.check_same(there, job_id)

    def test_a_disk_that_fills_anywhere_leaves_all_or_nothing(self):
        """The first pages of the transaction have room, then more and more of them."""
        bundle = self.bundle_of(job_document("synthetic-minibatch-sgd", algorithm__local_steps=1, horizon=500))
        there = self.start_with_a_disk_that_fills()
        outcomes = set()
        for room in range(0, 640 << 10, 32 << 10):
            size = os.stat(f"{self.folder}/tally.db-wal").st_size
            _, hard = resource.prlimit(there.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(there.pid, resource.RLIMIT_FSIZE, (size + room, hard))
            status = self.post(there, bundle).status
            resource.prlimit(there.pid, resource.RLIMIT_FSIZE, (hard, hard))
            outcomes.add(status)
            wait_until(lambda: there.client.get("/readyz").status == 200, "the store to work again")
            jobs = there.client.get_json("/v1/jobs")["jobs"]
            self.assertEqual(len(jobs), {201: 1, 503: 0}[status])
            if jobs:
                self.check_same(there, jobs[0]["id"])
                self.assertEqual(there.client.request("DELETE", f"/v1/jobs/{jobs[0]['id']}").status, 204)
        self.assertEqual(outcomes, {201, 503})

    def test_several_at_once(self):
        """The same bundle in several requests at once gives one job; beyond four bundles, a clear 429."""
        there = self.start_there()
        bundle = self.bundle_of(job_document("synthetic-minibatch-sgd", algorithm__local_steps=1, horizon=2000))
        path = Path(self.folder, "bundle.tar")
        path.write_bytes(bundle)
        programs = [subprocess.Popen([BIN / "tally", "import", path, "--coordinator", there.url], text=True,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(12)]
        outputs = [program.communicate(timeout=HANG_S) for program in programs]
        ids = {out for program, (out, _) in zip(programs, outputs) if program.returncode == 0}
        self.assertEqual(ids, {json.loads(unpack(bundle)["job.json"])["id"] + "\n"})
        for program, (_, err) in zip(programs, outputs):
            if program.returncode != 0:
                self.assertIn("other bundles are being imported, which is the limit", err)
        self.assertEqual(len(there.client.get_json("/v1/jobs")["jobs"]), 1)


    def test_whoever_leaves_keeps_nobody_waiting(self):
        """Bundles that take long to be read, whose clients disconnect in the meantime."""
        bundle = self.bundle_of(job_document())
        lines = unpack(bundle)["rounds.jsonl"].splitlines(keepends=True)
        slow = edited(bundle, "rounds.jsonl", lambda _: lines[0] * 60000)
        there = self.start_there()
        began = time.monotonic()
        self.assert_problem(self.post(there, slow), 400, "rounds.jsonl")
        took_s = time.monotonic() - began
        connections = [http.client.HTTPConnection(there.url.removeprefix("http://")) for _ in range(4)]
        for connection in connections:
            connection.request("POST", "/v1/jobs/import", slow, TAR)
        time.sleep(took_s / 4)  # the first one is being read
        for connection in connections:
            connection.close()
        began = time.monotonic()
        wait_until(lambda: self.post(there, bundle).status == 201, "an import to be possible again")
        self.assertLess(time.monotonic() - began, took_s / 2)


class ImportOfReplicas(ImportCase, PostgresTestCase):
    def test_every_replica_has_it(self):
        first, second = (self.start_replica(name) for name in "ab")
        job_id = self.run_job(job_document(keep={"best": "loss", "every": 3}))
        bundle = self.export(self.here, job_id)
        self.take(first, bundle)
        self.take(second, bundle, 200)
        for replica in first, second:
            self.check_same(replica, job_id)
        self.assert_problem(self.post(second, edited_json(bundle, "job.json", setter("bits.wire_bytes.in", 1))), 409, "id")
        first.terminate()
        self.check_same(second, job_id)
        self.assertEqual(second.client.request("DELETE", f"/v1/jobs/{job_id}").status, 204)
        self.take(second, bundle)
        self.check_same(second, job_id)


if __name__ == "__main__":
    unittest.main()
