"""The requests in the table of rights: each with the rights that it needs, and with its fields.

The needs come from `ApiRights`; only rights that handlers check by themselves are given here.
"""

import itertools
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from barnabas_broker.handlers.guard import API_RIGHTS, LATEST, Need
from barnabas_broker.wire.framing import API_SPECS
from barnabas_broker.wire.messages import message_class
from barnabas_broker.wire.record_batch import TRANSACTIONAL_BIT
from barnabas_broker.wire.records import Record, encode_batch
from barnabas_core.acls import AclOperation as Op
from barnabas_core.acls import ResourceType as Kind
from harness.codec_client import filled

Right = tuple[Op, Kind]
PRODUCER_ID: Final = 1_000_000
SECOND_2020_MS: Final = 1_577_836_800_000


class Names(NamedTuple):
    """The resources of a request: either all of them exist, or none does."""

    topic: str
    topic_id: UUID
    group: str
    transactional_id: str
    user: str


class Ask(NamedTuple):
    """A request, without its resources."""

    title: str
    api_key: int
    fields: Callable[[Names, int], Mapping[str, Any]]
    in_handler: tuple[tuple[Right, ...], ...] = ()
    """The rights that the handler checks, each with rights that suffice instead of it."""
    first_version: int = 0
    last_version: int = LATEST
    kind: Kind | None = None
    """The type of resource if the table has several."""

    def versions(self) -> list[int]:
        """Return the first and the last version with this meaning."""
        spec = API_SPECS[self.api_key]
        first, last = max(spec.min_version, self.first_version), min(spec.max_version, self.last_version)
        return sorted({first, last})

    def needs(self, version: int) -> list[tuple[Right, ...]]:
        """Return the rights, each with rights that suffice instead of it."""
        of_table = (_alternatives(each) for each in API_RIGHTS[self.api_key].needs if self._is_asked(each, version))
        return [*dict.fromkeys(itertools.chain(of_table, self.in_handler))]

    def _is_asked(self, need: Need, version: int) -> bool:
        return need.first_version <= version <= need.last_version and self.kind in (None, need.resource_type)

    def request(self, names: Names, version: int) -> Any:
        """Return the request in the codec's types."""
        return filled(message_class(f"{API_SPECS[self.api_key].name}Request"), self.fields(names, version))


def _alternatives(need: Need) -> tuple[Right, ...]:
    instead = need.or_on_cluster
    return ((need.operation, need.resource_type), *([] if instead is None else [(instead, Kind.CLUSTER)]))


def _batch(attributes: int) -> bytes:
    ids = {"producer_id": PRODUCER_ID, "producer_epoch": 0, "base_sequence": 0} if attributes else {}
    return bytes(encode_batch([Record(0, SECOND_2020_MS, None, b"value")], attributes=attributes, **ids))


def _produce(attributes: int) -> Callable[[Names, int], Mapping[str, Any]]:
    def fields(names: Names, _: int) -> Mapping[str, Any]:
        partition = {"index": 0, "records": _batch(attributes)}
        topic = {"name": names.topic, "topic_id": names.topic_id, "partition_data": [partition]}
        transactional_id = names.transactional_id if attributes else None
        return {"transactional_id": transactional_id, "acks": 1, "timeout_ms": 5000, "topic_data": [topic]}

    return fields


def _fetch(names: Names, _: int) -> Mapping[str, Any]:
    partition = {"partition": 0, "partition_max_bytes": 1000}
    topic = {"topic": names.topic, "topic_id": names.topic_id, "partitions": [partition]}
    return {"replica_id": -1, "max_bytes": 1000, "topics": [topic]}


def _replica_fetch(names: Names, version: int) -> Mapping[str, Any]:
    fields = {**_fetch(names, version), "replica_id": 1}
    return fields | ({"replica_state": {"replica_id": 1, "replica_epoch": -1}} if version >= 15 else {})


def _topics(partition: Any, name: str = "name", partitions: str = "partitions", **more: Any) -> Any:
    return lambda names, _: {"topics": [{name: names.topic, partitions: [partition]}], **more}


def _metadata(**topic: str) -> Callable[[Names, int], Mapping[str, Any]]:
    def fields(names: Names, version: int) -> Mapping[str, Any]:
        asked = {"name": None} | {name: getattr(names, value) for name, value in topic.items()}
        return {
            "topics": [asked],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": version >= 8,
            "include_cluster_authorized_operations": 8 <= version <= 10,
        }

    return fields


def _creating(names: Names, _: int) -> Mapping[str, Any]:
    return {"topics": [{"name": names.topic}], "allow_auto_topic_creation": True}


