"""The advice about a document of the metadata store that cannot be read: the broker starts without it."""

from collections.abc import Mapping
from typing import Final

_MENDED_BY: Final[Mapping[str, str]] = {
    "topics": "`barnabas restore-metadata` writes it from the brokers' logs",
    "partitions": "`barnabas restore-metadata` writes it from the brokers' logs",
    "tombstones": "`barnabas forget-topic` writes it",
    "brokers": "the next start of this broker writes it",
    "log-ends": "its broker writes it again",
    "broker-configs": "`kafka-configs.sh --alter` writes it",
    "controller": "the next controller writes it",
    "producer-ids": "the next idempotent producer has it written, with ids far above all earlier ones",
    "features": "`kafka-features.sh upgrade` writes it",
    "acls": "`kafka-acls.sh --add` writes it",
    "client-quotas": "`kafka-configs.sh --alter` writes it, with the quotas that it sets and no others",
    "cluster": "a broker that has log dirs writes it at its start",
}


def what_to_do(key: str) -> str:
    """Return who writes the document again if no running broker knows it."""
    return _MENDED_BY[key.partition("/")[0]]
