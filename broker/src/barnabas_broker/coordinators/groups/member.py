"""A member of a classic consumer group."""

from collections.abc import Iterable
from dataclasses import dataclass

from barnabas_broker.coordinators.groups.messages import MemberProtocol, Token


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

    The member cannot send heartbeats before the answer, so `new_member_join_timeout_ms` replaces its session timeout.
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
