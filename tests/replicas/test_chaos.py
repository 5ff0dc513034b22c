"""The leading coordinator is killed, paused or cut off at random moments, without any effect on results."""

import time
import unittest

from replicas import ReplicasTestCase

from lanes import CLIENTS, STRIKES, Lanes, Takeovers, documents

MOMENTS = 20
AWAY_S = 1  # after its jobs have moved and progressed


class Chaos(ReplicasTestCase):
    def test_the_leader_is_struck_at_twenty_moments(self):
        self.build("a", "b")
        proxy = self.start_proxy()
        self.start_workers([CLIENTS] * 4, proxy.url)
        lanes = Lanes(self, [
            documents("synthetic-ceal-long", 600),
            documents("synthetic-fedpaq", 2000, algorithm__local_steps=5),
            documents("synthetic-minibatch-sgd", 2000, algorithm__local_steps=5),
        ])
        takeovers = Takeovers(self, lanes)
        kinds = list(STRIKES) * (MOMENTS // len(STRIKES))
        self.random.shuffle(kinds)
        for kind in kinds:
            time.sleep(self.random.uniform(0, 1))  # at any moment
            takeovers.measure(kind, lanes.wait(self.a_leader, "a job that is led"))
            time.sleep(self.random.uniform(0, AWAY_S))  # duration of the fault
            self.revive()
            lanes.wait(self.all_are_ready, "all replicas to be ready")
        self.check_lanes(lanes, proxy)
        takeovers.report()

    def a_leader(self):
        leaders = [leader for leader, _, rounds in self.leaders().values() if leader and rounds > 0]
        return self.random.choice(sorted(leaders)) if leaders else None


if __name__ == "__main__":
    unittest.main()
