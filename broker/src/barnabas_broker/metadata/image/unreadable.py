"""The advice on how to replace values in the metadata store that cannot be read."""

from collections.abc import Mapping
from typing import Final

_MENDED_BY: Final[Mapping[str, str]] = {
    "topics": "`barnabas restore-metadata` restores the topic from the brokers' logs",
    "partitions": "`barnabas restore-metadata` restores the partitions from the brokers' logs",
    "tombstones": "`barnabas forget-topic` marks the topic as deleted again",
    "brokers": "the broker with this id writes its registration again at its next start",
    "log-ends": "the broker with this id writes the end offsets of its logs again",
    "broker-configs": "`kafka-configs.sh --alter` writes the configs again",
    "controller": "the next broker that becomes controller writes a new value",
    "producer-ids": "the next allocation of producer ids writes a new value, higher than all allocated ids",
    "features": "`kafka-features.sh upgrade` writes the levels again",
    "acls": "`kafka-acls.sh --add` writes the ACLs again",
    "client-quotas": "all client quotas are lost; set them again with `kafka-configs.sh --alter`",
    "cluster": "a broker that has the cluster id in meta.properties writes the cluster id again at its next start",
}


def what_to_do(key: str) -> str:
    """Return what an administrator should do about an unreadable value that no running broker has in memory."""
    return _MENDED_BY[key.partition("/")[0]]
