"""The configs of groups (KIP-1240): their definitions, their checks, and what is in effect in a group."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.config.definitions import (
    ConfigDefinition,
    ConfigProblem,
    ConfigType,
    InvalidConfig,
    OneOf,
    Pattern,
    Range,
    Synonym,
    Value,
    did_you_mean,
    parse_value,
    table,
)

_NO_SUCH_GROUPS: Final[Mapping[str, str]] = {"streams.": "streams groups are not supported"}
_RESETS: Final = ("latest", "earliest")
_BY_DURATION: Final = "by_duration:"
_DIGITS: Final = "([-+]?[0-9]{1,15})"
_DURATION: Final = re.compile(
    rf"([-+]?)P(?=.)(?:{_DIGITS}D)?(?:T(?=.)(?:{_DIGITS}H)?(?:{_DIGITS}M)?(?:{_DIGITS}(?:[.,]([0-9]{{0,9}}))?S)?)?",
    re.IGNORECASE,
)
_UNITS_MS: Final = (86_400_000, 3_600_000, 60_000, 1000)


class OffsetReset(NamedTuple):
    """The place where a share group begins in a partition: latest, earliest, or by_duration, a time ago."""

    strategy: str
    duration_ms: int = 0


def parse_offset_reset(text: str) -> OffsetReset:
    """Return the strategy that a text names, such as `latest` or `by_duration:PT1H`. Raises ValueError."""
    if text in _RESETS:
        return OffsetReset(text)
    if not text.startswith(_BY_DURATION):
        raise ValueError(text)
    return OffsetReset(_BY_DURATION[:-1], _duration_ms(text.removeprefix(_BY_DURATION)))


def _duration_ms(text: str) -> int:
    """Return a duration of ISO 8601 in milliseconds; as in Java, each number may have a sign. Raises ValueError."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(text)
    sign, *numbers, fraction = found.groups()
    milliseconds = sum(int(number or 0) * unit for number, unit in zip(numbers, _UNITS_MS, strict=True))
    part = int(f"{fraction or ''}000"[:3])
    milliseconds += -part if (numbers[-1] or "").startswith("-") else part
    milliseconds *= -1 if sign == "-" else 1
    if milliseconds < 0:
        raise ValueError(text)
    return milliseconds


class _OffsetResetCheck:
    """A check of a text that names a strategy."""

    allowed: Final = "latest, earliest or by_duration: with a duration, such as by_duration:PT1H30M or by_duration:P7D"

    def accepts(self, value: Value) -> bool:
        """True if the value is valid."""
        try:
            return isinstance(value, str) and bool(parse_offset_reset(value))
        except ValueError:
            return False


def _bounded(name: str, default: int, low: int, documentation: str) -> ConfigDefinition:
    """Return the definition of a config with a default and bounds in the configs of the broker."""
    synonyms = (Synonym(f"group.{name}"),)
    return ConfigDefinition(name, ConfigType.INT, default, Range(low), documentation, synonyms=synonyms)


_SHARE_DELIVERY: Final = (
    _bounded(
        "share.record.lock.duration.ms", 30000, 1000, "The ms for which a delivered record is locked for its member."
    ),
    _bounded(
        "share.delivery.count.limit", 5, 2, "The deliveries after which a record without acknowledgement is archived."
    ),
    _bounded("share.partition.max.record.locks", 2000, 100, "The maximum number of records in flight in a partition."),
    ConfigDefinition(
        "share.auto.offset.reset",
        ConfigType.STRING,
        "latest",
        _OffsetResetCheck(),
        "The place where a share group begins in a partition that it has not read yet.",
    ),
    ConfigDefinition(
        "share.isolation.level",
        ConfigType.STRING,
        "read_uncommitted",
        OneOf(("read_committed", "read_uncommitted")),
        "Whether a share group gets records of aborted and open transactions.",
    ),
    ConfigDefinition(
        "share.renew.acknowledge.enable",
        ConfigType.BOOLEAN,
        True,
        None,
        "Whether members may renew the lock of a record by an acknowledgement of type RENEW.",
    ),
    ConfigDefinition(
        "errors.deadletterqueue.topic.name",
        ConfigType.STRING,
        "",
        Pattern(r"(?!__)[a-zA-Z0-9._-]{0,249}", "the name of a topic that does not begin with __, or empty"),
        "The topic for records that a share group rejects or cannot process; empty for none.",
    ),
    ConfigDefinition(
        "errors.deadletterqueue.copy.record.enable",
        ConfigType.BOOLEAN,
        False,
        None,
        "Whether a dead letter has key, value and headers of its record.",
    ),
)

