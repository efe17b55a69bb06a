"""The part of the metadata image for all metadata except topics, in the form in which the store has the metadata."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from barnabas_broker.metadata.documents import ALL_BROKERS, AnyDocument, broker_configs_key
from barnabas_broker.metadata.model import (
    AclsDocument,
    BrokerRegistration,
    ClusterDocument,
    ConfigDocument,
    ControllerDocument,
    GroupConfigDocument,
    LogEndsDocument,
    ProducerIdsDocument,
    TombstoneDocument,
    TopicDocument,
)


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


NO_CONTROLLER: Final = -1


class ShownDocuments:
    """The brokers, configs, ACLs and other metadata in the image, which only the image itself changes."""

    def __init__(self) -> None:
        self.cluster_id = ""
        self.controller_id = NO_CONTROLLER
        self.controller_epoch = 0
        self.brokers: dict[int, BrokerRegistration] = {}
        self.broker_configs: dict[str, Mapping[str, str]] = {}
        self.group_configs: dict[str, Mapping[str, str]] = {}
        """The configs of groups that have any, by the names of the groups."""
        self.tombstones: dict[UUID, TombstoneDocument] = {}
        self.next_producer_id = 0
        """The first producer id that no broker has allocated yet, as last read from the store."""
        self.log_ends: dict[str, LogEndsDocument] = {}
        """The log end offsets that brokers have reported, by metadata key. Listeners are not notified of changes."""
        self.acls: dict[str, AclsDocument] = {}
        """The ACLs by their key in the metadata store."""

    def show(self, key: str, document: AnyDocument, pending: Pending) -> None:
        """Add stored metadata to the image, or replace its previous state, and record the change in `pending`."""
        match document:
            case BrokerRegistration():
                self.brokers[document.broker_id] = document
                pending.change.brokers.add(document.broker_id)
                if not (document.fenced or document.is_shutting_down):
                    pending.change.seen_alive.add(document.broker_id)
            case LogEndsDocument():
                self.log_ends[key] = document
            case ConfigDocument() | GroupConfigDocument():
                self._show_configs(key, document, pending)
            case ClusterDocument():
                self.cluster_id = document.cluster_id
            case ControllerDocument():
                self.controller_id, self.controller_epoch = document.broker_id, document.epoch
                pending.change.controller = True
            case ProducerIdsDocument():
                self.next_producer_id = document.next_producer_id
            case TombstoneDocument():
                self.tombstones[document.topic_id] = document
                pending.change.buried.add(document.topic_id)
                pending.touched[document.name] = None
            case AclsDocument():
                self.acls[key] = document
                pending.change.acls.add(key)

    def _show_configs(self, key: str, document: ConfigDocument | GroupConfigDocument, pending: Pending) -> None:
        if isinstance(document, GroupConfigDocument):
            self.group_configs[document.group] = document.configs
        else:
            self.broker_configs[_config_owner(key)] = document.configs
            pending.change.configs.add(_config_owner(key))

    def hide(self, key: str, document: AnyDocument, pending: Pending) -> None:
        """Remove a deleted document from the image, and record the change in `pending`."""
        match document:
            case BrokerRegistration(broker_id=broker_id):
                self.brokers.pop(broker_id, None)
                pending.change.brokers.add(broker_id)
            case TombstoneDocument(topic_id=topic_id):
                self.tombstones.pop(topic_id, None)
            case GroupConfigDocument(group=group):
                self.group_configs.pop(group, None)
            case AclsDocument():
                self.acls.pop(key, None)
                pending.change.acls.add(key)


def _config_owner(key: str) -> str:
    return ALL_BROKERS if key == broker_configs_key(ALL_BROKERS) else key.partition("/")[2]
