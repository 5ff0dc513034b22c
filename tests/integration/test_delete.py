"""DELETE /v1/jobs/{id}: what it deletes and what it refuses. No deleted job reappears after a crash."""

import json
import subprocess
import threading
import time

from common import BIN, ENDLESS, TallyTestCase, job_document, wait_until
from private_postgres import PostgresTestCase

SHORT = {"clients": 2, "quorum": 2, "horizon": 60}
LONG = {**SHORT, "horizon": ENDLESS}


class Delete(TallyTestCase):
    def setUp(self):
        super().setUp()
        self.coordinator = self.start_coordinator()
        self.client = self.coordinator.client

    def delete(self, job_id, query="", **headers):
        return self.client.request("DELETE", f"/v1/jobs/{job_id}{query}", headers=headers)

    def run_to_end(self, **changes):
        job_id = self.client.submit(job_document(**SHORT, **changes))
        self.client.wait_status(job_id, "completed")
        return job_id

    def running(self):
        job_id = self.client.submit(job_document("synthetic-ceal-long", **LONG))
        wait_until(lambda: self.client.job(job_id)["round"] > 1, "rounds")
        return job_id

    def test_ended_job_is_gone_from_rest_and_metrics(self):
        self.start_worker(self.coordinator, "w", clients=2)
        first, second = self.run_to_end(), self.run_to_end(seed=2)
        self.assertIn(first, self.client.get("/metrics").body.decode())
        answer = self.delete(first)
        self.assertEqual((answer.status, answer.body), (204, b""))
        for path in ("", "/rounds", "/rounds.csv", "/model", "/models", "/series", "/events"):
            self.assertEqual(self.client.get(f"/v1/jobs/{first}{path}").status, 404, path)
        self.assertNotIn(first, self.client.get("/metrics").body.decode())
        self.assertEqual([job["id"] for job in self.client.get_json("/v1/jobs")["jobs"]], [second])
        self.assertEqual(self.delete(first).status, 404)
        self.assertEqual(self.client.job(second)["status"], "completed")

    def test_running_job_needs_force_and_its_workers_go_on(self):
        self.start_worker(self.coordinator, "w", clients=2)
        job_id = self.running()
        refused = self.delete(job_id)
        self.assertEqual((refused.status, refused.json()["code"]), (409, "failed_precondition"))
        self.assertIn("force", refused.json()["detail"])
        self.assertEqual(self.client.job(job_id)["status"], "running")
        self.assertEqual(self.delete(job_id, "?force=1").status, 204)
        self.assertEqual(self.client.get(f"/v1/jobs/{job_id}").status, 404)
        self.run_to_end(seed=3)
        self.assertEqual(self.client.get("/readyz").status, 200)

    def test_queued_and_paused_jobs_can_be_forced(self):
        queued = self.client.submit(job_document(**SHORT))
        self.assertEqual(self.delete(queued).status, 409)
        self.assertEqual(self.delete(queued, "?force=1").status, 204)
        self.start_worker(self.coordinator, "w", clients=2)
        paused = self.running()
        self.client.post(f"/v1/jobs/{paused}/pause")
        self.assertEqual(self.delete(paused, "?force=1").status, 204)
        self.assertEqual(self.client.get_json("/v1/jobs")["jobs"], [])

    def test_event_stream_of_a_deleted_job_ends(self):
        self.start_worker(self.coordinator, "w", clients=2)
        job_id = self.running()
        ended = threading.Event()

        def read():
            self.client.get(f"/v1/jobs/{job_id}/events")  # to the end of the stream
            ended.set()
        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        time.sleep(0.3)
        self.delete(job_id, "?force=1")
        wait_until(ended.is_set, "the end of the stream")
        self.assertEqual(self.client.get("/readyz").status, 200)

    def test_other_origins_and_unknown_jobs_are_refused(self):
        self.assertEqual(self.delete("0" * 12).status, 404)
        self.assertEqual(self.delete("0" * 12, Origin="http://other.example").status, 403)
        self.assertEqual(self.delete("0" * 12, "?force=2").status, 400)
        allow = self.client.request("PUT", "/v1/jobs/x").headers["Allow"]
        self.assertEqual(allow, "GET, HEAD, DELETE")

    def test_idempotency_key_of_a_deleted_job_is_free(self):
        key = {"Idempotency-Key": "once"}
        first = self.client.post_job(job_document(**SHORT), key).json()["id"]
        self.delete(first, "?force=1")
        self.assertNotEqual(self.client.post_job(job_document(**SHORT, seed=9), key).json()["id"], first)

    def test_command_deletes(self):
        job_id = self.client.submit(job_document(**SHORT))
        words = [BIN / "tally", "delete", job_id, "--coordinator", self.coordinator.url]
        refused = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("--force", refused.stderr)
        done = subprocess.run([*words, "--force"], capture_output=True, text=True, check=True, timeout=300)
        self.assertEqual(done.stdout, f"{job_id} deleted\n")

    def test_command_deletes_by_the_beginning_of_an_id(self):
        job_id = self.client.submit(job_document(**SHORT))
        words = [BIN / "tally", "delete", job_id[:6], "--force", "--coordinator", self.coordinator.url]
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300)
        self.assertEqual(done.stdout, f"{job_id} deleted\n")
        self.assertEqual(self.client.get(f"/v1/jobs/{job_id}").status, 404)

    def test_deleted_jobs_stay_deleted_after_kills(self):
        """A job whose deletion was acknowledged never reappears. Any other job is either complete or gone."""
        self.start_worker(self.coordinator, "w", clients=2)
        port = self.coordinator.port
        for turn in range(5):
            job_id = self.running() if turn % 2 == 0 else self.run_to_end(seed=10 + turn)
            answers = []

            def delete():
                try:
                    answers.append(self.delete(job_id, "?force=1").status)
                except OSError:
                    pass
            thread = threading.Thread(target=delete)
            thread.start()
            time.sleep(0.0007 * turn)
            self.coordinator.kill()
            thread.join()
            self.processes.remove(self.coordinator)
            self.coordinator = self.start_coordinator(port=port, name=f"coordinator-{turn}")
            self.client = self.coordinator.client
            found = self.client.get(f"/v1/jobs/{job_id}")
            self.assertIn(found.status, (404,) if answers == [204] else (200, 404))
            if found.status == 200:
                self.assertEqual(self.client.get(f"/v1/jobs/{job_id}/rounds").status, 200)
                self.assertEqual(self.delete(job_id, "?force=1").status, 204)
        self.run_to_end(seed=99)


