"""The types of JSON objects."""

from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]
"""The type of a JSON object that is only read."""

JsonObject = dict[str, Any]
"""The type of a JSON object that this program builds, or of a field that may hold any JSON object."""
