"""The end of a request is unambiguous (RFC 9112, section 6). A request that a proxy could frame differently gets one
response, and nothing after it is executed.
"""

import json
import re
import socket
import ssl
import unittest

from common import HANG_S, TallyTestCase, job_document
from test_tls import Authority, TlsCoordinator

DOCUMENT = json.dumps(job_document()).encode()
# Follows each request below; if executed, it submits a job.
SMUGGLED = (b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(DOCUMENT), DOCUMENT))
BODY = b"0\r\n\r\n"  # a body of five bytes, and an empty chunked one


def get(*lines, target=b"/healthz", version=b"1.1"):
    return b"\r\n".join((b"GET %s HTTP/%s" % (target, version), *lines, b"", b""))


def post(*lines, host=(b"Host: localhost",), version=b"1.1", body=BODY):
    return b"\r\n".join((b"POST /v1/jobs/none/cancel HTTP/" + version, *host, *lines, b"", b"")) + body


HOST = b"Host: localhost"
CHUNKED = b"Transfer-Encoding: chunked"

# (what, bytes, status)
REFUSED = [
    ("two lengths", post(b"Content-Length: 5", b"Content-Length: 6"), 400),
    ("two lengths that agree", post(b"Content-Length: 5", b"content-length: 5"), 400),
    ("length, then encoding", post(b"Content-Length: 5", CHUNKED), 400),
    ("encoding, then length", post(CHUNKED, b"Content-Length: 5"), 400),
    ("two encodings", post(CHUNKED, CHUNKED), 400),
    ("two encodings, one unknown", post(CHUNKED, b"Transfer-Encoding: identity"), 400),
    ("two encodings, the unknown one first", post(b"Transfer-Encoding: identity", CHUNKED), 400),
    ("chunked in HTTP/1.0", post(CHUNKED, version=b"1.0"), 400),
    ("chunked and kept alive in HTTP/1.0", post(CHUNKED, b"Connection: keep-alive", version=b"1.0"), 400),
    ("no host", post(b"Content-Length: 5", host=()), 400),
    ("no host, of a read", get(), 400),
    ("two hosts", post(HOST, b"Content-Length: 5"), 400),
    ("two origins", post(b"Origin: http://localhost", b"Origin: http://evil.test", b"Content-Length: 5"), 400),
    ("two fetch sites", post(b"Sec-Fetch-Site: none", b"Sec-Fetch-Site: cross-site", b"Content-Length: 5"), 400),
    ("two hosts that differ, of a read", get(HOST, b"host: 127.0.0.1"), 400),
    ("two hosts in HTTP/1.0", get(HOST, HOST, version=b"1.0"), 400),
    ("a folded length", post(b"Content-Length: 1\r\n 5"), 400),
    ("a folded header", get(HOST, b"X: a\r\n b"), 400),
    ("a header folded by a tab", get(HOST, b"X: a\r\n\tb"), 400),
    ("a header folded twice", get(HOST, b"X: a\r\n b\r\n c", b"Y: d"), 400),
    ("a fold that looks like a header", get(HOST, b"X: a\r\n Y: b"), 400),
    ("the last header folded", get(HOST, b"X: a\r\n b"), 400),
    ("an empty fold", get(HOST, b"X: a\r\n ", b"Y: b"), 400),
    ("a fold before any header", get(b" X: a", HOST), 400),
    ("blank before the colon", post(b"Content-Length : 5"), 400),
    ("tab before the colon", post(CHUNKED.replace(b":", b"\t:")), 400),
    ("no name", get(HOST, b": x"), 400),
    ("a name of two words", get(HOST, b"Content Length: 5"), 400),
    ("NUL in a header", get(HOST, b"X: a\0b"), 400),
    ("a bare CR in a header", get(HOST, b"X: a\rb"), 400),
    ("a bare CR in front of a name", get(HOST, b"X: a\rContent-Length: 5"), 400),
    ("NUL in a length", post(b"Content-Length: 5\x000"), 400),
    ("an unknown encoding", post(b"Transfer-Encoding: gzip"), 501),
    ("a list of encodings", post(b"Transfer-Encoding: gzip, chunked"), 501),
    ("length -1", post(b"Content-Length: -1"), 400),
    ("length +5", post(b"Content-Length: +5"), 400),
    ("length 0x5", post(b"Content-Length: 0x5"), 400),
    ("no digits", post(b"Content-Length:"), 400),
    ("blanks for digits", post(b"Content-Length:   "), 400),
    ("length 5, 5", post(b"Content-Length: 5, 5"), 400),
    ("length 5;", post(b"Content-Length: 5;"), 400),
    ("length 5.0", post(b"Content-Length: 5.0"), 400),
    ("length past 64 bits", post(b"Content-Length: 18446744073709551616"), 413),
    ("length of 64 bits", post(b"Content-Length: 18446744073709551615"), 413),
    ("length of 30 digits", post(b"Content-Length: " + b"9" * 30), 413),
    ("length -1, of a read", get(HOST, b"Content-Length: -1"), 400),
    *((f"{n} arguments", get(HOST, target=b"/v1/jobs?" + b"&".join([b"a"] * n)), 414)
      for n in (101, 140, *range(145, 190, 5), 500, 4000)),
    ("arguments of a write", SMUGGLED.replace(b"/v1/jobs", b"/v1/jobs?" + b"a&" * 100), 414),
    ("170 arguments with values", get(HOST, target=b"/v1/jobs?" + b"&".join([b"limit=1"] * 170)), 414),
    ("long line", get(HOST, target=b"/v1/jobs?cursor=" + b"a" * 9000), 431),
    ("long header", get(HOST, b"X: " + b"a" * 9000), 431),
    *((f"{n} headers", get(*([b"X: y"] * (n - 1)), HOST), 431) for n in (101, 150, 160, 170, 180, 500)),
]

