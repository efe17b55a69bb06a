"""The conversion of listeners.

A listener whose authentication has no counterpart is left out, because without authentication it would be open to
everyone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from barnabas_operator.planning.strimzi.section import Section, given
from barnabas_operator.planning.strimzi.templates import labels_and_annotations
from barnabas_operator.resources.json_types import JsonObject
from barnabas_operator.resources.schema_check import dotted

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
