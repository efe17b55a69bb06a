"""A running group of Java's consumers changes to the protocol of KIP-848 and back, and no record is read twice.

The consumers commit when partitions are taken from them, as Java's do with `enable.auto.commit`.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from drivers.interface import Client, Message
from drivers.librdkafka import LibrdkafkaClient
from harness.codec_client import Connection
from harness.deadline import wait_for
from harness.server_process import ServerProcess
from harness.soak import size

PARTITIONS: Final = 4
RECORDS: Final = 40
"""The records that are produced in each step."""
COMMITTING: Final = {"enable.auto.commit": "true"}
CLASSIC: Final = {
    **COMMITTING,
    "partition.assignment.strategy": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}
CONSUMER: Final = {**COMMITTING, "group.protocol": "consumer"}
ROLLS: Final = size(1, 10)
"""How often the group changes to the other protocol and back."""


class Application:
    """Two running members of a group on a topic that is written all the time."""

    def __init__(self, java: Any, writer: LibrdkafkaClient, topic: str) -> None:
        self._java, self._writer, self._topic = java, writer, topic
        self._started = self.written = 0
        self.running: list[str] = []
        self.read: Counter[str] = Counter()
        """How often each record was read by members that have left."""

    def start(self, config: Mapping[str, str]) -> None:
        """Start a member, and wait until each member has a share."""
        name = f"{self._topic}-{self._started}"
        self._started += 1
        self._write()
        self._java.ask("join", group=self._topic, member=name, topics=[self._topic], config=dict(config))
        self.running.append(name)
        self._settle()

    def stop_the_oldest(self) -> None:
        """Stop the oldest member while records are written, and wait until the others have its share."""
        self._write()
        state = self._java.ask("leave", member=self.running.pop(0))
        assert state["failure"] is None
        self.read.update(record["value"] for record in state["records"])
        self._settle()

    def _write(self) -> None:
        messages = [Message(b"%d" % (self.written + n), partition=n % PARTITIONS) for n in range(RECORDS)]
        self._writer.produce(self._topic, messages)
        self.written += RECORDS

    def _settle(self) -> None:
        def shares() -> list[int]:
            states = [self._java.ask("state", member=each) for each in self.running]
            assert [each["failure"] for each in states] == [None] * len(states)
            return [len(each["assignment"]) for each in states]

        if self.running:
            wait_for(shares, lambda found: sum(found) == PARTITIONS and min(found) > 0)

    def read_in_all(self) -> Counter[str]:
        """Return how often each record was read."""
        states = [self._java.ask("state", member=each) for each in self.running]
        return self.read + Counter(record["value"] for each in states for record in each["records"])


def _type(broker: ServerProcess, group: str) -> str:
    with Connection(broker.port) as connection:
        groups = connection.request("ListGroups", 5, {}).groups
    return next(str(each.group_type) for each in groups if each.group_id == group)


def test_running_group_changes_its_protocol_and_back_and_reads_each_record_once(
    clients: Callable[[str], Client], librdkafka: LibrdkafkaClient, broker: ServerProcess, topic: str
) -> None:
    librdkafka.create_topic(topic, PARTITIONS, {})
    application = Application(clients("java"), librdkafka, topic)
    for _ in range(2):
        application.start(CLASSIC)
    for roll in range(ROLLS):
        for config, becomes in ((CONSUMER, "consumer"), (CLASSIC, "classic")):
            for _ in range(2):
                application.start(config)
                application.stop_the_oldest()
            assert (roll, _type(broker, topic)) == (roll, becomes)
    wait_for(application.read_in_all, lambda read: len(read) == application.written)
    assert set(application.read_in_all().values()) == {1}
    while application.running:
        application.stop_the_oldest()
