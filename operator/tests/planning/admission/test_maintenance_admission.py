"""The webhook's refusals of runs and of a Cluster's schedules."""

from typing import Any

from barnabas_operator.planning.admission import AdmissionContext
from barnabas_operator.planning.rules_of_kinds import review
from harness.worker_world import resource

GOOD = {
    "name": "good",
    "schedule": "@daily",
    "job": "verify",
    "options": {"topic": "a", "archive": "s3a://a/b"},
    "catalog": {"type": "rest", "uri": "http://catalog.example:8181"},
}
BAD = {**GOOD, "name": "bad", "options": {"topic": "a"}}


def refusal(old: dict[str, Any] | None, new: dict[str, Any]) -> str:
    return review(old, new, AdmissionContext()).refusal or ""


def test_a_run_that_could_never_start_is_refused() -> None:
    wrong = resource("MaintenanceJob", "a", job="verify", options={"topic": "a"})
    allowed = "a folder of this machine, or s3a://BUCKET/FOLDER, without the characters * ? [ ] { } \\"
    assert refusal(None, wrong) == f"spec.options.archive is missing; allowed: {allowed}"


def test_a_wrong_entry_is_refused_once_and_does_not_prevent_later_changes() -> None:
    before = resource("Cluster", "one", maintenance=[BAD])
    assert refusal(None, before).startswith("spec.maintenance[0].options.archive is missing; allowed: ")
    assert not refusal(before, resource("Cluster", "one", maintenance=[BAD, GOOD]))


def test_a_schedule_without_five_fields_is_refused() -> None:
    wrong = resource("Cluster", "one", maintenance=[{**GOOD, "schedule": "3 * * *"}])
    assert refusal(None, wrong).startswith(
        "spec.maintenance[0].schedule is '3 * * *' (string); allowed: a schedule as in"
    )
