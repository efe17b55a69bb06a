"""The table of rows: what is measured, on which peers, with which aims."""

from collections.abc import Iterator
from itertools import product
from typing import Final

from bench.cluster_rows import cluster_rows, zeros_rows
from bench.group_rows import group_rows
from bench.metrics import (
    CREATE_S,
    MANY_START_S,
    NO_LONGER,
    NO_SLOWER,
    P50_US,
    P99_US,
    REQUESTS_PER_CPU_S,
    REQUESTS_PER_S,
    RSS_MB,
    THROUGHPUT,
    Aim,
    Better,
    Metric,
)
from bench.peers import BEFORE
from bench.row import Group, Place, Row
from bench.scenarios.cold import ColdConsumer
from bench.scenarios.group_offsets import OffsetsLoaded
from bench.scenarios.in_flight import ProduceInFlight
from bench.scenarios.jobs import SparkJobs
from bench.scenarios.jobs_in_bucket import RequestsOfJobs
from bench.scenarios.lifecycle import IdleConnections, LoadedMemory, ManyTopics, SlowConnections, StartAndIdle
from bench.scenarios.load import Consume, Produce, RawLoad, RoundTrips
from bench.secured_rows import secured_cluster_rows, secured_rows
from bench.transaction_rows import id_rows, transaction_rows

START_S: Final = Metric("start_s", "start to first acknowledged record, s", Better.LOWER, Aim(value_max=0.5))
IDLE_MB: Final = Metric("rss_mb", "RSS MB", Better.LOWER, Aim(value_max=80))
LOADED_MB: Final = Metric("rss_mb", "RSS MB", Better.LOWER, Aim(value_max=150))
SERVED_S: Final = Metric("served_s", "start to an offset of the group, s", Better.LOWER, NO_LONGER)
CONNECT_S: Final = Metric("connect_s", "connecting, s", Better.LOWER)

START: Final = Group("start", "Start and idle memory", "kafka", (START_S, IDLE_MB))
LOADED: Final = Group("loaded", "Memory under load", "kafka", (LOADED_MB,))
CONNECTIONS: Final = Group("connections", "Memory with idle connections", "kafka", (RSS_MB, CONNECT_S))
SLOW: Final = Group("slow", "Round trips beside 10,000 slow clients", "kafka", (P50_US, P99_US, RSS_MB))
COLD: Final = Group(
    "cold",
    "Round trips beside a consumer that reads from a slow disk",
    "kafka",
    (P50_US, P99_US, Metric("read_mb_per_s", "read, MB/s", Better.HIGHER)),
)
OFFSETS: Final = Group("offsets", "Offsets of a group, loaded at the start", "kafka", (SERVED_S, RSS_MB))
JOBS: Final = Group(
    "jobs",
    "Spark jobs on two cores with 1 GB, beside a plain read of Spark's connector to Parquet",
    "kafka",
    (
        Metric("archive_mb_per_s", "archive, MB/s", Better.HIGHER, NO_SLOWER),
        Metric("archive_to_plain", "archive over plain read", Better.HIGHER, Aim(value_min=0.9)),
        Metric("plain_mb_per_s", "plain read, MB/s", Better.HIGHER),
        Metric("restore_mb_per_s", "restore, MB/s", Better.HIGHER, NO_SLOWER),
        Metric("spark_mb", "peak memory of Spark, MB", Better.LOWER),
        Metric("objects", "files of the archive", Better.LOWER),
    ),
)
REQUESTS_OF_JOBS: Final = Group(
    "jobs-in-a-bucket",
    "Requests of Spark jobs to a bucket; dear ones are PUT, POST and listings",
    "kafka",
    (
        Metric("archive_requests", "archive, requests", Better.LOWER),
        Metric("archive_dear", "archive, dear ones", Better.LOWER),
        Metric("plain_requests", "plain read, requests", Better.LOWER),
        Metric("plain_dear", "plain read, dear ones", Better.LOWER),
        Metric("next_requests", "next run of 1,000 records, requests", Better.LOWER),
        Metric("next_dear", "next run of 1,000 records, dear ones", Better.LOWER),
    ),
)
TOPICS: Final = Group("topics", "Many topics", "kafka", (CREATE_S, MANY_START_S, RSS_MB))
PERCENTILES: Final = (P50_US, Metric("p99_us", "p99 us", Better.LOWER))
RAW_PROTOTYPE: Final = Group(
    "raw-prototype",
    "Raw requests, closed loop, beside the prototype",
    "prototype",
    (Metric("requests_per_s", "requests/s", Better.HIGHER), REQUESTS_PER_CPU_S, *PERCENTILES),
)
RAW_PRODUCE: Final = Group(
    "raw-produce",
    "Raw 16 KiB-batch produce, closed loop, beside the prototype",
    "prototype",
    (Metric("requests_per_s", "requests/s", Better.HIGHER, Aim(times_peer_min=0.8)), REQUESTS_PER_CPU_S, *PERCENTILES),
)
RAW_APPENDING: Final = Group(
    "raw-appending",
    "The same, the prototype appending to one long file as a broker does",
    "appending",
    RAW_PRODUCE.metrics,
)
RAW_KAFKA: Final = Group(
    "raw-kafka",
    "Raw requests, closed loop, beside Apache Kafka",
    "kafka",
    (
        REQUESTS_PER_S,
        Metric("requests_per_cpu_s", "requests per broker CPU s", Better.HIGHER, Aim(times_peer_min=1.5)),
        P50_US,
        P99_US,
    ),
)
RAW_BEFORE: Final = Group(
    "raw-before",
    "Raw requests, closed loop, beside an earlier commit",
    BEFORE,
    (
        Metric("cpu_us_per_request", "broker CPU us/request", Better.LOWER, Aim(times_peer_max=1.03)),
        Metric("requests_per_s", "requests/s", Better.HIGHER),
        *PERCENTILES,
    ),
)
ROUND_TRIPS: Final = Group("round-trips", "Round trips of one 1 KB record", "kafka", (P50_US, P99_US))
PRODUCERS: Final = {
    "librdkafka": Group("produce-librdkafka", "Producers, librdkafka", "kafka", THROUGHPUT),
    "Java": Group("produce-java", "Producers, Java client", "kafka", THROUGHPUT),
}
CONSUMERS: Final = Group("consume", "Consumers", "kafka", THROUGHPUT)

