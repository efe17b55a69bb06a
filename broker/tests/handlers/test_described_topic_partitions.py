"""DescribeTopicPartitions returns partitions page by page, and makes each page over several turns."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from asked_in_turns import MANY, MOST, Answered, SlowClock, ask

from barnabas_broker.handlers.large_responses import LargeResponses
from barnabas_broker.metadata.model import PartitionState, TopicDocument
from barnabas_broker.wire.messages import DescribeTopicPartitionsRequest
from barnabas_core.errors import ErrorCode
from harness.manual_timers import ManualTimers

Request = DescribeTopicPartitionsRequest
Page = list[tuple[str, list[int]]]


def topic(name: str, partitions: int) -> TopicDocument:
    return TopicDocument(name, UUID(int=7), (PartitionState((1,), 1, 0, (1,)),) * partitions)


class World:
    """The parts of a broker that this request uses."""

    def __init__(self, **partitions: int) -> None:
        self.topics = {name: topic(name, count) for name, count in partitions.items()}
        self.handler_environment: Any = SimpleNamespace(
            authorizer=None,
            image=SimpleNamespace(topics=self.topics, live={1}),
            config=SimpleNamespace(max_request_partition_size_limit=2_000),
            answers=LargeResponses(SlowClock(), ManualTimers()),
        )

    def describe(self, limit: int, cursor: tuple[str, int] | None = None, **asking: Any) -> Answered:
        where = None if cursor is None else Request.Cursor(topic_name=cursor[0], partition_index=cursor[1])
        names = [Request.TopicRequest(name=name) for name in asking.pop("names", ())]
        request = Request(topics=names, response_partition_limit=limit, cursor=where)
        return ask(self.handler_environment, request, 0, **asking)

    def page(self, limit: int, cursor: tuple[str, int] | None = None, **asking: Any) -> Page:
        return page_of(self.describe(limit, cursor, **asking).answer)


def page_of(answer: Any) -> Page:
    return [(each.name, [partition.partition_index for partition in each.partitions]) for each in answer.topics]


def cursor_of(answer: Any) -> tuple[str, int] | None:
    return answer.next_cursor and (answer.next_cursor.topic_name, answer.next_cursor.partition_index)


def test_a_page_begins_where_the_previous_one_ended() -> None:
    world = World(a=3, b=1, c=2)
    pages: list[Page] = []
    cursor = None
    while not pages or cursor:
        answer = world.describe(2, cursor).answer
        pages.append(page_of(answer))
        cursor = cursor_of(answer)
    assert pages == [[("a", [0, 1])], [("a", [2]), ("b", [0])], [("c", [0, 1])]]


@pytest.mark.parametrize(
    ("cursor", "page"),
    [
        (("b", 0), [("b", [0]), ("c", [0, 1])]),
        (("b", 1), [("c", [0, 1])]),
        (("aa", 5), [("b", [0]), ("c", [0, 1])]),
        (("b", -1), [("b", [0]), ("c", [0, 1])]),
        (("d", 0), []),
    ],
)
def test_a_cursor_may_name_a_partition_that_does_not_exist(cursor: tuple[str, int], page: Page) -> None:
    assert World(a=3, b=1, c=2).page(10, cursor) == page


def test_an_unknown_topic_is_described_with_an_error() -> None:
    answer = World(a=1).describe(10, names=["b", "a"]).answer
    assert [(each.name, each.error_code) for each in answer.topics] == [
        ("a", ErrorCode.NONE),
        ("b", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


@pytest.mark.parametrize("world", [World(a=MANY), World(**{f"t{n}": 1 for n in range(MANY)})], ids=["one", "many"])
def test_a_page_of_many_partitions_is_made_over_several_turns(world: World) -> None:
    answered = world.describe(MANY)
    assert sum(len(numbers) for _, numbers in page_of(answered.answer)) == MANY
    assert answered.largest_share < MOST


def test_the_last_page_costs_no_more_than_the_first() -> None:
    world = World(a=10 * MANY)
    last = world.describe(10, ("a", 10 * MANY - 10))
    assert page_of(last.answer) == [("a", list(range(10 * MANY - 10, 10 * MANY)))]
    assert sum(last.calls) < 2 * sum(world.describe(10).calls)


def test_a_topic_recreated_or_deleted_between_turns_is_described_in_its_new_state() -> None:
    world = World(**{f"t{n:03}": 2 for n in range(MANY)})

    def change(turn: int) -> None:
        if turn == 1:
            world.topics[f"t{MANY - 1:03}"] = topic(f"t{MANY - 1:03}", 1)
            del world.topics[f"t{MANY - 2:03}"]

    answer = world.describe(2 * MANY, between=change).answer
    assert page_of(answer)[-3:] == [(f"t{MANY - 3:03}", [0, 1]), (f"t{MANY - 2:03}", []), (f"t{MANY - 1:03}", [0])]
    assert answer.topics[-2].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
