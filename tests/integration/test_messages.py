"""The bits on the wire, counted by somebody else: every message of a job is read with a decoder
written from codec/FORMAT.md, and the sums are the job's counters."""

import unittest

from common import TallyTestCase, essence, job_document, messages, simulate
from recording_proxy import RecordingProxy


def decode_unary(payload, payload_bits, dim):
    """The levels of a unary message (codec/FORMAT.md, section 3): blocks of 64 coordinates, each its
    planes and then its signs; bit i is bit i % 8 of byte i / 8. Raises unless exactly payload_bits are
    used and the padding is zero."""
    bits = [byte >> i & 1 for byte in payload for i in range(8)]
    if len(payload) != (payload_bits + 7) // 8 or any(bits[payload_bits:]):
        raise ValueError("framing")
    stream = iter(bits[:payload_bits])
    levels = [0] * dim
    for first in range(0, dim, 64):
        block = range(first, min(first + 64, dim))
        active = list(block)
        while active:
            active = [i for i in active if next(stream)]
            for i in active:
                levels[i] += 1
        for i in block:
            if levels[i] and next(stream):
                levels[i] = -levels[i]
    if next(stream, None) is not None:
        raise ValueError("bits left over")
    return levels


def costs_of(payload, payload_bits, dim):
    """(formula, payload) bits of a message: d + sum |level|, and that plus the nonzero levels."""
    levels = decode_unary(payload, payload_bits, dim)
    formula = dim + sum(map(abs, levels))
    return formula, formula + sum(level != 0 for level in levels)


class Messages(TallyTestCase):
    def test_every_message_costs_what_is_counted(self):
        document = job_document()
        dim = document["objective"]["data"]["dim"]
        coordinator = self.start_coordinator()
        proxy = RecordingProxy(coordinator.port)
        self.addCleanup(proxy.close)
        url, coordinator.url = coordinator.url, proxy.url
        workers = [self.start_worker(coordinator, f"w{i}", clients=5) for i in range(2)]
        coordinator.url = url
        job_id = coordinator.client.submit(document)
        detail = coordinator.client.wait_status(job_id, "completed")
        self.assertEqual(essence(detail), essence(simulate(document)))
        self.assert_ends_well(*workers, coordinator)

        uplink = {"formula": 0, "payload": 0, "messages": 0, "clipped": 0}
        broadcasts, delivered = {}, 0
        for exchange in proxy.exchanges:
            self.assertEqual(exchange.status, 200)
            if exchange.method == "PostUpdate":
                update = messages.PostUpdateRequest.FromString(exchange.request_body)
                answer = messages.PostUpdateResponse.FromString(exchange.response_body)
                if not update.payload:  # the horizon cut the round: the loss alone, no message
                    self.assertEqual((answer.formula_bits, answer.payload_bits), (0, 0))
                    self.assertTrue(update.HasField("loss"))
                    continue
                formula, payload = costs_of(update.payload, update.payload_bits, dim)
                self.assertEqual(payload, update.payload_bits)
                self.assertEqual((answer.formula_bits, answer.payload_bits), (formula, payload))
                for key, value in zip(uplink, (formula, payload, 1, update.clipped)):
                    uplink[key] += value
            elif exchange.method == "PollTask":
                task = messages.PollTaskResponse.FromString(exchange.response_body).task
                for broadcast in task.broadcasts:
                    broadcasts[broadcast.iterate] = broadcast
                    delivered += broadcast.payload_bits
        self.assertEqual(uplink, detail["bits"]["uplink"])

        downlink = {"formula": 0, "payload": 0}
        for broadcast in broadcasts.values():
            formula, payload = costs_of(broadcast.payload, broadcast.payload_bits, dim)
            self.assertEqual(payload, broadcast.payload_bits)
            downlink["formula"] += formula
            downlink["payload"] += payload
        counted = detail["bits"]["downlink"]
        # The point after the last broadcast may never have been asked for: the horizon ended the job.
        missing = counted["messages"] - len(broadcasts)
        self.assertIn(missing, (0, 1))
        if missing == 0:
            self.assertEqual(downlink, {key: counted[key] for key in downlink})
        # Each of the two workers takes a broadcast once, for all the clients that it plays.
        self.assertEqual(delivered, 2 * downlink["payload"])

    def test_wire_bytes_are_those_on_the_wire(self):
        """Counted are the exchanges that carry a job's messages: tasks and updates."""
        coordinator = self.start_coordinator()
        proxy = RecordingProxy(coordinator.port)
        self.addCleanup(proxy.close)
        url, coordinator.url = coordinator.url, proxy.url
        worker = self.start_worker(coordinator, "w", clients=10)
        coordinator.url = url
        job_id = coordinator.client.submit(job_document())
        detail = coordinator.client.wait_status(job_id, "completed")
        self.assert_ends_well(worker, coordinator)

        carrying = [
            exchange
            for exchange in proxy.exchanges
            if exchange.method == "PostUpdate"
            or exchange.method == "PollTask"
            and messages.PollTaskResponse.FromString(exchange.response_body).WhichOneof("kind") == "task"
        ]
        wire = detail["bits"]["wire_bytes"]
        self.assertEqual(wire["in"], sum(len(exchange.request) for exchange in carrying))
        self.assertEqual(wire["out"], sum(len(exchange.response) for exchange in carrying))


if __name__ == "__main__":
    unittest.main()