GROUP_CONFIGS: Final = table(
    _bounded("consumer.session.timeout.ms", 45000, 1, "The ms without a heartbeat after which a member is removed."),
    _bounded("consumer.heartbeat.interval.ms", 5000, 1, "The interval in ms at which members send heartbeats."),
    _bounded("consumer.assignment.interval.ms", 0, 0, "The shortest time in ms between two assignments of the group."),
    _bounded("share.session.timeout.ms", 45000, 1, "The ms without a heartbeat after which a member is removed."),
    _bounded("share.heartbeat.interval.ms", 5000, 1, "The interval in ms at which members send heartbeats."),
    _bounded("share.assignment.interval.ms", 0, 0, "The shortest time in ms between two assignments of the group."),
    *_SHARE_DELIVERY,
)


class MemberConfig(msgspec.Struct):
    """The settings that consumer groups and share groups have in common."""

    session_timeout_ms: int
    """The time without a heartbeat after which a member is removed."""
    heartbeat_interval_ms: int
    """The interval at which members send heartbeats."""
    assignment_interval_ms: int
    """The shortest time between two assignments."""
    max_size: int
    """The maximum number of members."""
    assignors: tuple[str, ...]
    """The names of the allowed assignors; the first one is that of groups whose members name none."""


class GroupConfig(MemberConfig):
    """The settings in effect in one consumer group (KIP-848)."""

    regex_refresh_interval_ms: int
    migration_policy: str
    """One of bidirectional, upgrade, downgrade and disabled."""


class ShareGroupConfig(MemberConfig):
    """The settings in effect in one share group (KIP-932), its dead letters included."""

    record_lock_duration_ms: int
    delivery_count_limit: int
    partition_max_record_locks: int
    auto_offset_reset: OffsetReset
    is_read_committed: bool
    may_renew: bool
    dead_letter_topic: str
    """The name of the topic for dead letters; empty for none."""
    copies_dead_letters: bool
    """True if a dead letter has key, value and headers of its record."""


def effective_group_config(overrides: Mapping[str, str], broker: BrokerConfig) -> GroupConfig:
    """Return the group's own configs, moved into the bounds of the broker, with the broker's configs as defaults."""
    return GroupConfig(
        *_of_members("consumer", overrides, broker),
        regex_refresh_interval_ms=_number(broker.value("group.consumer.regex.refresh.interval.ms")),
        migration_policy=str(broker.value("group.consumer.migration.policy")).lower(),
    )


def effective_share_config(overrides: Mapping[str, str], broker: BrokerConfig) -> ShareGroupConfig:
    """Return the configs of a share group, moved into the bounds of the broker, with the broker's as defaults."""
    values = {name: _effective(name, overrides, broker) for name in (each.name for each in _SHARE_DELIVERY)}
    return ShareGroupConfig(
        *_of_members("share", overrides, broker),
        record_lock_duration_ms=_number(values["share.record.lock.duration.ms"]),
        delivery_count_limit=_number(values["share.delivery.count.limit"]),
        partition_max_record_locks=_number(values["share.partition.max.record.locks"]),
        auto_offset_reset=parse_offset_reset(str(values["share.auto.offset.reset"])),
        is_read_committed=values["share.isolation.level"] == "read_committed",
        may_renew=bool(values["share.renew.acknowledge.enable"]),
        dead_letter_topic=str(values["errors.deadletterqueue.topic.name"]),
        copies_dead_letters=bool(values["errors.deadletterqueue.copy.record.enable"]),
    )


