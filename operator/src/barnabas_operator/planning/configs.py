"""The comparison of a topic's declared configs with the configs that are set on the topic."""

from collections.abc import Mapping
from typing import Final

from barnabas_core.config.broker_config import parse_broker_config
from barnabas_core.config.definitions import InvalidConfig, Value, parse_value
from barnabas_core.config.topic_configs import check_topic_configs, no_setting
from barnabas_core.config.topic_definitions import TOPIC_CONFIGS
from barnabas_operator.resources.topic import ConfigValue

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


def config_changes(config: Mapping[str, ConfigValue], overrides: Mapping[str, str]) -> dict[str, str | None]:
    """Return the changes that give the topic its declared config: a text to set, or None to reset to the default.

    A config that is not declared is reset to its default. A config that is declared as null is not changed, and neither
    are the throttle configs unless they are declared.
    """
    wanted = declared_texts(config)
    changes: dict[str, str | None] = {
        name: text for name, text in wanted.items() if name not in overrides or not _same(name, text, overrides[name])
    }
    changes |= {name: None for name in overrides if name not in config and name not in THROTTLED}
    return changes


def _same(name: str, wanted: str, found: str) -> bool:
    return wanted == found or _value(name, wanted) == _value(name, found)


def _value(name: str, text: str) -> Value:
    try:
        return parse_value(TOPIC_CONFIGS[name], text)
    except (KeyError, InvalidConfig):
        return text
