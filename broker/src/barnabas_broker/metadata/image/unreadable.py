"""The advice on how to replace values in the metadata store that cannot be read."""

from collections.abc import Mapping
from typing import Final

_MENDED_BY: Final[Mapping[str, str]] = {
    "topics": "restore the topic from the brokers' logs with `barnabas restore-metadata`",
    "partitions": "restore the partitions from the brokers' logs with `barnabas restore-metadata`",
    "tombstones": "mark the topic as deleted with `barnabas forget-topic`",
    "brokers": "the broker with this id replaces the value at its next start",
    "log-ends": "the broker with this id replaces the value when it next reports the end offsets of its logs",
    "broker-configs": "set the configs again with `kafka-configs.sh --alter`",
    "controller": "the next broker that becomes controller writes a new value",
    "producer-ids": "the next allocation of producer ids writes a new value, higher than all allocated ids",
    "features": "set the feature levels again with `kafka-features.sh upgrade`",
    "acls": "add the lost ACLs again with `kafka-acls.sh --add`",
    "client-quotas": "all client quotas are lost; set them again with `kafka-configs.sh --alter`",
    "cluster": "a broker that has the cluster id in meta.properties replaces the value at its next start",
}


def what_to_do(key: str) -> str:
    """Return what an administrator should do about an unreadable value that no running broker has in memory."""
    return _MENDED_BY[key.partition("/")[0]]
