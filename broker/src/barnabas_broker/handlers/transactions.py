"""The requests of transactional producers, and those of brokers that add partitions for them or write markers.

InitProducerId (22), v0 to v5: the producer id and epoch of a producer. Without a transactional id, the producer gets
a new producer id with epoch 0. With a transactional id, the epoch increases, which fences all earlier producers with
this id, and their open transaction is aborted. From v3 on a producer sends its current producer id and epoch
(KIP-360); from v4 on the producer knows the error PRODUCER_FENCED.

AddPartitionsToTxn (24), v0 to v5: adds partitions to a transaction. Clients send v0 to v3. Brokers send v4 and later,
to add partitions to many transactions at once, or to verify that the partitions were added.

TxnOffsetCommit (28), v0 to v6: commits offsets of a group as part of a transaction. From v3 on the request names a
group member, and is refused if the member has left the group (KIP-447). v5 also adds the group's partition of
`__consumer_offsets` to the transaction, if the cluster's transaction.version is 2 (KIP-890). v6 replaces topic names
by topic ids, and its clients know the errors of consumer groups with member epochs (KIP-1319).

AddOffsetsToTxn (25), v0 to v4: adds a group's partition of `__consumer_offsets` to a transaction.

EndTxn (26), v0 to v5: commits or aborts a transaction. The response is sent when the coordinator's decision is
committed, before the markers are written. A v5 response has the producer id and epoch of the next transaction
(KIP-890); v5 requires transaction.version 2.

WriteTxnMarkers (27), v1 and v2: ends transactions in the partitions that this broker leads. Transaction coordinators
send WriteTxnMarkers, and so do tools that abort a hanging transaction (KIP-664). v2 adds the transaction.version by
which a marker's epoch is checked (KIP-1228). The response is sent when all in-sync replicas have the markers.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from inspect import isawaitable
from typing import Any, Final

from barnabas_broker.coordinators.groups.messages import CommitRequest, CommittedOffset
from barnabas_broker.coordinators.transactions.decisions import BUMPING_VERSION, NO_PRODUCER_ID, NOBODY, Decision
from barnabas_broker.coordinators.transactions.gate import Codes
from barnabas_broker.coordinators.transactions.marker_sender import state_of
from barnabas_broker.handlers.channel import AnswerInTurns, RequestContext, answer_of, awaited, rights_of
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.model import TopicDocument, transaction_version
from barnabas_broker.security.authorizer import Rights
from barnabas_broker.storage.producer_state import Verification
from barnabas_broker.wire.key_values import Marker, ProducerEpoch
from barnabas_broker.wire.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas_core.acls import AclOperation, ResourceType
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import flat_in_steps
from barnabas_core.topic_partition import CONSUMER_OFFSETS, TopicPartition, coordinator_partition, is_internal


async def _outcome(start: Callable[[Callable[[Decision], object]], object], *, knows_fenced: bool) -> Decision:
    """Return the coordinator's decision, after the decision is committed to the transaction log.

    If `knows_fenced` is False, INVALID_PRODUCER_EPOCH replaces PRODUCER_FENCED, which old clients do not know.
    """
    decision: Decision = await awaited(start)
    if decision.error is ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return decision._replace(error=ErrorCode.INVALID_PRODUCER_EPOCH)
    return decision


async def _id_if_lacking(environment: HandlerEnvironment, transactional_id: str, *, if_unknown: bool) -> int:
    """Return a new producer id if the coordinator may need one, else NO_PRODUCER_ID.

    Raises ApiError if no producer id can be allocated.
    """
    if environment.transactions.lacks_id(transactional_id, if_unknown=if_unknown):
        return await environment.producer_ids.next_id()
    return NO_PRODUCER_ID


FIRST_EPOCH: Final = 0
INIT_FENCED_SINCE: Final = 4


async def init_producer_id(
    environment: HandlerEnvironment, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """Return an unused producer id and epoch; with a transactional id, fence its earlier producers."""
    expected = ProducerEpoch(request.producer_id, request.producer_epoch)
    try:
        _check_right(rights_of(environment, context.client), request.transactional_id)
        if (expected.producer_id < 0) != (expected.epoch < 0):
            message = f"producer id {expected.producer_id} and epoch {expected.epoch} must both be set, or both be -1"
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
        if request.transactional_id is None:
            return _init_response(Decision(ErrorCode.NONE, None, await _new_producer(environment)))
        return _init_response(
            await _init_transactional(environment, context, request, request.transactional_id, expected)
        )
    except ApiError as error:
        return _init_response(Decision(error.code))


def _check_right(rights: Rights, transactional_id: str | None) -> None:
    """Raise ApiError unless the client may use the transactional id, or may write idempotently if the id is None."""
    if transactional_id is not None:
        if not rights.may(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif not rights.may_any(AclOperation.WRITE, ResourceType.TOPIC) and not rights.may(
        AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER
    ):
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


async def _new_producer(environment: HandlerEnvironment) -> ProducerEpoch:
    return ProducerEpoch(await environment.producer_ids.next_id(), FIRST_EPOCH)


async def _init_transactional(
    environment: HandlerEnvironment,
    context: RequestContext,
    request: InitProducerIdRequest,
    transactional_id: str,
    expected: ProducerEpoch,
) -> Decision:
    if not transactional_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the transactional id must not be empty")
    timeout_ms, timeout_max_ms = request.transaction_timeout_ms, environment.config.transaction_max_timeout_ms
    if not 0 < timeout_ms <= timeout_max_ms:
        message = f"transaction.timeout.ms={timeout_ms} must be from 1 to {timeout_max_ms} (transaction.max.timeout.ms)"
        raise ApiError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, message)
    new_id = await _id_if_lacking(environment, transactional_id, if_unknown=True)
    expected = NOBODY if expected.producer_id < 0 else expected
    return await _outcome(
        lambda answer: environment.transactions.init_producer_id(
            transactional_id, expected, timeout_ms, new_id, answer
        ),
        knows_fenced=context.api_version >= INIT_FENCED_SINCE,
    )


def _init_response(decision: Decision) -> InitProducerIdResponse:
    producer = NOBODY if decision.error else decision.producer
    return InitProducerIdResponse(
        error_code=decision.error,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        ongoing_txn_producer_id=NOBODY.producer_id,
        ongoing_txn_producer_epoch=NOBODY.epoch,
    )


FENCED_SINCE: Final = 2
ADD_BATCHED_SINCE: Final = 4
EXPLICIT_VERSION: Final = 0
"""The transaction.version for clients that send AddPartitionsToTxn or AddOffsetsToTxn instead of letting the broker add
partitions."""

AddPartitionsResult = AddPartitionsToTxnResponse.AddPartitionsToTxnResult


async def add_partitions_to_txn(
    environment: HandlerEnvironment, context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    """Add all partitions to the transaction, or none; return an error code for each partition.

    From v4 on, a request adds or only verifies the partitions of many transactions.
    """
    answer = AnswerInTurns(AddPartitionsToTxnResponse, context, environment.answers)
    if context.api_version >= ADD_BATCHED_SINCE:
        asked = [
            (each, _decision(environment, each, await _partitions(answer, each.topics)))
            async for each in answer.over(request.transactions)
        ]
        results = [
            AddPartitionsResult(
                transactional_id=each.transactional_id,
                topic_results=await _topic_results(answer, each.topics, await found if isawaitable(found) else found),
            )
            async for each, found in answer.over(asked)
        ]
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    partitions = await _partitions(answer, request.v3_and_below_topics)
    codes = await _add(environment, answer, context, request, partitions)
    topics = await _topic_results(answer, request.v3_and_below_topics, codes)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)


def _decision(
    environment: HandlerEnvironment, wanted: Any, partitions: list[TopicPartition]
) -> Codes | Awaitable[Codes]:
    by = ProducerEpoch(wanted.producer_id, wanted.producer_epoch)
    transactional_id, adds = wanted.transactional_id, not wanted.verify_only
    return answer_of(
        lambda answer: environment.gate.decide(transactional_id, by, adds=adds, partitions=partitions, answer=answer)
    )


async def _add(
    environment: HandlerEnvironment,
    answer: AnswerInTurns,
    context: RequestContext,
    request: AddPartitionsToTxnRequest,
    partitions: list[TopicPartition],
) -> Codes:
    rights = rights_of(environment, context.client)
    refusals = {each: _refusal(environment, rights, each) async for each in answer.over(partitions)}
    if any(refusals.values()):
        return {each: code or ErrorCode.OPERATION_NOT_ATTEMPTED async for each, code in answer.along(refusals.items())}
    by = ProducerEpoch(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    decision = await _outcome(
        lambda done: environment.transactions.add_partitions(
            request.v3_and_below_transactional_id, by, partitions, EXPLICIT_VERSION, done
        ),
        knows_fenced=context.api_version >= FENCED_SINCE,
    )
    return dict.fromkeys(partitions, decision.error)


def _refusal(environment: HandlerEnvironment, rights: Rights, partition: TopicPartition) -> ErrorCode:
    may_write = rights.may(AclOperation.WRITE, ResourceType.TOPIC, partition.topic)
    if is_internal(partition.topic) or not may_write:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    is_known = state_of(environment.image, partition) is not None
    return ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def _partitions(answer: AnswerInTurns, topics: Iterable[Any]) -> list[TopicPartition]:
    return await answer.turn.run(flat_in_steps(topics, _partitions_of))


def _partitions_of(topic: Any) -> Iterator[TopicPartition]:
    return (TopicPartition(topic.name, number) for number in topic.partitions)


async def _topic_results(answer: AnswerInTurns, topics: Iterable[Any], codes: Codes) -> list[Any]:
    kind = AddPartitionsResult.AddPartitionsToTxnTopicResult
    return [
        kind(
            name=topic.name,
            results_by_partition=[
                kind.AddPartitionsToTxnPartitionResult(
                    partition_index=number, partition_error_code=codes[TopicPartition(topic.name, number)]
                )
                async for number in answer.over(topic.partitions)
            ],
        )
        async for topic in answer.over(topics)
    ]


COMMIT_ABORTABLE_SINCE: Final = 4
COMMIT_ADDS_SINCE: Final = 5
COMMIT_LOADING_SINCE: Final = 2
COMMIT_TOPIC_IDS_SINCE: Final = 6

CommitTopicRequest = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
CommitTopicResponse = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
CommitPartitionResponse = CommitTopicResponse.TxnOffsetCommitResponsePartition


async def txn_offset_commit(
    environment: HandlerEnvironment, context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    """Store offsets that take effect if the transaction is committed, and return an error code for each partition."""
    answer = AnswerInTurns(TxnOffsetCommitResponse, context, environment.answers)
    documents = [_document(environment, context, topic) async for topic in answer.over(request.topics)]
    offsets = dict(await answer.turn.run(flat_in_steps(zip(request.topics, documents, strict=True), _offsets)))
    try:
        errors = await _commit(environment, context, request, offsets)
    except ApiError as error:
        errors = dict.fromkeys(offsets, _known_error(error.code, context.api_version))
    topics = [
        _answered(context, topic, document, errors)
        async for topic, document in answer.along(zip(request.topics, documents, strict=True))
    ]
    return TxnOffsetCommitResponse(topics=topics)


def _document(
    environment: HandlerEnvironment, context: RequestContext, topic: CommitTopicRequest
) -> TopicDocument | None:
    """Return the topic, or None if it does not exist."""
    by_id = context.api_version >= COMMIT_TOPIC_IDS_SINCE
    name = topic.name
    if by_id:
        name = "" if topic.topic_id is None else environment.image.topic_name(topic.topic_id) or ""
    return environment.image.topics.get(name)


def _answered(
    context: RequestContext,
    topic: CommitTopicRequest,
    document: TopicDocument | None,
    errors: Mapping[TopicPartition, ErrorCode],
) -> CommitTopicResponse:
    by_id = context.api_version >= COMMIT_TOPIC_IDS_SINCE
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id and document is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    name = topic.name if document is None else document.name
    partitions = [
        CommitPartitionResponse(
            partition_index=each.partition_index,
            error_code=errors.get(TopicPartition(name, each.partition_index), unknown),
        )
        for each in topic.partitions
    ]
    return CommitTopicResponse(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def offsets_partition(environment: HandlerEnvironment, group_id: str) -> TopicPartition:
    """Return the partition of `__consumer_offsets` that holds the offsets of a group."""
    return TopicPartition(CONSUMER_OFFSETS, coordinator_partition(group_id, environment.groups.runtime.partition_count))


async def _commit(
    environment: HandlerEnvironment,
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    offsets: Mapping[TopicPartition, CommittedOffset],
) -> dict[TopicPartition, ErrorCode]:
    if not request.group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "the group id must not be empty")
    producer = ProducerEpoch(request.producer_id, request.producer_epoch)
    verification = await _verify(environment, context, request, producer)
    commit = CommitRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id_or_member_epoch,
        api_version=context.api_version,
        offsets=list(offsets.items()),
        producer=producer,
    )
    errors: list[ErrorCode] = await awaited(lambda answer: environment.groups.commit(commit, answer))
    del verification  # It was held until here because the append requires it.
    known = [_known_error(error, context.api_version) for error in errors]
    return dict(zip(offsets, known, strict=True))


async def _verify(
    environment: HandlerEnvironment,
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    producer: ProducerEpoch,
) -> Verification:
    """Verify that the group's `__consumer_offsets` partition is in the open transaction of the producer.

    From v5 and transaction.version 2 on, the partition is first added to the transaction. The caller must submit
    the offsets in the same turn of the event loop, so that no transaction marker can be appended before them, and hold
    the verification until they are appended. Raises ApiError if the partition is not in the transaction.
    """
    partition = offsets_partition(environment, request.group_id)
    hosted = environment.replicas.lookup.find(partition.topic, None, partition.partition)
    producers, adds = hosted.log.producers, context.api_version >= COMMIT_ADDS_SINCE and environment.gate.takes_in
    verification = producers.verifications.begin(producer.producer_id, producer.epoch, has_own_epoch=adds)
    code = await environment.gate.ask(request.transactional_id, producer, partition, adds=adds)
    is_current = producers.verifications.current(producer.producer_id) is verification
    if code is ErrorCode.NONE and not is_current and not producers.is_in_transaction(*producer):
        code = ErrorCode.INVALID_TXN_STATE
    if code is not ErrorCode.NONE:
        raise ApiError(
            code, f"the coordinator of {request.transactional_id} refused the offsets of group {request.group_id}"
        )
    return verification


def _offsets(
    asked: tuple[CommitTopicRequest, TopicDocument | None],
) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
    """Yield the offsets of a topic's partitions that exist."""
    topic, document = asked
    for each in topic.partitions:
        if document is not None and 0 <= each.partition_index < len(document.partitions):
            committed = CommittedOffset(
                each.committed_offset,
                each.committed_leader_epoch,
                each.committed_metadata or "",
                topic_id=document.topic_id,
            )
            yield TopicPartition(document.name, each.partition_index), committed


