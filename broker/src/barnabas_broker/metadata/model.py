"""The documents, which are the values of the metadata store, in readable JSON.

Documents are immutable: a change is a new document, written by compare-and-set on the version of the old one. During an
upgrade, brokers of two versions write the same documents, and fields that the newer version adds to a document or to a
partition's state are preserved. Fields that the newer version adds to a listener or to a log end would be lost, so no
version may add fields to these two.

The features of the cluster (KIP-584): the levels that this version supports, and the levels of a new cluster.
UpdateFeatures finalizes a level if all registered brokers support the level. Brokers write metadata in the format
of a level only after the level is finalized.
"""

from collections.abc import Mapping
from typing import Annotated, Final, NamedTuple
from uuid import UUID

import msgspec

from barnabas_core.config.listeners import Endpoint
from barnabas_core.conventions import METADATA_LEVEL, METADATA_LEVEL_MAX, METADATA_LEVEL_MIN
from barnabas_core.topic_partition import LEADER_EPOCH_MAX

NO_LEADER: Final = -1
INT16_MAX: Final = 2**15 - 1
INT32_MAX: Final = 2**31 - 1
PORT_MAX: Final = 2**16 - 1

# A document with a number that does not fit into its field in Kafka's protocol is refused as unreadable. Without this
# check, every response with the number would fail.
BrokerId = Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)]
BrokerIdOrNone = Annotated[int, msgspec.Meta(ge=-1, le=INT32_MAX)]
LeaderEpoch = Annotated[int, msgspec.Meta(ge=-1, le=LEADER_EPOCH_MAX)]
Epoch = Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)]
Level = Annotated[int, msgspec.Meta(ge=0, le=INT16_MAX)]


