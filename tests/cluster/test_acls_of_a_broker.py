"""A broker with an authorizer, asked by a client that has not authenticated."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.admin import (
    CreateAclsRequest,
    CreateTopicsRequest,
    DeleteAclsRequest,
    DeleteTopicsRequest,
    DescribeAclsRequest,
    DescribeClusterRequest,
)
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import InitProducerIdRequest, ProduceRequest

from barnabas_core.acls import AclOperation, PatternType, Permission, ResourceType
from harness.ask import ask
from harness.barnabas_server import prepare_barnabas

ANONYMOUS = "User:ANONYMOUS"


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
        "allow.everyone.if.no.acl.found": "true",
    }
    server = prepare_barnabas(tmp_path, properties)
    server.start()
    try:
        yield server.port
    finally:
        server.stop()


def create_acl(
    port: int,
    kind: ResourceType,
    name: str,
    operation: AclOperation,
    permission: Permission = Permission.DENY,
    principal: str = ANONYMOUS,
) -> Any:
    creation = CreateAclsRequest.AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=PatternType.LITERAL,
        principal=principal,
        host="*",
        operation=operation,
        permission_type=permission,
    )
    return ask(port, CreateAclsRequest(creations=[creation]), 3).results[0]


def create_topics(port: int, *names: str) -> list[int]:
    topic = CreateTopicsRequest.CreatableTopic
    topics = [topic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]) for name in names]
    answer = ask(port, CreateTopicsRequest(topics=topics, timeout_ms=5000, validate_only=False), 5)
    return [each.error_code for each in answer.topics]


def metadata(port: int, names: list[str] | None, **more: bool) -> dict[str, Any]:
    wanted = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False, **more)
    return {each.name: each for each in ask(port, request, 10).topics}


def produce(port: int, *names: str) -> dict[str, int]:
    topic = ProduceRequest.TopicProduceData
    data = [topic(name=name, partition_data=[topic.PartitionProduceData(index=0, records=b"")]) for name in names]
    answer = ask(port, ProduceRequest(transactional_id=None, acks=1, timeout_ms=5000, topic_data=data), 9)
    return {each.name: each.partition_responses[0].error_code for each in answer.responses}


def fetch(port: int, *names: str) -> dict[str, int]:
    topic = FetchRequest.FetchTopic
    partition = topic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topics = [topic(topic=name, partitions=[partition]) for name in names]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1000, isolation_level=0, topics=topics)
    return {each.topic: each.partitions[0].error_code for each in ask(port, request, 11).responses}


def test_what_is_denied_is_as_if_it_were_not_there(port: int) -> None:
    assert create_topics(port, "open", "secret") == [0, 0]
    assert create_acl(port, ResourceType.TOPIC, "secret", AclOperation.ALL).error_code == 0
    assert create_acl(port, ResourceType.TOPIC, "absent", AclOperation.ALL).error_code == 0
    assert metadata(port, None).keys() == {"open"}
    found = metadata(port, ["open", "secret", "absent"], include_topic_authorized_operations=True)
    assert {name: each.error_code for name, each in found.items()} == {"open": 0, "secret": 29, "absent": 29}
    assert (found["secret"].topic_id, found["secret"].partitions) == (found["absent"].topic_id, [])
    assert produce(port, "open", "secret")["secret"] == produce(port, "absent")["absent"] == 29
    assert produce(port, "open")["open"] != 29
    assert fetch(port, "open", "secret", "absent") == {"open": 0, "secret": 29, "absent": 29}
    topic = ListOffsetsRequest.ListOffsetsTopic
    topics = [
        topic(name=name, partitions=[topic.ListOffsetsPartition(partition_index=0, timestamp=-1)])
        for name in ("open", "secret")
    ]
    offsets = ask(port, ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics), 5).topics
    assert {each.name: each.partitions[0].error_code for each in offsets} == {"open": 0, "secret": 29}
    assert create_acl(port, ResourceType.CLUSTER, "kafka-cluster", AclOperation.DELETE).error_code == 0
    gone = ask(port, DeleteTopicsRequest(topic_names=["secret"], timeout_ms=5000), 5).responses
    assert [each.error_code for each in gone] == [29]


def test_acls_are_listed_and_removed_and_then_hold_no_more(port: int) -> None:
    assert create_topics(port, "secret") == [0]
    assert create_acl(port, ResourceType.TOPIC, "secret", AclOperation.READ, principal="alice").error_code == 42
    assert create_acl(port, ResourceType.TOPIC, "secret", AclOperation.READ).error_code == 0
    assert create_acl(port, ResourceType.TOPIC, "secret", AclOperation.READ).error_code == 0
    assert create_acl(port, ResourceType.TOPIC, "secret", AclOperation.WRITE, principal="User:bob").error_code == 0
    assert fetch(port, "secret") == {"secret": 29}
    every: dict[str, Any] = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
    }
    every |= {"host_filter": None, "operation": 1, "permission_type": 1}
    (listed,) = ask(port, DescribeAclsRequest(**every), 3).resources
    assert (listed.resource_type, listed.resource_name, listed.pattern_type) == (2, "secret", 3)
    assert {(each.principal, each.operation) for each in listed.acls} == {(ANONYMOUS, 3), ("User:bob", 4)}
    only = DeleteAclsRequest.DeleteAclsFilter(**(every | {"principal_filter": ANONYMOUS}))
    (result,) = ask(port, DeleteAclsRequest(filters=[only]), 3).filter_results
    assert [each.principal for each in result.matching_acls] == [ANONYMOUS]
    assert fetch(port, "secret") == {"secret": 29}, "an ACL of somebody else ends what everybody may"
    ask(port, DeleteAclsRequest(filters=[DeleteAclsRequest.DeleteAclsFilter(**every)]), 3)
    assert ask(port, DescribeAclsRequest(**every), 3).resources == []
    assert fetch(port, "secret") == {"secret": 0}


def test_answers_say_what_a_client_may_do(port: int) -> None:
    assert create_topics(port, "t") == [0]
    assert create_acl(port, ResourceType.TOPIC, "t", AclOperation.READ, Permission.ALLOW).error_code == 0
    told = metadata(port, ["t"], include_topic_authorized_operations=True)["t"]
    assert told.authorized_operations == {AclOperation.READ, AclOperation.DESCRIBE}
    assert create_acl(port, ResourceType.CLUSTER, "kafka-cluster", AclOperation.ALTER, Permission.ALLOW).error_code == 0
    cluster = ask(port, DescribeClusterRequest(include_cluster_authorized_operations=True), 0)
    assert cluster.authorized_operations == {AclOperation.ALTER, AclOperation.DESCRIBE}
    assert ask(port, InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000), 1).error_code != 53
    assert create_acl(port, ResourceType.TRANSACTIONAL_ID, "x", AclOperation.WRITE).error_code == 0
    assert ask(port, InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000), 1).error_code == 53
