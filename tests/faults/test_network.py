"""Coordinator and workers in network namespaces of their own, behind a router that misbehaves."""

import os
import time
import unittest
from unittest import mock

from namespaces import Network
from service import ENDLESS, LONG_JOB, FaultTestCase, clients_of, job_document, wait_until

SESSION_TIMEOUT_S = 1
OPTIONS = ("--insecure", "--session-timeout-ms", SESSION_TIMEOUT_S * 1000)
WORKER_OPTIONS = ("--wait-ms", "500")
PLACES = ("w1", "w2", "w3")
# Allows for TCP's backoff, which doubles while nothing comes through.
RESUME_S = 100


class NetworkFaults(FaultTestCase):
    def setUp(self):
        super().setUp()
        # The addresses are not those of the loopback interface, so a proxy in the environment must be ignored.
        patch = mock.patch.dict(os.environ, {"no_proxy": "*"})
        patch.start()
        self.addCleanup(patch.stop)
        self.network = Network(("c", *PLACES))
        self.addCleanup(self.network.close)
        self.addCleanup(self._end_processes)  # first, since they hold the namespaces
        self.document = job_document(LONG_JOB, horizon=ENDLESS)

    def start_in_places(self, slots):
        """Starts the coordinator, a worker with n slots in each place, and the job."""
        self.start_coordinator_there()
        self.workers = {
            place: self.start_worker(
                self.coordinator, place, clients=clients, options=WORKER_OPTIONS,
                launcher=self.network.enter(place),
            )
            for place, clients in zip(PLACES, slots)
        }
        self.client = self.coordinator.client
        wait_until(lambda: len(self.sessions()) == len(slots), "all workers")
        self.job_id = self.client.submit(self.document)
        self.wait_for_round(self.client, self.job_id, 1)

    def start_coordinator_there(self, **again):
        self.coordinator = self.start_coordinator(
            host=self.network.address("c"), launcher=self.network.enter("c"), options=OPTIONS, **again
        )
        self.client = self.coordinator.client

    def sessions(self):
        return {worker["name"]: worker for worker in self.client.get_json("/v1/workers")["workers"]}

    def round(self):
        return self.client.job(self.job_id)["round"]

    def waiting_for(self, places):
        """Returns `waiting` if the job waits for the clients of these workers alone. On a busy machine, others may be
        late for a moment or even lose their sessions."""
        waiting = self.client.job(self.job_id)["waiting"]
        return waiting if waiting and (waiting["for"], waiting["workers"]) == ("clients", places) else None

    def progress(self, rounds, what):
        """Waits for n rounds and prints how fast they were."""
        began, first = time.monotonic(), self.round()
        last = self.wait_for_round(self.client, self.job_id, first + rounds)["round"]
        took = time.monotonic() - began
        self.say(f"{what}: {last - first} rounds in {took:.1f} s")
        return took

    def finish(self):
        """Heals everything. The job must then end as if undisturbed."""
        self.network.heal()
        self.progress(1, "healed")
        self.check_endless(self.coordinator, self.job_id, self.document)
        self.assert_ends_well(*self.workers.values(), self.coordinator)

    def wait_for_a_loss(self):
        """Checks that packets were lost. A few rounds need so few packets that at first there may have been no loss."""
        wait_until(lambda: self.network.n_lost() > 0, "a packet to be lost")

    def cut_off(self, places, for_s):
        """Drops everything for a while; returns the rounds that had closed when the fault ended."""
        self.network.cut_off(*places)
        before = self.round()
        time.sleep(for_s)  # duration of the fault
        after = self.round()
        self.wait_for_a_loss()
        return after - before

    def test_packets_are_lost(self):
        self.start_in_places((4, 3, 3))
        for percent, rounds in ((1, 25), (3, 20), (5, 15)):
            self.network.lose(percent)
            self.progress(rounds, f"{percent} % lost")
            self.wait_for_a_loss()
        self.finish()

    def test_the_line_is_slow(self):
        self.start_in_places((4, 3, 3))
        self.network.slow_down("256kbit")
        self.progress(40, "256 kbit/s")
        self.network.lose(2)
        self.progress(10, "256 kbit/s and 2 % lost")
        self.network.speed_up()
        self.finish()

    def test_a_part_is_cut_off_and_nobody_can_replace_it(self):
        self.start_in_places((4, 3, 3))
        for place in self.random.sample(PLACES, 2):
            clients = sorted(each["client"] for each in self.sessions()[place]["assignments"])
            closed = self.cut_off([place], 2.5 * SESSION_TIMEOUT_S)
            self.assertLessEqual(closed, 1, "rounds closed without their clients")
            waiting = wait_until(lambda: self.waiting_for([place]), f"the job to wait for {place} and nobody else")
            self.say(waiting["text"])
            # Some of them may have answered earlier.
            self.assertLessEqual(set(clients_of(waiting["clients"])), set(clients))
            self.network.heal()
            took = self.progress(5, f"{place} was cut off, healed")
            self.assertLess(took, RESUME_S)
        self.finish()

    def test_all_are_cut_off(self):
        self.start_in_places((4, 3, 3))
        closed = self.cut_off(["c"], 2.5 * SESSION_TIMEOUT_S)
        self.assertLessEqual(closed, 1)
        self.network.heal()
        self.assertLess(self.progress(5, "all were cut off, healed"), RESUME_S)
        # The coordinator dies unnoticed in the meantime, and its connections are dead when the network is back.
        self.network.cut_off("c")
        seen = self.round()
        self.coordinator.kill()
        self.start_coordinator_there(port=self.coordinator.port, store=self.coordinator.store)
        self.assertGreaterEqual(self.round(), seen)
        time.sleep(SESSION_TIMEOUT_S)  # duration of the fault
        self.network.heal()
        self.assertLess(self.progress(5, "all were cut off, coordinator killed, healed"), RESUME_S)
        self.finish()

    def test_others_take_over_from_a_part_that_is_cut_off(self):
        self.start_in_places((5, 5, 5))
        for _ in range(2):
            busy = [name for name, worker in self.sessions().items() if worker["assignments"]]
            place = self.random.choice(busy)
            self.network.cut_off(place)
            self.wait_for_more(self.client, self.job_id, 1)  # it may have answered before the cut
            took = self.progress(3, f"{place} is cut off, others go on")
            self.assertLess(took, RESUME_S)
            self.wait_for_a_loss()
            self.assertNotIn(place, self.sessions())
            self.network.heal()
            wait_until(lambda: place in self.sessions(), f"{place} to be back")
        self.finish()

    def test_the_line_flaps(self):
        self.start_in_places((4, 4, 4))
        self.network.slow_down("2mbit")
        until = time.monotonic() + 8
        while time.monotonic() < until:
            self.network.cut_off(*self.random.sample(("c", *PLACES), self.random.randint(1, 2)))
            time.sleep(self.random.uniform(0.02, 1.5 * SESSION_TIMEOUT_S))  # duration of the fault
            self.network.heal()
            time.sleep(self.random.uniform(0.01, 0.3))  # between two faults
        self.assertLess(self.progress(5, "flapped for 8 s, healed"), RESUME_S)
        self.network.speed_up()
        self.finish()


if __name__ == "__main__":
    unittest.main()
