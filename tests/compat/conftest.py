"""The broker under test (ours, or Apache Kafka as the control) and the clients that talk to it."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drivers.broker_under_test import PROPERTIES, BrokerWith, check_end, prepare_server
from drivers.builds import ToolMissing, go_driver, java_driver, node_driver
from drivers.every_client import CLIENTS, TRANSACTIONAL
from drivers.interface import Client
from drivers.kafka_tools import KafkaTools
from drivers.librdkafka import LibrdkafkaClient
from drivers.remote import RemoteClient
from drivers.secured_broker import PASSWORD, SecuredBroker
from harness.kafka_jars import JarsMissing
from harness.require import missing
from harness.server_process import ServerProcess


@pytest.fixture(scope="session")
def peer(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--peer"))


@pytest.fixture(scope="session")
def broker(peer: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One running broker for all tests of this process; each test uses its own topics and groups."""
    server = prepare_server(peer, tmp_path_factory.mktemp("broker"), PROPERTIES)
    server.start()
    try:
        yield server
        check_end(peer, server)
    finally:
        server.close()


@pytest.fixture
def broker_with(peer: str, tmp_path: Path) -> Iterator[BrokerWith]:
    """A function that starts a broker with more properties, for one test, which may stop, crash and start it again."""
    servers: list[ServerProcess] = []

    def start(properties: dict[str, str]) -> ServerProcess:
        folder = tmp_path / f"broker-{len(servers)}"
        folder.mkdir()
        servers.append(prepare_server(peer, folder, {**PROPERTIES, **properties}))
        servers[-1].start()
        return servers[-1]

    try:
        yield start
        for server in servers:
            if server.running:
                check_end(peer, server)
    finally:
        for server in servers:
            server.close()


@pytest.fixture
def own_broker(broker_with: BrokerWith) -> ServerProcess:
    """A running broker for one test, which may stop it, crash it and start it again."""
    return broker_with({})


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name (and group id) that no other test uses; nothing is created."""
    return re.sub(r"[^a-zA-Z0-9-]+", "-", request.node.name).strip("-")[:150]


@pytest.fixture(scope="session")
def clients(broker: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Client]]:
    """A function from a client's name to the client, started when first asked for."""
    started: dict[str, Client] = {}

    def client(name: str) -> Client:
        if name not in started:
            try:
                started[name] = TRANSACTIONAL[name](broker.bootstrap, tmp_path_factory.mktemp(name) / "client.log")
            except (ToolMissing, JarsMissing) as reason:
                missing(str(reason))
        return started[name]

    yield client
    for one in started.values():
        one.close()


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest, clients: Callable[[str], Client]) -> Client:
    """Every client library in turn."""
    return clients(request.param)


@pytest.fixture(params=TRANSACTIONAL)
def transactional(request: pytest.FixtureRequest, clients: Callable[[str], Client]) -> Client:
    """Every client library in turn, and an older one."""
    return clients(request.param)


@pytest.fixture
def librdkafka(clients: Callable[[str], Client]) -> LibrdkafkaClient:
    made = clients("librdkafka")
    assert isinstance(made, LibrdkafkaClient)
    return made


@pytest.fixture
def java(clients: Callable[[str], Client]) -> RemoteClient:
    """The Java client; `ask` also runs Kafka's tools."""
    made = clients("java")
    assert isinstance(made, RemoteClient)
    return made


@pytest.fixture
def tools(java: RemoteClient, broker: ServerProcess) -> KafkaTools:
    """Apache Kafka's command-line tools against the broker under test."""
    return KafkaTools(java, broker.bootstrap)


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """One running broker with a listener for each security protocol."""
    broker = SecuredBroker(tmp_path_factory.mktemp("secured"))
    try:
        broker.start()
        yield broker
        log = broker.server.log_text()
        assert PASSWORD not in log
        assert "Traceback" not in log
    finally:
        broker.server.close()


@pytest.fixture(scope="session")
def secured_driver(
    secured: SecuredBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], RemoteClient]]:
    """A function from a language's client to its driver, which is started when first asked for."""
    started: dict[str, RemoteClient] = {}
    commands = {"java": java_driver, "franz-go": go_driver, "kafkajs": node_driver}
    # Java reads tokens from these files only.
    allowed = f"JDK_JAVA_OPTIONS=-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={secured.token_urls}"

    def driver(name: str) -> RemoteClient:
        if name not in started:
            try:
                command = ["env", allowed, *commands[name](secured.server.bootstrap)]
            except (ToolMissing, JarsMissing) as reason:
                missing(str(reason))
            started[name] = RemoteClient(name, command, tmp_path_factory.mktemp(name) / "client.log")
        return started[name]

    yield driver
    for one in started.values():
        one.close()
