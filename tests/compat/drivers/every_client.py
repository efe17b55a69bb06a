"""Every client library by its name."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from drivers.aio_kafka import AiokafkaClient
from drivers.builds import go_driver, java_3_driver, java_driver, node_driver
from drivers.interface import Client
from drivers.kafka_python import KafkaPythonClient
from drivers.librdkafka import LibrdkafkaClient
from drivers.remote import RemoteClient

MakeClient = Callable[[str, Path], Client]
"""A function that makes a client from bootstrap servers and the file of its output; raises ToolMissing, JarsMissing."""

CLIENTS: Final[dict[str, MakeClient]] = {
    "librdkafka": lambda bootstrap, log: LibrdkafkaClient(bootstrap),
    "kafka-python": lambda bootstrap, log: KafkaPythonClient(bootstrap),
    "aiokafka": lambda bootstrap, log: AiokafkaClient(bootstrap),
    "java": lambda bootstrap, log: RemoteClient("java", java_driver(bootstrap), log),
    "franz-go": lambda bootstrap, log: RemoteClient("franz-go", go_driver(bootstrap), log),
    "kafkajs": lambda bootstrap, log: RemoteClient("kafkajs", node_driver(bootstrap), log),
}
# The last Java client before 4.0 has the older transaction protocol, and is tested beside the current client.
TRANSACTIONAL: Final[dict[str, MakeClient]] = {
    **CLIENTS,
    "java-3": lambda bootstrap, log: RemoteClient("java-3", java_3_driver(bootstrap), log),
}
