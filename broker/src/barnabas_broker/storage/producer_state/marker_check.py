"""The check of a transaction marker against the state of its producer, by Kafka's rules."""

from typing import Final

from barnabas_broker.storage.producer_state.producers import Producer
from barnabas_broker.wire.transaction_markers import Marker
from barnabas_core.errors import ApiError, ErrorCode

STRICT_SINCE: Final = 2
"""The first transaction.version whose transactions have their own epochs (KIP-890)."""
EPOCH_MAX: Final = 2**15 - 1
"""The highest possible producer epoch.

A marker with this epoch need not have a higher epoch than the producer, because there is no higher one.
"""


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
