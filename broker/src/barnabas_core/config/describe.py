"""The settings as DescribeConfigs returns them: the current value, its source, and the overridden values (KIP-226)."""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from barnabas_core.config.broker_config import BrokerConfig, unknown_definitions
from barnabas_core.config.broker_definitions import BROKER_CONFIGS
from barnabas_core.config.definitions import ConfigDefinition, ConfigType, Dynamic, Value, format_value
from barnabas_core.config.group_configs import GROUP_CONFIGS, effective_group_values
from barnabas_core.config.listeners import prefixed_definition
from barnabas_core.config.topic_configs import usable_topic_values
from barnabas_core.config.topic_definitions import TOPIC_CONFIGS
from barnabas_core.config.unused import unused_definitions

_OF_ALL: Final = "min.insync.replicas"
"""The config that DescribeConfigs always shows as a dynamic default of all brokers.

Kafka sets this dynamic default when ELR is enabled (KIP-966).
"""


class ConfigSource(IntEnum):
    """The source of a config value; the numbers are those of DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    GROUP = 8


class ConfigSynonym(NamedTuple):
    """A value of a setting, and the source of the value, such as the default.

    `name` is the name of the setting in that source, which may be a synonym. The value of a password is None.
    """

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """A setting of a broker, topic or group; its value is None if it is hidden or missing.

    The synonyms are in the order of precedence: the first one is in effect, unless its value is invalid.
    """

    name: str
    value: str | None
    source: ConfigSource
    type: ConfigType
    read_only: bool
    sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]
    documentation: str


def describe_broker(config: BrokerConfig) -> list[ConfigEntry]:
    """Return all settings of a broker, sorted by name.

    Settings without effect are included only if they were set dynamically, and settings of single listeners only if
    they are set.
    """
    dynamic = {**config.cluster_overrides, **config.broker_overrides}
    of_listeners = {
        name: definition
        for name in {**config.originals, **dynamic}
        if (definition := prefixed_definition(name)) is not None
    }
    found = {**BROKER_CONFIGS, **unused_definitions(dynamic), **unknown_definitions(dynamic), **of_listeners}
    return [_broker_entry(definition, config) for _, definition in sorted(found.items())]


def _broker_entry(definition: ConfigDefinition, config: BrokerConfig) -> ConfigEntry:
    names = definition.name, *(synonym.name for synonym in definition.synonyms)
    synonyms = tuple(_broker_synonyms(names, config))
    return _entry(
        definition,
        synonyms,
        _broker_value(definition, synonyms, config),
        read_only=definition.dynamic is Dynamic.READ_ONLY,
    )


def _broker_value(
    definition: ConfigDefinition, synonyms: tuple[ConfigSynonym, ...], config: BrokerConfig
) -> str | None:
    """Return the value that is set under the setting's own name, or else the default.

    As in Kafka, values under synonyms do not count. If only log.retention.hours is set, for example, log.retention.ms
    is described with its default.
    """
    if definition.name not in BROKER_CONFIGS:
        return synonyms[0].value
    if definition.synonyms and all(each.name != definition.name for each in synonyms):
        return format_value(definition.default)
    return format_value(config.value(definition.name))


def describe_topic(overrides: Mapping[str, str], config: BrokerConfig) -> list[ConfigEntry]:
    """Return all settings of a topic except internal ones, sorted by name, with the broker's values as defaults."""
    shown = (definition for name, definition in sorted(TOPIC_CONFIGS.items()) if not name.startswith("internal."))
    values, _ = usable_topic_values(overrides, config)
    return [
        _inheriting_entry(definition, overrides, config, values[definition.name], ConfigSource.TOPIC)
        for definition in shown
    ]


def describe_group(overrides: Mapping[str, str], config: BrokerConfig) -> list[ConfigEntry]:
    """Return all configs of a group, sorted by name, with the broker's values as defaults."""
    values = effective_group_values(overrides, config)
    return [
        _inheriting_entry(definition, overrides, config, values[name], ConfigSource.GROUP)
        for name, definition in sorted(GROUP_CONFIGS.items())
    ]


def _inheriting_entry(
    definition: ConfigDefinition,
    overrides: Mapping[str, str],
    config: BrokerConfig,
    value: Value,
    source: ConfigSource,
) -> ConfigEntry:
    """Return the ConfigEntry of a topic's or group's setting.

    `value` is the effective value, not an invalid override, and `source` the source of an override.
    """
    synonyms = tuple(_broker_synonyms(tuple(synonym.name for synonym in definition.synonyms), config))
    text = overrides.get(definition.name)
    if text is not None:
        synonyms = ConfigSynonym(definition.name, text, source), *synonyms
    return _entry(definition, synonyms, format_value(value), read_only=False)


def _entry(
    definition: ConfigDefinition, synonyms: tuple[ConfigSynonym, ...], value: str | None, *, read_only: bool
) -> ConfigEntry:
    hidden = definition.sensitive
    return ConfigEntry(
        name=definition.name,
        value=None if hidden else value,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        type=definition.type,
        read_only=read_only,
        sensitive=hidden,
        synonyms=tuple(synonym._replace(value=None) for synonym in synonyms) if hidden else synonyms,
        documentation=definition.documentation,
    )


def _broker_synonyms(names: tuple[str, ...], config: BrokerConfig) -> Iterator[ConfigSynonym]:
    """Yield the values of a broker config and its synonyms: dynamic ones first, then static ones, then the default."""
    places = (
        (ConfigSource.DYNAMIC_BROKER, config.broker_overrides),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, config.cluster_overrides),
        (ConfigSource.STATIC_BROKER, config.originals),
    )
    for source, texts in places:
        yield from (ConfigSynonym(name, texts[name], source) for name in names if name in texts)
        if source is ConfigSource.DYNAMIC_DEFAULT_BROKER and _OF_ALL in names and _OF_ALL not in texts:
            yield ConfigSynonym(_OF_ALL, format_value(config.value(_OF_ALL)), source)
    # As in Kafka, the default of the setting is listed only under its first name, and only if the default is not null.
    for name in names[:1]:
        default = format_value(BROKER_CONFIGS[name].default) if name in BROKER_CONFIGS else None
        if default is not None:
            yield ConfigSynonym(name, default, ConfigSource.DEFAULT)
