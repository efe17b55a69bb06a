"""The state that is declared for a cluster, the state of its brokers, and the rebalance that a user requests.

An annotation of a Cluster approves the rebalance that the operator proposes, or names a MaintenanceJob whose plan is
carried out.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple, Self

import msgspec
from msgspec import structs

from barnabas_core.config.broker_config import parse_broker_config
from barnabas_core.config.definitions import ConfigDefinition, InvalidConfig, Value, parse_value
from barnabas_core.config.group_configs import GROUP_CONFIGS, no_setting_of_group
from barnabas_core.config.topic_configs import check_topic_configs, no_setting
from barnabas_core.config.topic_definitions import TOPIC_CONFIGS
from barnabas_core.placement import DiskSpace, LogDirLoad
from barnabas_core.topic_partition import TopicPartition
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.consumer_group import ConsumerGroup
from barnabas_operator.resources.kind import Json, Resource, foreign_json
from barnabas_operator.resources.maintenance_run import MaintenanceJob
from barnabas_operator.resources.topic import ConfigValue, Topic
from barnabas_operator.resources.user import User
from barnabas_operator.resources.yaml_documents import Manifests, ResourceT


class LogDirContent(NamedTuple):
    """One online log dir: its disk space, and the bytes of each replica that it holds.

    `coming` holds the future replicas, which are copied from another log dir, with the bytes that are copied so far.
    """

    space: DiskSpace
    replicas: Mapping[TopicPartition, int]
    coming: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Disks:
    """The online log dirs of the brokers that answered, by broker and path."""

    log_dirs: Mapping[int, Mapping[str, LogDirContent]]
    replicas: Mapping[int, Mapping[TopicPartition, int]] = field(init=False)
    """The bytes of each replica by broker and partition."""
    sizes: Mapping[TopicPartition, int] = field(init=False)
    """The bytes of the largest replica of each partition."""

    def __post_init__(self) -> None:
        replicas = {
            broker: {which: size for each in contents.values() for which, size in each.replicas.items()}
            for broker, contents in self.log_dirs.items()
        }
        sizes: dict[TopicPartition, int] = {}
        for held in replicas.values():
            for partition, size in held.items():
                sizes[partition] = max(size, sizes.get(partition, 0))
        object.__setattr__(self, "replicas", replicas)
        object.__setattr__(self, "sizes", sizes)

    def loads(self, broker: int) -> list[LogDirLoad]:
        """Return the load of each log dir; a replica that moves between log dirs counts only in its new log dir."""
        contents = self.log_dirs[broker]
        moving = {which for each in contents.values() for which in each.coming}
        loads = []
        for path, each in contents.items():
            sizes = [*(size for which, size in each.replicas.items() if which not in moving)]
            sizes += each.coming.values()
            loads.append(LogDirLoad(path, len(sizes), sizes.count(0), sum(sizes), each.space.usable_bytes))
        return loads

    def to_come_bytes(self, broker: int, partition: TopicPartition) -> int:
        """Return how many bytes the broker's replica of a partition lacks to be as large as the largest replica."""
        held = self.replicas.get(broker, {}).get(partition, 0)
        return max(0, self.sizes.get(partition, 0) - held)

    def room_bytes(self, broker: int) -> int:
        """Return the free bytes of the broker's log dir with the most free bytes, or 0 if the broker did not answer.

        Space that unfinished moves between log dirs will still fill is not counted as free.
        """
        spaces = (each.space for each in self.log_dirs.get(broker, {}).values())
        return max((space.room_bytes - self._coming_bytes(broker, space) for space in spaces), default=0)

    def _coming_bytes(self, broker: int, space: DiskSpace) -> int:
        held = self.replicas.get(broker, {})
        contents = (each for each in self.log_dirs.get(broker, {}).values() if each.space == space)
        return sum(max(0, held.get(which, 0) - done) for each in contents for which, done in each.coming.items())

    @property
    def usual_bytes(self) -> int:
        """The average size of the partitions that are not empty, used as the expected size of an empty partition."""
        filled = [size for size in self.sizes.values() if size]
        return sum(filled) // len(filled) if filled else 1

    def weight(self, partition: TopicPartition) -> int:
        """Return the bytes of a replica, or the expected size if the partition is empty."""
        return self.sizes.get(partition, 0) or self.usual_bytes


