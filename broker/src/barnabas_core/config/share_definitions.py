"""The definitions of broker settings for share groups (KIP-932) and their dead letters (KIP-1191)."""

from typing import Final

from barnabas_core.config.definitions import ConfigDefinition, ConfigType, Dynamic, OneOf, Range

_D = ConfigDefinition
_BOOLEAN, _INT, _STRING = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.STRING
_ANY_MS: Final = Range(0)
_POSITIVE: Final = Range(1)

_MEMBERS: Final = (
    _D(
        "group.share.session.timeout.ms",
        _INT,
        45000,
        _POSITIVE,
        "The time in milliseconds without a heartbeat after which a share group removes a member.",
    ),
    _D("group.share.min.session.timeout.ms", _INT, 45000, _POSITIVE, "The shortest session timeout of a share group."),
    _D("group.share.max.session.timeout.ms", _INT, 60000, _POSITIVE, "The longest session timeout of a share group."),
    _D(
        "group.share.heartbeat.interval.ms",
        _INT,
        5000,
        _POSITIVE,
        "The interval in milliseconds at which members of share groups send heartbeats.",
    ),
    _D("group.share.min.heartbeat.interval.ms", _INT, 5000, _POSITIVE, "The shortest interval of a share group."),
    _D("group.share.max.heartbeat.interval.ms", _INT, 15000, _POSITIVE, "The longest interval of a share group."),
    _D(
        "group.share.assignment.interval.ms",
        _INT,
        0,
        _ANY_MS,
        "The shortest time in milliseconds between two assignments of a share group.",
    ),
    _D("group.share.min.assignment.interval.ms", _INT, 0, _ANY_MS, "The shortest assignment interval of a group."),
    _D("group.share.max.assignment.interval.ms", _INT, 15000, _ANY_MS, "The longest assignment interval of a group."),
    _D("group.share.max.size", _INT, 200, Range(1, 1000), "The maximum number of members of a share group."),
    _D("group.share.assignors", ConfigType.LIST, ("simple",), OneOf(("simple",)), "The assignors of share groups."),
)

_DELIVERY: Final = (
    _D(
        "group.share.record.lock.duration.ms",
        _INT,
        30000,
        Range(1000, 3600000),
        "The time in milliseconds for which a record that was delivered is locked for its member.",
    ),
    _D(
        "group.share.min.record.lock.duration.ms",
        _INT,
        15000,
        Range(1000, 30000),
        "The shortest lock of a record that a group may set, in milliseconds.",
    ),
    _D(
        "group.share.max.record.lock.duration.ms",
        _INT,
        60000,
        Range(30000, 3600000),
        "The longest lock of a record that a group may set, in milliseconds.",
    ),
    _D(
        "group.share.delivery.count.limit",
        _INT,
        5,
        Range(2, 10),
        "The number of deliveries after which a record that was never acknowledged is archived.",
    ),
    _D("group.share.min.delivery.count.limit", _INT, 2, Range(2, 5), "The lowest limit that a group may set."),
    _D("group.share.max.delivery.count.limit", _INT, 10, Range(5, 25), "The highest limit that a group may set."),
    _D(
        "group.share.partition.max.record.locks",
        _INT,
        2000,
        Range(100, 10000),
        "The maximum number of records in flight in a partition, from the first one that is not finished.",
    ),
    _D("group.share.min.partition.max.record.locks", _INT, 100, Range(100, 2000), "The lowest number of a group."),
    _D("group.share.max.partition.max.record.locks", _INT, 4000, Range(2000, 10000), "The highest number of a group."),
    _D("group.share.max.share.sessions", _INT, 2000, _POSITIVE, "The maximum number of share sessions on a broker."),
)

_DEAD_LETTERS: Final = (
    _D(
        "errors.deadletterqueue.auto.create.topics.enable",
        _BOOLEAN,
        False,
        None,
        "Whether the topic for the dead letters of a share group is created when the first one is written.",
        Dynamic.CLUSTER_WIDE,
    ),
    _D(
        "errors.deadletterqueue.topic.name.prefix",
        _STRING,
        "dlq.",
        None,
        "The prefix that the name of a topic must have to be created for dead letters.",
        Dynamic.CLUSTER_WIDE,
    ),
)

_COORDINATOR: Final = (
    _D(
        "share.coordinator.state.topic.num.partitions",
        _INT,
        50,
        _POSITIVE,
        "The number of partitions of __share_group_state. The setting is used only when the topic is created.",
    ),
    _D(
        "share.coordinator.state.topic.replication.factor",
        ConfigType.SHORT,
        3,
        Range(1, 32767),
        "The replication factor of __share_group_state. The topic is created only when at least this number of "
        "brokers is registered.",
    ),
    _D(
        "share.coordinator.state.topic.min.isr",
        ConfigType.SHORT,
        2,
        Range(1, 32767),
        "The min.insync.replicas of __share_group_state, used only to create the topic. With two replicas the "
        "default is 1, so that one may be offline.",
    ),
    _D(
        "share.coordinator.state.topic.segment.bytes",
        _INT,
        104857600,
        Range(1048576),
        "The segment size of __share_group_state in bytes.",
    ),
    _D(
        "share.coordinator.state.topic.compression.codec",
        _INT,
        0,
        Range(0, 4),
        "The codec of the batches in __share_group_state: 0 is none, 1 gzip, 2 snappy, 3 lz4 and 4 zstd.",
    ),
    _D(
        "share.coordinator.state.topic.prune.interval.ms",
        _INT,
        300000,
        _POSITIVE,
        "The time in milliseconds between deletions of records of __share_group_state that no state needs.",
    ),
    _D(
        "share.coordinator.cold.partition.snapshot.interval.ms",
        _INT,
        300000,
        _POSITIVE,
        "The time in milliseconds after which the state of a share-partition without changes is written again.",
    ),
    _D(
        "share.coordinator.snapshot.update.records.per.snapshot",
        _INT,
        500,
        Range(0, 500),
        "The number of updates of the state of a share-partition after which the whole state is written.",
    ),
    _D(
        "share.coordinator.write.timeout.ms",
        _INT,
        5000,
        _POSITIVE,
        "The time in milliseconds within which the in-sync replicas must copy a record of __share_group_state.",
    ),
    _D(
        "share.coordinator.load.buffer.size",
        _INT,
        5242880,
        _POSITIVE,
        "The number of bytes that a share coordinator reads at once while it loads a partition.",
    ),
)

SHARE_CONFIGS: Final = (*_MEMBERS, *_DELIVERY, *_DEAD_LETTERS, *_COORDINATOR)
