"""Messages that kafka-python does not ship, or only in earlier versions, from `barnabas_core.definitions`."""

from typing import Any

from kafka.protocol import metadata
from kafka.protocol.api_message import ApiMessage


class AlterUserScramCredentialsRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """The request to change SCRAM credentials, with our own field."""


class ApiVersionsRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """The request for the versions of all APIs."""


class ApiVersionsResponse(metadata.ApiVersionsResponse, load_json="barnabas_core.definitions"):
    """The response to that request."""


class ConsumerGroupDescribeRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """The request to describe consumer groups."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json="barnabas_core.definitions"):
    """The response to that request."""

    @classmethod
    def json_patch(cls, json: Any) -> Any:
        """Read operations as a set, as kafka-python does for other groups."""
        json["fields"][1]["fields"][-1]["type"] = "bitfield"
        return json


class ConsumerGroupHeartbeatRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """The heartbeat of a member of a consumer group."""


class ConsumerGroupHeartbeatResponse(ApiMessage, load_json="barnabas_core.definitions"):
    """The response to that request."""


class CreateDelegationTokenRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """The request to create a delegation token."""


class CreateDelegationTokenResponse(ApiMessage, load_json="barnabas_core.definitions"):
    """The response to that request."""


class DeleteGroupsRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """The request to delete groups."""


class DeleteGroupsResponse(ApiMessage, load_json="barnabas_core.definitions"):
    """The response to that request."""


class DescribeDelegationTokenRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """The request to list delegation tokens."""


class DescribeDelegationTokenResponse(ApiMessage, load_json="barnabas_core.definitions"):
    """The response to that request."""


class ExpireDelegationTokenRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """The request to end a delegation token."""


class ExpireDelegationTokenResponse(ApiMessage, load_json="barnabas_core.definitions"):
    """The response to that request."""


class RenewDelegationTokenRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """The request to renew a delegation token."""


class RenewDelegationTokenResponse(ApiMessage, load_json="barnabas_core.definitions"):
    """The response to that request."""


class ShareAcknowledgeRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """The request to acknowledge records of a share group."""


class ShareAcknowledgeResponse(ApiMessage, load_json="barnabas_core.definitions"):
    """The response to that request."""


class ShareFetchRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """The request to acquire records of a share group."""


class ShareFetchResponse(ApiMessage, load_json="barnabas_core.definitions"):
    """The response to that request."""


class TxnOffsetCommitRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """The request to commit offsets in a transaction."""


class TxnOffsetCommitResponse(ApiMessage, load_json="barnabas_core.definitions"):
    """The response to that request."""


class UnregisterBrokerRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """The request to unregister a broker."""


class UnregisterBrokerResponse(ApiMessage, load_json="barnabas_core.definitions"):
    """The response to that request."""


class InitializeShareGroupStateRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """The request of brokers about the state of share-partitions."""


class InitializeShareGroupStateResponse(ApiMessage, load_json="barnabas_core.definitions"):
    """The response to that request."""


class ReadShareGroupStateRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """The request of brokers about the state of share-partitions."""


class ReadShareGroupStateResponse(ApiMessage, load_json="barnabas_core.definitions"):
    """The response to that request."""


class WriteShareGroupStateRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """The request of brokers about the state of share-partitions."""


class WriteShareGroupStateResponse(ApiMessage, load_json="barnabas_core.definitions"):
    """The response to that request."""


class DeleteShareGroupStateRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """The request of brokers about the state of share-partitions."""


class DeleteShareGroupStateResponse(ApiMessage, load_json="barnabas_core.definitions"):
    """The response to that request."""


class ReadShareGroupStateSummaryRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """The request of brokers about the state of share-partitions."""


class ReadShareGroupStateSummaryResponse(ApiMessage, load_json="barnabas_core.definitions"):
    """The response to that request."""


class ShareGroupHeartbeatRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """The heartbeat of a member of a share group."""


class ShareGroupHeartbeatResponse(ApiMessage, load_json="barnabas_core.definitions"):
    """The response to that request."""


class ShareGroupDescribeRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """The request to describe share groups."""


class ShareGroupDescribeResponse(ApiMessage, load_json="barnabas_core.definitions"):
    """The response to that request."""

    @classmethod
    def json_patch(cls, json: Any) -> Any:
        """Read operations as a set, as kafka-python does for other groups."""
        json["fields"][1]["fields"][-1]["type"] = "bitfield"
        return json


class DescribeShareGroupOffsetsRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """The request for start offsets and lag of share groups."""


class DescribeShareGroupOffsetsResponse(ApiMessage, load_json="barnabas_core.definitions"):
    """The response to that request."""


class AlterShareGroupOffsetsRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """The request to set start offsets of a share group."""


class AlterShareGroupOffsetsResponse(ApiMessage, load_json="barnabas_core.definitions"):
    """The response to that request."""


class DeleteShareGroupOffsetsRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """The request to delete a share group's state of topics."""


class DeleteShareGroupOffsetsResponse(ApiMessage, load_json="barnabas_core.definitions"):
    """The response to that request."""
