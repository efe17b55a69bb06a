"""All clients and Kafka's tool read a compacted topic to its end, with empty batches and delete horizons (F24).

The same tests pass with Apache Kafka (`--peer kafka`): a reader finds the same records.
"""

import re
import time
from pathlib import Path

import pytest

from drivers.interface import Client, Message, Received
from drivers.kafka_tools import KafkaTools
from drivers.librdkafka import LibrdkafkaClient
from harness.deadline import PATIENCE_S, wait_for
from harness.server_process import ServerProcess

KEYS = 20
Values = dict[bytes | None, bytes | None]
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.01",
    "index.interval.bytes": "0",
}
COMPLAINTS = re.compile(r"mismatch|invalid|corrupt|exception|isvalid: false|out of order|error", re.I)


def log_dir(server: ServerProcess) -> Path:
    return server.log_path.parent / "logs"


def fill(client: LibrdkafkaClient, topic: str, compression: str) -> Values:
    """Write three generations of values, each in its own segment, and an end; return the newest value of each key.

    The second producer's last batch loses all its records; key 0 is deleted by a tombstone.
    """
    start_ms = int(time.time() * 1000) - 100_000
    for generation in range(3):
        messages = [
            Message(b"%d of %d " % (generation, n) + bytes(50), b"key %d" % n, 0, start_ms + generation * 10_000 + n)
            for n in range(KEYS)
        ]
        client.produce(topic, messages, compression=compression, idempotent=generation == 1)
    client.produce(topic, [Message(None, b"key 0", 0, start_ms + 25_000)])
    client.produce(topic, [Message(b"end", b"end", 0, start_ms + 40_000)])
    newest: Values = {b"key %d" % n: b"2 of %d " % n + bytes(50) for n in range(1, KEYS)}
    return {**newest, b"key 0": None, b"end": b"end"}


def wait_for_compaction(server: ServerProcess, topic: str, offset: int) -> None:
    """Wait until the checkpoint has the end of the segment at `offset`."""
    checkpoint = log_dir(server) / "cleaner-offset-checkpoint"
    wait_for(
        lambda: checkpoint.read_text() if checkpoint.exists() else "",
        lambda text: f"{topic} 0 {offset}\n" in text,
        PATIENCE_S,
    )


def by_key(records: list[Received]) -> Values:
    return {record.key: record.value for record in records}


@pytest.fixture(params=["none", "gzip"])
def compacted(
    request: pytest.FixtureRequest, broker: ServerProcess, librdkafka: LibrdkafkaClient, topic: str
) -> Values:
    """The newest values in `topic`, which has been compacted up to its last record."""
    librdkafka.create_topic(topic, 1, COMPACTED)
    newest = fill(librdkafka, topic, request.param)
    wait_for_compaction(broker, topic, 3 * KEYS + 1)
    return newest


def test_a_client_reads_the_newest_value_of_every_key_of_a_compacted_topic(
    client: Client, topic: str, compacted: Values
) -> None:
    records = client.read(topic, len(compacted))
    assert by_key(records) == compacted
    offsets = [record.offset for record in records]
    assert offsets == sorted(offsets)
    assert offsets[-1] == 3 * KEYS + 1
    assert min(offsets) >= 2 * KEYS


def test_kafkas_tool_reads_compacted_segments_and_their_indexes(
    tools: KafkaTools, broker: ServerProcess, topic: str, compacted: Values
) -> None:
    folder = log_dir(broker) / f"{topic}-0"
    segment = folder / "00000000000000000000.log"
    shown = tools.check(f"kafka-dump-log.sh --files {segment} --deep-iteration --print-data-log")
    assert not [line for line in shown.splitlines() if COMPLAINTS.search(line)]
    assert len(re.findall(r"^\| offset: ", shown, re.M)) == len(compacted) - 1
    assert re.search(r"baseOffset: .*count: 0 .*producerId: \d", shown), "an active producer keeps its empty batch"
    assert re.search(r"deleteHorizonMs: OptionalLong\[\d+\]", shown)
    indexes = ",".join(str(segment.with_suffix(suffix)) for suffix in (".index", ".timeindex"))
    checked = tools.check(f"kafka-dump-log.sh --files {indexes} --index-sanity-check")
    assert checked.count("passed sanity check") == 2
