"""What a restore writes, and where: decided once and kept in a file, which every later run of it follows."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from barnabas_jobs.planning.errors import JobFailed

DAY_MS: Final = 86_400_000


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which archived records: from (inclusive) and to (exclusive), milliseconds since 1970 or offsets."""

    topic_id: str
    from_ms: int | None = None
    to_ms: int | None = None
    from_offset: int | None = None
    to_offset: int | None = None
    partitions: list[int] | None = None


class Selected(msgspec.Struct, frozen=True, kw_only=True):
    """The selected records of one partition.

    `unsettable` records have a timestamp that librdkafka cannot write: 0 and less.
    """

    partition: int
    records: int
    bytes: int
    first_offset: int
    last_offset: int
    oldest_ms: int
    newest_ms: int
    unsettable: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Selected records of the first `entries` ledger entries; in each partition of the target they begin at `bases`."""

    into: str
    into_id: str
    selection: Selection
    entries: int
    bases: dict[int, int]
    records: dict[int, int]


def check_target(
    target: str, partitions: int, config: Mapping[str, str], selected: Iterable[Selected], now_ms: int
) -> None:
    """Raises JobFailed where the target would not keep the records as they are."""
    found = [each for each in selected if each.records]
    beyond = [each.partition for each in found if each.partition >= partitions]
    if beyond:
        raise JobFailed(
            f"into={target} has {partitions} partitions; the records need {max(beyond) + 1}: add partitions"
        )
    unsettable = sum(each.unsettable for each in found)
    if unsettable:
        raise JobFailed(
            f"{unsettable} records have a timestamp of 1970-01-01T00:00:00Z or before, which the producer would "
            "replace by the present; restore from later with from_time=1970-01-01T00:00:00.001Z"
        )
    if config.get("message.timestamp.type") == "LogAppendTime":
        raise JobFailed(
            f"into={target} has message.timestamp.type=LogAppendTime: its broker would replace the timestamps; "
            "set CreateTime while you restore"
        )
    if found:
        _check_age(target, config, now_ms - min(each.oldest_ms for each in found))
        _check_size(target, config, max(found, key=lambda each: each.bytes))


def _check_size(target: str, config: Mapping[str, str], largest: Selected) -> None:
    """By bytes before compression: what the log will have on the disk may be less."""
    bound = int(config.get("retention.bytes", "-1"))
    if "delete" in config.get("cleanup.policy", "delete") and 0 <= bound < largest.bytes:
        raise JobFailed(
            f"into={target} has retention.bytes={bound}, and partition {largest.partition} gets {largest.bytes} bytes "
            "of keys, values and headers: the brokers would delete the oldest; set retention.bytes=-1 while you restore"
        )


def _check_age(target: str, config: Mapping[str, str], age_ms: int) -> None:
    bounds = {"message.timestamp.before.max.ms": "refuse"}
    if "delete" in config.get("cleanup.policy", "delete"):
        bounds["retention.ms"] = "delete"
    for name, would in bounds.items():
        bound_ms = int(config.get(name, "-1"))
        if 0 <= bound_ms < age_ms:
            raise JobFailed(
                f"into={target} has {name}={bound_ms}, and the oldest record is {age_ms // DAY_MS} days old: the "
                f"brokers would {would} it; set {name}={'-1' if would == 'delete' else 2**63 - 1} while you restore"
            )


def check_same(plan: Plan, selection: Selection, name: str) -> None:
    """Raises JobFailed if the plan under way is for other records."""
    if plan.selection != selection:
        begun, wanted = msgspec.json.encode(plan.selection).decode(), msgspec.json.encode(selection).decode()
        raise JobFailed(
            f"the restore name={name} into {plan.into} was begun with {begun}, not with {wanted}: "
            "give the same options to go on with it, or another name for another restore"
        )


def check_selected(plan: Plan, selected: Iterable[Selected]) -> None:
    """Raises JobFailed if the archive no longer holds the records of the plan."""
    found = {each.partition: each.records for each in selected}
    if found != plan.records:
        raise JobFailed(
            f"the restore into {plan.into} was begun with {sum(plan.records.values())} records, and the archive has "
            f"{sum(found.values())} of them now: its ledger has changed since; put it back from a backup"
        )


def check_written(plan: Plan, ends: Mapping[int, int]) -> None:
    """Raises JobFailed if the target does not end where the plan says."""
    for partition, records in plan.records.items():
        wanted = plan.bases[partition] + records
        if ends[partition] != wanted:
            raise JobFailed(
                f"{plan.into}-{partition} ends at offset {ends[partition]}; after the restore it must end at {wanted}: "
                "somebody else has written to it. Restore into a topic to which nobody writes."
            )
