"""Metrics of single clients (`GET /v1/jobs/{id}/metrics`), from every store, also after crashes and after the end."""

import json
import subprocess
import unittest

import test_python
from common import BIN, IS_SANITIZED, TallyTestCase, job_document
from private_postgres import PostgresTestCase
from recording_proxy import RecordingProxy
from test_batches import BatchWorker
from test_stragglers import HOUR_MS, Hand, by_hand

HOURS = ("--session-timeout-ms", str(HOUR_MS))
MOST_CLIENTS_OF_A_ROW = 4096


class ClientMetricsCase(TallyTestCase):
    def report(self, hand, task, of_client):
        """Posts updates with these metrics for all clients of the task. The hand then knows the task's point."""
        hand.cursors[task.job_id] = task.iterate
        for client in task.clients:
            update = hand.vector(task, client)
            for name, value in of_client.get(client, {}).items():
                update.updates[0].metrics.add(name=name, value=value)
            hand.post(update)

    def found(self, client, job_id, query=""):
        return client.get_json(f"/v1/jobs/{job_id}/metrics{query}")

    def expected(self, round_, of_client):
        return {"round": round_, "next_client": None,
                "clients": [{"client": client, "metrics": metrics} for client, metrics in of_client.items()]}

    def check(self, coordinator, restart):
        """restart() kills the coordinator and returns its replacement."""
        client = coordinator.client
        job_id = client.submit(by_hand(clients=3))
        none = {"round": None, "next_client": None, "clients": []}
        self.assertEqual(self.found(client, job_id), none)
        hand = Hand(client, "hand", slots=3)
        first = {0: {"accuracy": 0.5, "seconds": 2.0}, 2: {"accuracy": 0.25}}
        task = hand.poll_task()
        self.report(hand, task, first)
        self.assertEqual(self.found(client, job_id), self.expected(1, first))
        self.assertEqual(client.job(job_id)["metrics"]["accuracy"], {"mean": 0.375, "min": 0.25, "max": 0.5})

        client = restart().client
        self.assertEqual(self.found(client, job_id), self.expected(1, first), "after kill -9")
        hand = Hand(client, "hand", slots=3)
        self.report(hand, hand.poll_task(), {})
        self.assertEqual(client.job(job_id)["round"], 2)
        self.assertEqual(self.found(client, job_id), self.expected(1, first), "a round without metrics leaves them")
        second = {1: {"seconds": -1.5}}
        self.report(hand, hand.poll_task(), second)
        self.assertEqual(self.found(client, job_id), self.expected(3, second))
        client.post(f"/v1/jobs/{job_id}/cancel")
        self.assertEqual(self.found(client, job_id), self.expected(3, second), "after the end")
        client = restart().client
        self.assertEqual(self.found(client, job_id), self.expected(3, second), "after the end and kill -9")
        self.assertEqual(client.request("DELETE", f"/v1/jobs/{job_id}").status, 204)
        self.assertEqual(client.get(f"/v1/jobs/{job_id}/metrics").status, 404)


