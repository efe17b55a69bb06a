"""Topics that are created without a pause while the audit lists: none of them is taken for one that went."""

import asyncio
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import pytest

from barnabas_operator.observed.inventory import Inventory
from barnabas_operator.reconcile.operator_settings import OperatorSettings
from e2e.operators.watching_operator import SECONDS_MAX, use_api_server, watching
from local_kubernetes.control_plane import ControlPlane

TOPICS = 150
AUDIT_S = 0.001
LOOK_S = 0.05
API = "barnabas.dev/v1alpha1"


def test_no_topic_that_is_created_while_the_audit_lists_is_forgotten(
    defined_api_server: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane, namespace = defined_api_server, f"audited-{uuid4().hex[:8]}"
    plane.kubectl("create", "namespace", namespace)
    use_api_server(plane, monkeypatch)
    forgotten = note_what_goes(monkeypatch)

    def create(number: int) -> None:
        meta = {"name": f"t{number:04d}", "namespace": namespace}
        plane.requests.create({"apiVersion": API, "kind": "Topic", "metadata": meta, "spec": {"pause": True}})

    async def scenario() -> None:
        async with watching(OperatorSettings("image", (namespace,), audit_s=AUDIT_S)) as operator:
            for number in range(TOPICS):
                await asyncio.to_thread(create, number)
            async with asyncio.timeout(SECONDS_MAX):
                while len(operator.inventory.of_kind("Topic")) < TOPICS and not forgotten:
                    await asyncio.sleep(LOOK_S)

    asyncio.run(scenario())
    assert forgotten == []


def note_what_goes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Whatever an inventory is told of as gone from now on: nobody deletes anything here."""
    gone: list[str] = []
    keep = Inventory.keep

    def noted(self: Inventory, body: Mapping[str, Any], *, is_gone: bool) -> None:
        if is_gone:
            gone.append(body["metadata"]["name"])
        keep(self, body, is_gone=is_gone)

    monkeypatch.setattr(Inventory, "keep", noted)
    return gone
