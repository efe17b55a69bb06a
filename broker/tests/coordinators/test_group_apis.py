"""F40-F49, F07: the group APIs in every version, over the wire's bytes. kafka-python is the client's side."""

from typing import Any
from uuid import UUID

import pytest
from group_api_broker import (
    COMMIT,
    DESCRIBE,
    FETCH,
    FIND,
    FLIGHTS_ID,
    HEARTBEAT,
    JOIN,
    LEAVE,
    LIST,
    SYNC,
    UNKNOWN_ID,
    Assignment,
    Broker,
    CommitPartition,
    CommitTopic,
    topic,
)
from group_script import subscription
from kafka.protocol import consumer

from barnabas_broker.wire.framing import API_SPECS
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE

INIT_PRODUCER_ID, DELETE, OFFSET_DELETE = 22, 42, 47


def versions(api_key: int, since: int = 0) -> pytest.MarkDecorator:
    spec = API_SPECS[api_key]
    return pytest.mark.parametrize("version", range(max(spec.min_version, since), spec.max_version + 1))


FetchTopic = consumer.OffsetFetchRequest.OffsetFetchRequestTopic
FetchGroup = consumer.OffsetFetchRequest.OffsetFetchRequestGroup
DeleteTopic = consumer.OffsetDeleteRequest.OffsetDeleteRequestTopic
DeletePartition = DeleteTopic.OffsetDeleteRequestPartition


@pytest.fixture
def broker() -> Broker:
    return Broker()


@versions(JOIN)
def test_join_group(broker: Broker, version: int) -> None:
    joined = broker.member(version)
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
    assert joined.member_id.startswith("a-")
    assert joined.leader == joined.member_id
    assert [(member.member_id, member.metadata) for member in joined.members] == [
        (joined.member_id, subscription(["flights"]))
    ]
    if version >= 7:
        assert joined.protocol_type == "consumer"


@versions(JOIN)
def test_a_refused_join_has_a_null_protocol_only_where_the_version_allows_it(broker: Broker, version: int) -> None:
    refused = broker.member(version, session_timeout_ms=1)
    assert refused.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert refused.protocol_name == (None if version >= 7 else "")
    assert (refused.leader, refused.generation_id, refused.members) == ("", -1, [])


def test_join_version_0_uses_one_timeout_for_session_and_rebalance(broker: Broker) -> None:
    broker.member(0, session_timeout_ms=12_345)
    member = next(
        iter(broker.handler_environment.groups.runtime.find("readers").tables.groups["readers"].members.values())
    )
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (12_345, 12_345)


@versions(JOIN, since=5)
def test_a_returning_static_leader_keeps_the_generation_and_assigns_nothing(broker: Broker, version: int) -> None:
    first = broker.member(version, group_instance_id="gate")
    assert first.members[0].group_instance_id == "gate"
    everything = [Assignment(member_id=first.member_id, assignment=b"all")]
    broker.ask(
        SYNC,
        3,
        group_id="readers",
        generation_id=1,
        member_id=first.member_id,
        group_instance_id="gate",
        assignments=everything,
    )
    again = broker.member(version, group_instance_id="gate")
    assert (again.error_code, again.generation_id) == (0, 1)
    assert again.member_id != first.member_id
    if version >= 9:
        assert (again.leader, again.skip_assignment, len(again.members)) == (again.member_id, True, 1)
    else:
        assert (again.leader, again.members) == (first.member_id, [])


@versions(SYNC)
def test_sync_group(broker: Broker, version: int) -> None:
    synced = broker.sync(version, broker.member().member_id)
    assert (synced.error_code, synced.assignment) == (0, b"all")
    if version >= 5:
        assert (synced.protocol_type, synced.protocol_name) == ("consumer", "range")


@versions(SYNC)
@pytest.mark.parametrize("absent", ["protocol_type", "protocol_name"])
def test_a_sync_without_its_protocol_is_refused_from_version_5_on(broker: Broker, version: int, absent: str) -> None:
    joined = broker.member()
    named = {"protocol_type": "consumer", "protocol_name": "range"} | {absent: None}
    synced = broker.ask(SYNC, version, group_id="readers", generation_id=1, member_id=joined.member_id, **named)
    assert synced.error_code == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL if version >= 5 else 0)


