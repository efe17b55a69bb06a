"""The configs of groups (KIP-1240): their definitions, their checks, and what is in effect in a group."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.config.definitions import (
    ConfigDefinition,
    ConfigProblem,
    ConfigType,
    InvalidConfig,
    Range,
    Synonym,
    Value,
    parse_value,
    table,
)
from barnabas_core.config.near_misses import did_you_mean

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL: Final = "consumer.assignment.interval.ms"

_NO_SUCH_GROUPS: Final[Mapping[str, str]] = {
    "share.": "share groups are not supported",
    "errors.deadletterqueue.": "share groups are not supported",
    "streams.": "streams groups are not supported",
}


def _milliseconds(name: str, default: int, low: int, documentation: str) -> ConfigDefinition:
    synonyms = (Synonym(f"group.{name}"),)
    return ConfigDefinition(name, ConfigType.INT, default, Range(low), documentation, synonyms=synonyms)


GROUP_CONFIGS: Final = table(
    _milliseconds(SESSION_TIMEOUT, 45000, 1, "The ms without a heartbeat after which a member is removed."),
    _milliseconds(HEARTBEAT_INTERVAL, 5000, 1, "The interval in ms at which members send heartbeats."),
    _milliseconds(ASSIGNMENT_INTERVAL, 0, 0, "The shortest time in ms between two assignments of the group."),
)


class GroupConfig(NamedTuple):
    """The settings in effect in one consumer group (KIP-848)."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    max_size: int
    assignors: tuple[str, ...]
    """The names of the allowed assignors; the first one is that of groups whose members name none."""
    regex_refresh_interval_ms: int
    migration_policy: str
    """One of bidirectional, upgrade, downgrade and disabled."""


def effective_group_config(overrides: Mapping[str, str], broker: BrokerConfig) -> GroupConfig:
    """Return the group's own configs, moved into the bounds of the broker, with the broker's configs as defaults."""
    values = effective_group_values(overrides, broker)
    assignors = broker.value("group.consumer.assignors")
    assert isinstance(assignors, tuple), "the value of group.consumer.assignors must be a tuple"
    return GroupConfig(
        session_timeout_ms=values[SESSION_TIMEOUT],
        heartbeat_interval_ms=values[HEARTBEAT_INTERVAL],
        assignment_interval_ms=values[ASSIGNMENT_INTERVAL],
        max_size=_number(broker.value("group.consumer.max.size")),
        assignors=assignors,
        regex_refresh_interval_ms=_number(broker.value("group.consumer.regex.refresh.interval.ms")),
        migration_policy=str(broker.value("group.consumer.migration.policy")).lower(),
    )


def effective_group_values(overrides: Mapping[str, str], broker: BrokerConfig) -> dict[str, int]:
    """Return the value of each config of GROUP_CONFIGS; stored configs that are unknown or invalid are ignored."""
    found = {}
    for name, definition in GROUP_CONFIGS.items():
        value = _number(broker.value(definition.synonyms[0].name))
        if name in overrides:
            low, high = _bounds(name, broker)
            with suppress(InvalidConfig):
                value = min(max(low, _number(parse_value(definition, overrides[name]))), high)
        found[name] = value
    return found


def group_config_problems(overrides: Mapping[str, str], broker: BrokerConfig) -> Iterator[ConfigProblem]:
    """Yield all problems of a group's configs: wrong names and values, and those outside of the broker's bounds."""
    values: dict[str, int] = {}
    for name, text in overrides.items():
        definition = GROUP_CONFIGS.get(name)
        if definition is None:
            yield ConfigProblem(name, text, no_setting_of_group(name))
            continue
        try:
            values[name] = _number(parse_value(definition, text))
        except InvalidConfig as error:
            yield from error.problems
            continue
        low, high = _bounds(name, broker)
        if not low <= values[name] <= high:
            del values[name]
            bounds = " and ".join(_bound_name(name, bound) for bound in ("min", "max"))
            yield ConfigProblem(name, text, f"must be from {low} to {high}, which {bounds} of the broker allow")
    if not values.keys().isdisjoint((SESSION_TIMEOUT, HEARTBEAT_INTERVAL)):
        session, heartbeat = (
            values.get(name, _number(broker.value(f"group.{name}"))) for name in (SESSION_TIMEOUT, HEARTBEAT_INTERVAL)
        )
        if session <= heartbeat:
            message = f"must be greater than {HEARTBEAT_INTERVAL}={heartbeat}"
            yield ConfigProblem(SESSION_TIMEOUT, str(session), message)


def no_setting_of_group(name: str) -> str:
    """Return the error message for a name that is not a config of a group."""
    for prefix, why in _NO_SUCH_GROUPS.items():
        if name.startswith(prefix):
            return f"cannot be set, because {why}"
    return f"is not a config of a group{did_you_mean(name, GROUP_CONFIGS, {})}"


def _bounds(name: str, broker: BrokerConfig) -> tuple[int, int]:
    return _number(broker.value(_bound_name(name, "min"))), _number(broker.value(_bound_name(name, "max")))


def _bound_name(name: str, bound: str) -> str:
    return f"group.consumer.{bound}.{name.removeprefix('consumer.')}"


def _number(value: Value) -> int:
    assert isinstance(value, int), "the setting is an integer"
    return value
