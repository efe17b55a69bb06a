"""For the type checker: the messages have the shapes that kafka-python's own stubs describe, field by field.

At run time kafka-python is not imported: see messages.py.
"""

from typing import Any
from uuid import UUID

from kafka.protocol.admin import AlterClientQuotasRequest as AlterClientQuotasRequest
from kafka.protocol.admin import AlterClientQuotasResponse as AlterClientQuotasResponse
from kafka.protocol.admin import AlterConfigsRequest as AlterConfigsRequest
from kafka.protocol.admin import AlterConfigsResponse as AlterConfigsResponse
from kafka.protocol.admin import AlterPartitionReassignmentsRequest as AlterPartitionReassignmentsRequest
from kafka.protocol.admin import AlterPartitionReassignmentsResponse as AlterPartitionReassignmentsResponse
from kafka.protocol.admin import AlterReplicaLogDirsRequest as AlterReplicaLogDirsRequest
from kafka.protocol.admin import AlterReplicaLogDirsResponse as AlterReplicaLogDirsResponse
from kafka.protocol.admin import AlterUserScramCredentialsResponse as AlterUserScramCredentialsResponse
from kafka.protocol.admin import CreateAclsRequest as CreateAclsRequest
from kafka.protocol.admin import CreateAclsResponse as CreateAclsResponse
from kafka.protocol.admin import CreatePartitionsRequest as CreatePartitionsRequest
from kafka.protocol.admin import CreatePartitionsResponse as CreatePartitionsResponse
from kafka.protocol.admin import CreateTopicsRequest as CreateTopicsRequest
from kafka.protocol.admin import CreateTopicsResponse as CreateTopicsResponse
from kafka.protocol.admin import DeleteAclsRequest as DeleteAclsRequest
from kafka.protocol.admin import DeleteAclsResponse as DeleteAclsResponse
from kafka.protocol.admin import DeleteGroupsRequest as DeleteGroupsRequest
from kafka.protocol.admin import DeleteGroupsResponse as DeleteGroupsResponse
from kafka.protocol.admin import DeleteRecordsRequest as DeleteRecordsRequest
from kafka.protocol.admin import DeleteRecordsResponse as DeleteRecordsResponse
from kafka.protocol.admin import DeleteTopicsRequest as DeleteTopicsRequest
from kafka.protocol.admin import DeleteTopicsResponse as DeleteTopicsResponse
from kafka.protocol.admin import DescribeAclsRequest as DescribeAclsRequest
from kafka.protocol.admin import DescribeAclsResponse as DescribeAclsResponse
from kafka.protocol.admin import DescribeClientQuotasRequest as DescribeClientQuotasRequest
from kafka.protocol.admin import DescribeClientQuotasResponse as DescribeClientQuotasResponse
from kafka.protocol.admin import DescribeClusterRequest as DescribeClusterRequest
from kafka.protocol.admin import DescribeClusterResponse as DescribeClusterResponse
from kafka.protocol.admin import DescribeConfigsRequest as DescribeConfigsRequest
from kafka.protocol.admin import DescribeConfigsResponse as DescribeConfigsResponse
from kafka.protocol.admin import DescribeGroupsRequest as DescribeGroupsRequest
from kafka.protocol.admin import DescribeGroupsResponse as DescribeGroupsResponse
from kafka.protocol.admin import DescribeLogDirsRequest as DescribeLogDirsRequest
from kafka.protocol.admin import DescribeLogDirsResponse as DescribeLogDirsResponse
from kafka.protocol.admin import DescribeProducersRequest as DescribeProducersRequest
from kafka.protocol.admin import DescribeProducersResponse as DescribeProducersResponse
from kafka.protocol.admin import DescribeQuorumRequest as DescribeQuorumRequest
from kafka.protocol.admin import DescribeQuorumResponse as DescribeQuorumResponse
from kafka.protocol.admin import DescribeTopicPartitionsRequest as DescribeTopicPartitionsRequest
from kafka.protocol.admin import DescribeTopicPartitionsResponse as DescribeTopicPartitionsResponse
from kafka.protocol.admin import DescribeTransactionsRequest as DescribeTransactionsRequest
from kafka.protocol.admin import DescribeTransactionsResponse as DescribeTransactionsResponse
from kafka.protocol.admin import DescribeUserScramCredentialsRequest as DescribeUserScramCredentialsRequest
from kafka.protocol.admin import DescribeUserScramCredentialsResponse as DescribeUserScramCredentialsResponse
from kafka.protocol.admin import ElectLeadersRequest as ElectLeadersRequest
from kafka.protocol.admin import ElectLeadersResponse as ElectLeadersResponse
from kafka.protocol.admin import IncrementalAlterConfigsRequest as IncrementalAlterConfigsRequest
from kafka.protocol.admin import IncrementalAlterConfigsResponse as IncrementalAlterConfigsResponse
from kafka.protocol.admin import ListConfigResourcesRequest as ListConfigResourcesRequest
from kafka.protocol.admin import ListConfigResourcesResponse as ListConfigResourcesResponse
from kafka.protocol.admin import ListGroupsRequest as ListGroupsRequest
from kafka.protocol.admin import ListGroupsResponse as ListGroupsResponse
from kafka.protocol.admin import ListPartitionReassignmentsRequest as ListPartitionReassignmentsRequest
from kafka.protocol.admin import ListPartitionReassignmentsResponse as ListPartitionReassignmentsResponse
from kafka.protocol.admin import ListTransactionsRequest as ListTransactionsRequest
from kafka.protocol.admin import ListTransactionsResponse as ListTransactionsResponse
from kafka.protocol.admin import UpdateFeaturesRequest as UpdateFeaturesRequest
from kafka.protocol.admin import UpdateFeaturesResponse as UpdateFeaturesResponse
from kafka.protocol.consumer import FetchRequest as FetchRequest
from kafka.protocol.consumer import HeartbeatRequest as HeartbeatRequest
from kafka.protocol.consumer import HeartbeatResponse as HeartbeatResponse
from kafka.protocol.consumer import JoinGroupRequest as JoinGroupRequest
from kafka.protocol.consumer import JoinGroupResponse as JoinGroupResponse
from kafka.protocol.consumer import LeaveGroupRequest as LeaveGroupRequest
from kafka.protocol.consumer import LeaveGroupResponse as LeaveGroupResponse
from kafka.protocol.consumer import ListOffsetsRequest as ListOffsetsRequest
from kafka.protocol.consumer import ListOffsetsResponse as ListOffsetsResponse
from kafka.protocol.consumer import OffsetCommitRequest as OffsetCommitRequest
from kafka.protocol.consumer import OffsetCommitResponse as OffsetCommitResponse
from kafka.protocol.consumer import OffsetDeleteRequest as OffsetDeleteRequest
from kafka.protocol.consumer import OffsetDeleteResponse as OffsetDeleteResponse
from kafka.protocol.consumer import OffsetFetchRequest as OffsetFetchRequest
from kafka.protocol.consumer import OffsetFetchResponse as OffsetFetchResponse
from kafka.protocol.consumer import OffsetForLeaderEpochRequest as OffsetForLeaderEpochRequest
from kafka.protocol.consumer import OffsetForLeaderEpochResponse as OffsetForLeaderEpochResponse
from kafka.protocol.consumer import SyncGroupRequest as SyncGroupRequest
from kafka.protocol.consumer import SyncGroupResponse as SyncGroupResponse
from kafka.protocol.metadata import FindCoordinatorRequest as FindCoordinatorRequest
from kafka.protocol.metadata import FindCoordinatorResponse as FindCoordinatorResponse
from kafka.protocol.metadata import MetadataRequest as MetadataRequest
from kafka.protocol.metadata import MetadataResponse as MetadataResponse
from kafka.protocol.producer import AddOffsetsToTxnRequest as AddOffsetsToTxnRequest
from kafka.protocol.producer import AddOffsetsToTxnResponse as AddOffsetsToTxnResponse
from kafka.protocol.producer import AddPartitionsToTxnRequest as AddPartitionsToTxnRequest
from kafka.protocol.producer import AddPartitionsToTxnResponse as AddPartitionsToTxnResponse
from kafka.protocol.producer import EndTxnRequest as EndTxnRequest
from kafka.protocol.producer import EndTxnResponse as EndTxnResponse
from kafka.protocol.producer import InitProducerIdRequest as InitProducerIdRequest
from kafka.protocol.producer import InitProducerIdResponse as InitProducerIdResponse
from kafka.protocol.producer import ProduceRequest as ProduceRequest
from kafka.protocol.producer import WriteTxnMarkersRequest as WriteTxnMarkersRequest
from kafka.protocol.producer import WriteTxnMarkersResponse as WriteTxnMarkersResponse
from kafka.protocol.sasl import SaslAuthenticateRequest as SaslAuthenticateRequest
from kafka.protocol.sasl import SaslAuthenticateResponse as SaslAuthenticateResponse
from kafka.protocol.sasl import SaslHandshakeRequest as SaslHandshakeRequest
from kafka.protocol.sasl import SaslHandshakeResponse as SaslHandshakeResponse

