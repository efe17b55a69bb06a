"""How groups are loaded: only what is newest of each key, by turns, and as the records one by one would have it."""

import struct
from uuid import UUID

from coordinator_world import Client, World
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.coordinators.groups.config import GroupConfig
from barnabas_broker.coordinators.groups.left_out import LeftOut
from barnabas_broker.coordinators.groups.newest import Newest
from barnabas_broker.coordinators.groups.records import (
    CommittedOffset,
    GroupKey,
    GroupMetadata,
    GroupRecord,
    OffsetKey,
    encode,
)
from barnabas_broker.coordinators.groups.tables import GroupTables
from barnabas_broker.replication.record_log import KeyValue
from barnabas_core.errors import ErrorCode
from barnabas_core.java_hash import coordinator_partition

GROUPS = st.sampled_from(["readers", "writers", "ä"])
OFFSETS = st.builds(
    CommittedOffset,
    offset=st.integers(0, 2**63 - 1),
    leader_epoch=st.integers(-1, 2**31 - 1),
    metadata=st.sampled_from(["", "", "some", "x" * 200]),
    commit_timestamp_ms=st.integers(0, 2**62),
    expire_timestamp_ms=st.none() | st.integers(0, 2**62),
    topic_id=st.none() | st.integers(0, 3).map(lambda number: UUID(int=number)),
)
RECORDS = st.lists(
    st.builds(
        GroupRecord,
        st.builds(OffsetKey, GROUPS, st.sampled_from(["flights", "weather"]), st.integers(0, 3)),
        st.none() | OFFSETS,
    )
    | st.builds(
        GroupRecord,
        st.builds(GroupKey, GROUPS),
        st.none()
        | st.builds(
            GroupMetadata, st.just("consumer"), st.integers(0, 9), st.none(), st.none(), st.just(0), st.just(())
        ),
    ),
    max_size=40,
)


def _as_loaded(record: GroupRecord) -> GroupRecord:
    """Version 1, which has the expiry, has neither epoch nor topic id."""
    value = record.value
    if isinstance(value, CommittedOffset) and value.expire_timestamp_ms is not None:
        value = value._replace(leader_epoch=-1, topic_id=None)
    return record._replace(value=value)


@given(RECORDS)
def test_the_newest_records_make_the_same_tables_as_all_of_them(records: list[GroupRecord]) -> None:
    one_by_one = GroupTables()
    newest = Newest()
    for record in records:
        one_by_one.apply(_as_loaded(record))
        newest.add(dict([encode(record)]))
    loaded = GroupTables()
    while newest:
        newest.apply(loaded, 3, LeftOut())
    assert (loaded.offsets, loaded.stored) == (one_by_one.offsets, one_by_one.stored)
    assert loaded.groups.keys() == loaded.offsets.keys() | loaded.stored.keys()


def test_a_key_with_bytes_behind_it_is_read_as_before() -> None:
    key, value = encode(GroupRecord(OffsetKey("readers", "flights", 7), CommittedOffset(3)))
    newest, tables = Newest(), GroupTables()
    newest.add({key + b"more": value, struct.pack(">h", 99) + key: value})
    newest.apply(tables, 10, LeftOut())
    assert [str(partition) for partition in tables.offsets["readers"]] == ["flights-7"]


def _many(group_id: str, count: int) -> list[KeyValue]:
    return [
        encode(GroupRecord(OffsetKey(group_id, "flights", number), CommittedOffset(number))) for number in range(count)
    ]


def test_a_small_partition_does_not_wait_for_a_large_one() -> None:
    world = World(GroupConfig(), partitions=2)
    by_partition = {coordinator_partition(name, 2): name for name in ("a", "b")}
    large, small = by_partition[0], by_partition[1]
    for _ in range(100):
        world.log.write(0, _many(large, 1_000))
    world.log.write(1, _many(small, 1))
    world.log.commit()
    world.coordinator.resign_all()
    for partition in (0, 1):
        world.coordinator.on_elected(partition, 10)
    turns = 0
    while Client(world, "c", group_id=small).commit(("flights", 5, 1)) == [[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]]:
        turns += 1
        assert world.timers.turn()
    assert turns < 10
    assert Client(world, "c", group_id=large).commit(("flights", 5, 1)) == [[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]]
    world.timers.pass_time()
    assert len(Client(world, "c", group_id=large).committed()) == 1_000
