"""The quota controller_mutation_rate: the partitions created and deleted per second (KIP-599)."""

from collections.abc import Iterable, Mapping
from typing import Final, Generic, TypeVar

from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.client_quotas import Limited
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.controller.decisions.create_topics import NewTopic
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import STEP_ELEMENTS, InSteps, in_steps

STRICT_SINCE: Final[Mapping[int, int]] = {3: 0, 19: 6, 20: 5, 37: 3}
"""The first versions of CreateTopics, DeleteTopics and CreatePartitions that return an error if the client exceeds the
quota. Clients with earlier versions are only throttled. Metadata never creates a topic that exceeds the quota."""

NameT = TypeVar("NameT")


def created_partitions(environment: HandlerEnvironment, topic: NewTopic) -> int:
    """Return the number of partitions that the creation of a topic makes."""
    if topic.assignments:
        return len(topic.assignments)
    return topic.partitions if topic.partitions > 0 else environment.config.num_partitions


def _exceeded(limited: Limited) -> ApiError | None:
    """Return the error for a topic that exceeds the quota; None if the client is within its quota."""
    wait_ms = limited.wait_ms()
    if not wait_ms:
        return None
    message = f"the client has used up its quota controller_mutation_rate={limited.limit}; try again in {wait_ms} ms"
    return ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, message)


class MutationCharge(Generic[NameT]):
    """The partitions that a request creates or deletes, by topic name or id, charged to the client's quota."""

    def __init__(
        self, environment: HandlerEnvironment, context: RequestContext, costs: Mapping[NameT, int], *, is_free: bool
    ) -> None:
        limits = None
        if environment.quotas.are_set and not is_free:
            limits = context.client.limits(environment.quotas)
        self._limited = None if limits is None else limits.mutations
        self._costs = costs
        self._is_strict = context.api_version >= STRICT_SINCE[context.api_key]
        self.refused: dict[NameT, ApiError] = {}

    def charge(self) -> InSteps[list[NameT]]:
        """Charge the quota for one topic after another, in steps; return the topics that are not refused.

        Before request version STRICT_SINCE, all topics are charged, and the client is only throttled. From STRICT_SINCE
        on, topics that exceed the quota are added to `refused`, and not charged.
        """
        if self._limited is None:
            return list(self._costs)
        error: ApiError | None = None
        for number, (name, cost) in enumerate(self._costs.items()):
            if self._is_strict and error is None:
                error = _exceeded(self._limited)
            if error is None:
                self._limited.count(cost)
            else:  # All further topics have the same error, because a request may have very many.
                self.refused[name] = error
            if number % STEP_ELEMENTS == 0:
                yield 0
        return [name for name in self._costs if name not in self.refused]

    def give_back(self, failed: Iterable[NameT]) -> InSteps[None]:
        """Give back the charge for topics that were not created or deleted, in steps."""
        if self._limited is not None:
            limited = self._limited
            charged = (name for name in failed if name not in self.refused)
            yield from in_steps(charged, lambda name: limited.count(-self._costs[name]))

    def throttle_ms(self, outcomes: Mapping[NameT, object]) -> InSteps[int]:
        """Give back the charge for topics that failed, in steps; return the throttle time in ms for the response."""
        if self._limited is None:
            return 0
        yield from self.give_back([name for name, outcome in outcomes.items() if isinstance(outcome, ApiError)])
        wait_ms = self._limited.wait_ms()
        self._limited.throttled(wait_ms)
        return wait_ms
