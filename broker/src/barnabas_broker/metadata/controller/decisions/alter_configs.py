"""The decisions on changes of dynamic configs, by IncrementalAlterConfigs (KIP-339) or AlterConfigs."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from barnabas_broker.metadata.controller.decisions.cluster_view import ClusterView
from barnabas_broker.metadata.controller.decisions.partition_rules import MIN_ISR
from barnabas_broker.metadata.documents import ALL_BROKERS
from barnabas_broker.metadata.model import TopicDocument
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


class ConfigResource(NamedTuple):
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


@dataclass(frozen=True, slots=True)
class ConfigChange:
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