@versions(HEARTBEAT)
def test_heartbeat(broker: Broker, version: int) -> None:
    joined = broker.stable()
    alive = {"group_id": "readers", "generation_id": 1, "member_id": joined.member_id}
    assert broker.ask(HEARTBEAT, version, **alive).error_code == 0
    assert broker.ask(HEARTBEAT, version, **alive | {"generation_id": 2}).error_code == ErrorCode.ILLEGAL_GENERATION


@versions(LEAVE)
def test_leave_group(broker: Broker, version: int) -> None:
    joined = broker.stable()
    identity = consumer.LeaveGroupRequest.MemberIdentity
    members = [identity(member_id=joined.member_id), identity(member_id="x-1", group_instance_id="x")]
    left = broker.ask(LEAVE, version, group_id="readers", member_id=joined.member_id, members=members)
    assert left.error_code == 0
    if version >= 3:
        assert [(each.member_id, each.group_instance_id, each.error_code) for each in left.members] == [
            (joined.member_id, None, 0),
            ("x-1", "x", ErrorCode.UNKNOWN_MEMBER_ID),
        ]
    else:
        again = broker.ask(LEAVE, version, group_id="readers", member_id=joined.member_id)
        assert again.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    nameless = broker.ask(LEAVE, version, group_id="", member_id="a", members=members)
    assert nameless.error_code == ErrorCode.INVALID_GROUP_ID


@versions(COMMIT)
def test_offset_commit(broker: Broker, version: int) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answer = broker.commit(version)
    partitions = [(each.partition_index, each.error_code) for topic in answer.topics for each in topic.partitions]
    assert partitions == [(5, 0), (5, unknown)]
    if version >= 10:
        assert [each.topic_id for each in answer.topics] == [FLIGHTS_ID, UNKNOWN_ID]
    else:
        assert [each.name for each in answer.topics] == ["flights", "nowhere"]
    committed = next(iter(broker.handler_environment.groups.committed("readers").values()))
    assert (committed.offset, committed.leader_epoch) == (3, 2 if version >= 6 else -1)
    assert (committed.metadata, committed.topic_id) == ("at gate 4", FLIGHTS_ID)
    assert committed.expire_timestamp_ms is None


@versions(COMMIT)
def test_a_commit_for_a_partition_that_does_not_exist_is_refused(broker: Broker, version: int) -> None:
    partitions = [CommitPartition(partition_index=index, committed_offset=3) for index in (6, 5, -1)]
    flights = CommitTopic(name="flights", topic_id=FLIGHTS_ID, partitions=partitions)
    answer = broker.commit(version, topics=[flights])
    assert {each.partition_index: each.error_code for each in answer.topics[0].partitions} == {
        6: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        5: 0,
        -1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert [each.partition for each in broker.handler_environment.groups.committed("readers")] == [5]


@pytest.mark.parametrize("version", [2, 3, 4])
def test_a_commit_of_an_old_client_may_set_any_retention(broker: Broker, version: int) -> None:
    broker.commit(version, retention_time_ms=60_000)
    committed = next(iter(broker.handler_environment.groups.committed("readers").values()))
    assert committed.expire_timestamp_ms == broker.world.clock.now_ms() + 60_000
    assert broker.commit(version, retention_time_ms=2**63 - 1).topics[0].partitions[0].error_code == 0


def fetched(broker: Broker, version: int, names: list[tuple[str, UUID]] | None) -> Any:
    if version < 8:
        topics = None if names is None else [FetchTopic(name=name, partition_indexes=[5, 0]) for name, _ in names]
        return broker.ask(FETCH, version, group_id="readers", topics=topics)
    if names is None:
        groups = [FetchGroup(group_id="readers", topics=None)]
    else:
        asked = [
            FetchGroup.OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=[5, 0])
            for name, topic_id in names
        ]
        groups = [FetchGroup(group_id="readers", topics=asked), FetchGroup(group_id="others", topics=asked)]
    return broker.ask(FETCH, version, groups=groups)


def partitions_of(topics: Any) -> list[tuple[int, int, str, int]]:
    return [
        (each.partition_index, each.committed_offset, each.metadata, each.error_code)
        for topic in topics
        for each in topic.partitions
    ]


