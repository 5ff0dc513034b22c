"""One of ten workers is stopped (SIGSTOP): it keeps its connection and its clients, but is silent."""

import signal
import time
import unittest

from service import (
    CLIENTS, ENDLESS, LONG_JOB, FaultTestCase, clients_of, job_document, start_gate, sum_of_rounds, wait_until,
)

SESSION_TIMEOUT_S = 10
DEADLINE_S = 5  # no running worker is that late, even on a busy machine
HELD_AT = 150  # the round at which a gate holds the job until a worker is stopped
OPTIONS = ("--session-timeout-ms", SESSION_TIMEOUT_S * 1000)
WORKER_OPTIONS = ("--wait-ms", "300")
# Far less than one deadline for each remaining round, far more than a few deadlines.
ON_TIME_S = 300


class Stopped(FaultTestCase):
    def start(self, horizon, **changes):
        """Starts the job and ten workers with one client each."""
        self.document = job_document(
            LONG_JOB, horizon=horizon, round_deadline_ms=int(DEADLINE_S * 1000), **changes
        )
        self.coordinator = self.start_coordinator(options=OPTIONS)
        self.client = self.coordinator.client
        self.gate = start_gate(self, self.coordinator, last=HELD_AT)
        self.workers = {
            f"w{i}": self.start_worker(self.gate, f"w{i}", options=WORKER_OPTIONS)
            for i in range(CLIENTS)
        }
        wait_until(lambda: len(self.sessions()) == CLIENTS, "all workers")
        self.job_id = self.client.submit(self.document)
        self.wait_for_round(self.client, self.job_id, self.random.randint(1, 100))

    def sessions(self):
        return {worker["name"]: worker for worker in self.client.get_json("/v1/workers")["workers"]}

    def detail(self):
        return self.client.job(self.job_id)

    def stop(self, process):
        process.popen.send_signal(signal.SIGSTOP)
        self.addCleanup(self.resume, process)  # runs before SIGTERM is sent

    def resume(self, process):
        if process.is_alive():
            process.popen.send_signal(signal.SIGCONT)

    def stop_a_worker(self):
        """Stops a worker while it computes; returns it and its client."""
        name = self.random.choice(sorted(self.workers))
        client = self.sessions()[name]["assignments"][0]["client"]
        self.stop(self.workers[name])
        self.gate.open()
        self.say(f"{name}, client {client}, is stopped past round {self.detail()['round']}")
        return self.workers[name], name, client

    def wait_for_waiting(self, client):
        """Waits until the job waits for this client alone; returns the detail."""

        def look():
            detail = self.detail()
            waiting = detail["waiting"]
            said = waiting is not None and waiting["for"] == "clients"
            return detail if said and waiting["clients"] == str(client) else None

        return wait_until(look, f"the detail to name client {client}")

    def check_records(self, detail):
        """Checks that every round accounts for all ten clients, and that the counters are the sums of the rounds."""
        records = self.client.rounds(self.job_id)
        for record in records:
            if not record["cut"]:
                absent = list(clients_of(record["missing"]))
                self.assertEqual(record["received"] + len(absent), CLIENTS, record)
                self.assertGreaterEqual(record["received"], self.document["quorum"], record)
                self.assertEqual(record["bits"]["uplink"]["messages"], record["received"], record)
        sums = sum_of_rounds(records)
        self.assertEqual(sums, {key: detail["bits"][key] for key in sums})
        return records

    def test_drop_finishes_without_the_stopped_worker(self):
        self.start(2000, policy="drop", quorum=CLIENTS - 1)
        _, name, client = self.stop_a_worker()
        began = time.monotonic()
        detail = self.client.wait_status(self.job_id, "completed")
        took = time.monotonic() - began
        records = self.check_records(detail)
        without = [record for record in records if record["missing"]]
        self.say(f"{len(without)} of {len(records)} rounds closed without it, in {took:.1f} s")
        self.assertLess(took, ON_TIME_S)
        self.assertGreater(len(without), (len(records) - HELD_AT) * 9 // 10)
        self.assertEqual({record["missing"] for record in without}, {str(client)})

    def test_drop_takes_it_back(self):
        self.start(ENDLESS, policy="drop", quorum=CLIENTS - 1)
        for stopped_s in (0.5 * SESSION_TIMEOUT_S, 2 * SESSION_TIMEOUT_S):
            worker, name, client = self.stop_a_worker()
            began = time.monotonic()
            wait_until(lambda: self.last_missing() == str(client), "rounds without it")
            self.say(f"missed after {time.monotonic() - began:.1f} s")
            time.sleep(max(0, stopped_s - (time.monotonic() - began)))  # duration of the fault
            self.resume(worker)
            began = time.monotonic()
            wait_until(lambda: self.last_missing() == "", "rounds with it")
            took, first = time.monotonic() - began, self.detail()["round"]
            self.wait_for_round(self.client, self.job_id, first + 500)
            page = self.client.get_json(f"/v1/jobs/{self.job_id}/rounds?after={first}&limit=500")
            missed = sum(record["missing"] != "" for record in page["rounds"])
            self.say(f"back after {took:.1f} s; then missed in {missed} of {len(page['rounds'])} rounds")
            self.assertLess(missed, 10, "it is back, and not waited for")
        self.client.post(f"/v1/jobs/{self.job_id}/cancel")
        detail = self.client.wait_status(self.job_id, "cancelled")
        self.assertEqual(self.check_records(detail)[-2]["missing"], "")
        self.assert_ends_well(*self.workers.values(), self.coordinator)

    def last_missing(self):
        """Returns the clients that did not answer in the newest round."""
        after = max(self.detail()["round"] - 1, 0)
        return self.client.get_json(f"/v1/jobs/{self.job_id}/rounds?after={after}")["rounds"][-1]["missing"]

    def test_wait_says_for_whom_and_goes_on(self):
        self.start(2000, policy="wait")
        before_ms = time.time() * 1000
        worker, name, client = self.stop_a_worker()
        for pause_s in (0, 2 * SESSION_TIMEOUT_S):  # its session lasts until now, but not much longer
            time.sleep(pause_s)  # duration of the fault
            detail = self.wait_for_waiting(client)
            self.say(detail["waiting"]["text"])
            self.assertEqual(detail["waiting"]["workers"], [name])
            since_ms = detail["waiting"]["since_ms"]
            self.assertGreater(since_ms, before_ms - 1000)
            self.assertLessEqual(since_ms, time.time() * 1000)
            if pause_s == 0:
                first = detail
        self.assertEqual(detail["round"], first["round"], "a round closed without its client")
        self.assertEqual(since_ms, first["waiting"]["since_ms"])
        self.resume(worker)
        detail = self.check_result(self.coordinator, self.job_id, self.document)
        self.assertIsNone(detail["waiting"])
        self.assert_ends_well(*self.workers.values(), self.coordinator)

    def test_wait_gives_the_client_to_another(self):
        self.start(2000, policy="wait")
        self.stop_a_worker()
        spare = self.start_worker(self.coordinator, "spare", options=WORKER_OPTIONS)
        self.check_result(self.coordinator, self.job_id, self.document)
        self.assert_ends_well(spare)

    def test_fail_names_the_stopped_worker(self):
        self.start(ENDLESS, policy="fail")
        _, name, client = self.stop_a_worker()
        detail = self.client.wait_status(self.job_id, "failed")
        self.say(detail["reason"])
        self.assertRegex(detail["reason"], rf"missing clients?:? {client}\b")
        self.assertIsNone(detail["waiting"])

    def test_the_coordinator_is_stopped(self):
        self.start(2000, policy="wait")
        self.stop(self.coordinator)
        self.gate.open()
        time.sleep(2.5 * SESSION_TIMEOUT_S)  # duration of the fault
        self.resume(self.coordinator)
        self.check_result(self.coordinator, self.job_id, self.document)
        self.assert_ends_well(*self.workers.values(), self.coordinator)


if __name__ == "__main__":
    unittest.main()
