"""The webhook refuses the annotation of a rebalance if it names no plan of this Cluster."""

import json
from typing import Any

import pytest

from barnabas_operator.observed.inventory import Inventory
from harness.webhook import webhook_said

PLAN = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1], "before": [0]}], "topic_ids": {}}


def resource(kind: str, name: str, **rest: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "air", "uid": name, "resourceVersion": "1", **rest.pop("metadata", {})}
    return {"apiVersion": "barnabas.dev/v1alpha1", "kind": kind, "metadata": meta, "spec": {}, **rest}


def run(name: str, cluster: str, job: str = "skew") -> dict[str, Any]:
    status = {"phase": "Succeeded", "result": {"plan": json.dumps(PLAN)}}
    return resource("MaintenanceJob", name, spec={"cluster": cluster, "job": job}, status=status)


async def said(word: str, before: str | None = None) -> dict[str, Any]:
    """Return the webhook's response to a changed annotation of a Cluster whose spec is unchanged."""
    inventory = Inventory()
    for each in (
        resource("Cluster", "one"),
        resource("Cluster", "two"),
        run("mine", "one"),
        run("others", "two"),
        run("audited", "one", "audit"),
    ):
        inventory.keep(each, is_gone=False)
    old = resource("Cluster", "one", metadata={"annotations": {"barnabas.dev/rebalance": before} if before else {}})
    new = resource("Cluster", "one", metadata={"annotations": {"barnabas.dev/rebalance": word}})
    return await webhook_said(old, new, inventory)


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("missing", "the Cluster has no MaintenanceJob with that name"),
        ("others", "the Cluster has no MaintenanceJob with that name"),
        ("audited", "the MaintenanceJob's job is audit, which makes no rebalance plan"),
    ],
)
async def test_a_name_that_is_no_plan_of_this_cluster_is_refused(word: str, why: str) -> None:
    refused = await said(word)
    assert not refused["allowed"]
    assert refused["status"]["message"].startswith(f"the annotation barnabas.dev/rebalance is {word}: {why}; allowed: ")


async def test_the_webhook_allows_a_plan_of_this_cluster_and_an_unchanged_annotation() -> None:
    assert (await said("mine"))["allowed"]
    assert (await said("approve"))["allowed"]
    assert (await said("missing", before="missing"))["allowed"]
