"""The offsets topic is compacted like any other, and a group's committed offsets survive it (F24, F48)."""

from contextlib import closing
from functools import partial

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from drivers.broker_under_test import BrokerWith
from drivers.librdkafka import LibrdkafkaClient
from harness.deadline import wait_for
from harness.server_process import ServerProcess

TOPIC, GROUP = "followed", "followers"
ROUNDS = 3
QUICKLY_COMPACTED = {
    "offsets.topic.num.partitions": "1",
    "log.roll.ms": "200",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.segment.delete.delay.ms": "0",
}


def clean_offset(server: ServerProcess) -> int:
    """Return the offset up to which the offsets topic has been compacted."""
    checkpoint = server.log_path.parent / "logs" / "cleaner-offset-checkpoint"
    lines = checkpoint.read_text().splitlines()[2:] if checkpoint.exists() else []
    offsets = {line.split()[0]: int(line.split()[2]) for line in lines}
    return offsets.get("__consumer_offsets", 0)


def is_committed(consumer: Consumer, place: TopicPartition) -> bool:
    """True if the commit succeeds; it fails while the coordinator loads its new partition."""
    try:
        consumer.commit(offsets=[place], asynchronous=False)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.COORDINATOR_LOAD_IN_PROGRESS:
            raise
        return False
    return True


def committed_by_now(client: LibrdkafkaClient) -> dict[int, int]:
    """Return the committed offsets, or {} while the coordinator loads them."""
    try:
        return client.committed(GROUP, TOPIC)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.COORDINATOR_LOAD_IN_PROGRESS:
            raise
        return {}


def test_committed_offsets_survive_compaction_and_a_crash(broker_with: BrokerWith) -> None:
    server = broker_with(QUICKLY_COMPACTED)
    client = LibrdkafkaClient(server.bootstrap)
    client.create_topic(TOPIC, 2, {})
    with closing(Consumer({"bootstrap.servers": server.bootstrap, "group.id": GROUP})) as consumer:
        commits = 0

        def commit_until_compacted(beyond: int) -> int:
            """Commit once: a commit ends the active segment if it is old enough, and then that segment is compacted."""
            nonlocal commits
            commits += 1
            consumer.commit(offsets=[TopicPartition(TOPIC, 1, commits)], asynchronous=False)
            return clean_offset(server) > beyond

        wait_for(lambda: is_committed(consumer, TopicPartition(TOPIC, 0, 77)))
        for _ in range(ROUNDS):
            compacted = clean_offset(server)
            wait_for(partial(commit_until_compacted, compacted))
        assert client.committed(GROUP, TOPIC) == {0: 77, 1: commits}
        server.kill()
        server.start()
        # librdkafka 2.16 forgets the only broker when it shuts down, and an admin client may then wait for ever.
        client = LibrdkafkaClient(server.bootstrap)
        wait_for(lambda: committed_by_now(client), lambda committed: committed == {0: 77, 1: commits})
