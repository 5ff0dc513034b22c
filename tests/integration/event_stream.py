"""A reader of server-sent events, and checks of what it read."""

import http.client
import json

from common import SILENCE_S

COLUMNS = ["round", "time_step", "iterate", "stage", "samples", "norm", "passed", "cut", "loss",
           "cumulative_regret", "uplink_formula", "uplink_payload", "downlink_formula",
           "downlink_payload", "uplink_messages", "downlink_messages", "control", "telemetry",
           "closed_ms"]


class Stream:
    """A reader of an event stream, written from the standard for server-sent events."""

    def __init__(self, port, job_id, last_event_id=None, after=None, headers=None, timeout_s=SILENCE_S,
                 host="127.0.0.1"):
        self.connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
        path = f"/v1/jobs/{job_id}/events" + ("" if after is None else f"?after={after}")
        headers = dict(headers or {})
        if last_event_id is not None:
            headers["Last-Event-ID"] = str(last_event_id)
        self.connection.request("GET", path, headers=headers)
        self.response = self.connection.getresponse()
        self.status = self.response.status
        self.last_id = None
        self.retry = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.response.close()
        self.connection.close()

    def lines(self):
        """Yields complete lines. readline() would hide that a chunked body was cut short."""
        rest = b""
        while piece := self.response.read1(65536):
            *lines, rest = (rest + piece).split(b"\n")
            yield from (line.decode() for line in lines)
        assert rest == b"", rest

    def items(self):
        """Yields ("job" or "round", data) for every event, and ("comment", text), until the stream ends; raises
        IncompleteRead or ConnectionError if it breaks."""
        name, data = "message", []
        for line in self.lines():
            if line.startswith(":"):
                yield "comment", line[1:].strip()
            elif line:
                field, _, value = line.partition(": ")
                if field == "event":
                    name = value
                elif field == "data":
                    data.append(value)
                elif field == "id":
                    self.last_id = int(value)
                elif field == "retry":
                    self.retry = int(value)
                else:
                    raise AssertionError(f"unknown field in {line!r}")
            elif data:
                yield name, json.loads("\n".join(data))
                name, data = "message", []
            else:
                name = "message"

    def events(self):
        return (item for item in self.items() if item[0] != "comment")

    def rounds(self):
        """Yields the rounds until the stream ends; each has its number as id."""
        for name, data in self.events():
            if name == "round":
                assert self.last_id == data["round"], (self.last_id, data)
                yield data

    def until(self, wanted):
        """Reads up to the first item for which wanted(name, data) is true."""
        for name, data in self.items():
            if wanted(name, data):
                return data
        raise AssertionError("the stream ended")


def running_totals(records):
    """Returns the expected `totals` after each round of the job."""
    sums = dict.fromkeys(COLUMNS[10:-1], 0)
    totals = []
    for record in records:
        bits = record["bits"]
        for way in ("uplink", "downlink"):
            for key in ("formula", "payload", "messages"):
                sums[f"{way}_{key}"] += bits[way][key]
        sums["control"] += bits["control"]
        sums["telemetry"] += bits["telemetry"]
        totals.append({"cumulative_regret": record["regret"], **sums})
    return totals


def assert_same_rounds(test, events, records, after=0):
    """Checks that each round came once, in order, equal to the list of rounds, with exact totals."""
    totals = running_totals(records)
    test.assertEqual([event["round"] for event in events],
                     [record["round"] for record in records[after:]])
    for event, record, total in zip(events, records[after:], totals[after:]):
        event = dict(event)
        test.assertEqual(event.pop("totals"), total)
        test.assertEqual(event, record)
