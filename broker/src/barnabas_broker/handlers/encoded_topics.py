"""The cache of topics in the encoded form of Metadata responses.

Clients request the same topics repeatedly, and encoding 2,000 partitions takes 50 ms. After a change of a topic all
clients request the topic at once. Their requests share one encoding: each request, in its turn on the event loop,
encodes the next partitions, until the topic is complete.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from barnabas_broker.metadata.model import NO_LEADER, PartitionState, TopicDocument
from barnabas_broker.wire.encoder import Encoded, encode_element
from barnabas_broker.wire.messages import MetadataResponse
from barnabas_core.errors import ErrorCode
from barnabas_core.loop_turns import FairTurn
from barnabas_core.topic_name import is_internal

BYTES_MAX: Final = 32 * 1024 * 1024
"""The maximum size of all cached topics; the oldest are dropped first. A partition with three replicas takes 50
bytes."""
NOT_ASKED: Final = frozenset({31})
"""The authorized operations if the client did not ask for them, as in Kafka.

Only bit 31 is set, so the encoded bit field is the smallest int32.
"""
MESSAGE: Final = "MetadataResponse"

TopicResponse = MetadataResponse.MetadataResponseTopic
PartitionResponse = TopicResponse.MetadataResponsePartition


class Form(NamedTuple):
    """The values on which the encoding of a topic depends besides the topic: API version, operations, live brokers."""

    version: int
    operations: frozenset[int]
    """The codes of the operations that the client may perform on the topic."""
    live: frozenset[int]
    """The ids of the live brokers."""


class EncodedTopic(NamedTuple):
    """A topic in encoded form, as an element of a Metadata response."""

    document: TopicDocument
    live: frozenset[int]
    encoded: Encoded


class _BegunTopic:
    """A topic that is being encoded; all requests that need the encoded topic work on the same object."""

    def __init__(self, document: TopicDocument, form: Form) -> None:
        self.document = document
        self.form = form
        self.partitions: list[Encoded] = []
        self.whole: EncodedTopic | None = None

    def is_of(self, document: TopicDocument, form: Form) -> bool:
        """True if this object encodes exactly `document` with `form`, not an older version of the topic."""
        return self.document is document and self.form == form


LookUp = Callable[[str], tuple[TopicDocument, Form] | None]
"""A function that takes a topic name, and returns the topic and the values on which its encoding depends (`Form`).

The function returns None if the topic does not exist.
"""
_Key = tuple[str, int, frozenset[int]]


class EncodedTopics:
    """The broker's cache of encoded topics."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._kept: dict[_Key, EncodedTopic] = {}
        self._begun: WeakValueDictionary[_Key, _BegunTopic] = WeakValueDictionary()
        self.bytes_kept = 0
        self.partitions_encoded = 0

    def find(self, document: TopicDocument, form: Form) -> EncodedTopic | None:
        """Return the cached encoding of a topic, or None if it is missing or outdated."""
        kept = self._kept.get(_key(document, form))
        return kept if kept is not None and is_as(kept, document, form) else None

    def encode(self, document: TopicDocument, form: Form) -> EncodedTopic:
        """Return the cached encoding of a topic; if it is missing or outdated, encode the topic and cache it."""
        found = self.find(document, form)
        if found is None:
            partitions = [self._partition(document, form, index) for index in range(len(document.partitions))]
            found = _encode_topic(document, form, partitions)
            self._keep(_key(document, form), found)
        return found

    async def prepare(self, names: Iterable[str], look_up: LookUp, turn: FairTurn) -> dict[str, EncodedTopic]:
        """Return the existing topics in encoded form, by name; encode uncached topics in turns of the event loop."""
        prepared: dict[str, EncodedTopic] = {}
        for name in names:
            await turn.give_way()
            found = look_up(name)
            if found is not None:
                prepared[name] = self.find(*found) or await self._make(*found, look_up, turn)
        return prepared

    async def _make(self, document: TopicDocument, form: Form, look_up: LookUp, turn: FairTurn) -> EncodedTopic:
        begun = self._begun.get(_key(document, form))
        if begun is None or not begun.is_of(document, form):
            begun = self._begun[_key(document, form)] = _BegunTopic(document, form)
        while begun.whole is None:
            self._go_on(begun, look_up)
            await turn.give_way()
        return begun.whole

    def _go_on(self, begun: _BegunTopic, look_up: LookUp) -> None:
        """Encode the next partition; after the last partition, store the encoded topic in `whole`.

        Cache the encoded topic, too, unless the topic or the set of live brokers has changed meanwhile.
        """
        document, form, partitions = begun.document, begun.form, begun.partitions
        if len(partitions) < len(document.partitions):
            partitions.append(self._partition(document, form, len(partitions)))
        if len(partitions) == len(document.partitions):
            begun.whole = _encode_topic(document, form, partitions)
            now = look_up(document.name)
            if now is not None and is_as(begun.whole, *now):
                self._keep(_key(document, form), begun.whole)

    def _partition(self, document: TopicDocument, form: Form, index: int) -> Encoded:
        self.partitions_encoded += 1
        partition = _partition(index, document.partitions[index], form.live)
        return encode_element(MESSAGE, ("topics", "partitions"), form.version, partition)

    def _keep(self, key: _Key, kept: EncodedTopic) -> None:
        self._forget(key)
        self._kept[key] = kept
        self.bytes_kept += len(kept.encoded)
        while self.bytes_kept > self._bytes_max:
            self._forget(next(iter(self._kept)))

    def _forget(self, key: _Key) -> None:
        kept = self._kept.pop(key, None)
        self.bytes_kept -= 0 if kept is None else len(kept.encoded)


def is_as(encoded: EncodedTopic, document: TopicDocument, form: Form) -> bool:
    """True if neither the topic nor the set of live brokers has changed since the encoding."""
    return encoded.document is document and encoded.live == form.live


def _encode_topic(document: TopicDocument, form: Form, partitions: list[Encoded]) -> EncodedTopic:
    response = TopicResponse(
        name=document.name,
        topic_id=document.topic_id,
        is_internal=is_internal(document.name),
        partitions=partitions,  # type: ignore[arg-type]  # encoded elements stand for them
        authorized_operations=set(form.operations),
    )
    return EncodedTopic(document, form.live, encode_element(MESSAGE, ("topics",), form.version, response))


def _key(document: TopicDocument, form: Form) -> _Key:
    return document.name, form.version, form.operations


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
