"""The partition of a topic, by the name or by the id of the topic, and the rules for names of topics."""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple
from uuid import UUID

from barnabas_core.errors import ApiError, ErrorCode


class TopicPartition(NamedTuple):
    """A topic name and a partition number; the text is `flights-3`, like the name of the partition's directory."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicIdPartition(NamedTuple):
    """A topic id and a partition number."""

    topic_id: UUID
    partition: int


LEADER_EPOCH_MAX: Final = 2**30
"""The largest valid epoch, below the 31 bits of Kafka's field; one election per second reaches it in 34 years."""


NAME_LENGTH_MAX: Final = 249
CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"
CLUSTER_METADATA: Final = "__cluster_metadata"
"""The name of Kafka's own metadata log, which no topic may have (KIP-500)."""
INTERNAL_TOPICS: Final = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raise ApiError (INVALID_TOPIC_EXCEPTION) if the name is invalid; the message has the reason."""
    complaint = _complaint(name)
    if complaint is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {complaint}")


def _complaint(name: str) -> str | None:
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return "'.' or '..' is not allowed"
    if len(name) > NAME_LENGTH_MAX:
        return f"the length of '{name}' is {len(name)}; at most {NAME_LENGTH_MAX} is allowed"
    if not _LEGAL.fullmatch(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


class KnownNames:
    """The existing topic names, with an index that the first call of `colliding` builds."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = list(names)
        self._by_folded: dict[str, str] = {}

    def add(self, name: str) -> None:
        """Add the name of a topic that now exists."""
        self._names.append(name)

    def colliding(self, name: str) -> str | None:
        """Return an existing name that differs only in `.` and `_`, which metrics do not distinguish, or None."""
        if "." not in name and "_" not in name:
            return None
        for other in self._names:
            self._by_folded.setdefault(folded(other), other)
        self._names.clear()
        found = self._by_folded.get(folded(name))
        return None if found == name else found


def folded(name: str) -> str:
    """Return the name as metrics show it; names that differ only in `.` and `_` become equal."""
    return name.replace(".", "_")


def is_internal(name: str) -> bool:
    """True if the topic is internal, so that only brokers write to it."""
    return name in INTERNAL_TOPICS


def usual_min_isr(min_isr: int, replicas: int) -> int:
    """Return the default min.insync.replicas of a coordinator's topic, which lets one replica be offline."""
    return max(1, min(min_isr, replicas - 1))


_SIGN: Final = 1 << 31
_MASK: Final = (1 << 32) - 1


def string_hash(text: str) -> int:
    """Return `text.hashCode()`: a signed 32-bit hash over UTF-16 code units."""
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    value = 0
    for unit in units:
        value = (31 * value + unit) & _MASK
    return value - (1 << 32) if value & _SIGN else value


def coordinator_partition(key: str, partitions: int) -> int:
    """Return the partition of the internal topic whose leader coordinates `key`, a group id or a transactional id.

    As in Kafka's Utils.abs, the absolute value of the smallest integer is 0.
    """
    value = string_hash(key)
    return 0 if value == -_SIGN else abs(value) % partitions
