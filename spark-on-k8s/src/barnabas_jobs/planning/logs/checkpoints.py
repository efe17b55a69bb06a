"""The small text files of a log dir.

Decoding a damaged file raises ValueError with the reason.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from barnabas_core.topic_partition import TopicPartition


class EpochStart(NamedTuple):
    """A leader epoch, and the offset at which it began."""

    epoch: int
    start_offset: int


class EpochBatch(NamedTuple):
    """The first or the last batch of an epoch in a log."""

    epoch: int
    offset: int
    segment: int
    position: int


class Owner(NamedTuple):
    """The owner of a log dir: its cluster and node."""

    cluster_id: str
    node_id: int


def decode_offsets(text: str) -> dict[TopicPartition, int]:
    """Decode an offset checkpoint, with `topic partition offset` in each line."""
    return {TopicPartition(topic, int(number)): int(offset) for topic, number, offset in _rows(text, 3)}


def decode_epochs(text: str) -> list[EpochStart]:
    """Decode a `leader-epoch-checkpoint`, with `epoch start-offset` in each line."""
    return [EpochStart(int(epoch), int(start)) for epoch, start in _rows(text, 2)]


def decode_topic_id(text: str) -> str:
    """Return the topic id in the text of `partition.metadata`. Raises ValueError if there is none."""
    fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    if "topic_id" not in fields:
        raise ValueError("the file has no topic_id")
    return fields["topic_id"].strip()


def decode_owner(text: str) -> Owner:
    """Decode `meta.properties`; old files have `broker.id` instead of `node.id`."""
    lines = (line.strip() for line in text.splitlines())
    fields = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    node_id = fields.get("node.id", fields.get("broker.id", ""))
    if not node_id.isdigit():
        raise ValueError("the file has no node.id")
    return Owner(fields.get("cluster.id", ""), int(node_id))


def contradictions(
    checkpoint: Sequence[EpochStart], batches: Sequence[EpochBatch], checked_until: int
) -> list[tuple[str, EpochBatch | None]]:
    """Return the batches below `checked_until` whose epochs differ from the checkpoint, each with a text.

    The text names the epoch that the checkpoint has for the batch. If the lines of the checkpoint are out of order,
    return only a text that says so. Batches below the first offset of the checkpoint are not compared.
    """
    if any(one.epoch >= two.epoch or one.start_offset >= two.start_offset for one, two in pairwise(checkpoint)):
        return [("the epochs or offsets do not increase from line to line", None)]
    found: list[tuple[str, EpochBatch | None]] = []
    for batch in batches:
        entry = next((each for each in reversed(checkpoint) if each.start_offset <= batch.offset), None)
        if entry is None or batch.offset >= checked_until or entry.epoch == batch.epoch:
            continue
        found.append((f"the checkpoint has epoch {entry.epoch} from offset {entry.start_offset} on", batch))
    return found


def _rows(text: str, fields: int) -> list[list[str]]:
    lines = text.splitlines()
    if len(lines) < 2 or lines[0] != "0":
        raise ValueError(
            f"the first line is {lines[0] if lines else ''!r}; the file must begin with the version 0, then the"
            " number of entries"
        )
    rows = [line.split() for line in lines[2:] if line]
    if str(len(rows)) != lines[1]:
        raise ValueError(f"the file has {len(rows)} entries, but the second line says {lines[1]}")
    for row in rows:
        if len(row) != fields or not all(field.lstrip("-").isdigit() for field in row[-2:]):
            raise ValueError(
                f"the line {' '.join(row)!r} is malformed; a line must have {fields} fields, and the last two must be"
                " numbers"
            )
    return rows
