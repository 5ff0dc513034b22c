"""A bad link between two network namespaces: slow, long, lossy, broken now and then, or behind a NAT that forgets.

    link.py '{"up_bytes_per_s": 20000, "down_bytes_per_s": 20000, "delay_ms": 300, "loss": 0.05, "seed": 1,
              "good_s": 20, "broken_s": 5, "forget_s": 30}'

Two TUN devices, `near` and `far`, are its ends. A packet that is written to one is read from the other, later or never.
That needs neither a kernel module for shaping (netem is missing in many) nor privileges outside a namespace. The class
Link makes the namespaces. Members of the JSON object that are absent do not apply.

The queue of each direction holds QUEUE_S of its rate, but never fewer than QUEUE_PACKETS: what does not fit is dropped.
`broken_s` after every `good_s`, all packets are dropped. With `forget_s`, a flow (TCP or UDP, by addresses and ports)
that was idle for so long is forgotten, and its packets vanish without an answer; only a SYN from the far end
begins a flow."""

import contextlib
import fcntl
import heapq
import json
import os
import random
import select
import struct
import subprocess
import sys
import time
from pathlib import Path

from namespaces import CLONE_NEWNET, DIES_WITH_US, run, skip, unshare

MTU = 1500
QUEUE_S = 1.0
QUEUE_PACKETS = 20
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
SYN = 0x02
NEAR, FAR = "10.9.0.1", "10.9.0.2"


def open_tun(name):
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    return fd


class Direction:
    def __init__(self, out, bytes_per_s):
        self.out, self.bytes_per_s, self.free_at = out, bytes_per_s, 0.0
        self.queue_s = 0.0 if bytes_per_s is None else max(QUEUE_S, QUEUE_PACKETS * MTU / bytes_per_s)

    def sent_at(self, now, size):
        """Returns when the packet has been sent; None = the queue is full."""
        if self.bytes_per_s is None:
            return now
        begin = max(now, self.free_at)
        if begin - now > self.queue_s:
            return None
        self.free_at = begin + size / self.bytes_per_s
        return self.free_at


class Forgetful:
    """The flows that a NAT knows."""

    def __init__(self, forget_s):
        self.forget_s, self.seen = forget_s, {}

    def passes(self, packet, is_up, now):
        if packet[0] >> 4 != 4 or packet[9] not in (6, 17):
            return True
        head = (packet[0] & 15) * 4
        ends = [packet[12:16] + packet[head:head + 2], packet[16:20] + packet[head + 2:head + 4]]
        flow = tuple(ends if is_up else reversed(ends))
        begins = is_up and packet[9] == 6 and packet[head + 13] & SYN
        if not begins and now - self.seen.get(flow, -self.forget_s) >= self.forget_s:
            return False
        self.seen[flow] = now
        return True


def forward(settings):
    near, far = open_tun("near"), open_tun("far")
    print("ready", flush=True)
    chance = random.Random(settings.get("seed", 0))
    ways = {far: Direction(near, settings.get("up_bytes_per_s")),
            near: Direction(far, settings.get("down_bytes_per_s"))}
    delay_s, loss = settings.get("delay_ms", 0) / 1000, settings.get("loss", 0)
    good_s, broken_s = settings.get("good_s", 0), settings.get("broken_s", 0)
    flows = Forgetful(settings["forget_s"]) if "forget_s" in settings else None
    under_way, n = [], 0  # (time, number, descriptor, packet)
    began = time.monotonic()
    poll = select.poll()
    for fd in ways:
        poll.register(fd, select.POLLIN)
    poll.register(sys.stdin, select.POLLHUP)
    while True:
        wait_s = max(0, under_way[0][0] - time.monotonic()) if under_way else None
        events = poll.poll(None if wait_s is None else wait_s * 1000)
        now = time.monotonic()
        while under_way and under_way[0][0] <= now:
            _, _, out, packet = heapq.heappop(under_way)
            with contextlib.suppress(OSError):  # that end is not up yet
                os.write(out, packet)
        for fd, _ in events:
            if fd not in ways:
                return  # the test has ended
            packet = os.read(fd, 65536)
            way = ways[fd]
            is_broken = broken_s > 0 and (now - began) % (good_s + broken_s) >= good_s
            if is_broken or (flows is not None and not flows.passes(packet, fd == far, now)):
                continue
            at = way.sent_at(now, len(packet))
            if at is not None and chance.random() >= loss:
                n += 1
                heapq.heappush(under_way, (at + delay_s, n, way.out, packet))


class Link:
    """The test itself moves to the near end, at the address NEAR, and runs programs at the far end."""

    def __init__(self, **settings):
        if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
            skip("bad links: /dev/net/tun cannot be used")
        unshare(CLONE_NEWNET, "bad links")
        run("ip", "link", "set", "lo", "up")
        self._holder = subprocess.Popen(
            [*DIES_WITH_US, "unshare", "--net", "sh", "-c", "echo; exec cat"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._holder.stdout.readline()  # it has entered its namespace
        self._link = None
        self.become(**settings)

    def become(self, **settings):
        """Replaces the link. Connections survive, as packets are only lost."""
        self._end_link()
        self._link = subprocess.Popen(
            [*DIES_WITH_US, sys.executable, str(Path(__file__)), json.dumps(settings)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if self._link.stdout.readline() != b"ready\n":
            skip("bad links: there is no TUN device")
        run("ip", "link", "set", "far", "netns", self._holder.pid)
        for place, name, own, other in (((), "near", NEAR, FAR), (self.enter(), "far", FAR, NEAR)):
            run(*place, "ip", "address", "add", own, "peer", other, "dev", name)
            run(*place, "ip", "link", "set", "dev", name, "mtu", MTU, "txqueuelen", 1000, "up")
        run(*self.enter(), "ip", "link", "set", "lo", "up")

    def enter(self):
        """Returns the command prefix that runs a program at the far end."""
        return (*DIES_WITH_US, "nsenter", f"--net=/proc/{self._holder.pid}/ns/net")

    def _end_link(self):
        if self._link is not None:
            self._link.stdin.close()
            self._link.wait()
            self._link.stdout.close()

    def close(self):
        self._end_link()
        self._holder.stdin.close()
        self._holder.wait()
        self._holder.stdout.close()


if __name__ == "__main__":
    forward(json.loads(sys.argv[1]))
