"""Transactions of each client library: records and offsets are atomic, and an older producer is fenced."""

from collections.abc import Sequence

import pytest

from drivers.interface import Client, Message, Received, Writer, value_of

SOURCE = [Message(b"%d" % n, partition=n % 2) for n in range(20)]


def of(name: str) -> list[Message]:
    """Return a record for each of the two partitions."""
    return [Message(b"%s %d" % (name.encode(), partition), partition=partition) for partition in (0, 1)]


def values(records: Sequence[Message | Received]) -> list[bytes]:
    return sorted(value_of(record) for record in records)


def written(writer: Writer, topic: str, name: str, *, commit: bool) -> None:
    """Write a transaction with records of this name."""
    writer.write(topic, of(name))
    writer.end(commit=commit)


def test_a_transaction_commits_copied_records_and_offsets_together_or_not_at_all(
    transactional: Client, topic: str
) -> None:
    source, target = f"{topic}-from", f"{topic}-to"
    for name in (source, target):
        transactional.create_topic(name, 2, {})
    first = transactional.writer(topic)
    written(first, source, "aborted", commit=False)
    first.write(source, SOURCE)
    first.end(commit=True)
    first.close()
    transactional.copy(f"{topic}-copy", topic, source, target, len(SOURCE), commit=False)
    assert sum(max(offset, 0) for offset in transactional.committed(topic, source).values()) == 0
    transactional.copy(f"{topic}-copy", topic, source, target, len(SOURCE), commit=True)
    assert values(transactional.read_committed(target, len(SOURCE))) == values(SOURCE)
    # There are one aborted record, its marker and ten records; some clients count the last marker, too.
    assert all(offset in (12, 13) for offset in transactional.committed(topic, source).values())
    assert len(transactional.read(target, 2 * len(SOURCE))) == 2 * len(SOURCE)


def test_an_older_producer_with_the_same_transactional_id_is_fenced(transactional: Client, topic: str) -> None:
    transactional.create_topic(topic, 2, {})
    older = transactional.writer(topic)
    older.write(topic, of("older"))
    newer = transactional.writer(topic)
    written(newer, topic, "newer", commit=True)
    with pytest.raises(Exception, match=r"(?i)fenced|epoch|newer producer"):
        older.end(commit=True)
    assert values(transactional.read_committed(topic, 2)) == values(of("newer"))
    older.close()
    newer.close()
