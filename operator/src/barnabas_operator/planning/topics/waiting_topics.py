"""Topics whose brokers cannot be asked now, or are not to be: who may go, and what the others are told. Pure."""

from typing import Final

from barnabas_operator.planning.conditions import with_problem
from barnabas_operator.planning.refusal import CLUSTER_NOT_FOUND, CLUSTER_NOT_READY, INVALID_SPEC, Refusal
from barnabas_operator.planning.topics.topic_checks import deletion_protected
from barnabas_operator.resources.object_meta import READY, condition_of
from barnabas_operator.resources.topic import Topic

PASSING: Final = (None, CLUSTER_NOT_FOUND, CLUSTER_NOT_READY, INVALID_SPEC)
"""Why it was not ready, in words that brokers had no part in: they may be so no more."""


def may_go(topic: Topic) -> bool:
    """Whether nothing is to be done, or to be said, before the resource is gone."""
    return topic.spec.deletion_policy == "Retain" or topic.spec.pause


def told_to_wait(topic: Topic, why: str, now: str) -> Topic:
    """With the status of one that waits; as it is where all that it says is still so."""
    return with_problem(topic, _refusal(topic, why), now) if _has_news(topic) else topic


def _has_news(topic: Topic) -> bool:
    if topic.metadata.deletion_timestamp is not None or topic.status is None:
        return True
    ready = condition_of(topic.status.conditions, READY)
    is_old = topic.status.observed_generation != topic.metadata.generation
    return is_old or (ready.reason if ready is not None else None) in PASSING


def _refusal(topic: Topic, why: str) -> Refusal | None:
    if topic.metadata.deletion_timestamp is None:
        return None if topic.spec.pause else Refusal(CLUSTER_NOT_READY, why)
    if topic.spec.deletion_policy == "Protect":
        return deletion_protected(topic.topic_name)
    means = "then its topic is deleted; with spec.deletionPolicy Retain this resource goes at once, without its topic"
    return Refusal(CLUSTER_NOT_READY, f"{why}; {means}")
