"""The Kafka client of the background worker for consumer groups; the worker of the Cluster has a client of its own."""

from collections.abc import Callable
from threading import Lock
from typing import Any, Final

from barnabas_kafka.connection import ClusterUnreachable, connected_client
from barnabas_kafka.security import IN_CLEAR, Credentials

CONNECT_S: Final = 3.0
CLIENT_ID: Final = "barnabas-operator-groups"


class GroupClient:
    """The client that reads and changes consumer groups. Its methods are called in threads."""

    def __init__(self, bootstrap: Callable[[], str], security: Callable[[], Credentials] = lambda: IN_CLEAR) -> None:
        self._bootstrap = bootstrap
        self._security = security
        self._client: Any = None
        self._has_ended = False
        self._connecting: Final = Lock()

    def connected(self) -> Any:
        """Return a connected client. Raises ClusterUnreachable if no broker answers, or if `end` was called."""
        with self._connecting:  # Threads for several groups may call this method at the same time.
            client = self._client = self._client or self._connect()
        if self._has_ended:
            client.close()
            raise ClusterUnreachable("the worker for consumer groups has ended")
        return client

    def _connect(self) -> Any:
        return connected_client(self._bootstrap(), CONNECT_S, CLIENT_ID, self._security())

    def drop(self) -> None:
        """Close the connection, so that the next call connects again."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def end(self) -> None:
        """Close the connection, and never connect again."""
        self._has_ended = True
        self.drop()
