"""The definitions of the settings of logs, and of topic configs.

Most topic configs take type, valid values and default from a broker setting.
"""

from collections.abc import Mapping
from typing import Final

from barnabas_core.config.definitions import (
    INT_MAX,
    LONG_MAX,
    Check,
    ConfigDefinition,
    ConfigType,
    Dynamic,
    OneOf,
    Only,
    Pattern,
    Range,
    Synonym,
    Value,
    table,
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
        "The interval in milliseconds at which recovery points are written to their checkpoint.",
    ),
    _D(
        "log.flush.start.offset.checkpoint.interval.ms",
        _INT,
        60000,
        _POSITIVE,
        "The interval in milliseconds at which log start offsets are written to their checkpoint.",
    ),
    _D(
        "log.initial.task.delay.ms",
        _LONG,
        30000,
        _ANY_MS,
        "The time in milliseconds after a broker's start at which the periodic work on logs begins.",
    ),
    _D(
        "log.retention.check.interval.ms",
        _LONG,
        300000,
        _POSITIVE,
        "The interval in milliseconds at which logs are checked for segments that retention can delete.",
    ),
)

_SEGMENTS: Final = (
    _D(
        "log.segment.bytes",
        _INT,
        1024**3,
        Range(1024**2),
        "The maximum size of a segment's .log file in bytes.",
        _CLUSTER,
    ),
    _D("log.roll.hours", _INT, 168, _POSITIVE, "The maximum time in hours before a log rolls to a new segment."),
    _D(
        "log.roll.ms",
        _LONG,
        None,
        _POSITIVE,
        "The maximum time in milliseconds before a log rolls to a new segment; it overrides log.roll.hours.",
        _CLUSTER,
        (Synonym("log.roll.hours", HOUR_MS),),
    ),
    _D(
        "log.roll.jitter.hours",
        _INT,
        0,
        _COUNT,
        "The maximum random jitter in hours that is subtracted from log.roll.hours.",
    ),
    _D(
        "log.roll.jitter.ms",
        _LONG,
        None,
        _ANY_MS,
        "The maximum random jitter in milliseconds that is subtracted from log.roll.ms, so that not all "
        "logs roll together.",
        _CLUSTER,
        (Synonym("log.roll.jitter.hours", HOUR_MS),),
    ),
    _D(
        "log.index.interval.bytes",
        _INT,
        4096,
        _COUNT,
        "The number of bytes in a log between two entries of its index.",
        _CLUSTER,
    ),
    _D(
        "log.index.size.max.bytes",
        _INT,
        10 * 1024**2,
        Range(4),
        "The maximum size of a segment's index file in bytes.",
        _CLUSTER,
    ),
    _D(
        "log.preallocate",
        _BOOLEAN,
        False,
        None,
        "This setting has no effect, because segment files grow as they are written.",
        _CLUSTER,
    ),
    _D(
        "log.segment.delete.delay.ms",
        _LONG,
        60000,
        _ANY_MS,
        "The time in milliseconds before the renamed files of a removed segment are deleted.",
        _CLUSTER,
    ),
)

_RETENTION_CONFIGS: Final = (
    _D(
        "log.cleanup.policy",
        _LIST,
        ("delete",),
        CLEANUP_POLICIES,
        "The treatment of old segments: delete, compact, or both.",
        _CLUSTER,
    ),
    _D(
        "log.retention.bytes",
        _LONG,
        -1,
        None,
        "The size in bytes of a partition's log above which retention deletes old segments; -1 means no limit.",
        _CLUSTER,
    ),
    _D(
        "log.retention.hours",
        _INT,
        168,
        _RETENTION,
        "The time in hours for which retention keeps records; -1 means for ever.",
    ),
    _D(
        "log.retention.minutes",
        _INT,
        None,
        _RETENTION,
        "The time in minutes for which retention keeps records; -1 means for ever. It overrides log.retention.hours.",
    ),
    _D(
        "log.retention.ms",
        _LONG,
        None,
        _RETENTION,
        "The time in milliseconds for which retention keeps records; -1 means for ever. It overrides "
        "log.retention.minutes.",
        _CLUSTER,
        (Synonym("log.retention.minutes", MINUTE_MS), Synonym("log.retention.hours", HOUR_MS)),
    ),
)

