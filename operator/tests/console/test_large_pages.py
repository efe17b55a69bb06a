"""Pages of large clusters, with names as long as Kafka allows, stay below a megabyte."""

import pytest

from barnabas_console.html import pages
from barnabas_console.html.frame import Frame
from barnabas_console.model.inputs import list_query, part_of
from barnabas_console.model.snapshot import Group, GroupLag, GroupSeen, Member, Topic
from barnabas_core.topic_partition import TopicPartition

FRAME = Frame("", "", "/", who="admin", age_s=1.0)
BYTES_MAX = 1 << 20


def names(count: int, length: int) -> list[str]:
    return [f"{number:05d}{'x' * (length - 5)}" for number in range(count)]


@pytest.mark.parametrize("length", [20, 249])
def test_a_list_of_a_thousand_topics_is_below_a_megabyte(length: int) -> None:
    rows = [Topic(name, 6, 3, 0, 0, 123_456, 1 << 40, 1_234, 12, 123_456) for name in names(2_000, length)]
    query = list_query({"size": "1000"}, pages.TOPIC_SORTS)
    page = pages.topics(FRAME, query, part_of(rows, query, lambda each: each.name))
    assert len(str(page).encode()) < BYTES_MAX


@pytest.mark.parametrize("length", [20, 249])
def test_a_group_of_a_thousand_members_is_below_a_megabyte(length: int) -> None:
    places = [TopicPartition(name, 1) for name in names(1_100, length)]
    lags = [GroupLag(*each, 123_456, 1_234_567, 12_345, "client-1") for each in places]
    members = [
        Member(f"{number:036d}", "client-1", "10.0.0.1", tuple(places[number : number + 60]), 3)
        for number in range(1_000)
    ]
    seen = GroupSeen("billing", "share", "Stable", 1, members, {}, 3)
    row = Group("billing", "share", "Stable", 1_000, 1_100, 5, 1)
    text = str(pages.group(FRAME, row, seen, lags, None, None))
    assert len(text.encode()) < BYTES_MAX
    assert " more" in text