def _offset_commit(names: Names, _: int) -> Mapping[str, Any]:
    topic = {"name": names.topic, "topic_id": names.topic_id, "partitions": [{"committed_offset": 1}]}
    return {"group_id": names.group, "generation_id_or_member_epoch": -1, "topics": [topic]}


def _offset_fetch(*, all_topics: bool) -> Callable[[Names, int], Mapping[str, Any]]:
    def fields(names: Names, version: int) -> Mapping[str, Any]:
        topic: dict[str, Any] = {"name": names.topic, "partition_indexes": [0]}
        if version < 8:
            return {"group_id": names.group, "topics": None if all_topics else [topic]}
        topic["topic_id"] = names.topic_id
        group = message_class("OffsetFetchRequest").OffsetFetchRequestGroup
        topics = None if all_topics else [filled(group.OffsetFetchRequestTopics, topic)]
        return {"groups": [filled(group, {"group_id": names.group, "topics": topics})]}

    return fields


def _coordinator(key_type: int, field: str) -> Callable[[Names, int], Mapping[str, Any]]:
    return lambda names, _: {
        "key": getattr(names, field),
        "key_type": key_type,
        "coordinator_keys": [getattr(names, field)],
    }


def _join(names: Names, _: int) -> Mapping[str, Any]:
    protocol = {"name": "range", "metadata": b""}
    times = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000}
    return {"group_id": names.group, "protocol_type": "consumer", "protocols": [protocol], **times}


def _member(**more: Any) -> Callable[[Names, int], Mapping[str, Any]]:
    return lambda names, _: {"group_id": names.group, "member_id": "m", **more}


def _leave(names: Names, version: int) -> Mapping[str, Any]:
    return {"group_id": names.group, **({"members": [{"member_id": "m"}]} if version >= 3 else {"member_id": "m"})}


def _create_topics(names: Names, _: int) -> Mapping[str, Any]:
    topic = {"name": names.topic, "num_partitions": 1, "replication_factor": 1}
    return {"topics": [topic], "timeout_ms": 5000, "validate_only": True}


def _delete_topics(names: Names, version: int) -> Mapping[str, Any]:
    if version < 6:
        return {"topic_names": [names.topic], "timeout_ms": 5000}
    return {"topics": [{"name": names.topic, "topic_id": None}], "timeout_ms": 5000}


def _delete_topics_by_id(names: Names, _: int) -> Mapping[str, Any]:
    return {"topics": [{"name": None, "topic_id": names.topic_id}], "timeout_ms": 5000}


def _add_partitions(names: Names, version: int) -> Mapping[str, Any]:
    kind = message_class("AddPartitionsToTxnRequest")
    topic = {"name": names.topic, "partitions": [0]}
    if version < 4:
        topics = [filled(kind.AddPartitionsToTxnTopic, topic)]
        own = {"transactional_id": names.transactional_id, "producer_id": PRODUCER_ID, "producer_epoch": 0}
        return {f"v3_and_below_{name}": value for name, value in own.items()} | {"v3_and_below_topics": topics}
    producer = {"transactional_id": names.transactional_id, "producer_id": PRODUCER_ID, "producer_epoch": 0}
    return {"transactions": [{**producer, "topics": [topic]}]}


def _in_transaction(**more: Any) -> Callable[[Names, int], Mapping[str, Any]]:
    return lambda names, _: {
        "transactional_id": names.transactional_id,
        "producer_id": PRODUCER_ID,
        "producer_epoch": 0,
        **{name: getattr(names, value[1:]) if str(value).startswith("$") else value for name, value in more.items()},
    }


def _txn_offset_commit(names: Names, version: int) -> Mapping[str, Any]:
    topic = {"name": names.topic, "topic_id": names.topic_id, "partitions": [{"committed_offset": 1}]}
    of_nobody = {"generation_id_or_member_epoch": -1}
    return {**_in_transaction(group_id="$group")(names, version), **of_nobody, "topics": [topic]}


def _markers(names: Names, _: int) -> Mapping[str, Any]:
    topic = {"name": names.topic, "partition_indexes": [0]}
    return {"markers": [{"producer_id": PRODUCER_ID, "producer_epoch": 0, "topics": [topic]}]}


_FILTER: Final = {
    "resource_type_filter": Kind.TOPIC,
    "pattern_type_filter": 1,
    "principal_filter": "User:zoe",
    "host_filter": None,
    "operation": Op.ANY,
    "permission_type": 1,
}


def _describe_acls(names: Names, _: int) -> Mapping[str, Any]:
    return {**_FILTER, "resource_name_filter": names.topic}


