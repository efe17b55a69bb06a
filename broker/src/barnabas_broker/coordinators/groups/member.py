"""One member of a classic consumer group."""

from collections.abc import Iterable
from dataclasses import dataclass

from barnabas_broker.coordinators.groups.messages import MemberProtocol, Token


@dataclass(slots=True, eq=False)
class Member:
    """One member, whose fields its group writes. Of its requests `awaiting_join` or `awaiting_sync` waits, or none."""

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
    """Has not had its first join answered, so it cannot send heartbeats yet."""
    is_unheard_of: bool = False
    """Known from the log alone. The coordinator before may have told the client a newer id that it could not write."""

    def metadata(self, protocol_name: str | None) -> bytes:
        """What it says for that protocol; nothing where it does not know it."""
        return next((protocol.metadata for protocol in self.protocols if protocol.name == protocol_name), b"")

    def vote(self, candidates: Iterable[str]) -> str:
        """The candidate it likes best."""
        return next(protocol.name for protocol in self.protocols if protocol.name in candidates)

    @property
    def waits(self) -> bool:
        """It is owed an answer, so no heartbeat is expected. A new member may be gone, so it does not count."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def end_join(self) -> Token | None:
        """The request whose join waits, which is answered now; None where there is none."""
        token, self.awaiting_join = self.awaiting_join, None
        return token

    def end_sync(self) -> Token | None:
        """The request whose sync waits, which is answered now; None where there is none."""
        token, self.awaiting_sync = self.awaiting_sync, None
        return token
