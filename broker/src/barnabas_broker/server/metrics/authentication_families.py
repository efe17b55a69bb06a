"""The counts of authenticated and refused clients by listener, under Kafka's names."""

from collections.abc import Callable, Mapping

from barnabas_broker.server.metrics.exposition import Family, Sample, labels
from barnabas_broker.server.sasl_listener import AuthenticationCounts

_PREFIX = "kafka_server_socket_server_metrics_"


def authentication_families(by_listener: Mapping[str, AuthenticationCounts]) -> list[Family]:
    """Return the authentication counters by listener; for a listener with neither SASL nor TLS they stay 0."""

    def family(name: str, help_text: str, value: Callable[[AuthenticationCounts], int]) -> Family:
        return Family(
            f"{_PREFIX}{name}",
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
