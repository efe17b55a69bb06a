"""The part of the metadata image for all metadata except topics, in the form in which the store has the metadata."""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from barnabas_broker.metadata.documents import ALL_BROKERS, AnyDocument, broker_configs_key
from barnabas_broker.metadata.image.image_change import Pending
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
)

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
