"""The last stable offset of a replica: below it all transactions are decided."""

from barnabas_broker.replication.replica import Replica


def last_stable_offset(replica: Replica) -> int:
    """Return where consumers of committed records stop: at the high watermark, or the first undecided transaction.

    ApiError, StorageError while that cannot be said.
    """
    stable_offset = replica.log.producers.transactions.stable_until(replica.high_watermark)
    return max(stable_offset, replica.log.log_start_offset)


def held_back(replica: Replica) -> int:
    """Return how many offsets the last stable offset is below the high watermark; 0 before the producers are loaded."""
    states, high_watermark = replica.log.known_producers.states, replica.high_watermark
    if states is None:
        return 0
    stable_offset = max(states.transactions.stable_until(high_watermark), replica.log.log_start_offset)
    return max(0, high_watermark - stable_offset)


def undecided_since_ms(replica: Replica) -> int | None:
    """Return when the producer of the oldest open transaction wrote last; None without one that is known."""
    states = replica.log.known_producers.states
    return None if states is None else states.oldest_transaction_ms()