from barnabas_broker.wire import schema

class ShareAcknowledgeRequest:
    class AcknowledgeTopic:
        class AcknowledgePartition:
            class AcknowledgementBatch:
                def __init__(
                    self,
                    *,
                    first_offset: int = ...,
                    last_offset: int = ...,
                    acknowledge_types: list[int] = ...,
                ) -> None: ...
                first_offset: int
                last_offset: int
                acknowledge_types: list[int]

            def __init__(
                self,
                *,
                partition_index: int = ...,
                acknowledgement_batches: list[AcknowledgementBatch] = ...,
            ) -> None: ...
            partition_index: int
            acknowledgement_batches: list[AcknowledgementBatch]

        def __init__(self, *, topic_id: UUID | None = ..., partitions: list[AcknowledgePartition] = ...) -> None: ...
        topic_id: UUID | None
        partitions: list[AcknowledgePartition]

    def __init__(
        self,
        *,
        group_id: str | None = ...,
        member_id: str | None = ...,
        share_session_epoch: int = ...,
        is_renew_ack: bool = ...,
        topics: list[AcknowledgeTopic] = ...,
    ) -> None: ...
    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    is_renew_ack: bool
    topics: list[AcknowledgeTopic]

class ShareAcknowledgeResponse:
    class ShareAcknowledgeTopicResponse:
        class PartitionData:
            class LeaderIdAndEpoch:
                def __init__(self, *, leader_id: int = ..., leader_epoch: int = ...) -> None: ...
                leader_id: int
                leader_epoch: int

            def __init__(
                self,
                *,
                partition_index: int = ...,
                error_code: int = ...,
                error_message: str | None = ...,
                current_leader: LeaderIdAndEpoch = ...,
            ) -> None: ...
            partition_index: int
            error_code: int
            error_message: str | None
            current_leader: LeaderIdAndEpoch

        def __init__(self, *, topic_id: UUID | None = ..., partitions: list[PartitionData] = ...) -> None: ...
        topic_id: UUID | None
        partitions: list[PartitionData]

    class NodeEndpoint:
        def __init__(self, *, node_id: int = ..., host: str = ..., port: int = ..., rack: str | None = ...) -> None: ...
        node_id: int
        host: str
        port: int
        rack: str | None

    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        acquisition_lock_timeout_ms: int = ...,
        responses: list[ShareAcknowledgeTopicResponse] = ...,
        node_endpoints: list[NodeEndpoint] = ...,
    ) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    acquisition_lock_timeout_ms: int
    responses: list[ShareAcknowledgeTopicResponse]
    node_endpoints: list[NodeEndpoint]

