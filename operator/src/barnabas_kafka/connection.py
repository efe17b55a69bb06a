"""A connected admin client of kafka-python, and its errors as one. It does its IO in a thread of its own."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, cast

from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector

from barnabas_kafka.security import IN_CLEAR, PasswordFileError, Security

REQUEST_TIMEOUT_S: Final = 10.0
Make = Callable[..., Any]
"""The library has no types."""


class ClusterUnreachable(Exception):
    """No broker answered in time, or the connection broke."""


@contextmanager
def reachable() -> Iterator[None]:
    """Turns the client's own errors (no connection, no answer in time) into ClusterUnreachable."""
    try:
        yield
    except KafkaError as error:
        raise ClusterUnreachable(str(error)) from error


class _Connections(KafkaConnectionManager):
    """Remembers why a broker could not be spoken to, which the library itself only logs.

    The first reason of each kind: a later try may end with nothing but that time was up, or that the broker closed.
    """

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)  # type: ignore[no-untyped-call]
        self._reasons: dict[type[BaseException], str] = {}

    @property
    def why(self) -> str:
        """All of them; empty where there was none."""
        return "; ".join(self._reasons.values())

    def get_connection(self, *arguments: Any, **settings: Any) -> Any:
        connection: Any = super().get_connection(*arguments, **settings)  # type: ignore[no-untyped-call]
        connection.init_future.add_errback(self._note)
        return connection

    def least_loaded_node(self) -> Any:
        """A broker whose last connection failed only where there is no other. The library would choose by chance."""
        chosen: Any = super().least_loaded_node()  # type: ignore[no-untyped-call]
        if chosen not in self._backoff:
            return chosen
        return next((each.node_id for each in self.cluster.brokers() if each.node_id not in self._backoff), chosen)

    def _note(self, error: BaseException) -> None:
        self._reasons.setdefault(type(error), str(error))


def _network(settings: Mapping[str, Any]) -> Any:
    make_selector, make_connections = cast(Make, NetworkSelector), cast(Make, _Connections)
    selector = make_selector(**settings)
    return KafkaNetClient(net=selector, manager=make_connections(selector, **settings))


def connected_client(bootstrap: str, timeout_s: float, client_id: str, security: Security = IN_CLEAR) -> Any:
    """To any of `host:port[,host:port]`. Raises ClusterUnreachable.

    One that cannot connect would leave its thread and its selector behind: nobody else has them then.
    """
    networks: list[Any] = []

    def network(**settings: Any) -> Any:
        networks.append(_network(settings))
        return networks[-1]

    try:
        return KafkaAdminClient(
            bootstrap_servers=bootstrap.split(","),
            client_id=client_id,
            bootstrap_timeout_ms=int(timeout_s * 1000),
            request_timeout_ms=int(REQUEST_TIMEOUT_S * 1000),
            reconnect_backoff_max_ms=1000,
            kafka_client=network,
            **security.settings(),
        )
    except (KafkaError, PasswordFileError) as error:
        for each in networks:
            each.close()
        why = "; ".join(each._manager.why for each in networks if each._manager.why and security != IN_CLEAR)
        raise ClusterUnreachable(f"{error}: {why}" if why else str(error)) from error
