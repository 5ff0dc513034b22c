"""Jobs that run on the replicas during the faults, and their expected results."""

import itertools
import statistics
import threading
import time

from common import HANG_S, essence, job_document, simulate, sum_of_rounds, wait_until
from replicas import PatientClient

CLIENTS = 4
STRIKES = ("kill", "kill and restart", "pause", "cut off from everybody", "cut off from the database")
TAKEOVER_S = 5  # the promised limit, counted from the fault of the leader
LOOK_S = 0.1  # more than a query for the leaders takes, unless the processors are busy


def documents(base, horizon, **changes):
    """Returns the same job with successive seeds. There are only a few, since each is also simulated."""
    return [
        job_document(base, clients=CLIENTS, quorum=CLIENTS, horizon=horizon, seed=seed, **changes)
        for seed in range(1, 4)
    ]


class Lane(threading.Thread):
    """Submits, watches and checks one job after another until it is stopped."""

    def __init__(self, test, name, documents):
        super().__init__(daemon=True)
        self.test, self.label = test, name
        self.documents = documents
        self.client = PatientClient(test.client.port, test.client.host)
        self.is_stopping = False
        self.job_id = None
        self.done = []  # (job, document)
        self.error = None
        self.start()

    def run(self):
        try:
            for number, document in enumerate(itertools.cycle(self.documents)):
                if self.is_stopping:
                    return
                self._run_one(document, f"{self.test.seed}-{self.label}-{number}")
        except BaseException as error:  # re-raised later in the test's thread
            self.error = error

    def _run_one(self, document, key):
        answer = self.client.post_job(document, {"Idempotency-Key": key})
        self.test.assertIn(answer.status, (200, 201), answer)
        self.job_id = answer.json()["id"]
        seen = {}
        while seen.get("status") != "completed":
            detail = self.client.job(self.job_id)
            self.test.assertIn(detail["status"], ("queued", "running", "completed"), detail["reason"])
            self._check_never_back(seen, detail)
            seen = detail
            time.sleep(0.05)
        self._check_result(seen, document)
        self.done.append((self.job_id, document))

    def _check_never_back(self, before, now):
        """Checks that rounds, once shown, never change."""
        for key in ("round", "time_step", "iterate"):
            self.test.assertGreaterEqual(now[key], before.get(key, 0), f"{key} went back: {now}")
        for way in ("uplink", "downlink") if before else ():
            for kind, bits in before["bits"][way].items():
                self.test.assertGreaterEqual(now["bits"][way][kind], bits, f"{way} {kind} went back: {now}")

    def _check_result(self, detail, document):
        """Checks everything that the algorithm and its accounting define against an undisturbed run."""
        self.test.assertEqual(essence(detail), essence(simulate(document)))
        sums = sum_of_rounds(self.client.rounds(self.job_id))
        self.test.assertEqual(sums, {key: detail["bits"][key] for key in sums})


class Lanes:
    """Several lanes at once."""

    def __init__(self, test, documents):
        self.lanes = [Lane(test, str(i), each) for i, each in enumerate(documents)]
        test.addCleanup(self._release)

    def _release(self):
        for lane in self.lanes:
            lane.is_stopping = True

    def check(self):
        for lane in self.lanes:
            if lane.error is not None:
                raise lane.error

    def wait(self, condition, what):
        """Like wait_until, but also fails if a lane has failed."""

        def look():
            self.check()
            return condition()

        return wait_until(look, what, HANG_S)

    def stop(self):
        """Waits for the last jobs to end; returns all jobs with their documents."""
        self._release()
        self.wait(lambda: not any(lane.is_alive() for lane in self.lanes), "the last jobs to end")
        self.check()
        return [done for lane in self.lanes for done in lane.done]


class Takeovers:
    """How long it took until each job of a struck replica had a leader again and progressed."""

    def __init__(self, test, lanes):
        self.test, self.lanes = test, lanes
        self.moved_s, self.round_s = [], []
        self.late_s = []  # the part of moved_s in which the test or a replica had no processor

    def measure(self, kind, name):
        """Strikes the leader `name`. Returns once every job that it led has another leader, or the same leader anew,
        and has closed a round since."""
        before = self.test.led_by(name)
        began, lateness = time.monotonic(), self.test.lateness()
        self.test.strike(kind, name)
        self.late_s.append(0)
        after = self.lanes.wait(self._timed(lambda: self._moved(before)), f"the jobs of {name} to move")
        self.moved_s.append(time.monotonic() - began)
        self.late_s[-1] += lateness.seconds()
        self.lanes.wait(lambda: self._went_on(after), f"rounds of the jobs that {name} led")
        self.round_s.append(time.monotonic() - began)
        self.test.say(f"{name}, leader of {len(before)}: {kind}; led again after {self.moved_s[-1]:.2f} s, "
                      f"next rounds closed after {self.round_s[-1]:.2f} s")

    def _timed(self, look):
        """Wraps look(); adds to late_s how late each call of it comes."""
        last = time.monotonic()

        def timed():
            nonlocal last
            found, now = look(), time.monotonic()
            self.late_s[-1] += max(0, now - last - LOOK_S)
            last = now
            return found

        return timed

    def _moved(self, before):
        """Returns the remaining jobs, once all of them have new tokens."""
        now = self.test.leaders()
        left = {job: now[job] for job in before if job in now}
        is_moved = all(leader is not None and token > before[job][1] for job, (leader, token, _) in left.items())
        return {"jobs": left} if is_moved else None

    def _went_on(self, after):
        now = self.test.leaders()
        return all(job not in now or now[job][2] > rounds for job, (_, _, rounds) in after["jobs"].items())

    def report(self):
        for what, times_s in (("led again after", self.moved_s), ("next round closed after", self.round_s)):
            self.test.say(f"{what}: median {statistics.median(times_s):.2f} s, longest {max(times_s):.2f} s of "
                          f"{len(times_s)}")
        for moved_s, late_s in zip(self.moved_s, self.late_s):
            self.test.assertLess(moved_s - late_s, TAKEOVER_S)
