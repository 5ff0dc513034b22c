"""What each client has sent and received (`GET /v1/jobs/{id}/traffic`), against what a proxy recorded."""

import contextlib
import json
import sqlite3
import subprocess
import unittest

import test_python
from common import BIN, HANG_S, IS_SANITIZED, ForeignWorker, TallyTestCase, job_document, task_of, updates_of, wait_until
from private_postgres import PostgresTestCase
from recording_proxy import RecordingProxy
from round_gate import start_gate
from test_batches import BatchWorker
from test_stragglers import HOUR_MS

HOURS = ("--session-timeout-ms", str(HOUR_MS))
CLIENTS = 12
PAGE = 1000


class Oracle:
    """Computes the traffic by the rule in services/coordinator/traffic.h."""

    def __init__(self):
        self.clients = {}
        self.wire = {"in": 0, "out": 0}

    def _of(self, client):
        return self.clients.setdefault(client, {"client": client, "updates": 0, "payload_bits": 0,
                                                "wire_bytes": {"in": 0, "out": 0}})

    def _share(self, way, n_bytes, own):
        """Adds n_bytes to the clients; own has pairs of a client and its own bytes, and the rest is split evenly."""
        self.wire[way] += n_bytes
        rest = n_bytes - sum(size for _, size in own)
        for i, (client, size) in enumerate(own):
            self._of(client)["wire_bytes"][way] += size + rest // len(own) + (i < rest % len(own))

    def add(self, exchange):
        updates = [update for _, update, result in updates_of(exchange) if not result.code]
        task = task_of(exchange)
        if not updates and task is None:
            return
        shifts = {} if task is None else {shift.client: len(shift.vector) for shift in task.shifts}
        tasks = [] if task is None else [(client, shifts.get(client, 0)) for client in task.clients]
        self._share("in", len(exchange.request), [(update.client, update.ByteSize()) for update in updates]
                    or [(client, 0) for client, _ in tasks])
        self._share("out", len(exchange.response), tasks or [(update.client, 0) for update in updates])
        for update in updates:
            self._of(update.client)["updates"] += 1
            self._of(update.client)["payload_bits"] += update.payload_bits

    def answer(self):
        return {"clients": [self.clients[client] for client in sorted(self.clients)], "next_client": None,
                "other_wire_bytes": {"in": 0, "out": 0}}


def oracle_of(exchanges):
    oracle = Oracle()
    for exchange in exchanges:
        oracle.add(exchange)
    return oracle


