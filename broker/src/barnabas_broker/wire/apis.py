"""The APIs and versions that this broker supports, for framing, codec and ApiVersions.

The versions are those of Kafka 4.4.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

PARTITIONS_MAX: Final = 50_000
"""The maximum number of array elements in a request about topics and partitions."""
NAMED_TOPICS_MAX: Final = 30_000
"""The maximum number of array elements in a request that names topics, and few of their partitions."""
SHARE_STATES_MAX: Final = 20_000
"""The maximum number of array elements in a request of a broker to a share coordinator, which has a few thousand."""
NAMES_MAX: Final = 10_000
"""The maximum number of array elements in any other request, for example of groups, users or ACLs."""
LED_MAX: Final = 30_000
"""The maximum number of topics and partitions in a Fetch or DeleteRecords, which goes to the leader of all of them."""


class ApiSpec(NamedTuple):
    """An API: its key, Kafka's name, the supported versions (inclusive), and the first flexible version."""

    key: int
    name: str
    min_version: int
    max_version: int
    first_flexible_version: int | None
    elements_max: int = NAMES_MAX

    def supports(self, version: int) -> bool:
        """True if this broker supports the version."""
        return self.min_version <= version <= self.max_version

    def is_flexible(self, version: int) -> bool:
        """True if requests of this version have compact lengths and tagged fields (KIP-482)."""
        return self.first_flexible_version is not None and version >= self.first_flexible_version

    @property
    def advertised_min_version(self) -> int:
        """The minimum version of the API that ApiVersions responses list.

        It differs from `min_version` only for Produce: v0 to v2 are listed although the broker refuses them, because
        librdkafka does not compress for a broker that does not list them (KAFKA-18659).
        """
        return 0 if self.key == PRODUCE else self.min_version


PRODUCE: Final = 0
FETCH: Final = 1
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
SASL_AUTHENTICATE: Final = 36

