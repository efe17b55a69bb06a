"""Names of the files and folders in a log dir."""

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from barnabas_core.topic_partition import TopicPartition

LOG: Final = ".log"
INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TRANSACTION_INDEX: Final = ".txnindex"
SEGMENT_SUFFIXES: Final = (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX)

LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
META_PROPERTIES: Final = "meta.properties"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEAN_OFFSETS: Final = "cleaner-offset-checkpoint"
STRAY: Final = "-stray"

_SEGMENT_FILE: Final = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex)")
_PARTITION_DIR: Final = re.compile(r"([a-zA-Z0-9._-]+)-(\d+)")
_MARKED_DIR: Final = re.compile(r"[a-zA-Z0-9._-]*-\d+\.[0-9a-f]{32}(-future|-delete|-stray)")
# Producer snapshots, files of a compaction or deletion, temporary files and KRaft's files are no damage.
_OTHER_FILE: Final = re.compile(
    r"\d{20}\.snapshot|\d{20}\.[a-z]+\.(deleted|cleaned|swap)|leader-epoch-checkpoint|partition\.metadata|.+\.tmp"
    r"|\d{20}-\d{10}\.checkpoint(\.deleted|\.part)?|quorum-state"
)
_CLEANING_FILE: Final = re.compile(r"\d{20}\.[a-z]+\.(cleaned|swap)")
_DELETED_LOG: Final = re.compile(r"(\d{20})\.log\.deleted")
_LOG_DIR_FILE: Final = re.compile(
    r"meta\.properties|metadata-copy\.json|[a-z-]+-checkpoint|\.lock|\.kafka_cleanshutdown|\.sync-failed|bootstrap\.checkpoint|.+\.tmp"
)
_LOG_DIR_FOLDER: Final = re.compile(r"lost\+found|remote-log-index-cache")


class SegmentFile(NamedTuple):
    """The base offset and suffix in a name like `00000000000000000042.index`."""

    offset: int
    suffix: str


def segment_file(offset: int, suffix: str) -> str:
    """Return the file name of a segment, like `00000000000000000042.log`."""
    return f"{offset:020d}{suffix}"


def parse_segment_file(name: str) -> SegmentFile | None:
    """Parse the name of a segment's file; return None for any other name."""
    match = _SEGMENT_FILE.fullmatch(name)
    return SegmentFile(int(match[1]), match[2]) if match else None


def parse_partition_dir(name: str) -> TopicPartition | None:
    """Parse the name of a partition's folder; return None for other names, such as those that end in `-delete`."""
    match = _PARTITION_DIR.fullmatch(name)
    return TopicPartition(match[1], int(match[2])) if match and not marked(name) else None


def marked(name: str) -> str | None:
    """Return the suffix `-future`, `-delete` or `-stray` of a folder's name, or None for any other name."""
    match = _MARKED_DIR.fullmatch(name)
    return match[1] if match else None


def belongs_to_partition(name: str) -> bool:
    """True if a file of this name may be in a partition's folder, in addition to the files of the segments."""
    return _OTHER_FILE.fullmatch(name) is not None


def is_being_cleaned(names: Iterable[str], segments: Sequence[int], clean_until: int) -> bool:
    """True if the files show that the broker may be compacting the partition's log above the offset `clean_until`.

    Compaction makes `.cleaned` and `.swap` files, and deletes segments from the middle of the log. Retention deletes
    only the oldest segments, and truncation only the newest.
    """
    since, until = max(clean_until, min(segments, default=0)), max(segments, default=0)
    return any(
        _CLEANING_FILE.fullmatch(name)
        or ((deleted := _DELETED_LOG.fullmatch(name)) and since <= int(deleted[1]) <= until)
        for name in names
    )


def belongs_to_log_dir(name: str, *, is_folder: bool) -> bool:
    """True if a file or folder of this name may be in a log dir, in addition to the folders of the partitions."""
    return (_LOG_DIR_FOLDER if is_folder else _LOG_DIR_FILE).fullmatch(name) is not None