class Extensible(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The base class of stored documents.

    `unknown_fields` has, as JSON, the fields that a newer version wrote and this version does not know.
    """

    unknown_fields: str = ""


class PartitionState(Extensible, frozen=True, gc=False):
    """The state of a partition.

    `leader_epoch` rises with every election, and `partition_epoch` with every change. `elr` has the replicas that left
    the ISR and still have every committed record (KIP-966). `lacking` has the replicas that are known to lack records,
    until they are in sync again. During a reassignment, `replicas` includes both added and removed replicas (KIP-455).
    `log_dirs` has the wanted log directory of each replica ("" for any); it is empty if no directories are wanted.
    `restored_epoch` is the leader epoch in which `barnabas restore-metadata` rewrote the partition. A broker
    that is not in `replicas` keeps a log whose latest epoch is below `restored_epoch`, because the command did not know
    of that log.
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
    """A reference to a topic part: a document with `count` partitions of a topic, from partition `first` on.

    The reference determines the key of the part (`documents.topic_part_key`). `part_id` is a hash of the content with
    which the part was created, so two writers never give different parts the same key.
    """

    first: int
    count: int
    part_id: str


class TopicDocument(Extensible, frozen=True):
    """A topic. `partitions[n]` is the state of partition n, and `configs` has only the topic's own settings.

    `configs_epoch` rises with every change of `configs`, so that an older copy can be recognized. In the store, the
    topic document of a large topic has only the partitions below `parts[0].first`; `parts` refers to the documents with
    the other partitions. In memory, a topic has all its partitions (`topic_layout`).
    """

    name: str
    topic_id: UUID
    partitions: tuple[PartitionState, ...]
    configs: dict[str, str] = {}
    configs_epoch: int = 0
    parts: tuple[PartReference, ...] = ()


class TopicPartDocument(Extensible, frozen=True):
    """A topic part: a separate document with partitions of a large topic, from partition `first` on.

    The part is valid only if the topic document refers to the part.
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
    """The registration that a broker wrote when it last started.

    - `fenced`: a fenced broker leads no partition and is in no ISR.
    - `broker_epoch`: the token of the broker's lease, which rises with every incarnation (KIP-903).
    - `directory_ids`, `boot_id`: the next incarnation compares them with its own. If all directories are present, and
      the boot id is the same or the shutdown was clean, the broker still has every record that it acknowledged.
    - `may_lack_records`: True if some of these records may be lost; the broker's `LogEndsDocument`s show in which
      partitions.
    - `is_unregistered`: True if the registration is about to be deleted.
    - `dirs_away`: True if a log directory was unavailable at the start, so that a missing log may be in it.
    - `away_since`: the ids of unavailable log directories, each with the machine's boot id at its last use.
    - `features`: the lowest and the highest level of each supported feature; empty for versions without levels.
    - `inter_broker_listener`: the name of the listener for other brokers; empty for older versions.
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

    `known` is the highest log end offset that the broker has reported since its replica was last in sync. If the log
    now ends below `known`, the records in between are lost. `lacks` is True if, at the last start of the broker, the
    log may have had fewer records than the broker had acknowledged.
    """

    partition: int
    epoch: LeaderEpoch
    offset: int
    known: int
    lacks: bool = False


class LogEndsDocument(Extensible, frozen=True):
    """The log ends of some of a broker's logs: encoded lists of `LogEnd`, by topic id.

    `broker_epoch` is the epoch of the broker when it wrote the document. `unknown_topics` has the names, by topic id,
    of topics with logs on the broker but without metadata.
    """

    broker_epoch: int
    topics: dict[UUID, msgspec.Raw]
    unknown_topics: dict[UUID, str] = {}


class ConfigDocument(Extensible, frozen=True):
    """The dynamic configs of one broker, or of all brokers."""

    configs: dict[str, str]


class GroupConfigDocument(Extensible, frozen=True):
    """The configs of one group. The document is deleted when its last config is removed."""

    group: str
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
    """All ACLs of one resource pattern, stored as one document, which is deleted when its last ACL is removed."""

    resource_type: str
    pattern_type: str
    name: str
    acls: tuple[StoredAcl, ...]


class SupportedLevels(NamedTuple):
    """The lowest and the highest supported level of a feature, both inclusive."""

    lowest: int
    highest: int


Supported = Mapping[str, SupportedLevels]

SPLIT_TOPICS_LEVEL: Final = 2
TRANSACTIONS_LEVEL: Final = 3
CONSUMER_GROUPS_LEVEL: Final = 4
SHARE_GROUPS_LEVEL: Final = 5
ELR: Final = "eligible.leader.replicas.version"
"""The feature of eligible leader replicas (KIP-966), which are always on, so there is no level 0."""
TRANSACTION_VERSION: Final = "transaction.version"
"""The feature of transactions: level 2 gives each transaction its own producer epoch (KIP-890)."""

GROUP_VERSION: Final = "group.version"
"""The feature of groups: level 1 has the consumer protocol (KIP-848)."""
SHARE_VERSION: Final = "share.version"
"""The feature of share groups: level 1 has share groups (KIP-932), level 2 their dead letters (KIP-1191)."""

SUPPORTED: Final[Supported] = {
    ELR: SupportedLevels(1, 1),
    GROUP_VERSION: SupportedLevels(0, 1),
    METADATA_LEVEL: SupportedLevels(METADATA_LEVEL_MIN, METADATA_LEVEL_MAX),
    SHARE_VERSION: SupportedLevels(0, 2),
    TRANSACTION_VERSION: SupportedLevels(0, 2),
}
BASE: Final[Supported] = {ELR: SupportedLevels(1, 1), METADATA_LEVEL: SupportedLevels(1, 1)}
"""The feature levels that a broker supports if its registration has none, as in versions without feature levels."""
FIRST_LEVELS: Final[Mapping[str, int]] = {name: levels.lowest for name, levels in BASE.items()}
"""The feature levels of a cluster without stored levels, because an older version created the cluster."""
NEW_LEVELS: Final[Mapping[str, int]] = {name: levels.highest for name, levels in SUPPORTED.items()}
"""The feature levels of a new cluster."""


def transaction_version(finalized: Mapping[str, int]) -> int:
    """Return the finalized level of transaction.version, or 0 if none is finalized."""
    return finalized.get(TRANSACTION_VERSION, 0)


def has_consumer_groups(finalized: Mapping[str, int]) -> bool:
    """True if the finalized level of group.version allows the consumer protocol."""
    return finalized.get(GROUP_VERSION, 0) >= 1


def has_share_groups(finalized: Mapping[str, int]) -> bool:
    """True if the finalized level of share.version allows share groups."""
    return finalized.get(SHARE_VERSION, 0) >= 1


def has_dead_letters(finalized: Mapping[str, int]) -> bool:
    """True if the finalized level of share.version allows dead letters of share groups."""
    return finalized.get(SHARE_VERSION, 0) >= 2


def unsupported(finalized: Mapping[str, int]) -> str | None:
    """Return why a broker of this version cannot join a cluster with these levels, or None if it can."""
    for name, level in sorted(finalized.items()):
        levels = SUPPORTED.get(name)
        if levels is None:
            return f"feature {name} is finalized at level {level}, but this broker version does not know the feature"
        if not levels.lowest <= level <= levels.highest:
            allowed = f"{levels.lowest} to {levels.highest}"
            return f"feature {name} is finalized at level {level}, but this broker version supports levels {allowed}"
    return None
