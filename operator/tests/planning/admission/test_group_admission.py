"""The webhook's refusals and warnings about a ConsumerGroup, before it is stored."""

from typing import Any

from barnabas_operator.planning.admission import AdmissionContext
from barnabas_operator.planning.rules_of_kinds import review
from harness.worker_world import resource


def group(**spec: Any) -> dict[str, Any]:
    return resource("ConsumerGroup", "billing", **spec)


def test_a_group_that_another_resource_manages_is_refused_unless_it_is_paused() -> None:
    refused = review(None, group(groupId="pay"), AdmissionContext(taken_by="payments"))
    assert refused.refusal == (
        "group pay is already managed by the ConsumerGroup payments; only one ConsumerGroup may manage a group"
    )
    assert review(None, group(pause=True), AdmissionContext(taken_by="payments")).refusal is None


def test_a_group_does_not_move_to_another_cluster() -> None:
    had = {**group(cluster="one"), "status": {"cluster": "one"}}
    said = review(had, group(cluster="two"), AdmissionContext()).refusal
    assert said == "spec.cluster is two; allowed: one (a ConsumerGroup cannot move to another Cluster)"
    assert review(had, group(), AdmissionContext()).refusal is None


def test_an_objective_without_a_limit_causes_a_warning() -> None:
    (warning,) = review(None, group(lagObjective={"for": "5m"}), AdmissionContext()).warnings
    assert warning.startswith("spec.lagObjective has no limit")
    assert review(None, group(lagObjective={"maxRecords": 5}), AdmissionContext()).warnings == ()


def test_a_protected_resource_is_not_deleted() -> None:
    said = review(group(deletionPolicy="Protect"), None, AdmissionContext()).refusal
    assert said is not None
    assert said.startswith("ConsumerGroup billing is not deleted, because spec.deletionPolicy is Protect")


def test_a_wrong_duration_names_the_field_and_what_is_allowed() -> None:
    said = review(None, group(lagObjective={"maxRecords": 5, "for": "soon"}), AdmissionContext()).refusal
    assert said is not None
    assert "spec.lagObjective.for is" in said
    assert "90s" in said


def test_configs_that_no_group_has_are_refused() -> None:
    fine = {"share.auto.offset.reset": "by_duration:PT1H", "errors.deadletterqueue.topic.name": "dlq.tasks"}
    assert review(None, group(type="share", config=fine), AdmissionContext()).refusal is None
    said = review(None, group(config={"share.delivery.count.limits": 3, **fine}), AdmissionContext()).refusal
    assert said == (
        "spec.config share.delivery.count.limits: is not a config of a group; did you mean share.delivery.count.limit?"
    )
    said = review(None, group(config={"share.delivery.count.limit": "often"}), AdmissionContext()).refusal
    assert said is not None
    assert "share.delivery.count.limit" in said
    assert "often" in said
