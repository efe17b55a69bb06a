"""The conversion of a KafkaUser to a User."""

from collections.abc import Mapping
from typing import Final

from barnabas_operator.planning.brokers.broker_security import ADMINISTRATOR
from barnabas_operator.planning.strimzi.manifest import StrimziResource
from barnabas_operator.planning.strimzi.section import Section, given
from barnabas_operator.resources.json_types import JsonObject
from barnabas_operator.resources.user import INTERNAL

_PROOFS: Final = {"scram-sha-512": "scram-sha-512", "tls": "tls", "tls-external": "external"}
_RIGHTS: Final = {"simple": "simple"}
_QUOTAS: Final[Mapping[str, type[float]]] = {
    "producerByteRate": int,
    "consumerByteRate": int,
    "requestPercentage": int,
    "controllerMutationRate": float,
}
_LOWEST_QUOTA: Final[Mapping[type[float], float]] = {int: 1, float: 0.01}
"""The quotas that replace 0, which blocks a user in Kafka, by type; a field that is left out would let it do all."""


def converted_user(user: StrimziResource) -> JsonObject:
    """Return the User. Its username is the name of the KafkaUser, without the `CN=` that Strimzi adds for TLS."""
    spec = user.spec
    if user.source.name == ADMINISTRATOR:
        user.source.hint(
            f"is refused by a secured Cluster, which has a user {ADMINISTRATOR} of its own, in the Secret that"
            " status.administrator names; use that user, or choose another name"
        )
    return user.as_kind(
        "User",
        given(
            cluster=user.named_cluster(),
            authentication=_authentication(spec),
            authorization=_authorization(spec.section("authorization")) if "authorization" in spec else None,
            quotas=_quotas(spec.section("quotas")),
            pause=user.is_paused or None,
        ),
    )


def _authentication(spec: Section) -> JsonObject:
    """Return the authentication of the User; its type is external if the KafkaUser declares no authentication."""
    if "authentication" not in spec:
        return {"type": "external"}
    section = spec.section("authentication")
    section.need("type", str, " or ".join(_PROOFS))
    reference = section.section("password").section("valueFrom").section("secretKeyRef")
    key = given(name=reference.take("name", str), key=reference.take("key", str))
    password = {"valueFrom": {"secretKeyRef": key}} if key else None
    return given(type=section.choice("type", _PROOFS), password=password)


def _authorization(section: Section) -> JsonObject:
    kind = section.choice("type", _RIGHTS, "simple")
    acls = [each for each in map(_acl, section.sections("acls")) if each is not None]
    return given(type=kind, acls=acls)


def _acl(section: Section) -> JsonObject | None:
    resource = section.section("resource")
    kind, name = resource.need("type", str, "topic, group, cluster or transactionalId"), resource.take("name", str)
    if kind == "topic" and name is not None and name.startswith(INTERNAL):
        resource.skip_rest()
        section.leave_out(f"a User cannot have ACLs on internal topics, whose names begin with {INTERNAL}")
        return None
    about = given(
        type=kind,
        name=name if kind != "cluster" else None,  # The cluster is a single resource without a name.
        patternType=resource.take("patternType", str) if kind != "cluster" else None,
    )
    one, several = section.take("operation", str), section.take("operations", tuple[str, ...])
    operations = several or (() if one is None else (one,))
    return given(type=section.take("type", str), resource=about, host=section.take("host", str), operations=operations)


def _quotas(section: Section) -> JsonObject:
    amounts = {name: section.take(name, kind) for name, kind in _QUOTAS.items()}
    for name, amount in amounts.items():
        if amount == 0:
            amounts[name] = lowest = _LOWEST_QUOTA[_QUOTAS[name]]
            section.note(name, f"is 0 and becomes {lowest}, the lowest; to block the user, remove the user's ACLs")
    return given(**amounts)
