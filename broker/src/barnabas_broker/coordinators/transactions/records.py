"""The records of `__transaction_state`, in Kafka's format: a transactional id, and the state of its last transaction.

A key begins with version 0. The decoder skips other key versions, which Kafka 4.4 does not use.
"""

import struct
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from barnabas_broker.coordinators.transactions.transaction import DEAD, EMPTY, Transaction, TransactionState
from barnabas_broker.wire.decoder import decoder
from barnabas_broker.wire.encoder import encoder
from barnabas_broker.wire.framing import MalformedRequest
from barnabas_broker.wire.messages import message_class
from barnabas_core.topic_partition import TopicPartition

_KEY: Final = "TransactionLogKey"
_VALUE: Final = "TransactionLogValue"
_KEY_VERSION: Final = 0
_VALUE_VERSION_MAX: Final = 1
_INT16: Final = struct.Struct(">h")


class MalformedTransaction(ValueError):
    """The error for a record that cannot be decoded."""


class TransactionRecord(NamedTuple):
    """A decoded record of `__transaction_state`; a transaction of None is a tombstone."""

    transactional_id: str
    transaction: Transaction | None
    value_version: int = _VALUE_VERSION_MAX
    """The version of the encoded value: 0 below transaction.version 1, because older brokers read only version 0."""

    @property
    def name(self) -> str:
        """The transactional id of the record."""
        return self.transactional_id

    def encode(self) -> tuple[bytes, bytes | None]:
        """Return the encoded key and value of the record; the value of a tombstone is None."""
        key = _encoded(_KEY, _KEY_VERSION, {"transactional_id": self.transactional_id})
        if self.transaction is None:
            return key, None
        version = min(self.value_version, _VALUE_VERSION_MAX)
        return key, _encoded(_VALUE, version, _fields(self.transaction))


def _encoded(name: str, version: int, fields: Mapping[str, Any]) -> bytes:
    out = bytearray(_INT16.pack(version))
    encoder(name, version)(out, message_class(name)(**fields))
    return bytes(out)


def _fields(transaction: Transaction) -> dict[str, Any]:
    return {
        "producer_id": transaction.producer_id,
        "previous_producer_id": transaction.previous_producer_id,
        "next_producer_id": transaction.next_producer_id,
        "producer_epoch": transaction.epoch,
        "transaction_timeout_ms": transaction.timeout_ms,
        "transaction_status": transaction.state,
        "transaction_partitions": None if transaction.state is EMPTY else _topics(transaction.partitions),
        "transaction_last_update_timestamp_ms": transaction.updated_ms,
        "transaction_start_timestamp_ms": transaction.started_ms,
        "client_transaction_version": transaction.client_version,
    }


def _topics(partitions: Iterable[TopicPartition]) -> list[Any]:
    topic_class = message_class(_VALUE).PartitionsSchema
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return [topic_class(topic=topic, partition_ids=numbers) for topic, numbers in topics.items()]


def decode(key: bytes, value: bytes) -> TransactionRecord | None:
    """Return the decoded record, None if its version is unknown. Raises MalformedTransaction.

    A transaction that is DEAD has expired, so its record counts as a tombstone.
    """
    try:
        (key_version,), (version,) = _INT16.unpack_from(key), _INT16.unpack_from(value)
        if key_version != _KEY_VERSION or not 0 <= version <= _VALUE_VERSION_MAX:
            return None
        transactional_id = decoder(_KEY, key_version)(memoryview(key)[_INT16.size :]).transactional_id
        found = decoder(_VALUE, version)(memoryview(value)[_INT16.size :])
        transaction = _transaction(found)
        return TransactionRecord(transactional_id, None if transaction.state is DEAD else transaction)
    except (struct.error, MalformedRequest, ValueError) as error:
        raise MalformedTransaction(f"{_VALUE}: {error}") from error


def _transaction(found: Any) -> Transaction:
    return Transaction(
        producer_id=found.producer_id,
        epoch=found.producer_epoch,
        timeout_ms=found.transaction_timeout_ms,
        state=TransactionState(found.transaction_status),
        partitions=frozenset(
            TopicPartition(each.topic, number)
            for each in found.transaction_partitions or ()
            for number in each.partition_ids
        ),
        updated_ms=found.transaction_last_update_timestamp_ms,
        started_ms=found.transaction_start_timestamp_ms,
        previous_producer_id=found.previous_producer_id,
        next_producer_id=found.next_producer_id,
        client_version=found.client_transaction_version,
    )
