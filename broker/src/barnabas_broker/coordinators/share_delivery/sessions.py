"""Share sessions: the partitions that a member fetches from this broker, and the epoch of its next request.

A session belongs to a group and a member. It ends with its connection, or with a request of epoch -1; what the member
has acquired is then released.
"""

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Final, NamedTuple, Protocol

import msgspec

from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicIdPartition

FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = 2**31 - 1


class Closable(Hashable, Protocol):
    """The connection of a client, which calls `when_closed` once."""

    when_closed: list[Callable[..., object]]


class SessionKey(NamedTuple):
    """The group and the member of a session."""

    group_id: str
    member_id: str


class ShareSession(msgspec.Struct, eq=False):
    """A session of a member."""

    key: SessionKey
    connection: Closable | None
    epoch: int = 1
    """The epoch of the next request."""
    partitions: dict[TopicIdPartition, None] = msgspec.field(default_factory=dict)
    """The partitions that the member fetches, in the order in which it has named them."""
    touched: set[TopicIdPartition] = msgspec.field(default_factory=set)
    """The partitions from which the member has acquired records."""
    is_closed: bool = False


class ShareSessions:
    """The sessions of a broker; `on_closed` is called with each session that ends."""

    def __init__(self, sessions_max: Callable[[], int], on_closed: Callable[[ShareSession], object]) -> None:
        self._sessions_max = sessions_max
        self._on_closed = on_closed
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._by_connection: dict[Closable, dict[ShareSession, None]] = {}
        self._per_group: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._sessions)

    def has(self, group_id: str) -> bool:
        """True if a member of the group has a session."""
        return self._per_group[group_id] > 0

    def begin(self, key: SessionKey, connection: Closable | None) -> ShareSession:
        """Begin a session, which replaces an earlier one of the member; what that one has acquired stays locked.

        Raises ApiError with SHARE_SESSION_LIMIT_REACHED.
        """
        earlier = self._sessions.get(key)
        if earlier is None and len(self._sessions) >= self._sessions_max():
            raise ApiError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                f"the broker has {len(self._sessions)} share sessions; group.share.max.share.sessions allows no more",
            )
        session = ShareSession(key, connection)
        if earlier is not None:
            self._remove(earlier)
            session.touched = earlier.touched
        self._sessions[key] = session
        self._per_group[key.group_id] += 1
        if connection is not None:
            self._watch(connection, session)
        return session

    def _watch(self, connection: Closable, session: ShareSession) -> None:
        known = self._by_connection.get(connection)
        if known is None:
            known = self._by_connection[connection] = {}
            connection.when_closed.append(self._disconnected)
        known[session] = None

    def _disconnected(self, connection: Closable) -> None:
        for session in list(self._by_connection.pop(connection, ())):
            self.close(session)

    def resume(self, key: SessionKey, epoch: int) -> ShareSession:
        """Return the session of a request, and count the request.

        Raises ApiError with INVALID_SHARE_SESSION_EPOCH or SHARE_SESSION_NOT_FOUND.
        """
        session = self._sessions.get(key)
        if session is None:
            raise ApiError(
                ErrorCode.SHARE_SESSION_NOT_FOUND,
                f"member {key.member_id} of group {key.group_id} has no share session on this broker",
            )
        if epoch == FINAL_EPOCH:
            return session
        if epoch != session.epoch:
            raise ApiError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH, f"the epoch of the session is {session.epoch}, not {epoch}"
            )
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        return session

    def close(self, session: ShareSession) -> None:
        """End a session, and report it; do nothing if it has already ended or was replaced."""
        if self._sessions.get(session.key) is session:
            self._remove(session)
            self._on_closed(session)

    def _remove(self, session: ShareSession) -> None:
        session.is_closed = True
        del self._sessions[session.key]
        group_id = session.key.group_id
        self._per_group[group_id] -= 1
        if not self._per_group[group_id]:
            del self._per_group[group_id]
        if session.connection is not None:
            self._by_connection.get(session.connection, {}).pop(session, None)