def _known_error(code: ErrorCode, version: int) -> ErrorCode:
    """Convert an error code to a code that clients of the given version know."""
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < COMMIT_ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.NETWORK_EXCEPTION:  # Clients then try again without looking up the group's coordinator.
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    is_unknown = code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < COMMIT_LOADING_SINCE
    if is_unknown or code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return ErrorCode.NOT_COORDINATOR
    return code


async def add_offsets_to_txn(
    environment: HandlerEnvironment, context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    """Add the group's partition of `__consumer_offsets` to the transaction; create the topic if necessary."""
    if CONSUMER_OFFSETS not in environment.image.topics:
        await environment.metadata_writer.create_automatically([CONSUMER_OFFSETS])
    partition = offsets_partition(environment, request.group_id)
    decision = await _outcome(
        lambda answer: environment.transactions.add_partitions(
            request.transactional_id,
            ProducerEpoch(request.producer_id, request.producer_epoch),
            [partition],
            EXPLICIT_VERSION,
            answer,
        ),
        knows_fenced=context.api_version >= FENCED_SINCE,
    )
    is_unknown = decision.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE if is_unknown else decision.error)


END_BUMPS_SINCE: Final = 5


async def end_txn(environment: HandlerEnvironment, context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    """Commit or abort the transaction; return the producer id and epoch of the next transaction."""
    try:
        decision = await _end(environment, context, request)
    except ApiError as error:
        decision = Decision(error.code)
    response = EndTxnResponse(error_code=decision.error)
    if not decision.error:
        response.producer_id, response.producer_epoch = decision.producer
    return response


async def _end(environment: HandlerEnvironment, context: RequestContext, request: EndTxnRequest) -> Decision:
    bumps = context.api_version >= END_BUMPS_SINCE
    if bumps and transaction_version(environment.image.features) < BUMPING_VERSION:
        message = f"EndTxn v{context.api_version} requires transaction.version {BUMPING_VERSION}"
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, message)
    if not request.transactional_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the transactional id must not be empty")
    new_id = await _id_if_lacking(environment, request.transactional_id, if_unknown=False)
    return await _outcome(
        lambda answer: environment.transactions.end(
            request.transactional_id,
            ProducerEpoch(request.producer_id, request.producer_epoch),
            commit=request.committed,
            client_version=BUMPING_VERSION if bumps else 0,
            new_id=new_id,
            answer=answer,
        ),
        knows_fenced=context.api_version >= FENCED_SINCE,
    )


