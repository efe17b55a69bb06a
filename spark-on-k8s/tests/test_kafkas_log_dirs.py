"""`audit` on log dirs of Apache Kafka: while it runs, after it stopped, and with damage. No Spark runs here."""

import os
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as Commit

from barnabas_core.topic_partition import TopicPartition
from barnabas_jobs.files.segment_source import LogDir, SegmentReader, check, offsets_of, strays
from barnabas_jobs.planning.logs import batches as kinds
from harness.apache_kafka import apache_kafka
from harness.deadline import wait_for
from harness.kafka_jars import JarsMissing, jars_folder
from harness.require import missing
from harness.stock_client import StockClient

pytestmark = pytest.mark.xdist_group("apache-kafka")
MIB = 1 << 20


def read(log_dir: Path) -> tuple[int, list[tuple[str, str, str]]]:
    """Return the number of batches, and the problems as kind, topic and suffix."""
    reader = SegmentReader([f"1:{log_dir}"], [""], [""], True)
    rows = [row for task in reader.partitions() for some in reader.read(task) for row in some.to_pylist()]
    wrong = [(row["problem"], row["topic"], row["suffix"]) for row in rows if row["problem"]]
    return len(rows) - len(wrong), wrong


def has_committed(consumer: Consumer) -> bool:
    """True if a commit succeeds; it fails until the group's coordinator has made its topic."""
    with suppress(KafkaException):
        consumer.commit(offsets=[Commit("flights", 0, 5)], asynchronous=False)
        return True
    return False


@pytest.mark.soak(only=True)
def test_audit_reads_apache_kafkas_log_dirs_like_ours(tmp_path: Path) -> None:
    try:
        jars_folder()
    except JarsMissing as reason:
        missing(reason)
    log_dir = tmp_path / "logs"
    with apache_kafka(tmp_path, "512m", {"log.index.interval.bytes": "1024"}) as kafka:
        client = StockClient(kafka.bootstrap)
        client.create_topic("flights", 1, {"segment.bytes": str(MIB)})
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            values = [os.urandom(500) * 2 for _ in range(1000)]
            assert not any(client.send("flights", values, compression_codec=codec))
        consumer = Consumer({**client.settings, "group.id": "readers"})
        wait_for(lambda: has_committed(consumer))
        consumer.close()
        check([LogDir(1, str(log_dir))])
        batches, wrong = read(log_dir)
        assert (batches > 10, wrong) == (True, [])
        assert list(strays([LogDir(1, str(log_dir))])) == []
    batches, wrong = read(log_dir)
    assert wrong == []
    assert list(strays([LogDir(1, str(log_dir))])) == []
    assert offsets_of(LogDir(1, str(log_dir)))(TopicPartition("flights", 0)).high_watermark == 5000
    first = min((log_dir / "flights-0").glob("*.log"))
    with first.open("r+b") as file:
        file.seek(first.stat().st_size // 2)
        file.write(b"damage")
    assert read(log_dir)[1] == [(kinds.BAD_CRC, "flights", ".log")]
