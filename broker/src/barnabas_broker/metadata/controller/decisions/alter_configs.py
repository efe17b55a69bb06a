"""The decisions on changes of dynamic configs, by IncrementalAlterConfigs (KIP-339) or AlterConfigs.

The decision on CreatePartitions. The number of partitions never falls, because records would be lost and keys would
move to other partitions.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from itertools import islice
from random import Random
from typing import Final
from uuid import UUID

import msgspec

from barnabas_broker.metadata.controller.decisions.elections import MIN_ISR
from barnabas_broker.metadata.documents import ALL_BROKERS
from barnabas_broker.metadata.model import BrokerRegistration, PartitionState, TopicDocument
from barnabas_broker.wire.decoder import STRING_BYTES_MAX
from barnabas_core.config.broker_config import BrokerConfig, UsableConfig, is_unknown, unknown_definitions
from barnabas_core.config.broker_definitions import broker_definition
from barnabas_core.config.definitions import (
    NAMED_MAX,
    ConfigDefinition,
    ConfigProblem,
    ConfigType,
    Dynamic,
    InvalidConfig,
    Value,
    first_names,
    format_value,
)
from barnabas_core.config.group_configs import GROUP_CONFIGS, group_config_problems, no_setting_of_group
from barnabas_core.config.topic_configs import CONTRADICTED, check_topics_under, topic_config_problems
from barnabas_core.config.topic_definitions import TOPIC_CONFIGS
from barnabas_core.config.unused import unused_definitions
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.placement import assign_replicas, start_index_for_added


class ClusterView(msgspec.Struct, frozen=True):
    """The state of the cluster at one moment.

    `live_brokers` excludes brokers that are fenced or shutting down. `config` is the config of this broker.
    `overrides` has the dynamic configs of each broker by its id as text, and the defaults of all brokers under
    ALL_BROKERS.
    """

    topics: Mapping[str, TopicDocument]
    racks: Mapping[int, str | None]
    live_brokers: tuple[int, ...]
    config: BrokerConfig
    overrides: Mapping[str, Mapping[str, str]]


def view_cluster(
    topics: Mapping[str, TopicDocument],
    brokers: Mapping[int, BrokerRegistration],
    config: BrokerConfig,
    overrides: Mapping[str, Mapping[str, str]],
) -> ClusterView:
    """Return the view of the cluster; brokers that are fenced or shutting down do not count as alive."""
    live = [broker for broker, found in brokers.items() if not found.fenced and not found.is_shutting_down]
    return ClusterView(
        topics=topics,
        racks={broker: registration.rack for broker, registration in sorted(brokers.items())},
        live_brokers=tuple(sorted(live)),
        config=config,
        overrides=overrides,
    )


Overrides = Mapping[str, Mapping[str, str]]
"""The dynamic configs of each broker by its id as text; ALL_BROKERS has the defaults of all brokers."""
Inherited = Callable[[ConfigDefinition], Value]
"""The function that returns the value of a setting that the resource does not set itself."""


class ConfigResourceType(IntEnum):
    """The type of a config resource, with the numbers of Kafka's protocol."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(msgspec.Struct, frozen=True):
    """A resource with configs: a topic or group with its name, or a broker with its id as the name.

    A broker resource with an empty name has the default configs of all brokers.
    """

    type: ConfigResourceType
    name: str


