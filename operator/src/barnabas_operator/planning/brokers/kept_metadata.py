"""What others set on a StatefulSet's pod template, which another StatefulSet in its place keeps. Pure.

Without it the template is another one, and all brokers restart: `kubectl rollout restart` sets an annotation there.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from msgspec import json

from barnabas_operator.planning.object_names import FIELD_MANAGER, KEPT, OWN_PREFIX
from barnabas_operator.resources.foreign_json import foreign_json
from barnabas_operator.resources.json_types import Json

RESTARTED_AT: Final = "kubectl.kubernetes.io/restartedAt"
FIELDS: Final = ("labels", "annotations")
LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)

Metadata = Mapping[str, Mapping[str, str]]
"""`labels` and `annotations`, those of them that there are."""


def metadata_of_others(found: Json) -> Metadata:
    """Of the template of a StatefulSet: what the operator has not applied."""
    own = _applied_by_operator(found)
    meta: Json = found["spec"]["template"].get("metadata", {})
    return _chosen(meta, lambda field, name: name not in own[field] and not name.startswith(OWN_PREFIX))


def _applied_by_operator(found: Json) -> dict[str, set[str]]:
    applied: dict[str, set[str]] = {field: set() for field in FIELDS}
    for entry in found["metadata"].get("managedFields", ()):
        if entry["manager"] == FIELD_MANAGER and entry["operation"] == "Apply":
            fields = entry.get("fieldsV1", {})
            for step in ("f:spec", "f:template", "f:metadata"):
                fields = fields.get(step, {})
            for field in FIELDS:
                applied[field] |= {name.removeprefix("f:") for name in fields.get(f"f:{field}", {})}
    return applied


def metadata_to_keep(seen: Metadata, restarts: Iterable[str]) -> Metadata:
    """`seen` is what the StatefulSet had when it was there; `restarts` are the annotations `restartedAt` of its pods.

    The newest restart counts: a pod that lacks it was to restart.
    """
    annotations = seen.get("annotations", {})
    newest = max((annotations.get(RESTARTED_AT, ""), *restarts), key=_time)
    return {**seen, "annotations": {**annotations, RESTARTED_AT: newest}} if newest else seen


def _time(text: str) -> datetime:
    """kubectl writes it with the offset of where it runs; anybody may write anything."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return LONG_AGO
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def with_kept(item: Json, kept: Metadata) -> Json:
    """The StatefulSet as it is made, with a note of what the operator is to let go of (`kept_by`)."""
    meta, spec = item["metadata"], item["spec"]
    template = spec["template"]
    own: Json = template.get("metadata", {})
    both = {field: {**kept.get(field, {}), **own.get(field, {})} for field in FIELDS}
    others = {field: [name for name in names if name not in own.get(field, {})] for field, names in kept.items()}
    note = {KEPT: json.encode(others).decode()}
    return {
        **item,
        "metadata": {**meta, "annotations": {**meta.get("annotations", {}), **note}},
        "spec": {**spec, "template": {**template, "metadata": {**own, **both}}},
    }


def kept_by(found: Json) -> Metadata:
    """What the operator set for others when it made this object; the values are those of now."""
    names = foreign_json(found["metadata"].get("annotations", {}).get(KEPT, "{}"), dict[str, list[str]])
    if not names:
        return {}
    meta: Json = found["spec"]["template"].get("metadata", {})
    return _chosen(meta, lambda field, name: name in names.get(field, ()))


def only_kept(found: Json, kept: Metadata) -> Json:
    """What another field manager applies: the operator's own one takes it away with its next apply.

    To this very object: without its uid, one that is gone by then would be made again, of nothing else.
    """
    meta = {name: found["metadata"][name] for name in ("name", "namespace", "uid")}
    kind = {name: found[name] for name in ("apiVersion", "kind")}
    return {**kind, "metadata": meta, "spec": {"template": {"metadata": kept}}}


def _chosen(meta: Json, is_chosen: Callable[[str, str], bool]) -> Metadata:
    found = {
        field: {name: text for name, text in meta.get(field, {}).items() if is_chosen(field, name)} for field in FIELDS
    }
    return {field: texts for field, texts in found.items() if texts}