class ShareFetchRequest:
    class FetchTopic:
        class FetchPartition:
            class AcknowledgementBatch:
                def __init__(
                    self,
                    *,
                    first_offset: int = ...,
                    last_offset: int = ...,
                    acknowledge_types: list[int] = ...,
                ) -> None: ...
                first_offset: int
                last_offset: int
                acknowledge_types: list[int]

            def __init__(
                self,
                *,
                partition_index: int = ...,
                partition_max_bytes: int = ...,
                acknowledgement_batches: list[AcknowledgementBatch] = ...,
            ) -> None: ...
            partition_index: int
            partition_max_bytes: int
            acknowledgement_batches: list[AcknowledgementBatch]

        def __init__(self, *, topic_id: UUID | None = ..., partitions: list[FetchPartition] = ...) -> None: ...
        topic_id: UUID | None
        partitions: list[FetchPartition]

    class ForgottenTopic:
        def __init__(self, *, topic_id: UUID | None = ..., partitions: list[int] = ...) -> None: ...
        topic_id: UUID | None
        partitions: list[int]

    def __init__(
        self,
        *,
        group_id: str | None = ...,
        member_id: str | None = ...,
        share_session_epoch: int = ...,
        max_wait_ms: int = ...,
        min_bytes: int = ...,
        max_bytes: int = ...,
        max_records: int = ...,
        batch_size: int = ...,
        share_acquire_mode: int = ...,
        is_renew_ack: bool = ...,
        topics: list[FetchTopic] = ...,
        forgotten_topics_data: list[ForgottenTopic] = ...,
    ) -> None: ...
    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    share_acquire_mode: int
    is_renew_ack: bool
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic]

