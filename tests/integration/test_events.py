"""Live events and the thinned-out series agree with the list of rounds."""

import contextlib
import http.client
import json
import math
import random
import socket
import time
import unittest

from common import ENDLESS, TallyTestCase, cpu_seconds, job_document, wait_until
from databases import edited_database
from event_stream import COLUMNS, Stream, assert_same_rounds, running_totals

LONG_JOB = "synthetic-ceal-long"
TERMINAL = ("completed", "failed", "cancelled")


def expected_rows(records):
    """Returns the expected rows of a series that contains all rounds."""
    return [
        [record["round"], record["t"], record["k"], record["j"], record["samples"], record["norm"],
         record["passed"], record["cut"], record["loss"], *totals.values(), record["closed_ms"]]
        for record, totals in zip(records, running_totals(records))
    ]


def threads_of(process):
    with open(f"/proc/{process.pid}/status") as status:
        return int(next(line for line in status if line.startswith("Threads:")).split()[1])


class EventsTestCase(TallyTestCase):
    def start(self, *options, workers=True, **more):
        self.coordinator = self.start_coordinator(options=options, **more)
        self.client = self.coordinator.client
        if workers:
            self.start_worker(self.coordinator, "w", clients=10)

    def restart(self):
        self.coordinator = self.start_coordinator(
            port=self.coordinator.port, store=self.coordinator.store
        )
        self.client = self.coordinator.client

    def stream(self, job_id, **options):
        stream = Stream(self.coordinator.port, job_id, **options)
        self.addCleanup(stream.close)
        return stream

    def opened(self, job_id, **options):
        stream = self.stream(job_id, **options)
        self.assertEqual(stream.status, 200)
        return stream

    def finished_job(self, **changes):
        job_id = self.client.submit(job_document(**changes))
        self.client.wait_status(job_id, "completed")
        return job_id

    def assert_same_rounds(self, events, job_id, after=0):
        assert_same_rounds(self, events, self.client.rounds(job_id), after)


