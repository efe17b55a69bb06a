"""The plan of a restore: the records to write, and the offsets at which they begin in the target.

The first run makes and stores the plan, and the runs that continue the restore follow it. With the records, a restore
to a point in time writes the committed offsets that groups had then, translated to offsets of the target.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum
from typing import Final, Literal, NamedTuple

import msgspec

from barnabas_jobs.planning.archived import GroupOffset
from barnabas_jobs.planning.errors import JobFailed, Refused


class Origin(IntEnum):
    """The origin of a config value, with the numbers of the Kafka protocol."""

    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    SERVER_PROPERTIES = 4
    DEFAULT = 5

    @classmethod
    def _missing_(cls, _: object) -> "Origin":
        """Return UNKNOWN for the other config sources of newer brokers, as Kafka's own clients do."""
        return cls.UNKNOWN

    def __str__(self) -> str:
        return _TEXTS[self]


_TEXTS: Final = {
    Origin.UNKNOWN: "from a config source that the brokers do not report",
    Origin.TOPIC: "the topic's own",
    Origin.BROKER: "a dynamic config of one broker",
    Origin.ALL_BROKERS: "a dynamic default of all brokers",
    Origin.SERVER_PROPERTIES: "from the brokers' server.properties",
    Origin.DEFAULT: "Kafka's default",
}


class TopicSetting(NamedTuple):
    """The value of a config as text, and its origin."""

    value: str
    origin: Origin


DAY_MS: Final = 86_400_000
GROUPS_NAMED_MAX: Final = 5

Outcome = Literal["planned", "committed", "there already", "has members"]


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The selection of records: `from_*` (inclusive) and `to_*` (exclusive) are ms since 1970, or offsets.

    `until_ms` selects what the archive had at that time, and not what has been archived since.
    """

    topic_id: str
    until_ms: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    from_offset: int | None = None
    to_offset: int | None = None
    partitions: list[int] | None = None


class Selected(msgspec.Struct, frozen=True, kw_only=True):
    """The selected records of one partition.

    `unsettable` counts timestamps of 0 or less, which librdkafka cannot write. `keyless` counts records without a key.
    `largest_bytes` is the size of the largest record, alone in an uncompressed batch, and `largest_offset` its offset.
    """

    partition: int
    records: int
    bytes: int
    first_offset: int
    last_offset: int
    oldest_ms: int
    newest_ms: int
    unsettable: int
    keyless: int
    largest_bytes: int
    largest_offset: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The records to restore, as the archive had them after the commit with the number `commit`.

    By partition, `bases` has the offset of the first restored record in the target topic, and `records` the number of
    records to restore.
    """

    into: str
    into_id: str
    selection: Selection
    commit: int
    bases: dict[int, int]
    records: dict[int, int]


class TargetTopic(NamedTuple):
    """The topic that receives the records, as it exists, or as it would be created (`is_new`)."""

    name: str
    partitions: int
    settings: Mapping[str, TopicSetting]
    is_new: bool = False

    def value(self, setting: str, default: str) -> str:
        """Return the value of the setting, or `default` if the brokers do not report it."""
        return self.settings[setting].value if setting in self.settings else default

    def refusal(self, setting: str, problem: str, allowed: str, keeps_all: str) -> Refused:
        """Return the error that names the setting, its value and what is allowed."""
        value, origin = self.settings[setting]
        kept = f"{setting}={keeps_all}"
        has, do = (
            ("would have", f"create the topic with {kept} before you restore")
            if self.is_new
            else ("has", f"set {kept} while you restore")
        )
        return Refused(
            f"into={self.name} {has} {setting}={value}{problem}. The value is {origin}; allowed: {allowed}; {do}"
        )


def check_target(target: TargetTopic, selected: Iterable[Selected], now_ms: int) -> None:
    """Raise Refused if some of the records would be rejected, changed or deleted in the target topic."""
    found = [each for each in selected if each.records]
    beyond = [each.partition for each in found if each.partition >= target.partitions]
    if beyond:
        raise Refused(
            f"into={target.name} has {target.partitions} partitions, but the records need {max(beyond) + 1}; add"
            " partitions"
        )
    unsettable = sum(each.unsettable for each in found)
    if unsettable:
        raise Refused(
            f"{unsettable} records have a timestamp of 1970-01-01T00:00:00Z or before, which the producer would "
            "replace by the current time; set from_time=1970-01-01T00:00:00.001Z to restore only later records"
        )
    if target.value("message.timestamp.type", "CreateTime") == "LogAppendTime":
        problem = ", so the brokers would replace the timestamps"
        raise target.refusal("message.timestamp.type", problem, "CreateTime", "CreateTime")
    if found:
        _check_keys(target, sum(each.keyless for each in found))
        _check_age(target, now_ms - min(each.oldest_ms for each in found))
        _check_future(target, max(each.newest_ms for each in found) - now_ms)
        _check_size(target, max(found, key=lambda each: each.bytes))
        _check_largest(target, max(found, key=lambda each: each.largest_bytes))


def _check_keys(target: TargetTopic, keyless: int) -> None:
    if keyless and "compact" in target.value("cleanup.policy", "delete"):
        problem = f", and {keyless} records have no key, so the brokers would refuse these records"
        raise target.refusal("cleanup.policy", problem, "delete", "delete")


def _check_size(target: TargetTopic, largest: Selected) -> None:
    """Raise Refused if brokers would delete records of the largest partition because of `retention.bytes`.

    The check uses the size of the records before compression, so it may refuse records that would fit after
    compression.
    """
    bound = int(target.value("retention.bytes", "-1"))
    if "delete" in target.value("cleanup.policy", "delete") and 0 <= bound < largest.bytes:
        problem = (
            f", and partition {largest.partition} gets {largest.bytes} bytes of keys, values and headers, so the "
            "brokers would delete the oldest records"
        )
        raise target.refusal("retention.bytes", problem, f"-1, or {largest.bytes} or more", "-1")