class ShareFetchResponse:
    class ShareFetchableTopicResponse:
        class PartitionData:
            class LeaderIdAndEpoch:
                def __init__(self, *, leader_id: int = ..., leader_epoch: int = ...) -> None: ...
                leader_id: int
                leader_epoch: int

            class AcquiredRecords:
                def __init__(
                    self,
                    *,
                    first_offset: int = ...,
                    last_offset: int = ...,
                    delivery_count: int = ...,
                ) -> None: ...
                first_offset: int
                last_offset: int
                delivery_count: int

            def __init__(
                self,
                *,
                partition_index: int = ...,
                error_code: int = ...,
                error_message: str | None = ...,
                acknowledge_error_code: int = ...,
                acknowledge_error_message: str | None = ...,
                current_leader: LeaderIdAndEpoch = ...,
                records: bytes | memoryview = ...,
                acquired_records: list[AcquiredRecords] = ...,
            ) -> None: ...
            partition_index: int
            error_code: int
            error_message: str | None
            acknowledge_error_code: int
            acknowledge_error_message: str | None
            current_leader: LeaderIdAndEpoch
            records: bytes | memoryview
            acquired_records: list[AcquiredRecords]

        def __init__(self, *, topic_id: UUID | None = ..., partitions: list[PartitionData] = ...) -> None: ...
        topic_id: UUID | None
        partitions: list[PartitionData]

    class NodeEndpoint:
        def __init__(self, *, node_id: int = ..., host: str = ..., port: int = ..., rack: str | None = ...) -> None: ...
        node_id: int
        host: str
        port: int
        rack: str | None

    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        acquisition_lock_timeout_ms: int = ...,
        responses: list[ShareFetchableTopicResponse] = ...,
        node_endpoints: list[NodeEndpoint] = ...,
    ) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    acquisition_lock_timeout_ms: int
    responses: list[ShareFetchableTopicResponse]
    node_endpoints: list[NodeEndpoint]

class UnregisterBrokerRequest:
    def __init__(self, *, broker_id: int = ...) -> None: ...
    broker_id: int

class UnregisterBrokerResponse:
    def __init__(
        self, *, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ...
    ) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None

class AlterUserScramCredentialsRequest:
    class ScramCredentialDeletion:
        def __init__(self, *, name: str = ..., mechanism: int = ...) -> None: ...
        name: str
        mechanism: int

    # In the stub alone the fields of a deletion come from that class, as handlers treat both alike.
    class ScramCredentialUpsertion(ScramCredentialDeletion):
        def __init__(
            self,
            *,
            name: str = ...,
            mechanism: int = ...,
            iterations: int = ...,
            salt: bytes = ...,
            salted_password: bytes = ...,
            previous_password_ms: int = ...,
        ) -> None: ...
        iterations: int
        salt: bytes
        salted_password: bytes
        previous_password_ms: int

    def __init__(
        self, *, deletions: list[ScramCredentialDeletion] = ..., upsertions: list[ScramCredentialUpsertion] = ...
    ) -> None: ...
    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]

class ConsumerGroupHeartbeatRequest:
    class TopicPartitions:
        def __init__(self, *, topic_id: UUID | None = ..., partitions: list[int] = ...) -> None: ...
        topic_id: UUID | None
        partitions: list[int]

    def __init__(
        self,
        *,
        group_id: str = ...,
        member_id: str = ...,
        member_epoch: int = ...,
        instance_id: str | None = ...,
        rack_id: str | None = ...,
        rebalance_timeout_ms: int = ...,
        subscribed_topic_names: list[str] | None = ...,
        subscribed_topic_regex: str | None = ...,
        server_assignor: str | None = ...,
        topic_partitions: list[TopicPartitions] | None = ...,
    ) -> None: ...
    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    subscribed_topic_names: list[str] | None
    subscribed_topic_regex: str | None
    server_assignor: str | None
    topic_partitions: list[TopicPartitions] | None

