"""The conversion of Strimzi's manifests, with notes about fields that have no counterpart."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from barnabas_core.topic_partition import is_internal
from barnabas_operator.planning.admission import AdmissionContext, Verdict
from barnabas_operator.planning.brokers.broker_security import ADMINISTRATOR
from barnabas_operator.planning.rules_of_kinds import review
from barnabas_operator.planning.strimzi.cluster import converted_cluster
from barnabas_operator.planning.strimzi.section import (
    OTHER_KINDS,
    Remark,
    Section,
    Source,
    StrimziResource,
    given,
    read_resource,
    topic_config,
)
from barnabas_operator.resources.cluster_kind import KINDS
from barnabas_operator.resources.kind import JsonObject
from barnabas_operator.resources.schema_check import Path, dotted, findings, shown
from barnabas_operator.resources.user import INTERNAL
from barnabas_operator.resources.yaml_documents import Document, ManifestError, Place, yaml_documents, yaml_parts

_OF_STRIMZI: Final = ("__strimzi", "strimzi-store-topic", "strimzi-topic-operator")
DELETE: Final = "Delete"
"""The deletion policy that matches Strimzi, which deletes a topic with its resource."""


def converted_topic(topic: StrimziResource) -> JsonObject | None:
    """Return the Topic, or None for an internal topic of brokers or operator."""
    spec = topic.spec
    name = spec.take("topicName", str)
    kafkas_name = name or topic.source.name
    if is_internal(kafkas_name) or kafkas_name.startswith(_OF_STRIMZI):
        spec.skip_rest()
        topic.source.hint(f"is left out: only brokers or the operator create the topic {kafkas_name}")
        return None
    return topic.as_kind(
        "Topic",
        given(
            cluster=topic.named_cluster(),
            topicName=name,
            partitions=spec.take("partitions", int),
            replicas=spec.take("replicas", int),
            config=topic_config(spec),
            deletionPolicy=DELETE,
            pause=topic.is_paused or None,
        ),
    )


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


GROUP: Final = "kafka.strimzi.io"
VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
KINDS_READ: Final = ("Kafka", "KafkaNodePool", "KafkaTopic", "KafkaUser")


def read_sources(file: str, text: str) -> Iterator[Source | Remark]:
    """Yield a `Source` for each resource in a YAML text, in order, and a `Remark` for each document without one."""
    empty = True
    for first_line, part in yaml_parts(text):
        for document in yaml_documents(part):
            empty = False
            if isinstance(document, ManifestError):
                yield Remark(document.place.within(file, first_line), document.message)
            else:
                yield from _sources(file, first_line, document)
    if empty:
        yield Remark(
            Place(file, 1, 1), f"the file holds no resource; allowed: resources of kind {', '.join(KINDS_READ)}"
        )


def _sources(file: str, first_line: int, document: Document) -> Iterator[Source | Remark]:
    for root, fields in _resources(document.plain):
        where = document.place(root).within(file, first_line)
        if not isinstance(fields, Mapping):
            yield Remark(
                where, f"{dotted(root)} is {shown(fields)}; allowed: a mapping with apiVersion, kind, metadata"
            )
            continue
        metadata = fields.get("metadata")
        name = metadata.get("name") if isinstance(metadata, Mapping) else None
        if isinstance(name, str) and isinstance(fields.get("kind"), str):
            yield Source(fields["kind"], name, file, first_line, document, root)
        else:
            missing = "kind" if isinstance(name, str) else "metadata.name"
            yield Remark(where, f"{fields.get('kind', 'the document')}: {missing} is missing; allowed: a string")


def _resources(plain: object) -> Iterator[tuple[Path, object]]:
    """Yield the document itself, or the items of a List."""
    items = plain.get("items") if isinstance(plain, Mapping) and str(plain.get("kind", "")).endswith("List") else None
    if isinstance(items, list):
        yield from ((("items", index), item) for index, item in enumerate(items))
    else:
        yield (), plain


def resource_of(source: Source) -> StrimziResource | None:
    """Return the resource in `source`. If it is not converted, add a note or an error to `source` and return None."""
    fields = _fields(source)
    group, _, version = str(fields.get("apiVersion", "")).partition("/")
    if group != GROUP or source.kind not in KINDS_READ:
        source.hint(f"is left out: {OTHER_KINDS.get(source.kind, _not_converted())}")
        return None
    if version not in VERSIONS:
        allowed = " or ".join(f"{GROUP}/{each}" for each in VERSIONS)
        source.error(("apiVersion",), f"apiVersion is {fields['apiVersion']}; allowed: {allowed}")
        return None
    return read_resource(source, fields)


def _fields(source: Source) -> Mapping[str, Any]:
    fields: Any = source.document.plain
    for step in source.root:
        fields = fields[step]
    assert isinstance(fields, Mapping)
    return fields


def _not_converted() -> str:
    return f"only {', '.join(KINDS_READ)} are converted"


Converter = Callable[[StrimziResource], JsonObject | None]


class Conversion(NamedTuple):
    """The manifests for Barnabas, with notes and errors. The manifests are valid only if there are no errors."""

    manifests: tuple[JsonObject, ...]
    notes: tuple[Remark, ...]
    errors: tuple[Remark, ...]


def converted(texts: Mapping[str, str]) -> Conversion:
    """Convert Strimzi manifests to Barnabas manifests; `texts` maps each file's name to its YAML."""
    read = [each for file, text in texts.items() for each in read_sources(file, text)]
    sources = [each for each in read if isinstance(each, Source)]
    resources = [each for each in map(resource_of, sources) if each is not None]
    made = [(each, _converted(each, resources)) for each in resources if each.source.kind != "KafkaNodePool"]
    _say_of_strays(resources)
    for source in sources:
        source.note_unread()
    errors = [
        *(each for each in read if isinstance(each, Remark)),
        *(error for each in sources for error in each.errors),
    ]
    manifests = [(each.source, manifest) for each, manifest in made if manifest is not None]
    if not errors:  # The check of the output would report errors of the input again.
        errors = [error for source, manifest in manifests for error in _wrong(source, manifest)]
    notes = _sorted(note for each in sources for note in each.notes)
    return Conversion(tuple(manifest for _, manifest in manifests), tuple(notes), tuple(_sorted(errors)))


