"""Jobs whose messages are compressed both ways: the service, the simulation, crashes, and the bits."""

import json
import unittest

from common import TallyTestCase, Worker, essence, simulate, sum_of_rounds, wait_until
from test_training import TRAINER, training_job

AUTO = {"type": "fedavg", "step_size": 0.05, "local_steps": 5, "compression": "auto"}


def job(algorithm, **changes):
    return {
        "objective": {"type": "least_squares", "data": {"type": "synthetic_linear", "dim": 100, "points": 600}},
        "algorithm": algorithm, "clients": 6, "horizon": 30, "seed": 5,
        "initial_point": {"type": "random_sphere", "radius": 1}, **changes}


JOBS = {
    "auto": job(AUTO),
    "resolutions": job(AUTO | {"compression": {"uplink_resolution": 3, "downlink_resolution": 2}}),
    "fedprox": job(AUTO | {"type": "fedprox", "mu": 0.1}),
    "optimizer": job(AUTO | {"server_optimizer": {"type": "fedadam", "step_size": 0.1}}),
    "schedule": job(AUTO | {"step_decay": 0.01, "local_steps_growth": 0.1}),
    "cohort": job(AUTO, cohort=3),
    "alone": job(AUTO, cohort=1),
    "over-selection": job(AUTO, cohort=3, over_selection=0.5),
    "weights": job(AUTO, weighting="points", clients=7),
    "domain": job(AUTO, domain={"type": "ball", "radius": 0.9}),
    # Messages from 2^18 coordinates on have another form.
    "long": job(AUTO | {"step_size": 1e-6}, reference={"type": "none"}, horizon=15, weighting="points", clients=7,
                objective={"type": "least_squares", "data": {"type": "synthetic_linear", "dim": 262200, "points": 21}}),
}


class Compression(TallyTestCase):
    def start_worker(self, coordinator, name, clients, *options):
        worker = Worker(self.folder, coordinator.url, name, clients=clients, options=options)
        self.processes.append(worker)
        return worker

    def test_the_service_equals_the_simulation(self):
        coordinator = self.start_coordinator()
        self.start_worker(coordinator, "a", 4)
        self.start_worker(coordinator, "b", 3)
        for name, document in JOBS.items():
            with self.subTest(name):
                detail = coordinator.client.wait_status(coordinator.client.submit(document), "completed")
                if name != "over-selection":  # whose first answers count, in the order of their arrival
                    self.assertEqual(essence(detail), essence(simulate(document)))
                self.assertEqual(detail["algorithm"]["compression"], document["algorithm"]["compression"])
                records = coordinator.client.rounds(detail["id"])
                self.assertEqual(sum_of_rounds(records), sum_of_rounds([detail]))

    def test_it_costs_little_and_harms_little(self):
        plain = simulate(job({key: value for key, value in AUTO.items() if key != "compression"}))
        compressed = simulate(job(AUTO))
        for way in ("uplink", "downlink"):
            self.assertLess(compressed["bits"][way]["payload"], plain["bits"][way]["payload"] / 8)
        gain = [detail["loss"] - detail["f_star"] for detail in (plain, compressed)]
        self.assertLess(gain[1], 1.1 * gain[0])

    def test_no_job_takes_more_bits_than_are_expected_at_most(self):
        coordinator = self.start_coordinator(store="memory:")
        for resolution in 0.001, 0.03, 1:
            with self.subTest(resolution):
                document = job(AUTO | {"compression": {"uplink_resolution": resolution, "downlink_resolution": resolution}})
                answer = coordinator.client.request("POST", "/v1/jobs?dry_run=1", json.dumps(document).encode(),
                                                    {"Content-Type": "application/json"})
                expected, bits = answer.json()["expected_bits"], simulate(document)["bits"]
                self.assertFalse(expected["is_exact"])
                self.assertLess(bits["uplink_per_client"]["payload"], expected["uplink_per_client"])
                self.assertLess(bits["downlink"]["payload"], expected["downlink"])

    def test_crashes_change_nothing(self):
        document = training_job(horizon=400, weighting="points", algorithm={"type": "fedavg", "compression": "auto"})
        expected = simulate(document, ("--plugin", TRAINER))
        coordinator = self.start_coordinator()
        worker = self.start_worker(coordinator, "a", 3, "--plugin", TRAINER)
        job_id = coordinator.client.submit(document)
        wait_until(lambda: coordinator.client.job(job_id)["round"] >= 20, "some rounds")
        coordinator.kill()
        coordinator = self.start_coordinator(port=coordinator.port, store=coordinator.store)
        seen = coordinator.client.job(job_id)["round"]
        wait_until(lambda: coordinator.client.job(job_id)["round"] > min(seen + 10, 390), "more rounds")
        worker.kill()
        self.start_worker(coordinator, "a", 3, "--plugin", TRAINER)
        self.assertEqual(essence(coordinator.client.wait_status(job_id, "completed")), essence(expected))

    def test_mistakes_are_named(self):
        client = self.start_coordinator().client
        for compression, field, said in (
            ("automatic", "algorithm.compression", "not one of"),
            (8, "algorithm.compression", "must be"),
            (None, "algorithm.compression", "must be"),
            ({"uplink_resolution": 8}, "algorithm.compression.downlink_resolution", "is missing"),
            ({"uplink_resolution": 0, "downlink_resolution": 1}, "algorithm.compression.uplink_resolution", "outside"),
            ({"uplink_resolution": 1, "downlink_resolution": 1e9}, "algorithm.compression.downlink_resolution",
             "outside"),
            ({"uplink_resolution": 1, "downlink_resolution": 1, "dither": 1}, "algorithm.compression.dither",
             "unknown key"),
        ):
            with self.subTest(compression):
                answer = client.post_job(job(AUTO | {"compression": compression}))
                self.assertEqual((answer.status, answer.json()["field"]), (400, field))
                self.assertIn(said, answer.json()["detail"])
        answer = client.post_job(job({"type": "fedpaq", "step_size": 1, "local_steps": 1, "levels": 3,
                                      "compression": "auto"}))
        self.assertEqual((answer.status, answer.json()["field"]), (400, "algorithm.compression"))


if __name__ == "__main__":
    unittest.main()
