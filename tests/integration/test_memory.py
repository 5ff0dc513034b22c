"""Memory is bounded in bytes: that of a queued job, and that of all started jobs together."""

import re
import resource
import unittest

from common import IS_SANITIZED, ForeignWorker, TallyTestCase, memory_bytes, wait_until

MIB = 1 << 20


def plain_job(dim, algorithm="ceal", **changes):
    """Returns a job without data and f(x*), so that only the engine's own memory remains."""
    return {"algorithm": {"type": algorithm, "step_size": 1.0, **({"sigma": 1.0} if algorithm == "ceal" else {})},
            "objective": {"type": "plugin", "name": "none", "dim": dim}, "clients": 2, "horizon": 1000,
            "reference": {"type": "none"}, **changes}


class Queued(TallyTestCase):
    """A queued job holds its row and its document, and nothing that grows with dim or clients."""

    JOBS = 12
    MOST = MIB // 2  # bytes per job: well above what one takes (below 100 KB), and far below any vector

    def assert_small(self, document):
        small = {**document, "objective": {**document["objective"], "dim": 10}, "clients": 2}
        coordinator = self.start_coordinator()
        client = coordinator.client
        client.submit(small)
        client.submit(document)  # buffers kept for reuse do not count below
        before = memory_bytes(coordinator.pid)
        ids = [client.submit(document) for _ in range(self.JOBS)]
        self.assertLess(memory_bytes(coordinator.pid) - before, self.JOBS * self.MOST)
        details = [client.job(job_id) for job_id in ids]
        self.assertEqual({detail["status"] for detail in details}, {"queued"})
        coordinator.kill()

        again = self.start_coordinator(store=coordinator.store)
        self.assertLess(memory_bytes(again.pid), before + self.JOBS * self.MOST)
        self.assertEqual([again.client.job(job_id)["x_checksum"] for job_id in ids],
                         [detail["x_checksum"] for detail in details])
        for job_id in ids:
            again.client.post(f"/v1/jobs/{job_id}/cancel")
        self.assertLess(memory_bytes(again.pid), before + self.JOBS * self.MOST)

    @unittest.skipIf(IS_SANITIZED, "memory of a sanitizer is measured as well")
    def test_of_many_coordinates(self):
        self.assert_small(plain_job(10_000_000))

    @unittest.skipIf(IS_SANITIZED, "memory of a sanitizer is measured as well")
    def test_of_many_clients(self):
        self.assert_small(plain_job(10, clients=100_000))

    @unittest.skipIf(IS_SANITIZED, "memory of a sanitizer is measured as well")
    def test_a_large_model_is_no_json(self):
        """As JSON, a model of 10^7 coordinates would block the only thread for 10 s and take 300 MB in addition to its
        text."""
        coordinator = self.start_coordinator()
        client = coordinator.client
        for dim, status in ((1_000_000, 200), (1_000_001, 406), (10_000_000, 406)):
            path = f"/v1/jobs/{client.submit(plain_job(dim))}/model"
            for accept in ("*/*", "application/json", "application/x-npy;q=0"):
                answer = client.get(path, Accept=accept)
                self.assertEqual(answer.status, 406 if ";" in accept else status, (dim, accept))
            if status == 406:
                self.assert_problem(client.get(path), 406, field="Accept")
            npy = client.get(path, Accept="application/x-npy")
            self.assertEqual((npy.status, npy.type, len(npy.body)), (200, "application/x-npy", 128 + 8 * dim))
        self.assertLess(memory_bytes(coordinator.pid, "VmHWM"), 400 * MIB)

    def test_its_model_is_the_initial_point(self):
        coordinator = self.start_coordinator()
        client = coordinator.client
        job_id = client.submit(plain_job(5, initial_point={"type": "random_sphere", "radius": 3.0}))
        queued = client.get_json(f"/v1/jobs/{job_id}/model")
        self.assertAlmostEqual(sum(x * x for x in queued["x"]), 9)
        self.assertEqual(queued["x_checksum"], client.job(job_id)["x_checksum"])
        client.post(f"/v1/jobs/{job_id}/cancel")
        self.assertEqual(client.get_json(f"/v1/jobs/{job_id}/model"), queued)


LARGE = 100_000  # takes 5.4 MB, as estimated
LARGE_BYTES = 52 * LARGE + 352 * 2 + (192 << 10)


