"""The append of a transaction marker to the log of a leader, after a check by Kafka's rules."""

from typing import Final

from barnabas_broker.storage.logs.follower_append import append_as_follower
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.producer_state.producers import Producer
from barnabas_broker.wire.record_batch import assign_offset
from barnabas_broker.wire.transaction_markers import Marker, encode_marker
from barnabas_core.errors import ApiError, ErrorCode

STRICT_SINCE: Final = 2
"""The first transaction.version whose transactions have their own epochs (KIP-890)."""
EPOCH_MAX: Final = 2**15 - 1
"""The highest possible producer epoch.

A marker with this epoch need not have a higher epoch than the producer, because there is no higher one.
"""


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


def check_marker(producer: Producer | None, marker: Marker, transaction_version: int) -> None:
    """Raise ApiError if the marker is invalid, or too old for the current state of its producer.

    An old marker must not end the producer's next transaction. With transaction.version 2, each transaction has an
    epoch of its own, so an old marker has an old epoch. A repetition of the last marker is accepted, because its
    transaction has already ended.
    """
    epoch = marker.producer_epoch
    if min(marker.producer_id, epoch) < 0:
        message = f"the marker has producer id {marker.producer_id} and epoch {epoch}; both must be at least 0"
        raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, message)
    if producer is None:
        return
    is_repeated = epoch == producer.epoch and (producer.transaction_first_offset < 0 or epoch == EPOCH_MAX)
    lowest = producer.epoch + 1 if transaction_version >= STRICT_SINCE and not is_repeated else producer.epoch
    if epoch < lowest:
        message = f"the marker has epoch {epoch} for producer {marker.producer_id}; the epoch must be at least {lowest}"
        raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, message)
    if marker.coordinator_epoch < producer.coordinator_epoch:
        message = (
            f"the marker has coordinator epoch {marker.coordinator_epoch}, but the latest coordinator "
            f"epoch is {producer.coordinator_epoch}"
        )
        raise ApiError(ErrorCode.TRANSACTION_COORDINATOR_FENCED, message)
