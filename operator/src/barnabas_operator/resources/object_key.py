"""The key of a resource: its namespace and name."""

from typing import NamedTuple

from barnabas_operator.resources.json_types import Json


class Key(NamedTuple):
    """The namespace and name of a resource."""

    namespace: str
    name: str


def key_of(body: Json) -> Key:
    """Return the namespace and name in `body`, a resource as JSON."""
    return Key(body["metadata"]["namespace"], body["metadata"]["name"])
