"""A member of a classic consumer group."""

from collections.abc import Iterable
from dataclasses import dataclass

from barnabas_broker.coordinators.groups.messages import MemberProtocol, Token


@dataclass(slots=True, eq=False)
class Member:
    """A member, whose fields its group writes. At most one of `awaiting_join` and `awaiting_sync` is set."""

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
    """True until its first join is answered: before that it cannot send heartbeats."""
    is_unheard_of: bool = False
    """True if known only from the log: the client may have got a newer id that was never written."""

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return its metadata for a protocol, empty if it does not support it."""
        return next((protocol.metadata for protocol in self.protocols if protocol.name == protocol_name), b"")

    def vote(self, candidates: Iterable[str]) -> str:
        """Return the first of its protocols that is a candidate."""
        return next(protocol.name for protocol in self.protocols if protocol.name in candidates)

    @property
    def waits(self) -> bool:
        """True if a request of a member waits: it sends no heartbeats. False for a new one, which may have left."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def end_join(self) -> Token | None:
        """Return the token of the waiting join, or None, and clear it."""
        token, self.awaiting_join = self.awaiting_join, None
        return token

    def end_sync(self) -> Token | None:
        """Return the token of the waiting sync, or None, and clear it."""
        token, self.awaiting_sync = self.awaiting_sync, None
        return token
