"""The rows of several brokers, each beside as many nodes of Apache Kafka."""

from collections.abc import Iterator
from itertools import product
from typing import Final

from bench.clusters import BROKERS, SESSION_MS
from bench.metrics import (
    CREATE_S,
    MANY_START_S,
    MB_PER_CPU_S,
    NO_LONGER,
    NO_SLOWER,
    NOISE,
    P50_US,
    P99_US,
    RSS_MB,
    THROUGHPUT,
    Aim,
    Better,
    Metric,
)
from bench.row import Group, Place, Row
from bench.scenarios.brokers_of_one_machine import CLIENTS, BrokersOfOneMachine
from bench.scenarios.failover import Elections, Failover, Fate
from bench.scenarios.load import Consume, Produce, RoundTrips
from bench.scenarios.many_partitions import ManyPartitions
from bench.scenarios.movement import CatchUp, Reassignment
from bench.transaction_rows import transaction_rows

KAFKA: Final = "kafka"
CONTROLLED_MS_MAX: Final = 300
CRASH_MS_MAX: Final = SESSION_MS + 500
THROTTLE: Final = 2_000_000

CLIENT_GAP_MS: Final = Metric("client_gap_ms", "without acknowledgement, librdkafka, ms", Better.LOWER, NO_LONGER)


def _gap_ms(value_max: float) -> Metric:
    """Return a metric of the gap that the brokers alone cause."""
    aim = Aim(times_peer_max=1 + NOISE, value_max=value_max)
    return Metric("gap_ms", "without acknowledgement, raw requests, ms", Better.LOWER, aim)


def _group(key: str, title: str, *metrics: Metric) -> Group:
    return Group(f"cluster-{key}", f"Three brokers: {title}", KAFKA, metrics)


PARTITIONS: Final = _group(
    "partitions",
    "3,000 partitions, all brokers together",
    CREATE_S,
    MANY_START_S,
    RSS_MB,
    Metric("idle_cpu_percent", "idle CPU, % of a core", Better.LOWER, NO_LONGER),
)
PRODUCERS: Final = _group("produce", "producers, librdkafka, acks=all, 3 replicas", *THROUGHPUT)
ROUND_TRIPS: Final = _group("round-trips", "round trips of one 1 KB record, acks=all, 3 replicas", P50_US, P99_US)
CONSUMERS: Final = _group("consume", "consumers, librdkafka", *THROUGHPUT)
ZEROS_TITLE: Final = f"{CLIENTS} producers at once, librdkafka, records of zeros of 1 KB, lz4, acks=all"
ZEROS_METRICS: Final = (Metric("mb_per_s", "MB/s", Better.HIGHER, Aim(times_peer_min=1.5)), *THROUGHPUT[1:])
ZEROS: Final = {
    1: Group("zeros", ZEROS_TITLE, KAFKA, ZEROS_METRICS),
    BROKERS: _group("zeros", f"{ZEROS_TITLE}, 3 replicas", *ZEROS_METRICS),
}
ONE_MACHINE: Final = Group(
    "one-machine",
    f"Brokers on this machine, {CLIENTS} clients of librdkafka at once, 1 KB, 12 partitions of one replica, acks=all",
    KAFKA,
    (
        Metric("small_mb_per_s", "written in batches of 16 KiB, MB/s", Better.HIGHER, NO_SLOWER),
        Metric("small_mb_per_cpu_s", "MB per broker CPU s", Better.HIGHER, MB_PER_CPU_S.aim),
        Metric("small_cores", "cores of the brokers", Better.LOWER),
        Metric("large_mb_per_s", "written in batches of 1 MB, MB/s", Better.HIGHER, NO_SLOWER),
        Metric("large_mb_per_cpu_s", "MB per broker CPU s", Better.HIGHER, MB_PER_CPU_S.aim),
        Metric("large_cores", "cores of the brokers", Better.LOWER),
        Metric("read_mb_per_s", "read, MB/s", Better.HIGHER, NO_SLOWER),
        Metric("read_mb_per_cpu_s", "MB per broker CPU s", Better.HIGHER),
        Metric("read_cores", "cores of the brokers", Better.LOWER),
        RSS_MB,
    ),
)
REASSIGNMENTS: Final = _group(
    "reassign",
    "replicas of six partitions move, a producer works on another topic",
    Metric("mb_per_s", "MB/s moved", Better.HIGHER, NO_SLOWER),
    Metric("p99_us", "p99 us meanwhile", Better.LOWER, NO_LONGER),
    Metric("quiet_p99_us", "p99 us before", Better.LOWER),
)
THROTTLED: Final = _group(
    "reassign-throttled",
    f"the same, each broker throttled to {THROTTLE // 10**6} MB/s",
    Metric("p99_us", "p99 us meanwhile", Better.LOWER, NO_LONGER),
    Metric("quiet_p99_us", "p99 us before", Better.LOWER),
    Metric("mb_per_s", "MB/s moved", Better.LOWER, Aim(value_max=BROKERS * THROTTLE / 1e6 * 1.1)),
)
CATCH_UP: Final = _group(
    "catch-up",
    "a broker comes back and catches up",
    Metric("mb_per_s", "MB/s copied", Better.HIGHER, NO_SLOWER),
    Metric("back_s", "start to full ISRs, s", Better.LOWER, NO_LONGER),
)
CONTROLLED: Final = _group("controlled", "the leader is restarted", _gap_ms(CONTROLLED_MS_MAX), CLIENT_GAP_MS)
CRASH: Final = _group(
    "crash",
    f"the leader is killed (session timeout {SESSION_MS / 1e3:g} s)",
    _gap_ms(CRASH_MS_MAX),
    CLIENT_GAP_MS,
)
HANG: Final = _group("hang", f"the leader hangs (session timeout {SESSION_MS / 1e3:g} s)", _gap_ms(CRASH_MS_MAX))
ELECTIONS: Final = _group(
    "elections",
    f"the leader of 1,000 partitions is killed (session timeout {SESSION_MS / 1e3:g} s)",
    Metric(
        "elected_s",
        "until all have new leaders, s",
        Better.LOWER,
        Aim(times_peer_max=1 + NOISE, value_max=CRASH_MS_MAX / 1e3),
    ),
    Metric("spread_ms", "from the first to the last, ms", Better.LOWER),
)
LOADED_ELECTIONS: Final = _group(
    "elections-loaded",
    f"the same while a producer writes to all of them (session timeout {SESSION_MS / 1e3:g} s)",
    *ELECTIONS.metrics,
    Metric("served_s", "until all acknowledge records again, librdkafka, s", Better.LOWER, NO_LONGER),
)


