"""The last stable offset of a log, below which all transactions are committed or aborted."""

from barnabas_broker.storage.logs.log import Log


def last_stable_offset(log: Log) -> int:
    """Return the high watermark, or the first offset of the oldest undecided transaction if that offset is lower.

    Raises ApiError and StorageError while the transactions in the log are not known.
    """
    stable_offset = log.producers.transactions.stable_until(log.high_watermark)
    return max(stable_offset, log.log_start_offset)


def held_back(log: Log) -> int:
    """Return the high watermark minus the last stable offset; 0 until the producers in the log have been loaded."""
    states, high_watermark = log.known_producers.states, log.high_watermark
    if states is None:
        return 0
    stable_offset = max(states.transactions.stable_until(high_watermark), log.log_start_offset)
    return max(0, high_watermark - stable_offset)


def undecided_since_ms(log: Log) -> int | None:
    """Return the time in ms of the last write by the producer of the oldest open transaction.

    Returns None if no transaction is open, or if the state of the log's producers has not been loaded.
    """
    states = log.known_producers.states
    return None if states is None else states.oldest_transaction_ms()
