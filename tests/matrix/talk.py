"""Requests that may wait, each on a connection of its own, and answers as text."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from barnabas_broker.wire.messages import message_class
from barnabas_core.errors import ErrorCode
from harness.codec_client import TIMEOUT_S, Connection, filled
from rights.answers import text_of

WAITS: Final = "waits"
_ROUNDS: Final = 6
_CODE: Final = re.compile(r"(error_code|error)=(-?\d+)")


class Pending:
    """A request that was sent; its connection is busy until the answer comes."""

    def __init__(self, broker: "Broker", connection: Connection, name: str, version: int) -> None:
        self._broker, self._connection, self.name, self.version = broker, connection, name, version
        self._answer: Any = None

    def answer(self, timeout_s: float = TIMEOUT_S) -> Any:
        """Return the answer; None if none came in time."""
        if self._answer is None and self._connection.is_answered(timeout_s):
            self._answer = self._connection.receive(self.name, self.version)
            self._broker.free.append(self._connection)
        return self._answer

    def close(self) -> None:
        """Close the connection of a request without an answer."""
        if self._answer is None:
            self._connection.close()


class Broker:
    """The connections to node 1.

    A request waits if it has no answer after `patience_s`. If that is 0, a request waits if later ones were answered
    before it, which is enough for a broker with one event loop.
    """

    def __init__(self, port: int, patience_s: float) -> None:
        self._port, self._patience_s = port, patience_s
        self.free: list[Connection] = []

    def settled(self, pending: Pending) -> Any:
        """Return the answer to a request; None if it waits."""
        for _ in range(_ROUNDS):
            if self._patience_s > 0 or pending.answer(0) is not None:
                break
            self.ask("ApiVersions", 0, {})
        return pending.answer(self._patience_s)

    def begin(self, name: str, version: int, fields: Mapping[str, Any]) -> Pending:
        """Send a request on a connection of its own."""
        connection = self.free.pop() if self.free else Connection(self._port)
        connection.send(filled(message_class(f"{name}Request"), fields), version)
        return Pending(self, connection, name, version)

    def ask(self, name: str, version: int, fields: Mapping[str, Any]) -> Any:
        """Return the answer to a request."""
        answer = self.begin(name, version, fields).answer()
        assert answer is not None, f"{name} v{version} was not answered: {fields}"
        return answer

    def close(self) -> None:
        """Close all connections that are not busy."""
        for each in self.free:
            each.close()


def in_words(
    answer: Any, version: int, names: Mapping[str, str], topics: Mapping[UUID, str] = MappingProxyType({})
) -> str:
    """Return an answer as text, with the names of errors, of ids and of topics; `waits` for None."""
    if answer is None:
        return WAITS
    text = text_of(_renamed(answer, names), version, topics)
    return _CODE.sub(lambda found: f"{found[1]}={ErrorCode(int(found[2])).name}", text)


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_renamed(each, names) for each in value]
    if not hasattr(value, "__struct_fields__"):
        return names.get(value, value) if isinstance(value, str) else value
    return type(value)(**{name: _renamed(getattr(value, name), names) for name in value.__struct_fields__})
