"""The status of a resource that is written is read back from the API server unchanged."""

import json
from typing import Any

from barnabas_operator.resources.api_objects import resource_of, status_json
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
