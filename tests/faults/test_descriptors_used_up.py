"""More clients than the broker may have open files: it serves the connected ones, and others when these leave."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka.protocol.admin import CreateTopicsRequest, DescribeConfigsRequest
from kafka.protocol.metadata import MetadataRequest

from harness.ask import ask, ask_on
from harness.barnabas_server import metric, page, prepare_barnabas
from harness.deadline import PATIENCE_S, wait_for
from harness.server_process import Place, ServerProcess, free_port

FILES_MAX = 300
CONNECTIONS_MAX = 161
CLIENTS = 320
LIMITED = Place("127.0.0.1", ("prlimit", f"--nofile={FILES_MAX}:{FILES_MAX}"))
BROKER = 4


class Crowd:
    """Clients that connect and send nothing."""

    def __init__(self, port: int) -> None:
        self._address = ("127.0.0.1", port)
        self._clients: list[socket.socket] = []

    def come(self) -> None:
        """Connect all clients again."""
        self.go()
        for _ in range(CLIENTS):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(self._address)
            self._clients.append(client)

    def go(self) -> None:
        while self._clients:
            self._clients.pop().close()


@pytest.fixture
def http_port() -> int:
    return free_port()


@pytest.fixture
def server(tmp_path: Path, http_port: int) -> Iterator[ServerProcess]:
    prepared = prepare_barnabas(tmp_path, {"http.listener": f"127.0.0.1:{http_port}"}, LIMITED)
    yield prepared
    prepared.close()


@pytest.fixture
def crowd(server: ServerProcess) -> Iterator[Crowd]:
    made = Crowd(server.port)
    yield made
    made.go()


def is_full(http_port: int) -> bool:
    return metric(http_port, "kafka_server_socketserver_connectioncount") == CONNECTIONS_MAX


def create(connection: socket.socket, topic: str) -> int:
    wanted = CreateTopicsRequest.CreatableTopic(name=topic, num_partitions=20, replication_factor=1)
    (created,) = ask_on(connection, CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), 5).topics
    return int(created.error_code)


def max_connections(connection: socket.socket) -> str:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=BROKER, resource_name="1", configuration_keys=["max.connections"]
    )
    (result,) = ask_on(connection, DescribeConfigsRequest(resources=[resource]), 4).results
    return str(result.configs[0].value)


def test_clients_that_use_up_the_file_descriptors_do_not_stop_the_broker(
    server: ServerProcess, crowd: Crowd, http_port: int
) -> None:
    server.start()
    with socket.create_connection((server.host, server.port), timeout=PATIENCE_S) as connection:
        assert max_connections(connection) == str(CONNECTIONS_MAX)
        crowd.come()
        wait_for(lambda: is_full(http_port))
        assert create(connection, "flights") == 0
        crowd.go()
        assert ask(server.port, MetadataRequest(topics=[]), 12).brokers
    assert server.stop() == 0
    server.launch()

    def is_up_beside_the_crowd() -> bool:
        crowd.come()
        return page_of(http_port) == 200 and is_full(http_port)

    wait_for(is_up_beside_the_crowd, pause_s=0.2)
    crowd.go()
    with socket.create_connection((server.host, server.port), timeout=PATIENCE_S) as connection:
        assert create(connection, "planes") == 0
    assert server.stop() == 0


def page_of(http_port: int) -> int:
    """Return the status of the readiness probe, or 0 while nobody listens."""
    try:
        return page(http_port, "/readyz")[0]
    except OSError:
        return 0
