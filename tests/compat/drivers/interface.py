"""The interface of every client library for tests, in any language."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")

GROUP_PROTOCOL: Final = os.environ.get("BARNABAS_GROUP_PROTOCOL", "classic")
"""The protocol by which members join groups, unless a test says another; `make proof-groups` sets `consumer`."""


def with_group_protocol(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a member with the protocol of this run, unless they name one."""
    return dict(config) if GROUP_PROTOCOL == "classic" else {"group.protocol": GROUP_PROTOCOL, **config}


@dataclass(frozen=True, slots=True)
class Message:
    """A record to produce; if it has no partition, the client's partitioner chooses."""

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Received:
    """A record as a client returned it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


Assignment = frozenset[tuple[str, int]]


class Member(Protocol):
    """One consumer of a group: it polls in the background from the earliest offset, and commits only on request."""

    def assignment(self) -> Assignment:
        """Return the partitions that the member has now, or raise the error that ended the member."""

    def records(self) -> list[Received]:
        """Return everything read so far."""

    def commit(self) -> None:
        """Commit the position of every assigned partition synchronously."""

    def leave(self) -> None:
        """Leave the group."""


class Writer(Protocol):
    """A transactional producer, which raised the epoch of its id when it was made."""

    def write(self, topic: str, messages: Sequence[Message]) -> None:
        """Send all messages in the open transaction, which the first call begins, and wait for acknowledgements."""

    def send(self, topic: str, message: Message) -> None:
        """Send a message in the open transaction, which the first call begins; wait for nothing that this library's
        users do not wait for.
        """

    def write_offset(self, group: str, topic: str, offset: int) -> None:
        """Commit an offset of the topic's partition 0 in the open transaction, for a group without members."""

    def end(self, *, commit: bool) -> None:
        """Commit or abort the transaction."""

    def close(self) -> None: ...


class Client(Protocol):
    """A client library; errors of the broker are raised."""

    name: str

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        compression: str = "none",
        idempotent: bool = False,
        acks: str = "all",
    ) -> None:
        """Send all messages in as few batches as the client makes, and wait for every acknowledgement."""

    def read(self, topic: str, count: int) -> list[Received]:
        """Return the first `count` records of all partitions, or fewer after half a minute."""

    def read_committed(self, topic: str, count: int) -> list[Received]:
        """Return the first `count` records of committed transactions."""

    def writer(self, transactional_id: str) -> Writer:
        """Return a transactional producer; an earlier one with the same id is fenced."""

    def copy(self, transactional_id: str, group: str, source: str, target: str, count: int, *, commit: bool) -> None:
        """Read `count` records of the source as a member of the group, and write them to the same partitions of the
        target, with the group's offsets, in one transaction.
        """

    def join(self, group: str, member: str, topics: Sequence[str]) -> Member:
        """Return a new member whose client id is `member`."""

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """Return the committed offset of each partition."""

    def offsets_for_time(self, topic: str, timestamp_ms: int) -> dict[int, int]:
        """Return for each partition the first offset whose timestamp is at least `timestamp_ms`."""

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None: ...

    def create_partitions(self, topic: str, partitions: int) -> None: ...

    def topics(self) -> dict[str, int]:
        """Return the number of partitions of each topic."""

    def topic_configs(self, topic: str) -> dict[str, str | None]: ...

    def alter_topic_config(self, topic: str, name: str, value: str) -> None: ...

    def delete_topic(self, topic: str) -> None: ...

    def close(self) -> None: ...


def value_of(record: Message | Received) -> bytes:
    """Return the value of a record, which must have one."""
    assert record.value is not None, f"a record without a value: {record}"
    return record.value
