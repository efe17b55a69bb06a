"""The errors for requests to a partition that this broker does not lead or does not have."""

from collections.abc import Sequence
from uuid import UUID

from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_core.errors import ApiError, ErrorCode


def why_missing(
    image: MetadataImage, broker_id: int, name: str | None, topic_id: UUID | None, index: int, *, is_unmade: bool
) -> ApiError:
    """Return the error for a partition that this broker does not have.

    `is_unmade` is True if the metadata assigns the partition to this broker, and the broker has yet to create it.
    """
    if name is None:
        name = image.topic_name(topic_id) if topic_id is not None else None
        if name is None:
            return ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id}")
    document = image.topics.get(name)
    if document is None:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
    if not 0 <= index < len(document.partitions):
        allowed = f"the topic has the partitions 0 to {len(document.partitions) - 1}"
        return ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {index} of topic {name}; {allowed}"
        )
    if is_unmade:
        return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name}-{index} is being created on this broker")
    if broker_id in document.partitions[index].replicas:
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {name}-{index} is offline, damaged or missing")
    return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name}-{index} has no replica on this broker")


def other_epoch(asked: int, current: int) -> ApiError:
    """Return the error for a leader epoch that is older or newer than the current one (KIP-320)."""
    code = ErrorCode.FENCED_LEADER_EPOCH if asked < current else ErrorCode.UNKNOWN_LEADER_EPOCH
    return ApiError(code, f"the request has leader epoch {asked}, but the current leader epoch is {current}")


def no_replica(broker_id: int, replicas: Sequence[int]) -> ApiError:
    """Return the error for a follower that is not a replica in the leader's metadata."""
    return ApiError(
        ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {broker_id} is not a replica; the replicas are {tuple(replicas)}"
    )
