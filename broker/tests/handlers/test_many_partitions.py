"""Responses about very many partitions are made over several turns, each partition in its state at its turn."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from asked_in_turns import MANY, MOST, SlowClock, ask
from one_replica import FLIGHTS, HERE, NOW_MS, Broker, led

from barnabas_broker.handlers.large_responses import LargeResponses
from barnabas_broker.metadata.documents import tombstone_key
from barnabas_broker.metadata.model import TombstoneDocument
from barnabas_broker.storage.errors import LogDirFailed
from barnabas_broker.wire.messages import (
    DeleteRecordsRequest,
    DescribeLogDirsRequest,
    DescribeProducersRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
)
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TopicPartition

ALONE = led(HERE, 1, HERE, replicas=1)
NUMBERS = range(MANY)
NAMED = DescribeLogDirsRequest.DescribableLogDirTopic(topic=FLIGHTS.topic, partitions=list(NUMBERS))
ALL_DIRS = DescribeLogDirsRequest(topics=None)
Offsets = ListOffsetsRequest.ListOffsetsTopic
Epochs = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
Deleted = DeleteRecordsRequest.DeleteRecordsTopic
Producers = DescribeProducersRequest.TopicRequest


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Broker:
    """Return a broker that leads many partitions of one topic."""
    return many(tmp_path_factory.mktemp("broker"))


def many(folder: Path) -> Broker:
    broker = Broker(folder, ALONE)
    broker.show(*[ALONE] * MANY)
    broker.timers.pass_time()
    return broker


def delete_flights(broker: Broker) -> None:
    gone = broker.image.topics[FLIGHTS.topic].topic_id
    broker.show_only((tombstone_key(gone), TombstoneDocument(FLIGHTS.topic, gone, NOW_MS, MANY)))


def environment(broker: Broker) -> Any:
    answers = LargeResponses(SlowClock(), broker.timers)
    return SimpleNamespace(replicas=broker.replicas, logs=broker.logs, image=broker.image, answers=answers)


def latest() -> ListOffsetsRequest:
    partition = Offsets.ListOffsetsPartition
    wanted = [partition(partition_index=n, current_leader_epoch=-1, timestamp=-1) for n in NUMBERS]
    topics = [Offsets(name=FLIGHTS.topic, partitions=wanted)]
    return ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics)


def epochs() -> OffsetForLeaderEpochRequest:
    partition = Epochs.OffsetForLeaderPartition
    wanted = [partition(partition=n, current_leader_epoch=-1, leader_epoch=1) for n in NUMBERS]
    return OffsetForLeaderEpochRequest(replica_id=-1, topics=[Epochs(topic=FLIGHTS.topic, partitions=wanted)])


def producers() -> DescribeProducersRequest:
    return DescribeProducersRequest(topics=[Producers(name=FLIGHTS.topic, partition_indexes=list(NUMBERS))])


def deletions() -> DeleteRecordsRequest:
    wanted = [Deleted.DeleteRecordsPartition(partition_index=n, offset=0) for n in NUMBERS]
    return DeleteRecordsRequest(topics=[Deleted(name=FLIGHTS.topic, partitions=wanted)], timeout_ms=1)


EACH = pytest.mark.parametrize(
    ("asked", "version"),
    [(latest, 7), (epochs, 4), (producers, 0), (deletions, 2)],
    ids=["ListOffsets", "OffsetForLeaderEpoch", "DescribeProducers", "DeleteRecords"],
)


@EACH
def test_a_request_about_many_partitions_is_handled_over_several_turns(
    broker: Broker, asked: Callable[[], Any], version: int
) -> None:
    answered = ask(environment(broker), asked(), version)
    (topic,) = answered.answer.topics
    assert [each.error_code for each in topic.partitions] == [ErrorCode.NONE] * MANY
    assert answered.largest_share < MOST


@EACH
def test_the_remaining_partitions_of_a_topic_deleted_between_turns_are_unknown(
    tmp_path: Path, asked: Callable[[], Any], version: int
) -> None:
    broker = many(tmp_path)

    def delete(turn: int) -> None:
        if turn == 2:  # The first turn is short: it may end before the first partition.
            delete_flights(broker)

    (topic,) = ask(environment(broker), asked(), version, delete).answer.topics
    errors = [each.error_code for each in topic.partitions]
    assert errors[0] == ErrorCode.NONE
    assert errors[-1] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def sizes(answer: Any) -> dict[str, list[int]]:
    """Return the partitions of each log dir."""
    return {
        each.log_dir: [partition.partition_index for topic in each.topics for partition in topic.partitions]
        for each in answer.results
    }


@pytest.mark.parametrize("topics", [None, [NAMED]], ids=["all", "named"])
def test_log_dirs_of_many_partitions_are_described_over_several_turns(broker: Broker, topics: Any) -> None:
    answered = ask(environment(broker), DescribeLogDirsRequest(topics=topics), 4)
    assert sorted(number for numbers in sizes(answered.answer).values() for number in numbers) == list(NUMBERS)
    assert answered.largest_share < MOST


def test_partitions_deleted_between_turns_are_in_no_log_dir(tmp_path: Path) -> None:
    broker = many(tmp_path)

    def delete(turn: int) -> None:
        if turn == 1:
            delete_flights(broker)

    told = sizes(ask(environment(broker), ALL_DIRS, 4, delete).answer)
    assert 0 < sum(map(len, told.values())) < MANY / 2


def test_a_log_dir_that_fails_between_turns_is_described_as_offline(tmp_path: Path) -> None:
    broker = many(tmp_path)
    log_dir = broker.logs.log_dirs[0]

    def fail(turn: int) -> None:
        if turn == 1:
            log_dir.fail(LogDirFailed(log_dir.path, "the disk failed"))

    (failed, *_) = ask(environment(broker), ALL_DIRS, 4, fail).answer.results
    assert (failed.error_code, failed.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, [])


def copies(answer: Any) -> list[tuple[str, bool]]:
    """Return the log dirs of the last partition, each with True if it is a future replica."""
    return [
        (each.log_dir, partition.is_future_key)
        for each in answer.results
        for topic in each.topics
        for partition in topic.partitions
        if partition.partition_index == NUMBERS[-1]
    ]


def test_a_partition_is_described_in_both_log_dirs_only_while_it_moves(tmp_path: Path) -> None:
    broker = many(tmp_path)
    last = TopicPartition(FLIGHTS.topic, NUMBERS[-1])
    source = broker.replicas.lookup.find(last.topic, None, last.partition).log.log_dir
    (target,) = (each.path for each in broker.logs.log_dirs if each.path != source)
    broker.logs.moves.start(last, target)
    before = ask(environment(broker), ALL_DIRS, 4).answer
    assert sorted(copies(before)) == sorted([(source, False), (target, True)])

    def call_off(turn: int) -> None:
        if turn == 1:
            broker.logs.moves.stop(last)

    assert copies(ask(environment(broker), ALL_DIRS, 4, call_off).answer) == [(source, False)]
