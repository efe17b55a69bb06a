"""What Prometheus reads of the operator: each Cluster by name, and the state of each resource."""

import asyncio
from typing import Any

from barnabas_operator.observed.inventory import Inventory
from barnabas_operator.observed.operator_metrics import OperatorMetrics
from barnabas_operator.resources.object_key import Key
from e2e.world import total


def resource(kind: str, name: str, reason: str, **spec: object) -> dict[str, Any]:
    status = "True" if reason == "Reconciled" else "False"
    conditions = [{"type": "Ready", "status": status, "reason": reason}]
    meta = {"name": name, "namespace": "air"}
    return {"kind": kind, "metadata": meta, "spec": spec, "status": {"conditions": conditions}}


def page(metrics: OperatorMetrics) -> str:
    return asyncio.run(metrics.page()).decode()


def test_each_resource_tells_its_state_and_the_reason_that_its_condition_has() -> None:
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


def test_an_outcome_that_no_round_had_is_0_and_not_absent() -> None:
    metrics = OperatorMetrics(Inventory())
    metrics.round_ended(Key("air", "one"), 0.2, True)
    metrics.round_ended(Key("air", "two"), 0.2, False)
    assert 'barnabas_reconciliations_failed_total{cluster="one",resource_namespace="air"} 0.0' in page(metrics)
    assert 'barnabas_reconciliations_successful_total{cluster="two",resource_namespace="air"} 0.0' in page(metrics)


def test_rounds_are_counted_by_cluster_until_it_goes() -> None:
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
