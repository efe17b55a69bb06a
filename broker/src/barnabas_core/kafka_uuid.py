"""Uuids in Kafka's text form: 22 characters of URL-safe base64 without padding."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from typing import Final
from uuid import UUID

_RESERVED_MAX: Final = 100  # Kafka reserves the smallest uuids.


def to_text(uuid: UUID) -> str:
    """Return the 22 characters with which Kafka's tools print a uuid."""
    return urlsafe_b64encode(uuid.bytes).decode("ascii").rstrip("=")


def from_text(text: str) -> UUID:
    """Parse the text of a uuid. Raise ValueError if the text is invalid."""
    return UUID(bytes=urlsafe_b64decode(text + "=="))


def random_uuid(random_bits: Callable[[int], int]) -> UUID:
    """Return a new uuid from the bits that `random_bits(count)` returns; its text does not begin with a dash.

    A leading dash would look like an option on a command line (KAFKA-12469).
    """
    while True:
        uuid = UUID(int=random_bits(128), version=4)
        if uuid.int > _RESERVED_MAX and not to_text(uuid).startswith("-"):
            return uuid
