"""What stands between a manifest and the API server's store, and how it is taken away for a while."""

from typing import Any


def without_rules(schema: Any) -> None:
    """Takes every CEL rule away."""
    if isinstance(schema, dict):
        schema.pop("x-kubernetes-validations", None)
    for each in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        without_rules(each)
