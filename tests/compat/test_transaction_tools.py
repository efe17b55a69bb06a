"""Kafka's tools list and abort transactions, read committed records, and decode transaction files (F08, F09, F47)."""

import re
from pathlib import Path

import pytest

from barnabas_core.topic_partition import coordinator_partition
from drivers.interface import Message
from drivers.kafka_tools import KafkaTools
from drivers.librdkafka import LibrdkafkaClient
from harness.server_process import ServerProcess

SERVER = "--bootstrap-server localhost:9092"


@pytest.fixture
def half_open(librdkafka: LibrdkafkaClient, topic: str) -> str:
    """A topic with an aborted record (0), a committed one (2) and an open one (4), all by the same transactional id."""
    librdkafka.create_topic(topic, 1, {})
    writer = librdkafka.writer(topic, **{"transaction.timeout.ms": 600_000})
    for text, commit in ((b"aborted", False), (b"committed", True), (b"open", None)):
        writer.write(topic, [Message(text, partition=0)])
        if commit is not None:
            writer.end(commit=commit)
    return topic


def test_an_open_transaction_is_listed_described_and_aborted(tools: KafkaTools, half_open: str) -> None:
    assert re.search(rf"{half_open}\s+1\s+\d+\s+Ongoing", tools.check(f"kafka-transactions.sh {SERVER} list"))
    described = tools.check(f"kafka-transactions.sh {SERVER} describe --transactional-id {half_open}")
    assert re.search(rf"{half_open}\s+\d+\s+\d+\s+Ongoing\s.*{half_open}-0", described)
    hanging = tools.check(f"kafka-transactions.sh {SERVER} find-hanging --broker-id 1 --max-transaction-timeout 0")
    assert half_open not in hanging, "its coordinator knows it, so it does not hang"
    read = f"kafka-console-consumer.sh {SERVER} --topic {half_open} --from-beginning --isolation-level read_committed"
    assert tools.check(f"{read} --max-messages 1").split() == ["committed"]
    tools.check(f"kafka-transactions.sh {SERVER} abort --topic {half_open} --partition 0 --start-offset 4")
    found = tools.check(f"kafka-transactions.sh {SERVER} describe-producers --topic {half_open} --partition 0")
    assert re.search(r"\sNone\s*$", found), found


def test_aborting_an_unknown_transaction_is_refused(tools: KafkaTools, half_open: str) -> None:
    refused = tools.run(f"kafka-transactions.sh {SERVER} abort --topic {half_open} --partition 0 --start-offset 2")
    assert refused.status == 1
    unknown = tools.run(f"kafka-transactions.sh {SERVER} describe --transactional-id nobody")
    assert unknown.status == 1
    assert "nobody" in unknown.text


def dump(tools: KafkaTools, files: list[Path], options: str = "") -> str:
    """Return the output of the tool for files that exist."""
    assert files
    return tools.check(f"kafka-dump-log.sh --files {','.join(map(str, files))} {options}")


def test_kafkas_dump_tool_reads_the_files_of_transactions(
    tools: KafkaTools, own_broker: ServerProcess, topic: str
) -> None:
    client = LibrdkafkaClient(own_broker.bootstrap)
    client.create_topic(topic, 1, {})
    writer = client.writer(topic)
    for commit in (False, True):
        writer.write(topic, [Message(b"value", partition=0)])
        writer.end(commit=commit)
    writer.write(topic, [Message(b"open", partition=0)])  # This completes the transaction before.
    own_broker.stop()
    logs = own_broker.log_path.parent / "logs"
    state = sorted((logs / f"__transaction_state-{coordinator_partition(topic, 50)}").glob("*.log"))
    decoded = dump(tools, state, "--transaction-log-decoder")
    for name in ("Empty", "Ongoing", "PrepareAbort", "CompleteAbort", "PrepareCommit", "CompleteCommit"):
        assert f'"transactionStatus":"{name}"' in decoded, decoded
    folder = logs / f"{topic}-0"
    records = dump(tools, sorted(folder.glob("*.log")), "--print-data-log")
    assert re.findall(r"endTxnMarker: (\w+)", records) == ["ABORT", "COMMIT"]
    index = dump(tools, sorted(folder.glob("*.txnindex")))
    assert re.search(r"producerId: \d+ firstOffset: 0 lastOffset: 1 lastStableOffset: 2", index), index
