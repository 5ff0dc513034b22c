"""Invalid documents are reported with all of their errors at once. A dry run describes the resulting job without
creating it.
"""

import contextlib
import gzip
import http.client
import json
import os
import select
import struct
import subprocess
import unittest
from pathlib import Path

from common import BIN, HANG_S, JOBS, Coordinator, TallyTestCase, job_document

WRONG = {"clints": 10, "clients": 0, "horizon": 100,
         "algorithm": {"type": "fedavg", "stepsize": 0.1, "local_steps": 10},
         "objective": {"type": "least_square"}}
WRONG_FIELDS = [("clints", "unknown_member", "clients"), ("clients", "out_of_range", None),
                ("algorithm.stepsize", "unknown_member", "step_size"), ("algorithm.step_size", "missing", None),
                ("objective.type", "not_allowed", "least_squares"), ("objective.data", "missing", None)]


def tally(*words, stdin=None):
    return subprocess.run([BIN / "tally", *map(str, words)], capture_output=True, text=True, check=False,
                          input=stdin, timeout=300)


class DryRunTestCase(TallyTestCase):
    def setUp(self):
        super().setUp()
        self.coordinator = self.start_coordinator(store="memory:")
        self.client = self.coordinator.client


class Errors(DryRunTestCase):
    def test_all_errors_are_listed_beside_the_first(self):
        problem = self.client.post_job(WRONG).json()
        self.assertEqual(problem["field"], "clints")
        self.assertEqual(problem["detail"], 'unknown key "clints"')
        found = [(error["field"], error["code"], error.get("suggestion")) for error in problem["errors"]]
        self.assertEqual(found, WRONG_FIELDS)
        self.assertIn("least_squares", problem["errors"][-2]["choices"])

    def test_auto_is_named_where_it_is_allowed(self):
        errors = self.client.post_job(job_document(algorithm__sigma="big", algorithm__delta="big")).json()["errors"]
        self.assertEqual([(error["field"], error.get("auto")) for error in errors],
                         [("algorithm.sigma", True), ("algorithm.delta", None)])

    def test_members_of_a_mistyped_type_are_checked_for_what_was_meant(self):
        document = {"clients": 2, "horizon": 9, "algorithm": {"type": "cael", "step_sise": 1},
                    "objective": {"type": "least_squared", "l2": -1, "data": {"type": "synthetic_line", "dims": 3}}}
        errors = self.client.post_job(document).json()["errors"]
        self.assertEqual([(error["field"], error["code"], error.get("suggestion")) for error in errors], [
            ("algorithm.type", "not_allowed", "ceal"), ("algorithm.step_sise", "unknown_member", "step_size"),
            ("algorithm.step_size", "missing", None), ("algorithm.sigma", "missing", None),
            ("objective.type", "not_allowed", "least_squares"), ("objective.l2", "out_of_range", None),
            ("objective.data.type", "not_allowed", "synthetic_linear"), ("objective.data.dims", "unknown_member", "dim"),
            ("objective.data.dim", "missing", None), ("objective.data.points", "missing", None)])
        document["algorithm"]["type"] = "adam"  # similar to none of them
        errors = self.client.post_job(document).json()["errors"]
        self.assertEqual([error["field"] for error in errors][:2], ["algorithm.type", "objective.type"])

    def test_limits_of_the_coordinator_are_listed(self):
        small = Coordinator(self.folder, store="memory:", name="small",
                            options=("--max-clients", "5", "--max-dim", "20"))
        self.addCleanup(small.terminate)
        problem = small.client.post_job(job_document()).json()
        self.assertEqual([(error["field"], error["code"]) for error in problem["errors"]],
                         [("clients", "limit"), ("objective.data.dim", "limit")])

    def test_what_is_no_json_has_one_error(self):
        self.assertNotIn("errors", self.client.post_job("{").json())

    def test_commands_print_all_errors(self):
        for words, code in ((("submit", "-", "--coordinator", self.coordinator.url), 1), (("simulate", "-"), 2)):
            with self.subTest(words[0]):
                done = tally(*words, stdin=json.dumps(WRONG))
                self.assertEqual(done.returncode, code)
                lines = done.stderr.splitlines()
                self.assertEqual([line.split(":")[0].strip() for line in lines[1:]],
                                 [field for field, _, _ in WRONG_FIELDS])
                self.assertIn("did you mean step_size?", done.stderr)


