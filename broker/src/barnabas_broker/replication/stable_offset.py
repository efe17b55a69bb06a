"""The last stable offset of a replica: below it all transactions are decided."""

from barnabas_broker.replication.replica import Replica


def last_stable_offset(replica: Replica) -> int:
    """Return where consumers of committed records stop: at the high watermark, or the first undecided transaction.

    ApiError, StorageError while that cannot be said.
    """
    stable_offset = replica.log.producers.transactions.stable_until(replica.high_watermark)
    return max(stable_offset, replica.log.log_start_offset)
