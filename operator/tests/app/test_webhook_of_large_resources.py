"""The webhook validates resources of every size that the API server accepts, and bodies of strangers cost it little."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import pytest
from aiohttp import ClientSession

from barnabas_kube.access import Access
from barnabas_operator.app.operator import OF_WEBHOOK, REVIEW_BYTES_MAX, VALUES_MAX, Operator, Reviews, webhook_server
from barnabas_operator.reconcile.worker_environment import OperatorSettings
from barnabas_operator.resources.kind import Json
from barnabas_web.http_server import Received
from barnabas_web.visitors import CONNECTION_BYTES, Protection

NOBODY = Access("http://127.0.0.1:1", None, lambda: None)
OBJECT_BYTES = 1_500_000
"""The size of an object that etcd just accepts."""
CPU_S_MAX = 2.0
"""The time that the body of a stranger may take; one with 200,000 unknown configs took 19 s."""


def a_topic(partitions: int, **spec: Any) -> dict[str, Any]:
    meta = {"name": "flights", "namespace": "air", "uid": "u", "annotations": {"notes": "x" * OBJECT_BYTES}}
    whole = {"cluster": "one", "partitions": partitions, **spec}
    return {"apiVersion": "barnabas.dev/v1alpha1", "kind": "Topic", "metadata": meta, "spec": whole}


@asynccontextmanager
async def serving() -> AsyncIterator[str]:
    """Yield the URL of a webhook."""
    operator = Operator(OperatorSettings("broker:dev", ()), NOBODY)
    server = webhook_server(operator, Protection())
    await operator.start()
    try:
        yield f"http://127.0.0.1:{await server.start('127.0.0.1', 0)}/validate"
    finally:
        await server.stop()
        await operator.stop()


async def answered(url: str, body: bytes) -> tuple[int, str]:
    async with ClientSession() as client, client.post(url, data=body) as answer:
        return answer.status, await answer.text()


def review(old: object, new: object) -> bytes:
    asked = {"apiVersion": "admission.k8s.io/v1", "request": {"uid": "r", "oldObject": old, "object": new}}
    return json.dumps(asked).encode()


async def test_the_webhook_validates_objects_as_large_as_etcd_accepts() -> None:
    async with serving() as url:
        status, said = await answered(url, review(a_topic(1), a_topic(2)))
        assert (status, json.loads(said)["response"]["allowed"]) == (200, True)
        status, said = await answered(url, review(a_topic(2), a_topic(1)))
        assert "Decreasing partitions is not supported" in json.loads(said)["response"]["status"]["message"]


MANY = {f"k{number}": "1" for number in range(VALUES_MAX - 100)}
BODIES = {
    "unknown configs": (review(None, a_topic(1, config=MANY)), HTTPStatus.OK),
    "unknown fields": (review(None, a_topic(1, **MANY)), HTTPStatus.OK),
    "too many values": (
        b'{"apiVersion": "v1", "request": [' + b"[]," * VALUES_MAX,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    ),
    "too large": (bytes(REVIEW_BYTES_MAX + 1), HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    "too deep": (b"[" * 50_000, HTTPStatus.BAD_REQUEST),
    "no JSON": (b"hello", HTTPStatus.BAD_REQUEST),
    "no review": (b"{}", HTTPStatus.BAD_REQUEST),
    "no object": (review(None, []), HTTPStatus.BAD_REQUEST),
    "another kind": (review(None, {"kind": "Pod", "metadata": {}}), HTTPStatus.INTERNAL_SERVER_ERROR),
}


@pytest.mark.parametrize("what", BODIES)
async def test_a_body_of_a_stranger_costs_little(what: str) -> None:
    body, wanted = BODIES[what]
    async with serving() as url:
        began_s = time.process_time()
        status, said = await answered(url, body)
        assert status == wanted, said[:500]
        assert len(said) < 20_000
        assert time.process_time() - began_s < CPU_S_MAX


async def test_reviews_of_one_address_delay_another_by_one_review() -> None:
    begun, gate = list[str](), asyncio.Event()

    async def answer(asked: Json) -> dict[str, Any]:
        begun.append(asked["request"]["uid"])
        await gate.wait()
        return {}

    reviews = Reviews(answer)

    def asked(uid: str, address: str) -> asyncio.Task[Any]:
        body = json.dumps({"apiVersion": "v1", "request": {"uid": uid}}).encode()
        return asyncio.create_task(reviews.page(Received(body, address)))

    tasks = [asked("stranger", "10.0.0.1") for _ in range(100)] + [asked("server", "10.0.0.2")]
    while "server" not in begun:
        await asyncio.sleep(0)
    assert begun.index("server") <= 1
    gate.set()
    await asyncio.gather(*tasks)


def test_the_limits_of_the_webhook_hold_a_few_of_the_largest_reviews() -> None:
    assert OF_WEBHOOK.bytes >= 6 * (REVIEW_BYTES_MAX + CONNECTION_BYTES)
