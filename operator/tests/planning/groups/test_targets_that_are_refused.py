"""Targets that no group may scale: the right to write groups is no right to these Deployments."""

import pytest

from barnabas_operator.planning.conditions import Refusal
from barnabas_operator.planning.groups.scaling import (
    BEFORE_RESET,
    TARGET_REFUSED,
    BeforeReset,
    Scalers,
    TargetScale,
    refuse_scaling,
    scale_of,
)
from barnabas_operator.planning.object_names import labels, lag_exporter_selector
from barnabas_operator.resources.consumer_group import ConsumerGroup, ConsumerGroupSpec, ScaleTarget, Scaling
from barnabas_operator.resources.kind import ObjectMeta

LABELS = {
    "the operator": {"app.kubernetes.io/name": "barnabas-operator", "app.kubernetes.io/instance": "barnabas"},
    "brokers": labels("main"),
    "a lag exporter": lag_exporter_selector("main"),
}
SCALING = Scaling(target=ScaleTarget(name="billing"), lag_threshold=1000)
BILLS = ConsumerGroup(metadata=ObjectMeta(name="bills"), spec=ConsumerGroupSpec(scaling=SCALING))
LEAVE_OUT = "remove spec.scaling.lagThreshold"


@pytest.mark.parametrize("whose", LABELS)
def test_workloads_of_barnabas_are_refused_as_targets(whose: str) -> None:
    found = {"metadata": {"labels": LABELS[whose], "resourceVersion": "1"}, "spec": {"replicas": 1}}
    refused = scale_of(ScaleTarget(name="app"), found)
    assert isinstance(refused, Refusal)
    assert refused.reason == TARGET_REFUSED
    assert refused.message.endswith("allowed: the workload that runs the group's consumers")


def test_a_target_that_is_missing_or_has_a_wrong_annotation_is_named() -> None:
    missing = "spec.scaling.target is Deployment billing, which does not exist in this namespace; create the object"
    assert scale_of(SCALING.target, None) == Refusal("TargetNotFound", missing)
    meta = {"resourceVersion": "1", "annotations": {BEFORE_RESET: "three"}}
    wrong = scale_of(SCALING.target, {"metadata": meta, "spec": {"replicas": 1}})
    assert isinstance(wrong, Refusal)
    assert "Deployment billing has the annotation barnabas.dev/before-reset with the value three" in wrong.message


def group(name: str, created: str) -> dict[str, object]:
    """Return a ConsumerGroup of the API server that scales the same target."""
    scaling = {"target": {"name": "billing"}, "lagThreshold": 1}
    return {"metadata": {"name": name, "creationTimestamp": created}, "spec": {"scaling": scaling}}


AUTOSCALER = {
    "metadata": {"name": "by-hand"},
    "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "billing"}},
}
OLDER, YOUNGER = group("a", "2026-01-01T00:00:00Z"), group("bills", "2026-01-02T00:00:00Z")
FREE = TargetScale(1, "1")
RESET = FREE._replace(before=BeforeReset("other", "2026-11-a", 3))


@pytest.mark.parametrize(
    ("scale", "scalers", "refusal"),
    [
        (FREE, Scalers([], [YOUNGER]), None),
        (
            FREE,
            Scalers([AUTOSCALER], [YOUNGER]),
            (
                f"is scaled by the HorizontalPodAutoscaler by-hand; {LEAVE_OUT}, or delete the "
                "autoscaler and the object that creates it"
            ),
        ),
        (
            FREE,
            Scalers([], [YOUNGER, OLDER]),
            f"is scaled by the ConsumerGroup a, which is older; {LEAVE_OUT}, or name another target",
        ),
        (RESET, Scalers([], [YOUNGER]), "is scaled down for the reset 2026-11-a of the ConsumerGroup other"),
    ],
    ids=["nobody else", "an autoscaler", "an older group", "a reset"],
)
def test_a_target_that_another_resource_scales_is_refused(
    scale: TargetScale, scalers: Scalers, refusal: str | None
) -> None:
    refused = refuse_scaling(BILLS, SCALING, scale, scalers)
    assert (refused and refused.message) == (refusal and f"Deployment billing {refusal}")