class Events(EventsTestCase):
    def told_of(self, job_id):
        """The detail as events have it: without `provenance`, which would be most of each."""
        detail = self.client.job(job_id)
        self.assertIsNotNone(detail.pop("provenance"))
        return detail

    def test_the_whole_course_of_a_job(self):
        self.start(workers=False)
        job_id = self.client.submit(job_document(LONG_JOB, horizon=3000))
        stream = self.opened(job_id, after=0)
        self.assertEqual(stream.response.headers["Content-Type"], "text/event-stream")
        self.assertEqual(stream.response.headers["Cache-Control"], "no-store")
        self.start_worker(self.coordinator, "w", clients=10)
        started = time.monotonic()
        events = list(stream.events())
        took_s = time.monotonic() - started
        self.assertEqual(stream.retry, 1000)
        rounds = [data for name, data in events if name == "round"]
        self.assertGreater(len(rounds), 1000)
        self.assert_same_rounds(rounds, job_id)
        # A detail comes first, at every change of status, otherwise once a second, and last.
        jobs = [data for name, data in events if name == "job"]
        self.assertEqual(events[0], ("job", jobs[0]))
        self.assertEqual(events[-1], ("job", jobs[-1]))
        statuses = [job["status"] for job in jobs]
        self.assertEqual((statuses[0], statuses[-1]), ("queued", "completed"))
        self.assertIn("running", statuses)
        self.assertEqual(sorted(statuses, key=["queued", "running", "completed"].index), statuses)
        self.assertLessEqual(len(jobs), 4 + took_s)
        self.assertEqual([job["round"] for job in jobs], sorted(job["round"] for job in jobs))
        self.assertEqual(jobs[-1], self.told_of(job_id))

    def test_status_changes_are_told(self):
        self.start()
        job_id = self.client.submit(job_document(LONG_JOB, horizon=ENDLESS))
        stream = self.opened(job_id)
        stream.until(lambda name, data: name == "job" and data["status"] == "running")
        for verb, status in (("pause", "paused"), ("resume", "running"), ("cancel", "cancelled")):
            self.assertEqual(self.client.post(f"/v1/jobs/{job_id}/{verb}").status, 200)
            detail = stream.until(lambda name, data: name == "job" and data["status"] == status)
        self.assertEqual(list(stream.events()), [], "the job event is the last one")
        self.assertEqual(detail, self.told_of(job_id))

    def test_readers_resume_without_gap_or_double(self):
        self.start()
        job_id = self.client.submit(job_document(LONG_JOB, horizon=4000))
        rounds, connections = [], 0
        while True:
            last = rounds[-1]["round"] if rounds else 0
            # The header takes precedence over the query, which EventSource repeats unchanged.
            how = {"after": last} if connections % 2 == 0 else {"after": 0, "last_event_id": last}
            stream = self.stream(job_id, **how)
            connections += 1
            if stream.status == 204:
                break
            self.assertEqual(stream.status, 200)
            quota = random.randrange(1, 400)
            for data in stream.rounds():
                self.assertEqual(data["round"], len(rounds) + 1)
                rounds.append(data)
                quota -= 1
                if quota == 0:
                    break
            stream.close()
        self.assertGreater(connections, 5)
        self.assert_same_rounds(rounds, job_id)

    def test_from_now_on(self):
        self.start()
        job_id = self.client.submit(job_document(LONG_JOB, horizon=4000))
        wait_until(lambda: self.client.job(job_id)["round"] > 10, "some rounds")
        stream = self.opened(job_id)
        first = next(stream.events())
        self.assertEqual(first[0], "job")
        begin = stream.last_id
        self.assertGreater(begin, 10)
        self.assertGreaterEqual(first[1]["round"], begin)
        self.assert_same_rounds(list(stream.rounds()), job_id, after=begin)

    def test_terminal_job(self):
        self.start()
        job_id = self.finished_job()
        detail = self.told_of(job_id)
        last = detail["round"]
        for how in ({"last_event_id": last}, {"after": last}):
            stream = self.stream(job_id, **how)
            self.assertEqual((stream.status, stream.response.read()), (204, b""))
        stream = self.opened(job_id)
        self.assertEqual(list(stream.events()), [("job", detail)])
        self.assertEqual(stream.last_id, last, "so that EventSource resumes there and is told 204")
        events = list(self.opened(job_id, after=last - 1).events())
        self.assertEqual([name for name, _ in events], ["job", "round", "job"])
        self.assertEqual(events[-1][1], detail)
        self.assert_same_rounds(list(self.opened(job_id, last_event_id=3).rounds()), job_id, after=3)

    def test_bad_requests(self):
        self.start()
        job_id = self.finished_job()
        path = f"/v1/jobs/{job_id}/events"
        bad = ("", "x", "-1", "+1", "1.0", "1e3", "0x1", "%201", "9" * 18, "9" * 19, "1" * 500)
        for value in bad:
            self.assert_problem(self.client.get(f"{path}?after={value}"), 400, "after")
        for value in ("x", "-1", "1 2", "10000", "9" * 30):
            answer = self.client.request("GET", path, headers={"Last-Event-ID": value})
            self.assert_problem(answer, 400, "Last-Event-ID")
        self.assert_problem(self.client.get("/v1/jobs/000000000000/events"), 404)
        self.assert_problem(self.client.post(path), 405)
        head = self.client.request("HEAD", path)
        self.assertEqual((head.status, head.type, head.body), (200, "text/event-stream", b""))

    def test_tokens(self):
        for role in ("admin", "worker"):
            with open(f"{self.folder}/{role}", "w") as file:
                file.write(f"{role}-token-0123456789\n")
        self.start("--admin-token-file", f"{self.folder}/admin",
                   "--worker-token-file", f"{self.folder}/worker", workers=False)
        bearer = {"Authorization": "Bearer admin-token-0123456789"}
        document = json.dumps(job_document())
        job_id = self.client.request("POST", "/v1/jobs", document,
                                     {"Content-Type": "application/json", **bearer}).json()["id"]
        for path in ("events", "series"):
            path = f"/v1/jobs/{job_id}/{path}"
            self.assert_problem(self.client.get(path), 401)
            for token, status in (("worker-token-0123456789", 403), ("x", 401), ("", 401)):
                answer = self.client.request("GET", path, headers={"Authorization": f"Bearer {token}"})
                self.assert_problem(answer, status)
        stream = self.opened(job_id, headers=bearer)
        self.assertEqual(next(stream.events())[1]["id"], job_id)
        series = self.client.request("GET", f"/v1/jobs/{job_id}/series", headers=bearer).json()
        self.assertEqual((series["rounds"], series["rows"]), (0, []))

    def test_heartbeat(self):
        self.start("--heartbeat-ms", "300", workers=False)
        job_id = self.client.submit(job_document())
        wait_until(lambda: self.client.job(job_id)["waiting"]["for"] == "workers", "f(x*)")
        started = time.monotonic()  # before the first event is sent, even if the client reads it much later
        stream = self.opened(job_id)
        items = stream.items()
        self.assertEqual(next(items)[0], "job")
        self.assertEqual([next(items) for _ in range(3)], [("comment", "heartbeat")] * 3)
        self.assertGreater(time.monotonic() - started, 0.8, "only after silence")

    def test_coordinator_killed_under_a_stream(self):
        self.start()
        job_id = self.client.submit(job_document(LONG_JOB, horizon=ENDLESS))
        rounds = []
        for _ in range(3):
            stream = self.opened(job_id, last_event_id=len(rounds))
            quota = random.randrange(200, 500)
            with contextlib.suppress(http.client.IncompleteRead, ConnectionError):
                for data in stream.rounds():
                    rounds.append(data)
                    quota -= 1
                    if quota == 0:
                        self.coordinator.kill()
            self.assertFalse(self.coordinator.is_alive())
            self.restart()
            # Every event that was received is durable.
            self.assertGreaterEqual(self.client.job(job_id)["round"], len(rounds))
        self.assertEqual(self.client.job(job_id)["status"], "running")
        last = self.opened(job_id, last_event_id=len(rounds))
        self.client.wait_rounds(job_id, 20)
        self.client.post(f"/v1/jobs/{job_id}/cancel")
        rounds += last.rounds()
        self.assert_same_rounds(rounds, job_id)

    def test_slow_readers_hinder_nobody_and_are_dropped(self):
        self.start("--idle-timeout-s", "2")
        job_id = self.client.submit(job_document(LONG_JOB, horizon=6000))
        slow = []
        for _ in range(20):
            connection = socket.socket()
            self.addCleanup(connection.close)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", self.coordinator.port))
            connection.sendall(f"GET /v1/jobs/{job_id}/events?after=0 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            slow.append(connection)
        rounds = list(self.opened(job_id, after=0).rounds())
        self.assert_same_rounds(rounds, job_id)
        text_bytes = sum(len(json.dumps(data)) for data in rounds)
        self.assertGreater(text_bytes, 1 << 20, "more than buffers hold")
        gauge = "tally_event_streams 0"
        wait_until(lambda: gauge in self.client.get("/metrics").body.decode().splitlines(),
                   "all streams to be closed")
        for connection in slow:
            received = b""
            with contextlib.suppress(ConnectionError):
                while piece := connection.recv(65536):
                    received += piece
            self.assertLess(len(received), text_bytes // 2)
            self.assertNotIn(b"\r\n0\r\n\r\n", received, "it was cut, not ended")

    def test_full_readers_cost_no_time(self):
        """There are more readers, each at a different position, than one turn of the event loop prepares events for."""
        self.start()
        job_id = self.client.submit(job_document(LONG_JOB, horizon=3000))
        self.client.wait_status(job_id, "completed")
        for after in range(24):
            connection = socket.socket()
            self.addCleanup(connection.close)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", self.coordinator.port))
            connection.sendall(f"GET /v1/jobs/{job_id}/events?after={after} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

        def share():
            before, started = cpu_seconds(self.coordinator), time.monotonic()
            time.sleep(0.5)  # the measured interval
            return (cpu_seconds(self.coordinator) - before) / (time.monotonic() - started)

        wait_until(lambda: share() < 0.05, "the coordinator to rest")

    def test_five_hundred_streams(self):
        self.start("--heartbeat-ms", "500", workers=False)
        threads = threads_of(self.coordinator)
        job_id = self.client.submit(job_document())
        # f(x*) is computed in a thread of its own, which may have ended or not; it is unrelated to the streams.
        streams = [self.opened(job_id, after=0) for _ in range(500)]
        iterators = [stream.events() for stream in streams]
        for iterator in iterators:
            self.assertEqual(next(iterator)[1]["status"], "queued")
        self.assertLessEqual(threads_of(self.coordinator), threads)
        self.start_worker(self.coordinator, "w", clients=10)
        for iterator in iterators:
            events = list(iterator)
            self.assertEqual(events[-1][1]["status"], "completed")
            numbers = [data["round"] for name, data in events if name == "round"]
            self.assertEqual(numbers, list(range(1, events[-1][1]["round"] + 1)))
        self.assertLessEqual(threads_of(self.coordinator), threads)

    def test_streams_are_limited(self):
        self.start("--max-streams", "2", workers=False)
        job_id = self.client.submit(job_document())
        first, second = self.opened(job_id), self.opened(job_id)
        problem = self.assert_problem(self.client.get(f"/v1/jobs/{job_id}/events"), 429)
        self.assertEqual(problem["code"], "resource_exhausted")
        first.close()

        def again():
            stream = self.stream(job_id)
            return stream if stream.status == 200 else None

        third = wait_until(again, "the place of the stream that was closed")
        for stream in (second, third):
            self.assertEqual(next(stream.events())[0], "job")

    def test_drain_ends_streams(self):
        self.start(workers=False)
        job_id = self.client.submit(job_document())
        stream = self.opened(job_id)
        events = stream.events()
        self.assertEqual(next(events)[0], "job")
        self.assert_ends_well(self.coordinator)
        self.assertEqual(list(events), [], "an orderly end")


class Series(EventsTestCase):
    def series(self, job_id, points=None):
        query = "" if points is None else f"?points={points}"
        series = self.client.get_json(f"/v1/jobs/{job_id}/series{query}")
        self.assertEqual(series["columns"], COLUMNS)
        self.assertEqual(series["job_id"], job_id)
        return series

    def assert_thinned(self, series, rows, points):
        """There are at most this many rows. All of them are exact, and the ends and extremes are included."""
        self.assertTrue(series["reduced"])
        self.assertEqual(series["rounds"], len(rows))
        self.assertLessEqual(len(series["rows"]), points)
        numbers = [row[0] for row in series["rows"]]
        self.assertEqual(numbers, sorted(set(numbers)))
        self.assertEqual((numbers[0], numbers[-1]), (1, len(rows)))
        for row in series["rows"]:
            self.assertEqual(row, rows[row[0] - 1])
        for column in (COLUMNS.index("norm"), COLUMNS.index("loss")):
            kept = [row[column] for row in series["rows"]]
            everything = [row[column] for row in rows]
            self.assertEqual((min(kept), max(kept)), (min(everything), max(everything)))

    def test_of_a_finished_job(self):
        self.start()
        job_id = self.client.submit(job_document(LONG_JOB, horizon=3000))
        self.client.wait_status(job_id, "completed")
        rows = expected_rows(self.client.rounds(job_id))
        self.assertGreater(len(rows), 1000)
        for points in (10000, len(rows)):
            series = self.series(job_id, points)
            self.assertEqual(series["rows"], rows)
            self.assertEqual((series["status"], series["reduced"]), ("completed", False))
        for points in (len(rows) - 1, 500, 37, 10):
            self.assert_thinned(self.series(job_id, points), rows, points)
        self.assert_thinned(self.series(job_id), rows, 1000)
        for points in ("9", "10001", "0", "-1", "x", "", "1e3", "9" * 30):
            self.assert_problem(
                self.client.get(f"/v1/jobs/{job_id}/series?points={points}"), 400, "points"
            )
        self.assert_problem(self.client.get("/v1/jobs/000000000000/series"), 404)

    def test_grows_with_the_job(self):
        self.start()
        job_id = self.client.submit(job_document(LONG_JOB, horizon=4000))
        seen = []
        while not seen or seen[-1]["status"] not in TERMINAL:
            seen.append(self.series(job_id, 10000))
            # A stream continues from where the series ends.
            self.assertEqual(len(seen[-1]["rows"]), seen[-1]["rounds"])
        self.assertGreater(len({series["rounds"] for series in seen}), 3)
        rows = expected_rows(self.client.rounds(job_id))
        for series in seen:
            self.assertEqual(series["rows"], rows[: series["rounds"]])

    def test_more_jobs_than_are_remembered(self):
        self.start()
        ids = [self.client.submit(job_document(seed=seed)) for seed in range(20)]
        for job_id in ids:
            self.client.wait_status(job_id, "completed")
        expected = {job_id: expected_rows(self.client.rounds(job_id)) for job_id in ids}
        for job_id in [*ids, *ids, *reversed(ids)]:
            self.assertEqual(self.series(job_id)["rows"], expected[job_id])

    def test_hundred_thousand_rounds(self):
        self.start()
        job_id = self.finished_job()
        self.coordinator.terminate()
        n = 100000
        self.lengthen(job_id, n)
        self.restart()
        started = time.monotonic()
        first = self.series(job_id)
        first_s = time.monotonic() - started
        started = time.monotonic()
        self.assertEqual(self.series(job_id), first)
        print(f"\nseries of {n} rounds: {first_s:.3f} s, then {time.monotonic() - started:.3f} s",
              flush=True)
        started = time.monotonic()
        rounds = list(self.opened(job_id, after=0).rounds())
        print(f"events of {n} rounds: {time.monotonic() - started:.3f} s", flush=True)
        self.assertEqual([data["round"] for data in rounds], list(range(1, n + 1)))
        records = self.client.rounds(job_id)
        rows = expected_rows(records)
        for points in (10, 1000, 10000):
            self.assert_thinned(self.series(job_id, points), rows, points)
        # Totals are exact even between the rows that were kept.
        totals = running_totals(records)
        for after in (1, 12345, 77777, n - 1):
            data = next(self.opened(job_id, last_event_id=after).rounds())
            self.assertEqual((data["round"], data["totals"]), (after + 1, totals[after]))
        self.assertEqual(rounds[-1]["totals"], totals[-1])

    def lengthen(self, job_id, n):
        """Gives a completed job n round records, as if it had run that long."""
        with edited_database(self.coordinator.store.removeprefix("sqlite:")) as db:
            key, last = db.execute("SELECT job_key, round FROM jobs WHERE id = ?", (job_id,)).fetchone()
            names = [row[1] for row in db.execute("PRAGMA table_info(rounds)")]
            pattern = dict(zip(names, db.execute(
                "SELECT * FROM rounds WHERE job_key = ? AND round = 2", (key,)).fetchone()))
            generator = random.Random(1)

            def record(number):
                return {**pattern, "round": number, "time_step": number, "norm": generator.random(),
                        "loss": math.exp(generator.gauss(0, 1)), "cumulative_regret": number / 7}

            marks = ",".join("?" * len(names))
            db.executemany(f"INSERT INTO rounds ({','.join(names)}) VALUES ({marks})",
                           (tuple(record(number).values()) for number in range(last + 1, n + 1)))
            db.execute("UPDATE jobs SET round = ? WHERE job_key = ?", (n, key))


if __name__ == "__main__":
    unittest.main()
