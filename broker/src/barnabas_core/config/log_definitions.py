"""The definitions of broker settings for logs; most provide the default of a topic config (`topic_definitions`)."""

from typing import Final

from barnabas_core.config.definitions import (
    INT_MAX,
    LONG_MAX,
    ConfigDefinition,
    ConfigType,
    Dynamic,
    OneOf,
    Range,
    Synonym,
)

_D = ConfigDefinition
_BOOLEAN, _INT, _LONG = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG
_STRING, _LIST, _DOUBLE = ConfigType.STRING, ConfigType.LIST, ConfigType.DOUBLE
_CLUSTER: Final = Dynamic.CLUSTER_WIDE
_ANY_MS: Final = Range(0)
_POSITIVE: Final = Range(1)
_COUNT: Final = Range(0)
_RETENTION: Final = Range(1, None, also=(-1,))
HOUR_MS: Final = 3_600_000
MINUTE_MS: Final = 60_000
DECOMPRESSED_BYTES_MAX: Final = INT_MAX - 8
CLEANUP_POLICIES: Final = OneOf(("compact", "delete"))
COMPRESSION_TYPES: Final = OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"))
TIMESTAMP_TYPES: Final = OneOf(("CreateTime", "LogAppendTime"))

_DIRS: Final = (
    _D("log.dir", _LIST, ("/tmp/kafka-logs",), None, "The directories of the logs, if log.dirs is not set."),
    _D(
        "log.dirs",
        _LIST,
        None,
        None,
        "The directories of the logs, usually one per disk.",
        synonyms=(Synonym("log.dir"),),
    ),
    _D(
        "log.flush.offset.checkpoint.interval.ms",
        _INT,
        60000,
        _POSITIVE,
        "How often recovery points are written to their checkpoint.",
    ),
    _D(
        "log.flush.start.offset.checkpoint.interval.ms",
        _INT,
        60000,
        _POSITIVE,
        "How often log start offsets are written to their checkpoint.",
    ),
    _D(
        "log.initial.task.delay.ms",
        _LONG,
        30000,
        _ANY_MS,
        "How long after a broker's start the periodic work on logs begins.",
    ),
    _D(
        "log.retention.check.interval.ms",
        _LONG,
        300000,
        _POSITIVE,
        "How often logs are checked for segments to delete.",
    ),
)

_SEGMENTS: Final = (
    _D("log.segment.bytes", _INT, 1024**3, Range(1024**2), "The largest segment file.", _CLUSTER),
    _D("log.roll.hours", _INT, 168, _POSITIVE, "The longest time before a log rolls to a new segment. Hours."),
    _D(
        "log.roll.ms",
        _LONG,
        None,
        _POSITIVE,
        "The longest time before a log rolls to a new segment. Milliseconds.",
        _CLUSTER,
        (Synonym("log.roll.hours", HOUR_MS),),
    ),
    _D("log.roll.jitter.hours", _INT, 0, _COUNT, "The most random time by which the roll time is shortened. Hours."),
    _D(
        "log.roll.jitter.ms",
        _LONG,
        None,
        _ANY_MS,
        "The most random time by which log.roll.ms is shortened, so that not all logs roll together. Milliseconds.",
        _CLUSTER,
        (Synonym("log.roll.jitter.hours", HOUR_MS),),
    ),
    _D("log.index.interval.bytes", _INT, 4096, _COUNT, "Bytes of the log between two entries of its index.", _CLUSTER),
    _D("log.index.size.max.bytes", _INT, 10 * 1024**2, Range(4), "The largest index file of a segment.", _CLUSTER),
    _D(
        "log.preallocate",
        _BOOLEAN,
        False,
        None,
        "No effect: segment files grow as they are written.",
        _CLUSTER,
    ),
    _D(
        "log.segment.delete.delay.ms",
        _LONG,
        60000,
        _ANY_MS,
        "How long the renamed file of a removed segment stays before it is deleted.",
        _CLUSTER,
    ),
)

_RETENTION_CONFIGS: Final = (
    _D(
        "log.cleanup.policy",
        _LIST,
        ("delete",),
        CLEANUP_POLICIES,
        "What happens to old segments: delete, compact, or both.",
        _CLUSTER,
    ),
    _D(
        "log.retention.bytes",
        _LONG,
        -1,
        None,
        "The most bytes of a partition that retention keeps; -1 for no limit.",
        _CLUSTER,
    ),
    _D("log.retention.hours", _INT, 168, _RETENTION, "How long records are kept; -1 for ever. Hours."),
    _D(
        "log.retention.minutes",
        _INT,
        None,
        _RETENTION,
        "How long records are kept; -1 for ever. Minutes; overrides log.retention.hours.",
    ),
    _D(
        "log.retention.ms",
        _LONG,
        None,
        _RETENTION,
        "How long records are kept; -1 for ever. Milliseconds; overrides log.retention.minutes.",
        _CLUSTER,
        (Synonym("log.retention.minutes", MINUTE_MS), Synonym("log.retention.hours", HOUR_MS)),
    ),
)