def _loads() -> Iterator[Row]:
    sizes = {100: "100 B", 1000: "1 KB"}
    for (record_bytes, size), partitions in product(sizes.items(), (1, 6)):
        scenario = Produce(
            client="librdkafka",
            record_bytes=record_bytes,
            batch_bytes=1_000_000,
            codec="none",
            acks="all",
            partitions=partitions,
            replication_factor=BROKERS,
        )
        title = f"{size}, {partitions} {'partition' if partitions == 1 else 'partitions'}"
        key = f"cluster.produce.{size}.{partitions}p".replace(" ", "")
        yield Row(key, title, PRODUCERS, scenario, record_bytes == 1000, place=Place.CLUSTER)
    for mode, title in (("in-flight", "one in flight"), ("poll", "produce to poll")):
        trips = RoundTrips(client="librdkafka", mode=mode, acks="all", replication_factor=BROKERS)
        yield Row(f"cluster.round-trip.{mode}", f"librdkafka, {title}", ROUND_TRIPS, trips, place=Place.CLUSTER)
    consume = Consume(client="librdkafka", record_bytes=1000, codec="none", replication_factor=BROKERS)
    yield Row("cluster.consume.1KB", "1 KB, 6 partitions", CONSUMERS, consume, place=Place.CLUSTER)


def _zeros(brokers: int) -> Iterator[Row]:
    for batch_bytes, batch in ((16_384, "16 KiB"), (1_000_000, "1 MB")):
        scenario = Produce(
            client="librdkafka",
            record_bytes=1000,
            batch_bytes=batch_bytes,
            codec="lz4",
            acks="all",
            replication_factor=brokers,
            clients=CLIENTS,
            zeros=True,
        )
        place = Place.BROKER if brokers == 1 else Place.CLUSTER
        yield Row(f"zeros.{brokers}.{batch}".replace(" ", ""), f"batch {batch}", ZEROS[brokers], scenario, False, place)


def zeros_rows() -> Iterator[Row]:
    """Yield the rows of records that compress to almost nothing, on the standing broker."""
    yield from _zeros(1)


def _one_machine() -> Iterator[Row]:
    for brokers in (1, 2, 3, 4):
        title = "1 broker" if brokers == 1 else f"{brokers} brokers"
        scenario = BrokersOfOneMachine(brokers)
        yield Row(f"one-machine.{brokers}", title, ONE_MACHINE, scenario, False, Place.OWN, slow=True)


def _changes() -> Iterator[Row]:
    for key, title, group, scenario in (
        ("reassign", "without throttle", REASSIGNMENTS, Reassignment()),
        ("reassign.throttled", "throttled", THROTTLED, Reassignment(THROTTLE)),
        ("catch-up", "six partitions, 3 replicas", CATCH_UP, CatchUp()),
        ("failover.controlled", "SIGTERM, and back", CONTROLLED, Failover(fate=Fate.RESTARTED)),
        (
            "failover.controlled.controller",
            "the controller's broker",
            CONTROLLED,
            Failover(fate=Fate.RESTARTED, controller=True),
        ),
        ("failover.crash", "kill -9", CRASH, Failover(fate=Fate.KILLED)),
        (
            "failover.crash.controller",
            "kill -9 of the controller's broker",
            CRASH,
            Failover(fate=Fate.KILLED, controller=True),
        ),
        ("failover.hang", "SIGSTOP", HANG, Failover(fate=Fate.PAUSED)),
        ("elections", "kill -9", ELECTIONS, Elections(1000)),
        ("elections.loaded", "kill -9, 5,000 records a second", LOADED_ELECTIONS, Elections(1000, under_load=True)),
    ):
        quick = key in ("failover.controlled", "failover.crash")
        yield Row(f"cluster.{key}", title, group, scenario, quick, place=Place.CLUSTER, slow=True)


def _partitions() -> Iterator[Row]:
    for topics, each, replicas in ((1000, 3, 1), (1000, 3, BROKERS), (3, 1000, BROKERS)):
        title = f"{topics:,} topics of {each:,}, {replicas} replica{'s' if replicas > 1 else ''}"
        scenario = ManyPartitions(topics, each, replicas)
        key = f"cluster.partitions.{topics}x{each}.rf{replicas}"
        yield Row(key, title, PARTITIONS, scenario, False, Place.OWN, slow=True)


def cluster_rows() -> Iterator[Row]:
    """Yield the rows in the order of a run: rows with new clusters first, then load on the warm one, then failovers."""
    yield from _partitions()
    yield from _one_machine()
    yield from _loads()
    yield from _zeros(BROKERS)
    yield from transaction_rows(BROKERS)
    yield from _changes()