class ConfigOperation(IntEnum):
    """The operation of IncrementalAlterConfigs on a setting. APPEND and SUBTRACT are allowed only for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_DELETE: Final = ConfigOperation.DELETE


class ConfigChange(msgspec.Struct, frozen=True):
    """The change of one setting. DELETE ignores `value`."""

    name: str
    operation: ConfigOperation
    value: str | None


def replace_all(configs: Mapping[str, str | None], current: Mapping[str, str]) -> list[ConfigChange]:
    """Return the changes that replace all `current` settings by `configs`, as AlterConfigs does."""
    removed = [ConfigChange(name, ConfigOperation.DELETE, None) for name in current if name not in configs]
    return [*removed, *(ConfigChange(name, ConfigOperation.SET, value) for name, value in configs.items())]


def decide_alter_topic(view: ClusterView, name: str, changes: Sequence[ConfigChange]) -> TopicDocument:
    """Return the topic with the changed configs. Raises ApiError if the topic is unknown or a change is invalid."""
    topic = view.topics.get(name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")

    def inherited(definition: ConfigDefinition) -> Value:
        synonyms = definition.synonyms
        return view.config.value(synonyms[0].name) if synonyms else definition.default

    configs = _changed(changes, topic.configs, TOPIC_CONFIGS, inherited)
    stored = {name: text for name, text in topic.configs.items() if configs.get(name) == text}
    check_new_topic_configs(view, configs, stored)
    return msgspec.structs.replace(topic, configs=configs)


def check_new_topic_configs(view: ClusterView, configs: Mapping[str, str], stored: Mapping[str, str]) -> None:
    """Raise ApiError if a topic's configs are invalid, or contradict the configs of a broker.

    Problems that the `stored` configs already have are ignored. The check ends once it has found more problems than an
    error names, because a request may have thousands.
    """
    problems: dict[ConfigProblem, None] = {}
    can_differ = any(not CONTRADICTED.isdisjoint(own) for own in view.overrides.values())
    for config in _differing_configs(view, view.overrides) if can_differ else [view.config]:
        known = set(topic_config_problems(stored, config))
        new = (each for each in topic_config_problems(configs, config) if each not in known)
        problems |= dict.fromkeys(islice(new, NAMED_MAX + 1))
    if problems:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(InvalidConfig(problems)))


def _differing_configs(view: ClusterView, overrides: Overrides) -> list[BrokerConfig]:
    """Return the broker configs that a topic's configs must not contradict.

    These configs are the defaults of all brokers, and the configs of each broker that overrides a setting in
    CONTRADICTED. This broker does not know the config files of other brokers. A broker whose config file contradicts a
    topic's setting ignores the topic's setting and logs a warning.
    """
    differ = [broker for broker in _with_own(view, overrides) if not CONTRADICTED.isdisjoint(overrides[broker])]
    return [_usable(view, each, overrides).config for each in {ALL_BROKERS: None, **dict.fromkeys(differ)}]


def decide_alter_broker(view: ClusterView, broker: str, changes: Sequence[ConfigChange]) -> dict[str, str]:
    """Return the new dynamic configs of one broker, or of all brokers (ALL_BROKERS).

    Raises ApiError if the broker is not registered, or a change is invalid.
    """
    if broker != ALL_BROKERS and broker not in map(str, view.racks):
        message = f"No broker has the id '{broker}'; the registered brokers are {list(view.racks)}."
        raise ApiError(ErrorCode.INVALID_REQUEST, message)
    _check_dynamic(broker, [change.name for change in changes])
    _check_min_isr(broker, changes)
    known = {change.name: broker_definition(change.name) for change in changes}
    definitions = {name: definition for name, definition in known.items() if definition is not None}
    definitions.update(unused_definitions(known))
    definitions.update(unknown_definitions(known))
    before = view.overrides.get(broker, {})
    configs = _changed(changes, before, definitions, lambda definition: view.config.value(definition.name))
    after = {**view.overrides, broker: configs}
    try:
        for each in _concerned(view, broker, after):
            _check_usable(view, each, after)
        if not CONTRADICTED.isdisjoint(change.name for change in changes):
            is_one = broker != ALL_BROKERS
            _check_topics(view, [_usable(view, broker, after).config] if is_one else _differing_configs(view, after))
    except InvalidConfig as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
    return configs


def decide_alter_group(
    view: ClusterView, group: str, changes: Sequence[ConfigChange], current: Mapping[str, str]
) -> dict[str, str]:
    """Return the configs of a group after the changes. Raises ApiError if a change is invalid.

    Problems that the current configs already have are ignored, because the bounds of the broker may have changed.
    """
    if not group:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed: name a group.")
    unknown = [each for each in changes if each.name not in GROUP_CONFIGS and each.operation is not _DELETE]
    if unknown:
        name = unknown[0].name
        raise ApiError(ErrorCode.INVALID_CONFIG, str(ConfigProblem(name, None, no_setting_of_group(name))))
    configs = _changed(changes, current, GROUP_CONFIGS, lambda definition: definition.default)
    known = set(
        group_config_problems({name: text for name, text in current.items() if configs.get(name) == text}, view.config)
    )
    problems = [problem for problem in group_config_problems(configs, view.config) if problem not in known]
    if problems:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(InvalidConfig(problems)))
    return configs


def _concerned(view: ClusterView, broker: str, overrides: Overrides) -> Iterable[str]:
    """Return the brokers that a change of the dynamic configs of `broker` affects.

    In the result, ALL_BROKERS stands for all brokers without dynamic configs of their own.
    """
    return [ALL_BROKERS, *_with_own(view, overrides)] if broker == ALL_BROKERS else [broker]


def _with_own(view: ClusterView, overrides: Overrides) -> list[str]:
    """Return the registered brokers that have dynamic configs of their own."""
    return [broker for broker in map(str, view.racks) if broker in overrides]


def _usable(view: ClusterView, broker: str, overrides: Overrides) -> UsableConfig:
    own = {} if broker == ALL_BROKERS else overrides.get(broker, {})
    return view.config.with_usable(own, overrides.get(ALL_BROKERS, {}))


def _check_usable(view: ClusterView, broker: str, after: Overrides) -> None:
    """Raise InvalidConfig if a broker setting is valid now, but would be invalid with the new configs (`after`).

    As in Kafka, names that are no settings are stored without effect.
    """
    known = _usable(view, broker, view.overrides).ignored
    ignored = _usable(view, broker, after).ignored
    problems = [problem for problem in ignored if problem not in known and not is_unknown(problem.name)]
    if problems:
        raise InvalidConfig(problems)


def _check_topics(view: ClusterView, configs: Iterable[BrokerConfig]) -> None:
    """Raise InvalidConfig if the configs of a topic contradict one of the broker configs in `configs`."""
    topics = {name: topic.configs for name, topic in view.topics.items() if topic.configs}
    for config in configs:
        check_topics_under(topics, config)


def _check_dynamic(broker: str, names: Sequence[str]) -> None:
    for name in names:
        definition = broker_definition(name)
        if broker == ALL_BROKERS and definition is not None and definition.name.startswith("listener.name."):
            message = f"Cannot update {name} for all brokers: the setting belongs to one listener of one broker."
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
        if definition is not None and definition.dynamic is Dynamic.READ_ONLY:
            message = f"Cannot update {name} dynamically: the broker reads the setting only when it starts."
            raise ApiError(ErrorCode.INVALID_REQUEST, message)


def _check_min_isr(broker: str, changes: Sequence[ConfigChange]) -> None:
    """Raise ApiError if the changes could give brokers different values of min.insync.replicas.

    ELRs require the same value on all brokers (KIP-966).
    """
    operations = {change.operation for change in changes if change.name == MIN_ISR}
    if broker == ALL_BROKERS and ConfigOperation.DELETE in operations:
        message = f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled."
        raise ApiError(ErrorCode.INVALID_CONFIG, message)
    if broker != ALL_BROKERS and operations - {ConfigOperation.DELETE}:
        message = f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled."
        raise ApiError(ErrorCode.INVALID_CONFIG, message)


def _changed(
    changes: Sequence[ConfigChange],
    current: Mapping[str, str],
    definitions: Mapping[str, ConfigDefinition],
    inherited: Inherited,
) -> dict[str, str]:
    """Return `current` with all changes applied. Raises ApiError if a setting is named twice or a change is invalid."""
    twice = [name for name, count in Counter(change.name for change in changes).items() if count > 1]
    if twice:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys: {first_names(twice)}")
    configs = dict(current)
    for change in changes:
        if change.name not in definitions and change.operation is not ConfigOperation.DELETE:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Unknown config name: {change.name}")
        if change.operation is ConfigOperation.DELETE:
            configs.pop(change.name, None)
        else:
            configs[change.name] = _new_text(change, configs, definitions[change.name], inherited)
    return configs


def _new_text(
    change: ConfigChange, configs: Mapping[str, str], definition: ConfigDefinition, inherited: Inherited
) -> str:
    if change.value is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for: {change.name}")
    if change.operation is ConfigOperation.SET:
        return change.value
    if definition.type is ConfigType.UNKNOWN:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Unknown config name: {change.name}")
    if definition.type is not ConfigType.LIST:
        message = f"Can't {change.operation.name} to key {change.name} because its type is not LIST."
        raise ApiError(ErrorCode.INVALID_CONFIG, message)
    present = configs.get(change.name, format_value(inherited(definition)) or "")
    entries = [entry.strip() for entry in present.split(",") if entry.strip()]
    named = [entry.strip() for entry in change.value.split(",")]
    if change.operation is ConfigOperation.SUBTRACT:
        return ",".join(entry for entry in entries if entry not in named)
    appended = ",".join([*entries, *(entry for entry in named if entry not in entries)])
    if len(appended.encode()) > STRING_BYTES_MAX:
        message = (
            f"{change.name} would have {len(appended.encode())} bytes; a value has at most {STRING_BYTES_MAX} bytes."
        )
        raise ApiError(ErrorCode.INVALID_CONFIG, message)
    return appended


PARTITIONS_PER_REQUEST_MAX: Final = 10_000
"""The maximum number of partitions that one request may create, as in Kafka."""


def check_partitions_added(added: int) -> None:
    """Raise ApiError(POLICY_VIOLATION) if one request creates more partitions than PARTITIONS_PER_REQUEST_MAX."""
    if added > PARTITIONS_PER_REQUEST_MAX:
        message = f"Excessively large number of partitions per request: {added}; at most {PARTITIONS_PER_REQUEST_MAX}."
        raise ApiError(ErrorCode.POLICY_VIOLATION, message)


def place(view: ClusterView, partitions: int, replication_factor: int, random: Random) -> list[PartitionState]:
    """Return the partitions of a new topic, placed from a random first broker with a random shift.

    Raises ApiError(INVALID_REPLICATION_FACTOR) if there are too few brokers.
    """
    brokers = _candidates(view, replication_factor)
    start_index, shift = random.randrange(len(brokers)), random.randrange(len(brokers))
    rows = assign_replicas(brokers, partitions, replication_factor, start_index, shift, view.racks)
    return [initial_state(view, _with_a_live_one(view, row, number)) for number, row in enumerate(rows)]


def place_added(view: ClusterView, existing: Sequence[PartitionState], added: int) -> list[PartitionState]:
    """Return additional partitions of a topic.

    The round-robin assignment of replicas to brokers continues after the existing partitions. Raises
    ApiError(INVALID_REPLICATION_FACTOR) if there are too few brokers.
    """
    replication_factor = replication_factor_of(existing[0])
    brokers = _candidates(view, replication_factor)
    start_index = start_index_for_added(brokers, existing[0].replicas[0])
    rows = assign_replicas(
        brokers, added, replication_factor, start_index, start_index, view.racks, first_partition=len(existing)
    )
    return [initial_state(view, _with_a_live_one(view, row, number)) for number, row in enumerate(rows)]


def _with_a_live_one(view: ClusterView, replicas: list[int], number: int) -> list[int]:
    """Return the replicas; if none of them is alive, a live broker replaces the first replica."""
    live = view.live_brokers
    return replicas if any(broker in live for broker in replicas) else [live[number % len(live)], *replicas[1:]]


def _candidates(view: ClusterView, replication_factor: int) -> list[int]:
    """Return the brokers for new replicas: live brokers, or all registered brokers if too few are alive.

    Raises ApiError(INVALID_REPLICATION_FACTOR) if too few brokers are registered, or no broker is alive.
    """
    live, registered = list(view.live_brokers), list(view.racks)
    if replication_factor > len(registered) or not live:
        message = (
            f"Unable to replicate the partition {replication_factor} time(s): the replication factor must be at most "
            f"{len(registered)}, the number of registered brokers; {len(live)} of them are alive."
        )
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    return live if replication_factor <= len(live) else registered


def replication_factor_of(state: PartitionState) -> int:
    """Return the replication factor of a partition, not counting replicas that a reassignment removes."""
    return len(state.replicas) - len(state.removing_replicas)


def check_assignment(view: ClusterView, replicas: Sequence[int], replication_factor: int | None) -> None:
    """Raise ApiError(INVALID_REPLICA_ASSIGNMENT) for invalid replicas, or for a wrong number of replicas."""
    complaint = _complaint(view, replicas, replication_factor)
    if complaint is not None:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment {complaint}")


def _complaint(view: ClusterView, replicas: Sequence[int], replication_factor: int | None) -> str | None:
    if not replicas:
        return "includes an empty replica list."
    unknown = [broker for broker in replicas if broker not in view.racks]
    if unknown:
        return f"includes broker {unknown[0]}, but no such broker is registered; the brokers are {list(view.racks)}."
    if len(set(replicas)) < len(replicas):
        return f"includes a broker more than once: {list(replicas)}."
    if replication_factor is not None and len(replicas) != replication_factor:
        return (
            f"includes a partition with {len(replicas)} replica(s), but this is not consistent with previous "
            f"partitions, which have {replication_factor} replica(s)."
        )
    if not any(broker in replicas for broker in view.live_brokers):
        return f"gives a partition to {list(replicas)}; at least one of these brokers must be alive."
    return None


def initial_state(view: ClusterView, replicas: Iterable[int]) -> PartitionState:
    """Return a new partition: all live replicas are in sync, and the first of them leads."""
    placed = tuple(replicas)
    in_sync = tuple(broker for broker in placed if broker in view.live_brokers)
    return PartitionState(replicas=placed, leader=in_sync[0], leader_epoch=0, isr=in_sync)


class NewPartitions(msgspec.Struct, frozen=True):
    """The number of partitions that a topic is to have.

    `assignments` has the replicas of each added partition; None lets the controller choose the replicas.
    """

    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None


def decide_create_partitions(view: ClusterView, wanted: NewPartitions) -> TopicDocument:
    """Return the topic with the added partitions. Raises ApiError if the request is invalid."""
    topic = view.topics.get(wanted.name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{wanted.name}' does not exist.")
    present = len(topic.partitions)
    if wanted.count == present:
        message = f"Topic {wanted.name} already has {present} partition(s); the count must be larger."
        raise ApiError(ErrorCode.INVALID_PARTITIONS, message)
    if wanted.count < present:
        message = (
            f"The topic {wanted.name} currently has {present} partition(s); {wanted.count} would not be an increase."
        )
        raise ApiError(ErrorCode.INVALID_PARTITIONS, message)
    added = _added(view, topic, wanted)
    return msgspec.structs.replace(topic, partitions=(*topic.partitions, *added))


def _added(view: ClusterView, topic: TopicDocument, wanted: NewPartitions) -> list[PartitionState]:
    additional = wanted.count - len(topic.partitions)
    check_partitions_added(additional)
    if wanted.assignments is None:
        return place_added(view, topic.partitions, additional)
    if len(wanted.assignments) != additional:
        message = (
            f"Attempted to add {additional} additional partition(s), but {len(wanted.assignments)} "
            "assignment(s) were specified."
        )
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    for replicas in wanted.assignments:
        check_assignment(view, replicas, replication_factor_of(topic.partitions[0]))
    return [initial_state(view, replicas) for replicas in wanted.assignments]


def decide_delete_topic(view: ClusterView, topic: str | UUID, name_of: Callable[[UUID], str | None]) -> TopicDocument:
    """Return the topic to delete. Raises ApiError if topic deletion is disabled or no such topic exists."""
    if not view.config.delete_topic_enable:
        raise ApiError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled: delete.topic.enable=false")
    if isinstance(topic, UUID):
        found = view.topics.get(name_of(topic) or "")
        code, message = ErrorCode.UNKNOWN_TOPIC_ID, f"No topic has the id {topic}."
    else:
        found = view.topics.get(topic)
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist."
    if found is None:
        raise ApiError(code, message)
    return found