class ConsumerGroupHeartbeatResponse:
    class Assignment:
        class TopicPartitions:
            def __init__(self, *, topic_id: UUID | None = ..., partitions: list[int] = ...) -> None: ...
            topic_id: UUID | None
            partitions: list[int]

        def __init__(self, *, topic_partitions: list[TopicPartitions] = ...) -> None: ...
        topic_partitions: list[TopicPartitions]

    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        member_id: str | None = ...,
        member_epoch: int = ...,
        heartbeat_interval_ms: int = ...,
        assignment: Assignment | None = ...,
    ) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Assignment | None

class ConsumerGroupDescribeRequest:
    def __init__(self, *, group_ids: list[str] = ..., include_authorized_operations: bool = ...) -> None: ...
    group_ids: list[str]
    include_authorized_operations: bool

class ConsumerGroupDescribeResponse:
    class DescribedGroup:
        class Member:
            class Assignment:
                class TopicPartitions:
                    def __init__(
                        self, *, topic_id: UUID | None = ..., topic_name: str = ..., partitions: list[int] = ...
                    ) -> None: ...
                    topic_id: UUID | None
                    topic_name: str
                    partitions: list[int]

                def __init__(self, *, topic_partitions: list[TopicPartitions] = ...) -> None: ...
                topic_partitions: list[TopicPartitions]

            def __init__(
                self,
                *,
                member_id: str = ...,
                instance_id: str | None = ...,
                rack_id: str | None = ...,
                member_epoch: int = ...,
                client_id: str = ...,
                client_host: str = ...,
                subscribed_topic_names: list[str] = ...,
                subscribed_topic_regex: str | None = ...,
                assignment: Assignment = ...,
                target_assignment: Assignment = ...,
                member_type: int = ...,
            ) -> None: ...
            member_id: str
            instance_id: str | None
            rack_id: str | None
            member_epoch: int
            client_id: str
            client_host: str
            subscribed_topic_names: list[str]
            subscribed_topic_regex: str | None
            assignment: Assignment
            target_assignment: Assignment
            member_type: int

        def __init__(
            self,
            *,
            error_code: int = ...,
            error_message: str | None = ...,
            group_id: str = ...,
            group_state: str = ...,
            group_epoch: int = ...,
            assignment_epoch: int = ...,
            assignor_name: str = ...,
            members: list[Member] = ...,
            authorized_operations: set[int] = ...,
        ) -> None: ...
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        group_epoch: int
        assignment_epoch: int
        assignor_name: str
        members: list[Member]
        authorized_operations: set[int]

    def __init__(self, *, throttle_time_ms: int = ..., groups: list[DescribedGroup] = ...) -> None: ...
    throttle_time_ms: int
    groups: list[DescribedGroup]

class TxnOffsetCommitRequest:
    class TxnOffsetCommitRequestTopic:
        class TxnOffsetCommitRequestPartition:
            def __init__(
                self,
                *,
                partition_index: int = ...,
                committed_offset: int = ...,
                committed_leader_epoch: int = ...,
                committed_metadata: str | None = ...,
            ) -> None: ...
            partition_index: int
            committed_offset: int
            committed_leader_epoch: int
            committed_metadata: str | None

        def __init__(
            self,
            *,
            name: str = ...,
            topic_id: UUID | None = ...,
            partitions: list[TxnOffsetCommitRequestPartition] = ...,
        ) -> None: ...
        name: str
        topic_id: UUID | None
        partitions: list[TxnOffsetCommitRequestPartition]

    def __init__(
        self,
        *,
        transactional_id: str = ...,
        group_id: str = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        generation_id_or_member_epoch: int = ...,
        member_id: str = ...,
        group_instance_id: str | None = ...,
        topics: list[TxnOffsetCommitRequestTopic] = ...,
    ) -> None: ...
    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    topics: list[TxnOffsetCommitRequestTopic]

