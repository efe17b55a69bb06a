"""The metrics of requests, connections and the event loop's idle share, under the names of Kafka's network metrics."""

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import accumulate
from types import MappingProxyType
from typing import Final, NamedTuple

from barnabas_broker.server.metrics.exposition import Family, Sample, labels, single
from barnabas_broker.server.request_stats import TIME_BOUNDS_MS, RequestStats
from barnabas_broker.server.sasl_listener import AuthenticationCounts

_SOCKETS: Final = "kafka_server_socket_server_metrics_"


class Traffic(NamedTuple):
    """The objects and functions that supply the values of the request metrics.

    `idle_share` returns the idle share of the event loop, from 0 to 1.
    """

    requests: Collection[RequestStats]
    connections: Callable[[], int]
    idle_share: Callable[[], float]
    authentication: Mapping[str, AuthenticationCounts] = MappingProxyType({})
    """The authentication counts by listener."""


def request_families(traffic: Traffic) -> list[Family]:
    """Return the metric families; the idle metrics of Kafka's thread pools show the idle share of the event loop."""
    prefix = "kafka_network_requestmetrics_"
    return [
        _by_api(traffic, f"{prefix}requests_total", "Number of requests, by API", lambda each: each.count),
        _by_api(
            traffic,
            f"{prefix}localtime_seconds_total",
            "Seconds that the request handlers took, by API",
            lambda each: each.busy_s,
        ),
        Family(
            f"{prefix}totaltimems",
            "histogram",
            "Time from a request to its response in milliseconds, by API",
            lambda: _total_times(traffic.requests),
        ),
        _of_api(traffic, "Produce"),
        _of_api(traffic, "Fetch"),
        single(
            "kafka_server_socketserver_connectioncount", "gauge", "Number of open connections", traffic.connections()
        ),
        _idle(traffic, "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"),
        *_authentication(traffic.authentication),
        _idle(traffic, "kafka_network_socketserver_networkprocessoravgidle_percent"),
    ]


def _by_api(traffic: Traffic, name: str, help_text: str, value: Callable[[RequestStats], float]) -> Family:
    return Family(
        name,
        "counter",
        help_text,
        lambda: [Sample(labels(request=each.name), value(each)) for each in traffic.requests],
    )


def _total_times(requests: Collection[RequestStats]) -> Iterator[Sample]:
    """Yield the histograms of the APIs that have had responses."""
    for each in requests:
        counts = list(accumulate(each.time_counts))
        if not counts[-1]:
            continue
        for bound, count in zip((*TIME_BOUNDS_MS, "+Inf"), counts, strict=True):
            yield Sample(labels(request=each.name, le=bound), count, "_bucket")
        yield Sample(labels(request=each.name), each.total_s * 1000, "_sum")
        yield Sample(labels(request=each.name), counts[-1], "_count")


def _of_api(traffic: Traffic, name: str) -> Family:
    return Family(
        f"kafka_server_brokertopicmetrics_total{name.lower()}requests_total",
        "counter",
        f"Number of {name} requests",
        lambda: [Sample("", each.count) for each in traffic.requests if each.name == name],
    )


def _idle(traffic: Traffic, name: str) -> Family:
    help_text = "Share of the last minute, from 0 to 1, in which the event loop was idle"
    return single(name, "gauge", help_text, traffic.idle_share())


def _authentication(by_listener: Mapping[str, AuthenticationCounts]) -> list[Family]:
    """Return the authentication counters by listener; for a listener with neither SASL nor TLS they stay 0."""

    def family(name: str, help_text: str, value: Callable[[AuthenticationCounts], int]) -> Family:
        return Family(
            f"{_SOCKETS}{name}",
            "counter",
            help_text,
            lambda: [Sample(labels(listener=name), value(counts)) for name, counts in by_listener.items()],
        )

    return [
        family(
            "successful_authentication_total",
            "Number of successful authentications, without re-authentications",
            lambda counts: counts.succeeded_first,
        ),
        family(
            "successful_reauthentication_total",
            "Number of re-authentications (KIP-368) that succeeded",
            lambda counts: counts.succeeded_again,
        ),
        family("failed_authentication_total", "Number of authentications that failed", lambda counts: counts.failed),
        family(
            "expired_connections_killed_total",
            "Number of connections closed because the client did not re-authenticate before its session expired",
            lambda counts: counts.expired,
        ),
        Family(
            "barnabas_failed_authentications_total",
            "counter",
            "Number of failed authentications by SASL mechanism; the mechanism is `TLS` for a failed TLS handshake, "
            "and `none` if the client chose no mechanism",
            lambda: [
                Sample(labels(listener=name, mechanism=mechanism), failures)
                for name, counts in by_listener.items()
                for mechanism, failures in counts.failures.items()
            ],
        ),
    ]
