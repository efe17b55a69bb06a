"""Every client library by its name."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from drivers.aio_kafka import AiokafkaClient
from drivers.builds import go_driver, java_3_driver, java_driver, node_driver
from drivers.interface import GROUP_PROTOCOL, Client
from drivers.kafka_python import KafkaPythonClient
from drivers.librdkafka import LibrdkafkaClient
from drivers.remote import RemoteClient

MakeClient = Callable[[str, Path], Client]
"""A function that makes a client from bootstrap servers and the file of its output; raises ToolMissing, JarsMissing."""

_ALL: Final[dict[str, MakeClient]] = {
    "librdkafka": lambda bootstrap, log: LibrdkafkaClient(bootstrap),
    "kafka-python": lambda bootstrap, log: KafkaPythonClient(bootstrap),
    "aiokafka": lambda bootstrap, log: AiokafkaClient(bootstrap),
    "java": lambda bootstrap, log: RemoteClient("java", java_driver(bootstrap), log),
    "franz-go": lambda bootstrap, log: RemoteClient("franz-go", go_driver(bootstrap), log),
    "kafkajs": lambda bootstrap, log: RemoteClient("kafkajs", node_driver(bootstrap), log),
}
# The last Java client before 4.0 has the older transaction protocol, and is tested beside the current client.
_OLDER: Final[dict[str, MakeClient]] = {
    "java-3": lambda bootstrap, log: RemoteClient("java-3", java_3_driver(bootstrap), log)
}
WITH_CONSUMER_PROTOCOL: Final = ("librdkafka", "java", "franz-go")
"""The clients whose members can join groups by the consumer protocol (KIP-848)."""


def _of_this_run(clients: Mapping[str, MakeClient]) -> dict[str, MakeClient]:
    names = clients if GROUP_PROTOCOL == "classic" else WITH_CONSUMER_PROTOCOL
    return {name: clients[name] for name in names}


CLIENTS: Final = _of_this_run(_ALL)
TRANSACTIONAL: Final = _of_this_run({**_ALL, **_OLDER})
