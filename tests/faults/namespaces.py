"""Network namespaces around a router, on which the test drops, delays and blocks packets.

The namespaces have no names: each lives as long as its processes, and those die with the test however it
ends. So nothing is left behind, and the network of the machine is never touched. The test itself moves into
the router's namespace."""

import ctypes
import json
import os
import shutil
import subprocess
import unittest
from pathlib import Path

CLONE_NEWNS, CLONE_NEWNET = 0x00020000, 0x40000000

# A process started through it is killed when the test ends.
DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL")


def run(*command, text=None):
    done = subprocess.run(
        [str(word) for word in command], input=text, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: {done.stderr.strip()}\n{text or ''}")
    return done.stdout


_told = set()


def skip(why):
    """Skips the test, and prints why once, to the terminal."""
    if why not in _told:
        _told.add(why)
        print(f"\n*** SKIPPED: {why}", flush=True)
    raise unittest.SkipTest(why)


def unshare(flags, what):
    """Moves this process into a new namespace, or skips the test."""
    if os.geteuid() != 0:
        skip(f"{what}: only root can make namespaces")
    if ctypes.CDLL(None, use_errno=True).unshare(flags) != 0:
        skip(f"{what}: this machine forbids namespaces: {os.strerror(ctypes.get_errno())}")


class Network:
    """`places` are namespaces with the addresses address(place), connected through the router, in which the test runs.
    The test's own packets are never lost."""

    def __init__(self, places):
        for tool in ("ip", "tc", "nft", "nsenter", "setpriv"):
            if shutil.which(tool) is None:
                skip(f"faults of the network: there is no {tool}")
        unshare(CLONE_NEWNET, "faults of the network")
        self.places = list(places)
        self._holders = {}
        run("ip", "link", "set", "lo", "up")
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        for place in self.places:
            self._add(place)
        try:
            run("nft", "-f", "-", text="""
                table inet faults {
                    counter lost {}
                    chain forward { type filter hook forward priority 0; }
                }""")
        except AssertionError as error:
            skip(f"faults of the network: {error}")

    def _subnet(self, place):
        return f"10.9.{1 + self.places.index(place)}"

    def address(self, place):
        return f"{self._subnet(place)}.2"

    def _add(self, place):
        holder = subprocess.Popen(
            [*DIES_WITH_US, "unshare", "--net", "sh", "-c", "echo; exec cat"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )
        holder.stdout.readline()  # the holder has entered its namespace
        self._holders[place] = holder
        router = f"{self._subnet(place)}.1"
        run("ip", "link", "add", "name", place, "type", "veth", "peer", "name", "eth0", "netns", holder.pid)
        run("ip", "address", "add", f"{router}/30", "dev", place)
        run("ip", "link", "set", "dev", place, "up")
        inside = self.enter(place)
        run(*inside, "ip", "link", "set", "lo", "up")
        run(*inside, "ip", "address", "add", f"{self.address(place)}/30", "dev", "eth0")
        run(*inside, "ip", "link", "set", "eth0", "up")
        run(*inside, "ip", "route", "add", "default", "via", router)

    def enter(self, place):
        """Returns the command prefix that runs a program in that place."""
        return (*DIES_WITH_US, "nsenter", f"--net=/proc/{self._holders[place].pid}/ns/net")

    def close(self):
        for holder in self._holders.values():
            holder.stdin.close()
            holder.wait()
            holder.stdout.close()

    def _rules(self, rules):
        run("nft", "-f", "-", text="\n".join([
            "flush chain inet faults forward", "reset counter inet faults lost",
            *(f"add rule inet faults forward {rule} counter name lost drop" for rule in rules),
        ]))

    def lose(self, percent):
        """Each packet between two places is lost with this probability."""
        self._rules([f"numgen random mod 100 < {percent}"])

    def cut_off(self, *places):
        """Drops all packets from and to these places."""
        self._rules([f'{way} "{place}"' for place in places for way in ("iifname", "oifname")])

    def separate(self, place, *others):
        """Drops all packets between the first place and the others; other paths work."""
        self._rules([
            f'iifname "{sender}" oifname "{receiver}"'
            for other in others for sender, receiver in ((place, other), (other, place))
        ])

    def heal(self):
        self._rules([])

    def n_lost(self):
        """Returns the number of packets lost since the rules were last changed."""
        found = json.loads(run("nft", "-j", "list", "counter", "inet", "faults", "lost"))
        return next(item["counter"]["packets"] for item in found["nftables"] if "counter" in item)

    def slow_down(self, rate):
        """Every place sends and receives no faster than this ("256kbit")."""
        shape = ("root", "tbf", "rate", rate, "burst", "4kb", "latency", "1s")
        for place in self.places:
            run("tc", "qdisc", "replace", "dev", place, *shape)
            run(*self.enter(place), "tc", "qdisc", "replace", "dev", "eth0", *shape)

    def speed_up(self):
        for place in self.places:
            run("tc", "qdisc", "del", "dev", place, "root")
            run(*self.enter(place), "tc", "qdisc", "del", "dev", "eth0", "root")
