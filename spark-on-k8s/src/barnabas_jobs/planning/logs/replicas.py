"""The problems of a replica that no single segment shows, and the differences between the replicas of a partition.

The small text files of a log dir are decoded here, too. Decoding a damaged file raises ValueError with the reason.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from barnabas_core.topic_partition import TopicPartition
from barnabas_jobs.planning.logs.batches import (
    CHECKPOINT_CONTRADICTS,
    ENDS_EARLY,
    EPOCH_GOES_BACK,
    KINDS,
    LEADER_EPOCHS,
    LOG,
    OFFSET_GAP,
    OFFSETS_GO_BACK,
    PARTITION_METADATA,
    REPLICAS_DIFFER,
    segment_file,
)
from barnabas_jobs.planning.page import Bar, bars, bytes_text, page, paragraph, table


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


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A problem, and the file, byte position and offset at which it was found.

    A field that does not apply to the problem is None.
    """

    kind: str
    broker: int
    log_dir: str
    topic: str | None = None
    partition: int | None = None
    file: str
    position: int | None = None
    offset: int | None = None
    detail: str


class Place(NamedTuple):
    """A replica, by its broker, log dir and partition."""

    broker: int
    log_dir: str
    partition: TopicPartition

    def finding(
        self, kind: str, file: str, detail: str, *, position: int | None = None, offset: int | None = None
    ) -> Finding:
        """Return a finding about one file of the replica."""
        return Finding(
            kind=kind,
            broker=self.broker,
            log_dir=self.log_dir,
            topic=self.partition.topic,
            partition=self.partition.partition,
            file=f"{self.log_dir}/{self.partition}/{file}",
            position=position,
            offset=offset,
            detail=detail,
        )


class SegmentRead(NamedTuple):
    """The offsets and epochs of a segment, from its first batch to its last."""

    segment: int
    first_offset: int
    end_offset: int
    first_epoch: int
    last_epoch: int


class LogRead(NamedTuple):
    """A replica as the audit read it.

    The checkpoint files are read both before and after the segments; `recovery_point` and `high_watermark` are the
    lower of the two values. `lost_sight` has the segments that vanished during the audit; the segments on both sides of
    a vanished one are not compared with each other. `stopped` has the segments that could not be read completely.
    """

    place: Place
    topic_id: str | None
    segments: Sequence[SegmentRead]
    lost_sight: frozenset[int]
    stopped: frozenset[int]
    last_segment: int
    recovery_point: int
    high_watermark: int
    has_gaps: bool

    @property
    def lost_its_end(self) -> bool:
        """True if the last segment with batches, or a later segment, has vanished."""
        return max(self.lost_sight, default=-1) >= max((each.segment for each in self.segments), default=0)

    @property
    def start(self) -> int:
        """The first offset after the last segment that vanished, or the log's first offset if no segment vanished."""
        whole = [each.first_offset for each in self.segments if each.segment > max(self.lost_sight, default=-1)]
        return min(whole, default=self.end)

    @property
    def end(self) -> int:
        """The offset after the last batch."""
        return max([self.last_segment, *(each.end_offset for each in self.segments)])

    @property
    def committed_until(self) -> int:
        """The offset below which every replica must hold the same batches."""
        return min(self.end, self.high_watermark)


def wrong_over_segments(log: LogRead) -> Iterator[Finding]:
    """Yield findings about segments whose offsets or epochs do not continue those of the previous segment."""
    for one, two in pairwise(log.segments):
        if any(one.segment <= gone <= two.segment for gone in log.lost_sight):
            continue
        file, end = segment_file(two.segment, LOG), one.end_offset
        if two.segment <= two.first_offset < end:
            detail = f"the previous segment ends with offset {end - 1}"
            yield log.place.finding(OFFSETS_GO_BACK, file, detail, position=0, offset=two.first_offset)
        elif two.first_offset > end and not log.has_gaps and one.segment not in log.stopped:
            detail = f"{two.first_offset - end} offsets from {end} on are missing after the previous segment"
            yield log.place.finding(OFFSET_GAP, file, detail, position=0, offset=two.first_offset)
        if two.first_epoch < one.last_epoch:
            detail = (
                f"the first leader epoch {two.first_epoch} is lower than the last leader epoch {one.last_epoch} of the "
                "previous segment"
            )
            yield log.place.finding(EPOCH_GOES_BACK, file, detail, position=0, offset=two.first_offset)


def ends_early(log: LogRead) -> Iterator[Finding]:
    """Yield a finding if a log ends below its recovery point or its high watermark.

    Yield nothing if the end of the log could not be read.
    """
    points = {"recovery point": log.recovery_point, "high watermark": log.high_watermark}
    lower = {name: offset for name, offset in points.items() if log.end < offset}
    if lower and not log.lost_its_end and log.last_segment not in log.stopped:
        detail = " and ".join(f"the {name} is {offset}" for name, offset in lower.items())
        file = segment_file(log.last_segment, LOG)
        yield log.place.finding(ENDS_EARLY, file, f"the log ends with offset {log.end - 1}; {detail}", offset=log.end)