class Retention(TallyTestCase):
    def ended(self, client, n, first_seed=1):
        """Submits jobs and cancels them; returns them in the order of submission."""
        ids = [client.submit(job_document(**SHORT, seed=first_seed + i)) for i in range(n)]
        for job_id in ids:
            self.assertEqual(client.post(f"/v1/jobs/{job_id}/cancel").status, 200)
        return ids

    def listed(self, client):
        return [job["id"] for job in client.get_json("/v1/jobs?limit=1000")["jobs"]]

    def test_newest_ended_jobs_are_kept_and_live_ones(self):
        coordinator = self.start_coordinator()
        live = coordinator.client.submit(job_document(**SHORT))
        ids = self.ended(coordinator.client, 70)  # more than one page
        self.assertEqual(len(self.listed(coordinator.client)), 71)  # nothing is deleted without being asked for
        self.assert_ends_well(coordinator)
        coordinator = self.start_coordinator(name="again", options=("--keep-ended-jobs", "60"))
        expected = [*reversed(ids[10:]), live]
        wait_until(lambda: len(self.listed(coordinator.client)) <= len(expected), "the old jobs to go")
        more = self.ended(coordinator.client, 1, first_seed=500)
        wait_until(lambda: ids[10] not in self.listed(coordinator.client), "the oldest to go")
        self.assertEqual(self.listed(coordinator.client), more + expected[:-2] + [live])

    def test_old_jobs_are_deleted(self):
        coordinator = self.start_coordinator(options=("--keep-ended-s", "2"))
        live = coordinator.client.submit(job_document(**SHORT))
        (job_id,) = self.ended(coordinator.client, 1)
        finished_ms = coordinator.client.job(job_id)["finished_ms"]
        wait_until(lambda: self.listed(coordinator.client) == [live], "the job to go")
        self.assertGreaterEqual(time.time() * 1000, finished_ms + 2000)