# Too large for a connection's memory.
CRAMPED = [
    ("long cookie", get(HOST, b"Cookie: a=" + b"a" * 7000), 431),
    *((f"{n} cookies", get(HOST, b"Cookie: " + b"; ".join([b"a=b"] * n)), 431) for n in (170, 200, 1000)),
    ("cookies and a bad length", get(HOST, b"Cookie: " + b"; ".join([b"a=b"] * 170), b"Content-Length: x"), 431),
    ("long arguments", get(HOST, target=b"/healthz?" + b"&".join([b"a" * 75] * 100)), 431),
]

# Not HTTP, or far too long: the library itself responds, also exactly once.
BARE = [
    ("no colon", get(HOST, b"Content-Length"), 400),
    ("longer line", get(HOST, target=b"/" + b"a" * 100000), 414),
    ("longer header", get(HOST, b"X: " + b"a" * 100000), 431),
    ("HTTP/0.9", b"GET /healthz HTTP/0.9\r\n\r\n", 505),
    ("HTTP/2.0", b"GET /healthz HTTP/2.0\r\n\r\n", 505),
]

ACCEPTED = [
    ("no host in HTTP/1.0", get(b"Connection: keep-alive", version=b"1.0")),
    ("blanks around a value", get(b"Host: \t localhost")),
    ("an empty header", get(HOST, b"X:", b"Y: z")),
    ("an empty last header", get(HOST, b"X:")),
    ("the same header twice", get(HOST, b"X: a", b"X: a")),
    ("line feeds alone", get(HOST, b"X: a", b"Y: b").replace(b"\r\n", b"\n")),
    ("empty lines in front", b"\r\n\r\n" + get(HOST)),
    ("an empty body", get(HOST, b"Content-Length: 0")),
    ("a body of a read", get(HOST, b"Content-Length: 5") + BODY),
    ("zeros in front", get(HOST, b"Content-Length: 005") + BODY),
    ("a chunked body", get(HOST, CHUNKED) + BODY),
    ("blanks behind a value", get(HOST, b"X: a \t", b"Y: b")),
    ("100 arguments", get(HOST, target=b"/healthz?" + b"&".join([b"a=b"] * 100))),
    ("100 headers", get(*([b"X: y"] * 99), HOST)),
    ("a header of 7,000 bytes", get(HOST, b"X: " + b"y" * 7000, b"Y: z")),
    ("a line of 7,000 bytes", get(HOST, b"Y: z", target=b"/healthz?a=" + b"y" * 7000)),
    ("70 headers of 100 bytes", get(HOST, *([b"X: " + b"y" * 95] * 70))),
    ("100 cookies", get(HOST, b"Cookie: " + b"; ".join([b"a=b"] * 100))),
]


