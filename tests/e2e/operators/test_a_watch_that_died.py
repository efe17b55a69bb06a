"""An operator whose watch tells nothing any more says so to the kubelet, which starts it anew."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import aiohttp

from barnabas_kube.kubeconfig import read_kubeconfig
from barnabas_operator.app.operator_pages import serve_pages
from barnabas_operator.app.operator_parts import Operator
from barnabas_operator.reconcile.operator_settings import OperatorSettings
from local_kubernetes.control_plane import ControlPlane

SECONDS_MAX = 60.0
AUDIT_S = 0.05
PAUSED = {
    "apiVersion": "barnabas.dev/v1alpha1",
    "kind": "Cluster",
    "metadata": {"name": "one"},
    "spec": {"pause": True},
}
Answer = tuple[int, str]


@asynccontextmanager
async def pages_of(operator: Operator) -> AsyncIterator[str]:
    """Where those of a running operator are."""
    await operator.start()
    runner = await serve_pages(operator, "127.0.0.1:0")
    try:
        (address,) = runner.addresses
        yield f"http://{address[0]}:{address[1]}"
    finally:
        await runner.cleanup()
        await operator.stop()


async def until(client: aiohttp.ClientSession, page: str, status: int) -> str:
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            async with client.get(page) as answer:
                if answer.status == status:
                    return await answer.text()


def test_healthz_turns_503_when_the_watch_tells_no_changes_and_200_when_it_does(
    defined_api_server: ControlPlane,
) -> None:
    namespace = f"watch-{uuid4().hex[:8]}"
    defined_api_server.kubectl("create", "namespace", namespace)

    async def scenario() -> None:
        settings = OperatorSettings("image", (namespace,), audit_s=AUDIT_S)
        operator = Operator(settings, read_kubeconfig(defined_api_server.kubeconfig))
        async with aiohttp.ClientSession() as client, pages_of(operator) as pages:
            assert await until(client, f"{pages}/healthz", 200) == "ok\n"
            defined_api_server.kubectl("-n", namespace, "create", "-f-", stdin=json.dumps(PAUSED))
            assert await until(client, f"{pages}/healthz", 503) == "the watch misses changes\n"
            listed = json.loads(defined_api_server.kubectl("-n", namespace, "get", "cluster", "one", "-ojson"))
            operator.inventory.keep(listed, is_gone=False)
            assert await until(client, f"{pages}/healthz", 200) == "ok\n"

    asyncio.run(scenario())
