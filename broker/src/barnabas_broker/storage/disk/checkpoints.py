"""The small text files of a log dir in Kafka's formats.

They are offset checkpoints, leader epochs, `partition.metadata` and `meta.properties`. Pure: bytes to values and back.
A ValueError says what is wrong with a file.
"""

import json
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final, NamedTuple
from uuid import UUID

from barnabas_core import kafka_uuid
from barnabas_core.leader_epoch import LEADER_EPOCH_MAX
from barnabas_core.topic_partition import TopicPartition

NO_EPOCH: Final = -1


class EpochStart(NamedTuple):
    """The offset of the first batch that the leader of this epoch wrote."""

    epoch: int
    start_offset: int


def _encode_lines(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in ("0", str(len(lines)), *lines)).encode()


def _decode_lines(data: bytes, fields: int) -> list[list[str]]:
    lines = data.decode().splitlines()
    if len(lines) < 2 or lines[0] != "0":
        raise ValueError(
            f"its first line is {lines[0] if lines else ''!r}, not the version 0, then the number of lines"
        )
    rows = [line.split() for line in lines[2:] if line]
    if len(rows) != int(lines[1]):
        raise ValueError(f"it has {len(rows)} lines, but announces {lines[1]}")
    for row in rows:
        if len(row) != fields:
            raise ValueError(f"the line {' '.join(row)!r} has {len(row)} fields, not {fields}")
    return rows


def _number(text: str, largest: int = 2**63 - 1) -> int:
    """Parse an epoch, partition or offset; ValueError unless it is from 0 to `largest`."""
    number = int(text)
    if not 0 <= number <= largest:
        raise ValueError(f"{number} is out of range; 0 to {largest} are allowed")
    return number


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """`topic partition offset` a line, as in `recovery-point-offset-checkpoint`."""
    return _encode_lines([f"{key.topic} {key.partition} {offset}" for key, offset in offsets.items()])


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    """The reverse of `encode_offsets`."""
    rows = _decode_lines(data, 3)
    return {TopicPartition(topic, _number(partition)): _number(offset) for topic, partition, offset in rows}


def encode_epochs(epochs: Iterable[EpochStart]) -> bytes:
    """`epoch start-offset` a line: `leader-epoch-checkpoint`."""
    return _encode_lines([f"{entry.epoch} {entry.start_offset}" for entry in epochs])


def decode_epochs(data: bytes) -> list[EpochStart]:
    """The reverse of `encode_epochs`."""
    epochs = [EpochStart(_number(epoch, LEADER_EPOCH_MAX), _number(start)) for epoch, start in _decode_lines(data, 2)]
    for before, after in pairwise(epochs):
        if before.epoch >= after.epoch or before.start_offset >= after.start_offset:
            raise ValueError(f"{after} comes after {before}")
    return epochs


def encode_partition_metadata(topic_id: UUID) -> bytes:
    """The file `partition.metadata`, which has the topic's id."""
    return f"version: 0\ntopic_id: {kafka_uuid.to_text(topic_id)}".encode()


def decode_partition_metadata(data: bytes) -> UUID:
    """The topic's id of a `partition.metadata`. Raises ValueError where it is none."""
    fields = dict(line.split(": ", 1) for line in data.decode().splitlines() if ": " in line)
    if fields.get("version") != "0" or "topic_id" not in fields:
        raise ValueError("it does not hold `version: 0` and `topic_id: ...`")
    return kafka_uuid.from_text(fields["topic_id"].strip())


def encode_clean_mark(broker_epoch: int) -> bytes:
    """`.kafka_cleanshutdown`: which incarnation of the broker has ended."""
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def decode_clean_mark(data: bytes) -> int:
    """The reverse of `encode_clean_mark`. Raises ValueError where the file is none."""
    found = json.loads(data)
    if not isinstance(found, dict) or not isinstance(found.get("brokerEpoch"), int):
        raise ValueError("it does not hold a brokerEpoch")
    return int(found["brokerEpoch"])


class LastIncarnation(NamedTuple):
    """The broker's previous incarnation, as far as a start needs it: the epochs that its clean marks may name.

    `machine_ran_on` is False if the machine was booted since: what was not synced may be lost. The `cut_dirs` were
    offline in that incarnation and last used before an earlier boot, so unsynced data may be lost there in any case.
    """

    mark_epochs: tuple[int, ...] = (NO_EPOCH,)
    machine_ran_on: bool = True
    cut_dirs: frozenset[UUID] = frozenset()


NO_INCARNATION: Final = LastIncarnation()


class MetaProperties(NamedTuple):
    """The owner of a log dir, and the id of the directory."""

    cluster_id: str
    node_id: int
    directory_id: UUID


def encode_meta_properties(meta: MetaProperties) -> bytes:
    """The file `meta.properties` (version 1), which names the owner of the log dir."""
    lines = (
        f"cluster.id={meta.cluster_id}",
        f"directory.id={kafka_uuid.to_text(meta.directory_id)}",
        f"node.id={meta.node_id}",
        "version=1",
    )
    return "".join(f"{line}\n" for line in lines).encode()


def decode_meta_properties(data: bytes) -> MetaProperties:
    """The reverse of `encode_meta_properties`; reads Kafka's files, too.

    Raises ValueError where a property is missing.
    """
    lines = (line.strip() for line in data.decode().splitlines())
    fields = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    missing = {"version", "cluster.id", "node.id", "directory.id"} - fields.keys()
    if missing or fields["version"] != "1":
        raise ValueError(f"it lacks {', '.join(sorted(missing)) or 'version=1'}")
    return MetaProperties(fields["cluster.id"], int(fields["node.id"]), kafka_uuid.from_text(fields["directory.id"]))
