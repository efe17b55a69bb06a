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
    """A whole cluster is not for those who run all tests; they are told what they leave out."""
    for item in items:
        if not E2E and HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=NOT_RUN))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A running Kubernetes; each test has a namespace of its own."""
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
    """Barnabas with one Cluster, for all tests."""
    castle = Castle(cluster)
    castle.install()
    yield castle
    castle.close()


@pytest.fixture(scope="session")
def figures() -> Iterator[Figures]:
    """What is measured besides."""
    told = Figures()
    yield told
    told.write()


@pytest.fixture
def castle(installed: Castle) -> Castle:
    """The same, whole again after what the test before has done to it."""
    installed.await_ready()
    return installed


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace named after the test, deleted after it with all that is in it."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())
    name = f"{words[:50].strip('-')}-{zlib.crc32(request.node.nodeid.encode()):08x}"
    with cluster.kubectl.namespace(name):
        yield name
