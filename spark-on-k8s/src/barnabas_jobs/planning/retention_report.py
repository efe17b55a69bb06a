"""The comparison of the declared retention of topics with the records that they hold."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from barnabas_jobs.planning.page import Bar, bars, bytes_text, findings, page, paragraph, span_text, table
from barnabas_jobs.planning.unread import Unread, unread_parts

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
AGES: Final = (
    ("less than an hour", HOUR_MS),
    ("less than a day", DAY_MS),
    ("less than 7 days", 7 * DAY_MS),
    ("less than 30 days", 30 * DAY_MS),
    ("less than 90 days", 90 * DAY_MS),
    ("less than a year", 365 * DAY_MS),
    ("a year or more", None),
)
"""The upper bounds of age groups, in ms; each group begins at the bound of the previous one."""

# Brokers check retention every five minutes (log.retention.check.interval.ms), and delete files a little later.
GRACE_MS: Final = 10 * 60_000
FUTURE_MS: Final = HOUR_MS


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a topic that limit which records the topic keeps; -1 means no limit."""

    cleanup_policy: str
    retention_ms: int
    retention_bytes: int
    segment_ms: int
    segment_bytes: int

    @property
    def oldest_allowed_ms(self) -> int | None:
        """The largest age in ms that a record may have, or None if the topic keeps records of any age.

        A segment is deleted only when its newest record is older than `retention.ms`. Its oldest record may be older by
        `segment.ms`, so the result includes `segment.ms`.
        """
        if "delete" not in self.cleanup_policy or self.retention_ms < 0:
            return None
        return self.retention_ms + self.segment_ms + GRACE_MS


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """The records of one partition in one age group; `age` is the index of the age group in AGES.

    `would_go_records` counts the records that would be deleted if `retention.ms` had the value of the job's option
    `retention_ms`. Records without a timestamp or from before 1970 are in the last age group, but retention by time
    never deletes them.
    """

    partition: int
    age: int
    records: int
    bytes: int
    oldest_ms: int | None
    newest_ms: int | None
    would_go_records: int
    would_go_bytes: int


class PartitionAges(msgspec.Struct, frozen=True, kw_only=True):
    """A partition in the report; `bytes_by_age` is in the order of AGES."""

    partition: int
    records: int
    bytes: int
    oldest_ms: int | None
    newest_ms: int | None
    bytes_by_age: list[int]
    would_go_records: int
    would_go_bytes: int
    findings: list[str]


class TopicRetention(msgspec.Struct, frozen=True, kw_only=True):
    """A topic in the report."""

    topic: str
    declared: Declared
    partitions: list[PartitionAges]


def declared(config: Mapping[str, str]) -> Declared:
    """Return the retention settings of a topic's configs, including defaults of the brokers."""
    return Declared(
        cleanup_policy=config.get("cleanup.policy", "delete"),
        retention_ms=int(config["retention.ms"]),
        retention_bytes=int(config["retention.bytes"]),
        segment_ms=int(config["segment.ms"]),
        segment_bytes=int(config["segment.bytes"]),
    )


def audited(partition: int, held: Sequence[Held], kept: Declared, now_ms: int) -> PartitionAges:
    """Return the report of a partition, with its findings."""
    by_age = [0] * len(AGES)
    for each in held:
        by_age[each.age] += each.bytes
    oldest_ms = min((each.oldest_ms for each in held if each.oldest_ms is not None), default=None)
    newest_ms = max((each.newest_ms for each in held if each.newest_ms is not None), default=None)
    return PartitionAges(
        partition=partition,
        records=sum(each.records for each in held),
        bytes=sum(each.bytes for each in held),
        oldest_ms=oldest_ms,
        newest_ms=newest_ms,
        bytes_by_age=by_age,
        would_go_records=sum(each.would_go_records for each in held),
        would_go_bytes=sum(each.would_go_bytes for each in held),
        findings=_findings(oldest_ms, newest_ms, kept, now_ms),
    )


def _findings(oldest_ms: int | None, newest_ms: int | None, kept: Declared, now_ms: int) -> list[str]:
    found = []
    allowed_ms = kept.oldest_allowed_ms
    if oldest_ms is not None and allowed_ms is not None and now_ms - oldest_ms > allowed_ms:
        found.append(
            f"the oldest record is {span_text(now_ms - oldest_ms)} old, but retention.ms "
            f"({span_text(kept.retention_ms)}), segment.ms ({span_text(kept.segment_ms)}) and ten minutes for the "
            f"deletion add up to {span_text(allowed_ms)}"
        )
    if newest_ms is not None and newest_ms - now_ms > FUTURE_MS:
        found.append(
            f"the newest timestamp is {span_text(newest_ms - now_ms)} in the future, and the segment is kept longer"
            " by this time"
        )
    return found


def findings_of(topics: Iterable[TopicRetention], unread: Iterable[Unread]) -> list[str]:
    """Return a line for each finding, and for each existing topic that could not be read."""
    kept_wrong = [
        f"{topic.topic}-{each.partition}: {finding}"
        for topic in topics
        for each in topic.partitions
        for finding in each.findings
    ]
    return kept_wrong + [f"{each.topic} could not be read: {each.why}" for each in unread if not each.is_gone]


def retention_page(
    about_it: str, topics: Sequence[TopicRetention], what_if_ms: int | None, unread: Sequence[Unread] = ()
) -> str:
    """Return the HTML page: findings, all topics, and then each topic."""
    sums = [
        (
            topic.topic,
            sum(each.records for each in topic.partitions),
            sum(each.bytes for each in topic.partitions),
            sum(each.would_go_bytes for each in topic.partitions),
            sum(len(each.findings) for each in topic.partitions),
        )
        for topic in topics
    ]
    whole = ("all", *(sum(column) for column in zip(*(row[1:] for row in sums), strict=True)))
    parts = [
        findings(findings_of(topics, unread)),
        table(
            ("topic", "records", "bytes", "bytes that would be deleted", "findings"),
            [*sums, *([whole] if sums else [])],
        ),
        paragraph(
            "Bytes are those of keys, values and headers, before compression. Ages are computed from the records'"
            " timestamps."
        ),
        *unread_parts(unread),
    ]
    for topic in topics:
        parts += _topic_parts(topic, what_if_ms)
    return page("The declared retention of topics, and the age of their records", about_it, *parts)


def _limit_text(limit_ms: int) -> str:
    return "for ever" if limit_ms < 0 else span_text(limit_ms)


def _topic_parts(topic: TopicRetention, what_if_ms: int | None) -> list[str]:
    sums = [sum(column) for column in zip(*(each.bytes_by_age for each in topic.partitions), strict=True)]
    kept = topic.declared
    rows = [
        (each.partition, each.records, each.bytes, each.would_go_bytes, "; ".join(each.findings) or "fine")
        for each in topic.partitions
    ]
    limits = (
        f"retention.ms={kept.retention_ms} ({_limit_text(kept.retention_ms)}), segment.ms={kept.segment_ms} "
        f"({_limit_text(kept.segment_ms)}), retention.bytes={kept.retention_bytes}, {kept.cleanup_policy}"
    )
    other = "would be deleted" if what_if_ms is None else f"would be deleted with retention.ms={what_if_ms}"
    ages = [Bar(name, size, bytes_text(size)) for (name, _), size in zip(AGES, sums, strict=True)]
    return [
        bars(f"{topic.topic}: bytes by age", ages),
        paragraph(limits),
        table(("partition", "records", "bytes", f"bytes that {other}", "findings"), rows),
    ]
