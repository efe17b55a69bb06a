"""Known mistakes with brokers of two versions, each planted by a patch."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import msgspec

from barnabas_broker.metadata.controller.decisions.cluster_settings import decide_update_features
from barnabas_broker.metadata.documents import with_unknown_fields_gathered
from barnabas_broker.metadata.model import Extensible


@contextmanager
def drops_what_a_newer_version_wrote() -> Iterator[None]:
    """A broker skips the fields that it does not know, and writes the rest."""

    def mistaken(value: bytes, kind: type[Extensible]) -> bytes:
        found = msgspec.json.decode(with_unknown_fields_gathered(value, kind))
        partitions = found.get("partitions")
        for each in (found, *(partitions if isinstance(partitions, list) else ())):
            each.pop("unknown_fields", None)
        return msgspec.json.encode(found)

    with patch("barnabas_broker.metadata.documents.with_unknown_fields_gathered", mistaken):
        yield


@contextmanager
def finalizes_what_one_does_not_support() -> Iterator[None]:
    """A broker finalizes a level without checking what the others support."""

    def mistaken(finalized: Any, updates: Any, registered: object, *others: Any) -> dict[str, int]:
        return decide_update_features(finalized, updates, (), *others)

    with patch("barnabas_broker.metadata.controller.metadata_writer.decide_update_features", mistaken):
        yield
