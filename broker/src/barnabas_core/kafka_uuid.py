"""Uuids as Kafka writes them: 22 characters of URL-safe base64 without padding."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from typing import Final
from uuid import UUID

_RESERVED_MAX: Final = 100  # Kafka keeps the first hundred for itself.


def to_text(uuid: UUID) -> str:
    """The 22 characters that Kafka's tools print."""
    return urlsafe_b64encode(uuid.bytes).decode("ascii").rstrip("=")


def from_text(text: str) -> UUID:
    """The uuid that `to_text` wrote. Raises ValueError for anything else."""
    return UUID(bytes=urlsafe_b64decode(text + "=="))


def random_uuid(random_bits: Callable[[int], int]) -> UUID:
    """Return a new uuid from `random_bits(count)`: not a reserved one, and none whose text begins with a dash.

    A leading dash would read as an option on a command line (KAFKA-12469).
    """
    while True:
        uuid = UUID(int=random_bits(128), version=4)
        if uuid.int > _RESERVED_MAX and not to_text(uuid).startswith("-"):
            return uuid
