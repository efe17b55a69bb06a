"""JSON objects, by what is done with them."""

from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]
"""One that is read."""

JsonObject = dict[str, Any]
"""One that is built, or a field of a resource that is passed on as it is."""