@versions(FETCH)
def test_offset_fetch(broker: Broker, version: int) -> None:
    broker.commit(9)
    answer = fetched(broker, version, [("flights", FLIGHTS_ID), ("nowhere", UNKNOWN_ID)])
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else 0
    missing = [(5, -1, "", unknown), (0, -1, "", unknown)]
    topics = answer.groups[0].topics if version >= 8 else answer.topics
    assert partitions_of(topics) == [(5, 3, "at gate 4", 0), (0, -1, "", 0), *missing]
    if version >= 8:
        assert [group.error_code for group in answer.groups] == [0, 0]
        assert partitions_of(answer.groups[1].topics) == [(5, -1, "", 0), (0, -1, "", 0), *missing]
    if version >= 5:
        assert topics[0].partitions[0].committed_leader_epoch == 2


@versions(FETCH, since=2)
def test_a_fetch_of_null_topics_returns_all_committed_offsets(broker: Broker, version: int) -> None:
    broker.commit(9)
    answer = fetched(broker, version, None)
    topics = answer.groups[0].topics if version >= 8 else answer.topics
    assert partitions_of(topics) == [(5, 3, "at gate 4", 0)]
    assert topics[0].topic_id == FLIGHTS_ID if version >= 10 else topics[0].name == "flights"


@versions(FETCH)
def test_a_fetch_from_another_broker_gets_its_error_where_its_version_has_it(broker: Broker, version: int) -> None:
    broker.handler_environment.groups.runtime.resign_all()
    answer = fetched(broker, version, [("flights", FLIGHTS_ID)])
    if version >= 8:
        assert [group.error_code for group in answer.groups] == [ErrorCode.NOT_COORDINATOR] * 2
    elif version >= 2:
        assert (answer.error_code, answer.topics) == (ErrorCode.NOT_COORDINATOR, [])
    else:
        assert partitions_of(answer.topics) == [
            (5, -1, "", ErrorCode.NOT_COORDINATOR),
            (0, -1, "", ErrorCode.NOT_COORDINATOR),
        ]


@versions(FETCH)
def test_an_offset_of_a_recreated_topic_is_not_returned(broker: Broker, version: int) -> None:
    broker.commit(9)
    broker.topics["flights"] = topic("flights", UUID(int=70), 6)
    answer = fetched(broker, version, [("flights", UUID(int=70))])
    topics = answer.groups[0].topics if version >= 8 else answer.topics
    assert partitions_of(topics)[0] == (5, -1, "", 0)


def found(broker: Broker, version: int, key: str, key_type: int = 0) -> tuple[int, int, str, int, str | None]:
    answer = broker.ask(FIND, version, key=key, key_type=key_type, coordinator_keys=[key])
    one = answer.coordinators[0] if version >= 4 else answer
    return one.error_code, one.node_id, one.host, one.port, one.error_message if version >= 1 else None


@versions(FIND)
def test_find_coordinator_creates_the_offsets_topic_on_first_use(broker: Broker, version: int) -> None:
    expected = (0, 1, "kafka.example", 9092, None)
    assert found(broker, version, "readers") == expected
    assert found(broker, version, "readers") == expected
    assert broker.created == [CONSUMER_OFFSETS]
    broker.is_fenced = True
    assert found(broker, version, "readers")[:2] == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


@versions(FIND, since=1)
def test_find_coordinator_creates_the_transaction_topic_on_first_use(broker: Broker, version: int) -> None:
    assert found(broker, version, "payments", key_type=1) == (0, 1, "kafka.example", 9092, None)
    assert broker.created == [TRANSACTION_STATE]
    assert found(broker, version, "x", key_type=9)[0] == ErrorCode.INVALID_REQUEST


@versions(FIND, since=1)
def test_find_coordinator_knows_share_partitions_since_version_6(broker: Broker, version: int) -> None:
    key = "a:b:Z04AAAAAAAAAAAAAAAAAAA:7"
    if version < 6:
        assert found(broker, version, key, key_type=2)[0] == ErrorCode.INVALID_REQUEST
        assert not broker.created
    else:
        assert found(broker, version, key, key_type=2) == (0, 1, "kafka.example", 9092, None)
        assert broker.created == [SHARE_GROUP_STATE]
        assert found(broker, version, "no share-partition", key_type=2)[0] == ErrorCode.INVALID_REQUEST


def test_find_coordinator_without_keys_creates_no_topic(broker: Broker) -> None:
    assert not broker.ask(FIND, 4, coordinator_keys=[], key_type=1).coordinators
    assert not broker.created


