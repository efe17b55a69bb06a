"""A verification of the transaction of a batch, as the coordinator's response leaves it."""

from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.producer_state import Verification
from barnabas_broker.wire.record_batch import TRANSACTIONAL_BIT, BatchHeader


def verified(log: Log, header: BatchHeader) -> Verification | None:
    """Return a verification of the transaction of a transactional batch, or None for other batches."""
    if not header.attributes & TRANSACTIONAL_BIT:
        return None
    return log.producers.verifications.begin(header.producer_id, header.producer_epoch, has_own_epoch=True)
