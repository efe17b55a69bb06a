"""The observations of clients, with checks whether they are possible (after Jepsen's checks of Kafka)."""

from typing import Final, NamedTuple, Protocol

OFFSETS_TOPIC: Final = "__consumer_offsets"


class Acknowledged(NamedTuple):
    """A value that a producer knows to be acknowledged, and its place."""

    topic: str
    partition: int
    offset: int
    value: bytes


class Seen(Protocol):
    """The interface to which readers report what they see."""

    def read(self, topic: str, partition: int, offset: int, value: bytes) -> None: ...

    def violation(self, what: str) -> None: ...

    def is_told_lost(self, topic: str, partition: int) -> bool: ...


class History:
    """The observations of all clients; `violations` are those that no correct cluster shows."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self._values: dict[tuple[str, int], dict[int, bytes]] = {}
        self._acknowledged: list[Acknowledged] = []
        self._idempotent: set[bytes] = set()
        self._told_end_offsets: dict[tuple[str, int], int] = {}
        self._told_lost: set[tuple[str, int]] = set()
        self.led_with_gaps: set[tuple[str, int]] = set()
        """The partitions with a leader that had fetched with gaps, and was elected before it had caught up."""

    @property
    def acknowledged_count(self) -> int:
        """Return the number of acknowledged values: how much a run has proved."""
        return len(self._acknowledged)

    def acknowledged_offsets(self, topic: str, partition: int) -> set[int]:
        """Return the offsets of acknowledged values."""
        return {at.offset for at in self._acknowledged if (at.topic, at.partition) == (topic, partition)}

    def told_end_offset(self, topic: str, partition: int) -> int:
        """Return the offset behind the last record that a client knows."""
        return self._told_end_offsets.get((topic, partition), 0)

    def told_lost(self, topic: str, partition: int) -> None:
        """Note that the loss of a partition's records was accepted: none of them is missed.

        Others may come at their offsets from now on.
        """
        self._told_lost.add((topic, partition))
        self._told_end_offsets.pop((topic, partition), None)
        self._values.pop((topic, partition), None)

    def is_told_lost(self, topic: str, partition: int) -> bool:
        """True if such a loss was noted for the partition."""
        return (topic, partition) in self._told_lost

    @property
    def offsets_are_told_lost(self) -> bool:
        """True if such a loss was noted for the offsets that groups have committed."""
        return any(topic == OFFSETS_TOPIC for topic, _ in self._told_lost)

    def violation(self, what: str) -> None:
        """Note something that must not be."""
        if what not in self.violations:
            self.violations.append(what)

    def sent(self, values: list[bytes], *, idempotent: bool) -> None:
        """Note that a producer begins to send these values."""
        if idempotent:
            self._idempotent.update(values)

    def acknowledged(self, at: Acknowledged) -> None:
        """Note that a value was acknowledged."""
        self._acknowledged.append(at)
        self._is_there(at.topic, at.partition, at.offset, at.value)

    def read(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        """Note that a reader saw a record."""
        self._is_there(topic, partition, offset, value)

    def _is_there(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        self._told_end_offsets[topic, partition] = max(self.told_end_offset(topic, partition), offset + 1)
        known = self._values.setdefault((topic, partition), {}).setdefault(offset, value)
        if known != value:
            self.violation(f"two values at {topic}-{partition} offset {offset}: {known!r} and {value!r}")

    def check_log(self, topic: str, partition: int, log: dict[int, bytes]) -> None:
        """Check the log at the end: nothing lost, nothing twice, nothing out of order."""
        if (topic, partition) in self._told_lost:
            return
        for at in self._acknowledged:
            if (at.topic, at.partition) == (topic, partition) and log.get(at.offset) != at.value:
                self.violation(f"lost: {at} was acknowledged; {log.get(at.offset)!r} is there")
        for offset, value in self._values.get((topic, partition), {}).items():
            if log.get(offset) != value:
                self.violation(f"seen and gone: {value!r} at {topic}-{partition} offset {offset}")
        last: dict[bytes, int] = {}
        for offset in sorted(log):
            lane, _, number = log[offset].rpartition(b"/")
            if log[offset] in self._idempotent:
                if int(number) <= last.get(lane, -1):
                    self.violation(f"twice or out of order: {log[offset]!r} at {topic}-{partition} offset {offset}")
                last[lane] = int(number)
