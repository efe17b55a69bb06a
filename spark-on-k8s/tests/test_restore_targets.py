"""Target topics that would not keep the restored records, and translated offsets of groups. No Spark runs here."""

import msgspec
import pytest

from barnabas_jobs.planning.archived import GroupOffset
from barnabas_jobs.planning.errors import JobFailed, Refused
from barnabas_jobs.planning.restore_plan import (
    Origin,
    Plan,
    RestoredGroup,
    Selected,
    Selection,
    TargetTopic,
    TopicSetting,
    check_target,
    left_out,
    offsets_by_partition,
    translated,
)


def selected(partition: int, size_bytes: int) -> Selected:
    return Selected(
        partition=partition,
        records=10,
        bytes=size_bytes,
        first_offset=0,
        last_offset=9,
        oldest_ms=1,
        newest_ms=2,
        unsettable=0,
        keyless=3,
        largest_bytes=1000,
        largest_offset=7,
    )


def target(config: dict[str, str], *, origin: Origin = Origin.TOPIC, is_new: bool = False) -> TargetTopic:
    settings = {name: TopicSetting(value, origin) for name, value in config.items()}
    return TargetTopic("flights", 2, settings, is_new)


KEEPS = {"retention.ms": "-1", "message.timestamp.before.max.ms": str(2**63 - 1)}


def test_a_target_that_keeps_fewer_bytes_than_it_gets_is_refused() -> None:
    """The archive may have more than the topic ever held at once, so the topic's own config may be too small."""
    config = {**KEEPS, "cleanup.policy": "delete", "retention.bytes": "1000"}
    told = "into=flights has retention.bytes=1000, and partition 1 gets 1001 bytes of keys, values and headers"
    with pytest.raises(JobFailed, match=told):
        check_target(target(config), [selected(0, 1000), selected(1, 1001)], 2)


@pytest.mark.parametrize(("policy", "bound"), [("delete", "1001"), ("delete", "-1")], ids=["enough", "all"])
def test_a_target_that_keeps_all_bytes_is_accepted(policy: str, bound: str) -> None:
    config = {**KEEPS, "cleanup.policy": policy, "retention.bytes": bound}
    check_target(target(config), [selected(1, 1001)], 2)


DELETED = (
    "retention.ms=2000, and the oldest record is 1 days old, so the brokers would delete this record. The value is "
    "Kafka's default; allowed: -1, or 86400000 or more; create the topic with retention.ms=-1 before you restore"
)
REFUSED = (
    "message.timestamp.before.max.ms=3, and the oldest record is 1 days old, so the brokers would refuse this record. "
    "The value is Kafka's default; allowed: a value of 86400000 or more; create the topic with "
    "message.timestamp.before.max.ms=9223372036854775807 before you restore"
)
CHANGED = (
    "message.timestamp.type=LogAppendTime, so the brokers would replace the timestamps. The value is Kafka's default; "
    "allowed: CreateTime; create the topic with message.timestamp.type=CreateTime before you restore"
)


KEYLESS = (
    "cleanup.policy=compact,delete, and 3 records have no key, so the brokers would refuse these records. The value is "
    "Kafka's default; allowed: delete; create the topic with cleanup.policy=delete before you restore"
)
AHEAD = (
    "message.timestamp.after.max.ms=3600000, and the newest record is 3600001 ms in the future, so the brokers would "
    "refuse this record. The value is Kafka's default; allowed: a value of 3600001 or more; create the topic with "
    "message.timestamp.after.max.ms=9223372036854775807 before you restore"
)


LARGE = (
    "max.message.bytes=999, and the record at offset 7 of partition 0 has 1000 bytes before compression, so the "
    "brokers would refuse this record. The value is Kafka's default; allowed: 1000 or more; create the topic with "
    "max.message.bytes=1000 before you restore"
)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"max.message.bytes": "999"}, LARGE),
        ({"retention.ms": "2000"}, DELETED),
        ({"cleanup.policy": "compact,delete"}, KEYLESS),
        ({"message.timestamp.before.max.ms": "3"}, REFUSED),
        ({"message.timestamp.type": "LogAppendTime"}, CHANGED),
    ],
    ids=["large", "deleted", "keyless", "refused", "changed"],
)
def test_creating_a_topic_that_would_not_keep_the_records_is_refused(config: dict[str, str], told: str) -> None:
    made = target({**KEEPS, **config}, origin=Origin.DEFAULT, is_new=True)
    with pytest.raises(JobFailed) as refused:
        check_target(made, [selected(0, 10)], 86_400_001)
    assert str(refused.value) == f"into=flights would have {told}"


def test_a_target_that_refuses_timestamps_in_the_future_is_refused() -> None:
    """Archives of Kafka 3 may have such records: it had no limit for them."""
    newest_ms = 3_600_001 + 1000
    bound = {**KEEPS, "message.timestamp.after.max.ms": "3600000"}
    ahead = msgspec.structs.replace(selected(0, 10), newest_ms=newest_ms)
    with pytest.raises(Refused) as refused:
        check_target(target(bound, origin=Origin.DEFAULT, is_new=True), [ahead], 1000)
    assert str(refused.value) == f"into=flights would have {AHEAD}"
    check_target(target(bound), [ahead], 1001)


def test_the_error_names_where_the_setting_of_an_existing_topic_comes_from() -> None:
    there = target({**KEEPS, "retention.ms": "2000"}, origin=Origin.ALL_BROKERS)
    told = "The value is a dynamic default of all brokers; allowed: .*; set retention.ms=-1 while you restore"
    with pytest.raises(JobFailed, match=told):
        check_target(there, [selected(0, 10)], 86_400_001)


def plan_of(bases: dict[int, int], partitions: list[int] | None = None) -> Plan:
    selection = Selection(topic_id="t", partitions=partitions)
    return Plan(into="flights", into_id="i", selection=selection, commit=0, bases=bases, records={})


def test_a_group_reads_on_with_the_first_restored_record_that_it_had_not_read() -> None:
    """Of partition 0 the selected records begin above offset 5; the target had 100 records before."""
    committed = [GroupOffset("a", 0, 5), GroupOffset("b", 0, 20), GroupOffset("b", 1, 7), GroupOffset("b", 9, 1)]
    plan = plan_of({0: 100, 1: 0})
    assert offsets_by_partition(committed, plan) == {0: [5, 20], 1: [7]}
    before = {(0, 5): 0, (0, 20): 12, (1, 7): 7}
    assert translated(committed, plan, before) == {"a": {0: 100}, "b": {0: 112, 1: 7}}


def test_offsets_of_partitions_that_are_not_restored_are_not_translated() -> None:
    plan = plan_of({0: 0, 1: 0}, partitions=[1])
    assert translated([GroupOffset("a", 0, 5), GroupOffset("a", 1, 5)], plan, {(1, 5): 5}) == {"a": {1: 5}}


def test_the_summary_names_the_first_groups_that_have_members() -> None:
    groups = [RestoredGroup(group=f"g{each}", offsets={}, outcome="has members") for each in range(7)]
    assert left_out(groups) == (
        "the offsets of 7 groups were not committed, because the groups have members: g0, g1, g2, g3, g4 and 2 more; "
        "stop their members, and run the restore again"
    )
    assert left_out([RestoredGroup(group="g", offsets={}, outcome="committed")]) == ""
