"""A Cluster can be paused whatever the API server thinks of its objects by now."""

import asyncio
from typing import Any

from barnabas_operator.admission.webhook import answer
from barnabas_operator.observed.inventory import Inventory
from harness.no_preview import no_preview

OBJECTION = "denied the request: every pod needs a label"


def cluster(**spec: Any) -> dict[str, Any]:
    meta = {"name": "one", "namespace": "air", "uid": "u"}
    return {"apiVersion": "barnabas.dev/v1alpha1", "kind": "Cluster", "metadata": meta, "spec": spec}


async def objects(_now: object, _before: object) -> str:
    """What the API server would say since an administrator has added a rule of theirs."""
    return OBJECTION


def said(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    asked = {"apiVersion": "admission.k8s.io/v1", "request": {"uid": "r", "oldObject": old, "object": new}}
    answered = asyncio.run(answer(asked, Inventory(), lambda _: None, objects, no_preview))
    response: dict[str, Any] = answered["response"]
    return response


def test_a_pause_is_stored_and_its_end_is_looked_at() -> None:
    assert said(cluster(), cluster(pause=True))["allowed"]
    ended = said(cluster(pause=True), cluster())
    assert ended["status"]["message"] == OBJECTION