ReplicaIds = tuple[int, ...]
"""The broker ids of the replicas of one partition, preferred leader first."""


@dataclass(frozen=True, slots=True)
class TopicState:
    """One topic of the cluster. `overrides` holds only the configs that are set on the topic itself.

    `partitions` holds the current replicas of each partition. During a reassignment the replicas that are being added
    or removed are included, and `moving` holds the target replicas.
    """

    topic_id: str
    partitions: tuple[ReplicaIds, ...]
    overrides: Mapping[str, str]
    moving: Mapping[int, ReplicaIds] = field(default_factory=dict)

    @property
    def targets(self) -> tuple[ReplicaIds, ...]:
        """The replicas of each partition after all reassignments have ended."""
        return tuple(self.moving.get(number, replicas) for number, replicas in enumerate(self.partitions))

    @property
    def replication_factor(self) -> int:
        """Return the topic's number of replicas, taken from partition 0 as it will be after all reassignments."""
        return len(self.targets[0])


@dataclass(frozen=True, slots=True)
class Trouble:
    """A partition whose replicas are not all in sync.

    `offline` is True if the partition has no leader. `lost` describes the lost records if no replica can become leader
    because every replica has lost records. `under_min_isr` is True if the partition has a leader, and fewer in-sync
    replicas than `min.insync.replicas`.
    """

    topic: str
    partition: int
    missing: ReplicaIds
    in_sync: ReplicaIds
    offline: bool
    lost: str | None = None
    under_min_isr: bool = False

    def __str__(self) -> str:
        """Return the partition and its problem as text: no leader, or the brokers that are out of sync."""
        why = "without a leader" if self.offline else f"without broker {', '.join(map(str, self.missing))}"
        return f"{self.topic}-{self.partition} ({why})"


@dataclass(frozen=True, slots=True, kw_only=True)
class StrayLog:
    """A log that a broker keeps but does not serve, because the cluster metadata does not contain its topic.

    `offline` is True if the log dir is offline, so that `size_bytes` is the last known size.
    """

    broker_id: int
    directory: str
    size_bytes: int
    offline: bool = False

    def __str__(self) -> str:
        """Return the broker and the directory of the log as text."""
        return f"broker {self.broker_id} {self.directory}" + (" (the log dir is offline)" if self.offline else "")