class DryRun(DryRunTestCase):
    def dry(self, document, headers=None):
        body = document if isinstance(document, str) else json.dumps(document)
        return self.client.request("POST", "/v1/jobs?dry_run=1", body.encode(),
                                   {"Content-Type": "application/json", **(headers or {})})

    def test_answers_what_the_job_would_be_and_creates_nothing(self):
        document = job_document("synthetic-fedpaq")
        answer = self.dry(document)
        self.assertEqual(answer.status, 200)
        preview = answer.json()
        self.assertEqual(preview["expected_bits"],
                         {"uplink_per_client": 2440, "downlink": 19200, "is_exact": True})
        self.assertEqual(self.client.get_json("/v1/jobs")["jobs"], [])
        stored = self.client.job(self.client.submit(document))
        for key, value in preview["document"].items():
            self.assertEqual(stored[key], value, key)

    def test_baselines_send_what_was_expected(self):
        growing = {"algorithm__local_steps_growth": 0.3, "algorithm__step_decay": 0.1}
        for name, changes in (("fedavg", {}), ("fedprox", {}), ("fedpaq", {}), ("fedcom", {}), ("minibatch-sgd", {}), ("diana", {}), ("scaffold", {}),
                              ("fedavg", growing), ("fedpaq", growing)):
            # The horizon cuts the last round, in which nothing is sent.
            document = job_document(f"synthetic-{name}", horizon=130, algorithm__local_steps=20, **changes)
            with self.subTest(name, **changes):
                expected = self.dry(document).json()["expected_bits"]
                done = tally("simulate", "-", "--json", stdin=json.dumps(document))
                bits = json.loads(done.stdout)["bits"]
                self.assertEqual((expected["uplink_per_client"], expected["downlink"]),
                                 (bits["uplink_per_client"]["payload"], bits["downlink"]["payload"]))

    def test_too_few_levels_are_warned_of(self):
        for levels, n_warnings in ((1, 1), (25, 0)):
            document = job_document("synthetic-fedpaq", algorithm__levels=levels, objective__data__dim=10**6, objective__data__points=100)
            warnings = self.dry(document).json()["warnings"]
            self.assertEqual(len(warnings), n_warnings, warnings)
            self.assertTrue(all("levels 25" in text for text in warnings), warnings)

    def test_a_step_size_is_suggested(self):
        document = job_document("synthetic-fedavg-paper")
        preview = self.dry(document).json()
        suggested = preview["suggested_step_size"]
        self.assertTrue(0.0134 / 1.5 < suggested < 0.0134 * 1.5, suggested)
        self.assertEqual(preview["warnings"], [f"step_size 0.1 is {0.1 / suggested:.3g} times {suggested}, the step size that is "
                                               "suggested for these data"])
        self.assertEqual(preview["not_checked"], ["whether f(x*) can be solved for"])
        plan = tally("plan", "-", "--json", stdin=json.dumps(document))
        self.assertEqual(json.loads(plan.stdout), preview)
        text = tally("plan", "-", stdin=json.dumps(document)).stdout.splitlines()
        self.assertEqual(text[0].split(), ["step", "size", "0.1,", "suggested", str(suggested)])
        self.assertIn(preview["warnings"][0], text[-1])
        # Four times the suggestion is still taken without a word, and nothing else changes.
        document["algorithm"]["step_size"] = 4 * suggested
        self.assertEqual(self.dry(document).json()["warnings"], [])
        self.assertEqual(self.dry(document).json()["suggested_step_size"], suggested)

    def test_there_is_a_reason_without_a_suggestion(self):
        data = {"type": "csv", "file": "absent.csv", "label": "y", "features": 3}
        for changes, reason in (
                ({"objective__data": data, "reference": {"type": "none"}}, "absent.csv"),
                ({"objective__data": {**data, "sharding": "local"}, "reference": {"type": "none"}}, "each worker has data of its own"),
                ({"algorithm__server_optimizer": {"type": "fedadam", "step_size": 0.1}}, "optimizer"),
                ({"objective__data__dim": 10**6, "objective__data__points": 100}, "more than 100000 coordinates")):
            with self.subTest(reason):
                document = job_document("synthetic-fedavg", **changes)
                plan = tally("plan", "-", "--data-dir", self.folder, stdin=json.dumps(document))
                self.assertIn("none suggested: ", plan.stdout, plan)
                self.assertIn(reason, plan.stdout)
                preview = self.dry(document).json()
                self.assertIsNone(preview["suggested_step_size"])
                self.assertEqual(preview["warnings"], [])
                self.assertTrue(any(text.startswith("step_size against the smoothness of f, which needs the data: ")
                                    for text in preview["not_checked"]), preview["not_checked"])
        self.assertIsNone(self.dry(job_document("synthetic-calm-auto")).json()["suggested_step_size"])

    def test_large_files_are_not_read(self):
        images, labels = (Path(self.folder) / name for name in ("images", "labels"))
        document = job_document("mnist-fedavg", reference={"type": "none"}, objective__data={
            "type": "idx", "images": "images", "labels": "labels", "features": 784, "classes": 10})
        for n, is_read in ((2000, True), (70000, False)):  # 55 MB of zeros
            images.write_bytes(struct.pack(">4I", 0x803, n, 28, 28))
            os.truncate(images, 16 + 784 * n)
            labels.write_bytes(struct.pack(">2I", 0x801, n) + bytes(i % 10 for i in range(n)))
            plan = tally("plan", "-", "--data-dir", self.folder, stdin=json.dumps(document)).stdout
            self.assertEqual("the data are too many to look at" in plan, not is_read, plan)
            self.assertEqual("no curvature" in plan, is_read, plan)  # all pixels are 0

    def test_files_that_unpack_to_much_are_not_read(self):
        document = job_document("synthetic-fedavg", reference={"type": "none"}, objective__data={
            "type": "csv", "file": "points.csv", "label": "y", "features": 1})
        with gzip.open(Path(self.folder) / "points.csv.gz", "wb", compresslevel=1) as file:
            file.write(b"a,y\n1,2\n2,4\n")
            for _ in range(300):
                file.write(b"\n" * (1 << 20))
        plan = tally("plan", "-", "--data-dir", self.folder, stdin=json.dumps(document)).stdout
        self.assertIn("the data are too many to look at", plan)

    def test_files_of_the_coordinator_are_looked_at(self):
        path = Path(self.folder) / "points.csv"
        path.write_text("a,b,y\n" + "".join(f"{i % 7 - 3},{i % 5 - 2},{i % 7 + i % 3}\n" for i in range(210)))
        document = job_document("synthetic-fedavg", reference={"type": "none"}, objective__data={
            "type": "csv", "file": path.name, "label": "y", "features": 2})
        near = self.start_coordinator(store="memory:", name="near", options=("--data-dir", self.folder)).client
        answer = near.request("POST", "/v1/jobs?dry_run=1", json.dumps(document).encode(), {"Content-Type": "application/json"})
        suggested = answer.json()["suggested_step_size"]
        self.assertGreater(suggested, 0)
        plan = tally("plan", "-", "--json", "--data-dir", self.folder, stdin=json.dumps(document))
        self.assertEqual(json.loads(plan.stdout)["suggested_step_size"], suggested)
        path.write_text("a,b,y\n1,2,x\n")
        plan = tally("plan", "-", "--data-dir", self.folder, stdin=json.dumps(document))
        self.assertIn('points.csv:2: column y: "x" is not a number', plan.stdout)

    def test_messages_of_ef21_are_exact_or_have_a_bound(self):
        for compressor in ("top_k", "rand_k"):
            document = job_document("synthetic-ef21", horizon=130, algorithm__compressor=compressor)
            expected = self.dry(document).json()["expected_bits"]
            bits = json.loads(tally("simulate", "-", "--json", stdin=json.dumps(document)).stdout)["bits"]
            self.assertEqual(expected["downlink"], bits["downlink"]["payload"])
            self.assertEqual(expected["is_exact"], compressor == "rand_k")
            sent = bits["uplink_per_client"]["payload"]
            if compressor == "rand_k":
                self.assertEqual(expected["uplink_per_client"], sent)
            else:
                self.assertTrue(0.9 * expected["uplink_per_client"] < sent <= expected["uplink_per_client"], sent)

    def test_budgets_are_bounds_and_ceal_is_not_known(self):
        document = job_document("synthetic-calm-paper-bits")
        self.assertEqual(self.dry(document).json()["expected_bits"],
                         {"uplink_per_client": 294, "downlink": 292, "is_exact": False})
        self.assertIsNone(self.dry(job_document()).json()["expected_bits"])

    def test_a_job_that_will_be_planned_has_its_plan(self):
        document = job_document("synthetic-calm-paper-bits")
        plan = json.loads(tally("plan", JOBS / "synthetic-calm-paper-bits.json", "--json").stdout)["plans"][0]
        planned = self.dry(document).json()["planned"]
        self.assertEqual(planned, {key: plan[key] for key in planned})
        self.assertGreater(len(planned["epochs"]), 2)
        for unplanned in (job_document(), job_document("synthetic-calm-auto")):
            self.assertIsNone(self.dry(unplanned).json()["planned"])

    def begin_dry(self, document):
        """Opens a connection and sends a dry run; its response is still to be read."""
        connection = http.client.HTTPConnection("127.0.0.1", self.coordinator.port, timeout=HANG_S)
        self.addCleanup(connection.close)
        connection.request("POST", "/v1/jobs?dry_run=1", json.dumps(document),
                           {"Content-Type": "application/json"})
        return connection

    def test_others_are_served_while_plans_are_made(self):
        document = job_document("synthetic-calm-paper-bits", horizon=10**8)  # over 1 s of processor time each
        connections = [self.begin_dry(document) for _ in range(20)]
        self.client.get_json("/v1/jobs")
        # The plans are made one after the other, so that this machine may be slow by the time of a dozen.
        self.assertFalse(select.select([connections[13].sock], [], [], 0)[0], "the plans came before the list of jobs")
        for connection in connections[1:14]:
            connection.close()  # their plans have not begun
        answers = [json.loads(connection.getresponse().read()) for connection in [connections[0], *connections[14:]]]
        planned = [answer["planned"] for answer in answers]
        self.assertGreater(planned[0]["regret"], 0)
        # 16 plans are in progress or queued; further requests are answered without a plan.
        self.assertIn(planned.count(None), range(1, 5))
        self.assertIsNotNone(self.dry(job_document("synthetic-calm-paper-bits")).json()["planned"])

    def test_a_coordinator_ends_while_it_makes_a_plan(self):
        connection = self.begin_dry(job_document("synthetic-calm-paper-bits", horizon=10**8))
        self.client.get_json("/v1/jobs")
        self.coordinator.terminate()
        self.assertEqual(self.coordinator.popen.returncode, 0, self.coordinator.log())
        with contextlib.suppress(http.client.HTTPException, ConnectionError):  # a plan that takes too long is abandoned
            self.assertGreater(json.loads(connection.getresponse().read())["planned"]["regret"], 0)

    def test_refuses_what_a_submission_refuses(self):
        for document in (WRONG, job_document(quorum=11), "{", job_document(name="a\x85b")):
            dry, real = self.dry(document), self.client.post_job(document)
            self.assertEqual((dry.status, dry.json()), (real.status, real.json()))
        self.assertEqual(self.client.post("/v1/jobs?dry_run=2", b"{}", **{"Content-Type": "application/json"}).status,
                         400)

    def test_is_refused_a_web_page_of_another_origin(self):
        self.assertEqual(self.dry(job_document(), {"Origin": "http://other.example"}).status, 403)

    def test_ignores_the_idempotency_key(self):
        key = {"Idempotency-Key": "once"}
        self.assertEqual(self.dry(job_document(), key).status, 200)
        self.assertEqual(self.client.post_job(job_document(seed=2), key).status, 201)
        self.assertEqual(self.dry(job_document(seed=3), key).status, 200)

    def test_command_prints_the_preview_of_an_edited_document(self):
        done = tally("submit", JOBS / "synthetic-fedavg.json", "--dry-run", "--set", "algorithm.step_size=0.25",
                     "--set", "name=trial", "--coordinator", self.coordinator.url)
        self.assertEqual(done.returncode, 0, done.stderr)
        preview = json.loads(done.stdout)
        self.assertEqual((preview["document"]["algorithm"]["step_size"], preview["document"]["name"]), (0.25, "trial"))
        self.assertEqual(self.client.get_json("/v1/jobs")["jobs"], [])


class Set(unittest.TestCase):
    def test_simulate_runs_the_edited_document(self):
        done = tally("simulate", JOBS / "synthetic-ceal.json", "--json", "--set", "horizon=50", "--set", "name=a:b")
        result = json.loads(done.stdout)
        self.assertEqual((result["horizon"], result["time_step"], result["name"]), (50, 50, "a:b"))

    def test_edit_that_is_none_is_refused(self):
        for edit, part in (("horizon", "PATH=VALUE"), ("name.a=1", "name is not an object")):
            done = tally("simulate", JOBS / "synthetic-ceal.json", "--set", edit)
            self.assertEqual(done.returncode, 2)
            self.assertIn(part, done.stderr)


if __name__ == "__main__":
    unittest.main()
