"""The rows of TLS and SCRAM, on one broker and on three."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

from bench.clusters import BROKERS
from bench.metrics import NO_SLOWER, P50_US, P99_US, THROUGHPUT, Aim, Better, Metric
from bench.row import Group, Place, Row
from bench.scenarios.load import Consume, Produce, RoundTrips
from bench.scenarios.new_connections import Handshakes, Logins
from bench.secured_broker import ACLS, WayIn

KAFKA: Final = "kafka"
BATCHES: Final = {16_384: "16 KiB", 1_000_000: "1 MB"}
TLS: Final = Group("tls", "TLS 1.3, records of 1 KB", KAFKA, THROUGHPUT)
TLS_TRIPS: Final = Group("tls-round-trips", "TLS 1.3, round trips of one 1 KB record", KAFKA, (P50_US, P99_US))
ACLS_TITLE: Final = f"SCRAM-SHA-512 over TLS, a user with {ACLS:,} ACLs, records of 1 KB"
SCRAM: Final = Group("scram", ACLS_TITLE, KAFKA, THROUGHPUT)
CLUSTER: Final = "Three brokers: TLS 1.3, between them too, 3 replicas"
CLUSTER_TLS: Final = Group("cluster-tls", f"{CLUSTER}, records of 1 KB, 6 partitions", KAFKA, THROUGHPUT)
CLUSTER_TLS_TRIPS: Final = Group(
    "cluster-tls-round-trips", f"{CLUSTER}, round trips of one 1 KB record", KAFKA, (P50_US, P99_US)
)
BEGINNINGS: Final = Group(
    "new-connections",
    "New connections, one after the other",
    KAFKA,
    (
        Metric("connections_per_s", "connections/s", Better.HIGHER, NO_SLOWER),
        Metric("connections_per_cpu_s", "connections per broker CPU s", Better.HIGHER, Aim(times_peer_min=1.5)),
    ),
)


@dataclass(frozen=True, slots=True)
class _Loads:
    """Rows whose clients use the same listener, of one broker or of the cluster that has the replicas."""

    prefix: str
    way_in: WayIn
    replicas: int = 1

    @property
    def _place(self) -> Place:
        return Place.SECURED if self.replicas == 1 else Place.SECURED_CLUSTER

    def produce(self, group: Group, client: str, batch_bytes: int) -> Row:
        scenario = Produce(
            client=client,
            record_bytes=1000,
            batch_bytes=batch_bytes,
            codec="none",
            acks="all",
            replication_factor=self.replicas,
            way_in=self.way_in,
        )
        batch = BATCHES[batch_bytes]
        key = f"{self.prefix}.produce.{client.lower()}.{batch}".replace(" ", "")
        return Row(key, f"producer, {client}, batch {batch}", group, scenario, place=self._place)

    def consume(self, group: Group, client: str) -> Row:
        scenario = Consume(
            client=client, record_bytes=1000, codec="none", replication_factor=self.replicas, way_in=self.way_in
        )
        key = f"{self.prefix}.consume.{client.lower()}"
        return Row(key, f"consumer, {client}", group, scenario, place=self._place)

    def round_trip(self, group: Group, client: str) -> Row:
        scenario = RoundTrips(
            client=client, mode="in-flight", acks="all", replication_factor=self.replicas, way_in=self.way_in
        )
        key = f"{self.prefix}.round-trip.{client.lower()}"
        return Row(key, f"{client}, one in flight, acks=all", group, scenario, place=self._place)


def secured_rows() -> Iterator[Row]:
    """Yield the rows on a separate standing broker."""
    tls, clients = _Loads("tls", WayIn.SSL), ("librdkafka", "Java")
    yield from _throughput(tls, TLS, clients)
    for client in clients:
        yield tls.round_trip(TLS_TRIPS, client)
    yield from _throughput(_Loads("scram", WayIn.SASL_SSL), SCRAM, ("librdkafka",))
    yield Row("tls.handshakes", "handshakes of TLS 1.3, openssl", BEGINNINGS, Handshakes(), place=Place.SECURED)
    yield Row("scram.logins", "logins by SCRAM-SHA-512 over TLS", BEGINNINGS, Logins(), place=Place.SECURED)


def secured_cluster_rows() -> Iterator[Row]:
    """Yield the rows on a separate standing cluster."""
    tls = _Loads("cluster.tls", WayIn.SSL, BROKERS)
    yield replace(tls.produce(CLUSTER_TLS, "librdkafka", 1_000_000), quick=False)
    yield replace(tls.produce(CLUSTER_TLS, "Java", 16_384), quick=False)
    yield replace(tls.consume(CLUSTER_TLS, "librdkafka"), quick=False)
    yield replace(tls.round_trip(CLUSTER_TLS_TRIPS, "librdkafka"), quick=False)


def _throughput(loads: _Loads, group: Group, clients: tuple[str, ...]) -> Iterator[Row]:
    for client, batch_bytes in product(clients, BATCHES):
        yield loads.produce(group, client, batch_bytes)
    for client in clients:
        yield loads.consume(group, client)