_FLUSH: Final = (
    _D(
        "log.flush.interval.messages",
        _LONG,
        LONG_MAX,
        _POSITIVE,
        "The number of records after which a log is flushed to disk.",
        _CLUSTER,
    ),
    _D(
        "log.flush.scheduler.interval.ms",
        _LONG,
        LONG_MAX,
        _POSITIVE,
        "The interval in milliseconds at which the broker looks for logs that have to be flushed.",
    ),
    _D(
        "log.flush.interval.ms",
        _LONG,
        None,
        _ANY_MS,
        "The maximum time in milliseconds before a record is flushed to disk.",
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
        "Whether compaction runs. Without compaction, compacted topics only grow.",
    ),
    _D(
        "log.cleaner.backoff.ms",
        _LONG,
        15000,
        _ANY_MS,
        "The time in milliseconds that the cleaner waits when there is nothing to compact.",
        _CLUSTER,
    ),
    _D(
        "log.cleaner.dedupe.buffer.size",
        _LONG,
        128 * 1024**2,
        Range(1024**2),
        "The memory in bytes for the keys of the log that is compacted.",
        _CLUSTER,
    ),
    _D(
        "log.cleaner.io.buffer.load.factor",
        _DOUBLE,
        0.9,
        Range(0.1, 1),
        "The maximum share of the deduplication buffer, from 0 to 1, that the keys of a log may fill.",
        _CLUSTER,
    ),
    _D(
        "log.cleaner.io.buffer.size",
        _INT,
        512 * 1024,
        Range(1024),
        "The number of bytes that compaction reads at a time.",
        _CLUSTER,
    ),
    _D(
        "log.cleaner.io.max.bytes.per.second",
        _DOUBLE,
        1.7976931348623157e308,
        Range(1),
        "The maximum number of bytes that compaction reads and writes per second.",
        _CLUSTER,
    ),
    _D(
        "log.cleaner.delete.retention.ms",
        _LONG,
        86400000,
        _ANY_MS,
        "The time in milliseconds for which compaction keeps tombstones.",
        _CLUSTER,
    ),
    _D(
        "log.cleaner.min.compaction.lag.ms",
        _LONG,
        0,
        _ANY_MS,
        "The minimum age in milliseconds at which records may be compacted.",
        _CLUSTER,
    ),
    _D(
        "log.cleaner.max.compaction.lag.ms",
        _LONG,
        LONG_MAX,
        _POSITIVE,
        "The age in milliseconds at which records must be compacted, whatever the dirty ratio of the log is.",
        _CLUSTER,
    ),
    _D(
        "log.cleaner.min.cleanable.ratio",
        _DOUBLE,
        0.5,
        Range(0, 1),
        "The minimum share of dirty bytes in a log, from 0 to 1, at which the log is compacted.",
        _CLUSTER,
    ),
)