def _converted(resource: StrimziResource, resources: Sequence[StrimziResource]) -> JsonObject | None:
    if resource.source.kind == "Kafka":
        return converted_cluster(resource, [each for each in resources if _is_pool_of(each, resource)])
    return CONVERTERS[resource.source.kind](resource)


def _is_pool_of(pool: StrimziResource, kafka: StrimziResource) -> bool:
    is_its = pool.cluster == kafka.source.name and pool.namespace == kafka.namespace
    return pool.source.kind == "KafkaNodePool" and is_its


def _say_of_strays(resources: Sequence[StrimziResource]) -> None:
    """Add an error to each KafkaNodePool whose Kafka resource is missing.

    Without the error, the conversion would silently omit the brokers of the pool.
    """
    kafkas = {(each.namespace, each.source.name) for each in resources if each.source.kind == "Kafka"}
    for pool in resources:
        if pool.source.kind == "KafkaNodePool" and (pool.namespace, pool.cluster) not in kafkas:
            pool.spec.skip_rest()
            name = pool.cluster or "missing"
            allowed = "allowed: the name of a Kafka resource in the same namespace"
            pool.source.error(("metadata",), f'metadata.labels["strimzi.io/cluster"] is {name}; {allowed}')


def _wrong(source: Source, manifest: JsonObject) -> Sequence[Remark]:
    """Return the schema errors of a converted resource, and add a note if the admission review would refuse it."""
    kind = manifest["kind"]
    for finding in findings(msgspec.inspect.type_info(KINDS[kind].resource), manifest):
        source.error((), f"the converted {kind} is invalid: {finding.message}")
    verdict = review(None, manifest, AdmissionContext()) if not source.errors else Verdict()
    if verdict.refusal is not None:
        source.hint(f"the operator would refuse the {kind}; edit it before you apply it: {verdict.refusal}")
    return source.errors


def _sorted(remarks: Iterable[Remark]) -> list[Remark]:
    """Return the remarks sorted by line within each file; the order of files is kept."""
    files: dict[str, int] = {}
    return sorted(remarks, key=lambda each: (files.setdefault(each.place.file, len(files)), each.place.line))


CONVERTERS: Final[Mapping[str, Converter]] = {"KafkaTopic": converted_topic, "KafkaUser": converted_user}