_SPECS: Final = (
    ApiSpec(PRODUCE, "Produce", 3, 13, 9),
    ApiSpec(FETCH, "Fetch", 4, 18, 12, LED_MAX),
    ApiSpec(2, "ListOffsets", 1, 11, 6, PARTITIONS_MAX),
    ApiSpec(3, "Metadata", 0, 13, 9, PARTITIONS_MAX),
    ApiSpec(8, "OffsetCommit", 2, 10, 8, PARTITIONS_MAX),
    ApiSpec(9, "OffsetFetch", 1, 10, 6, PARTITIONS_MAX),
    ApiSpec(10, "FindCoordinator", 0, 6, 3),
    ApiSpec(11, "JoinGroup", 0, 9, 6),
    ApiSpec(12, "Heartbeat", 0, 4, 4),
    ApiSpec(13, "LeaveGroup", 0, 5, 4),
    ApiSpec(14, "SyncGroup", 0, 5, 4),
    ApiSpec(15, "DescribeGroups", 0, 6, 5),
    ApiSpec(16, "ListGroups", 0, 5, 3),
    ApiSpec(SASL_HANDSHAKE, "SaslHandshake", 0, 1, None),
    ApiSpec(API_VERSIONS, "ApiVersions", 0, 5, 3),
    ApiSpec(19, "CreateTopics", 2, 7, 5, PARTITIONS_MAX),
    ApiSpec(20, "DeleteTopics", 1, 6, 4, NAMED_TOPICS_MAX),
    ApiSpec(21, "DeleteRecords", 0, 2, 2, LED_MAX),
    ApiSpec(22, "InitProducerId", 0, 5, 2),
    ApiSpec(23, "OffsetForLeaderEpoch", 2, 4, 4, PARTITIONS_MAX),
    ApiSpec(24, "AddPartitionsToTxn", 0, 5, 3),
    ApiSpec(25, "AddOffsetsToTxn", 0, 4, 3),
    ApiSpec(26, "EndTxn", 0, 5, 3),
    ApiSpec(27, "WriteTxnMarkers", 1, 2, 1),
    ApiSpec(28, "TxnOffsetCommit", 0, 6, 3),
    ApiSpec(29, "DescribeAcls", 1, 3, 2),
    ApiSpec(30, "CreateAcls", 1, 3, 2),
    ApiSpec(31, "DeleteAcls", 1, 3, 2),
    ApiSpec(32, "DescribeConfigs", 1, 4, 4, PARTITIONS_MAX),
    ApiSpec(33, "AlterConfigs", 0, 2, 2, PARTITIONS_MAX),
    ApiSpec(34, "AlterReplicaLogDirs", 1, 2, 2, PARTITIONS_MAX),
    ApiSpec(35, "DescribeLogDirs", 1, 5, 2, PARTITIONS_MAX),
    ApiSpec(SASL_AUTHENTICATE, "SaslAuthenticate", 0, 2, 2),
    ApiSpec(37, "CreatePartitions", 0, 3, 2, NAMED_TOPICS_MAX),
    ApiSpec(38, "CreateDelegationToken", 1, 3, 2),
    ApiSpec(39, "RenewDelegationToken", 1, 2, 2),
    ApiSpec(40, "ExpireDelegationToken", 1, 2, 2),
    ApiSpec(41, "DescribeDelegationToken", 1, 3, 2),
    ApiSpec(42, "DeleteGroups", 0, 3, 2),
    ApiSpec(43, "ElectLeaders", 0, 2, 2, PARTITIONS_MAX),
    ApiSpec(44, "IncrementalAlterConfigs", 0, 1, 1, PARTITIONS_MAX),
    ApiSpec(45, "AlterPartitionReassignments", 0, 1, 0, PARTITIONS_MAX),
    ApiSpec(46, "ListPartitionReassignments", 0, 0, 0, PARTITIONS_MAX),
    ApiSpec(47, "OffsetDelete", 0, 0, None),
    ApiSpec(48, "DescribeClientQuotas", 0, 1, 1),
    ApiSpec(49, "AlterClientQuotas", 0, 1, 1),
    ApiSpec(50, "DescribeUserScramCredentials", 0, 0, 0),
    ApiSpec(51, "AlterUserScramCredentials", 0, 0, 0),
    ApiSpec(55, "DescribeQuorum", 0, 2, 0),
    ApiSpec(57, "UpdateFeatures", 0, 2, 0),
    ApiSpec(60, "DescribeCluster", 0, 2, 0),
    ApiSpec(61, "DescribeProducers", 0, 0, 0, PARTITIONS_MAX),
    ApiSpec(64, "UnregisterBroker", 0, 0, 0),
    ApiSpec(65, "DescribeTransactions", 0, 0, 0),
    ApiSpec(66, "ListTransactions", 0, 2, 0),
    ApiSpec(68, "ConsumerGroupHeartbeat", 0, 1, 0, NAMED_TOPICS_MAX),
    ApiSpec(69, "ConsumerGroupDescribe", 0, 1, 0),
    ApiSpec(74, "ListConfigResources", 0, 1, 0),
    ApiSpec(75, "DescribeTopicPartitions", 0, 0, 0, NAMED_TOPICS_MAX),
    ApiSpec(76, "ShareGroupHeartbeat", 1, 1, 0),
    ApiSpec(77, "ShareGroupDescribe", 1, 1, 0),
    ApiSpec(78, "ShareFetch", 1, 2, 0, PARTITIONS_MAX),
    ApiSpec(79, "ShareAcknowledge", 1, 2, 0, PARTITIONS_MAX),
    ApiSpec(83, "InitializeShareGroupState", 0, 0, 0, SHARE_STATES_MAX),
    ApiSpec(84, "ReadShareGroupState", 0, 0, 0, SHARE_STATES_MAX),
    ApiSpec(85, "WriteShareGroupState", 0, 1, 0, SHARE_STATES_MAX),
    ApiSpec(86, "DeleteShareGroupState", 0, 0, 0, SHARE_STATES_MAX),
    ApiSpec(87, "ReadShareGroupStateSummary", 0, 1, 0, SHARE_STATES_MAX),
    ApiSpec(90, "DescribeShareGroupOffsets", 0, 1, 0, PARTITIONS_MAX),
    ApiSpec(91, "AlterShareGroupOffsets", 0, 0, 0),
    ApiSpec(92, "DeleteShareGroupOffsets", 0, 0, 0),
)

API_SPECS: Final[Mapping[int, ApiSpec]] = {spec.key: spec for spec in _SPECS}
"""The supported APIs by API key."""

ABSENT_APIS: Final[Mapping[int, str]] = {
    71: "GetTelemetrySubscriptions",
    72: "PushTelemetry",
    80: "AddRaftVoter",
    81: "RemoveRaftVoter",
    88: "StreamsGroupHeartbeat",
    89: "StreamsGroupDescribe",
    93: "StreamsGroupTopologyDescriptionUpdate",
    94: "UnregisterController",
}
"""The names of APIs of Kafka 4.4 that this broker does not support, for error messages."""