class TxnOffsetCommitResponse:
    class TxnOffsetCommitResponseTopic:
        class TxnOffsetCommitResponsePartition:
            def __init__(self, *, partition_index: int = ..., error_code: int = ...) -> None: ...
            partition_index: int
            error_code: int

        def __init__(
            self,
            *,
            name: str = ...,
            topic_id: UUID | None = ...,
            partitions: list[TxnOffsetCommitResponsePartition] = ...,
        ) -> None: ...
        name: str
        topic_id: UUID | None
        partitions: list[TxnOffsetCommitResponsePartition]

    def __init__(self, *, throttle_time_ms: int = ..., topics: list[TxnOffsetCommitResponseTopic] = ...) -> None: ...
    throttle_time_ms: int
    topics: list[TxnOffsetCommitResponseTopic]

def message_class(name: str) -> type[Any]: ...
def struct_class(struct: schema.Struct) -> type[Any]: ...

class ShareGroupHeartbeatRequest:
    def __init__(
        self,
        *,
        group_id: str = ...,
        member_id: str = ...,
        member_epoch: int = ...,
        rack_id: str | None = ...,
        subscribed_topic_names: list[str] | None = ...,
    ) -> None: ...
    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None
    subscribed_topic_names: list[str] | None

class ShareGroupHeartbeatResponse:
    class Assignment:
        class TopicPartitions:
            def __init__(
                self,
                *,
                topic_id: UUID | None = ...,
                partitions: list[int] = ...,
            ) -> None: ...
            topic_id: UUID | None
            partitions: list[int]

        def __init__(
            self,
            *,
            topic_partitions: list[TopicPartitions] = ...,
        ) -> None: ...
        topic_partitions: list[TopicPartitions]

    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        member_id: str | None = ...,
        member_epoch: int = ...,
        heartbeat_interval_ms: int = ...,
        assignment: Assignment | None = ...,
    ) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Assignment | None

class ShareGroupDescribeRequest:
    def __init__(
        self,
        *,
        group_ids: list[str] = ...,
        include_authorized_operations: bool = ...,
    ) -> None: ...
    group_ids: list[str]
    include_authorized_operations: bool

class ShareGroupDescribeResponse:
    class DescribedGroup:
        class Member:
            class Assignment:
                class TopicPartitions:
                    def __init__(
                        self,
                        *,
                        topic_id: UUID | None = ...,
                        topic_name: str = ...,
                        partitions: list[int] = ...,
                    ) -> None: ...
                    topic_id: UUID | None
                    topic_name: str
                    partitions: list[int]

                def __init__(
                    self,
                    *,
                    topic_partitions: list[TopicPartitions] = ...,
                ) -> None: ...
                topic_partitions: list[TopicPartitions]

            def __init__(
                self,
                *,
                member_id: str = ...,
                rack_id: str | None = ...,
                member_epoch: int = ...,
                client_id: str = ...,
                client_host: str = ...,
                subscribed_topic_names: list[str] = ...,
                assignment: Assignment = ...,
            ) -> None: ...
            member_id: str
            rack_id: str | None
            member_epoch: int
            client_id: str
            client_host: str
            subscribed_topic_names: list[str]
            assignment: Assignment

        def __init__(
            self,
            *,
            error_code: int = ...,
            error_message: str | None = ...,
            group_id: str = ...,
            group_state: str = ...,
            group_epoch: int = ...,
            assignment_epoch: int = ...,
            assignor_name: str = ...,
            members: list[Member] = ...,
            authorized_operations: set[int] = ...,
        ) -> None: ...
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        group_epoch: int
        assignment_epoch: int
        assignor_name: str
        members: list[Member]
        authorized_operations: set[int]

    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        groups: list[DescribedGroup] = ...,
    ) -> None: ...
    throttle_time_ms: int
    groups: list[DescribedGroup]

class DescribeShareGroupOffsetsRequest:
    class DescribeShareGroupOffsetsRequestGroup:
        class DescribeShareGroupOffsetsRequestTopic:
            def __init__(
                self,
                *,
                topic_name: str = ...,
                partitions: list[int] = ...,
            ) -> None: ...
            topic_name: str
            partitions: list[int]

        def __init__(
            self,
            *,
            group_id: str = ...,
            topics: list[DescribeShareGroupOffsetsRequestTopic] | None = ...,
        ) -> None: ...
        group_id: str
        topics: list[DescribeShareGroupOffsetsRequestTopic] | None

    def __init__(
        self,
        *,
        groups: list[DescribeShareGroupOffsetsRequestGroup] = ...,
    ) -> None: ...
    groups: list[DescribeShareGroupOffsetsRequestGroup]