class MetadataVersions(NamedTuple):
    """The finalized level of `barnabas.metadata.version`, and the highest level that the responding broker supports."""

    finalized: int
    offered: int


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Live brokers (id to rack), topics by name, and the defaults of the brokers for new topics.

    `troubles` are the partitions that are not fully replicated. `declared` is the declared number of brokers, or 0
    before `with_brokers` sets it. `leaving` are the brokers to be removed. `registered` are all brokers that have ever
    joined, dead brokers included. `awaited` are the brokers that must join or learn their rack before replicas are
    placed. `restarting` are the brokers that restart or have to restart; no rebalance begins before they have
    restarted. `disks` is read only if replicas have to move, and otherwise None. `metadata_versions` is None if the
    brokers do not support `barnabas.metadata.version`.
    """

    racks: Mapping[int, str | None]
    topics: Mapping[str, TopicState]
    num_partitions: int = 1
    default_replication_factor: int = 1
    default_min_insync_replicas: int = 1
    controller_id: int | None = None
    troubles: tuple[Trouble, ...] = ()
    declared: int = 0
    leaving: frozenset[int] = frozenset()
    registered: frozenset[int] = frozenset()
    awaited: frozenset[int] = frozenset()
    restarting: frozenset[int] = frozenset()
    cluster_id: str | None = None
    disks: Disks | None = None
    metadata_versions: MetadataVersions | None = None

    def with_brokers(self, count: int) -> Self:
        """Return the state with all brokers whose id is `count` or higher marked as leaving, dead brokers included."""
        holders = (broker for topic in self.topics.values() for row in topic.partitions for broker in row)
        known = (*self.racks, *self.registered, *holders)
        return replace(self, declared=count, leaving=frozenset(broker for broker in known if broker >= count))

    def with_overrides(self, overrides: Mapping[str, Mapping[str, str]]) -> Self:
        """Return the state with the configs in `overrides`, by topic name; other topics keep their configs."""
        changed = {name: replace(self.topics[name], overrides=found) for name, found in overrides.items()}
        return replace(self, topics={**self.topics, **changed})

    def awaiting(self, count: int, informed: Mapping[int, str | None]) -> Self:
        """Return a copy of the state in which `awaited` holds the brokers that must still join or learn their rack.

        `informed` holds the rack of each broker's pod, or None if the broker may have any rack. A live broker is
        awaited until its rack is the rack in `informed`. As long as the cluster has no topics, brokers with ids below
        `count` that have never joined are also awaited, so that the first topics are spread over all brokers.
        """
        behind = (broker for broker, rack in self.racks.items() if informed.get(broker, "") not in (None, rack))
        new = frozenset[int]() if self.topics else frozenset(range(count)) - self.registered
        return replace(self, awaited=new.union(behind))

    @property
    def complete(self) -> Self:
        """A copy of the state that counts dead brokers and the brokers in `awaited` as live brokers."""
        away = self.registered | self.awaited
        return replace(self, racks={**dict.fromkeys(away), **self.racks})

    @property
    def is_moving(self) -> bool:
        """True if any topic has a reassignment in progress."""
        return any(topic.moving for topic in self.topics.values())

    @property
    def homes(self) -> Mapping[int, str | None]:
        """The live brokers that may get replicas, with their racks."""
        return {broker: rack for broker, rack in self.racks.items() if broker not in self.leaving}

    @property
    def knows_disks(self) -> bool:
        """True if all brokers that may get replicas have reported their free space."""
        return self.disks is not None and self.homes.keys() <= self.disks.log_dirs.keys()


APPROVAL: Final = "barnabas.dev/rebalance"
APPROVED: Final = "approve"
SKEW: Final = "skew"
ALLOWED: Final = (
    f"allowed: {APPROVED}, or the name of a MaintenanceJob of this Cluster with job {SKEW} that has succeeded"
)


class PlannedPartition(msgspec.Struct, frozen=True):
    """The planned `replicas` of a partition; `before` are its replicas when the plan was made.

    `log_dirs` holds the path of the log dir for each planned replica, or is None if the plan names no log dirs.
    """

    topic: str
    partition: int
    replicas: ReplicaIds
    before: ReplicaIds
    log_dirs: tuple[str, ...] | None = None


class SkewPlan(msgspec.Struct, frozen=True):
    """The rebalance plan that the job `skew` writes into the status of its MaintenanceJob."""

    version: Literal[1]
    partitions: tuple[PlannedPartition, ...]
    topic_ids: dict[str, str]


class NamedRebalance(NamedTuple):
    """The MaintenanceJob that the Cluster's annotation names, and its rebalance plan.

    If the MaintenanceJob has no valid plan, `plan` is None, and `refusal` says why.

    `unlisted` is the number of planned partitions that did not fit into the status of the MaintenanceJob.
    """

    run: str
    plan: SkewPlan | None
    refusal: str = ""
    unlisted: int = 0


def named_run(cluster: Cluster) -> str | None:
    """Return the name of the MaintenanceJob in the annotation of the Cluster, or None if the annotation names none."""
    return _run_of(cluster.metadata.annotations)


def names_another_run(old: Json | None, new: Json) -> bool:
    """True if a change sets the annotation `APPROVAL` of a Cluster to the name of another MaintenanceJob."""
    name, before = (_run_of(each["metadata"].get("annotations") or {}) for each in (new, old or {"metadata": {}}))
    return new["kind"] == Cluster.__name__ and name is not None and name != before


def _run_of(annotations: Mapping[str, str]) -> str | None:
    word = annotations.get(APPROVAL)
    return None if word == APPROVED else word


def named_rebalance(name: str, run: MaintenanceJob | None) -> NamedRebalance:
    """Return the rebalance plan of the MaintenanceJob `run`, or why there is no valid plan.

    `run` is None if no MaintenanceJob has the name that the Cluster's annotation contains.
    """
    if run is None:
        return _refused(name, "the Cluster has no MaintenanceJob with that name")
    if run.spec.job != SKEW:
        return _refused(name, f"the MaintenanceJob's job is {run.spec.job}, which makes no rebalance plan")
    if run.status is None or run.status.phase != "Succeeded":
        phase = run.status.phase if run.status is not None else None
        return _refused(name, f"the MaintenanceJob's phase is {phase or 'Pending'}")
    text = run.status.result.get("plan", "")
    plan = foreign_json(text, SkewPlan) if isinstance(text, str) else None
    if plan is None:
        return _refused(name, "status.result.plan of the MaintenanceJob is not a valid plan")
    if not plan.partitions:
        return _refused(name, "the plan of the MaintenanceJob is empty")
    places = Counter(f"{each.topic}-{each.partition}" for each in plan.partitions)
    if len(places) < len(plan.partitions):
        return _refused(name, f"the plan contains {max(places, key=places.__getitem__)} more than once")
    planned = run.status.result.get("planned_partitions")
    unlisted = planned - len(plan.partitions) if isinstance(planned, int) else 0
    return NamedRebalance(name, plan, unlisted=max(0, unlisted))


def _refused(name: str, why: str) -> NamedRebalance:
    return NamedRebalance(name, None, f"the annotation {APPROVAL} is {name}: {why}; {ALLOWED}")


class DesiredState(NamedTuple):
    """The declared resources, and the topics, groups and users that are no longer declared."""

    cluster: Cluster
    topics: tuple[Topic, ...]
    removed: tuple[Topic, ...]
    groups: tuple[ConsumerGroup, ...] = ()
    removed_groups: tuple[ConsumerGroup, ...] = ()
    named: NamedRebalance | None = None
    """The rebalance plan that the annotation `barnabas.dev/rebalance` of the Cluster names."""
    users: tuple[User, ...] = ()
    removed_users: tuple[User, ...] = ()

    @property
    def resources(self) -> tuple[Resource, ...]:
        """All resources of all kinds, including resources that are no longer declared."""
        kept = (*self.groups, *self.removed_groups, *self.users, *self.removed_users)
        return (self.cluster, *self.topics, *self.removed, *kept)


def remember(manifests: Manifests, known: DesiredState | None, now: str, new_uid: Callable[[], str]) -> DesiredState:
    """Return the declared resources, each with its uid, creation time, generation and last status.

    `manifests` must hold exactly one Cluster.
    """

    def of(kind: type[ResourceT], before: tuple[ResourceT, ...]) -> tuple[tuple[ResourceT, ...], tuple[ResourceT, ...]]:
        left = {each.metadata.name: each for each in before}
        declared = tuple(
            _continue(each, left.pop(each.metadata.name, None), now, new_uid) for each in manifests.of_kind(kind)
        )
        return declared, tuple(left.values())

    ((cluster,), _) = of(Cluster, (known.cluster,) if known else ())
    topics, removed = of(Topic, (*known.topics, *known.removed) if known else ())
    groups, removed_groups = of(ConsumerGroup, (*known.groups, *known.removed_groups) if known else ())
    users, removed_users = of(User, (*known.users, *known.removed_users) if known else ())
    name = named_run(cluster)
    # Manifest files cannot declare a MaintenanceJob, so the plan of a named MaintenanceJob is always refused.
    named = named_rebalance(name, None) if name is not None else None
    return DesiredState(cluster, topics, removed, groups, removed_groups, named, users, removed_users)


def _continue(resource: ResourceT, before: ResourceT | None, now: str, new_uid: Callable[[], str]) -> ResourceT:
    if before is None:
        meta = structs.replace(resource.metadata, uid=new_uid(), creation_timestamp=now, generation=1)
        return structs.replace(resource, metadata=meta, status=None)
    old = before.metadata
    generation = (old.generation or 0) + (resource.spec != before.spec)
    meta = structs.replace(
        resource.metadata, uid=old.uid, creation_timestamp=old.creation_timestamp, generation=generation
    )
    return structs.replace(resource, metadata=meta, status=before.status)


LEADERS: Final = "leader.replication.throttled.replicas"
FOLLOWERS: Final = "follower.replication.throttled.replicas"
THROTTLED: Final = frozenset({LEADERS, FOLLOWERS})
"""The throttle configs of a topic, which are set during moves of replicas by the operator or another tool."""

_DEFAULT_BROKER: Final = parse_broker_config({})


def config_text(value: str | int | float) -> str:
    """Return a config value of a manifest as the text that Kafka expects."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def declared_texts(config: Mapping[str, ConfigValue]) -> dict[str, str]:
    """Return the declared configs as texts, without the configs that are declared as null."""
    return {name: config_text(value) for name, value in config.items() if value is not None}


