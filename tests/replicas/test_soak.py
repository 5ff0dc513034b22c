"""Faults of all kinds for a while, one or two at once: of coordinators, workers, network and database."""

import collections
import time
import unittest

from replicas import ReplicasTestCase

from lanes import CLIENTS, STRIKES, Lanes, documents

SOAK_S = 60


class Soak(ReplicasTestCase):
    def test_faults_of_all_kinds(self):
        self.build("a", "b", "c")
        proxy = self.start_proxy()
        self.start_workers([CLIENTS] * 4, proxy.url)
        lanes = Lanes(self, [
            documents("synthetic-ceal-long", 600),
            documents("synthetic-fedcom", 2000, algorithm__local_steps=5),
            documents("synthetic-minibatch-sgd", 2000, algorithm__local_steps=5),
        ])
        done = collections.Counter()
        until = time.monotonic() + SOAK_S
        while time.monotonic() < until:
            lanes.check()
            for kind, begin in self.some_faults():
                begin()
                done[kind] += 1
                time.sleep(self.random.uniform(0, 1))  # between two faults
            time.sleep(self.random.uniform(0, 4))  # durations of the faults
            self.revive()
            time.sleep(self.random.uniform(0, 3))  # between two faults
        self.say(f"{SOAK_S} s: {dict(done)}")
        lanes.wait(self.all_are_ready, "all replicas to be ready")
        self.check_lanes(lanes, proxy)

    def some_faults(self):
        """Returns one or two faults of different targets, as (name, function); only the first may be a network
        fault."""
        first, second = self.random.sample(sorted(self.replicas), 2)
        worker = self.random.randrange(len(self.workers))
        mode = self.random.choice(("fast", "immediate"))
        either = [(kind, lambda kind=kind: self.strike(kind, first)) for kind in STRIKES]
        both = [
            ("another killed", lambda: self.strike("kill", second)),
            ("another paused", lambda: self.strike("pause", second)),
            ("worker killed", lambda: self.workers[worker].kill()),
            ("worker paused", lambda: self.pause(self.workers[worker])),
            (f"PostgreSQL stopped, {mode}", lambda: self.postgres.stop(mode)),
        ]
        fault = self.random.choice(either + both)
        if self.random.random() < 0.5:
            return [fault]
        return [fault, self.random.choice([each for each in both if each[0] != fault[0]])]


if __name__ == "__main__":
    unittest.main()
