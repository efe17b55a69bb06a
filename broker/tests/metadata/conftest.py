"""A cluster on SQLite for each test; tests of the Kubernetes store share an API server."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("store_conformance")

from kubernetes_stores import account, address, clock, location, open_store, plane  # noqa: E402 - after the line above
from metadata_cluster import ClusterOfNodes, cluster_at  # noqa: E402

from local_kubernetes.apiserver import api_server  # noqa: E402

__all__ = ["account", "address", "api_server", "clock", "location", "open_store", "plane"]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ClusterOfNodes]:
    async with cluster_at(tmp_path / "metadata.sqlite") as nodes:
        yield nodes
