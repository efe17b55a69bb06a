"""What another StatefulSet keeps of what others set on the pods of the one before."""

import pytest

from barnabas_operator.planning.brokers.kept_metadata import (
    RESTARTED_AT,
    Metadata,
    kept_by,
    metadata_of_others,
    metadata_to_keep,
    only_kept,
    with_kept,
)
from barnabas_operator.resources.json_types import JsonObject

EARLY, LATE = "2026-01-01T12:00:00+02:00", "2026-01-01T11:00:00Z"
MESH = {"linkerd.io/inject": "enabled"}


def found(annotations: dict[str, str], *applied: str, manager: str = "barnabas-operator") -> JsonObject:
    """A StatefulSet whose `manager` applied these annotations of its pods."""
    fields: JsonObject = {
        "f:spec": {"f:template": {"f:metadata": {"f:annotations": {f"f:{name}": {} for name in applied}}}}
    }
    entry = {"manager": manager, "operation": "Apply", "fieldsV1": fields}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "one-broker", "namespace": "air", "uid": "u", "managedFields": [entry]},
        "spec": {"replicas": 3, "template": {"metadata": {"annotations": annotations}}},
    }


def test_what_the_operator_applied_is_not_of_others() -> None:
    both = {**MESH, "team": "air", "barnabas.dev/config-hash": "h"}
    assert metadata_of_others(found(both, "team")) == {"annotations": MESH}
    assert metadata_of_others(found(both, "team", manager="x")) == {"annotations": {**MESH, "team": "air"}}


@pytest.mark.parametrize(
    ("seen", "restarts", "kept"),
    [
        ({}, [], {}),
        ({}, ["", ""], {}),
        ({"annotations": MESH}, [""], {"annotations": MESH}),
        ({}, [EARLY, LATE, ""], {"annotations": {RESTARTED_AT: LATE}}),
        ({"annotations": {RESTARTED_AT: LATE}}, [EARLY, EARLY], {"annotations": {RESTARTED_AT: LATE}}),
        ({"annotations": {RESTARTED_AT: EARLY}}, ["soon", "2026-01-01"], {"annotations": {RESTARTED_AT: EARLY}}),
        ({"labels": MESH}, [EARLY], {"labels": MESH, "annotations": {RESTARTED_AT: EARLY}}),
    ],
)
def test_the_newest_restart_counts(seen: Metadata, restarts: list[str], kept: Metadata) -> None:
    assert metadata_to_keep(seen, restarts) == kept


def test_what_the_cluster_declares_wins_and_stays_the_operators() -> None:
    made = with_kept(found({"team": "air"}), {"annotations": {**MESH, "team": "sea"}})
    assert made["spec"]["template"]["metadata"]["annotations"] == {**MESH, "team": "air"}
    assert kept_by(made) == {"annotations": MESH}
    of_others = only_kept(made, kept_by(made))
    assert of_others["spec"] == {"template": {"metadata": {"annotations": MESH}}}
    assert of_others["metadata"] == {"name": "one-broker", "namespace": "air", "uid": "u"}, "this very one"


@pytest.mark.parametrize("note", ["", "{", "[]", '{"annotations": 1}', '{"annotations": ["gone"]}'])
def test_a_note_that_names_nothing_keeps_nothing(note: str) -> None:
    there = found(MESH)
    assert kept_by({**there, "metadata": {**there["metadata"], "annotations": {"barnabas.dev/kept": note}}}) == {}