_RECORDS: Final = (
    _D("message.max.bytes", _INT, 1048588, _COUNT, "The maximum size of a record batch in bytes.", _CLUSTER),
    _D(
        "max.decompressed.message.bytes",
        _INT,
        DECOMPRESSED_BYTES_MAX,
        Range(1, DECOMPRESSED_BYTES_MAX),
        "The maximum decompressed size in bytes of a batch's records, if the broker has to decompress the batch.",
        _CLUSTER,
    ),
    _D(
        "compression.type",
        _STRING,
        "producer",
        COMPRESSION_TYPES,
        "The codec of stored batches; `producer` means the codec that the producer has used.",
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
        "The source of record timestamps: CreateTime is the producer's time, LogAppendTime the "
        "broker's time at the append.",
        _CLUSTER,
    ),
    _D(
        "log.message.timestamp.before.max.ms",
        _LONG,
        LONG_MAX,
        _ANY_MS,
        "The maximum time in milliseconds by which a record's timestamp may be older than the broker's clock.",
        _CLUSTER,
    ),
    _D(
        "log.message.timestamp.after.max.ms",
        _LONG,
        3600000,
        _ANY_MS,
        "The maximum time in milliseconds by which a record's timestamp may be later than the broker's clock.",
        _CLUSTER,
    ),
    _D(
        "min.insync.replicas",
        _INT,
        1,
        _POSITIVE,
        "The minimum number of in-sync replicas that a write with acks=all needs.",
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


_LOG: Final = table(*LOG_CONFIGS)
_NO_TIERS: Final = "tiered storage is not supported"
_REPLICA_LIST: Final = Pattern(r"\*|[0-9]{1,10}:[0-9]{1,10}", "* or a list of PARTITION:BROKER pairs")


def _default(synonyms: tuple[Synonym, ...]) -> Value:
    """Return the default of a topic config, from the first synonym that has a default."""
    for name, factor in synonyms:
        value = _LOG[name].default
        if value is not None:
            return value * factor if isinstance(value, int) and factor != 1 else value
    return None


def _log(name: str, broker_name: str, documentation: str, check: Check | None = None) -> ConfigDefinition:
    """Return a topic config with the type, the valid values and the default of a broker setting."""
    model = _LOG[broker_name]
    synonyms = (Synonym(broker_name), *model.synonyms)
    return ConfigDefinition(
        name, model.type, _default(synonyms), check or model.check, documentation, synonyms=synonyms
    )


def _own(name: str, kind: ConfigType, default: Value, check: Check | None, documentation: str) -> ConfigDefinition:
    return ConfigDefinition(name, kind, default, check, documentation)


TOPIC_CONFIGS: Final[Mapping[str, ConfigDefinition]] = table(
    _log(
        "cleanup.policy",
        "log.cleanup.policy",
        "The treatment of old segments: delete, compact, or both; an empty value keeps all segments.",
    ),
    _log("compression.gzip.level", "compression.gzip.level", "The compression level if compression.type is gzip."),
    _log("compression.lz4.level", "compression.lz4.level", "The compression level if compression.type is lz4."),
    _log(
        "compression.type",
        "compression.type",
        "The codec of stored batches; `producer` means the codec that the producer has used.",
    ),
    _log("compression.zstd.level", "compression.zstd.level", "The compression level if compression.type is zstd."),
    _log(
        "delete.retention.ms",
        "log.cleaner.delete.retention.ms",
        "The time in milliseconds for which compaction keeps tombstones.",
    ),
    _log(
        "file.delete.delay.ms",
        "log.segment.delete.delay.ms",
        "The time in milliseconds before the renamed files of a removed segment are deleted.",
    ),
    _log(
        "flush.messages", "log.flush.interval.messages", "The number of records after which the log is flushed to disk."
    ),
    _log("flush.ms", "log.flush.interval.ms", "The maximum time in milliseconds before a record is flushed to disk."),
    _log(
        "index.interval.bytes",
        "log.index.interval.bytes",
        "The number of bytes in a log between two entries of its index.",
    ),
    _log(
        "max.compaction.lag.ms",
        "log.cleaner.max.compaction.lag.ms",
        "The age in milliseconds at which records must be compacted, whatever the dirty ratio of the log is.",
    ),
    _log(
        "max.decompressed.message.bytes",
        "max.decompressed.message.bytes",
        "The maximum decompressed size in bytes of a batch's records.",
    ),
    _log("max.message.bytes", "message.max.bytes", "The maximum size of a record batch in bytes."),
    _log(
        "message.timestamp.after.max.ms",
        "log.message.timestamp.after.max.ms",
        "The maximum time in milliseconds by which a record's timestamp may be later than the broker's clock.",
    ),
    _log(
        "message.timestamp.before.max.ms",
        "log.message.timestamp.before.max.ms",
        "The maximum time in milliseconds by which a record's timestamp may be older than the broker's clock.",
    ),
    _log(
        "message.timestamp.type",
        "log.message.timestamp.type",
        "The source of record timestamps: CreateTime is the producer's time, LogAppendTime the "
        "broker's time at the append.",
    ),
    _log(
        "min.cleanable.dirty.ratio",
        "log.cleaner.min.cleanable.ratio",
        "The minimum share of dirty bytes in a log, from 0 to 1, at which the log is compacted.",
    ),
    _log(
        "min.compaction.lag.ms",
        "log.cleaner.min.compaction.lag.ms",
        "The minimum age in milliseconds at which records may be compacted.",
    ),
    _log(
        "min.insync.replicas",
        "min.insync.replicas",
        "The minimum number of in-sync replicas that a write with acks=all needs.",
    ),
    _log(
        "preallocate", "log.preallocate", "This setting has no effect, because segment files grow as they are written."
    ),
    _log(
        "retention.bytes",
        "log.retention.bytes",
        "The size in bytes of a partition's log above which retention deletes old segments; -1 means no limit.",
    ),
    _log(
        "retention.ms",
        "log.retention.ms",
        "The time in milliseconds for which retention keeps records; -1 means for ever.",
        Range(-1),
    ),
    _log("segment.bytes", "log.segment.bytes", "The maximum size of a segment's .log file in bytes."),
    _log("segment.index.bytes", "log.index.size.max.bytes", "The maximum size of a segment's index file in bytes."),
    _log(
        "segment.jitter.ms",
        "log.roll.jitter.ms",
        "The maximum random jitter in milliseconds that is subtracted from segment.ms.",
    ),
    _log("segment.ms", "log.roll.ms", "The maximum time in milliseconds before a log rolls to a new segment."),
    _log(
        "unclean.leader.election.enable",
        "unclean.leader.election.enable",
        "Whether a replica that is not in sync, and may lack records, may become leader.",
    ),
    _own(
        "internal.segment.bytes",
        ConfigType.INT,
        None,
        Range(1),
        "A segment size in bytes below the minimum of segment.bytes, for tests.",
    ),
    _own(
        "leader.replication.throttled.replicas",
        ConfigType.LIST,
        (),
        _REPLICA_LIST,
        "The replicas to which leaders send at most leader.replication.throttled.rate bytes per second.",
    ),
    _own(
        "follower.replication.throttled.replicas",
        ConfigType.LIST,
        (),
        _REPLICA_LIST,
        "The replicas that fetch at most follower.replication.throttled.rate bytes per second.",
    ),
    _own(
        "remote.storage.enable",
        ConfigType.BOOLEAN,
        False,
        Only(False, _NO_TIERS),
        "No effect: tiered storage is not supported.",
    ),
    _own(
        "local.retention.ms",
        ConfigType.LONG,
        -2,
        Only(-2, _NO_TIERS),
        "No effect: the time for which records stay on the local disk with tiered storage.",
    ),
    _own(
        "local.retention.bytes",
        ConfigType.LONG,
        -2,
        Only(-2, _NO_TIERS),
        "No effect: the bytes of a partition that stay on the local disk with tiered storage.",
    ),
    _own(
        "remote.log.copy.disable",
        ConfigType.BOOLEAN,
        False,
        Only(False, _NO_TIERS),
        "No effect: tiered storage is not supported.",
    ),
    _own(
        "remote.log.delete.on.disable",
        ConfigType.BOOLEAN,
        False,
        Only(False, _NO_TIERS),
        "No effect: tiered storage is not supported.",
    ),
    _own("remote.copy.lag.ms", ConfigType.LONG, 0, Only(0, _NO_TIERS), "No effect: tiered storage is not supported."),
    _own(
        "remote.copy.lag.bytes", ConfigType.LONG, -1, Only(-1, _NO_TIERS), "No effect: tiered storage is not supported."
    ),
    _own(
        "errors.deadletterqueue.group.enable",
        ConfigType.BOOLEAN,
        False,
        None,
        "Whether share groups may write undeliverable records to the topic.",
    ),
)
