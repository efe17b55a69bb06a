"""The Strimzi resources in YAML texts, including items of a List from `kubectl get -o yaml`."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from barnabas_operator.planning.strimzi.manifest import StrimziResource, read_resource
from barnabas_operator.planning.strimzi.reasons import OTHER_KINDS
from barnabas_operator.planning.strimzi.section import Remark, Source
from barnabas_operator.resources.schema_check import Path, dotted, shown
from barnabas_operator.resources.yaml_documents import (
    Document,
    ManifestError,
    Place,
    yaml_documents,
    yaml_parts,
)

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