def wrong_checkpoint(
    log: LogRead, checkpoint: Sequence[EpochStart] | str | None, batches: Sequence[EpochBatch]
) -> Iterator[Finding]:
    """Yield a finding for each contradiction between `leader-epoch-checkpoint` and the batches.

    `checkpoint` is the parsed file, or None if the file does not exist. If the file cannot be read, `checkpoint` is an
    error text, and the only finding has that text. The only finding is also that the lines of the file are out of
    order. Batches below the first offset of the file, or from the recovery point on, are not compared.
    """
    if isinstance(checkpoint, str):
        yield log.place.finding(CHECKPOINT_CONTRADICTS, LEADER_EPOCHS, checkpoint)
        return
    starts = checkpoint or ()
    if any(one.epoch >= two.epoch or one.start_offset >= two.start_offset for one, two in pairwise(starts)):
        detail = "the epochs or offsets do not increase from line to line"
        yield log.place.finding(CHECKPOINT_CONTRADICTS, LEADER_EPOCHS, detail)
        return
    for batch in batches:
        entry = next((each for each in reversed(starts) if each.start_offset <= batch.offset), None)
        if entry is not None and entry.epoch != batch.epoch and batch.offset < log.recovery_point:
            detail = (
                f"the checkpoint has epoch {entry.epoch} from offset {entry.start_offset} on, but "
                f"{segment_file(batch.segment, LOG)} has a batch of epoch {batch.epoch}"
            )
            yield log.place.finding(CHECKPOINT_CONTRADICTS, LEADER_EPOCHS, detail, offset=batch.offset)


def comparable(logs: Sequence[LogRead]) -> tuple[list[LogRead], list[Finding]]:
    """Return the replicas that can be compared, and a finding for each of the others.

    Replicas can be compared if they have no topic id, or the topic id that is the most frequent among the replicas.
    """
    ids = [each.topic_id for each in logs if each.topic_id is not None]
    if not ids:
        return list(logs), []
    usual = max(ids, key=ids.count)
    others = [each for each in logs if each.topic_id not in (None, usual)]
    detail = "the topic id is {}, but other replicas have {}, because the topic was deleted and created again"
    found = [
        each.place.finding(REPLICAS_DIFFER, PARTITION_METADATA, detail.format(each.topic_id, usual)) for each in others
    ]
    return [each for each in logs if each not in others], found


def comparison_spans(logs: Sequence[LogRead], clean_until: int) -> list[tuple[str, str, int, int, int, list[int]]]:
    """Return, for each replica of a partition, the span of offsets to compare with the other replicas.

    A span has the log dir, topic, partition, the first offset to compare, the replica's `LogRead.committed_until`, and
    a list with the `committed_until` of every replica of the partition. If there are fewer than two replicas, return
    an empty list.
    """
    if len(logs) < 2:
        return []
    since = max(clean_until, *(each.start for each in logs))
    untils = [each.committed_until for each in logs]
    return [(each.place.log_dir, *each.place.partition, since, each.committed_until, untils) for each in logs]


class HeldBatch(NamedTuple):
    """A batch in one replica."""

    segment: int
    position: int
    last_offset: int
    epoch: int
    size_bytes: int
    crc: int
    computed_crc: int

    @property
    def is_sound(self) -> bool:
        """True if the CRC in the header matches the bytes."""
        return self.crc == self.computed_crc


def difference(offset: int, held: Mapping[Place, HeldBatch | None]) -> Finding:
    """Return a finding about a committed offset at which replicas hold different batches.

    The finding names a replica that has no batch, or no batch with a correct CRC, at the offset. If there is no such
    replica, the finding names the replica that differs from most others.
    """
    contents = [None if each is None else each[2:] for each in held.values()]
    odd = min(
        held,
        key=lambda place: (
            (batch := held[place]) is not None and batch.is_sound,
            contents.count(None if batch is None else batch[2:]),
        ),
    )
    detail = "; ".join(f"broker {place.broker} has {_shown(offset, batch)}" for place, batch in held.items())
    at = held[odd] or next(batch for batch in held.values() if batch is not None)
    position = None if held[odd] is None else at.position
    return odd.finding(REPLICAS_DIFFER, segment_file(at.segment, LOG), detail, position=position, offset=offset)


def _shown(offset: int, batch: HeldBatch | None) -> str:
    if batch is None:
        return "no batch there"
    detail = f"offsets {offset}-{batch.last_offset} of epoch {batch.epoch}, CRC {batch.crc:08x}"
    return detail if batch.is_sound else f"{detail}, but the bytes have the CRC {batch.computed_crc:08x}"


ROWS_MAX: Final = 1000


def audit_page(
    about_it: str,
    summary: str,
    bytes_by_broker: Mapping[int, int],
    counts: Mapping[str, int],
    findings: Sequence[Finding],
) -> str:
    """Return the HTML page."""
    parts = [paragraph(summary)]
    if findings:
        kinds = [Bar(kind, count, f"{count:,}", is_over=True) for kind, count in counts.items()]
        rows = [
            (each.kind, each.broker, each.file, _plain(each.position), _plain(each.offset), each.detail)
            for each in findings[:ROWS_MAX]
        ]
        parts += [
            bars("Findings by kind", kinds),
            table(("kind", "meaning"), [(kind, KINDS[kind]) for kind in counts]),
            "<h2>Findings</h2>",
            table(("kind", "broker", "file", "byte", "offset", "what"), rows),
        ]
        if len(findings) > ROWS_MAX:
            parts.append(paragraph(f"{len(findings) - ROWS_MAX:,} more findings are in findings.parquet."))
    parts.append(
        bars("Bytes read", [Bar(f"broker {each}", size, bytes_text(size)) for each, size in bytes_by_broker.items()])
    )
    return page("Audit of log dirs", about_it, *parts)


def _plain(number: int | None) -> str:
    """Return a number without separators, so that readers can search for it."""
    return "" if number is None else str(number)
