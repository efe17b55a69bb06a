"""The ACLs of a cluster, indexed by resource, with Kafka's rules for decisions.

As in Kafka's StandardAuthorizer, any DENY wins over any ALLOW, and a resource without ACLs is open to everybody if
`allow.everyone.if.no.acl.found` is true.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from itertools import chain
from typing import Final, NamedTuple

from barnabas_core.acls import (
    ANY_HOST,
    ANY_NAME,
    ANY_USER,
    IMPLYING,
    AclEntry,
    AclOperation,
    AclPattern,
    PatternType,
    Permission,
    ResourceType,
    plain_host,
)

Entries = Collection[AclEntry]


class AclSubject(NamedTuple):
    """The client for which a decision is made: its principal and its IP address."""

    principal: str
    host: str


class AclIndex:
    """The ACL entries by resource pattern.

    The cost of finding the ACLs of a resource grows with the number of different prefix lengths, not with the number of
    ACLs. The cost of `allows_any` grows with the number of resource patterns that have an ACL for the principal or
    User:*.
    """

    def __init__(self) -> None:
        self._entries: dict[AclPattern, Entries] = {}
        self._of_principal: dict[str, dict[AclPattern, None]] = {}
        """The resource patterns that have an ACL for a principal, by principal."""
        self._prefix_lengths: dict[ResourceType, Counter[int]] = {}

    def put(self, pattern: AclPattern, entries: Entries) -> None:
        """Replace all ACLs of a resource pattern; if `entries` is empty, remove the pattern."""
        self._count_prefix(pattern, -1 if pattern in self._entries else 0)
        for principal in {each.principal for each in self._entries.pop(pattern, ())}:
            del self._of_principal[principal][pattern]
            if not self._of_principal[principal]:
                del self._of_principal[principal]
        if entries:
            self._entries[pattern] = entries
            self._count_prefix(pattern, 1)
            for principal in {each.principal for each in entries}:
                self._of_principal.setdefault(principal, {})[pattern] = None

    def _count_prefix(self, pattern: AclPattern, change: int) -> None:
        if pattern.pattern_type is PatternType.PREFIXED and change:
            lengths = self._prefix_lengths.setdefault(pattern.resource_type, Counter())
            lengths[len(pattern.name)] += change
            lengths += Counter()  # Adding an empty Counter removes lengths with the count 0.

    def of(self, resource_type: ResourceType, name: str) -> Iterator[AclEntry]:
        """Find the entries that apply to a resource."""
        entries = self._entries
        yield from entries.get(AclPattern(resource_type, name, PatternType.LITERAL), ())
        if name != ANY_NAME:
            yield from entries.get(AclPattern(resource_type, ANY_NAME, PatternType.LITERAL), ())
        for length in self._prefix_lengths.get(resource_type, ()):
            if length <= len(name):
                yield from entries.get(AclPattern(resource_type, name[:length], PatternType.PREFIXED), ())

    def patterns(self) -> Iterator[tuple[AclPattern, Entries]]:
        """Yield all resource patterns with the ACL entries of each pattern."""
        yield from self._entries.items()

    def allows(
        self, asker: AclSubject, operation: AclOperation, resource_type: ResourceType, name: str, *, if_none: bool
    ) -> bool:
        """True if the client may perform the operation on the resource.

        `if_none` is the result for a resource without ACLs.
        """
        implying = IMPLYING.get(operation, frozenset({operation}))
        is_about, is_allowed = False, False
        for entry in self.of(resource_type, name):
            is_about = True
            if not is_of(entry, asker):
                continue
            if entry.permission is Permission.DENY:
                if entry.operation in (operation, AclOperation.ALL):
                    return False
            elif entry.operation is AclOperation.ALL or entry.operation in implying:
                is_allowed = True
        return is_allowed if is_about else if_none

    def allows_any(self, asker: AclSubject, operation: AclOperation, resource_type: ResourceType) -> bool:
        """True if an ALLOW ACL permits the operation on at least one resource of the type.

        An ALLOW ACL is ignored if a single DENY ACL covers all resources of the ALLOW ACL.
        """
        denied = set(self._of(asker, operation, resource_type, Permission.DENY))
        if AclPattern(resource_type, ANY_NAME, PatternType.LITERAL) in denied:
            return False
        return any(
            not _is_covered(pattern, denied) for pattern in self._of(asker, operation, resource_type, Permission.ALLOW)
        )

    def _of(
        self, asker: AclSubject, operation: AclOperation, resource_type: ResourceType, permission: Permission
    ) -> Iterator[AclPattern]:
        for pattern in chain(*(self._of_principal.get(each, ()) for each in (asker.principal, ANY_USER))):
            if pattern.resource_type is resource_type and any(
                each.permission is permission and each.operation in (operation, AclOperation.ALL) and is_of(each, asker)
                for each in self._entries[pattern]
            ):
                yield pattern


def is_of(entry: AclEntry, asker: AclSubject) -> bool:
    """True if the entry applies to the client."""
    return entry.principal in (asker.principal, ANY_USER) and (
        entry.host == ANY_HOST or plain_host(entry.host) == asker.host
    )


_PREFIXED: Final = PatternType.PREFIXED


def _is_covered(allowed: AclPattern, denied: Collection[AclPattern]) -> bool:
    """True if a DENY pattern covers all resources of the ALLOW pattern."""
    if allowed in denied:
        return True
    if allowed.pattern_type is PatternType.LITERAL and allowed.name == ANY_NAME:
        return False
    prefixes = (allowed.name[:length] for length in range(len(allowed.name) + 1))
    return any(AclPattern(allowed.resource_type, prefix, _PREFIXED) in denied for prefix in prefixes)
