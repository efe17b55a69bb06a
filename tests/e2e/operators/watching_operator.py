"""The operator in this process, with its watch, on a real API server: for tests that look inside."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import kopf
import pytest

from barnabas_kube.discovery import find_access
from barnabas_operator.app.operator_parts import Operator
from barnabas_operator.reconcile.operator_settings import OperatorSettings
from barnabas_operator.watch.kopf_registry import make_registry
from local_kubernetes.control_plane import ControlPlane

SECONDS_MAX: Final = 60.0


def use_api_server(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks for a kubeconfig finds the one of this API server."""
    monkeypatch.setenv("KUBECONFIG", str(plane.kubeconfig))


@asynccontextmanager
async def watching(settings: OperatorSettings) -> AsyncIterator[Operator]:
    """It runs while inside."""
    operator, ending = Operator(settings, find_access(os.environ)), asyncio.Event()
    running = asyncio.create_task(
        kopf.operator(
            registry=make_registry(operator.start, operator.stop, operator.metrics.watch_failed, operator.clock),
            insights=operator.definitions.insights,
            standalone=True,
            namespaces=list(settings.namespaces),
            stop_flag=ending,
        )
    )
    try:
        yield operator
    finally:
        ending.set()
        async with asyncio.timeout(SECONDS_MAX):
            await running
