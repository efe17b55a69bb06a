"""The key of a resource: its namespace and name."""

from typing import NamedTuple

from barnabas_operator.resources.json_types import Json


class Key(NamedTuple):
    """The namespace and the name of a resource."""

    namespace: str
    name: str


def key_of(body: Json) -> Key:
    """The namespace and the name of this resource."""
    return Key(body["metadata"]["namespace"], body["metadata"]["name"])
