"""The merge of a user's template into a Kubernetes object, by the rules of a strategic merge patch in Kubernetes.

A list is merged by key only if Kubernetes defines a merge key for it and the operator itself adds entries to it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from barnabas_operator.resources.json_types import Json

DIRECTIVE: Final = "$patch"
REPLACE: Final = "replace"
DELETE: Final = "delete"
CONTAINERS: Final = "spec.template.spec.containers"
LIST_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "spec.ports": ("port", "protocol"),
    CONTAINERS: ("name",),
    f"{CONTAINERS}.env": ("name",),
    f"{CONTAINERS}.ports": ("containerPort", "protocol"),
    f"{CONTAINERS}.volumeMounts": ("mountPath",),
    "spec.template.spec.topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "spec.template.spec.volumes": ("name",),
}
"""The merge keys of lists, by the path of the list; all other lists are replaced."""

KEY_DEFAULTS: Final = {"protocol": "TCP"}


def merged(base: Json, patch: Json) -> dict[str, Any]:
    """Return a new object: `base` with `patch` merged over it."""
    return _mapping(base, patch, "")


def entry_key(entry: Json, keys: Sequence[str]) -> tuple[object, ...]:
    """Return the values of the merge-key fields `keys` in a list entry.

    The value of a missing field is its default in `KEY_DEFAULTS`, or else None.
    """
    return tuple(entry.get(key, KEY_DEFAULTS.get(key)) for key in keys)


def joined(path: str, name: str) -> str:
    """Return the path of the field `name` below `path`."""
    return f"{path}.{name}" if path else name


def _mapping(base: Json, patch: Json, path: str) -> dict[str, Any]:
    result = {} if patch.get(DIRECTIVE) == REPLACE else dict(base)
    for name, value in patch.items():
        if isinstance(value, Mapping) and value.get(DIRECTIVE) == DELETE:
            result.pop(name, None)
        elif name != DIRECTIVE:
            result[name] = _value(result.get(name), value, joined(path, name))
    return result


def _value(base: Any, value: Any, path: str) -> Any:
    if isinstance(value, Mapping):
        return _mapping(base if isinstance(base, Mapping) else {}, value, path)
    if isinstance(value, list) and path in LIST_KEYS:
        return _keyed_list(base or [], value, path)
    return [_value(None, each, path) for each in value] if isinstance(value, list) else value


def _keyed_list(base: Sequence[Json], patch: Sequence[Json], path: str) -> list[Json]:
    keys, is_replaced = LIST_KEYS[path], any(each.get(DIRECTIVE) == REPLACE for each in patch)
    entries = {} if is_replaced else {entry_key(each, keys): each for each in base}
    for each in patch:
        key = entry_key(each, keys)
        if each.get(DIRECTIVE) == DELETE:
            entries.pop(key, None)
        elif DIRECTIVE not in each:
            entries[key] = _mapping(entries.get(key, {}), each, path)
    return list(entries.values())
