"""The cluster that all these tests share; `make e2e E2E=local` names its provider."""

import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.pods.castle import Castle
from e2e.pods.figures import Figures
from e2e.pods.providers import Cluster, provider
from harness.require import missing
from local_kubernetes.binaries import CannotStart

E2E = os.environ.get("E2E", "")
HERE = Path(__file__).resolve().parent
NOT_RUN = "needs a whole Kubernetes with pods: `make e2e` runs it"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave these tests out of runs of all tests, and print that: they need a whole cluster."""
    for item in items:
        if not E2E and HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=NOT_RUN))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run a Kubernetes; each test has a namespace of its own."""
    try:
        started = provider(E2E)(tmp_path_factory.mktemp("cluster"))
        running = started.__enter__()
    except CannotStart as reason:
        missing(reason)
    try:
        yield running
    finally:
        started.__exit__(None, None, None)


@pytest.fixture(scope="session")
def installed(cluster: Cluster) -> Iterator[Castle]:
    """Install Barnabas with one Cluster, for all tests."""
    castle = Castle(cluster)
    castle.install()
    yield castle
    castle.close()


@pytest.fixture(scope="session")
def figures() -> Iterator[Figures]:
    """Collect the figures that tests measure; write them at the end."""
    told = Figures()
    yield told
    told.write()


@pytest.fixture
def castle(installed: Castle) -> Castle:
    """Return the installed Cluster, after it has recovered from the test before."""
    installed.await_ready()
    return installed


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """Make a namespace named after the test; delete it with everything in it at the end."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())
    name = f"{words[:50].strip('-')}-{zlib.crc32(request.node.nodeid.encode()):08x}"
    with cluster.kubectl.namespace(name):
        yield name
