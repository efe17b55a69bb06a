"""Fixtures for all tests in this folder: an API server, and a broker beside it."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from harness.barnabas_server import prepare_barnabas
from harness.console_world import console_broker, start_console
from harness.server_process import ServerProcess
from local_kubernetes.apiserver import api_server, define, own_api_server
from local_kubernetes.control_plane import ControlPlane

__all__ = ["api_server", "broker", "console_broker", "defined_api_server", "start_console"]


@pytest.fixture(scope="module")
def defined_api_server(api_server: ControlPlane) -> ControlPlane:
    """Return an API server that knows everything in `helm/barnabas/crd-files`, whatever another module left there."""
    define(api_server)
    return api_server


@pytest.fixture(scope="session")
def controllers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Start an API server of its own with the controllers of Kubernetes, which would make pods for other tests."""
    with own_api_server(tmp_path_factory.mktemp("controllers")) as own:
        own.start_controllers()
        define(own)
        yield own


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Run a broker, number 0, for the tests of a module."""
    one = {"broker.id": "0", "offsets.topic.replication.factor": "1"}
    with closing(prepare_barnabas(tmp_path_factory.mktemp("broker"), one)) as process:
        process.launch()
        process.await_port()
        yield process
