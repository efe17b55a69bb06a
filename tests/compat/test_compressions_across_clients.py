"""Every client reads batches that another one compressed, and the broker keeps them as they are (F03)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from drivers.interface import COMPRESSIONS, Client, Message
from drivers.kafka_tools import KafkaTools
from harness.server_process import ServerProcess

# The values repeat themselves, so that each codec makes them smaller.
MESSAGES = [Message(b"the same words again and again " * 8 + b"%d" % n, key=b"%d" % n, partition=0) for n in range(40)]
CODECS = {
    "librdkafka": COMPRESSIONS,
    "kafka-python": COMPRESSIONS,
    "aiokafka": COMPRESSIONS,
    "java": COMPRESSIONS,
    "franz-go": COMPRESSIONS,
    "kafkajs": ("none", "gzip", "snappy"),
}


@pytest.mark.parametrize(("producer", "codec"), [(name, codec) for name, codecs in CODECS.items() for codec in codecs])
def test_every_client_reads_batches_compressed_by_another_client(
    clients: Callable[[str], Client], producer: str, codec: str, topic: str
) -> None:
    clients(producer).create_topic(topic, 1, {})
    clients(producer).produce(topic, MESSAGES, compression=codec)
    for reader in (name for name, codecs in CODECS.items() if codec in codecs):
        records = clients(reader).read(topic, len(MESSAGES))
        assert [(r.key, r.value) for r in records] == [(m.key, m.value) for m in MESSAGES], reader


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_topic_with_its_own_compression_type_recompresses_batches(
    broker: ServerProcess, librdkafka: Client, tools: KafkaTools, topic: str, compression: str
) -> None:
    other = "gzip" if compression != "gzip" else "lz4"
    kept = "uncompressed" if compression == "none" else compression
    librdkafka.create_topic(topic, 1, {"compression.type": kept})
    librdkafka.produce(topic, MESSAGES, compression=other)
    assert [r.value for r in librdkafka.read(topic, len(MESSAGES))] == [m.value for m in MESSAGES]
    segment = broker.log_path.parent / "logs" / f"{topic}-0" / "00000000000000000000.log"
    assert codecs_in(tools, segment) == {compression}


def codecs_in(tools: KafkaTools, segment: Path) -> set[str]:
    """Return the codecs of a segment's batches, as Kafka's own tool names them."""
    dumped = tools.check(f"kafka-dump-log.sh --files {segment}")
    words = dumped.split()
    return {words[n + 1] for n, word in enumerate(words) if word == "compresscodec:"}
