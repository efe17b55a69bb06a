"""The world of tests of jobs: a broker, a topic with records of all kinds, an archive."""

import itertools
import os
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pyarrow.parquet
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from pyiceberg.expressions import AlwaysTrue
from pyspark.sql import SparkSession

from barnabas_jobs.app.connector import default_folder
from barnabas_jobs.files.archive_tables import ArchivedTopic, ArchiveTables
from barnabas_jobs.jobs import archive, verify
from barnabas_jobs.jobs.location import archive_at
from barnabas_jobs.kafka.topics import Cluster
from barnabas_jobs.planning.options import ArchiveOptions
from barnabas_jobs.spark.failures import ONE_TASK_EACH
from barnabas_jobs.spark.records import of_files
from harness.barnabas_server import prepare_barnabas
from harness.deadline import PATIENCE_S, wait_for
from harness.server_process import ServerProcess
from harness.soak import size
from harness.stock_client import StockClient

JARS = default_folder()
SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    "spark.sql.adaptive.enabled": "false",
    # Spark compiles code for each query, which costs more than to interpret the query for a few records.
    "spark.sql.codegen.wholeStage": size("false", "true"),
    "spark.sql.codegen.factoryMode": size("NO_CODEGEN", "FALLBACK"),
    **ONE_TASK_EACH,
}
NOT_VERIFIED = "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
SHORT_LIVED = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData {NOT_VERIFIED}"
"""Options that suit a JVM that lives for a short time: it trusts the classes of the jars."""
QUIET_S = 3.0
"""The time that tests wait for what a failed task may still write."""
FIRST_MS = 1_357_000_000_000  # 2013-01-01 at 00:26:40 UTC.
HOUR_MS = 3_600_000
KEEP = {"retention.ms": "-1", "message.timestamp.before.max.ms": str(2**63 - 1)}
Record = tuple[int, int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]
"""Partition, offset, timestamp in milliseconds, key, value, headers."""


def broker_for_jobs(folder: Path) -> ServerProcess:
    """Return a broker that keeps records of 2013, not running; internal topics have few partitions: each is a task."""
    topics = ("offsets.topic", "transaction.state.log")
    one = {f"{name}.{what}": "1" for name in topics for what in ("replication.factor", "num.partitions")}
    return prepare_barnabas(folder, {**one, "log.retention.hours": "-1"})


