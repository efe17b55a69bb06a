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
