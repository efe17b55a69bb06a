"""DescribeShareGroupOffsets asks about a few partitions in a turn, and only about those that a topic has."""

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from barnabas_broker.app.loop_turns import LoopTimers
from barnabas_broker.coordinators.share_state.share_state import ReadEntry, ShareOutcome
from barnabas_broker.handlers.channel import Client, RequestContext
from barnabas_broker.handlers.large_responses import LargeResponses
from barnabas_broker.handlers.share_group_offsets import describe_share_group_offsets
from barnabas_broker.wire.messages import DescribeShareGroupOffsetsRequest
from barnabas_core.loop_turns import OUTCOMES
from barnabas_core.topic_partition import TopicIdPartition
from harness.manual_clock import ManualClock

Group = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
PARTITIONS = 2 * OUTCOMES + 10


async def test_the_coordinator_is_asked_about_few_partitions_at_once_and_about_none_that_is_missing() -> None:
    asked = list[int]()

    def read_summary(
        _: str, entries: Sequence[ReadEntry], answer: Callable[[dict[TopicIdPartition, ShareOutcome]], object]
    ) -> None:
        asked.append(len(entries))
        answer({each.partition: ShareOutcome(start_offset=5) for each in entries})

    share = SimpleNamespace(are_on=True, read_summary=read_summary, is_read_committed=lambda _: False)
    topic = SimpleNamespace(topic_id=UUID(int=7), partitions=range(PARTITIONS))

    async def no_ends(partitions: object, *, is_read_committed: bool) -> dict[object, int]:
        return {}

    environment: Any = SimpleNamespace(
        authorizer=None,
        image=SimpleNamespace(topics={"flights": topic}),
        groups=SimpleNamespace(share=share),
        end_offsets=SimpleNamespace(ask=no_ends),
        replicas=SimpleNamespace(failures=None),
        answers=LargeResponses(ManualClock(), LoopTimers(asyncio.get_running_loop())),
    )
    numbers = list(range(2 * PARTITIONS))
    group = Group(
        group_id="g", topics=[Group.DescribeShareGroupOffsetsRequestTopic(topic_name="flights", partitions=numbers)]
    )
    context = RequestContext(90, 1, Client("PLAINTEXT", "127.0.0.1:5"))
    await describe_share_group_offsets(environment, context, DescribeShareGroupOffsetsRequest(groups=[group]))
    assert (max(asked), sum(asked)) == (OUTCOMES, PARTITIONS)
