"""The visitors that have logged in, whose rights they have, and the signed cookie or header that they send."""

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from barnabas_kafka.security import Credentials

SESSION_S: Final = 8 * 3600.0
SESSIONS_MAX: Final = 1_000
TOKEN_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Principal:
    """The user whose rights count: the name that pages show, and the credentials of the connections to the brokers.

    `key` is equal for the same user with the same password, and does not reveal it.
    """

    name: str
    key: str
    credentials: Credentials


@dataclass(frozen=True, slots=True)
class Session:
    """One login; a form must send `csrf`, which no other site knows."""

    session_id: str
    principal: Principal
    csrf: str
    ends_s: float
    kubernetes_token: str = field(default="", repr=False)
    """The visitor's token for the Kubernetes API; empty if the visitor has given none."""


class Sessions:
    """The sessions in the memory of this process, the oldest first; beyond SESSIONS_MAX, the oldest ends.

    `steady_s` is a clock that never goes back.
    """

    def __init__(self, steady_s: Callable[[], float]) -> None:
        self._steady_s = steady_s
        self._key = secrets.token_bytes(TOKEN_BYTES)
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def open(self, principal: Principal, session_id: str = "") -> Session:
        """Begin a session; without an id, it gets one that cannot be guessed."""
        session_id = session_id or secrets.token_urlsafe(TOKEN_BYTES)
        csrf = secrets.token_urlsafe(TOKEN_BYTES)
        self._sessions[session_id] = Session(session_id, principal, csrf, self._steady_s() + SESSION_S)
        while len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)
        return self._sessions[session_id]

    def find(self, session_id: str) -> Session | None:
        """Return the session with this id, unless it has ended."""
        found = self._sessions.get(session_id)
        if found is not None and found.ends_s <= self._steady_s():
            self.close(session_id)
            return None
        return found

    def keep_token(self, session: Session, token: str) -> None:
        """Keep a token for the Kubernetes API in a session that is open."""
        if session.session_id in self._sessions:
            self._sessions[session.session_id] = replace(session, kubernetes_token=token)

    def close(self, session_id: str) -> None:
        """End a session, which may have ended before."""
        self._sessions.pop(session_id, None)

    def close_all_of(self, principal: Principal) -> None:
        """End all sessions of a principal, because the brokers accept its password no more."""
        for each in [each for each in self._sessions.values() if each.principal.key == principal.key]:
            self.close(each.session_id)

    def cookie_of(self, session: Session) -> str:
        """Return the value of the cookie: the id of the session, and its signature."""
        return f"{session.session_id}.{self._signature(session.session_id)}"

    def of_cookie(self, value: str) -> Session | None:
        """Return the session of a cookie, or None if the cookie is forged or its session has ended."""
        session_id, _, signature = value.partition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(session_id).encode()):
            return None
        return self.find(session_id)

    def digest(self, *secret: str) -> str:
        """Return a text that is equal for equal secrets, and from which nobody can compute them."""
        return hmac.new(self._key, "\0".join(secret).encode(), hashlib.sha256).hexdigest()

    def _signature(self, session_id: str) -> str:
        return self.digest("cookie", session_id)
