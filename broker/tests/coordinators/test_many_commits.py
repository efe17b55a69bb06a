"""An OffsetCommit of very many partitions is checked over several turns and committed in portions."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from asked_in_turns import SlowClock
from coordinator_world import Client, World

from barnabas_broker.handlers import channel, group_offsets
from barnabas_broker.handlers.large_responses import LargeResponses
from barnabas_broker.metadata.model import PartitionState, TopicDocument
from barnabas_broker.wire.encoder import decode_response, encode_response
from barnabas_broker.wire.messages import OffsetCommitRequest
from barnabas_core.errors import ErrorCode
from barnabas_core.loop_turns import STEP_ELEMENTS, THINGS_MAX

VERSION = 8
MANY = THINGS_MAX
NAMES = ("flights", "ferries")
Topic = OffsetCommitRequest.OffsetCommitRequestTopic
Partition = Topic.OffsetCommitRequestPartition


def topic(name: str, topic_id: int) -> TopicDocument:
    return TopicDocument(name, UUID(int=topic_id), (PartitionState((1,), 1, 0, (1,)),) * MANY)


class Broker:
    """A broker that coordinates the group `readers`."""

    def __init__(self) -> None:
        self.world = World()
        self.topics = {name: topic(name, number) for number, name in enumerate(NAMES, 7)}
        self.committed = Client(self.world, "stranger").committed
        self.turns_before_commit = 0

    def commit(self, between: Callable[[int], object] = lambda _: None) -> dict[str, list[int]]:
        """Commit offset 5 of all partitions, call `between` after each turn, and return the errors by topic."""
        return asyncio.run(self._commit(between))

    async def _commit(self, between: Callable[[int], object]) -> dict[str, list[int]]:
        answering: Any = group_offsets.offset_commit(self._environment(), CONTEXT, request())
        if asyncio.iscoroutine(answering):
            answering = asyncio.ensure_future(answering)
        turns = 0
        while not answering.done():
            await asyncio.sleep(0)
            self.world.timers.pass_time()
            turns += 1
            self.turns_before_commit += not self.committed()
            between(turns)
        frame = encode_response(answering.result(), VERSION, 1)
        answer = decode_response("OffsetCommitResponse", VERSION, memoryview(frame)[4:])
        return {each.name: [partition.error_code for partition in each.partitions] for each in answer.topics}

    def _environment(self) -> Any:
        image = SimpleNamespace(topics=self.topics)
        answers = LargeResponses(SlowClock(), self.world.timers)
        return SimpleNamespace(groups=self.world.coordinator, image=image, clock=self.world.clock, answers=answers)


CONTEXT = channel.RequestContext(8, VERSION, channel.Client("PLAINTEXT", "127.0.0.1:5", "a test"))


def request() -> OffsetCommitRequest:
    partitions = [
        Partition(partition_index=number, committed_offset=5, committed_leader_epoch=0, committed_metadata="")
        for number in range(MANY)
    ]
    return OffsetCommitRequest(
        group_id="readers",
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        retention_time_ms=-1,
        topics=[Topic(name=name, partitions=partitions) for name in NAMES],
    )


def test_many_offsets_are_checked_over_several_turns_and_committed_in_one_batch() -> None:
    broker = Broker()
    batches = broker.world.log.batches
    assert broker.commit() == dict.fromkeys(NAMES, [ErrorCode.NONE] * MANY)
    assert set(broker.committed().values()) == {5}
    assert len(broker.committed()) == 2 * MANY
    assert broker.world.log.batches == batches + 1
    assert broker.turns_before_commit > 2 * MANY / (10 * STEP_ELEMENTS)


def test_more_offsets_than_one_commit_has_are_committed_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_offsets, "COMMITTED_OFFSETS", MANY // 2)
    broker = Broker()
    batches = broker.world.log.batches

    def delete_topic(turn: int) -> None:
        if broker.world.log.batches == batches + 3:
            broker.topics.pop("ferries", None)

    deleted = [ErrorCode.NONE] * (MANY // 2) + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * (MANY // 2)
    assert broker.commit(delete_topic) == {"flights": [ErrorCode.NONE] * MANY, "ferries": deleted}
    assert broker.world.log.batches == batches + 3


def test_no_offset_is_committed_for_a_topic_deleted_or_recreated_between_turns() -> None:
    for later in ({}, {"flights": topic("flights", 99)}):
        broker = Broker()

        def change(turn: int, broker: Broker = broker, later: dict[str, TopicDocument] = later) -> None:
            if turn == 1:
                del broker.topics["flights"]
                broker.topics.update(later)

        unknown = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * MANY
        assert broker.commit(change) == {"flights": unknown, "ferries": [ErrorCode.NONE] * MANY}
        assert len(broker.committed()) == MANY
        assert not [each for each in broker.committed() if each.startswith("flights")]


def test_no_offset_is_committed_if_the_coordinator_resigns_between_turns() -> None:
    broker = Broker()

    def resign(turn: int) -> None:
        if turn == 1:
            broker.committed = dict
            broker.world.resign()

    assert broker.commit(resign) == dict.fromkeys(NAMES, [ErrorCode.NOT_COORDINATOR] * MANY)
    broker.world.elect()
    assert Client(broker.world, "stranger").committed() == {}
