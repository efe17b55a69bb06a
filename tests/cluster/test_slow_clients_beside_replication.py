"""Hundreds of slow clients of three real brokers do not stop replication, so writes with acks=all succeed."""

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from harness.cluster import BarnabasCluster, prepare_cluster
from harness.deadline import PATIENCE_S
from harness.server_process import free_port
from harness.soak import took

CLIENTS = 300
"""The number of slow clients of each broker."""
RECORDS = 1_000
SETTINGS = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "4000",
    "replica.lag.time.max.ms": "4000",
    "min.insync.replicas": "3",
    "socket.request.max.bytes": "2000000",
    "queued.max.request.bytes": "4000000",
}
"""A tenth of the slow clients fills the memory for requests; a broker whose requests wait soon leaves the ISR."""
BESIDE_S = 5.0
"""This is longer than the session and replica lag timeouts."""
FIVE_BYTES = struct.pack(">i", 1_000) + b"x"
A_TENTH = struct.pack(">i", 1_000_000) + bytes(100_000)


def own_listener(port: int) -> list[str]:
    """Return arguments that give a broker this port for clients, and another one for brokers."""
    settings = (
        f"listeners=PLAINTEXT://127.0.0.1:{port},BROKERS://127.0.0.1:{free_port()}",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT",
        "inter.broker.listener.name=BROKERS",
    )
    return [argument for setting in settings for argument in ("--override", setting)]


@pytest.fixture(params=["brokers as clients", "a listener for brokers"])
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[BarnabasCluster]:
    running = prepare_cluster(tmp_path, properties=SETTINGS)
    for broker in running.brokers.values():
        broker.command += own_listener(broker.port) if request.param == "a listener for brokers" else []
    try:
        running.start()
        running.create_topic("t", 3, 3)
        yield running
    finally:
        running.close()


class SlowClient:
    """A client that sends the beginning of a request, as much of it as the broker accepts."""

    def __init__(self, port: int, sent: bytes) -> None:
        self._port = port
        self._sent = sent
        self._connection = self._connect()

    def _connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self._port), timeout=PATIENCE_S)
        connection.setblocking(False)
        connection.send(self._sent)
        return connection

    def come_back(self) -> bool:
        """True if the broker had closed the connection; then it connects and sends again."""
        if self._is_open():
            return False
        self.close()
        self._connection = self._connect()
        return True

    def _is_open(self) -> bool:
        try:
            return self._connection.recv(1) != b""
        except BlockingIOError:
            return True
        except ConnectionError:
            return False

    def close(self) -> None:
        self._connection.close()


@contextmanager
def slow_clients(cluster: BarnabasCluster) -> Iterator[list[SlowClient]]:
    """Connect the clients: half of them send five bytes, and half send a tenth of a large request."""
    with ExitStack() as stack:
        clients = []
        for broker in cluster.brokers.values():
            for number in range(CLIENTS):
                client = SlowClient(broker.port, A_TENTH if number % 2 else FIVE_BYTES)
                stack.callback(client.close)
                clients.append(client)
        yield clients


def write_to_all(cluster: BarnabasCluster, first: int) -> float:
    """Write to each partition, so that each broker leads and follows; return the seconds until all is acknowledged."""
    began_s = time.monotonic()
    for partition in range(3):
        cluster.client().write("t", [b"%06d" % number for number in range(first, first + RECORDS)], partition)
    return time.monotonic() - began_s


@pytest.mark.soak(only=True)
def test_replication_continues_beside_hundreds_of_slow_clients(cluster: BarnabasCluster) -> None:
    alone_s = write_to_all(cluster, 0)
    before = cluster.describe("t")
    took_s, came_back = list[float](), 0
    with slow_clients(cluster) as clients:
        while sum(took_s) < BESIDE_S:
            took_s.append(write_to_all(cluster, RECORDS * (len(took_s) + 1)))
            came_back += sum(client.come_back() for client in clients)
    print(f"{alone_s:.2f} s alone, {max(took_s):.2f} s at worst beside slow clients; {came_back} were closed")
    assert cluster.describe("t") == before
    assert all(each.is_full for each in before)
    took("a write beside slow clients", max(took_s), alone_s + 5)
    assert came_back > 0, "no slow client was disconnected, so memory was never full"
    for partition in range(3):
        assert len(cluster.client().read("t", partition)) == (1 + len(took_s)) * RECORDS