_FLUSH: Final = (
    _D(
        "log.flush.interval.messages", _LONG, LONG_MAX, _POSITIVE, "The records after which a log is flushed.", _CLUSTER
    ),
    _D(
        "log.flush.scheduler.interval.ms",
        _LONG,
        LONG_MAX,
        _POSITIVE,
        "How often logs are checked for a flush that is due.",
    ),
    _D(
        "log.flush.interval.ms",
        _LONG,
        None,
        _ANY_MS,
        "The longest time that a record stays unflushed. Milliseconds.",
        _CLUSTER,
        (Synonym("log.flush.scheduler.interval.ms"),),
    ),
)

_CLEANER: Final = (
    _D(
        "log.cleaner.enable",
        _BOOLEAN,
        True,
        None,
        "Whether compaction runs; without compaction, compacted topics only grow.",
    ),
    _D("log.cleaner.backoff.ms", _LONG, 15000, _ANY_MS, "The pause when there is nothing to compact.", _CLUSTER),
    _D(
        "log.cleaner.dedupe.buffer.size",
        _LONG,
        128 * 1024**2,
        Range(1024**2),
        "The memory for the key map of a compaction round. Bytes.",
        _CLUSTER,
    ),
    _D(
        "log.cleaner.io.buffer.load.factor",
        _DOUBLE,
        0.9,
        Range(0.1, 1),
        "The largest share of the key map that a compaction round fills.",
        _CLUSTER,
    ),
    _D("log.cleaner.io.buffer.size", _INT, 512 * 1024, Range(1024), "Bytes that compaction reads at a time.", _CLUSTER),
    _D(
        "log.cleaner.io.max.bytes.per.second",
        _DOUBLE,
        1.7976931348623157e308,
        Range(1),
        "The most bytes that compaction reads and writes in a second.",
        _CLUSTER,
    ),
    _D(
        "log.cleaner.delete.retention.ms", _LONG, 86400000, _ANY_MS, "How long tombstones stay. Milliseconds.", _CLUSTER
    ),
    _D(
        "log.cleaner.min.compaction.lag.ms",
        _LONG,
        0,
        _ANY_MS,
        "The age below which records are not compacted.",
        _CLUSTER,
    ),
    _D(
        "log.cleaner.max.compaction.lag.ms",
        _LONG,
        LONG_MAX,
        _POSITIVE,
        "The age at which records must be compacted, whatever the dirty ratio.",
        _CLUSTER,
    ),
    _D(
        "log.cleaner.min.cleanable.ratio",
        _DOUBLE,
        0.5,
        Range(0, 1),
        "The dirty share of a log from which the log is compacted.",
        _CLUSTER,
    ),
)

_RECORDS: Final = (
    _D("message.max.bytes", _INT, 1048588, _COUNT, "The largest record batch.", _CLUSTER),
    _D(
        "max.decompressed.message.bytes",
        _INT,
        DECOMPRESSED_BYTES_MAX,
        Range(1, DECOMPRESSED_BYTES_MAX),
        "The largest decompressed size of a batch's records, if the broker decompresses the batch.",
        _CLUSTER,
    ),
    _D(
        "compression.type",
        _STRING,
        "producer",
        COMPRESSION_TYPES,
        "The codec of stored batches; `producer` keeps the producer's codec.",
        _CLUSTER,
    ),
    _D("compression.gzip.level", _INT, -1, Range(1, 9, also=(-1,)), "The compression level of gzip.", _CLUSTER),
    _D("compression.lz4.level", _INT, 9, Range(1, 17), "The compression level of lz4.", _CLUSTER),
    _D("compression.zstd.level", _INT, 3, Range(-131072, 22), "The compression level of zstd.", _CLUSTER),
    _D(
        "log.message.timestamp.type",
        _STRING,
        "CreateTime",
        TIMESTAMP_TYPES,
        "The source of record timestamps: the producer, or the broker at the append.",
        _CLUSTER,
    ),
    _D(
        "log.message.timestamp.before.max.ms",
        _LONG,
        LONG_MAX,
        _ANY_MS,
        "How far in the past a producer's timestamp may be.",
        _CLUSTER,
    ),
    _D(
        "log.message.timestamp.after.max.ms",
        _LONG,
        3600000,
        _ANY_MS,
        "How far in the future a producer's timestamp may be.",
        _CLUSTER,
    ),
    _D(
        "min.insync.replicas",
        _INT,
        1,
        _POSITIVE,
        "The number of in-sync replicas that a write with acks=all needs.",
        _CLUSTER,
    ),
    _D(
        "unclean.leader.election.enable",
        _BOOLEAN,
        False,
        None,
        "Whether a replica that lacks records may become leader if no in-sync replica is left.",
        _CLUSTER,
    ),
)

LOG_CONFIGS: Final = (*_DIRS, *_SEGMENTS, *_RETENTION_CONFIGS, *_FLUSH, *_CLEANER, *_RECORDS)