class ClientMetrics(ClientMetricsCase):
    def test_in_sqlite(self):
        coordinator = self.start_coordinator(options=HOURS)

        def restart():
            nonlocal coordinator
            coordinator.kill()
            coordinator = self.start_coordinator(name=f"{coordinator.name}-again", options=HOURS)
            return coordinator

        self.check(coordinator, restart)

    def test_in_memory(self):
        coordinator = self.start_coordinator(store="memory:", options=HOURS)
        self.check(coordinator, lambda: coordinator)

    def shown(self, coordinator, *words):
        done = subprocess.run([BIN / "tally", "show", "latest", "--clients", *words, "--coordinator", coordinator.url],
                              capture_output=True, text=True, timeout=300, check=True)
        return done.stdout, done.stderr

    def test_command_shows_them(self):
        coordinator = self.start_coordinator(store="memory:", options=HOURS)
        client = coordinator.client
        job_id = client.submit(by_hand(clients=3))
        self.assertEqual(self.shown(coordinator), ("CLIENT\n", "no client has reported a metric\n"))
        hand = Hand(client, "hand", slots=3)
        of_client = {0: {"seconds": 2.0}, 1: {"accuracy": 0.25}, 2: {"accuracy": 0.125, "seconds": 1.5}}
        self.report(hand, hand.poll_task(), of_client)
        self.assertEqual(self.shown(coordinator)[0].splitlines(), [
            "CLIENT  accuracy  seconds",
            "     0         -      2.0",
            "     1      0.25        -",
            "     2     0.125      1.5"])
        self.assertEqual(json.loads(self.shown(coordinator, "--json")[0]), self.found(client, job_id))

    def test_pages_are_of_one_round(self):
        """A round closes between the requests for the first and the second page."""
        n = 1001
        coordinator = self.start_coordinator(store="memory:", options=HOURS)
        client = coordinator.client
        job_id = client.submit(job_document(clients=n, quorum=n, horizon=10**8, objective__data__points=n))
        worker = BatchWorker(client, "all", slots=n)

        def play_round(value):
            task = worker.poll_task()
            updates = [worker.update(task, m) for m in task.clients]
            for update in updates:
                update.updates[0].metrics.add(name="number", value=value)
            worker.post_all(worker.batch(task, updates))
            self.assertEqual(client.job(job_id)["round"], value)

        n_exchanges = 0

        def before_each():
            nonlocal n_exchanges
            n_exchanges += 1
            if n_exchanges == 2:
                play_round(client.job(job_id)["round"] + 1)

        play_round(1)
        proxy = RecordingProxy(coordinator.client.port, before_each, keeps=False)
        self.addCleanup(proxy.close)
        shown = json.loads(subprocess.run(
            [BIN / "tally", "show", job_id, "--clients", "--json", "--coordinator", proxy.url],
            capture_output=True, text=True, timeout=300, check=True).stdout)
        self.assertEqual((shown["round"], len(shown["clients"])), (2, n))
        self.assertEqual({each["metrics"]["number"] for each in shown["clients"]}, {2})
        if not IS_SANITIZED:
            n_exchanges = 0
            found = test_python.tally.client_metrics(job_id, url=proxy.url)
            self.assertEqual((len(found), {each["number"] for each in found.values()}), (n, {3}))

    def test_pages(self):
        """There are more clients than fit in one row of the store, and some of them report no metrics."""
        n = MOST_CLIENTS_OF_A_ROW + 4
        coordinator = self.start_coordinator(options=HOURS)
        client = coordinator.client
        job_id = client.submit(job_document(clients=n, quorum=n, horizon=10**8, objective__data__points=n))
        of_client = {m: {"number": float(m)} for m in range(n) if m % 1000 != 7}
        workers = [BatchWorker(client, str(slots), slots=slots) for slots in (MOST_CLIENTS_OF_A_ROW, 4)]
        for worker, task in [(worker, worker.poll_task()) for worker in workers]:
            updates = [worker.update(task, m) for m in task.clients]
            for update in updates:
                for name, value in of_client.get(update.updates[0].client, {}).items():
                    update.updates[0].metrics.add(name=name, value=value)
            worker.post_all(worker.batch(task, updates))
        self.assertEqual(client.job(job_id)["round"], 1)
        expected = self.expected(1, of_client)["clients"]
        page = self.found(client, job_id)
        self.assertEqual((page["clients"], page["next_client"]), (expected[:1000], 1001))
        everything = self.found(client, job_id, "?limit=10000")
        self.assertEqual((everything["clients"], everything["next_client"]), (expected, None))
        last = self.found(client, job_id, f"?first={n - 6}&limit=5")
        self.assertEqual((last["clients"], last["next_client"]), (expected[-6:-1], n - 1))
        shown = json.loads(self.shown(coordinator, "--json")[0])
        self.assertEqual((shown["clients"], shown["next_client"]), (expected, None))
        for query in ("limit=0", "limit=10001", "first=-1", "first=x"):
            self.assertEqual(client.get(f"/v1/jobs/{job_id}/metrics?{query}").status, 400, query)


class ClientMetricsInPostgres(ClientMetricsCase, PostgresTestCase):
    def test_they_move_to_postgres(self):
        coordinator = self.start_coordinator(options=HOURS)
        job_id = coordinator.client.submit(by_hand(clients=3))
        hand = Hand(coordinator.client, "hand", slots=3)
        of_client = {1: {"accuracy": 0.25}, 2: {"seconds": 3.0}}
        self.report(hand, hand.poll_task(), of_client)
        self.assert_ends_well(coordinator)
        subprocess.run([BIN / "tally", "migrate", coordinator.store, self.store], capture_output=True, timeout=300, check=True)
        client = self.start_replica("a", options=HOURS).client
        self.assertEqual(self.found(client, job_id), self.expected(1, of_client))


if __name__ == "__main__":
    unittest.main()