def _of_members(
    protocol: str, overrides: Mapping[str, str], broker: BrokerConfig
) -> tuple[int, int, int, int, tuple[str, ...]]:
    """Return the settings of a MemberConfig, in order."""
    names = ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
    session, heartbeat, assignment = (_number(_effective(f"{protocol}.{name}", overrides, broker)) for name in names)
    assignors = broker.value(f"group.{protocol}.assignors")
    assert isinstance(assignors, tuple), "the value of a list is a tuple"
    return session, heartbeat, assignment, _number(broker.value(f"group.{protocol}.max.size")), assignors


def effective_group_values(overrides: Mapping[str, str], broker: BrokerConfig) -> dict[str, Value]:
    """Return the value of each config of GROUP_CONFIGS; stored configs that are unknown or invalid are ignored."""
    return {name: _effective(name, overrides, broker) for name in GROUP_CONFIGS}


def _effective(name: str, overrides: Mapping[str, str], broker: BrokerConfig) -> Value:
    definition = GROUP_CONFIGS[name]
    value = broker.value(definition.synonyms[0].name) if definition.synonyms else definition.default
    if name in overrides:
        with suppress(InvalidConfig):
            value = parse_value(definition, overrides[name])
            if definition.synonyms:
                low, high = _bounds(name, broker)
                value = min(max(low, _number(value)), high)
    return value


def group_config_problems(overrides: Mapping[str, str], broker: BrokerConfig) -> Iterator[ConfigProblem]:
    """Yield all problems of a group's configs: wrong names and values, and those outside of the broker's bounds."""
    values: dict[str, Value] = {}
    for name, text in overrides.items():
        definition = GROUP_CONFIGS.get(name)
        if definition is None:
            yield ConfigProblem(name, text, no_setting_of_group(name))
            continue
        try:
            value = parse_value(definition, text)
        except InvalidConfig as error:
            yield from error.problems
            continue
        if definition.synonyms:
            low, high = _bounds(name, broker)
            if not low <= _number(value) <= high:
                bounds = " and ".join(_bound_name(name, bound) for bound in ("min", "max"))
                yield ConfigProblem(name, text, f"must be from {low} to {high}, which {bounds} of the broker allow")
                continue
        values[name] = value
    for protocol in ("consumer", "share"):
        yield from _session_problems(protocol, values, broker)


def _session_problems(protocol: str, values: Mapping[str, Value], broker: BrokerConfig) -> Iterator[ConfigProblem]:
    """Yield a problem if the session is not longer than the heartbeat interval, and one of them is set."""
    names = f"{protocol}.session.timeout.ms", f"{protocol}.heartbeat.interval.ms"
    if not values.keys().isdisjoint(names):
        session, heartbeat = (_number(values.get(name, broker.value(f"group.{name}"))) for name in names)
        if session <= heartbeat:
            yield ConfigProblem(names[0], str(session), f"must be greater than {names[1]}={heartbeat}")


def no_setting_of_group(name: str) -> str:
    """Return the error message for a name that is not a config of a group."""
    for prefix, why in _NO_SUCH_GROUPS.items():
        if name.startswith(prefix):
            return f"cannot be set, because {why}"
    return f"is not a config of a group{did_you_mean(name, GROUP_CONFIGS, {})}"


def _bounds(name: str, broker: BrokerConfig) -> tuple[int, int]:
    return _number(broker.value(_bound_name(name, "min"))), _number(broker.value(_bound_name(name, "max")))


def _bound_name(name: str, bound: str) -> str:
    protocol, _, rest = name.partition(".")
    return f"group.{protocol}.{bound}.{rest}"


def _number(value: Value) -> int:
    assert isinstance(value, int), "the setting is an integer"
    return value
