"""The authorizer, and its cache of decisions for each client.

`Authorizer.rights` returns the cached decisions of a principal at an address. A change of the ACLs drops the cache, but
a request keeps the decisions with which it began.

The rules by which ACLs decide are in `barnabas_core/acls.py`.
"""

import functools
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from barnabas_broker.metadata.documents import ACLS, ImageChange, acls_key
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import AclsDocument, StoredAcl
from barnabas_core.acls import (
    CLUSTER_NAME,
    OPERATIONS,
    AclEntry,
    AclIndex,
    AclOperation,
    AclPattern,
    AclSubject,
    Entries,
    PatternType,
    Permission,
    ResourceType,
    plain_host,
)
from barnabas_core.clock import Clock, monotonic_ms

log = logging.getLogger("kafka.authorizer.logger")

LINES_MAX: Final = 100
"""The maximum number of refusals logged in PERIOD_MS, so that a request for a million topics does not fill the disk."""
PERIOD_MS: Final = 1_000
NAME_CHARS_MAX: Final = 250


class Refusal(NamedTuple):
    """The labels by which refusals are counted."""

    operation: str
    resource_type: str


class Audit:
    """The log and the counts of decisions.

    Refusals are logged at INFO. Allowed operations are logged at DEBUG, unless the decision was cached.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._period_began_ms = monotonic_ms(clock)
        self._lines = 0
        self.refusals: Counter[Refusal] = Counter()

    def refused(self, asker: AclSubject, operation: AclOperation, resource_type: ResourceType, name: str) -> None:
        """Count a refusal, and log it unless LINES_MAX refusals were already logged in the current period."""
        self.refusals[Refusal(operation.name, resource_type.name)] += 1
        now_ms = monotonic_ms(self._clock)
        if not 0 <= now_ms - self._period_began_ms < PERIOD_MS:
            if self._lines > LINES_MAX:
                log.info("%d more refusals were not logged", self._lines - LINES_MAX)
            self._period_began_ms, self._lines = now_ms, 0
        self._lines += 1
        if self._lines <= LINES_MAX:
            log.info("%s", _line(asker, "Denied", operation, resource_type, name))

    def allowed(self, asker: AclSubject, operation: AclOperation, resource_type: ResourceType, name: str) -> None:
        """Log an allowed operation, for administrators who want to know which rights an application needs."""
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s", _line(asker, "Allowed", operation, resource_type, name))


def _line(asker: AclSubject, decision: str, operation: AclOperation, resource_type: ResourceType, name: str) -> str:
    """Format a log line; names become Python literals, because a name with a line break could forge a line."""
    shown = name[:NAME_CHARS_MAX]
    return (
        f"Principal = {asker.principal!r} is {decision} operation = {operation.name} from host = {asker.host} "
        f"on resource = {resource_type.name}:{shown!r}"
    )


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


class AclFollower:
    """Copy the ACLs of the metadata image to the authorizer whenever they change."""

    def __init__(self, authorizer: Authorizer, image: MetadataImage) -> None:
        self._authorizer = authorizer
        self._image = image
        self._patterns: dict[str, AclPattern] = {}
        """The resource pattern of each stored AclsDocument, by metadata key.

        The patterns are kept here because the deletion of a document reports only the metadata key.
        """

    def start(self) -> None:
        """Copy the current ACLs, and subscribe to their changes."""
        self._take_over(self._image.acls)
        self._image.subscribe(self._changed)

    def _changed(self, change: ImageChange) -> None:
        if change.acls:
            self._take_over(change.acls)

    def _take_over(self, keys: Iterable[str]) -> None:
        changes: dict[AclPattern, Collection[AclEntry]] = {}
        for key in keys:
            document = self._image.acls.get(key)
            pattern = self._patterns.pop(key, None) if document is None else pattern_of(document)
            if pattern is not None:
                changes[pattern] = () if document is None else entries_of(document)
                if document is not None:
                    self._patterns[key] = pattern
        self._authorizer.replace(changes)


def lacks_acls(image: MetadataImage) -> bool:
    """True if a stored AclsDocument cannot be read, and this broker has no earlier version of the AclsDocument."""
    return any(key.startswith(ACLS) and key not in image.acls for key in image.unreadable)


def key_of(pattern: AclPattern) -> str:
    """Return the metadata key of the ACLs for a resource pattern."""
    return acls_key(pattern.resource_type.name, pattern.pattern_type.name, pattern.name)


def pattern_of(document: AclsDocument) -> AclPattern | None:
    """Return the resource pattern of an AclsDocument; None if the resource type or the pattern type is unknown."""
    try:
        return AclPattern(ResourceType[document.resource_type], document.name, PatternType[document.pattern_type])
    except KeyError:
        return None


def entries_of(document: AclsDocument) -> list[AclEntry]:
    """Return the ACL entries of an AclsDocument, without the entries for unknown operations."""
    return [
        AclEntry(each.principal, each.host, AclOperation[each.operation], Permission[each.permission])
        for each in document.acls
        if each.operation in AclOperation.__members__
    ]


def changing(
    pattern: AclPattern, *, added: Iterable[AclEntry] = (), removed: Iterable[AclEntry] = ()
) -> Callable[[AclsDocument | None], AclsDocument]:
    """Return a function that removes and adds ACL entries in the AclsDocument of a pattern, without duplicates.

    If the pattern has no AclsDocument (None), the function creates one.
    """
    new, gone = [_stored(each) for each in added], {_stored(each) for each in removed}

    def change(document: AclsDocument | None) -> AclsDocument:
        document = document or AclsDocument(
            resource_type=pattern.resource_type.name, pattern_type=pattern.pattern_type.name, name=pattern.name, acls=()
        )
        kept = [each for each in document.acls if each not in gone]
        return msgspec.structs.replace(document, acls=tuple(dict.fromkeys((*kept, *new))))

    return change


def _stored(entry: AclEntry) -> StoredAcl:
    return StoredAcl(entry.principal, entry.host, entry.operation.name, entry.permission.name)
