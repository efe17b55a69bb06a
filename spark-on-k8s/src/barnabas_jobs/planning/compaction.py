"""The choice of the ledger entries whose files `compact` joins, and of the folders of replaced files to delete."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from barnabas_jobs.planning.ledger import JOINED_FORMAT, DataFile, Entry, Generation

KEEP_MS: Final = 24 * 3_600_000
"""The time in ms for which replaced files stay, because runs may still read them."""


def groups_to_join(generation: Generation, records_max: int) -> list[list[Entry]]:
    """Return groups of two or more ledger entries whose files are to be joined.

    The entries of a group have one schema, and at most `records_max` records in all. Entries without files, and entries
    whose files were replaced, are in no group.
    """
    joined, found, records = generation.joined, list[list[Entry]](), 0
    for entry in generation.entries:
        if not entry.files or entry.number in joined:
            continue
        own = sum(records_of(generation, [entry]).values())
        fits = found and records + own <= records_max and found[-1][0].schema == entry.schema
        if not fits:
            found.append([])
            records = 0
        found[-1].append(entry)
        records += own
    return [group for group in found if len(group) > 1]


def records_of(generation: Generation, group: Sequence[Entry]) -> dict[int, int]:
    """Return the number of records in the files of these ledger entries, by partition."""
    counts: dict[int, int] = {}
    for entry in _brought(generation, group):
        for each in entry.partitions:
            if each.records:
                counts[each.partition] = counts.get(each.partition, 0) + each.records
    return counts


def _brought(generation: Generation, group: Sequence[Entry]) -> Iterator[Entry]:
    wanted = {number for entry in group for number in (range(*entry.joins) if entry.joins else (entry.number,))}
    return (entry for entry in generation.entries if entry.number in wanted)


def joining_entry(number: int, group: Sequence[Entry], last: Entry, files: list[DataFile], now_ms: int) -> Entry:
    """Return a ledger entry whose files replace the files of the ledger entries in `group`.

    `last` is the newest ledger entry of the same topic id.
    """
    return msgspec.structs.replace(
        fencing_entry(number, last, now_ms),
        files=files,
        schema=group[0].schema,
        joins=(group[0].number, group[-1].number + 1),
        format=JOINED_FORMAT,
    )


def fencing_entry(number: int, last: Entry, now_ms: int) -> Entry:
    """Return an empty ledger entry.

    Its commit uses up `number`, so that an interrupted run can no longer commit an entry with this number.
    """
    return Entry(
        number=number,
        topic=last.topic,
        topic_id=last.topic_id,
        committed_at_ms=now_ms,
        partitions=[],
        files=[],
        topic_partitions=last.topic_partitions,
        topic_config=last.topic_config,
    )


def replaced_runs(generation: Generation, now_ms: int) -> set[str]:
    """Return the run folders whose data files `compact` replaced at least KEEP_MS ago."""
    old = (each for each in generation.entries if each.joins and now_ms - each.committed_at_ms >= KEEP_MS)
    numbers = {number for each in old if each.joins for number in range(*each.joins)}
    return {entry.run for entry in generation.entries if entry.number in numbers and entry.run is not None}
