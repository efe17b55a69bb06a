"""Groups are loaded over several turns; a fast decoder decodes their offsets."""

import struct
from uuid import UUID

from coordinator_world import Client, World
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.coordinators.groups.messages import CommittedOffset, GroupRecord, OffsetKey, decode
from barnabas_broker.coordinators.groups.shard import RecordDecoder
from barnabas_broker.replication.record_log import KeyValue
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import coordinator_partition

GROUPS = st.sampled_from(["readers", "writers", "ä"])
OFFSETS = st.builds(
    CommittedOffset,
    offset=st.integers(0, 2**63 - 1),
    leader_epoch=st.integers(-1, 2**31 - 1),
    metadata=st.sampled_from(["", "", "some", "x" * 200]),
    commit_timestamp_ms=st.integers(0, 2**62),
    expire_timestamp_ms=st.none() | st.integers(0, 2**62),
    topic_id=st.none() | st.integers(1, 3).map(lambda number: UUID(int=number)),
)
KEYS = st.builds(OffsetKey, GROUPS, st.sampled_from(["flights", "weather"]), st.integers(0, 3))


@given(st.lists(st.builds(GroupRecord, KEYS, OFFSETS), max_size=40))
def test_the_fast_decoder_decodes_offsets_as_the_general_one_does(records: list[GroupRecord]) -> None:
    decoder = RecordDecoder()
    for record in records:
        key, value = record.encode()
        assert value is not None
        assert decoder.decode(key, value) == decode(key, value)


def test_the_fast_decoder_ignores_extra_key_bytes_and_skips_unknown_keys() -> None:
    key, value = GroupRecord(OffsetKey("readers", "flights", 7), CommittedOffset(3)).encode()
    assert value is not None
    decoder = RecordDecoder()
    assert decoder.decode(key + b"more", value) == decoder.decode(key, value)
    assert decoder.decode(struct.pack(">h", 99) + key, value) is None


def _many(group_id: str, count: int) -> list[KeyValue]:
    return [
        GroupRecord(OffsetKey(group_id, "flights", number), CommittedOffset(number)).encode() for number in range(count)
    ]


def test_a_small_partition_does_not_wait_for_a_large_one() -> None:
    world = World(partitions=2)
    by_partition = {coordinator_partition(name, 2): name for name in ("a", "b")}
    large, small = by_partition[0], by_partition[1]
    for _ in range(100):
        world.log.write(0, _many(large, 1_000))
    world.log.write(1, _many(small, 1))
    world.log.commit()
    world.coordinator.runtime.resign_all()
    for partition in (0, 1):
        world.coordinator.runtime.elect(partition, 10)
    turns = 0
    while Client(world, "c", group_id=small).commit(("flights", 5, 1)) == [[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]]:
        turns += 1
        assert world.timers.turn()
    assert turns < 10
    assert Client(world, "c", group_id=large).commit(("flights", 5, 1)) == [[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]]
    world.timers.pass_time()
    assert len(Client(world, "c", group_id=large).committed()) == 1_000
