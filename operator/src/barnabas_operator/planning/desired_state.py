"""Resources that are declared in files, with the metadata and status that the API server would keep for them."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from barnabas_core.config.broker_config import parse_broker_config
from barnabas_core.config.definitions import ConfigDefinition, InvalidConfig, Value, parse_value
from barnabas_core.config.group_configs import GROUP_CONFIGS, no_setting_of_group
from barnabas_core.config.topic_configs import check_topic_configs, no_setting
from barnabas_core.config.topic_definitions import TOPIC_CONFIGS
from barnabas_operator.planning.rebalance_request import NamedRebalance, named_rebalance, named_run
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.consumer_group import ConsumerGroup
from barnabas_operator.resources.kind import Resource
from barnabas_operator.resources.topic import ConfigValue, Topic
from barnabas_operator.resources.user import User
from barnabas_operator.resources.yaml_documents import Manifests, ResourceT


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
        meta = replace(resource.metadata, uid=new_uid(), creation_timestamp=now, generation=1)
        return replace(resource, metadata=meta, status=None)
    old = before.metadata
    generation = (old.generation or 0) + (resource.spec != before.spec)
    meta = replace(resource.metadata, uid=old.uid, creation_timestamp=old.creation_timestamp, generation=generation)
    return replace(resource, metadata=meta, status=before.status)


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