class DescribeShareGroupOffsetsResponse:
    class DescribeShareGroupOffsetsResponseGroup:
        class DescribeShareGroupOffsetsResponseTopic:
            class DescribeShareGroupOffsetsResponsePartition:
                def __init__(
                    self,
                    *,
                    partition_index: int = ...,
                    start_offset: int = ...,
                    leader_epoch: int = ...,
                    lag: int = ...,
                    error_code: int = ...,
                    error_message: str | None = ...,
                ) -> None: ...
                partition_index: int
                start_offset: int
                leader_epoch: int
                lag: int
                error_code: int
                error_message: str | None

            def __init__(
                self,
                *,
                topic_name: str = ...,
                topic_id: UUID | None = ...,
                partitions: list[DescribeShareGroupOffsetsResponsePartition] = ...,
            ) -> None: ...
            topic_name: str
            topic_id: UUID | None
            partitions: list[DescribeShareGroupOffsetsResponsePartition]

        def __init__(
            self,
            *,
            group_id: str = ...,
            topics: list[DescribeShareGroupOffsetsResponseTopic] = ...,
            error_code: int = ...,
            error_message: str | None = ...,
        ) -> None: ...
        group_id: str
        topics: list[DescribeShareGroupOffsetsResponseTopic]
        error_code: int
        error_message: str | None

    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        groups: list[DescribeShareGroupOffsetsResponseGroup] = ...,
    ) -> None: ...
    throttle_time_ms: int
    groups: list[DescribeShareGroupOffsetsResponseGroup]

class AlterShareGroupOffsetsRequest:
    class AlterShareGroupOffsetsRequestTopic:
        class AlterShareGroupOffsetsRequestPartition:
            def __init__(
                self,
                *,
                partition_index: int = ...,
                start_offset: int = ...,
            ) -> None: ...
            partition_index: int
            start_offset: int

        def __init__(
            self,
            *,
            topic_name: str = ...,
            partitions: list[AlterShareGroupOffsetsRequestPartition] = ...,
        ) -> None: ...
        topic_name: str
        partitions: list[AlterShareGroupOffsetsRequestPartition]

    def __init__(
        self,
        *,
        group_id: str = ...,
        topics: list[AlterShareGroupOffsetsRequestTopic] = ...,
    ) -> None: ...
    group_id: str
    topics: list[AlterShareGroupOffsetsRequestTopic]

class AlterShareGroupOffsetsResponse:
    class AlterShareGroupOffsetsResponseTopic:
        class AlterShareGroupOffsetsResponsePartition:
            def __init__(
                self,
                *,
                partition_index: int = ...,
                error_code: int = ...,
                error_message: str | None = ...,
            ) -> None: ...
            partition_index: int
            error_code: int
            error_message: str | None

        def __init__(
            self,
            *,
            topic_name: str = ...,
            topic_id: UUID | None = ...,
            partitions: list[AlterShareGroupOffsetsResponsePartition] = ...,
        ) -> None: ...
        topic_name: str
        topic_id: UUID | None
        partitions: list[AlterShareGroupOffsetsResponsePartition]

    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        responses: list[AlterShareGroupOffsetsResponseTopic] = ...,
    ) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    responses: list[AlterShareGroupOffsetsResponseTopic]

class DeleteShareGroupOffsetsRequest:
    class DeleteShareGroupOffsetsRequestTopic:
        def __init__(
            self,
            *,
            topic_name: str = ...,
        ) -> None: ...
        topic_name: str

    def __init__(
        self,
        *,
        group_id: str = ...,
        topics: list[DeleteShareGroupOffsetsRequestTopic] = ...,
    ) -> None: ...
    group_id: str
    topics: list[DeleteShareGroupOffsetsRequestTopic]

class DeleteShareGroupOffsetsResponse:
    class DeleteShareGroupOffsetsResponseTopic:
        def __init__(
            self,
            *,
            topic_name: str = ...,
            topic_id: UUID | None = ...,
            error_code: int = ...,
            error_message: str | None = ...,
        ) -> None: ...
        topic_name: str
        topic_id: UUID | None
        error_code: int
        error_message: str | None

    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        responses: list[DeleteShareGroupOffsetsResponseTopic] = ...,
    ) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    responses: list[DeleteShareGroupOffsetsResponseTopic]
