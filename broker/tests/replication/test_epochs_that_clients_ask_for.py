"""OffsetForLeaderEpoch: clients do not take records for lost where compaction has left a gap."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from asked_in_turns import ask
from one_replica import FLIGHTS, HERE, NOW_MS, OTHER, Broker, led

from barnabas_broker.handlers.large_responses import LargeResponses
from barnabas_broker.wire.messages import OffsetForLeaderEpochRequest
from barnabas_broker.wire.record_batch import assign_offset
from barnabas_broker.wire.records import Record, encode_batch

Topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic


def stored(base_offset: int, records: int, *, epoch: int) -> bytes:
    """Return a batch as the log of a leader has it."""
    data = encode_batch([Record(number, NOW_MS, b"key", b"value") for number in range(records)])
    assign_offset(data, 0, base_offset, epoch)
    return bytes(data)


def answers(broker: Broker, *epochs: int) -> list[tuple[int, int]]:
    """Return the largest epoch up to each of these, and its end offset."""
    answers = LargeResponses(broker.clock, broker.timers)
    environment: Any = SimpleNamespace(replicas=broker.replicas, answers=answers)
    partitions = [Topic.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=e) for e in epochs]
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[Topic(topic=FLIGHTS.topic, partitions=[each]) for each in partitions]
    )
    answer = ask(environment, request, 4).answer
    return [(each.leader_epoch, each.end_offset) for topic in answer.topics for each in topic.partitions]


def led_after_fetching(path: Path, *batches: bytes) -> Broker:
    """Return a broker that leads in epoch 9 with batches that it fetched before, all of them committed."""
    broker = Broker(path, led(OTHER, 8, OTHER, HERE))
    broker.partition.follower.append(memoryview(b"".join(batches)), 8, 1000, 0, NOW_MS)
    broker.show(led(HERE, 9, HERE, OTHER))
    return broker


def test_an_epoch_ends_at_the_first_record_of_the_next_that_compaction_has_left(tmp_path: Path) -> None:
    """A consumer that had read up to 10, of epoch 1, would take its records for lost, and go to the log's end."""
    broker = led_after_fetching(tmp_path, stored(0, 5, epoch=1), stored(20, 5, epoch=4), stored(40, 1, epoch=6))
    assert answers(broker, 1, 3, 4, 5, 6) == [(1, 20), (1, 20), (4, 40), (4, 40), (6, 41)]
    assert broker.partition.end_offset_for_epoch(1) == (1, 5), "replicas may have other records there"


def test_without_a_gap_an_epoch_ends_where_the_next_begins(tmp_path: Path) -> None:
    broker = led_after_fetching(tmp_path, stored(0, 5, epoch=1), stored(5, 5, epoch=4))
    broker.append(1)
    assert answers(broker, 1, 4, 8, 9, 10) == [(1, 5), (4, 10), (4, 10), (9, 11), (-1, -1)]