def split(answer):
    """Returns the status, the headers (with their lines) and the body of the first response, and the bytes after it."""
    head, _, rest = answer.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    headers = {}
    for line in lines[1:]:
        name, _, value = line.partition(b": ")
        headers.setdefault(name.lower().decode(), []).append(value.decode())
    n = int(headers.get("content-length", ["0"])[0])
    return int(lines[0].split(b" ")[1]), headers, rest[:n], rest[n:]


class Framing(TallyTestCase):
    def setUp(self):
        super().setUp()
        self.coordinator = self.start()
        self.port = self.coordinator.port

    def start(self):
        return self.start_coordinator(store="memory:")

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=HANG_S)

    def converse(self, *pieces, connection=None):
        """Returns everything that the server sends until it closes the connection."""
        answer = b""
        with connection or self.connect() as connection:
            try:
                for i, piece in enumerate(pieces):
                    if i > 0:
                        self.coordinator.client.get("/healthz")  # the coordinator has processed it
                    connection.sendall(piece)
            except OSError:
                pass  # it has already been answered
            try:
                while piece := connection.recv(1 << 16):
                    answer += piece
            except ConnectionResetError:
                pass
        return answer

    def assert_refused(self, answer, wanted):
        self.assertTrue(answer, "closed without a word")
        status, headers, body, behind = split(answer)
        self.assertEqual((status, behind), (wanted, b""), answer)
        self.assertEqual(headers["content-type"], ["application/problem+json"], answer)
        self.assertEqual(headers["connection"], ["close"])
        self.assertEqual(headers["x-content-type-options"], ["nosniff"])
        self.assertEqual(headers["cache-control"], ["no-store"])
        problem = json.loads(body)
        self.assertEqual(problem["status"], wanted)
        self.assertTrue(problem["detail"])

    def assert_nothing_submitted(self):
        self.assertEqual(self.coordinator.client.get_json("/v1/jobs")["jobs"], [])

    def test_one_answer_and_nothing_behind_it(self):
        for what, request, status in REFUSED + CRAMPED:
            with self.subTest(what):
                self.assert_refused(self.converse(request + SMUGGLED), status)
        self.assert_nothing_submitted()

    def test_one_answer_of_the_library(self):
        for what, request, wanted in BARE:
            with self.subTest(what):
                status, headers, _, behind = split(self.converse(request + SMUGGLED))
                self.assertEqual((status, headers["connection"], behind), (wanted, ["close"], b""))
        self.assert_nothing_submitted()

    def test_in_two_pieces(self):
        """Each request is cut within its header section and sent in two pieces."""
        for what, request, status in REFUSED + CRAMPED:
            end = request.find(b"\r\n\r\n")
            if len(request) > 4096:
                continue
            for cut in (8, request.find(b"\r\n") + 3, end, end + 2):
                with self.subTest(what, cut=cut):
                    self.assert_refused(self.converse(request[:cut], request[cut:] + SMUGGLED), status)
        self.assert_nothing_submitted()

    def test_behind_a_good_request(self):
        for what, request, status in REFUSED + CRAMPED:
            with self.subTest(what):
                first, _, _, behind = split(self.converse(get(HOST) + request + SMUGGLED))
                self.assertEqual(first, 200)
                self.assert_refused(behind, status)
        self.assert_nothing_submitted()

    def test_the_one_that_is_meant(self):
        """The library does not say which request it refuses. The response goes to the right one: a request in progress
        on another connection continues."""
        for what, request, status in REFUSED + CRAMPED + BARE:
            cut = request.find(b"\r\n") + 2
            with self.subTest(what), self.connect() as older, self.connect() as newer:
                if cut < 2048:
                    older.sendall(request[:cut])
                    self.coordinator.client.get("/healthz")  # the coordinator has processed it
                    request = request[cut:]
                newer.sendall(get(HOST)[:-2])
                for _ in range(2):  # the second one surely comes after those bytes
                    self.assertEqual(split(self.converse(b"GET /healthz HTTP/9.9\r\n\r\n"))[0], 505)
                if cut < 2048:
                    self.assertEqual(split(self.converse(request, connection=older))[0], status)
                newer.sendall(b"Connection: close\r\n\r\n")
                self.assertEqual(split(self.converse(connection=newer))[0], 200)

    def test_never_closed_without_a_word(self):
        """If a request barely fits in a connection's memory, its response must fit too."""
        last = get(HOST, b"Connection: close")
        shapes = [("cookie", n, get(HOST, b"Cookie: a=" + b"x" * n)) for n in range(5600, 6200, 20)]
        shapes += [(f"{k} headers", n, get(HOST, *([b"X: " + b"y" * n] * k)))
                   for k, sizes in ((60, range(110, 140)), (80, range(66, 86))) for n in sizes]
        arguments = b"/healthz?" + b"&".join([b"a=1"] * 99)
        shapes += [("arguments and headers", n, get(HOST, *([b"X: " + b"y" * n] * 60), target=arguments))
                   for n in range(30)]
        seen = set()
        for what, n, request in shapes:
            with self.subTest(what, n=n):
                answer = self.converse(request + last)
                status, _, _, _ = split(answer)
                self.assertIn(status, (200, 431), answer)
                seen.add((what, status))
        self.assertEqual(len(seen), 8, seen)  # on either side of the limit

    def test_what_is_right_is_served(self):
        last = get(HOST, b"Connection: close")
        for what, request in ACCEPTED:
            cuts = (None, 10, 40, len(request) // 2, len(request) - 3) if len(request) > 60 else (None,)
            for cut in cuts:
                pieces = [request + last] if cut is None else [request[:cut], request[cut:] + last]
                with self.subTest(what, cut=cut):
                    answer = self.converse(*pieces)
                    status, _, body, behind = split(answer)
                    self.assertEqual((status, json.loads(body)), (200, {"status": "ok"}), answer)
                    self.assertEqual(split(behind)[0], 200, answer)

    def test_on_connections_for_large_bodies(self):
        """Requests with large bodies have a buffer of another size and a separate daemon of the library."""
        large = get(HOST, b"Content-Length: 100000") + b" " * 100000
        _, headers, _, _ = split(self.converse(large))
        self.assertEqual(headers["connection"], ["close"])  # large bodies have been seen from now on
        for what, request, status in REFUSED:
            with self.subTest(what):
                first, headers, _, behind = split(self.converse(large + request + SMUGGLED))
                self.assertEqual(first, 200)
                self.assertNotIn("connection", headers)
                self.assert_refused(behind, status)
        self.assert_nothing_submitted()


class TlsFraming(Framing):
    test_on_connections_for_large_bodies = None  # with TLS there is no such daemon

    def start(self):
        self.authority = Authority(self.folder)
        cert, key = self.authority.issue("server")
        coordinator = TlsCoordinator(self.folder, self.authority, cert, key, store="memory:")
        self.processes.append(coordinator)
        return coordinator

    def connect(self):
        context = ssl.create_default_context(cafile=self.authority.cert)
        return context.wrap_socket(super().connect(), server_hostname="127.0.0.1")


if __name__ == "__main__":
    unittest.main()
