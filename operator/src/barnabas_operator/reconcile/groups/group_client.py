"""The connection of the worker for groups: the round over brokers has another, which it may drop at any time."""

from collections.abc import Callable
from threading import Lock
from typing import Any, Final

from barnabas_kafka.connection import ClusterUnreachable, connected_client
from barnabas_kafka.security import IN_CLEAR, Credentials

CONNECT_S: Final = 3.0
CLIENT_ID: Final = "barnabas-operator-groups"


class GroupClient:
    """The client for looks at groups, called in threads. A connection made after the worker's end is closed again."""

    def __init__(self, bootstrap: Callable[[], str], security: Callable[[], Credentials] = lambda: IN_CLEAR) -> None:
        self._bootstrap = bootstrap
        self._security = security
        self._client: Any = None
        self._has_ended = False
        self._connecting: Final = Lock()

    def connected(self) -> Any:
        """Return the client, connected if it was not. Raises ClusterUnreachable."""
        with self._connecting:  # Several groups may connect at the same time.
            client = self._client = self._client or self._connect()
        if self._has_ended:
            client.close()
            raise ClusterUnreachable("nobody asks any more")
        return client

    def _connect(self) -> Any:
        return connected_client(self._bootstrap(), CONNECT_S, CLIENT_ID, self._security())

    def drop(self) -> None:
        """Close the connection, so that the next call makes another one."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def end(self) -> None:
        """Close the connection for good."""
        self._has_ended = True
        self.drop()
