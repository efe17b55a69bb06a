"""Many clients that stop in the middle of authentication, and an honest one that is served meanwhile."""

import itertools
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from barnabas_broker.wire.messages import message_class
from harness.barnabas_server import peak_resident_bytes, resident_bytes
from harness.deadline import wait_for
from harness.soak import size, took
from hostile.crowd import stalled
from rights.servers import ADMIN, SASL_PLAINTEXT, SASL_SSL, Server, barnabas

CLIENTS = size(300, 10_000)
LOOKS = 10
"""The number of times that an honest client connects while the crowd grows."""
CLIENT_BYTES_MAX = 40 * 1024
"""The limit of memory per stalled client: a half-open handshake or dialogue takes 10 to 25 KiB."""
WARM_BYTES = 8 << 20
LOGIN_S_MAX = 2.0
DEADLINES_S = 60.0
"""The deadlines of handshakes (10 s) and dialogues (30 s) pass within this time."""


def served_s(server: Server) -> float:
    """Return how long an honest client takes to authenticate on both listeners and to get a response."""
    began_s = time.monotonic()
    for listener in (SASL_SSL, SASL_PLAINTEXT):
        with server.client(ADMIN, listener) as client:
            assert client.ask(message_class("MetadataRequest")(topics=None), 12).brokers
    return time.monotonic() - began_s


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_clients_that_never_finish_a_handshake_block_nobody_and_take_bounded_memory(tmp_path: Path) -> None:
    with barnabas(tmp_path / "broker", []) as server, ExitStack() as crowd:
        served_s(server)
        before = resident_bytes(server.process.pid)
        clients, times = stalled(server), []
        for _ in range(LOOKS):
            for client in itertools.islice(clients, CLIENTS // LOOKS):
                crowd.callback(client.close)
            times.append(served_s(server))
        grown = peak_resident_bytes(server.process.pid) - before
        print(f"{CLIENTS} clients that stopped: {grown / CLIENTS / 1024:.0f} KiB each")
        assert grown < CLIENTS * CLIENT_BYTES_MAX + WARM_BYTES
        took("the slowest login beside them", max(times), LOGIN_S_MAX)
        if size(usual=False, soak=True):
            _sent_away(server)
        assert "Traceback" not in server.process.log_text()


def _sent_away(server: Server) -> None:
    """Check that the broker disconnects the crowd after the deadlines, although no client leaves."""
    sockets = Path(f"/proc/{server.process.pid}/fd")
    wait_for(lambda: len(list(sockets.iterdir())), lambda count: count < CLIENTS // 20, seconds_max=DEADLINES_S)
