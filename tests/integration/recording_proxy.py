"""A proxy that forwards HTTP/1.1 unchanged, records every exchange, and breaks exchanges on request."""

import contextlib
import select
import socket
import threading
import time


class Exchange:
    """One request and its response, as bytes on the wire. `n_before` is the number of exchanges that were
    complete before this request was forwarded."""

    def __init__(self, request, response, n_before):
        self.request = request
        self.response = response
        self.n_before = n_before

    @staticmethod
    def _body(message):
        return message.partition(b"\r\n\r\n")[2]

    @property
    def method(self):
        """The last word of the path: Join, PollTask, PostUpdate, Leave."""
        return self.request.split(b" ", 2)[1].rsplit(b"/", 1)[-1].decode()

    @property
    def status(self):
        return int(self.response.split(b" ", 2)[1])

    @property
    def request_body(self):
        return self._body(self.request)

    @property
    def response_body(self):
        return self._body(self.response)


def read_message(stream):
    """Returns one HTTP message unchanged, or b"" at the end of the connection."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = stream.readline()
        if not line:
            return b""
        head += line
    length = 0
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
        elif name.lower() == b"transfer-encoding":
            raise AssertionError(f"{value!r} instead of a length")
    return head + stream.read(length)


def is_answered(connection, upstream):
    """Waits for the response. Returns False if the client has disconnected; the server is then disconnected too."""
    while True:
        ready, _, _ = select.select([connection, upstream], [], [])
        if upstream in ready:
            return True
        if not connection.recv(1, socket.MSG_PEEK):
            return False


class RecordingProxy:
    """Listens on `url` until close(); `exchanges` lists the completed exchanges in order of completion.

    `fault`, if given, is called before each exchange and says where its connection breaks: None for not at all,
    "request" before the coordinator receives the request, "half request" in the middle of the request, "response" after
    the coordinator has responded, "half response" in the middle of the response. Each request is forwarded `delay_s`
    late. Without `keeps`, `exchanges` stays empty."""

    def __init__(self, port, fault=lambda: None, host="127.0.0.1", delay_s=0, keeps=True):
        self.address = (host, port)
        self._delay_s = delay_s
        self._keeps = keeps
        self.exchanges = []
        self._fault = fault
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection, contextlib.suppress(OSError):  # the worker or the coordinator has disconnected
            with socket.create_connection(self.address) as upstream:
                self._pass_on(connection, upstream)

    def _may_pass(self, request, connection):
        """Whether to forward the request; may wait."""
        return True

    def _pass_on(self, connection, upstream):
        from_worker, from_coordinator = connection.makefile("rb"), upstream.makefile("rb")
        while request := read_message(from_worker):
            time.sleep(self._delay_s)
            if not self._may_pass(request, connection):
                return
            with self._lock:
                fault = self._fault()
                n_before = len(self.exchanges)
            if fault == "request":
                return
            if fault == "half request":
                upstream.sendall(request[: len(request) // 2])
                return
            upstream.sendall(request)
            response = read_message(from_coordinator) if is_answered(connection, upstream) else b""
            if not response or fault == "response":
                return
            if fault == "half response":
                connection.sendall(response[: len(response) // 2])
                return
            if self._keeps:
                with self._lock:
                    self.exchanges.append(Exchange(request, response, n_before))
            connection.sendall(response)

    def close(self):
        self._listener.close()
