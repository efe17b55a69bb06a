"""Clients of all languages over TLS: each writes and reads where it trusts the broker, and nowhere else."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError
from kafka import KafkaConsumer, KafkaProducer

from drivers.interface import Message
from drivers.logins import remote_options
from drivers.remote import RemoteClient, RemoteError
from drivers.secured_broker import SecuredBroker
from harness.deadline import PATIENCE_S

VALUE = b"x" * 100_000
Driver = Callable[[str], RemoteClient]


@pytest.mark.parametrize("name", ["java", "franz-go", "kafkajs"])
def test_a_client_of_another_language_writes_and_reads(
    name: str, secured: SecuredBroker, secured_driver: Driver
) -> None:
    client, options = secured_driver(name), remote_options(name, secured.anonymous())
    client.produce(name, [Message(VALUE)], **options)
    assert [each.value for each in client.read(name, 1, **options)] == [VALUE]


def test_kafkajs_refuses_a_broker_of_a_strange_authority(secured: SecuredBroker, secured_driver: Driver) -> None:
    options = remote_options("kafkajs", secured.anonymous(is_trusted=False))
    with pytest.raises(RemoteError):
        secured_driver("kafkajs").produce("kafkajs", [Message(VALUE)], **options)


def test_kafka_python_writes_and_reads(secured: SecuredBroker) -> None:
    login = secured.anonymous()
    settings = {
        "bootstrap_servers": login.bootstrap,
        "security_protocol": "SSL",
        "ssl_cafile": str(login.authority),
    }
    producer = KafkaProducer(**settings)
    producer.send("kafka-python", VALUE).get(PATIENCE_S)
    producer.close()
    consumer = KafkaConsumer(
        "kafka-python", auto_offset_reset="earliest", consumer_timeout_ms=int(PATIENCE_S * 1000), **settings
    )
    assert next(iter(consumer)).value == VALUE
    consumer.close()


def test_aiokafka_writes_where_it_trusts_the_broker(secured: SecuredBroker) -> None:
    trusting, login = secured.anonymous(), secured.anonymous(is_trusted=False)

    async def produce(authority: Path) -> int:
        context = ssl.create_default_context(cafile=str(authority))
        producer = AIOKafkaProducer(bootstrap_servers=login.bootstrap, security_protocol="SSL", ssl_context=context)
        try:
            await producer.start()
            return int((await producer.send_and_wait("aiokafka", VALUE)).offset)
        finally:
            await producer.stop()

    assert asyncio.run(produce(trusting.authority)) == 0
    with pytest.raises(KafkaConnectionError):
        asyncio.run(produce(login.authority))
