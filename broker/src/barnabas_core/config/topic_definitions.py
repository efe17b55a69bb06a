"""The definitions of topic configs; most of them take type, valid values and default from a broker setting."""

from collections.abc import Mapping
from typing import Final

from barnabas_core.config.definitions import (
    Check,
    ConfigDefinition,
    ConfigType,
    Only,
    Pattern,
    Range,
    Synonym,
    Value,
    table,
)
from barnabas_core.config.log_definitions import LOG_CONFIGS

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
