"""How evenly a topic is spread: over its partitions, and over the keys of its records."""

from collections.abc import Sequence
from typing import Final

import msgspec

from barnabas_jobs.planning.page import Bar, bars, bytes_text, page, paragraph, table

HOT_RATIO: Final = 1.5
"""A partition with so many times the mean of all is drawn as hot."""


class PartitionLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What one partition holds: bytes of keys, values and headers; times in milliseconds since 1970."""

    partition: int
    records: int = 0
    bytes: int = 0
    keys: int = 0
    first_ms: int | None = None
    last_ms: int | None = None

    @property
    def records_per_s(self) -> float | None:
        """Over the time from its first record to its last; None where that is no time."""
        if self.first_ms is None or self.last_ms is None or self.last_ms <= self.first_ms:
            return None
        return self.records * 1000 / (self.last_ms - self.first_ms)


class KeyLoad(msgspec.Struct, frozen=True, kw_only=True):
    """One key, as text where it is UTF-8 and else in hexadecimal; None is that of records without one."""

    key: str | None
    partition: int
    records: int
    bytes: int
    share: float


class Balance(msgspec.Struct, frozen=True):
    """The largest partition over the mean: 1 is even, as many as there are partitions is all in one."""

    records: float
    bytes: float


def key_text(key: bytes | None) -> str | None:
    """As people can read it."""
    if key is None:
        return None
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return f"0x{key.hex()}"
    return text if text.isprintable() else f"0x{key.hex()}"


def balance(partitions: Sequence[PartitionLoad]) -> Balance:
    """Of all partitions, also of those that hold nothing."""
    return Balance(_ratio([each.records for each in partitions]), _ratio([each.bytes for each in partitions]))


def _ratio(values: Sequence[int]) -> float:
    return max(values) * len(values) / sum(values) if sum(values) else 1.0


def skew_page(topic: str, partitions: Sequence[PartitionLoad], keys: Sequence[KeyLoad]) -> str:
    """The HTML page."""
    even = balance(partitions)
    mean = sum(each.bytes for each in partitions) / max(1, len(partitions))
    by_bytes = [
        Bar(f"partition {each.partition}", each.bytes, bytes_text(each.bytes), each.bytes > HOT_RATIO * mean)
        for each in partitions
    ]
    by_records = [Bar(f"partition {each.partition}", each.records, f"{each.records:,}") for each in partitions]
    hot = [
        Bar("(no key)" if each.key is None else each.key, each.records, f"{each.records:,} ({each.share:.1%})")
        for each in keys
    ]
    rows = [(each.partition, each.records, each.bytes, each.keys, each.records_per_s) for each in partitions]
    return page(
        f"Skew of {topic}",
        paragraph(
            f"The largest partition has {even.bytes:.2f} times the bytes and {even.records:.2f} times the records of "
            "the mean one. Bytes are those of keys, values and headers, before compression."
        ),
        bars("Bytes by partition", by_bytes),
        bars("Records by partition", by_records),
        bars("Keys with most records", hot),
        "<h2>Partitions</h2>",
        table(("partition", "records", "bytes", "keys", "records a second"), rows),
    )
