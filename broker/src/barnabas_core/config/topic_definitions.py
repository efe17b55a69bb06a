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
_NO_SHARE_GROUPS: Final = "there are no share groups"
_REPLICA_LIST: Final = Pattern(r"\*|[0-9]{1,10}:[0-9]{1,10}", "* or a list of PARTITION:BROKER")


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


def _own(name: str, kind: ConfigType, default: Value, check: Check, documentation: str) -> ConfigDefinition:
    return ConfigDefinition(name, kind, default, check, documentation)


TOPIC_CONFIGS: Final[Mapping[str, ConfigDefinition]] = table(
    _log("cleanup.policy", "log.cleanup.policy", "Delete old segments, compact them, both, or neither (empty)."),
    _log("compression.gzip.level", "compression.gzip.level", "The compression level if compression.type is gzip."),
    _log("compression.lz4.level", "compression.lz4.level", "The compression level if compression.type is lz4."),
    _log("compression.type", "compression.type", "The codec of stored batches; `producer` keeps the producer's codec."),
    _log("compression.zstd.level", "compression.zstd.level", "The compression level if compression.type is zstd."),
    _log("delete.retention.ms", "log.cleaner.delete.retention.ms", "How long tombstones stay after compaction."),
    _log(
        "file.delete.delay.ms",
        "log.segment.delete.delay.ms",
        "How long the renamed file of a removed segment stays before it is deleted.",
    ),
    _log(
        "flush.messages", "log.flush.interval.messages", "The number of records after which the log is flushed to disk."
    ),
    _log("flush.ms", "log.flush.interval.ms", "The longest time that a record stays unflushed. Milliseconds."),
    _log("index.interval.bytes", "log.index.interval.bytes", "Bytes of the log between two entries of its index."),
    _log(
        "max.compaction.lag.ms",
        "log.cleaner.max.compaction.lag.ms",
        "The age at which records must be compacted, whatever the dirty ratio.",
    ),
    _log(
        "max.decompressed.message.bytes",
        "max.decompressed.message.bytes",
        "The largest decompressed size of one batch's records.",
    ),
    _log("max.message.bytes", "message.max.bytes", "The largest record batch."),
    _log(
        "message.timestamp.after.max.ms",
        "log.message.timestamp.after.max.ms",
        "How far in the future a timestamp may be.",
    ),
    _log(
        "message.timestamp.before.max.ms",
        "log.message.timestamp.before.max.ms",
        "How far in the past a timestamp may be.",
    ),
    _log(
        "message.timestamp.type",
        "log.message.timestamp.type",
        "The source of record timestamps: the producer, or the broker at the append.",
    ),
    _log(
        "min.cleanable.dirty.ratio",
        "log.cleaner.min.cleanable.ratio",
        "The dirty share of the log from which the log is compacted.",
    ),
    _log(
        "min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms", "The age below which records are not compacted."
    ),
    _log("min.insync.replicas", "min.insync.replicas", "The number of in-sync replicas that acks=all needs."),
    _log("preallocate", "log.preallocate", "No effect: segment files grow as they are written."),
    _log(
        "retention.bytes", "log.retention.bytes", "The most bytes of a partition that retention keeps; -1 for no limit."
    ),
    _log("retention.ms", "log.retention.ms", "How long records are kept; -1 for ever.", Range(-1)),
    _log("segment.bytes", "log.segment.bytes", "The largest segment file."),
    _log("segment.index.bytes", "log.index.size.max.bytes", "The largest index file of a segment."),
    _log("segment.jitter.ms", "log.roll.jitter.ms", "The most random time by which segment.ms is shortened."),
    _log("segment.ms", "log.roll.ms", "The longest time before a log rolls to a new segment."),
    _log(
        "unclean.leader.election.enable",
        "unclean.leader.election.enable",
        "Whether a replica that lacks records may become leader.",
    ),
    _own(
        "internal.segment.bytes",
        ConfigType.INT,
        None,
        Range(1),
        "A segment size below the minimum of segment.bytes, for tests.",
    ),
    _own(
        "leader.replication.throttled.replicas",
        ConfigType.LIST,
        (),
        _REPLICA_LIST,
        "The replicas to which leaders send at most leader.replication.throttled.rate.",
    ),
    _own(
        "follower.replication.throttled.replicas",
        ConfigType.LIST,
        (),
        _REPLICA_LIST,
        "The replicas that fetch at most follower.replication.throttled.rate.",
    ),
    _own("remote.storage.enable", ConfigType.BOOLEAN, False, Only(False, _NO_TIERS), "Tiered storage."),
    _own(
        "local.retention.ms", ConfigType.LONG, -2, Only(-2, _NO_TIERS), "Tiered storage: the records that stay on disk."
    ),
    _own(
        "local.retention.bytes",
        ConfigType.LONG,
        -2,
        Only(-2, _NO_TIERS),
        "Tiered storage: the records that stay on disk.",
    ),
    _own("remote.log.copy.disable", ConfigType.BOOLEAN, False, Only(False, _NO_TIERS), "Tiered storage."),
    _own("remote.log.delete.on.disable", ConfigType.BOOLEAN, False, Only(False, _NO_TIERS), "Tiered storage."),
    _own("remote.copy.lag.ms", ConfigType.LONG, 0, Only(0, _NO_TIERS), "Tiered storage."),
    _own("remote.copy.lag.bytes", ConfigType.LONG, -1, Only(-1, _NO_TIERS), "Tiered storage."),
    _own(
        "errors.deadletterqueue.group.enable",
        ConfigType.BOOLEAN,
        False,
        Only(False, _NO_SHARE_GROUPS),
        "Whether share groups may write undeliverable records to the topic.",
    ),
)
