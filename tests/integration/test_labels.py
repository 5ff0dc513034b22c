"""Labels of jobs: in the document, in lists and on the command line."""

import json
import subprocess
import urllib.parse

from common import BIN, TallyTestCase, job_document
from private_postgres import PostgresTestCase

SHORT = {"clients": 2, "quorum": 2, "horizon": 60}


class LabelCase(TallyTestCase):
    def submit(self, client, seed, labels, **changes):
        return client.submit(job_document(**SHORT, seed=seed, labels=labels, **changes))

    def listed(self, client, *labels, limit=50, **query):
        """The ids of all pages."""
        found, cursor = [], None
        while True:
            parameters = [("label", label) for label in labels] + [("limit", limit), *query.items()]
            parameters += [("cursor", cursor)] if cursor else []
            page = client.get_json("/v1/jobs?" + urllib.parse.urlencode(parameters))
            self.assertLessEqual(len(page["jobs"]), limit)
            found += [job["id"] for job in page["jobs"]]
            cursor = page["next_cursor"]
            if cursor is None:
                return found

    def tally(self, coordinator, *arguments, **options):
        return subprocess.run([BIN / "tally", *arguments, "--coordinator", f"http://127.0.0.1:{coordinator.port}"],
                              capture_output=True, text=True, timeout=300, **options)

    def refused(self, client, document):
        answer = client.post_job(document)
        self.assertEqual(answer.status, 400, answer.body)
        return answer

    def check_filters(self, client):
        """Jobs are listed by their labels, whatever the page's size; returns their ids."""
        labels = [{"team": "a"}, {"team": "a", "run": "1"}, {"team": "b", "run": "1"}, {}, {"team": "é &=+:", "x/y.z": ""}]
        ids = [self.submit(client, i, each, name=f"job {i % 2}") for i, each in enumerate(labels)]
        for limit in (1, 2, 50):
            for wanted, expected in [
                (("team=a",), [1, 0]), (("team",), [4, 2, 1, 0]), (("run=1", "team=a"), [1]), (("run=1", "team"), [2, 1]),
                (("team=é &=+:",), [4]), (("x/y.z=",), [4]), (("x/y.z",), [4]), (("team=",), []), (("Team=a",), []),
                (("team=a", "team=b"), []), ((), [4, 3, 2, 1, 0]),
            ]:
                self.assertEqual(self.listed(client, *wanted, limit=limit), [ids[i] for i in expected], (wanted, limit))
            self.assertEqual(self.listed(client, "team", limit=limit, name="job 0"), [ids[4], ids[2], ids[0]])
            self.assertEqual(self.listed(client, "team", limit=limit, status="queued", name="job 1"), [ids[1]])
            self.assertEqual(self.listed(client, "team", limit=limit, status="running"), [])
        return ids


class Labels(LabelCase):
    def test_jobs_are_listed_by_label_also_after_a_restart(self):
        coordinator = self.start_coordinator()
        ids = self.check_filters(coordinator.client)
        coordinator.terminate()
        client = self.start_coordinator(port=coordinator.port, name="again").client
        self.assertEqual(self.listed(client, "run=1"), [ids[2], ids[1]])
        self.assertEqual(client.job(ids[1])["labels"], {"run": "1", "team": "a"})
        self.assertNotIn("labels", client.job(ids[3]))

    def test_jobs_in_memory_are_listed_by_label(self):
        self.check_filters(self.start_coordinator(store="memory:").client)

    def test_wrong_filters_are_refused(self):
        client = self.start_coordinator(store="memory:").client
        for label in ("", "=a", "-a=1", "a b", "a" * 64, "a=" + "x" * 64, "a=\n", "a=%C2%80", "a=%FF"):
            answer = client.get("/v1/jobs?label=" + (label if "%" in label else urllib.parse.quote(label)))
            self.assertEqual((answer.status, answer.json().get("field")), (400, "label"), label)
        self.assertEqual(client.get("/v1/jobs?" + "&".join(["label=a"] * 16)).status, 200)
        self.assertEqual(client.get("/v1/jobs?" + "&".join(["label=a"] * 17)).json()["field"], "label")

    def test_wrong_labels_are_all_named(self):
        client = self.start_coordinator(store="memory:").client
        document = job_document(**SHORT, labels={"ok": "1", "a b": "1", "n": 1, "long": "x" * 64})
        answer = self.refused(client, document)
        self.assertEqual(answer.json()["field"], "labels.a b")
        self.assertEqual([(fault["field"], fault["code"]) for fault in answer.json()["errors"]],
                         [("labels.a b", "not_allowed"), ("labels.n", "wrong_type"), ("labels.long", "out_of_range")])
        self.assertIn("at most 63", answer.json()["errors"][2]["detail"])
        many = self.refused(client, job_document(**SHORT, labels={f"k{i}": "" for i in range(17)}))
        self.assertEqual((many.json()["field"], many.json()["detail"]), ("labels", "17 labels, at most 16"))

    def test_command_line_sets_shows_and_filters_labels(self):
        coordinator = self.start_coordinator(store="memory:")
        text = json.dumps(job_document(**SHORT))
        words = []
        for labels in (("run=7", "example.org/team=a:b"), ("run=8",)):
            done = self.tally(coordinator, "submit", "-", *(word for each in labels for word in ("--set", "labels." + each)), input=text)
            self.assertEqual(done.returncode, 0, done.stderr)
            words.append(done.stdout.split()[1])
        shown = self.tally(coordinator, "show", words[0]).stdout
        self.assertRegex(shown, r"(?m)^labels +example\.org/team=a:b  run=7$")
        for wanted, expected in [(("run=7",), [0]), (("run",), [1, 0]), (("example.org/team=a:b", "run=7"), [0]),
                                 (("example.org/team=a:b", "run=8"), [])]:
            done = self.tally(coordinator, "list", "--json", *(word for each in wanted for word in ("--label", each)))
            self.assertEqual([job["id"] for job in json.loads(done.stdout)["jobs"]], [words[i] for i in expected], wanted)
        refused = self.tally(coordinator, "list", "--label", "a b")
        self.assertEqual(refused.returncode, 2)
        self.assertIn('--label: "a b" is neither KEY=VALUE nor KEY', refused.stderr)


class LabelsInPostgres(LabelCase, PostgresTestCase):
    def test_jobs_are_listed_by_label(self):
        self.check_filters(self.start_replica("a").client)