def _create_acls(names: Names, _: int) -> Mapping[str, Any]:
    of = {"resource_type": Kind.TOPIC, "resource_name": names.topic, "resource_pattern_type": 3}
    return {"creations": [{**of, "principal": "User:zoe", "host": "*", "operation": Op.READ, "permission_type": 3}]}


def _configs(kind: int, name: str, config: str = "", value: str = "") -> Callable[[Names, int], Mapping[str, Any]]:
    """Return a request about the configs of one resource; with a config it alters the config."""

    def fields(names: Names, _: int) -> Mapping[str, Any]:
        resource: dict[str, Any] = {"resource_type": kind, "resource_name": getattr(names, name, name)}
        more = {"configs": [{"name": config, "value": value}]} if config else {"configuration_keys": []}
        return {"resources": [resource | more]}

    return fields


def _scram(names: Names, _: int) -> Mapping[str, Any]:
    credential = {"mechanism": 1, "iterations": 4096, "salt": b"salt" * 4, "salted_password": b"p" * 32}
    return {"deletions": [{"name": names.user, "mechanism": 2}], "upsertions": [{"name": names.user, **credential}]}


def _quotas(names: Names, _: int) -> Mapping[str, Any]:
    entity = {"entity_type": "user", "entity_name": names.user}
    return {"entries": [{"entity": [entity], "ops": [{"key": "consumer_byte_rate", "value": 1000.0}]}]}


def _reassign(names: Names, _: int) -> Mapping[str, Any]:
    return {"topics": [{"name": names.topic, "partitions": [{"partition_index": 0, "replicas": [1]}]}]}


def _log_dirs(names: Names, _: int) -> Mapping[str, Any]:
    return {"dirs": [{"path": "/nowhere", "topics": [{"name": names.topic, "partitions": [0]}]}]}


def _quorum(names: Names, _: int) -> Mapping[str, Any]:
    return {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}


_ID, _T = Kind.TRANSACTIONAL_ID, Kind.TOPIC
_C: Final = Kind.CLUSTER
_DESCRIBE_T: Final = ((Op.DESCRIBE, _T),)
_WRITE_T: Final = ((Op.WRITE, _T),)
_WRITE_ID: Final = ((Op.WRITE, _ID),)


def _share_state(names: Names, _: int) -> dict[str, Any]:
    """Return a request of brokers about the share state of a partition."""
    topics = [{"topic_id": names.topic_id, "partitions": [{"partition": 0}]}]
    return {"group_id": names.group, "topics": topics}


