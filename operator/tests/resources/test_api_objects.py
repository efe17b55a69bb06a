"""The status of a resource is read back unchanged, and a large resource costs few errors."""

import json
from typing import Any

import pytest

from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.schema_check import InvalidResource, resource_of, status_json
from barnabas_operator.resources.topic import Topic

BODY: dict[str, Any] = {
    "apiVersion": "barnabas.dev/v1alpha1",
    "kind": "Topic",
    "metadata": {"name": "flights", "namespace": "here", "resourceVersion": "7"},
    "spec": {"partitions": 3},
    "status": {
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "Reconciled",
                "message": "",
                "lastTransitionTime": "2026-11-21T12:00:00Z",
                "observedGeneration": 1,
            }
        ],
        "topicName": "flights",
        "partitions": 3,
    },
}


def test_a_status_that_was_read_equals_what_was_written() -> None:
    status = status_json(resource_of(Topic, BODY))
    assert status == json.loads(json.dumps(status))
    assert {**status, **BODY["status"]} == status


def test_a_resource_without_a_status_has_an_empty_one() -> None:
    assert status_json(resource_of(Topic, {**BODY, "status": None})) == {}


MANY = {f"k{number}": "1" for number in range(200_000)}
LARGE: list[tuple[type[Topic | Cluster], dict[str, Any], str]] = [
    (Topic, {"config": MANY}, "spec.config has 200000 entries; allowed: at most 256"),
    (Topic, MANY, "spec.k0 is not a field; allowed: "),
    (Cluster, {"storage": {"volumes": [{}] * 200_000}}, "spec.storage.volumes has 200000 entries; allowed: a list of"),
    (Cluster, {"template": {"pod": {"spec": MANY}}}, "spec.template.pod.spec has more than 10000 values; allowed: at"),
    (Cluster, {"template": {"pod": {"spec": {"containers": [[]] * 10_001}}}}, "has more than 10000 values"),
    (Cluster, {"storage": {"volumes": [{**MANY, "id": 0}]}}, "spec.storage.volumes[0].k0 is not a field"),
]


@pytest.mark.parametrize(("kind", "spec", "said"), LARGE)
def test_a_large_resource_has_at_most_twenty_errors(
    kind: type[Topic | Cluster], spec: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidResource) as raised:
        resource_of(kind, {**BODY, "kind": kind.__name__, "spec": spec})
    assert said in str(raised.value)
    assert len(raised.value.problems) <= 21
    assert len(str(raised.value)) < 20_000
