"""Which handler answers which API key. `wire.apis` says in which versions; a test holds the two tables equal."""

from collections.abc import Mapping
from typing import Final

from barnabas_broker.handlers import (
    api_versions,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_log_dirs,
    describe_topic_partitions,
    fetch,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)
from barnabas_broker.handlers.exchange import MessageHandler, RawHandler

RAW_HANDLERS: Final[Mapping[int, RawHandler]] = {
    0: produce.handle,
    1: fetch.handle,
}

MESSAGE_HANDLERS: Final[Mapping[int, MessageHandler]] = {
    2: list_offsets.handle,
    3: metadata.handle,
    18: api_versions.handle,
    19: create_topics.handle,
    20: delete_topics.handle,
    21: delete_records.handle,
    23: offset_for_leader_epoch.handle,
    35: describe_log_dirs.handle,
    37: create_partitions.handle,
    60: describe_cluster.handle,
    75: describe_topic_partitions.handle,
}
