"""Convert ACLs between the metadata and the authorizer, and keep the authorizer up to date."""

from collections.abc import Callable, Collection, Iterable

import msgspec

from barnabas_broker.metadata.documents import ACLS, acls_key
from barnabas_broker.metadata.image.image_change import ImageChange
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import AclsDocument, StoredAcl
from barnabas_broker.security.acls.authorizer import Authorizer
from barnabas_core.acls import AclEntry, AclOperation, AclPattern, PatternType, Permission, ResourceType


class AclFollower:
    """Copy the ACLs of the metadata image to the authorizer whenever they change."""

    def __init__(self, authorizer: Authorizer, image: MetadataImage) -> None:
        self._authorizer = authorizer
        self._image = image
        self._patterns: dict[str, AclPattern] = {}
        """The pattern of each stored document, needed when the document is deleted."""

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
    """True if a stored ACL document cannot be read and this broker has no earlier version of the document."""
    return any(key.startswith(ACLS) and key not in image.acls for key in image.unreadable)


def key_of(pattern: AclPattern) -> str:
    """Return the metadata key for the document of a pattern."""
    return acls_key(pattern.resource_type.name, pattern.pattern_type.name, pattern.name)


def pattern_of(document: AclsDocument) -> AclPattern | None:
    """Return the pattern of a document; None if this version does not know the resource type or the pattern type."""
    try:
        return AclPattern(ResourceType[document.resource_type], document.name, PatternType[document.pattern_type])
    except KeyError:
        return None


def entries_of(document: AclsDocument) -> list[AclEntry]:
    """Return the entries of a document; entries for operations that this version does not know are left out."""
    return [
        AclEntry(each.principal, each.host, AclOperation[each.operation], Permission[each.permission])
        for each in document.acls
        if each.operation in AclOperation.__members__
    ]


def adding(pattern: AclPattern, entries: Iterable[AclEntry]) -> Callable[[AclsDocument | None], AclsDocument]:
    """Return a function that adds entries to a document, without duplicates; for None it returns a new document."""
    added = [_stored(each) for each in entries]

    def change(document: AclsDocument | None) -> AclsDocument:
        document = document or AclsDocument(
            resource_type=pattern.resource_type.name, pattern_type=pattern.pattern_type.name, name=pattern.name, acls=()
        )
        return msgspec.structs.replace(document, acls=tuple(dict.fromkeys((*document.acls, *added))))

    return change


def removing(pattern: AclPattern, entries: Iterable[AclEntry]) -> Callable[[AclsDocument | None], AclsDocument]:
    """Return a function that removes entries from a document; for None it returns an empty document."""
    removed = {_stored(each) for each in entries}
    no_more = adding(pattern, ())

    def change(document: AclsDocument | None) -> AclsDocument:
        document = no_more(document)
        return msgspec.structs.replace(document, acls=tuple(each for each in document.acls if each not in removed))

    return change


def _stored(entry: AclEntry) -> StoredAcl:
    return StoredAcl(entry.principal, entry.host, entry.operation.name, entry.permission.name)