class Limited(TallyTestCase):
    """Tests of --max-job-bytes without real workers: to start, a job needs only a free slot."""

    def start(self, limit, *options, slots=20, **others):
        self.coordinator = self.start_coordinator(
            options=("--max-job-bytes", str(limit), "--session-timeout-ms", "86400000", *options), **others)
        self.client = self.coordinator.client
        if slots > 0:
            self.worker = ForeignWorker(self.client, slots=slots)

    def wait_queued(self, job_id, what):
        """Waits until a queued job waits for this; returns the text of `waiting`."""
        def look():
            detail = self.client.job(job_id)
            return detail if (detail["waiting"] or {}).get("for") == what else None
        detail = wait_until(look, f"job {job_id} to wait for {what}")
        self.assertEqual(detail["status"], "queued")
        return detail["waiting"]["text"]

    def metrics(self):
        text = self.client.get("/metrics").body.decode()
        return [int(re.search(rf"^{name} (\d+)$", text, re.MULTILINE)[1])
                for name in ("tally_job_memory_bytes", "tally_job_memory_limit_bytes")]

    def test_one_that_alone_needs_more_is_refused(self):
        self.start(LARGE_BYTES, slots=0)
        self.client.submit(plain_job(LARGE))
        for field, document, needed in (
                ("objective.dim", plain_job(LARGE + 1), LARGE_BYTES + 52),
                ("clients", plain_job(1, clients=50_000), 52 + 352 * 50_000 + (192 << 10)),
                ("objective.data.points",
                 {**plain_job(1), "objective": {"type": "least_squares", "data": {
                     "type": "synthetic_linear", "dim": 1000, "points": 4000}}, "reference": {"type": "solve"}},
                 4000 * (8 * 1000 + 16) + 80 * 1000 + 24 * 1000 * 1000)):
            with self.subTest(field):
                problem = self.assert_problem(self.client.post_job(document), 400, field)
                self.assertIn(f"{needed} bytes", problem["detail"])
                self.assertIn(f"--max-job-bytes {LARGE_BYTES}", problem["detail"])
        self.assertEqual(len(self.client.get_json("/v1/jobs")["jobs"]), 1)

    def test_a_state_that_no_store_takes_is_refused(self):
        """SQLite refuses values of more than 10^9 bytes. A job with such a state would block all others."""
        self.start(1 << 40, slots=0)
        document = plain_job(1_000_000, "ef21", clients=112)
        document["algorithm"] |= {"local_steps": 1, "k": 1}
        problem = self.assert_problem(self.client.post_job(document), 400, "clients")
        self.assertIn("904005376 bytes; the limit is 900000000", problem["detail"])
        self.client.submit({**document, "clients": 111})

    def test_one_that_does_not_fit_yet_waits_and_is_not_overtaken(self):
        self.start(2 * LARGE_BYTES - 1)
        first, second, small = (self.client.submit(plain_job(dim)) for dim in (LARGE, LARGE, 10))
        self.client.wait_status(first, "running")
        text = self.wait_queued(second, "memory")
        self.assertIn(f"needs {LARGE_BYTES} bytes", text)
        self.assertIn(f"{LARGE_BYTES - 1} of {2 * LARGE_BYTES - 1} ", text)
        # At first it waits for f(x*), which another thread computes.
        self.assertIn("an older job goes first", self.wait_queued(small, "workers"))
        self.assertEqual(self.metrics(), [LARGE_BYTES, 2 * LARGE_BYTES - 1])

        self.client.post(f"/v1/jobs/{first}/pause")  # this may take arbitrarily long, so other jobs overtake it
        self.client.wait_status(small, "running")
        self.wait_queued(second, "memory")
        self.client.post(f"/v1/jobs/{first}/cancel")
        self.client.wait_status(second, "running")
        for job_id in (second, small):
            self.client.post(f"/v1/jobs/{job_id}/cancel")
        wait_until(lambda: self.metrics()[0] == 0, "all memory to be given back")

    def test_solving_waits_as_well(self):
        solved = {**plain_job(1), "objective": {"type": "least_squares", "data": {
            "type": "synthetic_linear", "dim": 2000, "points": 200}}, "reference": {"type": "solve"}}
        self.start(LARGE_BYTES + 1000)
        first = self.client.submit(plain_job(LARGE))
        self.client.wait_status(first, "running")
        second = self.client.submit(solved)
        self.assertIn("to solve f(x*)", self.wait_queued(second, "memory"))
        self.client.post(f"/v1/jobs/{first}/cancel")
        self.client.wait_status(second, "running")

    def test_started_jobs_go_on_under_a_lower_limit(self):
        self.start(2 * LARGE_BYTES)
        jobs = [self.client.submit(plain_job(LARGE)) for _ in range(2)]
        for job_id in jobs:
            self.client.wait_status(job_id, "running")
        self.client.post(f"/v1/jobs/{jobs[1]}/pause")
        queued = self.client.submit(plain_job(LARGE))
        self.wait_queued(queued, "memory")
        self.coordinator.kill()
        self.start(1 << 20, store=self.coordinator.store)
        self.assertEqual([self.client.job(job_id)["status"] for job_id in jobs], ["running", "paused"])
        self.wait_queued(queued, "memory")
        self.assertIn("max_job_bytes=1048576", self.coordinator.log())
        self.assertIn("job continues although jobs need more", self.coordinator.log())
        self.client.wait_status(self.client.submit(plain_job(10)), "queued")

    def test_one_queued_under_a_higher_limit_says_why_it_cannot_start(self):
        self.start(LARGE_BYTES, slots=0)
        solved = {**plain_job(1), "objective": {"type": "least_squares", "data": {
            "type": "synthetic_linear", "dim": 300, "points": 400}}, "reference": {"type": "solve"}}
        queued, solving, small = (self.client.submit(document) for document in
                                  (plain_job(LARGE), solved, plain_job(10)))
        for job_id in (queued, solving):
            self.wait_queued(job_id, "workers")  # f(x*) is known
        self.coordinator.terminate()
        self.start(1 << 20, store=self.coordinator.store)
        self.assertEqual(self.wait_queued(queued, "memory"), (
            f"waits for memory: the job needs about {LARGE_BYTES} bytes of memory, more than this coordinator's "
            "--max-job-bytes 1048576 (objective.dim); it starts once the coordinator is restarted with a higher limit"))
        self.assertRegex(self.wait_queued(solving, "memory"), r"solving f\(x\*\) of the job needs about \d+ bytes .* 1048576 "
                         r"\(objective\.data\.(points|dim)\); it starts once")
        self.assertEqual(len(re.findall(r"queued job cannot start: memory limit", self.coordinator.log())), 2)
        self.client.wait_status(small, "running")  # it is not held up
        self.client.post(f"/v1/jobs/{small}/cancel")
        self.coordinator.terminate()
        self.start(LARGE_BYTES, store=self.coordinator.store)
        self.client.wait_status(queued, "running")
        self.client.post(f"/v1/jobs/{queued}/cancel")
        self.client.wait_status(solving, "running")

    @unittest.skipIf(IS_SANITIZED, "sanitizers reserve more address space than any limit")
    def test_a_job_that_cannot_be_loaded_waits(self):
        """If the system provides less memory than the limit allows, the process keeps running, and the job starts once
        there is enough."""
        self.start(1 << 40)
        job_id = self.client.submit(plain_job(10_000_000))
        self.client.wait_status(job_id, "running")
        self.coordinator.terminate()
        self.start(1 << 40, slots=0, store="memory:")
        room = memory_bytes(self.coordinator.pid, "VmSize") + 40 * MIB
        self.coordinator.kill()
        self.start(1 << 40, slots=0, launcher=("prlimit", f"--as={room}:unlimited"),
                   store=f"sqlite:{self.folder}/tally.db")
        waiting = self.client.job(job_id)["waiting"]
        self.assertEqual(waiting["for"], "memory")
        self.assertIn("read back", waiting["text"])
        self.client.submit(plain_job(10))
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(self.coordinator.pid, resource.RLIMIT_AS, unlimited)
        wait_until(lambda: (self.client.job(job_id)["waiting"] or {"for": "clients"})["for"] == "clients",
                   "the job to be loaded")
        self.assertEqual(self.client.job(job_id)["status"], "running")


