"""Each client library aborts a transaction right after it committed the one before: only what it aborted is gone.

The markers of the commit are still being written when the next transaction begins. If librdkafka aborts while its
AddPartitionsToTxn is refused for that reason, it ignores the refusal, ends a transaction that has not begun, and takes
the INVALID_TXN_STATE as fatal (its issue 4849). It does so at Apache Kafka (`--peer kafka`), too.
"""

import re
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

import pytest

from drivers.interface import Client, Message, Writer, value_of
from drivers.kafka_tools import KafkaTools
from harness.soak import size

ROUNDS = size(3, 200)
PAUSES_S = (0, 0, 0.002, 0, 0.01)
"""The pauses before aborts, in turn."""
TRANSACTIONS = 33_000
"""More than a producer id has epochs, each of which one transaction of transaction.version 2 uses up."""
WITHOUT_OFFSETS = ("franz-go",)
"""The libraries that write offsets only in sessions of a group: `Client.copy` has these."""
FATAL_BY_ITSELF = {"librdkafka": "Failed to end transaction: Broker: Producer attempted a transactional operation"}


class Rounds:
    """Rounds of one library; after an error of an abort a new producer with the same id continues."""

    def __init__(self, client: Client, topic: str) -> None:
        self.errors: Counter[str] = Counter()
        """How often which error ended an abort."""
        self._client = client
        self._topic = topic
        self._writer: Writer = client.writer(topic)

    def run(self, number: int) -> None:
        """Commit a transaction, and abort the next one at once; every second round also writes offsets."""
        self._transact(b"committed %d" % number, number, commit=True)
        try:
            self._transact(b"aborted %d" % number, ROUNDS + number, commit=False)
        except Exception as error:
            self.errors[str(error)] += 1
            with suppress(Exception):
                self._writer.close()
            self._writer = self._client.writer(self._topic)

    def _transact(self, value: bytes, offset: int, *, commit: bool) -> None:
        self._writer.send(self._topic, Message(value, partition=0))
        if offset % 2 and self._client.name not in WITHOUT_OFFSETS:
            self._writer.write_offset(self._topic, self._topic, offset)
        if not commit:
            time.sleep(PAUSES_S[offset % len(PAUSES_S)])
        self._writer.end(commit=commit)

    def close(self) -> None:
        self._writer.close()


@pytest.mark.soak
def test_an_abort_right_after_a_commit_takes_nothing_but_its_own_transaction(transactional: Client, topic: str) -> None:
    transactional.create_topic(topic, 1, {})
    rounds = Rounds(transactional, topic)
    for number in range(ROUNDS):
        rounds.run(number)
    rounds.close()
    print(f"{transactional.name}: {rounds.errors.total()} of {ROUNDS} aborts failed: {dict(rounds.errors)}", flush=True)
    found = [value_of(record) for record in transactional.read_committed(topic, ROUNDS)]
    assert found == [b"committed %d" % number for number in range(ROUNDS)]
    if transactional.name not in WITHOUT_OFFSETS:
        assert transactional.committed(topic, topic)[0] == (ROUNDS - 1 if ROUNDS % 2 == 0 else ROUNDS - 2)
    known = FATAL_BY_ITSELF.get(transactional.name)
    assert [error for error in rounds.errors if known is None or known not in error] == []


def producer_of(tools: KafkaTools, transactional_id: str) -> tuple[int, int]:
    """Return the producer id and epoch of a transactional id, by Kafka's tool."""
    described = tools.check(
        f"kafka-transactions.sh --bootstrap-server localhost:9092 describe --transactional-id {transactional_id}"
    )
    found = re.search(rf"{transactional_id}\s+(\d+)\s+(\d+)", described)
    assert found is not None, described
    return int(found[1]), int(found[2])


@pytest.mark.slow
@pytest.mark.soak(only=True)
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ["java", "franz-go"])
def test_a_producer_that_has_used_up_its_epochs_continues_with_another_producer_id(
    name: str, clients: Callable[[str], Client], tools: KafkaTools, topic: str
) -> None:
    client = clients(name)
    client.create_topic(topic, 1, {})
    writer, begun_s = client.writer(topic), time.monotonic()
    producers = [producer_of(tools, topic)]
    for number in range(TRANSACTIONS):
        writer.send(topic, Message(b"%d" % number, partition=0))
        writer.end(commit=True)
        if number % 1_000 == 0:
            producers.append(producer_of(tools, topic))
    producers.append(producer_of(tools, topic))
    writer.close()
    changed = [pair for pair in pairwise(producers) if pair[0][0] != pair[1][0]]
    print(
        f"{name}: {TRANSACTIONS} commits in {time.monotonic() - begun_s:.0f} s; producer ids and epochs: {changed}, "
        f"at the end {producers[-1]}",
        flush=True,
    )
    assert len(changed) == 1
    found = [value_of(record) for record in client.read_committed(topic, TRANSACTIONS)]
    assert found == [b"%d" % number for number in range(TRANSACTIONS)]
