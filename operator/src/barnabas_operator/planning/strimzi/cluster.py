"""The conversion of a Kafka and its KafkaNodePools to a Cluster.

The conversion of listeners. A listener whose authentication has no counterpart is left out, because without
authentication it would be open to everyone.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from barnabas_operator.planning.brokers.broker_security import OWN_USERS
from barnabas_operator.planning.cluster_state import declared_texts
from barnabas_operator.planning.strimzi.section import OPEN_ELSE, Section, StrimziResource, broker_config, given
from barnabas_operator.resources.kind import JsonObject, is_open
from barnabas_operator.resources.schema_check import dotted

NO_LIMIT: Final = "10Gi"


def storage_of(section: Section) -> JsonObject | None:
    """Return `spec.storage`, or None if the manifest has no storage or an invalid one."""
    if "type" not in section and not section.is_empty:
        section.need("type", str, " or ".join(_STORAGE_TYPES))
    volumes = section.choice("type", _STORAGE_TYPES)
    made = volumes(section) if volumes is not None else []
    return {"volumes": made} if made else None


def _of_jbod(section: Section) -> list[JsonObject]:
    made = []
    for volume in section.sections("volumes"):
        number = volume.need("id", int, "the id of the volume")
        read = volume.choice("type", _VOLUMES)
        if read is not None:
            made.append({"id": number, **read(volume)})
    return made


def _of_one_claim(section: Section) -> list[JsonObject]:
    section.skip("id")
    return [{"id": 0, **_of_claim(section)}]


def _of_one_folder(section: Section) -> list[JsonObject]:
    section.skip("id")
    return [{"id": 0, **_of_folder(section)}]


def _of_claim(volume: Section) -> JsonObject:
    volume.skip("kraftMetadata")  # Barnabas has no KRaft metadata log.
    size, storage_class = volume.need("size", str, "a size such as 10Gi"), volume.take("class", str)
    return given(size=size, storageClass=storage_class, deleteClaim=volume.take("deleteClaim", bool))


def _of_folder(volume: Section) -> JsonObject:
    """Return a volume with a claim instead of an ephemeral volume, and add a note.

    The size of the claim is the size limit of the ephemeral volume.
    """
    volume.skip("kraftMetadata")
    size = volume.take("sizeLimit", str) or NO_LIMIT
    why = (
        f"becomes a claim of {size}, because brokers keep records only on claims; the claim is deleted with the Cluster"
    )
    volume.note("type", f"is ephemeral, and {why}")
    return {"size": size, "deleteClaim": True}


_VOLUMES: Final[Mapping[str, Callable[[Section], JsonObject]]] = {
    "persistent-claim": _of_claim,
    "ephemeral": _of_folder,
}
_STORAGE_TYPES: Final[Mapping[str, Callable[[Section], list[JsonObject]]]] = {
    "jbod": _of_jbod,
    "persistent-claim": _of_one_claim,
    "ephemeral": _of_one_folder,
}


OF_POOLS: Final = ("podSet", "pod", "perPodService", "persistentVolumeClaim", "kafkaContainer")
"""The fields in the template of a Kafka resource that the template of a KafkaNodePool replaces."""

_POD: Final = {
    "imagePullSecrets": tuple[dict[str, Any], ...],
    "securityContext": dict[str, Any],
    "terminationGracePeriodSeconds": int,
    "affinity": dict[str, Any],
    "tolerations": tuple[dict[str, Any], ...],
    "topologySpreadConstraints": tuple[dict[str, Any], ...],
    "priorityClassName": str,
    "schedulerName": str,
    "hostAliases": tuple[dict[str, Any], ...],
    "dnsPolicy": str,
    "dnsConfig": dict[str, Any],
    "enableServiceLinks": bool,
    "volumes": tuple[dict[str, Any], ...],
}
_CONTAINER: Final = {
    "env": tuple[dict[str, Any], ...],
    "securityContext": dict[str, Any],
    "volumeMounts": tuple[dict[str, Any], ...],
}
_SERVICE: Final = {"ipFamilyPolicy": str, "ipFamilies": tuple[str, ...]}
_BUDGET: Final = {"maxUnavailable": int}


def cluster_template(kafka: Section, pool: Section | None, labels: dict[str, str], probes: JsonObject) -> JsonObject:
    """Return `spec.template`; `pool` is the template of the node pool, or None."""
    one = pool if pool is not None else kafka
    return given(
        metadata=given(labels=labels),
        statefulSet=metadata_of(one, "podSet"),
        pod=pod_of(one),
        brokerContainer={**probes, **container_of(one, "kafkaContainer")},
        persistentVolumeClaim=metadata_of(one, "persistentVolumeClaim"),
        brokersService=_with_spec(kafka, "brokersService", _SERVICE),
        bootstrapService=_with_spec(kafka, "bootstrapService", _SERVICE),
        serviceAccount=metadata_of(kafka, "serviceAccount"),
        podDisruptionBudget=_with_spec(kafka, "podDisruptionBudget", _BUDGET),
    )


def pod_of(template: Section) -> JsonObject:
    """Return the template of pods, converted from the entry `pod` of a Strimzi template."""
    return _with_spec(template, "pod", _POD)


def container_of(template: Section, name: str) -> JsonObject:
    """Return the template of a container, converted from the entry `name` of a Strimzi template."""
    return _taken(template.section(name), _CONTAINER)


def metadata_of(template: Section, name: str) -> JsonObject:
    """Return a template that has only the labels and annotations of the entry `name` of a Strimzi template."""
    return _with_spec(template, name, {})


def labels_and_annotations(section: Section) -> JsonObject:
    """Return the fields `labels` and `annotations` of a section."""
    labels, annotations = section.take("labels", dict[str, str]), section.take("annotations", dict[str, str])
    return given(labels=labels, annotations=annotations)


def _with_spec(template: Section, name: str, fields: dict[str, Any]) -> JsonObject:
    if name not in template:
        return {}
    entry = template.section(name)
    metadata = labels_and_annotations(entry.section("metadata"))
    return given(metadata=metadata, spec=_taken(entry, fields))


def _taken(section: Section, fields: dict[str, Any]) -> JsonObject:
    return given(**{name: section.take(name, kind) for name, kind in fields.items()})


_TYPES: Final[Mapping[str, str | None]] = {
    "internal": "internal",
    "cluster-ip": "internal",
    "nodeport": "nodeport",
    "loadbalancer": "loadbalancer",
    "ingress": None,
    "route": None,
}
_PROOFS: Final = ("tls", "scram-sha-512")
_PLAIN: Final = "plain"
_OF_SERVICES: Final[Mapping[str, Any]] = {
    "externalTrafficPolicy": str,
    "loadBalancerSourceRanges": tuple[str, ...],
    "ipFamilyPolicy": str,
    "ipFamilies": tuple[str, ...],
}


@dataclass(frozen=True, slots=True)
class ListenerContext:
    """The properties of a Kafka resource that the conversion of its listeners needs.

    `bootstrap_metadata` and `broker_metadata` are labels and annotations for Services.
    """

    brokers: int
    is_authorized: bool
    bootstrap_metadata: JsonObject
    broker_metadata: JsonObject


def listeners_of(kafka: Section, context: ListenerContext) -> list[JsonObject]:
    """Return `spec.listeners`, and add an error if no listener can be converted."""
    found = kafka.sections("listeners")
    reasons = [_why_not(section, context) for section in found]
    for section, why in zip(found, reasons, strict=True):
        if why is not None:
            section.leave_out(why)
    if found and all(reasons):
        path = (*kafka.path, "listeners")
        allowed = f"the first listener has this problem: {reasons[0]}"
        kafka.source.error(path, f"{dotted(path)} has no listener that can be converted; {allowed}")
    return [_listener(section, context) for section, why in zip(found, reasons, strict=True) if why is None]


def _listener(section: Section, context: ListenerContext) -> JsonObject:
    proof, proof_type = section.section("authentication"), _proof_type(section)
    proof.skip("type")
    if proof_type == _PLAIN:
        proof.skip_rest()
        users = "make a User of type scram-sha-512 for each user of the JAAS configuration"
        section.note(
            "authentication", f"has type custom and the mechanism PLAIN, and is converted to type plain; {users}"
        )
    kind = section.choice("type", _TYPES, "internal")
    if section.take("type", str) == "cluster-ip":
        section.note("type", "is cluster-ip, and becomes internal, because pods connect to each broker by its DNS name")
    port = section.need("port", int, "a port such as 9092")
    return given(
        name=section.need("name", str, "a name such as plain"),
        port=port,
        type=kind,
        tls=section.take("tls", bool) or None,
        authentication=given(type=proof_type),
        **_access(section.section("configuration"), kind, port, context),
        networkPolicyPeers=section.take("networkPolicyPeers", tuple[dict[str, Any], ...]),
    )


def _why_not(section: Section, context: ListenerContext) -> str | None:
    """Return why a listener cannot be converted, or None if it can be converted."""
    kind, word = section.take("type", str), _proof_type(section)
    if kind is not None and _TYPES.get(kind, kind) is None:
        return f"the type {kind} has no counterpart in Barnabas; use nodeport or loadbalancer"
    if word == _PLAIN:
        return None if section.take("tls", bool) else "PLAIN sends passwords in clear without TLS; set tls: true"
    if word is not None and word not in _PROOFS:
        return f"the authentication {word} has no counterpart in Barnabas; use {' or '.join(_PROOFS)}"
    if word is None and context.is_authorized:
        return f"with authorization each listener needs authentication; use {' or '.join(_PROOFS)}"
    return None


def _proof_type(section: Section) -> str | None:
    """Return the type of a listener's authentication, or plain if it is custom and allows only the mechanism PLAIN."""
    proof = section.take("authentication", dict[str, Any]) or {}
    config = proof.get("listenerConfig")
    mechanisms = config.get("sasl.enabled.mechanisms") if isinstance(config, Mapping) else None
    is_plain = proof.get("type") == "custom" and proof.get("sasl") is True and str(mechanisms).upper() == "PLAIN"
    return _PLAIN if is_plain else proof.get("type")


