"""Which worker serves which client when workers have left since the jobs started."""

import unittest

from common import HANG_S, ForeignWorker, TallyTestCase, job_document, wait_until


class Slots(TallyTestCase):
    def start_job(self, client, name, workers):
        """Starts a job of two clients, and a worker for each."""
        job_id = client.submit(job_document(clients=2, quorum=2, horizon=200, name=name,
                                            reference={"type": "value", "value": 0}))
        pair = [ForeignWorker(client, worker) for worker in workers]
        for worker in pair:
            self.assertEqual(worker.poll_task().job_id, job_id)
        return job_id, pair

    def play(self, worker):
        """Answers the worker's task, if one arrives within 50 ms."""
        answer = worker.poll(wait_ms=50)
        if answer.WhichOneof("kind") == "task":
            worker.cursors[answer.task.job_id] = answer.task.iterate
            for index in answer.task.clients:
                worker.post(worker.update(answer.task, index))

    def play_until_completed(self, client, job_id, workers):
        def look():
            for worker in workers:
                self.play(worker)
            return client.job(job_id)["status"] == "completed"

        wait_until(look, f"job {job_id} to complete", HANG_S)

    def test_jobs_that_all_lack_workers_do_not_wait_for_each_other(self):
        client = self.start_coordinator().client
        older, (first, gone) = self.start_job(client, "older", ["a", "b"])
        younger, (second, gone_too) = self.start_job(client, "younger", ["c", "d"])
        gone.leave()
        gone_too.leave()
        # Each job has one worker left; together they can serve one job.
        self.play_until_completed(client, older, [first, second])
        self.assertEqual(client.job(younger)["status"], "running")
        self.play_until_completed(client, younger, [first, second])

    def test_a_worker_serves_its_jobs_in_turns_however_many_clients_they_have(self):
        client = self.start_coordinator().client
        large, small = (client.submit(job_document(clients=clients, quorum=clients, horizon=200000,
                                                   name=name, reference={"type": "value", "value": 0}))
                        for clients, name in ((9, "large"), (1, "small")))
        worker = ForeignWorker(client, slots=10)
        wait_until(lambda: client.job(large)["status"] == client.job(small)["status"] == "running", "both to run")
        played = []
        for _ in range(6):
            task = worker.poll_task()
            worker.cursors[task.job_id] = task.iterate
            played.append(task.job_id)
            for index in task.clients:
                worker.post(worker.update(task, index))
        self.assertEqual(played.count(large), 3, played)


if __name__ == "__main__":
    unittest.main()