def test_find_coordinator_fails_if_the_transaction_topic_is_an_ordinary_topic(broker: Broker) -> None:
    broker.topics[TRANSACTION_STATE] = topic(TRANSACTION_STATE, UUID(int=72), 1)
    error, node_id, *_, message = found(broker, 4, "payments", key_type=1)
    assert (error, node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    assert message is not None
    assert "delete the topic" in message


@versions(DESCRIBE)
def test_describe_groups(broker: Broker, version: int) -> None:
    joined = broker.stable()
    answer = broker.ask(DESCRIBE, version, groups=["readers", "nobody"], include_authorized_operations=True)
    group, missing = answer.groups
    assert (group.error_code, group.group_state, group.protocol_type, group.protocol_data) == (
        0,
        "Stable",
        "consumer",
        "range",
    )
    member = group.members[0]
    assert (member.member_id, member.client_id, member.client_host) == (joined.member_id, "a", "/10.0.0.7")
    assert (member.member_metadata, member.member_assignment) == (subscription(["flights"]), b"all")
    assert (missing.group_state, missing.members) == ("Dead", [])
    assert missing.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)
    if version >= 3:
        assert group.authorized_operations == {3, 6, 8, 10, 11}
    if version >= 6:
        assert missing.error_message == "Group nobody not found."
    broker.member(member_id=joined.member_id)
    rebalancing = broker.ask(DESCRIBE, version, groups=["readers"]).groups[0]
    assert (rebalancing.group_state, rebalancing.protocol_data) == ("CompletingRebalance", "")
    assert (rebalancing.members[0].member_metadata, rebalancing.members[0].member_assignment) == (b"", b"all")


@versions(LIST)
def test_list_groups(broker: Broker, version: int) -> None:
    broker.stable()
    broker.commit(9, group_id="others")

    def listed(**filters: list[str]) -> list[str]:
        answer = broker.ask(LIST, version, **filters)
        assert answer.error_code == 0
        return sorted(group.group_id for group in answer.groups)

    assert listed() == ["others", "readers"]
    if version >= 4:
        assert listed(states_filter=["stable"]) == ["readers"]
        assert listed(states_filter=["Empty", "Dead"]) == ["others"]
    if version >= 5:
        assert listed(types_filter=["Classic"]) == ["others", "readers"]
        assert listed(types_filter=["consumer"]) == []
        groups = {group.group_id: group for group in broker.ask(LIST, version).groups}
        assert (groups["readers"].group_state, groups["readers"].group_type) == ("Stable", "classic")
        assert (groups["readers"].protocol_type, groups["others"].protocol_type) == ("consumer", "")


@pytest.mark.parametrize("version", range(3))  # kafka-python lacks version 3, which adds messages.
def test_delete_groups(broker: Broker, version: int) -> None:
    broker.stable()
    broker.commit(9, group_id="others")
    answer = broker.ask(DELETE, version, groups_names=["readers", "others", "nobody", "others"])
    assert {each.group_id: each.error_code for each in answer.results} == {
        "readers": ErrorCode.NON_EMPTY_GROUP,
        "others": 0,
        "nobody": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert broker.ask(DELETE, version, groups_names=[]).results == []


def test_offset_delete(broker: Broker) -> None:
    partitions = [DeletePartition(partition_index=number) for number in (5, 6, -1)]
    topics = [DeleteTopic(name=name, partitions=partitions) for name in ("flights", "weather", "gone")]
    broker.topics["weather"] = topic("weather", UUID(int=71), 6)
    missing = broker.ask(OFFSET_DELETE, 0, group_id="readers", topics=topics)
    assert (missing.error_code, missing.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    broker.stable()
    answer = broker.ask(OFFSET_DELETE, 0, group_id="readers", topics=topics)
    assert {each.name: [partition.error_code for partition in each.partitions] for each in answer.topics} == {
        "flights": [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, *[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2],
        "weather": [ErrorCode.NONE, *[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2],
        "gone": [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3,
    }


@versions(INIT_PRODUCER_ID)
def test_init_producer_id(broker: Broker, version: int) -> None:
    answers = [broker.ask(INIT_PRODUCER_ID, version, transactional_id=None) for _ in range(3)]
    assert [(each.error_code, each.producer_id, each.producer_epoch) for each in answers] == [
        (0, 1000, 0),
        (0, 1001, 0),
        (0, 1002, 0),
    ]
    assert broker.ask(INIT_PRODUCER_ID, version, transactional_id="").error_code == ErrorCode.INVALID_REQUEST