ASKS: Final = (
    Ask("Produce", 0, _produce(0), (_WRITE_T,)),
    Ask("Produce in a transaction", 0, _produce(TRANSACTIONAL_BIT), (_WRITE_ID, _WRITE_T)),
    Ask("Fetch", 1, _fetch, (((Op.READ, _T),),)),
    Ask("Fetch of a replica", 1, _replica_fetch, (((Op.CLUSTER_ACTION, _C),),)),
    Ask("ListOffsets", 2, _topics({"timestamp": -1}, replica_id=-1)),
    Ask("Metadata by name", 3, _metadata(name="topic"), (_DESCRIBE_T,), first_version=4),
    Ask("Metadata by id", 3, _metadata(topic_id="topic_id"), (_DESCRIBE_T,), first_version=12),
    Ask("Metadata of all", 3, lambda *_: {"topics": None, "allow_auto_topic_creation": False}, (_DESCRIBE_T,), 1),
    Ask("Metadata that creates", 3, _creating, (_DESCRIBE_T, ((Op.CREATE, _T), (Op.CREATE, _C))), first_version=4),
    Ask("OffsetCommit", 8, _offset_commit),
    Ask("OffsetFetch", 9, _offset_fetch(all_topics=False), (_DESCRIBE_T,)),
    Ask("OffsetFetch of all", 9, _offset_fetch(all_topics=True), (_DESCRIBE_T,), first_version=2),
    Ask("FindCoordinator of a group", 10, _coordinator(0, "group"), kind=Kind.GROUP),
    Ask("FindCoordinator of an id", 10, _coordinator(1, "transactional_id"), first_version=1, kind=_ID),
    Ask("JoinGroup", 11, _join),
    Ask("Heartbeat", 12, _member(generation_id=1)),
    Ask("LeaveGroup", 13, _leave),
    Ask("SyncGroup", 14, _member(generation_id=1, protocol_type="consumer", protocol_name="range")),
    Ask("DescribeGroups", 15, lambda names, _: {"groups": [names.group]}),
    Ask("ListGroups", 16, lambda *_: {}, (((Op.DESCRIBE, Kind.GROUP), (Op.DESCRIBE, _C)),)),
    Ask("CreateTopics", 19, _create_topics, (((Op.DESCRIBE_CONFIGS, _T),),)),
    Ask("DeleteTopics", 20, _delete_topics, (((Op.DELETE, _T), (Op.DELETE, _C)),)),
    Ask("DeleteTopics by id", 20, _delete_topics_by_id, (((Op.DELETE, _T), (Op.DELETE, _C)),), first_version=6),
    Ask("DeleteRecords", 21, _topics({"offset": 0}, timeout_ms=5000)),
    Ask(
        "InitProducerId",
        22,
        lambda *_: {"transactional_id": None, "producer_id": -1, "producer_epoch": -1},
        (((Op.IDEMPOTENT_WRITE, _C), (Op.WRITE, _T)),),
    ),
    Ask(
        "InitProducerId of an id",
        22,
        lambda names, _: {
            "transactional_id": names.transactional_id,
            "transaction_timeout_ms": 5000,
            "producer_id": -1,
            "producer_epoch": -1,
        },
        (_WRITE_ID,),
    ),
    Ask("OffsetForLeaderEpoch", 23, _topics({"leader_epoch": 0, "current_leader_epoch": -1}, "topic", replica_id=-1)),
    Ask("AddPartitionsToTxn", 24, _add_partitions, (_WRITE_T,), last_version=3),
    Ask("AddPartitionsToTxn of brokers", 24, _add_partitions, first_version=4),
    Ask("AddOffsetsToTxn", 25, _in_transaction(group_id="$group")),
    Ask("EndTxn", 26, _in_transaction(committed=False)),
    Ask("WriteTxnMarkers", 27, _markers),
    Ask("TxnOffsetCommit", 28, _txn_offset_commit),
    Ask("DescribeAcls", 29, _describe_acls),
    Ask("CreateAcls", 30, _create_acls),
    Ask("DeleteAcls", 31, lambda *each: {"filters": [_describe_acls(*each)]}),
    Ask("DescribeConfigs of a topic", 32, _configs(2, "topic"), kind=_T),
    Ask("DescribeConfigs of a group", 32, _configs(32, "group"), kind=Kind.GROUP),
    Ask("DescribeConfigs of a broker", 32, _configs(4, "1"), kind=_C),
    Ask("DescribeConfigs of loggers", 32, _configs(8, "1"), kind=_C),
    Ask("AlterConfigs of a topic", 33, _configs(2, "topic", "retention.ms", "9"), kind=_T),
    Ask("AlterConfigs of a broker", 33, _configs(4, "1", "log.cleaner.threads", "1"), kind=_C),
    Ask("AlterReplicaLogDirs", 34, _log_dirs),
    Ask("DescribeLogDirs", 35, _topics(0, "topic")),
    Ask(
        "CreatePartitions",
        37,
        lambda names, _: {
            "topics": [{"name": names.topic, "count": 2, "assignments": None}],
            "timeout_ms": 5000,
            "validate_only": True,
        },
    ),
    Ask("DeleteGroups", 42, lambda names, _: {"groups_names": [names.group]}),
    Ask("ElectLeaders", 43, lambda names, _: {"topic_partitions": [{"topic": names.topic, "partitions": [0]}]}),
    Ask("IncrementalAlterConfigs of a topic", 44, _configs(2, "topic", "retention.ms", "9"), kind=_T),
    Ask("IncrementalAlterConfigs of a broker", 44, _configs(4, "1", "log.cleaner.threads", "1"), kind=_C),
    Ask("AlterConfigs of a broker, wrong", 33, _configs(4, "1", "log.cleaner.threads", "many"), kind=_C),
    Ask("IncrementalAlterConfigs of a broker, wrong", 44, _configs(4, "1", "log.cleaner.threads", "many"), kind=_C),
    Ask("IncrementalAlterConfigs of loggers", 44, _configs(8, "1", "kafka", "INFO"), kind=_C),
    Ask("AlterPartitionReassignments", 45, _reassign),
    Ask("ListPartitionReassignments", 46, _topics(0, partitions="partition_indexes")),
    Ask(
        "OffsetDelete",
        47,
        lambda names, _: {
            "group_id": names.group,
            "topics": [{"name": names.topic, "partitions": [{"partition_index": 0}]}],
        },
    ),
    Ask("DescribeClientQuotas", 48, lambda *_: {"components": [{"entity_type": "user", "match_type": 2}]}),
    Ask("AlterClientQuotas", 49, _quotas, (((Op.ALTER_CONFIGS, _C),),)),
    Ask("DescribeUserScramCredentials", 50, lambda names, _: {"users": [{"name": names.user}]}),
    Ask("AlterUserScramCredentials", 51, _scram),
    Ask("DescribeQuorum", 55, _quorum),
    Ask("UpdateFeatures", 57, lambda *_: {"feature_updates": [{"feature": "nothing", "max_version_level": 1}]}),
    Ask("DescribeCluster", 60, lambda *_: {"include_cluster_authorized_operations": True, "endpoint_type": 1}),
    Ask("DescribeProducers", 61, _topics(0, partitions="partition_indexes")),
    Ask("UnregisterBroker", 64, lambda *_: {"broker_id": 99}),
    Ask("DescribeTransactions", 65, lambda names, _: {"transactional_ids": [names.transactional_id]}, (_DESCRIBE_T,)),
    Ask("ListTransactions", 66, lambda *_: {}, (((Op.DESCRIBE, _ID),),)),
    Ask(
        "ConsumerGroupHeartbeat",
        68,
        lambda names, _: {
            "group_id": names.group,
            "member_id": "member",
            "member_epoch": 0,
            "rebalance_timeout_ms": 5000,
            "subscribed_topic_names": [names.topic],
            "topic_partitions": [],
        },
        (((Op.READ, Kind.GROUP),), _DESCRIBE_T),
    ),
    Ask("ConsumerGroupDescribe", 69, lambda names, _: {"group_ids": [names.group]}, (((Op.DESCRIBE, Kind.GROUP),),)),
    Ask("ListConfigResources", 74, lambda *_: {"resource_types": []}),
    Ask("DescribeTopicPartitions", 75, lambda names, _: {"topics": [{"name": names.topic}]}, (_DESCRIBE_T,)),
    Ask("DescribeTopicPartitions of all", 75, lambda *_: {"topics": []}, (_DESCRIBE_T,)),
    Ask(
        "ShareGroupHeartbeat",
        76,
        lambda names, _: {
            "group_id": names.group,
            "member_id": "member",
            "member_epoch": 0,
            "subscribed_topic_names": [names.topic],
        },
        (((Op.READ, Kind.GROUP),), _DESCRIBE_T),
    ),
    Ask("ShareGroupDescribe", 77, lambda names, _: {"group_ids": [names.group]}, (((Op.DESCRIBE, Kind.GROUP),),)),
    Ask(
        "ShareFetch",
        78,
        lambda names, _: {
            "group_id": names.group,
            "member_id": "member",
            "max_records": 1,
            "topics": [{"topic_id": names.topic_id, "partitions": [{"partition_index": 0}]}],
        },
        (((Op.READ, Kind.GROUP),), ((Op.READ, Kind.TOPIC),)),
    ),
    Ask(
        "ShareAcknowledge",
        79,
        lambda names, _: {"group_id": names.group, "member_id": "member", "share_session_epoch": 1},
        (((Op.READ, Kind.GROUP),),),
    ),
    Ask("InitializeShareGroupState", 83, _share_state, (((Op.CLUSTER_ACTION, _C),),)),
    Ask("ReadShareGroupState", 84, _share_state, (((Op.CLUSTER_ACTION, _C),),)),
    Ask("WriteShareGroupState", 85, _share_state, (((Op.CLUSTER_ACTION, _C),),)),
    Ask("DeleteShareGroupState", 86, _share_state, (((Op.CLUSTER_ACTION, _C),),)),
    Ask("ReadShareGroupStateSummary", 87, _share_state, (((Op.CLUSTER_ACTION, _C),),)),
    Ask(
        "DescribeShareGroupOffsets",
        90,
        lambda names, _: {
            "groups": [{"group_id": names.group, "topics": [{"topic_name": names.topic, "partitions": [0]}]}]
        },
        (((Op.DESCRIBE, Kind.GROUP),), _DESCRIBE_T),
    ),
    Ask(
        "AlterShareGroupOffsets",
        91,
        lambda names, _: {
            "group_id": names.group,
            "topics": [{"topic_name": names.topic, "partitions": [{"partition_index": 0, "start_offset": 0}]}],
        },
        (((Op.READ, Kind.GROUP),), ((Op.READ, Kind.TOPIC),)),
    ),
    Ask(
        "DeleteShareGroupOffsets",
        92,
        lambda names, _: {"group_id": names.group, "topics": [{"topic_name": names.topic}]},
        (((Op.DELETE, Kind.GROUP),), ((Op.READ, Kind.TOPIC),)),
    ),
)
"""The requests, without ApiVersions, SaslHandshake and SaslAuthenticate, which need no right."""