class Estimated(TallyTestCase):
    """Compares the estimate with the memory of the process. The process keeps up to 64 MiB of freed memory."""

    DIM = 1_000_000
    PARAMETERS = {"ceal": {"sigma": 0.5, "sample_scale": 1e-9, "step_size": 0.1},
                  "fedavg": {"step_size": 0.01, "local_steps": 1},
                  "fedpaq": {"step_size": 0.01, "local_steps": 1, "levels": 4}}

    @unittest.skipIf(IS_SANITIZED, "memory of a sanitizer is measured as well")
    def test_is_not_below_what_is_held(self):
        for algorithm, parameters in self.PARAMETERS.items():
            with self.subTest(algorithm):
                self.measure({"type": algorithm, **parameters})

    def measure(self, algorithm):
        coordinator = self.start_coordinator(name=f"coordinator-{algorithm['type']}",
                                             store=f"sqlite:{self.folder}/{algorithm['type']}.db")
        before = memory_bytes(coordinator.pid)
        worker = self.start_worker(coordinator, f"worker-{algorithm['type']}", clients=2)
        data = {"type": "synthetic_linear", "dim": self.DIM, "points": 2, "frobenius_norm": 10}
        job_id = coordinator.client.submit({
            "algorithm": algorithm, "clients": 2, "horizon": 1000000, "reference": {"type": "none"},
            "objective": {"type": "least_squares", "data": data},
            "initial_point": {"type": "random_sphere", "radius": 5.0}})
        wait_until(lambda: coordinator.client.job(job_id)["iterate"] > 8, "eight broadcasts")
        held = memory_bytes(coordinator.pid) - before
        estimate = 52 * self.DIM
        self.assertLess(held, estimate + 64 * MIB)
        self.assertGreater(held, estimate / 3)
        for process in (worker, coordinator):
            process.kill()


if __name__ == "__main__":
    unittest.main()
