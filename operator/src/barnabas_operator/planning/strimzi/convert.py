"""The conversion of Strimzi's manifests, with notes about fields that have no counterpart."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from barnabas_operator.planning.admission.verdict import AdmissionContext, Verdict
from barnabas_operator.planning.review import review
from barnabas_operator.planning.strimzi.cluster import converted_cluster
from barnabas_operator.planning.strimzi.manifest import StrimziResource
from barnabas_operator.planning.strimzi.reading import read_sources, resource_of
from barnabas_operator.planning.strimzi.section import Remark, Source
from barnabas_operator.planning.strimzi.topic import converted_topic
from barnabas_operator.planning.strimzi.user import converted_user
from barnabas_operator.resources.json_types import JsonObject
from barnabas_operator.resources.kinds import KINDS
from barnabas_operator.resources.schema_check import findings

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
