"""The requests of brokers to share coordinators: InitializeShareGroupState and the four that follow (83 to 87).

The response is sent when all that the request changes is committed, with an error code for each share-partition.
"""

from collections.abc import Awaitable
from functools import partial
from inspect import isawaitable
from typing import Any

from barnabas_broker.coordinators.share_state.coordinator import ShareCoordinator
from barnabas_broker.coordinators.share_state.messages import STATE_APIS, WRITE, Entry, StateApi, state_batch
from barnabas_broker.coordinators.share_state.share_state import ShareOutcome
from barnabas_broker.handlers.answer_in_turns import AnswerInTurns
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.deferred_answer import answer_of
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import message_class


async def handle(environment: HandlerEnvironment, context: RequestContext, request: Any) -> Any:
    """Ask the share coordinator about each share-partition; as in Kafka, a group without a name has no results."""
    api = STATE_APIS[type(request).__name__.removesuffix("Request")]
    answer = AnswerInTurns(message_class(f"{api.name}Response"), context, environment.answers)
    ask = partial(_ask, api, environment.share_state, request.group_id)
    asked = []
    async for topic in answer.over(request.topics if request.group_id else ()):
        found = []
        async for each in answer.over(topic.partitions):
            written = each.state_batches if api is WRITE else ()
            batches = [state_batch(batch) async for batch in answer.over(written)]
            found.append((each.partition, ask(api.entry(topic.topic_id, each, batches))))
        asked.append((topic.topic_id, found))
    topics = []
    async for topic_id, found in answer.over(asked):
        results = [
            answer.encoded(
                ("results", "partitions"), api.result(number, await outcome if isawaitable(outcome) else outcome)
            )
            async for number, outcome in answer.over(found)
        ]
        topics.append((topic_id, results))
    return api.response(topics)


def _ask(
    api: StateApi, coordinator: ShareCoordinator, group_id: str, entry: Entry
) -> ShareOutcome | Awaitable[ShareOutcome]:
    return answer_of(lambda answer: api.ask(coordinator, group_id, entry, answer))