def config_problems(config: Mapping[str, ConfigValue]) -> list[str]:
    """Return all problems of a declared config; each names the key, the value and what is allowed."""
    unknown = [f"{name}: {no_setting(name)}" for name in config if name not in TOPIC_CONFIGS]
    known = {name: text for name, text in declared_texts(config).items() if name in TOPIC_CONFIGS}
    try:
        check_topic_configs(known, _DEFAULT_BROKER)
    except InvalidConfig as error:
        return [*unknown, *map(str, error.problems)]
    return unknown


def group_config_problems(config: Mapping[str, ConfigValue]) -> list[str]:
    """Return the problems of a group's declared config, without those of the bounds that only its brokers know."""
    problems = [f"{name}: {no_setting_of_group(name)}" for name in config if name not in GROUP_CONFIGS]
    for name, text in declared_texts(config).items():
        if name in GROUP_CONFIGS:
            try:
                parse_value(GROUP_CONFIGS[name], text)
            except InvalidConfig as error:
                problems.extend(map(str, error.problems))
    return problems


def config_changes(
    config: Mapping[str, ConfigValue],
    overrides: Mapping[str, str],
    definitions: Mapping[str, ConfigDefinition] = TOPIC_CONFIGS,
) -> dict[str, str | None]:
    """Return the changes that give a topic or group its declared config: a text to set, or None for the default.

    A config that is not declared is reset to its default. A config that is declared as null is not changed, and neither
    are the throttle configs unless they are declared.
    """
    wanted = declared_texts(config)
    changes: dict[str, str | None] = {
        name: text
        for name, text in wanted.items()
        if name not in overrides or not _same(definitions, name, text, overrides[name])
    }
    changes |= {name: None for name in overrides if name not in config and name not in THROTTLED}
    return changes


def _same(definitions: Mapping[str, ConfigDefinition], name: str, wanted: str, found: str) -> bool:
    return wanted == found or _value(definitions, name, wanted) == _value(definitions, name, found)


def _value(definitions: Mapping[str, ConfigDefinition], name: str, text: str) -> Value:
    try:
        return parse_value(definitions[name], text)
    except (KeyError, InvalidConfig):
        return text