RAW_GROUPS: Final = (RAW_PRODUCE, RAW_APPENDING, RAW_PROTOTYPE, RAW_KAFKA)

SIZES: Final = {100: "100 B", 1000: "1 KB", 10_000: "10 KB"}
BATCHES: Final = {16_384: "16 KiB", 1_000_000: "1 MB"}
RAW: Final = (
    ("api", "ApiVersions, 50 connections", RawLoad("api", 50, "t_p6", 6)),
    ("prod1", "produce, 100 B batches, 8 connections", RawLoad("prod1", 8, "t_p1", 1)),
    ("prod16k", "produce, 16 KiB batches, 8 connections", RawLoad("prod16k", 8, "t_p6", 6)),
    ("prod1m", "produce, 1 MB batches, 4 connections", RawLoad("prod1m", 4, "t_p6", 6)),
    ("fetch6x1m", "fetch, 6 x 1 MiB, 2 connections", RawLoad("fetch6x1m", 2, "t_p6", 6, fill="prod6x16k")),
)

IN_FLIGHT: Final = (1, 5)
"""The requests of one connection that are unanswered; 5 is the default of producers."""


def _lifecycle() -> Iterator[Row]:
    yield Row("start", "a broker with one topic", START, StartAndIdle(), place=Place.OWN)
    yield Row("loaded", "librdkafka, 16 KiB batches of 1 KB, and a consumer", LOADED, LoadedMemory(), place=Place.OWN)
    yield Row("connections", "5,000 connections", CONNECTIONS, IdleConnections(5000), quick=False, place=Place.OWN)
    yield Row("connections.10k", "10,000 connections", CONNECTIONS, IdleConnections(10_000), place=Place.OWN)
    yield Row(
        "slow",
        "five bytes of a request each",
        SLOW,
        SlowConnections(10_000, round_trips=200),
        place=Place.OWN,
        slow=True,
    )
    yield Row("cold", "500 MB at 20 MB/s", COLD, ColdConsumer(500), quick=False, place=Place.OWN, slow=True)
    yield Row("cold.quick", "200 MB at 20 MB/s", COLD, ColdConsumer(200), place=Place.OWN, slow=True)
    yield Row(
        "offsets",
        "95 MiB of commits of 100 partitions",
        OFFSETS,
        OffsetsLoaded(log_mib=95, partitions=100),
        quick=False,
        place=Place.OWN,
        slow=True,
    )
    yield Row("topics", "1,000 topics of 6 partitions", TOPICS, ManyTopics(1000), quick=False, place=Place.OWN)
    yield Row("topics.30k", "5,000 topics of 6 partitions", TOPICS, ManyTopics(5000), quick=False, place=Place.OWN)


