"""The differences between two states of the metadata image, for the image's listeners."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from barnabas_broker.metadata.model import TopicDocument


@dataclass(slots=True)
class ImageChange:
    """The differences between two states of the image. Listeners must not change them.

    A topic that was deleted and created again is in both `deleted` and `created`.
    """

    created: tuple[TopicDocument, ...] = ()
    changed: tuple[TopicDocument, ...] = ()
    deleted: tuple[TopicDocument, ...] = ()
    brokers: set[int] = field(default_factory=set)
    seen_alive: set[int] = field(default_factory=set)
    """The changed brokers that were alive (neither fenced nor shutting down) at some moment during the change.

    A listing of the store does not show intermediate states. After a listing, `seen_alive` therefore has all changed
    brokers.
    """
    configs: set[str] = field(default_factory=set)
    """The ids, as text, of brokers whose dynamic configs changed; "" stands for the defaults of all brokers."""
    acls: set[str] = field(default_factory=set)
    """The keys of the stored ACLs that changed."""
    controller: bool = False
    """True if a broker became the controller, even if it is the same broker as before."""
    quotas: bool = False
    """True if client quotas changed."""
    buried: set[UUID] = field(default_factory=set)
    """The ids of topics for which a tombstone, the record of their deletion, was stored."""
    lost: bool = False
    """True if the store has lost a metadata document, so that a broker has to write the document again."""


@dataclass(slots=True)
class Pending:
    """The objects that a batch of changes touches; `topics` has the topics as they were before the batch."""

    change: ImageChange = field(default_factory=ImageChange)
    """The differences that the batch has made so far, without the topics, which `finished` adds."""
    topics: dict[str, TopicDocument | None] = field(default_factory=dict)
    touched: dict[str, None] = field(default_factory=dict)
    """The names of topics whose stored metadata or tombstone changed and has not been processed yet."""
    touched_keys: set[str] = field(default_factory=set)
    """The keys of TopicDocuments and TopicPartDocuments that have changed and have not been processed yet."""

    def finished(self, topics: Mapping[str, TopicDocument]) -> ImageChange:
        """Return what the batch of changes altered; `topics` has the image's topics after the batch."""
        pairs, change = [(before, topics.get(name)) for name, before in self.topics.items()], self.change
        change.created = tuple(now for before, now in pairs if now is not None and not _same_topic(before, now))
        change.changed = tuple(now for before, now in pairs if now is not None and _same_topic(before, now))
        change.deleted = tuple(was for was, now in pairs if was is not None and not _same_topic(was, now))
        return change


def _same_topic(before: TopicDocument | None, now: TopicDocument | None) -> bool:
    return before is not None and now is not None and before.topic_id == now.topic_id
