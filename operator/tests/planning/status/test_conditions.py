"""The conditions of a resource: `Ready` is always there, because `kubectl get` shows no other."""

import pytest
from msgspec import to_builtins

from barnabas_operator.planning.conditions import Refusal, conditions_of
from barnabas_operator.resources.cluster import Cluster, ClusterSpec
from barnabas_operator.resources.kind import ObjectMeta
from barnabas_operator.resources.topic import Topic, TopicSpec

META = ObjectMeta(name="flights", generation=3)
NOW = "2026-01-01T00:00:00Z"
BROKEN = Refusal("KafkaError", "no")
PAUSED = (
    ("Ready", "Unknown", "Paused", "spec.pause is true, so the operator changes nothing"),
    ("ReconciliationPaused", "True", "Paused", "spec.pause is true, so the operator changes nothing"),
)


def resources(*, pause: bool) -> list[Cluster | Topic]:
    topic = Topic(metadata=META, spec=TopicSpec(pause=pause))
    return [Cluster(metadata=META, spec=ClusterSpec(pause=pause)), topic]


def told(resource: Cluster | Topic, problem: Refusal | None) -> tuple[tuple[str, str, str, str], ...]:
    return tuple((each.type, each.status, each.reason, each.message) for each in conditions_of(resource, problem, NOW))


@pytest.mark.parametrize("resource", resources(pause=False))
def test_a_resource_is_ready_or_reports_why_not(resource: Cluster | Topic) -> None:
    assert told(resource, None) == (("Ready", "True", "Reconciled", ""),)
    assert told(resource, BROKEN) == (("Ready", "False", "KafkaError", "no"),)


def test_a_condition_has_a_message_also_if_there_is_nothing_to_say() -> None:
    (ready,) = conditions_of(resources(pause=False)[0], None, NOW)
    assert to_builtins(ready)["message"] == ""


@pytest.mark.parametrize("resource", resources(pause=True))
def test_a_pause_shows_in_the_condition_ready_too(resource: Cluster | Topic) -> None:
    assert told(resource, None) == PAUSED
    assert told(resource, BROKEN) == (("Ready", "False", "KafkaError", "no"), PAUSED[1])
