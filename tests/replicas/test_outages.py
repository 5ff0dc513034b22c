"""Failures beyond the leader's: two of three coordinators at once, all of them, or the database."""

import time
import unittest

from replicas import ReplicasTestCase

from lanes import CLIENTS, Lanes, documents

AWAY_S = 4  # longer than a lease
RESTARTS = 5


class Outages(ReplicasTestCase):
    def start(self, *names):
        self.build(*names)
        self.proxy = self.start_proxy()
        self.start_workers([CLIENTS] * 4, self.proxy.url)
        self.lanes = Lanes(self, [
            documents("synthetic-ceal-long", 250),
            documents("synthetic-fedcom", 1000, algorithm__local_steps=5),
        ])
        self.lanes.wait(lambda: len(self.led()) == 2, "both jobs to run")

    def led(self):
        """Returns the jobs that have a leader and have closed a round."""
        return {job: what for job, what in self.leaders().items() if what[0] and what[2] > 0}

    def goes_on(self, what):
        """Checks that every job closes another round."""
        began, before = time.monotonic(), self.leaders()
        self.lanes.wait(
            lambda: all(job not in now or now[job][2] > rounds for now in [self.leaders()]
                        for job, (_, _, rounds) in before.items()), f"rounds after {what}")
        self.say(f"{what}: next rounds closed after {time.monotonic() - began:.2f} s")

    def finish(self):
        self.revive()
        self.lanes.wait(self.all_are_ready, "all replicas to be ready")
        self.check_lanes(self.lanes, self.proxy)

    def test_two_of_three_are_paused(self):
        self.start("a", "b", "c")
        for _ in range(2):
            leader = self.random.choice(sorted({leader for leader, _, _ in self.led().values()}))
            other = self.random.choice([name for name in self.replicas if name != leader])
            (left,) = set(self.replicas) - {leader, other}
            for name in (leader, other):
                self.strike("pause", name)
            self.lanes.wait(lambda: len(self.led_by(left)) == len(self.leaders()), f"{left} to lead everything")
            self.goes_on(f"{leader} and {other} are paused")
            time.sleep(self.random.uniform(0, 2))  # duration of the fault
            self.revive()
            self.goes_on("they are back")
            self.lanes.wait(self.all_are_ready, "all replicas to be ready")
        self.finish()

    def test_all_are_killed(self):
        self.start("a", "b")
        for away_s in (0, AWAY_S):
            for name in self.replicas:
                self.strike("kill", name)
            time.sleep(away_s)  # duration of the fault
            self.revive()
            self.goes_on(f"all were killed and were away for {away_s} s")
        # Neither the coordinators nor the database are available.
        for name in self.replicas:
            self.strike("kill", name)
        self.postgres.stop("immediate")
        time.sleep(1)  # duration of the fault
        self.postgres.start()
        self.revive()
        self.goes_on("all were killed, and the database")
        self.finish()

    def test_the_database_is_restarted(self):
        self.start("a", "b")
        for number in range(RESTARTS):
            self.lanes.wait(self.led, "a job that gets on")
            time.sleep(self.random.uniform(0, 1))  # at any moment
            mode = self.random.choice(("fast", "immediate"))
            away_s = self.random.choice((0, self.random.uniform(0, 1), AWAY_S))
            self.postgres.stop(mode)
            time.sleep(away_s)  # duration of the fault
            self.postgres.start()
            self.goes_on(f"PostgreSQL was stopped, {mode}, and away for {away_s:.1f} s")
        self.finish()


if __name__ == "__main__":
    unittest.main()
