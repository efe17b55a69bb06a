"""Where a resource is."""

from collections.abc import Mapping
from typing import Any, NamedTuple

Json = Mapping[str, Any]


class Key(NamedTuple):
    """Where a resource is."""

    namespace: str
    name: str


def key_of(body: Json) -> Key:
    """Where this resource is."""
    return Key(body["metadata"]["namespace"], body["metadata"]["name"])
