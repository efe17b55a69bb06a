"""The differences in the image for its listeners, and how they are gathered."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from barnabas_broker.metadata.model import TopicDocument


@dataclass(frozen=True, slots=True)
class ImageChange:
    """The differences. A topic that was deleted and created again is in both `deleted` and `created`."""

    created: tuple[TopicDocument, ...] = ()
    changed: tuple[TopicDocument, ...] = ()
    deleted: tuple[TopicDocument, ...] = ()
    brokers: frozenset[int] = frozenset()
    seen_alive: frozenset[int] = frozenset()
    """The brokers that were unfenced in some state meanwhile; all of a listing, which has only the last states."""
    configs: frozenset[str] = frozenset()
    """The ids, as text, of brokers whose dynamic configs changed; "" stands for the defaults of all brokers."""
    acls: frozenset[str] = frozenset()
    """The keys of documents of ACLs that changed."""
    controller: bool = False
    """True if another broker became the controller, or the same one again."""
    quotas: bool = False
    """True if quotas of clients changed."""
    buried: frozenset[UUID] = frozenset()
    """The ids of topics with a new tombstone."""
    lost: bool = False
    """True if something has to be written again."""


@dataclass(slots=True)
class Pending:
    """The things that a batch of changes touched, as they were before."""

    topics: dict[str, TopicDocument | None] = field(default_factory=dict)
    touched: dict[str, None] = field(default_factory=dict)
    """The names of topics whose documents or tombstones changed, and that are not checked since."""
    touched_keys: set[str] = field(default_factory=set)
    """The keys of those documents; each state of a document is checked."""
    brokers: set[int] = field(default_factory=set)
    seen_alive: set[int] = field(default_factory=set)
    configs: set[str] = field(default_factory=set)
    acls: set[str] = field(default_factory=set)
    controller: bool = False
    quotas: bool = False
    buried: set[UUID] = field(default_factory=set)
    lost: bool = False

    def difference(self, topics: Mapping[str, TopicDocument]) -> ImageChange:
        """Return the differences as a whole; `topics` are the present ones."""
        pairs = [(before, topics.get(name)) for name, before in self.topics.items()]
        return ImageChange(
            created=tuple(now for before, now in pairs if now is not None and not _same_topic(before, now)),
            changed=tuple(now for before, now in pairs if now is not None and _same_topic(before, now)),
            deleted=tuple(was for was, now in pairs if was is not None and not _same_topic(was, now)),
            brokers=frozenset(self.brokers),
            seen_alive=frozenset(self.seen_alive),
            configs=frozenset(self.configs),
            acls=frozenset(self.acls),
            controller=self.controller,
            quotas=self.quotas,
            buried=frozenset(self.buried),
            lost=self.lost,
        )


def _same_topic(before: TopicDocument | None, now: TopicDocument | None) -> bool:
    return before is not None and now is not None and before.topic_id == now.topic_id