class TrafficCase(TallyTestCase):
    def through_proxy(self, coordinator):
        proxy = RecordingProxy(coordinator.port)
        self.addCleanup(proxy.close)
        return proxy

    def traffic(self, client, job_id, query=""):
        return client.get_json(f"/v1/jobs/{job_id}/traffic{query}")

    def check_sum(self, client, job_id):
        """Checks that every byte of the job is counted exactly once."""
        answer = self.traffic(client, job_id)
        self.assertIsNone(answer["next_client"])
        total = {way: sum(each["wire_bytes"][way] for each in [*answer["clients"], {"wire_bytes": answer["other_wire_bytes"]}])
                 for way in ("in", "out")}
        # The detail of a live job shows the stored counters, which lag by up to a second.
        wait_until(lambda: client.job(job_id)["bits"]["wire_bytes"] == total, f"wire bytes of {total}")
        return answer, client.job(job_id)["bits"]

    def run_job(self, coordinator, document):
        """Runs a job with three workers, all through a proxy. Returns its id, the traffic computed from the proxy's
        record, and the workers."""
        proxy = self.through_proxy(coordinator)
        url, coordinator.url = coordinator.url, proxy.url
        workers = [self.start_worker(coordinator, f"w{i}", clients=document["clients"] // 3) for i in range(3)]
        coordinator.url = url
        job_id = coordinator.client.submit(document)
        coordinator.client.wait_status(job_id, "completed")
        self.wait_until_heard(coordinator.client, workers)
        return job_id, oracle_of(proxy.exchanges), workers


class Traffic(TrafficCase):
    def test_it_is_what_a_proxy_saw(self):
        documents = (job_document(clients=CLIENTS, quorum=CLIENTS, horizon=2000),
                     job_document("synthetic-fedpaq", clients=CLIENTS, cohort=5, quorum=5, horizon=2000),
                     job_document("synthetic-diana", clients=CLIENTS, quorum=CLIENTS))
        for document in documents:
            with self.subTest(document["algorithm"]["type"]):
                coordinator = self.start_coordinator(name=f"coordinator-{document['algorithm']['type']}")
                job_id, oracle, workers = self.run_job(coordinator, document)
                answer, bits = self.check_sum(coordinator.client, job_id)
                self.assertEqual(answer, oracle.answer())
                self.assertEqual(bits["wire_bytes"], oracle.wire)
                self.assertEqual(sum(each["payload_bits"] for each in answer["clients"]), bits["uplink"]["payload"])
                self.assertEqual(sum(each["updates"] for each in answer["clients"]), bits["uplink"]["messages"])
                self.assert_ends_well(*workers, coordinator)

    def test_shifts_are_their_clients(self):
        """Two of four clients move to a worker that lacks their shifts."""
        coordinator = self.start_coordinator()
        gate = start_gate(self, coordinator, last=2, keeps=True)
        job_id = coordinator.client.submit(job_document("synthetic-diana", clients=4, quorum=4))
        workers = [self.start_worker(gate, f"w{i}", clients=2) for i in range(2)]
        wait_until(lambda: coordinator.client.job(job_id)["round"] == 2, "two rounds")
        workers[0].terminate()  # the gate holds its updates of round 3, so none is under way
        workers[0] = self.start_worker(gate, "new", clients=2)
        gate.open()
        coordinator.client.wait_status(job_id, "completed")
        self.wait_until_heard(coordinator.client, workers)
        shifts = [shift for task in map(task_of, gate.exchanges) if task for shift in task.shifts if shift.vector]
        self.assertEqual(len(shifts), 2)
        self.assertEqual(self.check_sum(coordinator.client, job_id)[0], oracle_of(gate.exchanges).answer())

    def test_what_is_refused_or_repeated(self):
        coordinator = self.start_coordinator(options=HOURS)
        client = coordinator.client
        proxy = self.through_proxy(coordinator)
        job_id = client.submit(job_document(clients=4, quorum=4, horizon=10**8))
        self.assertEqual(self.traffic(client, job_id), oracle_of([]).answer())
        worker = BatchWorker(type(client)(int(proxy.url.rsplit(":", 1)[1])), slots=4)
        task = worker.poll_task()
        mine = worker.of_clients(task, task.clients[:2])
        worker.post_all(mine)
        worker.post_all(mine)  # repeated: adds bytes, but no updates
        worker.post_all(worker.of_clients(task, [77, task.clients[2]]))  # there is no client 77
        worker.post_all(worker.of_clients(task, [77, 78]))  # these bytes belong to no job
        oracle = oracle_of(proxy.exchanges)
        for again in task.clients[:2]:
            oracle.clients[again]["updates"] -= 1
            oracle.clients[again]["payload_bits"] -= 30
        self.assertEqual(self.traffic(client, job_id), oracle.answer())
        self.check_sum(client, job_id)

    def test_pages_cli_and_python(self):
        coordinator = self.start_coordinator()
        job_id, oracle, _ = self.run_job(coordinator, job_document(clients=CLIENTS, quorum=CLIENTS, horizon=200))
        client, all_of_them = coordinator.client, oracle.answer()["clients"]
        for first, limit, next_client in ((0, 5, 5), (5, 5, 10), (10, 5, None), (0, CLIENTS, None), (77, 1, None)):
            page = self.traffic(client, job_id, f"?first={first}&limit={limit}")
            self.assertEqual(page["clients"], all_of_them[first:first + limit])
            self.assertEqual(page["next_client"], next_client)
        for query in ("?first=-1", "?limit=0", "?limit=10001"):
            self.assert_problem(client.get(f"/v1/jobs/{job_id}/traffic{query}"), 400)
        self.assert_problem(client.get("/v1/jobs/0123456789ab/traffic"), 404)

        def show(*options):
            command = [f"{BIN}/tally", "show", job_id, "--traffic", "--coordinator", coordinator.url, *options]
            return subprocess.run(command, capture_output=True, text=True, check=False)

        self.assertEqual(json.loads(show("--json").stdout), oracle.answer())
        both = show("--clients")
        self.assertEqual(both.returncode, 2)
        self.assertIn("--clients and --traffic: choose one", both.stderr)
        lines = show().stdout.splitlines()
        self.assertEqual(lines[0].split("  "), ["CLIENT", "UPDATES", "PAYLOAD BITS", "BYTES IN", "BYTES OUT"])
        for line, each in zip(lines[1:], all_of_them, strict=True):
            cells = [int(cell.replace(",", "")) for cell in line.split()]
            self.assertEqual(cells, [each["client"], each["updates"], each["payload_bits"], each["wire_bytes"]["in"],
                                     each["wire_bytes"]["out"]])
        if not IS_SANITIZED:
            self.assertEqual(test_python.tally.client_traffic(job_id, url=coordinator.url), all_of_them)


class Faults(TrafficCase):
    def test_a_start_that_is_not_stored(self):
        """The job is queued again, and the clients' traffic is gone."""
        coordinator = self.start_with_a_disk_that_fills(options=HOURS)
        client = coordinator.client
        other_id = client.submit(job_document(clients=1, quorum=1, horizon=10**8))
        other = ForeignWorker(client, "other", job_id=other_id)
        job_id = client.submit(job_document(clients=2, quorum=2, horizon=10**8))
        wait_until(lambda: client.job(job_id)["waiting"]["for"] == "workers", "the job to be prepared")
        with self.full_disk(coordinator):
            worker = ForeignWorker(client, slots=2, job_id=job_id)
            wait_until(lambda: f"job={job_id} algorithm" in coordinator.log(), "the attempt to start it")
            worker.leave()
        wait_until(lambda: client.get("/readyz").status == 200, "the store to recover")
        for _ in range(3):  # the job is read back between two writes of its traffic
            task = other.poll_task()
            other.cursors[other_id] = task.iterate
            other.post(other.update(task, 0))
            self.check_sum(client, other_id)
        worker = ForeignWorker(client, slots=2)
        task = worker.poll_task()
        for each in task.clients:
            worker.post(worker.update(task, each))
        self.assertEqual([each["updates"] for each in self.check_sum(client, job_id)[0]["clients"]], [1, 1])

    def test_damage_takes_nothing_but_the_traffic(self):
        coordinator = self.start_coordinator()
        job_id, _, _ = self.run_job(coordinator, job_document(clients=CLIENTS, quorum=CLIENTS, horizon=200))
        model = coordinator.client.get(f"/v1/jobs/{job_id}/model").body
        coordinator.kill()
        with contextlib.closing(sqlite3.connect(f"{self.folder}/tally.db")) as database, database:
            changed = database.execute("UPDATE updates SET body = x'00' WHERE round = -1").rowcount
        self.assertEqual(changed, 1)
        client = self.start_coordinator().client
        self.assert_problem(client.get(f"/v1/jobs/{job_id}/traffic"), 500)
        self.assertEqual(client.get(f"/v1/jobs/{job_id}/model").body, model)


class Kept(TrafficCase):
    """A job's traffic survives a shutdown completely. After kill -9, no byte is attributed to the wrong client."""

    def start(self):
        return self.start_coordinator(options=HOURS)

    def test_kept(self):
        coordinator = self.start()
        client = coordinator.client
        job_id = client.submit(job_document(clients=2, quorum=2, horizon=10**8))
        worker = ForeignWorker(client, slots=2)

        def play_round():
            task = worker.poll_task()
            worker.cursors[job_id] = task.iterate
            for each in task.clients:
                worker.post(worker.update(task, each))
            return self.check_sum(client, job_id)[0]

        played = play_round()
        self.assertEqual([each["updates"] for each in played["clients"]], [1, 1])
        self.assert_ends_well(coordinator)
        checked = subprocess.run(
            [BIN / "tally-coordinator", "--check", "--store", coordinator.store], stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=HANG_S, check=True)
        self.assertIn(", 0 updates of open rounds", checked.stdout, "traffic is stored, and no update")
        coordinator = self.start()
        client = coordinator.client
        self.assertEqual(self.check_sum(client, job_id)[0], played, "after a shutdown")
        worker = ForeignWorker(client, slots=2)
        play_round()
        coordinator.kill()
        coordinator = self.start()
        client = coordinator.client
        after_kill = self.check_sum(client, job_id)[0]
        for each, before in zip(after_kill["clients"], played["clients"], strict=True):
            self.assertGreaterEqual(each["updates"], before["updates"])
        self.assertGreaterEqual(after_kill["other_wire_bytes"]["in"], 0)
        worker = ForeignWorker(client, slots=2)
        play_round()
        client.post(f"/v1/jobs/{job_id}/cancel")
        ended = self.check_sum(client, job_id)[0]
        coordinator.kill()
        client = self.start().client
        self.assertEqual(self.check_sum(client, job_id)[0], ended, "after the end and kill -9")
        self.assertEqual(client.request("DELETE", f"/v1/jobs/{job_id}").status, 204)
        self.assertEqual(client.get(f"/v1/jobs/{job_id}/traffic").status, 404)


class TrafficOfReplicas(TrafficCase, PostgresTestCase):
    def test_every_replica_tells_it(self):
        replicas = [self.start_replica(name, options=HOURS) for name in "ab"]
        job_id = replicas[0].client.submit(job_document(clients=2, quorum=2, horizon=10**8))
        for worker in [ForeignWorker(replica.client, replica.name, job_id=job_id) for replica in replicas]:
            task = worker.poll_task()
            worker.post(worker.update(task, task.clients[0]))
        answers = [self.check_sum(replica.client, job_id)[0] for replica in replicas]
        self.assertEqual(answers[0], answers[1])
        self.assertEqual([each["updates"] for each in answers[0]["clients"]], [1, 1])


if __name__ == "__main__":
    unittest.main()
