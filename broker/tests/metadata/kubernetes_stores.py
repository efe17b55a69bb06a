"""Fixtures for stores on a real API server, which they use as a broker's service account."""

import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from store_conformance import OpenStore

from barnabas_broker.metadata.store.kubernetes.kubernetes_store import KubernetesStore
from barnabas_broker.metadata.store.metadata_store import KubernetesCluster
from barnabas_kube.access import Access
from barnabas_kube.discovery import find_access
from barnabas_operator.resources.cluster_kind import broker_rules
from e2e.state_documents import define_state_documents
from harness.manual_clock import ManualClock
from local_kubernetes.control_plane import ControlPlane

ACCOUNT = "demo-broker-1-broker"
NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def plane(api_server: ControlPlane) -> ControlPlane:
    """Return the API server with the CRD of state documents and the service account of brokers."""
    define_state_documents(api_server)
    api_server.kubectl("create", "serviceaccount", ACCOUNT)
    rbac = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": {"name": ACCOUNT}, "rules": broker_rules()}
    api_server.kubectl("apply", "-f", "-", stdin=json.dumps(role))
    api_server.kubectl("create", "rolebinding", ACCOUNT, f"--role={ACCOUNT}", f"--serviceaccount=default:{ACCOUNT}")
    return api_server


@pytest.fixture(scope="session")
def account(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with `token` and `ca.crt`, as a pod finds it."""
    folder = tmp_path_factory.mktemp("service-account")
    (folder / "token").write_text(plane.kubectl("create", "token", ACCOUNT))
    (folder / "ca.crt").write_text(plane.authority.certificate.read_text())
    return folder


def access_at(address: tuple[str, int], account: Path) -> Access:
    host, port = address
    return find_access({"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": str(port)}, account)


@pytest.fixture
def address(plane: ControlPlane) -> tuple[str, int]:
    parts = urlsplit(plane.url)
    return str(parts.hostname), int(parts.port or 0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def location() -> KubernetesCluster:
    """Return a cluster that no other test uses."""
    return KubernetesCluster("default", f"cluster-{next(NUMBERS)}")


@pytest.fixture
async def open_store(
    address: tuple[str, int], account: Path, location: KubernetesCluster, clock: ManualClock
) -> AsyncIterator[OpenStore]:
    opened: list[KubernetesStore] = []

    async def open_one() -> KubernetesStore:
        opened.append(KubernetesStore(location, access_at(address, account), clock))
        return opened[-1]

    yield open_one
    for store in opened:
        await store.close()
