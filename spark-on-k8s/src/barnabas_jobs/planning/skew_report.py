"""The reports of two jobs: the skew of topics over brokers, partitions and keys, and the age of records."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Final

import msgspec

from barnabas_jobs.planning.page import (
    Bar,
    Unread,
    bars,
    bytes_text,
    findings,
    page,
    paragraph,
    span_text,
    table,
    unread_parts,
)
from barnabas_jobs.planning.rebalance_plan import BrokerLoad, LogDirLoad, Reassigned

HOT_RATIO: Final = 1.5
LEGEND: Final = f"more than {HOT_RATIO} times the mean"
"""The meaning of red bars in a chart of partitions or brokers."""


class PartitionLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The load of a partition: bytes of keys, values and headers, and times in milliseconds since 1970.

    `records_per_s` is the rate from the first record until the report, or None if that record is in the future.
    """

    partition: int
    records: int = 0
    bytes: int = 0
    keys: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    records_per_s: float | None = None


class KeyLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The load of a key in a partition; `key` is as `key_text` returns it, and None for records without a key."""

    key: str | None
    partition: int
    records: int
    bytes: int
    share: float


class Balance(msgspec.Struct, frozen=True):
    """The largest partition divided by the mean: 1 if all are equal, the number of partitions if one has all."""

    records: float
    bytes: float


class TopicSkew(msgspec.Struct, frozen=True, kw_only=True):
    """The skew of one topic."""

    topic: str
    records: int
    bytes: int
    largest_over_mean: Balance
    partitions: list[PartitionLoad]
    hot_keys: list[KeyLoad]


class Evenness(msgspec.Struct, frozen=True):
    """The bytes of the largest broker divided by the mean, now and after the plan; 1 if all are equal."""

    now: float
    after: float


def key_text(key: bytes | None) -> str | None:
    """Return a key as text if it is printable UTF-8, otherwise in hexadecimal; None for no key."""
    if key is None:
        return None
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return f"0x{key.hex()}"
    return text if text.isprintable() else f"0x{key.hex()}"


def rate(records: int, first_ms: int, now_ms: int) -> float | None:
    """Return the records per second from the first record until now, or None if that record is in the future."""
    return records * 1000 / (now_ms - first_ms) if now_ms > first_ms else None


def balance(partitions: Sequence[PartitionLoad]) -> Balance:
    """Return the largest partition divided by the mean of all partitions, including empty ones."""
    return Balance(
        largest_over_mean([each.records for each in partitions]), largest_over_mean([each.bytes for each in partitions])
    )


def largest_over_mean(values: Sequence[int]) -> float:
    """Return the largest value divided by the mean, 1 if all values are 0."""
    return max(values) * len(values) / sum(values) if sum(values) else 1.0


def evenness(brokers: Sequence[BrokerLoad]) -> Evenness:
    """Return the bytes of the largest live broker divided by the mean, now and after the plan."""
    return Evenness(
        largest_over_mean([each.bytes for each in brokers]), largest_over_mean([each.bytes_after for each in brokers])
    )


def skew_page(
    about_it: str,
    topics: Sequence[TopicSkew],
    brokers: Sequence[BrokerLoad],
    log_dirs: Sequence[LogDirLoad],
    plan: Sequence[Reassigned],
    unread: Sequence[Unread] = (),
) -> str:
    """Return the HTML page."""
    parts = [*_topics_parts(topics), *(part for topic in topics for part in _topic_parts(topic))]
    of_brokers = [*_broker_parts(brokers, log_dirs), *_plan_parts(brokers, log_dirs, plan)]
    return page("Skew", about_it, *unread_parts(unread), *of_brokers, *parts)


def _topics_parts(topics: Sequence[TopicSkew]) -> list[str]:
    if not topics:
        return []
    rows = [
        (each.topic, len(each.partitions), each.records, each.bytes, each.largest_over_mean.bytes) for each in topics
    ]
    partitions = sum(len(each.partitions) for each in topics)
    whole = ("all", partitions, sum(each.records for each in topics), sum(each.bytes for each in topics), None)
    return ["<h2>Topics</h2>", table(("topic", "partitions", "records", "bytes", "largest over mean"), [*rows, whole])]


def _broker_parts(brokers: Sequence[BrokerLoad], log_dirs: Sequence[LogDirLoad]) -> list[str]:
    rows = [
        (f"broker {each.broker}", each.rack, each.replicas, each.leaders, each.bytes, each.records_per_s)
        for each in brokers
    ]
    disks = [
        (f"{each.log_dir} of broker {each.broker}", each.replicas, each.bytes, each.usable_bytes, each.total_bytes)
        for each in log_dirs
    ]
    return [
        paragraph(
            f"The largest broker has {evenness(brokers).now:.2f} times the bytes of an average broker. Bytes of "
            "brokers and log dirs are the sizes of their files."
        ),
        *_charts(brokers, log_dirs, "bytes", ""),
        table(("broker", "rack", "replicas", "leaders", "bytes", "records per second as leader"), rows),
        table(("log dir", "replicas", "bytes", "bytes free", "total bytes of the disk"), disks),
    ]


def _charts(brokers: Sequence[BrokerLoad], log_dirs: Sequence[LogDirLoad], field: str, when: str) -> list[str]:
    """Return a chart of a field of the brokers, and one of the log dirs."""
    of_brokers = _bars((f"broker {each.broker}", getattr(each, field)) for each in brokers)
    of_log_dirs = _bars((f"{each.broker}: {each.log_dir}", getattr(each, field)) for each in log_dirs)
    return [bars(f"Bytes by broker{when}", of_brokers, LEGEND), bars(f"Bytes by log dir{when}", of_log_dirs, LEGEND)]


def _plan_parts(brokers: Sequence[BrokerLoad], log_dirs: Sequence[LogDirLoad], plan: Sequence[Reassigned]) -> list[str]:
    if not plan:
        return [
            paragraph(
                "No reassignment is planned, because brokers and log dirs hold about the same number of bytes, or no "
                "replica can be moved."
            )
        ]
    rows = [
        (f"{each.topic}-{each.partition}", _ids(each.before), _ids(each.replicas), ", ".join(each.log_dirs or ()))
        for each in plan
    ]
    return [
        "<h2>Planned reassignment</h2>",
        paragraph(
            f"After the planned reassignment, the largest broker has {evenness(brokers).after:.2f} times the bytes of "
            "an average broker. kafka-reassign-partitions can carry out plan.json."
        ),
        *_charts(brokers, log_dirs, "bytes_after", ", after the reassignment"),
        table(("partition", "replicas", "replicas then", "log dirs then"), rows),
    ]


def _topic_parts(topic: TopicSkew) -> list[str]:
    even = topic.largest_over_mean
    by_bytes = _bars((f"partition {each.partition}", each.bytes) for each in topic.partitions)
    by_records = _bars(((f"partition {each.partition}", each.records) for each in topic.partitions), "{:,}".format)
    hot = [
        Bar("(no key)" if each.key is None else each.key, each.records, f"{each.records:,} ({each.share:.1%})")
        for each in topic.hot_keys
    ]
    rows = [(each.partition, each.records, each.bytes, each.keys, each.records_per_s) for each in topic.partitions]
    return [
        f"<h2>{escape(topic.topic)}</h2>",
        paragraph(
            f"The largest partition has {even.bytes:.2f} times the bytes and {even.records:.2f} times the records of "
            "an average partition. Bytes are those of keys, values and headers, before compression."
        ),
        bars("Bytes by partition", by_bytes, LEGEND),
        bars("Records by partition", by_records, LEGEND),
        bars("Keys with the most records", hot),
        "<h2>Partitions</h2>",
        table(("partition", "records", "bytes", "keys", "records per second since the first record"), rows),
    ]


def _bars(sizes: Iterable[tuple[str, int]], text: Callable[[int], str] = bytes_text) -> list[Bar]:
    found = list(sizes)
    mean = sum(size for _, size in found) / max(1, len(found))
    return [Bar(label, size, text(size), size > HOT_RATIO * mean) for label, size in found]


def _ids(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers))


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


class PartitionAges(msgspec.Struct, frozen=True, kw_only=True):
    """A partition in the report; `bytes_by_age` is in the order of AGES.

    `would_go_records` counts the records that would be deleted if `retention.ms` had the value of the job's option
    `retention_ms`. Records without a timestamp or from before 1970 are in the last age group, but retention by time
    never deletes them.
    """

    partition: int
    records: int = 0
    bytes: int = 0
    oldest_ms: int | None = None
    newest_ms: int | None = None
    bytes_by_age: list[int] = msgspec.field(default_factory=lambda: [0] * len(AGES))
    would_go_records: int = 0
    would_go_bytes: int = 0
    findings: list[str] = []


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


def wrong_ages(oldest_ms: int | None, newest_ms: int | None, kept: Declared, now_ms: int) -> list[str]:
    """Return the findings about a partition: its oldest record is too old, or its newest one is in the future."""
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
        parts += _retention_parts(topic, what_if_ms)
    return page("The declared retention of topics, and the age of their records", about_it, *parts)


def _limit_text(limit_ms: int) -> str:
    return "for ever" if limit_ms < 0 else span_text(limit_ms)


def _retention_parts(topic: TopicRetention, what_if_ms: int | None) -> list[str]:
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
