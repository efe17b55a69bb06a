"""The labels and annotations that templates add to the claims of a Cluster.

The operator sets them on existing claims, because the claim templates of a StatefulSet cannot be changed.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from barnabas_operator.planning.object_names import FIELD_MANAGER
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.json_types import Json

FIELDS: Final = ("labels", "annotations")


def claim_changes(cluster: Cluster, claims: Iterable[Json]) -> Iterator[dict[str, Any]]:
    """Yield the patches that bring the labels and annotations of claims in line with the templates."""
    template = cluster.spec.template
    wanted = {
        field: {**getattr(template.metadata, field), **getattr(template.persistent_volume_claim.metadata, field)}
        for field in FIELDS
    }
    for claim in claims:
        meta = claim["metadata"]
        if "deletionTimestamp" not in meta and _differs(meta, wanted):
            which = {field: meta[field] for field in ("name", "namespace", "uid")}
            yield {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {**which, **wanted}}


def _differs(meta: Json, wanted: Mapping[str, Mapping[str, str]]) -> bool:
    applied = _applied(meta)
    return any(
        applied[field] != each.keys() or not each.items() <= (meta.get(field) or {}).items()
        for field, each in wanted.items()
    )


def _applied(meta: Json) -> dict[str, set[str]]:
    """Return the names of the labels and annotations that the operator has applied before."""
    ours = [each for each in meta.get("managedFields", ()) if _is_ours(each)]
    fields: Json = ours[0]["fieldsV1"].get("f:metadata", {}) if ours else {}
    return {field: {name.removeprefix("f:") for name in fields.get(f"f:{field}", {})} - {"."} for field in FIELDS}


def _is_ours(entry: Json) -> bool:
    return bool(entry["manager"] == FIELD_MANAGER and entry["operation"] == "Apply")
