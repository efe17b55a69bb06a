"""The conversion of broker and topic configs; configs without effect in Barnabas become notes."""

from typing import Final

from barnabas_core.config.broker_config import parse_broker_config, unused_settings
from barnabas_core.config.definitions import InvalidConfig
from barnabas_operator.planning.brokers.local_properties import OWNED_BY
from barnabas_operator.planning.configs import config_problems, declared_texts
from barnabas_operator.planning.strimzi.section import Section
from barnabas_operator.resources.json_types import JsonObject
from barnabas_operator.resources.topic import ConfigValue

OPEN_ELSE: Final = "allow.everyone.if.no.acl.found"
"""The broker setting for which a Cluster has a field in `spec.authorization`."""
_OF_LISTENERS: Final = ("ssl.", "sasl.", "listener.name.")


def broker_config(kafka: Section) -> JsonObject:
    """Return `spec.config` of a Cluster, in which `allow.everyone.if.no.acl.found` may still be set.

    The caller must move this setting to `spec.authorization`, where a Cluster has a field for it.
    """
    config = kafka.take("config", dict[str, ConfigValue]) or {}
    kept = {name: value for name, value in config.items() if not _is_useless(kafka, name)}
    for name, problem in _problems(kept).items():
        kafka.source.note((*kafka.path, "config", name), f"is left out: {problem}")
        kept.pop(name, None)
    return kept


def topic_config(spec: Section) -> JsonObject:
    """Return `spec.config` of a Topic, and add a note about each invalid config, which is left out."""
    config = spec.take("config", dict[str, ConfigValue]) or {}
    problems = {name: config_problems({name: value}) for name, value in config.items()}
    for name, found in problems.items():
        if found:
            spec.source.note((*spec.path, "config", name), f"is left out: {'; '.join(found)}")
    return {name: value for name, value in config.items() if not problems[name]}


def _is_useless(kafka: Section, name: str) -> bool:
    owner = "spec.listeners" if name.startswith(_OF_LISTENERS) else OWNED_BY.get(name)
    why = (
        f"the setting comes from {owner}"
        if owner is not None
        else "; ".join(f"it {each.removeprefix(name).strip()}" for each in unused_settings([name]))
    )
    if why:
        kafka.source.note((*kafka.path, "config", name), f"is left out: {why}")
    return bool(why)


def _problems(config: dict[str, ConfigValue]) -> dict[str, str]:
    try:
        parse_broker_config(declared_texts(config))
    except InvalidConfig as error:
        return {problem.name: str(problem) for problem in error.problems}
    return {}
