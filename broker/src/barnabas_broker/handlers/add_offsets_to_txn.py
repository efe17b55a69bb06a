"""AddOffsetsToTxn (25), v0 to v4: adds a group's partition of `__consumer_offsets` to a transaction."""

from typing import Final

from barnabas_broker.handlers.add_partitions_to_txn import EXPLICIT_VERSION
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.deferred_answer import outcome
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.handlers.txn_offset_commit import offsets_partition
from barnabas_broker.wire.key_values import ProducerEpoch
from barnabas_broker.wire.messages import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_name import CONSUMER_OFFSETS

FENCED_SINCE: Final = 2


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    """Add the group's partition of `__consumer_offsets` to the transaction; create the topic if necessary."""
    if CONSUMER_OFFSETS not in environment.image.topics:
        await environment.metadata_writer.create_automatically([CONSUMER_OFFSETS])
    partition = offsets_partition(environment, request.group_id)
    decision = await outcome(
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
