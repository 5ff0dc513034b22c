"""A gate between workers and a coordinator: a job cannot pass a round until the test opens the gate.

A test that needs a running job does not rely on a long horizon to outlast the test. It holds the job at a round, does
its work, and opens the gate."""

import select
import socket
import threading

from common import messages
from recording_proxy import RecordingProxy

LOOK_S = 0.02  # a held request checks the gate this often


class RoundGate(RecordingProxy):
    """Forwards everything except updates of rounds after `last`, so that round `last` + 1 cannot close and
    the job cannot end. Exchanges are recorded if it `keeps` them. Workers use `url`; the coordinator may be
    restarted."""

    def __init__(self, coordinator, last=0, keeps=False):
        super().__init__(coordinator.client.port, keeps=keeps)
        self._last = last
        self._is_open = threading.Event()
        self.holds = threading.Event()  # an update was held

    def let_pass(self, last):
        """Moves the gate to after round `last`."""
        self._last = last

    def open(self):
        """Forwards everything from now on."""
        self._is_open.set()

    def close(self):
        self.open()  # otherwise the workers could not end before their held requests did
        super().close()

    def _is_held(self, request):
        line, _, _ = request.partition(b"\r\n")
        if self._is_open.is_set() or b"/PostUpdate " not in line:
            return False
        return messages.PostUpdateRequest.FromString(request.partition(b"\r\n\r\n")[2]).round > self._last

    def _may_pass(self, request, connection):
        """Waits at the gate. If the worker disconnects meanwhile, its request is dropped; the worker will send it
        again."""
        while self._is_held(request):
            self.holds.set()
            readable, _, _ = select.select([connection], [], [], LOOK_S)
            if readable and not connection.recv(1, socket.MSG_PEEK):
                return False
        return True


def start_gate(test, coordinator, last=0, keeps=False):
    """Starts a gate that ends with the test. Workers are started with the gate in place of the coordinator."""
    gate = RoundGate(coordinator, last, keeps)
    test.addCleanup(gate.close)
    return gate
