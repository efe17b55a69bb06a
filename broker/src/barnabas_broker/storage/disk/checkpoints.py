"""The encoding of the small text files of a log dir, in Kafka's formats.

The files are offset checkpoints, leader epochs, `partition.metadata`, `meta.properties` and `.kafka_cleanshutdown`. A
decoder raises ValueError if the content is malformed.
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
    """The start of a leader epoch: the offset of the first batch that its leader wrote."""

    epoch: int
    start_offset: int


def _encode_lines(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in ("0", str(len(lines)), *lines)).encode()


def _decode_lines(data: bytes, fields: int) -> list[list[str]]:
    lines = data.decode().splitlines()
    if len(lines) < 2 or lines[0] != "0":
        raise ValueError(
            f"the first line is {lines[0] if lines else ''!r}, but the file must begin with the "
            f"version 0 and the number of entries, each on its own line"
        )
    rows = [line.split() for line in lines[2:] if line]
    if len(rows) != int(lines[1]):
        raise ValueError(f"the file has {len(rows)} entries, but its second line announces {lines[1]}")
    for row in rows:
        if len(row) != fields:
            raise ValueError(f"the line {' '.join(row)!r} has {len(row)} fields, but must have {fields}")
    return rows


def _number(text: str, largest: int = 2**63 - 1) -> int:
    number = int(text)
    if not 0 <= number <= largest:
        raise ValueError(f"the number {number} is out of range; 0 to {largest} are allowed")
    return number


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Encode an offset checkpoint like `recovery-point-offset-checkpoint`: one `topic partition offset` per line."""
    return _encode_lines([f"{key.topic} {key.partition} {offset}" for key, offset in offsets.items()])


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    """Decode an offset checkpoint. Raises ValueError."""
    rows = _decode_lines(data, 3)
    return {TopicPartition(topic, _number(partition)): _number(offset) for topic, partition, offset in rows}


def encode_epochs(epochs: Iterable[EpochStart]) -> bytes:
    """Encode `leader-epoch-checkpoint`: one `epoch start-offset` per line."""
    return _encode_lines([f"{entry.epoch} {entry.start_offset}" for entry in epochs])


def decode_epochs(data: bytes) -> list[EpochStart]:
    """Decode `leader-epoch-checkpoint`. Raises ValueError."""
    epochs = [EpochStart(_number(epoch, LEADER_EPOCH_MAX), _number(start)) for epoch, start in _decode_lines(data, 2)]
    for before, after in pairwise(epochs):
        if before.epoch >= after.epoch or before.start_offset >= after.start_offset:
            raise ValueError(f"epochs and start offsets must rise, but {after} follows {before}")
    return epochs


def encode_partition_metadata(topic_id: UUID) -> bytes:
    """Encode `partition.metadata`, the file that holds the topic id."""
    return f"version: 0\ntopic_id: {kafka_uuid.to_text(topic_id)}".encode()


def decode_partition_metadata(data: bytes) -> UUID:
    """Return the topic id in a `partition.metadata` file. Raises ValueError."""
    fields = dict(line.split(": ", 1) for line in data.decode().splitlines() if ": " in line)
    if fields.get("version") != "0" or "topic_id" not in fields:
        raise ValueError("the file must hold `version: 0` and `topic_id: ...`")
    return kafka_uuid.from_text(fields["topic_id"].strip())


def encode_clean_mark(broker_epoch: int) -> bytes:
    """Encode `.kafka_cleanshutdown`, the file that holds the broker epoch of a clean shutdown."""
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def decode_clean_mark(data: bytes) -> int:
    """Return the broker epoch in a `.kafka_cleanshutdown` file. Raises ValueError."""
    found = json.loads(data)
    if not isinstance(found, dict) or not isinstance(found.get("brokerEpoch"), int):
        raise ValueError("the file must be a JSON object with an integer brokerEpoch")
    return int(found["brokerEpoch"])


class LastIncarnation(NamedTuple):
    """The facts about a broker's previous run by which the next start decides whether unsynced data may be lost.

    `mark_epochs` has the broker epochs for which a clean shutdown marker is valid. `machine_ran_on` is True if the
    machine has not been rebooted since the previous run began. Even then, the log dirs in `cut_dirs` may have lost
    unsynced data: they were offline in the previous run, and the machine was rebooted after their last use.
    """

    mark_epochs: tuple[int, ...] = (NO_EPOCH,)
    machine_ran_on: bool = True
    cut_dirs: frozenset[UUID] = frozenset()


NO_INCARNATION: Final = LastIncarnation()


class MetaProperties(NamedTuple):
    """The cluster and node that own a log dir, and the id of the log dir."""

    cluster_id: str
    node_id: int
    directory_id: UUID


def encode_meta_properties(meta: MetaProperties) -> bytes:
    """Encode `meta.properties` (version 1), the file that names the owner of a log dir."""
    lines = (
        f"cluster.id={meta.cluster_id}",
        f"directory.id={kafka_uuid.to_text(meta.directory_id)}",
        f"node.id={meta.node_id}",
        "version=1",
    )
    return "".join(f"{line}\n" for line in lines).encode()


def decode_meta_properties(data: bytes) -> MetaProperties:
    """Decode `meta.properties` of Kafka or of this broker. Raises ValueError if a property is missing."""
    lines = (line.strip() for line in data.decode().splitlines())
    fields = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    missing = {"version", "cluster.id", "node.id", "directory.id"} - fields.keys()
    if missing or fields["version"] != "1":
        raise ValueError(f"the file lacks {', '.join(sorted(missing)) or 'version=1'}")
    return MetaProperties(fields["cluster.id"], int(fields["node.id"]), kafka_uuid.from_text(fields["directory.id"]))
