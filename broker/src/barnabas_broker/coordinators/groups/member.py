"""A member of a classic consumer group, and the topics to which a consumer subscribes."""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from barnabas_broker.coordinators.groups.messages import MemberProtocol, Token
from barnabas_broker.coordinators.runtime.record_strings import MalformedRecord, read_string

CONSUMER_PROTOCOL_TYPE: Final = "consumer"

_VERSION_COUNT: Final = struct.Struct(">hi")


@dataclass(slots=True, eq=False)
class Member:
    """A member of a group. At most one of `awaiting_join` and `awaiting_sync` is set."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]
    assignment: bytes = b""
    awaiting_join: Token | None = None
    awaiting_sync: Token | None = None
    session_deadline_ms: int = 0
    is_new: bool = False
    """True until the member's first JoinGroup is answered.

    The member cannot send heartbeats before the answer, so another time limit replaces its session timeout.
    """
    is_unheard_of: bool = False
    """True if the member was loaded from the log and has sent no request since; its member id may be out of date."""

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return the member's metadata for a protocol, empty if the member does not support the protocol."""
        return next((protocol.metadata for protocol in self.protocols if protocol.name == protocol_name), b"")

    def vote(self, candidates: Iterable[str]) -> str:
        """Return the member's first protocol that is among the candidates."""
        return next(protocol.name for protocol in self.protocols if protocol.name in candidates)

    @property
    def waits(self) -> bool:
        """True if a JoinGroup or SyncGroup of the member waits for an answer; always False for a new member."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def end_join(self) -> Token | None:
        """Return the token that identifies the waiting JoinGroup request, and clear it; None if no JoinGroup waits."""
        token, self.awaiting_join = self.awaiting_join, None
        return token

    def end_sync(self) -> Token | None:
        """Return the token that identifies the waiting SyncGroup request, and clear it; None if no SyncGroup waits."""
        token, self.awaiting_sync = self.awaiting_sync, None
        return token


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topics in a consumer's metadata, None if the metadata is not a subscription.

    Each version of the consumer protocol's subscription begins with the version and an array of topic names. The broker
    needs the topics for the expiry of offsets (KIP-211) and to refuse the deletion of offsets in use (KIP-496).
    """
    topics, position = set(), _VERSION_COUNT.size
    try:
        _, count = _VERSION_COUNT.unpack_from(metadata)
        for _ in range(count):
            topic, position = read_string(metadata, position)
            topics.add(topic)
    except (struct.error, UnicodeDecodeError, MalformedRecord):
        return None
    return frozenset(topics)
