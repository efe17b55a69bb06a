"""`barnabas operator`: brings Clusters and Topics of a Kubernetes about, until it is told to stop."""

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Final

import kopf
from aiohttp import web
from kubernetes_asyncio import client, config
from kubernetes_asyncio.config.config_exception import ConfigException
from prometheus_client import generate_latest

from barnabas_operator.handlers.inventory import Inventory
from barnabas_operator.handlers.lanes import Lanes
from barnabas_operator.handlers.operator_metrics import OperatorMetrics
from barnabas_operator.handlers.operator_settings import OperatorSettings
from barnabas_operator.handlers.watch import make_registry
from barnabas_operator.kube.api import KubeApi

log = logging.getLogger(__name__)

LOG_FORMAT: Final = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"
EXIT_USAGE: Final = 2
DEFAULT_IMAGE: Final = "barnabas-broker:dev"


class Operator:
    """What is between kopf's start and stop."""

    def __init__(self, settings: OperatorSettings) -> None:
        self._settings = settings
        self._inventory = Inventory()
        self.metrics = OperatorMetrics(self._inventory)
        self._lanes: Lanes | None = None
        self._client: client.ApiClient | None = None

    async def start(self) -> Lanes:
        """Connects to the API server that the pod, or KUBECONFIG, names."""
        chosen = client.Configuration()
        try:
            config.load_incluster_config(client_configuration=chosen)
        except ConfigException:
            await config.load_kube_config(client_configuration=chosen)
        self._client = client.ApiClient(chosen)
        self._lanes = Lanes(self._inventory, KubeApi(self._client), self._settings, self.metrics)
        return self._lanes

    async def stop(self) -> None:
        """Ends all lanes and connections."""
        if self._lanes is not None:
            await self._lanes.close()
        if self._client is not None:
            await self._client.close()


def main(arguments: Sequence[str]) -> int:
    """The command; everything else is told by the environment, as containers are."""
    if arguments:
        print(f"barnabas operator: takes no arguments, was given {arguments}; allowed: environment variables")
        return EXIT_USAGE
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    for noisy in ("kafka", "kopf.objects", "kopf.activities"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    settings = read_settings(os.environ)
    asyncio.run(_run(settings, os.environ.get("METRICS_LISTENER", "0.0.0.0:8080")))
    return 0


def read_settings(environment: Mapping[str, str]) -> OperatorSettings:
    """WATCH_NAMESPACES (comma-separated; all where empty), BROKER_IMAGE, BOOTSTRAP, DRIFT_SECONDS."""
    names = (name.strip() for name in environment.get("WATCH_NAMESPACES", "").split(","))
    return OperatorSettings(
        broker_image=environment.get("BROKER_IMAGE", DEFAULT_IMAGE),
        namespaces=tuple(filter(None, names)),
        bootstrap=environment.get("BOOTSTRAP", ""),
        drift_s=float(environment.get("DRIFT_SECONDS", "60")),
    )


async def _run(settings: OperatorSettings, listener: str) -> None:
    operator = Operator(settings)
    pages = await _serve(operator, listener)
    try:
        await kopf.operator(
            registry=make_registry(operator.start, operator.stop),
            standalone=True,
            clusterwide=not settings.namespaces,
            namespaces=list(settings.namespaces),
        )
    finally:
        await pages.cleanup()


async def _serve(operator: Operator, listener: str) -> web.AppRunner:
    """`/metrics`, and `/healthz` for the kubelet."""

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(operator.metrics.registry), content_type="text/plain")

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    app = web.Application()
    app.add_routes([web.get("/metrics", metrics), web.get("/healthz", healthz)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    host, _, port = listener.rpartition(":")
    await web.TCPSite(runner, host, int(port)).start()
    return runner
