"""The names of files and directories in Kafka's layout."""

import re
from typing import Final, NamedTuple
from uuid import UUID

from barnabas_core.topic_partition import TopicPartition

LOG: Final = ".log"
INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TXN_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
INDEX_SUFFIXES: Final = (INDEX, TIME_INDEX, TXN_INDEX)
SEGMENT_SUFFIXES: Final = (LOG, *INDEX_SUFFIXES)
"""The suffixes of a segment's files. Producer snapshots are left out: they describe the records before a segment."""
ALL_SUFFIXES: Final = (*SEGMENT_SUFFIXES, SNAPSHOT)

DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"

LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEAN_OFFSETS: Final = "cleaner-offset-checkpoint"
SYNCED_LOGS: Final = "synced-logs-checkpoint"
"""The file that lists the logs in which only synced records are acknowledged (`Log.promises_synced`).

Kafka has no such file.
"""
META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
LOCK: Final = ".lock"
SYNC_FAILED: Final = ".sync-failed"
"""The marker file of a log dir whose data must be rewritten after a failed sync. Kafka has no such file."""

FUTURE_DIR: Final = "-future"
DELETED_DIR: Final = "-delete"
STRAY_DIR: Final = "-stray"

_NAME_BYTES_MAX: Final = 255
_SEGMENT_FILE: Final = re.compile(
    r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)(\.deleted|\.cleaned|\.swap)?"
)
_PARTITION_DIR: Final = re.compile(r"([a-zA-Z0-9._-]+?)-(\d+)(?:\.[0-9a-f]{32}(-future|-delete|-stray))?")


class SegmentFile(NamedTuple):
    """A file name like `00000000000000000042.index.deleted`; `state` is `""`, `.deleted`, `.cleaned` or `.swap`."""

    offset: int
    suffix: str
    state: str


class PartitionDir(NamedTuple):
    """The parsed name of a directory, such as `flights-3` or `flights-3.<32 hex digits>-delete`.

    The `state` is `""`, `-delete`, `-future` or `-stray`.
    """

    topic_partition: TopicPartition
    state: str


def segment_file(offset: int, suffix: str) -> str:
    """Return the name of a segment's file, such as `00000000000000000042.log`."""
    return f"{offset:020d}{suffix}"


def parse_segment_file(name: str) -> SegmentFile | None:
    """Parse the name of a segment's file; return None for any other file."""
    match = _SEGMENT_FILE.fullmatch(name)
    return SegmentFile(int(match[1]), match[2], match[3] or "") if match else None


def marked_dir(topic_partition: TopicPartition, unique: UUID, state: str) -> str:
    """Return the directory name of a moved, deleted or stray partition; a long topic name is cut to fit 255 bytes."""
    ending = f"-{topic_partition.partition}.{unique.hex}{state}"
    return topic_partition.topic[: _NAME_BYTES_MAX - len(ending)] + ending


def parse_partition_dir(name: str) -> PartitionDir | None:
    """Parse the name of a partition's directory; return None for any other directory."""
    match = _PARTITION_DIR.fullmatch(name)
    return PartitionDir(TopicPartition(match[1], int(match[2])), match[3] or "") if match else None
