"""Topics as Metadata answers them, encoded: kept as long as nothing about them changes, made in slices where large.

Clients ask for the same topics again and again; to encode 2,000 partitions each time takes 50 ms.
"""

import asyncio
from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas_broker.metadata.model import NO_LEADER, PartitionState, TopicDocument
from barnabas_broker.wire.codec import encode_element
from barnabas_broker.wire.encoder import Encoded
from barnabas_broker.wire.messages import MetadataResponse
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_name import is_internal

BYTES_MAX: Final = 32 * 1024 * 1024
"""Kept in all; the oldest go first. A partition of three replicas takes about 50."""
SLICE_PARTITIONS: Final = 300
"""Encoded in one turn of the loop: 8 ms."""
TOPIC_OPERATIONS: Final = {3, 4, 5, 6, 7, 8, 10, 11}
"""Read, write, create, delete, alter, describe, describe and alter configs: without ACLs everybody may."""
NOT_ASKED: Final = {31}
"""Encodes as the smallest int32, the protocol's "not asked for"."""
MESSAGE: Final = "MetadataResponse"

TopicResponse = MetadataResponse.MetadataResponseTopic
PartitionResponse = TopicResponse.MetadataResponsePartition


class Form(NamedTuple):
    """What the bytes depend on besides the topic."""

    version: int
    tells_operations: bool
    live: frozenset[int]
    """The brokers that are."""


class EncodedTopic(NamedTuple):
    """The bytes stand for the element of the answer."""

    document: TopicDocument
    live: frozenset[int]
    encoded: Encoded


class EncodedTopics:
    """Topics as they are encoded in answers to Metadata; a broker has one of these."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._kept: dict[tuple[str, int, bool], EncodedTopic] = {}
        self.bytes_kept = 0
        self.partitions_encoded = 0

    def find(self, document: TopicDocument, form: Form) -> EncodedTopic | None:
        """The topic, if it is kept as it is now."""
        kept = self._kept.get((document.name, form.version, form.tells_operations))
        return kept if kept is not None and kept.document is document and kept.live == form.live else None

    def encode(self, document: TopicDocument, form: Form) -> EncodedTopic:
        """The topic, kept or made now."""
        return self.find(document, form) or self._encode_topic(document, form, self._partitions(document, form, 0))

    async def prepare(self, documents: Iterable[TopicDocument], form: Form) -> dict[str, EncodedTopic]:
        """All of them, in slices; they may have changed meanwhile."""
        prepared: dict[str, EncodedTopic] = {}
        in_slice = 0
        for document in documents:
            found = self.find(document, form)
            if found is None:
                partitions: list[Encoded] = []
                while len(partitions) < len(document.partitions):
                    part = self._partitions(document, form, len(partitions), SLICE_PARTITIONS - in_slice)
                    partitions += part
                    in_slice += len(part)
                    if in_slice >= SLICE_PARTITIONS:
                        in_slice = 0
                        await asyncio.sleep(0)
                found = self._encode_topic(document, form, partitions)
            prepared[document.name] = found
        return prepared

    def _partitions(self, document: TopicDocument, form: Form, first: int, count: int | None = None) -> list[Encoded]:
        states = document.partitions[first : None if count is None else first + count]
        self.partitions_encoded += len(states)
        return [
            encode_element(MESSAGE, ("topics", "partitions"), form.version, _partition(index, state, form.live))
            for index, state in enumerate(states, first)
        ]

    def _encode_topic(self, document: TopicDocument, form: Form, partitions: list[Encoded]) -> EncodedTopic:
        response = TopicResponse(
            error_code=ErrorCode.NONE,
            name=document.name,
            topic_id=document.topic_id,
            is_internal=is_internal(document.name),
            partitions=partitions,  # type: ignore[arg-type]  # encoded elements stand for them
            authorized_operations=TOPIC_OPERATIONS if form.tells_operations else NOT_ASKED,
        )
        encoded = encode_element(MESSAGE, ("topics",), form.version, response)
        topic = EncodedTopic(document, form.live, encoded)
        self._keep((document.name, form.version, form.tells_operations), topic)
        return topic

    def _keep(self, key: tuple[str, int, bool], kept: EncodedTopic) -> None:
        self._forget(key)
        self._kept[key] = kept
        self.bytes_kept += len(kept.encoded)
        while self.bytes_kept > self._bytes_max:
            self._forget(next(iter(self._kept)))

    def _forget(self, key: tuple[str, int, bool]) -> None:
        kept = self._kept.pop(key, None)
        self.bytes_kept -= 0 if kept is None else len(kept.encoded)


def _partition(index: int, state: PartitionState, live: frozenset[int]) -> PartitionResponse:
    return PartitionResponse(
        error_code=ErrorCode.NONE if state.leader in live else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=state.leader if state.leader in live else NO_LEADER,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        offline_replicas=[replica for replica in state.replicas if replica not in live],
    )
