"""The checks between a manifest and the API server's store, and how a test removes them for a while."""

from typing import Any


def without_rules(schema: Any) -> None:
    """Remove every CEL rule from a schema."""
    if isinstance(schema, dict):
        schema.pop("x-kubernetes-validations", None)
    for each in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        without_rules(each)