class ListByName(TallyTestCase):
    def test_pages_have_the_jobs_of_that_name(self):
        client = self.start_coordinator(store="memory:").client
        names = ["a", "b", "a b&", "a", "b", "a", "A"]
        ids = [client.submit(job_document(**SHORT, seed=i, name=name)) for i, name in enumerate(names)]
        expected = [ids[5], ids[3], ids[0]]
        for limit in (1, 2, 3, 50):
            found, cursor = [], ""
            while cursor is not None:
                page = client.get_json(f"/v1/jobs?name=a&limit={limit}{cursor and '&cursor=' + cursor}")
                self.assertLessEqual(len(page["jobs"]), limit)
                found += [job["id"] for job in page["jobs"]]
                cursor = page["next_cursor"]
            self.assertEqual(found, expected)
        client.post(f"/v1/jobs/{ids[3]}/cancel")
        found = client.get_json("/v1/jobs?name=a&status=cancelled")["jobs"]
        self.assertEqual([job["id"] for job in found], [ids[3]])
        self.assertEqual(client.get_json("/v1/jobs?name=nobody"), {"jobs": [], "next_cursor": None})
        self.assertEqual(client.get("/v1/jobs?name=").status, 400)
        url = f"http://127.0.0.1:{client.port}"
        done = subprocess.run([BIN / "tally", "list", "--name", "a b&", "--json", "--coordinator", url],
                              capture_output=True, text=True, check=True, timeout=300)
        self.assertEqual([job["id"] for job in json.loads(done.stdout)["jobs"]], [ids[2]])


class DeleteAmongReplicas(PostgresTestCase):
    def test_any_replica_deletes_and_the_leader_forgets(self):
        a, b = self.start_replica("a"), self.start_replica("b")
        self.start_worker(a, "w", clients=2)
        ended = a.client.submit(job_document(**SHORT))
        a.client.wait_status(ended, "completed")
        self.assertIn(ended, a.client.get("/metrics").body.decode())
        self.assertEqual(b.client.request("DELETE", f"/v1/jobs/{ended}").status, 204)
        wait_until(lambda: ended not in a.client.get("/metrics").body.decode(), "the series to go")
        running = a.client.submit(job_document("synthetic-ceal-long", **LONG))
        wait_until(lambda: a.client.job(running)["round"] > 1, "rounds")
        self.assertEqual(b.client.request("DELETE", f"/v1/jobs/{running}").status, 409)
        self.assertEqual(b.client.request("DELETE", f"/v1/jobs/{running}?force=1").status, 204)
        for replica in (a, b):
            for job_id in (ended, running):
                self.assertEqual(replica.client.get(f"/v1/jobs/{job_id}").status, 404)
                self.assertEqual(replica.client.request("DELETE", f"/v1/jobs/{job_id}").status, 404)
            self.assertEqual(replica.client.get("/readyz").status, 200)
        after = b.client.submit(job_document(**SHORT, seed=5))
        a.client.wait_status(after, "completed")


class RetentionAmongReplicas(PostgresTestCase):
    def ended(self, client, n):
        ids = [client.submit(job_document(**SHORT, seed=i)) for i in range(n)]
        for job_id in ids:
            self.assertEqual(client.post(f"/v1/jobs/{job_id}/cancel").status, 200)
        return ids

    def listed(self, client):
        return [job["id"] for job in client.get_json("/v1/jobs?limit=1000")["jobs"]]

    def test_replicas_keep_the_newest(self):
        first = self.start_replica("first")
        live = first.client.submit(job_document(**SHORT))
        ids = self.ended(first.client, 8)
        self.assertEqual(len(self.listed(first.client)), 9)  # nothing is deleted without being asked for
        self.assert_ends_well(first)
        replicas = [self.start_replica(name, options=("--keep-ended-jobs", "3")) for name in "ab"]
        for replica in replicas:
            wait_until(lambda each=replica: self.listed(each.client) == [*reversed(ids[5:]), live], "the old jobs to go")

    def test_replicas_delete_old_jobs(self):
        replicas = [self.start_replica(name, options=("--keep-ended-s", "1")) for name in "ab"]
        live = replicas[0].client.submit(job_document(**SHORT))
        self.ended(replicas[0].client, 3)
        for replica in replicas:
            wait_until(lambda each=replica: self.listed(each.client) == [live], "the jobs to go")
