"""What the fault tests share: the processes of the integration tests, a proxy that records what was acknowledged, and
the comparison with an undisturbed run.

Every test draws from one seed, which is printed. TALLY_FAULTS_SEED repeats a run as far as real processes can be
repeated. Time limits are generous, so that a busy machine does not make a test fail.
"""

import json
import os
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration"))

from common import (  # noqa: E402
    ENDLESS, HANG_S, Lateness, TallyTestCase, essence, essence_so_far, job_document, simulate, sum_of_rounds, task_of,
    updates_of, uplink_of_workers, wait_until, without_times,
)
from recording_proxy import Exchange, RecordingProxy, read_message  # noqa: E402
from round_gate import start_gate  # noqa: E402

LONG_JOB = "synthetic-ceal-long"
CLIENTS = 10


class FaultTestCase(TallyTestCase):
    _undisturbed = {}  # document -> rounds.csv; shared by all tests of a process

    def setUp(self):
        super().setUp()
        self.seed = int(os.environ.get("TALLY_FAULTS_SEED") or time.time_ns())
        print(f"\n{self.id()}: TALLY_FAULTS_SEED={self.seed}", flush=True)
        self.random = random.Random(self.seed)

    def say(self, text):
        print(f"    {text}", flush=True)

    def undisturbed(self, document):
        """Returns the rounds.csv of the same job on an undisturbed coordinator."""
        key = json.dumps(document)
        if key not in self._undisturbed:
            self._undisturbed[key] = self._run_undisturbed(document)
        return self._undisturbed[key]

    def _run_undisturbed(self, document):
        coordinator = self.start_coordinator(store="memory:", name="undisturbed")
        worker = self.start_worker(coordinator, "undisturbed", clients=CLIENTS)
        job_id = coordinator.client.submit(document)
        coordinator.client.wait_status(job_id, "completed")
        csv = rounds_csv(coordinator, job_id)
        self.assert_ends_well(worker, coordinator)
        return csv

    def check_result(self, coordinator, job_id, document):
        """Waits for the end of the job and checks everything that the algorithm and its accounting define against
        an undisturbed run."""
        detail = coordinator.client.wait_status(job_id, "completed")
        self.assertEqual(essence(detail), essence(simulate(document)))
        return self._check_rounds(coordinator, job_id, detail, document)

    def check_endless(self, coordinator, job_id, document):
        """The same for an endless job: it still closes rounds, and equals an undisturbed job whose horizon is
        its time step. Cancels it."""
        coordinator.client.wait_rounds(job_id, 20)
        coordinator.client.post(f"/v1/jobs/{job_id}/cancel")
        detail = coordinator.client.wait_status(job_id, "cancelled")
        self.assertEqual(*essence_so_far(detail, document))
        return self._check_rounds(coordinator, job_id, detail, {**document, "horizon": detail["time_step"]})

    def _check_rounds(self, coordinator, job_id, detail, document):
        sums = sum_of_rounds(coordinator.client.rounds(job_id))
        self.assertEqual(sums, {key: detail["bits"][key] for key in sums})
        self.assertEqual(rounds_csv(coordinator, job_id), self.undisturbed(document))
        return detail

    def check_acknowledged(self, proxy, job_id, records, clients=CLIENTS):
        """Checks that the updates that the proxy saw acknowledged are those that were counted, and that none of
        them was requested again."""
        acknowledged = {}  # (round, client): (position, payload, payload bits as counted)
        asked_again = []
        name = job_id.encode()
        for position, exchange in enumerate(proxy.exchanges):
            if exchange.status != 200:
                continue
            for request, update, result in updates_of(exchange) if name in exchange.request_body else ():
                if request.job_id == job_id and result.code == "":  # not just in its poll's cursors
                    key = (request.round, update.client)
                    what = (update.payload, update.loss, result.payload_bits)
                    first = acknowledged.setdefault(key, (position, what))
                    self.assertEqual(what, first[1], f"two messages acknowledged for {key}")
            task = task_of(exchange) if name in exchange.response_body else None
            if task is not None and task.job_id == job_id:
                asked_again += [
                    (task.round, client) for client in task.clients
                    if acknowledged.get((task.round, client), (exchange.n_before,))[0] < exchange.n_before
                ]
        self.assertEqual(asked_again, [], "acknowledged, and then asked for again")
        complete = 0
        for record in records:
            missing = set(clients_of(record["missing"]))
            self.assertEqual(record["received"], 0 if record["cut"] else clients - len(missing))
            keys = {
                client: (record["round"], client) for client in range(clients)
                if (record["round"], client) in acknowledged
            }
            self.assertEqual(missing & set(keys), set(), f"acknowledged, and not counted: {record}")
            if len(keys) == clients - len(missing):
                complete += 1
                bits = sum(acknowledged[key][1][2] for key in keys.values())
                self.assertEqual(bits, record["bits"]["uplink"]["payload"], record)
        self.say(f"{len(acknowledged)} acknowledged updates, {complete} of {len(records)} rounds "
                 "seen complete")
        self.assertGreater(complete, len(records) // 2, "the proxy has hardly seen anything")

    def wait_for_round(self, client, job_id, wanted, pause_s=0.005):
        """Waits until the job has closed `wanted` rounds; returns its detail."""

        def look():
            detail = client.job(job_id)
            self.assertIn(detail["status"], ("queued", "running"), f"ended before round {wanted}")
            return detail if detail["round"] >= wanted else None

        return wait_until(look, f"round {wanted}", HANG_S, pause_s)

    def wait_for_more(self, client, job_id, rounds):
        return self.wait_for_round(client, job_id, client.job(job_id)["round"] + rounds)


def clients_of(text):
    """Returns the clients in a list such as "3 17 20-25"."""
    for item in text.split():
        first, _, last = item.partition("-")
        yield from range(int(first), int(last or first) + 1)


def rounds_csv(coordinator, job_id):
    answer = coordinator.client.get(f"/v1/jobs/{job_id}/rounds.csv")
    if answer.status != 200:
        raise AssertionError(f"rounds.csv: {answer}")
    return without_times(answer.body.decode())
