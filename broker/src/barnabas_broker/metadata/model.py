"""The documents of the metadata store, in readable JSON.

Documents are immutable: a change is a new document, written by compare-and-set on the version of the old one. During an
upgrade, brokers of two versions write the same documents, and fields that the newer version adds to a document or to a
partition's state are preserved. Fields that the newer version adds to a listener or to a log end would be lost, so no
version may add fields to these two.
"""

from typing import Annotated, Final
from uuid import UUID

import msgspec

from barnabas_core.config.listeners import Endpoint
from barnabas_core.leader_epoch import LEADER_EPOCH_MAX

NO_LEADER: Final = -1
INT16_MAX: Final = 2**15 - 1
INT32_MAX: Final = 2**31 - 1
PORT_MAX: Final = 2**16 - 1

# A document is unreadable if one of its numbers does not fit into the number's field in Kafka's protocol. Without this
# check, every response with the number would fail.
BrokerId = Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)]
BrokerIdOrNone = Annotated[int, msgspec.Meta(ge=-1, le=INT32_MAX)]
LeaderEpoch = Annotated[int, msgspec.Meta(ge=-1, le=LEADER_EPOCH_MAX)]
Epoch = Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)]
Level = Annotated[int, msgspec.Meta(ge=0, le=INT16_MAX)]


class Extensible(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The base of documents. `unknown_fields` has the fields that a newer version wrote, as JSON."""

    unknown_fields: str = ""


class PartitionState(Extensible, frozen=True, gc=False):
    """The state of a partition.

    `leader_epoch` rises with every election, and `partition_epoch` with every change. `elr` has the replicas that left
    the ISR and still have every committed record (KIP-966). `lacking` has the replicas that are known to lack records,
    until they are in sync again. During a reassignment, `replicas` includes both added and removed replicas (KIP-455).
    `log_dirs` has the wanted log directory of each replica ("" for any); it is empty if no directories are wanted.
    `restored_epoch` is the leader epoch in which `barnabas restore-metadata` rewrote the partition: a replica that is
    not in `replicas`, and whose log ends in an earlier epoch, was away at that time.
    """

    replicas: tuple[BrokerId, ...]
    leader: BrokerIdOrNone
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    elr: tuple[BrokerId, ...] = ()
    partition_epoch: Epoch = 0
    log_dirs: tuple[str, ...] = ()
    adding_replicas: tuple[BrokerId, ...] = ()
    removing_replicas: tuple[BrokerId, ...] = ()
    last_known_leader: BrokerIdOrNone = NO_LEADER
    restored_epoch: LeaderEpoch = 0
    lacking: tuple[BrokerId, ...] = ()


class PartReference(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A reference to the document with `count` partitions of a topic from `first` on (`documents.topic_part_key`).

    `part_id` is a hash of the first content of the part, so two writers never give different parts the same key.
    """

    first: int
    count: int
    part_id: str


class TopicDocument(Extensible, frozen=True):
    """A topic. `partitions[n]` is the state of partition n, and `configs` has only the topic's own settings.

    `configs_epoch` rises with every change of `configs`, so that an older copy can be recognized. In the store, the
    partitions from `parts[0].first` on are in the documents that `parts` refers to; everywhere else a topic is
    whole (`topic_layout`).
    """

    name: str
    topic_id: UUID
    partitions: tuple[PartitionState, ...]
    configs: dict[str, str] = {}
    configs_epoch: int = 0
    parts: tuple[PartReference, ...] = ()


class TopicPartDocument(Extensible, frozen=True):
    """A part of a topic with many partitions, from partition `first` on.

    The part is valid only if the topic's document refers to it.
    """

    name: str
    topic_id: UUID
    first: int
    partitions: tuple[PartitionState, ...]


class TombstoneDocument(Extensible, frozen=True):
    """The tombstone of a deleted topic. Brokers delete the logs of a topic only if the topic has a tombstone."""

    name: str
    topic_id: UUID
    deleted_at_ms: int
    partitions: int = 0


class BrokerRegistration(Extensible, frozen=True):
    """A broker as it last started. A fenced broker leads no partition and is in no ISR.

    `broker_epoch` is the token of the broker's lease, so it rises with every incarnation (KIP-903). The next
    incarnation compares `directory_ids` and `boot_id` with its own. If all directories are present, and the boot id is
    the same or the shutdown was clean, the broker still has every record that it acknowledged. Otherwise
    `may_lack_records` is True, and the `LogEndsDocument`s of the broker show which partitions lack records. `dirs_away`
    is True if a log directory was unavailable at the start, so that a missing log may be in this directory.
    `away_since` has the ids of such directories, with the boot id at their last use. `is_unregistered` marks a
    registration that is about to be deleted. `features` has the lowest and the highest level of each supported feature;
    versions without levels leave it empty. `inter_broker_listener` names the listener for other brokers; older versions
    leave it empty.
    """

    broker_id: BrokerId
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
    features: dict[str, tuple[Level, Level]] = {}
    inter_broker_listener: str = ""

    def __post_init__(self) -> None:
        for each in self.listeners:
            if not 0 <= each.port <= PORT_MAX:
                raise ValueError(f"listener {each.name} has the port {each.port}; allowed: 0 to {PORT_MAX}")


class LogEnd(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The end of a broker's log of a partition: the latest leader epoch and the log end offset.

    `known` is the highest end that the broker has reported since it was last in sync; lost records are below this
    offset. `lacks` is True if the last start may have found fewer records than were acknowledged.
    """

    partition: int
    epoch: LeaderEpoch
    offset: int
    known: int
    lacks: bool = False


class LogEndsDocument(Extensible, frozen=True):
    """The ends of some of a broker's logs: encoded lists of `LogEnd`, by topic id.

    `broker_epoch` belongs to the incarnation that wrote the document. `unknown_topics` has the topics that the
    metadata does not know, with their names by topic id.
    """

    broker_epoch: int
    topics: dict[UUID, msgspec.Raw]
    unknown_topics: dict[UUID, str] = {}


class ConfigDocument(Extensible, frozen=True):
    """The dynamic configs of one resource: a broker, all brokers, or a group."""

    configs: dict[str, str]


class ClusterDocument(Extensible, frozen=True):
    """The cluster id, which the first broker chooses, in Kafka's form of 22 characters."""

    cluster_id: str


class ControllerDocument(Extensible, frozen=True):
    """The broker that holds the controller lease. `epoch` rises with each change of the holder."""

    broker_id: BrokerIdOrNone
    epoch: int


class ProducerIdsDocument(Extensible, frozen=True):
    """The first producer id that no broker has allocated."""

    next_producer_id: int


class EntityQuotas(Extensible, frozen=True):
    """The quotas of one entity. `entity` has a name for each type; null stands for the default entity."""

    entity: dict[str, str | None]
    quotas: dict[str, float]


class ClientQuotasDocument(Extensible, frozen=True):
    """The quotas of all users, client ids and IP addresses."""

    entities: tuple[EntityQuotas, ...]


class FeaturesDocument(Extensible, frozen=True):
    """The finalized levels of features, by name."""

    levels: dict[str, int]


class StoredAcl(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An ACL: principal, host, operation, and ALLOW or DENY, by Kafka's names."""

    principal: str
    host: str
    operation: str
    permission: str


class AclsDocument(Extensible, frozen=True):
    """All ACLs of one resource pattern. The document is deleted with its last ACL."""

    resource_type: str
    pattern_type: str
    name: str
    acls: tuple[StoredAcl, ...]
