"""A connected admin client of kafka-python, and its errors as one. It does its IO in a thread of its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError
from kafka.net.compat import KafkaNetClient

REQUEST_TIMEOUT_S: Final = 10.0


class ClusterUnreachable(Exception):
    """No broker answered in time, or the connection broke."""


@contextmanager
def reachable() -> Iterator[None]:
    """Turns the client's own errors (no connection, no answer in time) into ClusterUnreachable."""
    try:
        yield
    except KafkaError as error:
        raise ClusterUnreachable(str(error)) from error


def connected_client(bootstrap: str, timeout_s: float, client_id: str) -> Any:
    """To any of `host:port[,host:port]`. Raises ClusterUnreachable.

    One that cannot connect would leave its thread and its selector behind: nobody else has them then.
    """
    networks: list[Any] = []

    def network(**settings: Any) -> Any:
        networks.append(KafkaNetClient(**settings))
        return networks[-1]

    try:
        return KafkaAdminClient(
            bootstrap_servers=bootstrap.split(","),
            client_id=client_id,
            bootstrap_timeout_ms=int(timeout_s * 1000),
            request_timeout_ms=int(REQUEST_TIMEOUT_S * 1000),
            reconnect_backoff_max_ms=1000,
            kafka_client=network,
        )
    except KafkaError as error:
        for each in networks:
            each.close()
        raise ClusterUnreachable(str(error)) from error
