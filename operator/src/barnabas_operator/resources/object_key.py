"""Where a resource is."""

from typing import NamedTuple

from barnabas_operator.resources.json_types import Json


class Key(NamedTuple):
    """Where a resource is."""

    namespace: str
    name: str


def key_of(body: Json) -> Key:
    """Where this resource is."""
    return Key(body["metadata"]["namespace"], body["metadata"]["name"])