def _access(configuration: Section, kind: str | None, port: int | None, context: ListenerContext) -> JsonObject:
    """Return the settings for external clients, or nothing for an internal listener."""
    if kind in (None, "internal"):
        return {}
    common = given(
        **{name: configuration.take(name, type_) for name, type_ in _OF_SERVICES.items()},
        loadBalancerClass=configuration.take("class", str),
    )
    brokers = [each for each in configuration.sections("brokers") if _is_there(each, context)]
    bootstrap = _service(configuration.section("bootstrap"), port, context.bootstrap_metadata)
    services = [{"brokerId": each.take("broker", int), **_service(each, port, {})} for each in brokers]
    template = given(
        bootstrapService=given(**{**bootstrap, "spec": {**common, **bootstrap.get("spec", {})}}),
        brokerService=given(metadata=context.broker_metadata, spec=common),
        brokerServices=[each for each in services if len(each) > 1],
    )
    address_type = configuration.take("preferredNodePortAddressType", str)
    return given(
        advertisedHost=_advertised(brokers, kind, context),
        preferredNodePortAddressType=address_type,
        template=template,
    )


def _is_there(broker: Section, context: ListenerContext) -> bool:
    number = broker.need("broker", int, "the id of a broker")
    if number is not None and number >= context.brokers:
        broker.leave_out(f"broker ids are 0 to {context.brokers - 1}; use one of these ids for the settings")
        return False
    return True


def _advertised(brokers: list[Section], kind: str | None, context: ListenerContext) -> str | None:
    """Return the advertised host that all brokers can share.

    If they cannot share one, add a note about each advertised host that is left out, and return None.
    """
    hosts = {each.take("advertisedHost", str) for each in brokers}
    if len(hosts) == 1 and (kind == "nodeport" or context.brokers == 1):
        return hosts.pop()
    for each in brokers:
        if "advertisedHost" in each:
            each.note("advertisedHost", "is left out: a nodeport listener has one advertisedHost for all brokers")
    return None


def _service(section: Section, port: int | None, metadata: JsonObject) -> JsonObject:
    """Return the template of a Service; `section` is the configuration of a listener's bootstrap or of one broker."""
    own, node_port = labels_and_annotations(section), section.take("nodePort", int)
    both = {name: {**metadata.get(name, {}), **own.get(name, {})} for name in ("labels", "annotations")}
    spec = given(
        ports=[{"port": port, "nodePort": node_port}] if node_port is not None else None,
        loadBalancerIP=section.take("loadBalancerIP", str),
        externalIPs=section.take("externalIPs", tuple[str, ...]),
    )
    return given(metadata=given(**both), spec=spec)


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