MARKER_TIMEOUT_S: Final = 30
"""The seconds to wait for the in-sync replicas, as in Kafka; then the coordinator sends the marker again."""

_LED_ELSEWHERE: Final = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)

MarkerResult = WriteTxnMarkersResponse.WritableTxnMarkerResult
MarkerTopicResult = MarkerResult.WritableTxnMarkerTopicResult
MarkerPartitionResult = MarkerTopicResult.WritableTxnMarkerPartitionResult


async def write_txn_markers(
    environment: HandlerEnvironment, context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    """Append all markers, and return an error code for each partition, grouped by producer."""
    writing = _Writing(environment)
    try:
        async for wanted in writing.turn.over(request.markers):
            marker = Marker(
                wanted.producer_id, wanted.producer_epoch, wanted.coordinator_epoch, wanted.transaction_result
            )
            async for topic in writing.turn.over(wanted.topics):
                async for index in writing.turn.over(topic.partition_indexes):
                    writing.append(topic.name, index, marker, wanted.transaction_version)
        return WriteTxnMarkersResponse(markers=await writing.results())
    finally:
        writing.end()


def _partition_error(error: ErrorCode) -> ErrorCode:
    """Convert an error of the group coordinator to the partition error that senders of markers expect."""
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if error in _LED_ELSEWHERE else error


class _Writing:
    """The markers of one request, each with a future for its error code."""

    def __init__(self, environment: HandlerEnvironment) -> None:
        self.turn = environment.answers.turn()
        self._environment = environment
        self._codes: dict[int, dict[str, list[tuple[int, asyncio.Future[ErrorCode]]]]] = {}
        """The partition indexes, each with a future for the partition's error code, by producer id, then by topic."""
        self._timer = environment.timers.call_later(MARKER_TIMEOUT_S, self._expire)

    def append(self, topic: str, index: int, marker: Marker, transaction_version: int) -> None:
        """Append one marker to one partition; the group coordinator does so for `__consumer_offsets`."""
        code: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self._codes.setdefault(marker.producer_id, {}).setdefault(topic, []).append((index, code))

        def done(error: ApiError | None) -> None:
            if not code.done():
                code.set_result(ErrorCode.NONE if error is None else error.code)

        if topic == CONSUMER_OFFSETS:
            self._environment.groups.end_transaction(
                index,
                marker,
                transaction_version,
                lambda error: done(ApiError(_partition_error(error)) if error else None),
            )
            return
        try:
            with self._environment.replicas.failures.using(topic, index) as partition:
                partition.check_writable(all_replicas=True)
                offset = partition.append_marker(marker, transaction_version, self._environment.clock.now_ms())
                partition.waits.wait(offset + 1, done, partition.log.high_watermark)
        except ApiError as error:
            done(error)

    async def results(self) -> list[MarkerResult]:
        """Wait until all markers are committed or the timeout is over, and return the results."""
        return [
            MarkerResult(
                producer_id=producer_id,
                topics=[
                    MarkerTopicResult(
                        name=name,
                        partitions=[
                            MarkerPartitionResult(partition_index=index, error_code=await code) for index, code in codes
                        ],
                    )
                    for name, codes in topics.items()
                ],
            )
            for producer_id, topics in self._codes.items()
        ]

    def _expire(self) -> None:
        for topics in self._codes.values():
            for codes in topics.values():
                for _, code in codes:
                    if not code.done():
                        code.set_result(ErrorCode.REQUEST_TIMED_OUT)

    def end(self) -> None:
        """Cancel the timer that sets the error REQUEST_TIMED_OUT for uncommitted markers."""
        self._timer.cancel()
