"""The webhook validates resources of every size that the API server accepts."""

from typing import Any

from aiohttp.test_utils import TestClient, TestServer

from barnabas_kube.access import Access
from barnabas_operator.app.operator_pages import webhook_app
from barnabas_operator.app.operator_parts import Operator
from barnabas_operator.reconcile.operator_settings import OperatorSettings

NOBODY = Access("http://127.0.0.1:1", None, lambda: None)
OBJECT_BYTES = 1_500_000
"""The size of an object that etcd just accepts."""


def a_topic(partitions: int) -> dict[str, Any]:
    meta = {"name": "flights", "namespace": "air", "uid": "u", "annotations": {"notes": "x" * OBJECT_BYTES}}
    spec = {"cluster": "one", "partitions": partitions}
    return {"apiVersion": "barnabas.dev/v1alpha1", "kind": "Topic", "metadata": meta, "spec": spec}


async def reviewed(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    operator = Operator(OperatorSettings("broker:dev", ()), NOBODY)
    await operator.start()
    try:
        async with TestClient(TestServer(webhook_app(operator))) as client:
            asked = {"apiVersion": "admission.k8s.io/v1", "request": {"uid": "r", "oldObject": old, "object": new}}
            answer = await client.post("/validate", json=asked)
            assert answer.status == 200, await answer.text()
            response: dict[str, Any] = (await answer.json())["response"]
            return response
    finally:
        await operator.stop()


async def test_the_webhook_validates_objects_as_large_as_etcd_accepts() -> None:
    assert (await reviewed(a_topic(1), a_topic(2)))["allowed"]
    assert "Decreasing partitions is not supported" in (await reviewed(a_topic(2), a_topic(1)))["status"]["message"]
