"""The last stable offset of a replica, below which all transactions are committed or aborted."""

from barnabas_broker.replication.replica import Replica


def last_stable_offset(replica: Replica) -> int:
    """Return the last stable offset: the high watermark, or the start of the first transaction that is not decided.

    Raises ApiError and StorageError while the transactions in the log are not known.
    """
    stable_offset = replica.log.producers.transactions.stable_until(replica.high_watermark)
    return max(stable_offset, replica.log.log_start_offset)


def held_back(replica: Replica) -> int:
    """Return the high watermark minus the last stable offset; 0 until the producers in the log have been loaded."""
    states, high_watermark = replica.log.known_producers.states, replica.high_watermark
    if states is None:
        return 0
    stable_offset = max(states.transactions.stable_until(high_watermark), replica.log.log_start_offset)
    return max(0, high_watermark - stable_offset)


def undecided_since_ms(replica: Replica) -> int | None:
    """Return the time in ms of the last write in the oldest open transaction, None if no transaction is open."""
    states = replica.log.known_producers.states
    return None if states is None else states.oldest_transaction_ms()
