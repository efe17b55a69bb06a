"""Reads the transactions that coordinators know, and the open transactions in partitions, of any Kafka cluster."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kafka import structs
from kafka.admin import OffsetSpec
from kafka.admin._partitions import IsolationLevel
from kafka.admin._transactions import AbortTransactionSpec

from barnabas_core.topic_partition import TopicPartition

UNDECIDED: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionReport:
    """A transactional id, as its coordinator knows it; `started_ms` is None before its first transaction."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """An open transaction in a partition.

    `transactional_id` is None for a hanging transaction, which no coordinator knows.
    """

    topic: str
    partition: int
    start_offset: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_write_ms: int
    held_back: int
    """The number of offsets of the partition between its last stable offset and its high watermark."""
    transactional_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsReport:
    """The content of `barnabas status --transactions`."""

    transactions: tuple[TransactionReport, ...]
    open: tuple[OpenTransaction, ...]


def gather_transactions(client: Any, *, with_ended: bool) -> TransactionsReport:
    """Return all transactions that coordinators know, and all open transactions in partitions. Raises KafkaError.

    Ended transactions are included only if `with_ended` is true.
    """
    known = _transactions(client, None if with_ended else UNDECIDED)
    return TransactionsReport(transactions=known, open=_open(client, _held_back(client), known))


def open_in(client: Any, partition: TopicPartition) -> list[OpenTransaction]:
    """Return the open transactions of one partition. Raises KafkaError."""
    held_back = _behind(client, [structs.TopicPartition(*partition)])
    return list(_open(client, held_back, _transactions(client, UNDECIDED)))


def abort(client: Any, hanging: OpenTransaction) -> None:
    """Write an abort marker for a transaction in its partition. Raises KafkaError."""
    # A producer's first transaction has no coordinator epoch yet, and brokers accept 0 for it.
    partition = structs.TopicPartition(hanging.topic, hanging.partition)
    epoch = max(0, hanging.coordinator_epoch)
    client.abort_transaction(
        AbortTransactionSpec(partition, hanging.producer_id, hanging.producer_epoch, coordinator_epoch=epoch)
    )


def _transactions(client: Any, states: Sequence[str] | None) -> tuple[TransactionReport, ...]:
    alive = [each["broker_id"] for each in client.describe_cluster()["brokers"] if not each.get("is_fenced")]
    client.meet(alive)
    listed = client.list_transactions(alive, state_filters=states)
    described = client.describe_transactions(
        sorted({each.transactional_id for some in listed.values() for each in some})
    )
    return tuple(
        TransactionReport(
            transactional_id=name,
            state=each.state.value,
            producer_id=each.producer_id,
            producer_epoch=each.producer_epoch,
            timeout_ms=each.transaction_timeout_ms,
            started_ms=each.transaction_start_time_ms if each.transaction_start_time_ms >= 0 else None,
            partitions=tuple(sorted(TopicPartition(*key) for key in each.topic_partitions)),
        )
        for name, each in sorted(described.items())
    )


def _held_back(client: Any) -> Mapping[Any, int]:
    """Return how many offsets `read_committed` consumers cannot read yet, by partition with open transactions."""
    led = [
        structs.TopicPartition(topic["name"], partition["partition_index"])
        for topic in client.describe_topics()
        for partition in topic["partitions"]
        if partition["leader_id"] >= 0
    ]
    return {partition: offsets for partition, offsets in _behind(client, led).items() if offsets > 0}


def _behind(client: Any, partitions: Iterable[Any]) -> dict[Any, int]:
    """Return the number of offsets between last stable offset and high watermark, by partition.

    The last stable offsets are read first, so that records written meanwhile cannot make the number negative.
    """
    wanted = dict.fromkeys(partitions, OffsetSpec.LATEST)
    if not wanted:
        return {}
    stable = client.list_partition_offsets(wanted, isolation_level=IsolationLevel.READ_COMMITTED)
    ends = client.list_partition_offsets(wanted)
    return {each: ends[each].offset - stable[each].offset for each in wanted}


def _open(client: Any, held_back: Mapping[Any, int], known: Iterable[TransactionReport]) -> tuple[OpenTransaction, ...]:
    names = {(each.producer_id, place): each.transactional_id for each in known for place in each.partitions}
    found = [
        OpenTransaction(
            topic=place.topic,
            partition=place.partition,
            start_offset=each.current_transaction_start_offset,
            producer_id=each.producer_id,
            producer_epoch=each.producer_epoch,
            coordinator_epoch=each.coordinator_epoch,
            last_write_ms=each.last_timestamp,
            held_back=held_back[place],
            transactional_id=names.get((each.producer_id, TopicPartition(place.topic, place.partition))),
        )
        for place, state in client.describe_producers(held_back).items()
        for each in state.active_producers
        if each.current_transaction_start_offset >= 0
    ]
    return tuple(sorted(found, key=lambda each: (each.topic, each.partition, each.start_offset)))
