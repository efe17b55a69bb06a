"""Metrics of the operator: the rounds of each Cluster, and the state of each resource."""

import asyncio
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from barnabas_operator.observed.inventory import Inventory
from barnabas_operator.observed.operator_metrics import GROUP_PREFIX, OperatorMetrics
from barnabas_operator.resources.kind import Key
from e2e.world import total


def resource(kind: str, name: str, reason: str, **spec: object) -> dict[str, Any]:
    status = "True" if reason == "Reconciled" else "False"
    conditions = [{"type": "Ready", "status": status, "reason": reason}]
    meta = {"name": name, "namespace": "air"}
    return {"kind": kind, "metadata": meta, "spec": spec, "status": {"conditions": conditions}}


def page(metrics: OperatorMetrics) -> str:
    return asyncio.run(metrics.page()).decode()


def test_each_resource_exports_its_state_and_the_reason_of_its_condition() -> None:
    inventory = Inventory()
    metrics = OperatorMetrics(inventory)
    bodies = (
        resource("Cluster", "one", "Reconciled"),
        resource("Topic", "flights", "Reconciled", cluster="one"),
        resource("Topic", "planes", "NotSupported", pause=True),
    )
    for each in bodies:
        inventory.keep(each, is_gone=False)
    text = page(metrics)
    about = {"resource_namespace": "air", "cluster": "one"}
    assert total(text, "barnabas_resources", kind="Topic", **about) == 2
    assert total(text, "barnabas_resources_paused", kind="Topic", **about) == 1
    assert 'cluster="one",kind="Cluster",name="one",reason="Reconciled",resource_namespace="air"} 1.0' in text
    assert 'cluster="one",kind="Topic",name="flights",reason="Reconciled",resource_namespace="air"} 1.0' in text
    assert 'cluster="one",kind="Topic",name="planes",reason="NotSupported",resource_namespace="air"} 0.0' in text


def test_a_cluster_exports_when_its_certificates_expire() -> None:
    inventory = Inventory()
    ends = {"certificates": [{"name": "one-cluster-ca", "notAfter": "2027-01-01T00:00:00Z"}]}
    inventory.keep({**resource("Cluster", "one", "Reconciled"), "status": ends}, is_gone=False)
    about = {"resource_namespace": "air", "cluster": "one", "certificate": "one-cluster-ca"}
    text = page(OperatorMetrics(inventory))
    assert total(text, "barnabas_certificate_expiration_timestamp_seconds", **about) == 1_798_761_600


def test_a_cluster_exports_whether_it_declares_a_lag_exporter() -> None:
    inventory = Inventory()
    inventory.keep(resource("Cluster", "one", "Reconciled", lagExporter={}), is_gone=False)
    inventory.keep(resource("Cluster", "two", "Reconciled"), is_gone=False)
    text = page(OperatorMetrics(inventory))
    for cluster, declared in (("one", 1.0), ("two", 0.0)):
        told = f'barnabas_cluster_has_lag_exporter{{cluster="{cluster}",resource_namespace="air"}} {declared}'
        assert told in text


def test_an_outcome_that_no_round_had_is_exported_as_0() -> None:
    metrics = OperatorMetrics(Inventory())
    metrics.round_ended(Key("air", "one"), 0.2, True)
    metrics.round_ended(Key("air", "two"), 0.2, False)
    assert 'barnabas_reconciliations_failed_total{cluster="one",resource_namespace="air"} 0.0' in page(metrics)
    assert 'barnabas_reconciliations_successful_total{cluster="two",resource_namespace="air"} 0.0' in page(metrics)


def test_rounds_are_counted_by_cluster_until_it_is_deleted() -> None:
    metrics = OperatorMetrics(Inventory())
    metrics.round_ended(Key("air", "one"), 0.2, True)
    metrics.round_ended(Key("air", "two"), 0.2, False)
    of_two = {"resource_namespace": "air", "cluster": "two"}
    assert total(page(metrics), "barnabas_reconciliations_total", **of_two) == 1
    assert total(page(metrics), "barnabas_reconciliations_failed_total", **of_two) == 1
    assert total(page(metrics), "barnabas_reconciliations_duration_seconds_count") == 2
    metrics.cluster_went(Key("air", "two"))
    assert 'cluster="two"' not in page(metrics)
    assert 'cluster="one"' in page(metrics)


def group(**status: object) -> dict[str, Any]:
    spec = {"groupId": "billing", "lagObjective": {"maxRecords": 10_000}}
    meta = {"name": "bills", "namespace": "air"}
    return {"kind": "ConsumerGroup", "metadata": meta, "spec": {"cluster": "one", **spec}, "status": status}


def told(body: dict[str, Any]) -> dict[str, float]:
    """Return the metrics of the group by their names without the prefix."""
    inventory = Inventory()
    metrics = OperatorMetrics(inventory)
    inventory.keep(resource("Cluster", "one", "Reconciled"), is_gone=False)
    inventory.keep(body, is_gone=False)
    families = text_string_to_metric_families(page(metrics))
    samples = [each for family in families for each in family.samples if each.name.startswith(GROUP_PREFIX)]
    about = {"resource_namespace": "air", "cluster": "one", "name": "bills", "consumergroup": "billing"}
    assert all(each.labels == about for each in samples)
    return {each.name.removeprefix(GROUP_PREFIX): each.value for each in samples}


def test_a_group_exports_its_objective_and_its_state() -> None:
    conditions = [
        {"type": "WithinObjective", "status": "False", "reason": "LagObjectiveMissed"},
        {"type": "OffsetsReset", "status": "False", "reason": "GroupActive"},
        {"type": "ScalingActive", "status": "True", "reason": "FollowsLag"},
    ]
    body = group(lag=12_000, seconds=7, members=2, evaluation="STALL", replicas=3, conditions=conditions)
    assert told(body) == {
        "within_objective": 0,
        "objective_records": 10_000,
        "lag": 12_000,
        "lag_seconds": 7,
        "members": 2,
        "evaluation": 5,
        "reset_pending": 1,
        "scaling_active": 1,
        "replicas": 3,
    }


def test_unknown_values_of_a_group_are_not_exported() -> None:
    unknown = [{"type": "WithinObjective", "status": "Unknown", "reason": "ClusterNotReady"}]
    assert told(group(conditions=unknown)) == {"objective_records": 10_000}


def test_a_dry_run_is_not_exported_as_a_pending_reset() -> None:
    done = [{"type": "OffsetsReset", "status": "True", "reason": "ResetDone"}]
    dry = [{"type": "OffsetsReset", "status": "False", "reason": "DryRun"}]
    assert [told(group(conditions=each))["reset_pending"] for each in (done, dry)] == [0, 0]


def test_a_paused_group_exports_no_pending_reset() -> None:
    body = group(conditions=[{"type": "OffsetsReset", "status": "False", "reason": "GroupActive"}])
    assert told(body)["reset_pending"] == 1
    body["spec"]["pause"] = True
    assert "reset_pending" not in told(body)
