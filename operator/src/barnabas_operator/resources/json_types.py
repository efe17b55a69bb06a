"""JSON objects, by what is done with them."""

from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]
"""A JSON object that is only read."""

JsonObject = dict[str, Any]
"""A JSON object that is built, or a field of a resource that is passed on as it is."""
