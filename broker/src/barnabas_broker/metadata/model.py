"""The documents of the metadata store: readable JSON, one a topic (of many partitions more), a broker, and so on.

Values never change; a change is a new document, written by compare-and-set on the version of the old one. While a
cluster is upgraded, brokers of two versions write the same documents: what a newer one has added to a document or to a
partition's state stays. What it adds to a listener or to the end of a log would not: new fields go elsewhere.
"""

from typing import Annotated, Final
from uuid import UUID

import msgspec

from barnabas_core.config.listeners import Endpoint
from barnabas_core.leader_epoch import LEADER_EPOCH_MAX

NO_LEADER: Final = -1


class Extensible(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The base of documents. `unknown_fields` are those of a newer version, as JSON; `documents` keeps them."""

    unknown_fields: str = ""


class PartitionState(Extensible, frozen=True, gc=False):
    """The state of a partition. `log_dirs` has the wanted path of each replica ("" for any), or is empty.

    `leader_epoch` rises with every election, `partition_epoch` with every change at all. `elr` are replicas that left
    the ISR and still have all that is committed (KIP-966). `lacking` are replicas that are known to lack records, until
    they are in sync again. While a reassignment goes on, `replicas` has those that come and those that go (KIP-455).
    `restored_epoch` is the leader epoch in which `barnabas restore-metadata` rewrote the partition: a replica that this
    does not name, whose log ends in an earlier epoch, was away then.
    """

    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    partition_epoch: int = 0
    log_dirs: tuple[str, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    last_known_leader: int = NO_LEADER
    restored_epoch: int = 0
    lacking: tuple[int, ...] = ()


class PartReference(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """`count` partitions of a topic, from `first` on, are in a document of their own (`documents.topic_part_key`).

    `part_id` is of what was in it at first: no two writers make the same part of different partitions.
    """

    first: int
    count: int
    part_id: str


class TopicDocument(Extensible, frozen=True):
    """One topic: partition n is `partitions[n]`; `configs` has only the topic's own settings.

    `configs_epoch` rises with every change of them, so that an older copy shows. The store has the partitions from
    `parts[0].first` on in the documents that `parts` names; everywhere else a topic is whole (`topic_layout`).
    """

    name: str
    topic_id: UUID
    partitions: tuple[PartitionState, ...]
    configs: dict[str, str] = {}
    configs_epoch: int = 0
    parts: tuple[PartReference, ...] = ()


class TopicPartDocument(Extensible, frozen=True):
    """A part of a topic with many partitions, from partition `first` on. It counts once the topic refers to it."""

    name: str
    topic_id: UUID
    first: int
    partitions: tuple[PartitionState, ...]


class TombstoneDocument(Extensible, frozen=True):
    """The tombstone of a deleted topic; only with it do brokers delete the topic's logs."""

    name: str
    topic_id: UUID
    deleted_at_ms: int
    partitions: int = 0


class BrokerRegistration(Extensible, frozen=True):
    """One broker as it started last. A fenced broker leads nothing and is in no ISR.

    `broker_epoch` is the token of its lease, so it rises with every incarnation (KIP-903). `directory_ids` and
    `boot_id` are what the next incarnation compares with its own: if they are the same, or the shutdown was clean, it
    still has every record that it ever acknowledged; if not, `may_lack_records`, and its `LogEndsDocument`s say in
    which partitions. With `dirs_away` a log dir did not work at the start: what lies there may come back whole.
    `away_since` has the id of each that is known, and the boot of the last incarnation that used it. Somebody has
    unregistered the broker where `is_unregistered`: its document goes now. `features` are the lowest and the highest
    level of each that it supports; none before there were levels. `inter_broker_listener` is the one by which it
    reaches the others; "" where it does not say, as older versions do not.
    """

    broker_id: int
    incarnation_id: UUID
    listeners: tuple[Endpoint, ...]
    rack: str | None = None
    log_dirs: tuple[str, ...] = ()
    fenced: bool = False
    broker_epoch: int = 0
    directory_ids: tuple[UUID, ...] = ()
    boot_id: str = ""
    may_lack_records: bool = False
    is_shutting_down: bool = False
    is_unregistered: bool = False
    dirs_away: bool = False
    away_since: dict[UUID, str] = {}
    features: dict[str, tuple[int, int]] = {}
    inter_broker_listener: str = ""


class LogEnd(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The end of a broker's log of a partition: its latest leader epoch, and its log end offset.

    `known` is the highest end that the broker has reported since the partition was in sync there last: what it may have
    lost lies below. `lacks` says that the last start may have found less than was acknowledged.
    """

    partition: int
    epoch: Annotated[int, msgspec.Meta(le=LEADER_EPOCH_MAX)]
    offset: int
    known: int
    lacks: bool = False


class LogEndsDocument(Extensible, frozen=True):
    """The ends of some of a broker's logs, by topic id: each is a list of `LogEnd`, decoded only if needed.

    `broker_epoch` is the incarnation of the broker that wrote it. `unknown_topics` has the names, by id, of those that
    the metadata does not know.
    """

    broker_epoch: int
    topics: dict[UUID, msgspec.Raw]
    unknown_topics: dict[UUID, str] = {}


class ConfigDocument(Extensible, frozen=True):
    """The dynamic configs of one resource: a broker, all brokers, or a group."""

    configs: dict[str, str]


class ClusterDocument(Extensible, frozen=True):
    """The decision of the first broker: Kafka's 22-character cluster id."""

    cluster_id: str


class ControllerDocument(Extensible, frozen=True):
    """The broker that holds the controller lease; the epoch rises with each change of holder."""

    broker_id: int
    epoch: int


class ProducerIdsDocument(Extensible, frozen=True):
    """The first producer id that no broker has been given."""

    next_producer_id: int


class EntityQuotas(Extensible, frozen=True):
    """The quotas of one entity: `entity` has its types with their names, null for the default."""

    entity: dict[str, str | None]
    quotas: dict[str, float]


class ClientQuotasDocument(Extensible, frozen=True):
    """The quotas of all clients and addresses."""

    entities: tuple[EntityQuotas, ...]


class FeaturesDocument(Extensible, frozen=True):
    """The levels of features that are finalized, by name."""

    levels: dict[str, int]


class StoredAcl(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An ACL: principal, host, operation, and ALLOW or DENY, by Kafka's names."""

    principal: str
    host: str
    operation: str
    permission: str


class AclsDocument(Extensible, frozen=True):
    """All ACLs of one resource pattern; the document is deleted with the last one."""

    resource_type: str
    pattern_type: str
    name: str
    acls: tuple[StoredAcl, ...]
