"""The admin client of kafka-python, with one error for all its connection errors; its IO runs in its own thread."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError, SaslAuthenticationFailedError
from kafka.net import KafkaConnectionManager, KafkaNetClient, NetworkSelector
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.protocol.admin import AlterPartitionReassignmentsRequest

from barnabas_kafka.security import IN_CLEAR, Credentials, SecurityFileError

REQUEST_TIMEOUT_S: Final = 10.0
FETCH_BYTES_MAX: Final = 1 << 20
Make = Callable[..., Any]
"""The type to which constructors of kafka-python are cast, because mypy rejects calls without type hints."""


class ClusterUnreachable(Exception):
    """The error that no broker responded in time, or that the connection broke."""


@contextmanager
def reachable() -> Iterator[None]:
    """Raise ClusterUnreachable in place of any KafkaError, such as a timeout."""
    try:
        yield
    except KafkaError as error:
        raise ClusterUnreachable(str(error)) from error


class Connections(KafkaConnectionManager):
    """The connections of a client.

    The object also records the unreachable brokers, and the broker to which requests for replica moves were last sent.
    """

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)  # type: ignore[no-untyped-call]
        self.failing: Final[dict[object, BaseException]] = {}
        """The brokers whose last connection failed, with the reason of the first failure, because later tries may only
        time out; or with a refused login, because the library may take that for a broken connection at first."""
        self._mover: int | None = None

    @property
    def mover(self) -> int | None:
        """The broker to which replica moves were last sent, or the controller before any were sent.

        None if no moves were sent and the controller is unknown.
        """
        controller = self.cluster.controller
        return controller.node_id if self._mover is None and controller is not None else self._mover

    def send(self, request: Any, node_id: int | None = None, *arguments: Any, **settings: Any) -> Any:
        """Send a request to the broker `node_id`, or to any broker if `node_id` is None.

        If the request moves replicas, store `node_id` for the property `mover`.
        """
        if isinstance(request, AlterPartitionReassignmentsRequest):
            self._mover = node_id
        return super().send(request, node_id, *arguments, **settings)  # type: ignore[no-untyped-call]

    def get_connection(self, node_id: Any, *arguments: Any, **settings: Any) -> Any:
        """Return the connection to a broker, which may not be open yet; update `failing` when it opens or fails."""
        connection: Any = super().get_connection(node_id, *arguments, **settings)  # type: ignore[no-untyped-call]
        connection.init_future.add_callback(lambda _: self.failing.pop(node_id, None))
        connection.init_future.add_errback(lambda error: self._failed(node_id, error))
        return connection

    def _failed(self, node_id: object, error: BaseException) -> None:
        if node_id not in self.failing or isinstance(error, SaslAuthenticationFailedError):
            self.failing[node_id] = error

    def least_loaded_node(self) -> Any:
        """Return a broker whose last connection did not fail, if one exists; the library would choose at random."""
        chosen: Any = super().least_loaded_node()  # type: ignore[no-untyped-call]
        if chosen not in self.failing:
            return chosen
        return next((each.node_id for each in self.cluster.brokers() if each.node_id not in self.failing), chosen)


class OneToken(AbstractTokenProvider):
    """The provider of a token that a user has given, for the mechanism OAUTHBEARER."""

    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        """Return the token."""
        return self._token


class AdminClient(KafkaAdminClient):
    """kafka-python's admin client, extended by requests for which the library has no method."""

    def __init__(self, **settings: Any) -> None:
        """Connect to a broker. If no broker accepts the client, end the client's thread; raise ClusterUnreachable."""
        try:
            super().__init__(kafka_client=self._network, **settings)  # type: ignore[no-untyped-call]
        except KafkaError as error:
            self.network.close()
            is_clear = settings["security_protocol"] == "PLAINTEXT"
            reasons = [] if is_clear else list(dict.fromkeys(map(str, self.connections.failing.values())))
            if settings["security_protocol"].startswith("SASL_"):  # A failed login may appear as a closed connection.
                reasons.append("the user or its password may be wrong")
            raise ClusterUnreachable(": ".join(filter(None, (str(error), "; ".join(reasons))))) from error

    def _network(self, **settings: Any) -> Any:
        selector = cast(Make, NetworkSelector)(**settings)
        self.connections: Any = cast(Make, Connections)(selector, **settings)
        self.network: Any = cast(Make, KafkaNetClient)(net=selector, manager=self.connections)
        return self.network

    def ask(self, request: Any, broker_id: int | None = None) -> Any:
        """Return the response of the given broker, or of any broker. Raise KafkaError if the request fails."""
        return self.connections.run(self.connections.send, request, broker_id)

    def meet(self, broker_ids: Iterable[int]) -> None:
        """Refresh the metadata if a broker is unknown, because requests go only to known brokers.

        Raise KafkaError if the refresh fails.
        """
        if any(self.connections.cluster.broker_metadata(broker_id) is None for broker_id in broker_ids):
            self.connections.run(self.connections.cluster.refresh_metadata)


def connected_client(bootstrap: str, timeout_s: float, client_id: str, security: Credentials = IN_CLEAR) -> Any:
    """Return a client connected to one of `host:port[,host:port]`.

    Raise ClusterUnreachable if no address responds, or if a file with a password or settings cannot be used.
    """
    return AdminClient(**_settings(bootstrap, timeout_s, client_id, security))


def connected_consumer(bootstrap: str, timeout_s: float, client_id: str, security: Credentials, isolation: str) -> Any:
    """Return a consumer without a group, which reads at most FETCH_BYTES_MAX at once, but one batch at least.

    Raise ClusterUnreachable as `connected_client` does.
    """
    with reachable():
        return cast(Make, KafkaConsumer)(
            group_id=None,
            enable_auto_commit=False,
            isolation_level=isolation,
            fetch_max_bytes=FETCH_BYTES_MAX,
            max_partition_fetch_bytes=FETCH_BYTES_MAX,
            **_settings(bootstrap, timeout_s, client_id, security),
        )


def connected_producer(bootstrap: str, timeout_s: float, client_id: str, security: Credentials) -> Any:
    """Return a producer whose writes are acknowledged by all replicas in sync.

    Raise ClusterUnreachable as `connected_client` does.
    """
    with reachable():
        return cast(Make, KafkaProducer)(acks="all", **_settings(bootstrap, timeout_s, client_id, security))


def _settings(bootstrap: str, timeout_s: float, client_id: str, security: Credentials) -> dict[str, Any]:
    try:
        secured = security.settings()
    except SecurityFileError as error:
        raise ClusterUnreachable(str(error)) from error
    return {
        "bootstrap_servers": bootstrap.split(","),
        "client_id": client_id,
        "bootstrap_timeout_ms": int(timeout_s * 1000),
        "request_timeout_ms": int(REQUEST_TIMEOUT_S * 1000),
        "reconnect_backoff_max_ms": 1000,
        **secured,
    }