def _check_largest(target: TargetTopic, largest: Selected) -> None:
    """Raise Refused if a record is larger than `max.message.bytes`, before compression."""
    name, size = "max.message.bytes", largest.largest_bytes
    if int(target.value(name, str(size))) < size:
        problem = (
            f", and the record at offset {largest.largest_offset} of partition {largest.partition} has {size} bytes "
            "before compression, so the brokers would refuse this record"
        )
        raise target.refusal(name, problem, f"{size} or more", str(size))


def _check_age(target: TargetTopic, age_ms: int) -> None:
    bounds = {"message.timestamp.before.max.ms": ("refuse", "a value of", str(2**63 - 1))}
    if "delete" in target.value("cleanup.policy", "delete"):
        bounds["retention.ms"] = ("delete", "-1, or", "-1")
    for name, (would, allowed, keeps_all) in bounds.items():
        if 0 <= int(target.value(name, "-1")) < age_ms:
            problem = (
                f", and the oldest record is {age_ms // DAY_MS} days old, so the brokers would {would} this record"
            )
            raise target.refusal(name, problem, f"{allowed} {age_ms} or more", keeps_all)


def _check_future(target: TargetTopic, ahead_ms: int) -> None:
    name, keeps_all = "message.timestamp.after.max.ms", str(2**63 - 1)
    if int(target.value(name, keeps_all)) < ahead_ms:
        problem = f", and the newest record is {ahead_ms} ms in the future, so the brokers would refuse this record"
        raise target.refusal(name, problem, f"a value of {ahead_ms} or more", keeps_all)


def check_same(plan: Plan, selection: Selection, name: str) -> None:
    """Raise Refused if the stored plan selects other records than `selection`, the options of this run."""
    if plan.selection != selection:
        begun, wanted = msgspec.json.encode(plan.selection).decode(), msgspec.json.encode(selection).decode()
        raise Refused(
            f"the restore name={name} into {plan.into} has begun with the options {begun}, not with {wanted}; "
            "give the same options to continue this restore, or another name to begin another restore"
        )


def check_selected(plan: Plan, selected: Iterable[Selected]) -> None:
    """Raise JobFailed if a partition now has more or fewer selected records than in the plan."""
    found = {each.partition: each.records for each in selected}
    if found != plan.records:
        raise JobFailed(
            f"the restore into {plan.into} has begun with {sum(plan.records.values())} records, but its options now "
            f"select {sum(found.values())} records: somebody has deleted records from the archive's table, or rolled "
            "the table back; empty the target, and restore under another name"
        )


def is_complete(plan: Plan, ends: Mapping[int, int]) -> bool:
    """True if each partition of the target ends where the plan says."""
    return all(ends.get(partition) == plan.bases[partition] + count for partition, count in plan.records.items())


def check_written(plan: Plan, ends: Mapping[int, int]) -> None:
    """Raise JobFailed if a partition of the target does not end where the plan says."""
    for partition, records in plan.records.items():
        wanted = plan.bases[partition] + records
        if ends[partition] != wanted:
            raise JobFailed(
                f"{plan.into}-{partition} ends at offset {ends[partition]}, but must end at {wanted}: another "
                "client has written to this partition. Restore into a topic to which no other client writes."
            )


class RestoredGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group whose committed offsets are translated: `offsets` are those in the target, by partition.

    The outcome is `there already` if the group has committed an offset in each of the partitions, in an earlier run or
    by itself, and `has members` if only its members may commit.
    """

    group: str
    offsets: dict[int, int]
    outcome: Outcome


def offsets_by_partition(committed: Iterable[GroupOffset], plan: Plan) -> dict[int, list[int]]:
    """Return the sorted committed offsets of groups in each partition that the plan restores."""
    found: dict[int, set[int]] = {}
    for each in committed:
        if _is_restored(plan, each.partition):
            found.setdefault(each.partition, set()).add(each.offset)
    return {partition: sorted(offsets) for partition, offsets in found.items()}


def translated(
    committed: Iterable[GroupOffset], plan: Plan, before: Mapping[tuple[int, int], int]
) -> dict[str, dict[int, int]]:
    """Return the offsets in the target that stand for the committed offsets, by group and partition.

    `before` has the number of selected records before each committed offset of a partition. A group reads on with the
    first restored record that it had not read, also if earlier ones are not restored.
    """
    found: dict[str, dict[int, int]] = {}
    for group, partition, offset in committed:
        if _is_restored(plan, partition):
            found.setdefault(group, {})[partition] = plan.bases[partition] + before.get((partition, offset), 0)
    return found


def _is_restored(plan: Plan, partition: int) -> bool:
    wanted = plan.selection.partitions
    return partition in plan.bases and (wanted is None or partition in wanted)


def left_out(groups: Collection[RestoredGroup]) -> str:
    """Return a sentence about the groups whose offsets were not committed, or "" if there are none."""
    names = [each.group for each in groups if each.outcome == "has members"]
    if not names:
        return ""
    more = f" and {len(names) - GROUPS_NAMED_MAX} more" if len(names) > GROUPS_NAMED_MAX else ""
    return (
        f"the offsets of {len(names)} groups were not committed, because the groups have members: "
        f"{', '.join(names[:GROUPS_NAMED_MAX])}{more}; stop their members, and run the restore again"
    )
