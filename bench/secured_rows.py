"""The rows of TLS and SCRAM on one broker."""

from collections.abc import Iterator
from itertools import product
from typing import Final

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
BEGINNINGS: Final = Group(
    "new-connections",
    "New connections, one after the other",
    KAFKA,
    (
        Metric("connections_per_s", "connections/s", Better.HIGHER, NO_SLOWER),
        Metric("connections_per_cpu_s", "connections per broker CPU s", Better.HIGHER, Aim(times_peer_min=1.5)),
    ),
)


def secured_rows() -> Iterator[Row]:
    """On a standing broker of their own."""
    yield from _loads("tls", TLS, WayIn.SSL, ("librdkafka", "Java"))
    for client in ("librdkafka", "Java"):
        trips = RoundTrips(client=client, mode="in-flight", acks="all", way_in=WayIn.SSL)
        title = f"{client}, one in flight, acks=all"
        yield Row(f"tls.round-trip.{client.lower()}", title, TLS_TRIPS, trips, place=Place.SECURED)
    yield from _loads("scram", SCRAM, WayIn.SASL_SSL, ("librdkafka",))
    yield Row("tls.handshakes", "handshakes of TLS 1.3, openssl", BEGINNINGS, Handshakes(), place=Place.SECURED)
    yield Row("scram.logins", "logins by SCRAM-SHA-512 over TLS", BEGINNINGS, Logins(), place=Place.SECURED)


def _loads(prefix: str, group: Group, way_in: WayIn, clients: tuple[str, ...]) -> Iterator[Row]:
    for client, (size, title) in product(clients, BATCHES.items()):
        produce = Produce(client=client, record_bytes=1000, batch_bytes=size, codec="none", acks="all", way_in=way_in)
        key = f"{prefix}.produce.{client.lower()}.{title}".replace(" ", "")
        yield Row(key, f"producer, {client}, batch {title}", group, produce, place=Place.SECURED)
    for client in clients:
        consume = Consume(client=client, record_bytes=1000, codec="none", way_in=way_in)
        yield Row(f"{prefix}.consume.{client.lower()}", f"consumer, {client}", group, consume, place=Place.SECURED)
