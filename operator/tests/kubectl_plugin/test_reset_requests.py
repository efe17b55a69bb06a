"""The request that `kubectl barnabas reset` writes into a ConsumerGroup."""

from typing import Any, cast

import pytest

from barnabas_kubectl.kubectl import Kubectl
from barnabas_kubectl.reset import position, report, request, reset_of

POSITIONS: dict[str, dict[str, Any]] = {
    "earliest": {"earliest": {}},
    "latest": {"latest": {}},
    "PT2H": {"byDuration": "PT2H"},
    "P1DT30M": {"byDuration": "P1DT30M"},
    "-100": {"shiftBy": -100},
    "+5": {"shiftBy": 5},
    "2026-11-29T08:00:00Z": {"datetime": "2026-11-29T08:00:00Z"},
}


@pytest.mark.parametrize(("text", "to"), POSITIONS.items())
def test_each_kind_of_position_is_recognized(text: str, to: dict[str, Any]) -> None:
    assert position(text) == to


@pytest.mark.parametrize("text", ["", "P", "PT", "yesterday", "2026-11-29", "1.5", "PT1.5H"])
def test_another_position_is_rejected_with_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match="allowed: earliest, latest, a time"):
        position(text)


def test_a_request_has_no_fields_that_were_not_given() -> None:
    assert reset_of("a", {"latest": {}}, [], dry_run=False) == {"id": "a", "to": {"latest": {}}}


class OneGroup:
    """A kubectl over one ConsumerGroup whose condition has these reasons in turn."""

    def __init__(self, *reasons: str) -> None:
        self.reasons = list(reasons)

    def json(self, *_: str) -> dict[str, Any]:
        condition = {"type": "OffsetsReset", "observedGeneration": 2, "reason": self.reasons.pop(0), "message": ""}
        return {"spec": {}, "status": {"conditions": [condition]}}

    def bytes(self, *_: str) -> bytes:
        return b'{"metadata": {"generation": 2}}'


def test_the_beginning_of_a_reset_of_a_share_group_is_no_answer() -> None:
    kubectl = OneGroup("ResetDone", "ResetBegins", "ResetDone")
    found = request(cast(Kubectl, kubectl), "kafka", "workers", {"id": "b"}, lambda _: None)
    assert [line.split(":")[0] for line in report(found)] == ["ResetDone"]
    assert kubectl.reasons == []


def test_the_report_has_the_condition_and_a_line_for_each_partition() -> None:
    plan = [{"topic": "flights", "partition": 3, "to": 7}, {"topic": "flights", "partition": 4, "from": 9, "to": 2}]
    conditions = [{"type": "OffsetsReset", "reason": "DryRun", "message": "2 partitions"}]
    lines = list(report({"status": {"conditions": conditions, "reset": {"plan": plan}}}))
    assert [line.split() for line in lines] == [
        ["DryRun:", "2", "partitions"],
        ["TOPIC", "PARTITION", "FROM", "TO"],
        ["flights", "3", "-", "7"],
        ["flights", "4", "9", "2"],
    ]
