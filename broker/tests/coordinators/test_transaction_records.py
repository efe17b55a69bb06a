"""The records of `__transaction_state` are Kafka's, byte for byte, and are decoded to the same values."""

import pytest

from barnabas_broker.coordinators.transactions.decisions import (
    DEAD,
    ONGOING,
    MalformedTransaction,
    Transaction,
    TransactionRecord,
    decode,
)
from barnabas_core.topic_partition import TopicPartition

PARTITIONS = frozenset({TopicPartition("a", 1), TopicPartition("a", 0), TopicPartition("b", 2)})
ONE = Transaction(7, 3, 60_000, ONGOING, PARTITIONS, 2_000, 1_000, client_version=2)


@pytest.mark.parametrize("transaction", [ONE, ONE._replace(next_producer_id=9), Transaction(7, 0, 1)])
def test_an_encoded_transaction_is_decoded_to_the_same_value(transaction: Transaction) -> None:
    record = TransactionRecord("payments", transaction)
    key, value = record.encode()
    assert value is not None
    assert decode(key, value) == record


def test_a_transaction_is_encoded_as_kafka_encodes_it() -> None:
    key, value = TransactionRecord("pay", ONE).encode()
    assert key == bytes.fromhex("0000 0003") + b"pay"
    head = "0001 0000000000000007 0003 0000ea60 01"
    partitions = "03 0261 03 00000000 00000001 00 0262 02 00000002 00"
    tail = "00000000000007d0 00000000000003e8 01 02 02 0002"
    assert value == bytes.fromhex(head + partitions + tail)


def test_a_record_with_an_unknown_state_is_malformed() -> None:
    key, value = TransactionRecord("pay", ONE).encode()
    assert value is not None
    with pytest.raises(MalformedTransaction, match="99"):
        decode(key, value[:16] + bytes([99]) + value[17:])


def test_a_dead_transaction_is_decoded_as_a_tombstone() -> None:
    key, value = TransactionRecord("pay", ONE._replace(state=DEAD)).encode()
    assert value is not None
    assert decode(key, value) == TransactionRecord("pay", None)
