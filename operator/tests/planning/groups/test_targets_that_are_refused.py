"""Targets that no group may scale: the right to write groups is no right to these Deployments."""

import pytest

from barnabas_operator.planning.groups.target_scale import TARGET_REFUSED, scale_of
from barnabas_operator.planning.object_names import labels, lag_exporter_selector
from barnabas_operator.planning.refusal import Refusal
from barnabas_operator.resources.consumer_group import ScaleTarget

LABELS = {
    "the operator": {"app.kubernetes.io/name": "barnabas-operator", "app.kubernetes.io/instance": "barnabas"},
    "brokers": labels("main"),
    "a lag exporter": lag_exporter_selector("main"),
}


@pytest.mark.parametrize("whose", LABELS)
def test_a_part_of_barnabas_is_no_target(whose: str) -> None:
    found = {"metadata": {"labels": LABELS[whose], "resourceVersion": "1"}, "spec": {"replicas": 1}}
    refused = scale_of(ScaleTarget(name="app"), found)
    assert isinstance(refused, Refusal)
    assert refused.reason == TARGET_REFUSED
    assert refused.message.endswith("allowed: what runs the group's consumers")
