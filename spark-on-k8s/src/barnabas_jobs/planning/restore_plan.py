"""The plan of a restore: the records to write, and the offsets at which they begin in the target.

The first run makes and stores the plan, and the runs that continue the restore follow it.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from barnabas_jobs.planning.errors import JobFailed, Refused
from barnabas_jobs.planning.topic_setting import TopicSetting

DAY_MS: Final = 86_400_000


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The selection of records: `from_*` (inclusive) and `to_*` (exclusive) are ms since 1970, or offsets."""

    topic_id: str
    from_ms: int | None = None
    to_ms: int | None = None
    from_offset: int | None = None
    to_offset: int | None = None
    partitions: list[int] | None = None


class Selected(msgspec.Struct, frozen=True, kw_only=True):
    """The selected records of one partition.

    `unsettable` counts timestamps of 0 or less, which librdkafka cannot write. `keyless` counts records without a key.
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


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The records to restore, from the first `entries` ledger entries.

    By partition, `bases` has the offset of the first restored record in the target topic, and `records` the number of
    records to restore.
    """

    into: str
    into_id: str
    selection: Selection
    entries: int
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
            f"select {sum(found.values())} records: the archive's ledger has changed; copy the ledger from a backup"
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
