"""Plugins of an unmodified Java client work (F11)."""

from drivers.interface import Message
from drivers.remote import RemoteClient
from harness.deadline import wait_for


def test_interceptors_see_and_change_records(java: RemoteClient, topic: str) -> None:
    java.create_topic(topic, 1, {})
    messages = [Message(b"%d" % n) for n in range(10)]
    java.produce(topic, messages, config={"interceptor.classes": "compat.Plugins$MarkingInterceptor"})
    assert {record.headers for record in java.read(topic, 10)} == {(("marked", b"by the interceptor"),)}
    even = java.read(topic, 5, config={"interceptor.classes": "compat.Plugins$EvenOffsetsInterceptor"})
    assert [record.offset for record in even] == [0, 2, 4, 6, 8]


def test_custom_serializers_and_deserializers_are_used(java: RemoteClient, topic: str) -> None:
    java.create_topic(topic, 1, {})
    java.produce(topic, [Message(b"barnabas")], config={"value.serializer": "compat.Plugins$Backwards"})
    assert [record.value for record in java.read(topic, 1)] == [b"sabanrab"]
    read = java.read(topic, 1, config={"value.deserializer": "compat.Plugins$Backwards"})
    assert [record.value for record in read] == [b"barnabas"]


def test_a_custom_partitioner_chooses_the_partition(java: RemoteClient, topic: str) -> None:
    java.create_topic(topic, 5, {})
    messages = [Message(b"v", key=b"%d" % n) for n in range(50)]
    java.produce(topic, messages, config={"partitioner.class": "compat.Plugins$LastPartition"})
    assert {record.partition for record in java.read(topic, 50)} == {4}


def test_a_custom_assignor_assigns_the_partitions(java: RemoteClient, topic: str) -> None:
    java.create_topic(topic, 3, {})
    config = {"partition.assignment.strategy": "compat.Plugins$AllToTheFirst"}
    members = [java.join(topic, name, [topic], config=config) for name in ("a", "b")]
    wait_for(lambda: [len(member.assignment()) for member in members], lambda sizes: sizes == [3, 0])
    for member in members:
        member.leave()
