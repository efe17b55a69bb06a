"""What the tests ask of every client library, whatever language it is written in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True)
class Message:
    """A record to produce; without a partition the client's partitioner chooses."""

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Received:
    """A record as a client gave it to its user."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


Assignment = frozenset[tuple[str, int]]


class Member(Protocol):
    """One consumer of a group; polls in the background, from the earliest offset, commits only when told."""

    def assignment(self) -> Assignment:
        """The partitions that the member holds now; raises what ended the member."""

    def records(self) -> list[Received]:
        """Everything read so far."""

    def commit(self) -> None:
        """Commits, synchronously, the position of every partition held."""

    def leave(self) -> None:
        """Leaves the group."""


class Writer(Protocol):
    """A transactional producer, which had the epoch of its id raised when it was made."""

    def write(self, topic: str, messages: Sequence[Message]) -> None:
        """Sends all messages in the open transaction, which the first call begins, and waits for them."""

    def end(self, *, commit: bool) -> None:
        """Commits or aborts."""

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
        """Sends all messages, in as few batches as the client makes, and waits for every acknowledgement."""

    def read(self, topic: str, count: int) -> list[Received]:
        """The first `count` records of all partitions, or fewer after half a minute."""

    def read_committed(self, topic: str, count: int) -> list[Received]:
        """The same of the records of committed transactions."""

    def writer(self, transactional_id: str) -> Writer:
        """A transactional producer; one of the same id that was made before is fenced."""

    def copy(self, transactional_id: str, group: str, source: str, target: str, count: int, *, commit: bool) -> None:
        """Reads `count` records of the source as a member of the group, and writes them to the same partitions of the
        target, with the group's offsets, in one transaction."""

    def join(self, group: str, member: str, topics: Sequence[str]) -> Member:
        """A new member whose client id is `member`."""

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """Partition to committed offset."""

    def offsets_for_time(self, topic: str, timestamp_ms: int) -> dict[int, int]:
        """Partition to the first offset whose timestamp is at least `timestamp_ms`."""

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None: ...

    def create_partitions(self, topic: str, partitions: int) -> None: ...

    def topics(self) -> dict[str, int]:
        """Name to number of partitions."""

    def topic_configs(self, topic: str) -> dict[str, str | None]: ...

    def alter_topic_config(self, topic: str, name: str, value: str) -> None: ...

    def delete_topic(self, topic: str) -> None: ...

    def close(self) -> None: ...


def value_of(record: Message | Received) -> bytes:
    """Of a record that must have one."""
    assert record.value is not None, f"a record without a value: {record}"
    return record.value
