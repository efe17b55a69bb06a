"""The authorizer, and its cache of decisions for each client.

`Authorizer.rights` returns the cached decisions of a principal at an address. A change of the ACLs drops the cache, but
a request keeps the decisions with which it began.
"""

import functools
from collections.abc import Callable, Collection, Mapping
from typing import Final

from barnabas_broker.security.acls.acl_index import AclIndex, AclSubject, Entries
from barnabas_broker.security.acls.audit import Audit
from barnabas_core.acls import CLUSTER_NAME, OPERATIONS, AclOperation, AclPattern, ResourceType, plain_host

ASKERS_MAX: Final = 10_000
"""The maximum number of clients whose decisions are cached; the least recently used client is dropped first."""
DECISIONS_MAX: Final = 10_000
"""The maximum number of cached decisions of a client; a full cache is cleared before the next decision."""


_ALL: Final = {kind: frozenset(map(int, each)) for kind, each in OPERATIONS.items()}


class Rights:
    """The cached decisions for one client."""

    __slots__ = ("_asker", "_authorizer", "_decided", "_decided_any", "is_super", "readable", "writable")

    def __init__(self, authorizer: "Authorizer | None", asker: AclSubject, *, is_super: bool) -> None:
        self._authorizer = authorizer
        self._asker = asker
        self._decided: dict[tuple[AclOperation, ResourceType, str], bool] = {}
        self._decided_any: dict[tuple[AclOperation, ResourceType], bool] = {}
        self.is_super = is_super
        self.writable: set[str | bytes | None] = set()
        self.readable: set[str | bytes | None] = set()
        """The topics, by name or by the bytes of their id, for which Produce and Fetch are known to be allowed."""

    def may(self, operation: AclOperation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """True if the client may perform the operation on the resource; log and count a refusal."""
        allowed = self.may_see(operation, resource_type, name)
        if not allowed:
            self._not_super().audit.refused(self._asker, operation, resource_type, name)
        return allowed

    def may_see(self, operation: AclOperation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """True if the client may perform the operation; log no refusal, because the client named no resource."""
        if self.is_super:
            return True
        decided = self._decided.get((operation, resource_type, name))
        return self._decide(operation, resource_type, name) if decided is None else decided

    def _decide(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        authorizer = self._not_super()
        if len(self._decided) >= DECISIONS_MAX:
            self._decided.clear()
        decided = self._decided[operation, resource_type, name] = authorizer.decide(
            self._asker, operation, resource_type, name
        )
        if decided:
            authorizer.audit.allowed(self._asker, operation, resource_type, name)
        return decided

    def _not_super(self) -> "Authorizer":
        assert self._authorizer is not None, "the authorizer must not be asked about a super user"
        return self._authorizer

    def may_any(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        """True if the client may perform the operation on at least one resource of the type."""
        if self.is_super:
            return True
        decided = self._decided_any.get((operation, resource_type))
        if decided is None:
            decided = self._not_super().decide_any(self._asker, operation, resource_type)
            self._decided_any[operation, resource_type] = decided
        return decided

    def operations(self, resource_type: ResourceType, name: str = CLUSTER_NAME) -> set[int]:
        """Return the codes of all operations that the client may perform on the resource."""
        if self.is_super:
            return set(_ALL[resource_type])
        return {int(each) for each in OPERATIONS[resource_type] if self.may_see(each, resource_type, name)}


EVERY_RIGHT: Final = Rights(None, AclSubject("", ""), is_super=True)
"""The rights of every client if the broker has no authorizer."""


class Authorizer:
    """The ACLs, the super users, and the cached decisions."""

    def __init__(
        self,
        super_users: Collection[str],
        *,
        allow_if_none: bool,
        audit: Audit,
        lacks_acls: Callable[[], bool] = lambda: False,
    ) -> None:
        """Create the authorizer; `lacks_acls` returns True while a stored ACL, possibly a DENY, cannot be read."""
        self.index = AclIndex()
        self._lacks_acls = lacks_acls
        self._super_users = frozenset(super_users)
        self._allow_if_none = allow_if_none
        self.rights = functools.lru_cache(ASKERS_MAX)(self._new_rights)
        """Return the cached decisions for a principal at an address; each request calls this function."""
        self.audit = audit

    def _new_rights(self, principal: str, host: str) -> Rights:
        return Rights(self, AclSubject(principal, plain_host(host)), is_super=principal in self._super_users)

    def replace(self, changes: Mapping[AclPattern, Entries]) -> None:
        """Replace all ACLs of the given resource patterns, and drop all cached decisions."""
        for pattern, entries in changes.items():
            self.index.put(pattern, entries)
        self.rights.cache_clear()

    def decide(self, asker: AclSubject, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """True if the ACLs allow the operation; nothing is allowed while a stored ACL cannot be read."""
        return not self._lacks_acls() and self.index.allows(
            asker, operation, resource_type, name, if_none=self._allow_if_none
        )

    def decide_any(self, asker: AclSubject, operation: AclOperation, resource_type: ResourceType) -> bool:
        """True if the ACLs allow the operation on at least one resource of the type.

        Like Kafka, first check the operation on a resource named "hardcode". Usually no ACL applies to that name, so
        the result is True if `allow.everyone.if.no.acl.found` is true.
        """
        if self._lacks_acls():
            return False
        return self.decide(asker, operation, resource_type, "hardcode") or self.index.allows_any(
            asker, operation, resource_type
        )


def super_users(text: str) -> list[str]:
    """Split `super.users` at semicolons, because the names in certificates contain commas."""
    return [user for each in text.split(";") if (user := each.strip())]