class World:
    """The topic and the archive of one test."""

    def __init__(self, bootstrap: str, topic: str, folder: Path) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.folder = folder
        self.location = str(folder)
        self.catalog: dict[str, str] = {}
        self.client = StockClient(bootstrap)
        self._numbers = itertools.count()

    def at(self, location: str, catalog: dict[str, str]) -> "World":
        """Set the location and the catalog of the archive."""
        self.folder, self.location, self.catalog = Path(location), location, catalog
        return self

    def make(self, partitions: int = 3, topic: str | None = None, **config: str) -> None:
        """Make the topic, empty; it keeps its records."""
        own = {name.replace("_", "."): value for name, value in config.items()}
        self.client.create_topic(topic or self.topic, partitions, {**KEEP, **own})

    def delete(self, topic: str | None = None) -> None:
        """Delete the topic; return when no broker reports it any more."""
        name = topic or self.topic
        self.client.admin.delete_topics([name])[name].result(PATIENCE_S)
        wait_for(lambda: name not in self.client.admin.list_topics(timeout=PATIENCE_S).topics)

    def write(self, count: int, partitions: int = 3, topic: str | None = None) -> None:
        """Write records an hour apart, over several days, with every kind of key, value and headers."""
        refused: list[Any] = []
        producer = Producer({**self.client.settings, "acks": "all", "linger.ms": 5})
        for number in itertools.islice(self._numbers, count):
            key, value, headers = kinds(number)
            producer.produce(
                topic or self.topic,
                value,
                key,
                partition=number % partitions,
                timestamp=FIRST_MS + number * HOUR_MS,
                headers=headers,  # type: ignore[arg-type]  # Its stub knows no header without a value.
                on_delivery=lambda error, _: refused.append(error) if error else None,
            )
            producer.poll(0)
        assert producer.flush(PATIENCE_S) == 0
        assert not refused

    def write_values(self, topic: str, values: list[bytes]) -> None:
        """Write these values to partition 0, all with the same timestamp; the key is the index."""
        producer = Producer(self.client.settings)
        for number, value in enumerate(values):
            producer.produce(topic, value, b"%d" % number, partition=0, timestamp=FIRST_MS)
        assert producer.flush(PATIENCE_S) == 0

    def write_random(self, size: int) -> None:
        """Write this many bytes that cannot be compressed to partition 0."""
        self.client.write(self.topic, [os.urandom(1 << 16) for _ in range(size >> 16)])

    def delete_before(self, offsets: dict[int, int]) -> None:
        """Delete the records before these offsets, as retention does."""
        wanted = [TopicPartition(self.topic, partition, offset) for partition, offset in offsets.items()]
        for future in self.client.admin.delete_records(wanted).values():
            future.result(PATIENCE_S)

    def set_config(self, config: dict[str, str], topic: str | None = None) -> None:
        """Set configs of the existing topic."""
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic or self.topic, incremental_configs=entries)
        self.client.admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)

    def own_config(self) -> dict[str, str]:
        """Return the configs that were set for the topic."""
        return Cluster(self.bootstrap).own_config(self.topic)

    def options(self) -> dict[str, Any]:
        """Return the options that all jobs of an archive have."""
        where = {"topic": self.topic, "archive": self.location, "catalog": self.catalog}
        return {"bootstrap": self.bootstrap, **where}

    def archive(self, spark: SparkSession, **options: Any) -> archive.Result:
        """Run the job `archive`."""
        chosen = {**self.options(), **options}
        return archive.run(spark, msgspec.convert(chosen, archive.Options))

    def verify(self, spark: SparkSession, **options: Any) -> verify.Result:
        """Run the job `verify`."""
        chosen = {**self.options(), **options}
        return verify.run(spark, msgspec.convert(chosen, verify.Options))

    def tables(self, spark: SparkSession) -> ArchiveTables:
        """Return the tables of the archive."""
        return archive_at(spark, ArchiveOptions(topic=self.topic, archive=self.location, catalog=self.catalog))

    def archived_topic(self, spark: SparkSession, topic_id: str | None = None) -> ArchivedTopic:
        """Return the archived topic with this id, or the newest one."""
        return self.tables(spark).topic(self.topic, topic_id)

    def write_as_another_program(self, spark: SparkSession, chosen: str, *, replace: bool) -> None:
        """Add a file with copies of the chosen records to the table, and with `replace` remove all other files.

        With `replace` this deletes the other records, as a program that rewrites data files does.
        """
        table = self.tables(spark).load(self.topic)
        assert table is not None
        path = Path(urlsplit(table.location()).path) / "data" / f"{uuid.uuid4().hex}.parquet"
        pyarrow.parquet.write_table(table.scan(chosen).to_arrow(), path)
        with table.transaction() as transaction:
            if replace:
                transaction.delete(AlwaysTrue())
            transaction.add_files([path.as_uri()], check_duplicate_files=False)

    def archived(self, spark: SparkSession, topic_id: str | None = None) -> list[Record]:
        """Return all archived records, in order."""
        paths = self.archived_topic(spark, topic_id).paths()
        rows = of_files(spark, paths).selectExpr("*", "unix_millis(timestamp) AS ms").drop("timestamp").collect()
        return sorted((row_record(row) for row in rows), key=lambda record: record[:2])

    def read(self, topic: str | None = None) -> list[Record]:
        """Return all records that a stock consumer finds in the topic, in order."""
        name = topic or self.topic
        consumer = Consumer({**self.client.settings, "group.id": "nobody", "enable.auto.commit": False})
        try:
            parts = consumer.list_topics(name, timeout=PATIENCE_S).topics[name].partitions
            bounds = {part: consumer.get_watermark_offsets(TopicPartition(name, part), PATIENCE_S) for part in parts}
            consumer.assign([TopicPartition(name, part, first) for part, (first, _) in bounds.items()])
            wanted = sum(last - first for first, last in bounds.values())
            found: list[Record] = []

            def more() -> int:
                found.extend(map(record_of, consumer.consume(1000, 0.1)))
                return len(found)

            wait_for(more, lambda count: count >= wanted)
            return sorted(found, key=lambda record: record[:2])
        finally:
            consumer.close()

    def damage(self, pattern: str) -> Path:
        """Return the first file of the archive that matches the pattern."""
        return min(self.folder.glob(pattern))


def kinds(number: int) -> tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]:
    """Return key, value and headers of every kind in turn."""
    key = (None, b"", b"key-%d" % (number % 7))[number % 3]
    value = (b"value-%d" % number, None, b"", b"\x00\xff" * 20)[number % 4]
    headers = (None, [("one", b"1"), ("none", None), ("empty", b""), ("one", b"2")])[number % 2]
    return key, value, headers


def record_of(message: Any) -> Record:
    """Return the record of a consumer's message."""
    assert message.error() is None, message.error()
    place = (message.partition(), message.offset(), message.timestamp()[1])
    return (*place, message.key(), message.value(), message.headers())


def row_record(row: Any) -> Record:
    """Return the record in a row of an archive."""
    key, value = (None if row[name] is None else bytes(row[name]) for name in ("key", "value"))
    headers = [(each["key"], None if each["value"] is None else bytes(each["value"])) for each in row["headers"] or ()]
    return row["partition"], row["offset"], row["ms"], key, value, headers or None
