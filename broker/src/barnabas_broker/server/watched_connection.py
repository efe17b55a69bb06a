"""The part of a connection that others watch: the listener's idle check, slow clients, handlers and metrics."""

from abc import ABC, abstractmethod

from barnabas_broker.handlers.channel import Client
from barnabas_broker.server.answers import Answers
from barnabas_broker.server.transport import Transport


class WatchedConnection(ABC):
    """The client of a connection, and whether the connection is open and active."""

    def __init__(self, client: Client, transport: Transport, answers: Answers) -> None:
        self.client = client
        self.answers = answers
        self._transport = transport
        self.was_active = True
        """True if anything has arrived since the listener's last check."""
        self._bytes_sent_before = 0
        self.idle_looks = 0
        """The number of idle checks by the listener since bytes were last received or sent."""

    @abstractmethod
    def close(self, reason: str | None = None) -> None:
        """Close the connection; log the `reason`, if any."""

    @property
    def peer(self) -> str:
        """The client's address, `host:port`."""
        return self.client.address

    def is_gone(self) -> bool:
        """True if the connection is closed or was reset, so that no response can arrive."""
        return self.has_ended() and self.is_closed

    def has_ended(self) -> bool:
        """True if the client has closed its side, tested without consuming bytes; close a connection that was reset."""
        try:
            return self.is_closed or self._transport.has_ended()
        except OSError as error:
            self.close(str(error))  # The socket reports an error only once, so close now.
            return True

    @property
    def is_closed(self) -> bool:
        """True if the connection is closed."""
        return not self.answers.is_open

    @property
    def bytes_sent(self) -> int:
        """The number of bytes handed to the kernel so far."""
        return self.answers.bytes_sent

    @property
    def unsent_bytes(self) -> int:
        """The memory in bytes that finished but unsent responses hold."""
        return self.answers.unsent_bytes

    @property
    def has_unsent(self) -> bool:
        """True if a finished response is not sent yet."""
        return self.answers.has_unsent

    def looked_at(self) -> None:
        """Count an idle check, or reset the count after activity; a client that reads a long response is active."""
        bytes_sent = self.bytes_sent
        is_idle = not self.was_active and bytes_sent == self._bytes_sent_before
        self.idle_looks = self.idle_looks + 1 if is_idle else 0
        self.was_active, self._bytes_sent_before = False, bytes_sent
