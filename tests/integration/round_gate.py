"""A gate between workers and a coordinator: a job cannot pass a round until the test opens the gate.

A test that needs a job that is still running does not race the job with a long horizon. It holds the
job, does what it has to do, and opens the gate."""

import select
import socket
import threading

from common import messages
from recording_proxy import RecordingProxy

UPDATES = {b"/PostUpdate ": messages.PostUpdateRequest, b"/PostUpdates ": messages.PostUpdatesRequest}
LOOK_S = 0.02  # a held request checks the gate this often


class RoundGate(RecordingProxy):
    """Forwards everything except updates of rounds after `last`, so that round `last` + 1 cannot close and
    the job cannot end. Exchanges are recorded if it `keeps` them. Workers use `url`; the coordinator may be
    restarted."""

    def __init__(self, coordinator, last=0, keeps=False):
        super().__init__(coordinator.client.port, keeps=keeps)
        self._last = last
        self._is_open = threading.Event()

    def let_pass(self, last):
        """Moves the gate behind round `last`."""
        self._last = last

    def open(self):
        """Forwards everything from now on."""
        self._is_open.set()

    def close(self):
        self.open()  # otherwise the end of the workers would wait for held requests
        super().close()

    def _is_held(self, request):
        line, _, _ = request.partition(b"\r\n")
        kind = next((kind for method, kind in UPDATES.items() if method in line), None)
        if self._is_open.is_set() or kind is None:
            return False
        return kind.FromString(request.partition(b"\r\n\r\n")[2]).round > self._last

    def _may_pass(self, request, connection):
        """Waits at the gate. If the worker disconnects meanwhile, its request is dropped; it will send it
        again."""
        while self._is_held(request):
            readable, _, _ = select.select([connection], [], [], LOOK_S)
            if readable and not connection.recv(1, socket.MSG_PEEK):
                return False
        return True


def start_gate(test, coordinator, last=0, keeps=False):
    """A gate that ends with the test. Workers are started with it in place of the coordinator."""
    gate = RoundGate(coordinator, last, keeps)
    test.addCleanup(gate.close)
    return gate
