"""The append of a transaction marker to the log of a leader."""

from barnabas_broker.storage.logs.follower_append import append_as_follower
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.producer_state.marker_check import check_marker
from barnabas_broker.wire.record_batch import assign_offset
from barnabas_broker.wire.transaction_markers import Marker, encode_marker


def append_marker(log: Log, marker: Marker, transaction_version: int, leader_epoch: int, now_ms: int) -> int:
    """Append a transaction marker, and return its offset. Raises StorageError.

    Raises ApiError before any change if the leader epoch, producer epoch or coordinator epoch is too old.
    """
    check_marker(log.producers.producers.get(marker.producer_id), marker, transaction_version)
    log.epochs.check_may_begin(leader_epoch)
    batch, offset = encode_marker(marker, now_ms), log.log_end_offset
    assign_offset(batch, 0, offset, leader_epoch)
    append_as_follower(log, memoryview(batch), leader_epoch, log.high_watermark, now_ms)
    return offset