def _raw() -> Iterator[Row]:
    for name, title, scenario in RAW:
        group = RAW_PRODUCE if name == "prod16k" else RAW_PROTOTYPE
        yield Row(f"raw.{name}", title, group, scenario)
        yield Row(f"raw.{name}.kafka", title, RAW_KAFKA, scenario)
        if name == "prod16k":
            yield Row(f"raw.{name}.appending", title, RAW_APPENDING, scenario)


def rows_before() -> list[Row]:
    """Return the rows that are measured only beside an earlier commit."""
    in_flight = [
        Row(f"before.in-flight.{n}", f"Produce v13, 16 KiB, {n} in flight", RAW_BEFORE, ProduceInFlight(n))
        for n in IN_FLIGHT
    ]
    return [*(Row(f"before.{name}", title, RAW_BEFORE, scenario) for name, title, scenario in RAW), *in_flight]


def _round_trips() -> Iterator[Row]:
    for client, (mode, acks) in product(
        ("librdkafka", "Java"), (("in-flight", "1"), ("in-flight", "all"), ("poll", "1"))
    ):
        what = "one in flight" if mode == "in-flight" else "produce to poll"
        key = f"round-trip.{client.lower()}.{mode}.acks-{acks}"
        yield Row(key, f"{client}, {what}, acks={acks}", ROUND_TRIPS, RoundTrips(client=client, mode=mode, acks=acks))


def _produce(client: str) -> Iterator[Row]:
    for record_bytes, batch_bytes, codec, acks in product(SIZES, BATCHES, ("none", "lz4"), ("1", "all")):
        size, batch = SIZES[record_bytes], BATCHES[batch_bytes]
        key = f"produce.{client.lower()}.{size}.{batch}.{codec}.acks-{acks}".replace(" ", "")
        scenario = Produce(client=client, record_bytes=record_bytes, batch_bytes=batch_bytes, codec=codec, acks=acks)
        quick = acks == "all" and (record_bytes == 1000 or codec == "none")
        yield Row(key, f"{size}, batch {batch}, {codec}, acks={acks}", PRODUCERS[client], scenario, quick)


def _consume() -> Iterator[Row]:
    for client, record_bytes, codec in product(("librdkafka", "Java"), SIZES, ("none", "lz4")):
        size = SIZES[record_bytes]
        key = f"consume.{client.lower()}.{size}.{codec}".replace(" ", "")
        scenario = Consume(client=client, record_bytes=record_bytes, codec=codec)
        yield Row(key, f"{client}, {size}, {codec}", CONSUMERS, scenario, record_bytes == 1000 or codec == "none")


def _jobs() -> Iterator[Row]:
    yield Row("jobs.500k", "500,000 records of 200 B", JOBS, SparkJobs(500_000), quick=False, slow=True)
    yield Row("jobs.5m", "5,000,000 records of 200 B", JOBS, SparkJobs(5_000_000), quick=False, slow=True)
    title = "5,000,000 records of 200 B in a bucket"
    yield Row("jobs.bucket", title, REQUESTS_OF_JOBS, RequestsOfJobs(5_000_000), quick=False, slow=True)


def all_rows() -> list[Row]:
    """Return every row in the order of a run: rows with new servers first, so that no standing broker runs beside."""
    return [
        *_lifecycle(),
        *id_rows(),
        *group_rows(),
        *sorted(_raw(), key=lambda row: RAW_GROUPS.index(row.group)),
        *_round_trips(),
        *_produce("librdkafka"),
        *zeros_rows(),
        *_consume(),
        *_produce("Java"),
        *transaction_rows(1),
        *secured_rows(),
        *_jobs(),
        *secured_cluster_rows(),
        *cluster_rows(),
        # This row takes half an hour, so that a full run without --minutes has no time left for it.
        Row("jobs.50m", "50,000,000 records of 200 B", JOBS, SparkJobs(50_000_000), quick=False, slow=True),
    ]
