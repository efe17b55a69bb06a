"""Await a coordinator's decision, and allocate a producer id, for the handlers of transactional requests."""

from collections.abc import Callable

from barnabas_broker.coordinators.transactions.decisions import Decision
from barnabas_broker.coordinators.transactions.transaction import NO_PRODUCER_ID
from barnabas_broker.handlers.deferred_answer import awaited
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_core.errors import ErrorCode


async def outcome(start: Callable[[Callable[[Decision], object]], object], *, knows_fenced: bool) -> Decision:
    """Return the coordinator's decision, after the decision is committed to the transaction log.

    If `knows_fenced` is False, INVALID_PRODUCER_EPOCH replaces PRODUCER_FENCED, which old clients do not know.
    """
    decision: Decision = await awaited(start)
    if decision.error is ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return decision._replace(error=ErrorCode.INVALID_PRODUCER_EPOCH)
    return decision


async def id_if_lacking(environment: HandlerEnvironment, transactional_id: str, *, if_unknown: bool) -> int:
    """Return a new producer id if the coordinator may need one, else NO_PRODUCER_ID.

    Raises ApiError if no producer id can be allocated.
    """
    if environment.transactions.lacks_id(transactional_id, if_unknown=if_unknown):
        return await environment.producer_ids.next_id()
    return NO_PRODUCER_ID
