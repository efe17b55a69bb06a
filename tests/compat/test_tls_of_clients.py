"""Clients of all languages over TLS: each writes and reads where it trusts the broker, and nowhere else."""

import asyncio
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError
from kafka import KafkaConsumer, KafkaProducer

from drivers.builds import ToolMissing, go_driver, java_driver, node_driver
from drivers.interface import Message
from drivers.remote import RemoteClient, RemoteError
from harness.barnabas_server import prepare_barnabas
from harness.certificates import Authority
from harness.kafka_jars import JarsMissing
from harness.require import missing
from harness.server_process import free_port

VALUE = b"x" * 100_000


class Secured(NamedTuple):
    """A broker's TLS address, its authority, and one that did not sign its certificate."""

    bootstrap: str
    authority: Path
    stranger: Path


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority(folder)
    port = free_port()
    properties = {
        "listeners": f"PLAINTEXT://127.0.0.1:{free_port()},SECURE://localhost:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SSL",
        "listener.name.secure.ssl.keystore.type": "PEM",
        "listener.name.secure.ssl.keystore.location": str(authority.issue("broker").file),
        "offsets.topic.replication.factor": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    server = prepare_barnabas(folder, properties)
    server.port = port
    server.start()
    try:
        yield Secured(f"localhost:{port}", authority.file, Authority(folder, "stranger").file)
    finally:
        server.close()


REMOTE: dict[str, Callable[[str], list[str]]] = {"java": java_driver, "franz-go": go_driver, "kafkajs": node_driver}


@pytest.mark.parametrize("name", REMOTE)
def test_a_client_of_another_language_writes_and_reads(name: str, secured: Secured, tmp_path: Path) -> None:
    try:
        command = REMOTE[name](secured.bootstrap)
    except (ToolMissing, JarsMissing) as error:
        missing(error)
    client = RemoteClient(name, ["env", f"KAFKA_CA={secured.authority}", *command], tmp_path / "log")
    try:
        client.produce(name, [Message(VALUE)])
        assert [each.value for each in client.read(name, 1)] == [VALUE]
    finally:
        client.close()


def test_kafkajs_refuses_a_broker_of_a_strange_authority(secured: Secured, tmp_path: Path) -> None:
    try:
        command = node_driver(secured.bootstrap)
    except ToolMissing as error:
        missing(error)
    client = RemoteClient("kafkajs", ["env", f"KAFKA_CA={secured.stranger}", *command], tmp_path / "log")
    try:
        with pytest.raises(RemoteError):
            client.topics()
    finally:
        client.close()


def test_kafka_python_writes_and_reads(secured: Secured) -> None:
    settings = {
        "bootstrap_servers": secured.bootstrap,
        "security_protocol": "SSL",
        "ssl_cafile": str(secured.authority),
    }
    producer = KafkaProducer(**settings)
    producer.send("kafka-python", VALUE).get(300)
    producer.close()
    consumer = KafkaConsumer("kafka-python", auto_offset_reset="earliest", consumer_timeout_ms=300_000, **settings)
    assert next(iter(consumer)).value == VALUE
    consumer.close()


def test_aiokafka_writes_where_it_trusts_the_broker(secured: Secured) -> None:
    async def produce(authority: Path) -> int:
        context = ssl.create_default_context(cafile=str(authority))
        producer = AIOKafkaProducer(bootstrap_servers=secured.bootstrap, security_protocol="SSL", ssl_context=context)
        try:
            await producer.start()
            return int((await producer.send_and_wait("aiokafka", VALUE)).offset)
        finally:
            await producer.stop()

    assert asyncio.run(produce(secured.authority)) == 0
    with pytest.raises(KafkaConnectionError):
        asyncio.run(produce(secured.stranger))
