"""The steps that handlers of transactional requests share."""

from collections.abc import Callable

from barnabas_broker.coordinators.transactions.decisions import Decision
from barnabas_broker.coordinators.transactions.transaction import NO_PRODUCER_ID
from barnabas_broker.handlers.deferred_answer import awaited
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_core.errors import ErrorCode


async def outcome(start: Callable[[Callable[[Decision], object]], object], *, knows_fenced: bool) -> Decision:
    """Return the coordinator's decision once it is committed. Older clients know PRODUCER_FENCED by an older code."""
    decision: Decision = await awaited(start)
    if decision.error is ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return decision._replace(error=ErrorCode.INVALID_PRODUCER_EPOCH)
    return decision


async def id_if_lacking(environment: HandlerEnvironment, transactional_id: str, *, if_unknown: bool) -> int:
    """A new producer id where the next decision may need one, else NO_PRODUCER_ID. ApiError."""
    if environment.transactions.lacks_id(transactional_id, if_unknown=if_unknown):
        return await environment.producer_ids.next_id()
    return NO_PRODUCER_ID
