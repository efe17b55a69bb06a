"""The skew of topics: over brokers and log dirs, over partitions, and over keys."""

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Final

import msgspec

from barnabas_jobs.planning.page import Bar, bars, bytes_text, page, paragraph, table
from barnabas_jobs.planning.rebalance_plan import BrokerLoad, LogDirLoad, Reassigned
from barnabas_jobs.planning.unread import Unread, unread_parts

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
            f"The largest broker has {evenness(brokers).now:.2f} times the bytes of an average broker. Bytes of"
            " brokers and "
            "log dirs are the sizes of their files."
        ),
        bars("Bytes by broker", _bars((f"broker {each.broker}", each.bytes) for each in brokers), LEGEND),
        bars(
            "Bytes by log dir",
            _bars((f"{each.broker}: {each.log_dir}", each.bytes) for each in log_dirs),
            LEGEND,
        ),
        table(("broker", "rack", "replicas", "leaders", "bytes", "records per second as leader"), rows),
        table(("log dir", "replicas", "bytes", "bytes free", "total bytes of the disk"), disks),
    ]


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
        bars(
            "Bytes by broker, after the reassignment",
            _bars((f"broker {each.broker}", each.bytes_after) for each in brokers),
        ),
        bars(
            "Bytes by log dir, after the reassignment",
            _bars((f"{each.broker}: {each.log_dir}", each.bytes_after) for each in log_dirs),
        ),
        table(("partition", "replicas", "replicas then", "log dirs then"), rows),
    ]


def _topic_parts(topic: TopicSkew) -> list[str]:
    even = topic.largest_over_mean
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
        bars(
            "Bytes by partition",
            _bars((f"partition {each.partition}", each.bytes) for each in topic.partitions),
            LEGEND,
        ),
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
