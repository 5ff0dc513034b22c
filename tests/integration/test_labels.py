"""Labels of jobs, in documents, in lists and on the command line; and the order of lists."""

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
        """Returns the ids from all pages."""
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
        """Checks that jobs are selected by their labels whatever the page size; returns their ids."""
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
            words.append(done.stdout.strip())
        shown = self.tally(coordinator, "show", words[0]).stdout
        self.assertRegex(shown, r"(?m)^labels +example\.org/team=a:b  run=7$")
        for wanted, expected in [(("run=7",), [0]), (("run",), [1, 0]), (("example.org/team=a:b", "run=7"), [0]),
                                 (("example.org/team=a:b", "run=8"), [])]:
            done = self.tally(coordinator, "list", "--json", *(word for each in wanted for word in ("--label", each)))
            self.assertEqual([job["id"] for job in json.loads(done.stdout)["jobs"]], [words[i] for i in expected], wanted)
        refused = self.tally(coordinator, "list", "--label", "a b")
        self.assertEqual(refused.returncode, 2)
        self.assertIn('--label: "a b" is neither KEY=VALUE nor KEY', refused.stderr)


class SortCase(LabelCase):
    def check_orders(self, client):
        names = ["b", "a", "é", "", "a", "B"]
        ids = [self.submit(client, i, {"even": str(i % 2)}, name=name) for i, name in enumerate(names)]
        client.post(f"/v1/jobs/{ids[1]}/cancel")
        by_name = [3, 5, 4, 1, 0, 2]
        for limit in (1, 2, 4, 6, 50):
            for sort, expected in [
                ("name", by_name), ("-name", [2, 0, 4, 1, 5, 3]), ("created", range(6)), ("-created", range(5, -1, -1)),
                ("status", [5, 4, 3, 2, 0, 1]), ("-status", [1, 5, 4, 3, 2, 0]), ("round", range(5, -1, -1)),
                ("id", sorted(range(6), key=ids.__getitem__)),
            ]:
                self.assertEqual(self.listed(client, limit=limit, sort=sort), [ids[i] for i in expected], (sort, limit))
            for labels, query, expected in [
                (["even=0"], {}, [i for i in by_name if i % 2 == 0]), ([], {"status": "queued"}, [i for i in by_name if i != 1]),
                ([], {"name": "a"}, [4, 1]),
            ]:
                self.assertEqual(self.listed(client, *labels, limit=limit, sort="name", **query), [ids[i] for i in expected])


class Sort(SortCase):
    def test_every_order_has_each_job_once(self):
        self.check_orders(self.start_coordinator(store="memory:").client)

    def test_every_order_has_each_job_once_in_sqlite(self):
        self.check_orders(self.start_coordinator().client)

    def test_every_number_is_sorted_as_it_is_shown(self):
        coordinator = self.start_coordinator(store="memory:")
        self.start_worker(coordinator, "w", clients=2)
        client = coordinator.client
        ids = [client.submit(job_document(**{**SHORT, "horizon": 20 + 20 * i}, seed=i)) for i in range(4)]
        ids.append(client.submit(job_document(**SHORT, seed=9, reference={"type": "none"})))
        for job_id in ids:
            client.wait_status(job_id, "completed")
        shown = {
            "regret": lambda job: job["cumulative_regret"], "loss": lambda job: job["loss"],
            "round": lambda job: job["round"], "time_step": lambda job: job["time_step"],
            "progress": lambda job: job["time_step"] / job["horizon"],
            "uplink_bits": lambda job: job["bits"]["uplink"]["payload"],
            "uplink_bits_per_client": lambda job: job["bits"]["uplink_per_client"]["payload"],
            "downlink_bits": lambda job: job["bits"]["downlink"]["payload"],
        }
        for sort, value in shown.items():
            for sign in ("", "-"):
                values = [value(client.job(job_id)) for job_id in self.listed(client, limit=2, sort=sign + sort)]
                known = [each for each in values if each is not None]
                self.assertEqual(known, sorted(known, reverse=sign == "-"), sort)
                self.assertEqual((values[:len(known)], len(values)), (known, 5), sort)

    def test_pages_go_on_behind_a_job_that_is_gone_and_have_new_ones(self):
        client = self.start_coordinator(store="memory:").client
        ids = [self.submit(client, i, {}, name=name) for i, name in enumerate("abcd")]
        page = client.get_json("/v1/jobs?sort=name&limit=2")
        self.assertEqual([job["id"] for job in page["jobs"]], ids[:2])
        self.assertEqual(client.request("DELETE", f"/v1/jobs/{ids[1]}?force=1").status, 204)
        for i, name in enumerate(["a", "bb", "e"]):
            self.submit(client, 10 + i, {}, name=name)
        page = client.get_json(f"/v1/jobs?sort=name&limit=2&cursor={page['next_cursor']}")
        self.assertEqual([job["name"] for job in page["jobs"]], ["bb", "c"])
        page = client.get_json(f"/v1/jobs?sort=name&limit=2&cursor={page['next_cursor']}")
        self.assertEqual(([job["name"] for job in page["jobs"]], page["next_cursor"]), (["d", "e"], None))

    def test_a_cursor_of_another_order_is_refused(self):
        client = self.start_coordinator(store="memory:").client
        for i in range(3):
            self.submit(client, i, {})
        orders = ("", "&sort=name", "&sort=-name", "&sort=regret")
        cursors = [client.get_json(f"/v1/jobs?limit=1{order}")["next_cursor"] for order in orders]
        for order in orders:
            for cursor, made_by in zip(cursors, orders):
                answer = client.get(f"/v1/jobs?limit=1{order}&cursor={cursor}")
                if order == made_by:
                    self.assertEqual(answer.status, 200)
                else:
                    self.assertEqual((answer.status, answer.json().get("field")), (400, "cursor"), (order, made_by))
                    self.assertIn("start again", answer.json()["detail"])
        for sort in ("", "-", "title", "name,-round"):
            answer = client.get(f"/v1/jobs?sort={sort}")
            self.assertEqual((answer.status, answer.json().get("field")), (400, "sort"), sort)

    def test_command_line_sorts(self):
        coordinator = self.start_coordinator(store="memory:")
        ids = [self.submit(coordinator.client, i, {}, name=name) for i, name in enumerate("bca")]
        for sort, expected in [("name", [2, 0, 1]), ("-name", [1, 0, 2]), ("created", [0, 1, 2])]:
            done = self.tally(coordinator, "list", "--json", "--sort", sort)
            self.assertEqual([job["id"] for job in json.loads(done.stdout)["jobs"]], [ids[i] for i in expected], sort)
        refused = self.tally(coordinator, "list", "--sort", "title")
        self.assertEqual(refused.returncode, 1)
        self.assertIn('sort: "title" is not one of created, id, name', refused.stderr)


class LabelsInPostgres(SortCase, PostgresTestCase):
    def test_jobs_are_listed_by_label(self):
        self.check_filters(self.start_replica("a").client)

    def test_every_order_has_each_job_once(self):
        self.check_orders(self.start_replica("a").client)
