"""slow_attacker: opens thousands of loopback connections that keep a server waiting, and ends by itself.

    slow_attacker.py PORT CONNECTIONS SECONDS [PATH]

A quarter of the peers write headers, a quarter write a body, a quarter read a large response, all at one byte a second;
the others are silent. A peer whose connection is dropped connects again. The peers use several addresses of
127.0.0.0/8. Prints "ready" when all are connected, and at the end a line of JSON.
"""

import errno
import json
import resource
import select
import socket
import statistics
import sys
import time

ADDRESSES = 40
HEADERS, BODY, READER, SILENT = range(4)
SLOW_S = 1.0
AT_ONCE = 100  # connections opened before the next check for events


class Attacker:
    def __init__(self, port, n, path):
        self.port, self.n, self.path = port, n, path
        self.epoll = select.epoll()
        self.peers = {}  # descriptor -> (socket, kind, index)
        self.free = list(range(n))
        self.dropped = self.refused = 0
        self.samples = []  # the number of open connections, sampled once a second

    def opening(self, kind):
        host = b"HTTP/1.1\r\nHost: localhost\r\n"
        return {
            HEADERS: b"GET /healthz " + host + b"X-Slow: ",
            BODY: b"POST /v1/jobs " + host + b"Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n",
            READER: b"GET " + self.path.encode() + b" " + host + b"\r\n",
            SILENT: b"",
        }[kind]

    def connect(self, index):
        kind = index % 4
        peer = socket.socket()
        peer.setblocking(False)
        if kind == READER:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)  # the smallest size that the kernel allows
        peer.bind((f"127.0.0.{2 + index % ADDRESSES}", 0))
        code = peer.connect_ex(("127.0.0.1", self.port))
        if code not in (0, errno.EINPROGRESS):
            peer.close()
            self.refused += 1
            self.free.append(index)
            return
        self.peers[peer.fileno()] = (peer, kind, index)
        self.epoll.register(peer.fileno(), select.EPOLLOUT | select.EPOLLRDHUP)

    def drop(self, fd):
        peer, _, index = self.peers.pop(fd)
        self.epoll.unregister(fd)
        peer.close()
        self.free.append(index)
        self.dropped += 1

    def serve_events(self, timeout_s):
        for fd, events in self.epoll.poll(timeout_s, 1000):
            peer, kind, _ = self.peers[fd]
            if events & (select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR):
                self.drop(fd)
                continue
            try:
                peer.send(self.opening(kind))
                self.epoll.modify(fd, select.EPOLLRDHUP)
            except OSError:
                self.drop(fd)

    def trickle(self, fd):
        peer, kind, _ = self.peers[fd]
        try:
            if kind in (HEADERS, BODY):
                peer.send(b" ")
            elif kind == READER:
                peer.recv(1)
        except BlockingIOError:
            pass
        except OSError:
            self.drop(fd)

    def run(self, seconds):
        end = None
        began = time.monotonic()
        turn, queue = 0.0, []
        while end is None or time.monotonic() < end:
            for _ in range(min(AT_ONCE, len(self.free))):
                self.connect(self.free.pop())
            self.serve_events(0.01)
            now = time.monotonic()
            if end is None and (not self.free or now - began > 120):
                print("ready", len(self.peers), flush=True)
                end = now + seconds
            if not queue and now - turn >= SLOW_S:
                turn, queue = now, list(self.peers)
                self.samples += [len(queue)] if end is not None else []
            for _ in range(min(500, len(queue))):
                fd = queue.pop()
                if fd in self.peers:
                    self.trickle(fd)
        print(json.dumps({"open": statistics.median(self.samples), "dropped": self.dropped, "refused": self.refused}), flush=True)


def main():
    port, n, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    Attacker(port, n, sys.argv[4] if len(sys.argv) > 4 else "/openapi.yaml").run(seconds)


if __name__ == "__main__":
    main()
