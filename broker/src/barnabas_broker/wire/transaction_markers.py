"""The transaction marker: a control batch with one record, whose key is commit or abort."""

import struct
from typing import Final, NamedTuple

from barnabas_broker.wire.parts import Buffer
from barnabas_broker.wire.record_batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from barnabas_broker.wire.records import BrokenRecords, Record, decode_batch, encode_batch

_KEY: Final = struct.Struct(">hh")
"""The key of a marker's control record: version 0, then 0 for an abort or 1 for a commit."""
_VALUE: Final = struct.Struct(">hi")
"""The value of a marker's control record: version 0, then the coordinator epoch. Later versions only add fields."""
_ABORT: Final = 0
_COMMIT: Final = 1
_BATCH_BYTES_MAX: Final = 1 << 16


class ProducerEpoch(NamedTuple):
    """A producer id with its epoch."""

    producer_id: int
    epoch: int


class Marker(NamedTuple):
    """The marker that ends a transaction of a producer."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool


def encode_marker(marker: Marker, now_ms: int) -> bytearray:
    """Return the control batch of a marker."""
    key = _KEY.pack(0, _COMMIT if marker.is_commit else _ABORT)
    return encode_batch(
        [Record(0, now_ms, key, _VALUE.pack(0, marker.coordinator_epoch))],
        attributes=TRANSACTIONAL_BIT | CONTROL_BIT,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
    )


def decode_marker(batch: Buffer, header: BatchHeader) -> Marker | None:
    """Return the transaction marker in a control batch.

    Return None if compaction has removed the marker, or the batch has another control record or is invalid.
    """
    if header.producer_id < 0 or not header.record_count:
        return None
    try:
        record = decode_batch(batch, 0, header, _BATCH_BYTES_MAX)[0]
        _, kind = _KEY.unpack_from(record.key or b"")
        if kind not in (_ABORT, _COMMIT):
            return None
        _, coordinator_epoch = _VALUE.unpack_from(record.value or b"")
    except (BrokenRecords, struct.error):
        return None
    return Marker(header.producer_id, header.producer_epoch, coordinator_epoch, kind == _COMMIT)
