"""The rules for names of topics: which are allowed, and which two are too much alike."""

import re
from collections.abc import Iterable
from typing import Final

from barnabas_core.errors import ApiError, ErrorCode

NAME_LENGTH_MAX: Final = 249
CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
CLUSTER_METADATA: Final = "__cluster_metadata"
"""Kafka's own log of metadata. No topic may have its name (KIP-500)."""
INTERNAL_TOPICS: Final = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE})
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raise ApiError (INVALID_TOPIC_EXCEPTION) for an invalid name; the message says what is wrong."""
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
    """The existing names. A check of another name costs the same however many there are, after the first."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = list(names)
        self._by_folded: dict[str, str] = {}

    def add(self, name: str) -> None:
        """Add a name."""
        self._names.append(name)

    def colliding(self, name: str) -> str | None:
        """Return a name that differs from `name` in `.` and `_` only, which metrics cannot tell apart, or None."""
        if "." not in name and "_" not in name:
            return None
        for other in self._names:
            self._by_folded.setdefault(folded(other), other)
        self._names.clear()
        found = self._by_folded.get(folded(name))
        return None if found == name else found


def folded(name: str) -> str:
    """Return the name as in metrics, where names that collide are equal."""
    return name.replace(".", "_")


def is_internal(name: str) -> bool:
    """True if the brokers write this topic for themselves."""
    return name in INTERNAL_TOPICS


def usual_min_isr(min_isr: int, replicas: int) -> int:
    """Return the default min.insync.replicas of `__transaction_state`, with which one replica may be offline."""
    return max(1, min(min_isr, replicas - 1))
