"""The coordinator that leads is killed, paused or cut off at random moments; no result tells of it."""

import collections
import time
import unittest

from replicas import ReplicasTestCase

from lanes import CLIENTS, Lanes, Takeovers, documents

STRIKES = ("kill", "kill and restart", "pause", "cut off from everybody", "cut off from the database")
MOMENTS = 20
SOAK_S = 60
AWAY_S = 2  # after its jobs have moved and got on


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
            time.sleep(self.random.uniform(0, 1))
            takeovers.measure(kind, lanes.wait(self.a_leader, "a job that is led"))
            time.sleep(self.random.uniform(0, AWAY_S))
            self.revive()
            lanes.wait(self.all_are_ready, "all replicas to be ready")
        self.check_lanes(lanes, proxy)
        takeovers.report()

    def a_leader(self):
        leaders = [leader for leader, _, rounds in self.leaders().values() if leader and rounds > 0]
        return self.random.choice(sorted(leaders)) if leaders else None


    def test_faults_of_all_kinds(self):
        """One or two at once, for a while."""
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
                time.sleep(self.random.uniform(0, 1))
            time.sleep(self.random.uniform(0, 4))
            self.revive()
            time.sleep(self.random.uniform(0, 3))
        self.say(f"{SOAK_S} s: {dict(done)}")
        lanes.wait(self.all_are_ready, "all replicas to be ready")
        self.check_lanes(lanes, proxy)

    def some_faults(self):
        """Of different targets: (name, function) of one or two; only the first may be one of the network."""
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
