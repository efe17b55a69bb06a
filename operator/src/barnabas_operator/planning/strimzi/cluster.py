"""The conversion of a Kafka and its KafkaNodePools to a Cluster."""

import re
from collections.abc import Sequence
from typing import Any, Final

from barnabas_operator.planning.brokers.broker_security import OWN_USERS
from barnabas_operator.planning.configs import declared_texts
from barnabas_operator.planning.strimzi.configs import OPEN_ELSE, broker_config
from barnabas_operator.planning.strimzi.listeners import ListenerContext, listeners_of
from barnabas_operator.planning.strimzi.manifest import StrimziResource
from barnabas_operator.planning.strimzi.section import Section, given
from barnabas_operator.planning.strimzi.storage import storage_of
from barnabas_operator.planning.strimzi.templates import (
    OF_POOLS,
    cluster_template,
    container_of,
    metadata_of,
    pod_of,
)
from barnabas_operator.resources.cluster_security import is_open
from barnabas_operator.resources.json_types import JsonObject

_RIGHTS: Final = ("simple", "opa", "keycloak", "custom")
_USER: Final = re.compile(r"(?:CN=)?([A-Za-z0-9](?:[-A-Za-z0-9._]{0,62}[A-Za-z0-9])?)")
"""A super user in Strimzi's form, with or without `CN=`. In Barnabas, the name has no `CN=`."""
_PROBES: Final = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_EXPRESSIONS: Final = ("groupRegex", "topicRegex", "groupExcludeRegex", "topicExcludeRegex")
_ALIKE: Final = "all brokers of a Cluster get the settings of the KafkaNodePool {}"


def converted_cluster(kafka: StrimziResource, pools: Sequence[StrimziResource]) -> JsonObject:
    """Return the Cluster for a Kafka resource and its KafkaNodePools, whose `source` collects notes and errors."""
    spec = kafka.spec.section("kafka")
    with_brokers = [pool for pool in pools if _has_brokers(pool)]
    first = with_brokers[0].spec if with_brokers else spec
    replicas = sum(_replicas(each) for each in ([pool.spec for pool in with_brokers] or [spec]))
    _say_of_others(with_brokers[1:], with_brokers[0].source.name if with_brokers else "")
    template, pool_template = spec.section("template"), _template_of_pool(first, spec)
    config = broker_config(spec)
    open_else = declared_texts(config).get(OPEN_ELSE) == "true"
    authorization = _authorization(spec, open_else)
    context = ListenerContext(
        brokers=replicas,
        is_authorized=bool(authorization),
        bootstrap_metadata=metadata_of(template, "externalBootstrapService").get("metadata", {}),
        broker_metadata=metadata_of(pool_template or template, "perPodService").get("metadata", {}),
    )
    listeners = listeners_of(spec, context)
    return kafka.as_kind(
        "Cluster",
        given(
            brokers=given(replicas=replicas, resources=_resources(first, spec), rack=_rack(spec)),
            storage=storage_of(first.section("storage")) if "storage" in first else None,
            clusterCa=_given_authority(kafka.spec, "clusterCa"),
            clientsCa=_given_authority(kafka.spec, "clientsCa"),
            insecure=any(map(is_open, listeners)) or None,
            listeners=listeners,
            authorization=authorization,
            config={name: value for name, value in config.items() if name != OPEN_ELSE},
            template=cluster_template(template, pool_template, kafka.own_labels, _probes(spec)),
            pause=kafka.is_paused or None,
        )
        | _lag_exporter(kafka.spec),
    )


def _has_brokers(pool: StrimziResource) -> bool:
    roles = pool.spec.take("roles", tuple[str, ...])
    if roles is None or "broker" in roles:
        return True
    pool.spec.skip_rest()
    pool.source.hint("is left out: the pool has only controllers, which Barnabas does not need")
    return False


def _replicas(spec: Section) -> int:
    return (
        spec.need(
            "replicas", int, "the number of brokers, or a KafkaNodePool whose label strimzi.io/cluster names this Kafka"
        )
        or 0
    )


def _say_of_others(pools: Sequence[StrimziResource], first: str) -> None:
    """Add a note to each node pool except the first, because all brokers get the settings of the first node pool."""
    for pool in pools:
        pool.spec.skip_rest()
        pool.source.hint(f"only the field replicas is converted, because {_ALIKE.format(first)}")


def _template_of_pool(first: Section, spec: Section) -> Section | None:
    """Return the template of the KafkaNodePool, or None if it has none.

    If there is one, the fields `OF_POOLS` in the template of the Kafka resource are ignored without a note.
    """
    if first is spec or "template" not in first:
        return None
    spec.section("template").skip(*OF_POOLS)
    return first.section("template")


def _resources(first: Section, spec: Section) -> JsonObject:
    section = (first if "resources" in first else spec).section("resources")
    return given(requests=section.take("requests", dict[str, Any]), limits=section.take("limits", dict[str, Any]))


def _rack(spec: Section) -> JsonObject | None:
    rack = spec.section("rack")
    key = rack.take("topologyKey", str)
    return {"topologyKey": key} if key is not None else None


def _given_authority(spec: Section, name: str) -> JsonObject | None:
    """Return the declaration of an authority that the user provides, in Secrets of the names that Strimzi uses, too."""
    generates = spec.section(name).take("generateCertificateAuthority", bool)
    return {"generateCertificateAuthority": False} if generates is False else None


def _authorization(spec: Section, open_else: bool) -> JsonObject | None:
    """Return the Cluster's authorization, or None if the Kafka resource has none.

    Every authorization type in Strimzi becomes `simple`, so that the conversion leaves no Cluster unprotected.
    """
    if "authorization" not in spec:
        return None
    section = spec.section("authorization")
    kind = section.choice("type", {name: name for name in _RIGHTS})
    users = [_super_user(section, index, name) for index, name in enumerate(_super_users(section))]
    if kind not in (None, "simple"):
        section.note("type", f"is {kind}, and becomes simple; without ACLs, only super users have any rights")
    return given(
        type="simple", superUsers=[name for name in users if name], allowEveryoneIfNoAclFound=open_else or None
    )


def _super_users(section: Section) -> Sequence[str]:
    return section.take("superUsers", tuple[str, ...]) or ()


def _super_user(section: Section, index: int, written: str) -> str | None:
    found = _USER.fullmatch(written)
    if found is None or found[1] in OWN_USERS:
        path = (*section.path, "superUsers", index)
        section.source.note(path, f"is {written}, and is left out, because the name is not valid in Barnabas")
        return None
    return found[1]


def _probes(spec: Section) -> JsonObject:
    made = {}
    for name in ("livenessProbe", "readinessProbe"):
        probe = spec.section(name)
        made[name] = given(**{field: probe.take(field, int) for field in _PROBES})
    return given(**made)


def _lag_exporter(spec: Section) -> JsonObject:
    """Return `lagExporter` if the Kafka has `kafkaExporter`, even if that is an empty mapping."""
    if "kafkaExporter" not in spec:
        return {}
    section = spec.section("kafkaExporter")
    resources, template = section.section("resources"), section.section("template")
    amounts = {name: resources.take(name, dict[str, Any]) for name in ("requests", "limits")}
    objects = given(
        deployment=metadata_of(template, "deployment"),
        pod=pod_of(template),
        container=container_of(template, "container"),
    )
    expressions = {name: section.take(name, str) for name in _EXPRESSIONS}
    return {"lagExporter": given(**expressions, resources=given(**amounts), template=objects)}
