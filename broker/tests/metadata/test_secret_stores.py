"""Secret stores on SQLite and on a real API server; the account of a broker may read only its own Secrets."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kubernetes_stores import ACCOUNT, access_at
from secret_conformance import OpenSecrets, SecretConformance, until

from barnabas_broker.app.loop_turns import SystemClock
from barnabas_broker.metadata.store.kubernetes.kubernetes_store import KubernetesSecrets
from barnabas_broker.metadata.store.kubernetes.objects import shard_of
from barnabas_broker.metadata.store.metadata_store import KubernetesCluster, StoreUnavailable
from barnabas_broker.metadata.store.sqlite_secrets import SqliteSecrets
from barnabas_core.conventions import credential_secrets
from barnabas_operator.resources.cluster_kind import credential_rules
from local_kubernetes.control_plane import ControlPlane


class TestSqliteSecrets(SecretConformance):
    @pytest.fixture
    async def open_secrets(self, tmp_path: Path) -> AsyncIterator[OpenSecrets]:
        opened: list[SqliteSecrets] = []

        async def open_one() -> SqliteSecrets:
            opened.append(await SqliteSecrets.open(tmp_path / "secrets.sqlite", SystemClock()))
            return opened[-1]

        yield open_one
        for store in opened:
            await store.close()


class TestKubernetesSecrets(SecretConformance):
    @pytest.fixture
    async def open_secrets(
        self, plane: ControlPlane, address: tuple[str, int], account: Path, location: KubernetesCluster
    ) -> AsyncIterator[OpenSecrets]:
        make_secrets(plane, location.cluster)
        allow(plane, location.cluster)
        opened: list[KubernetesSecrets] = []

        async def open_one() -> KubernetesSecrets:
            opened.append(KubernetesSecrets(location, access_at(address, account)))
            return opened[-1]

        yield open_one
        for store in opened:
            await store.close()

    async def test_credentials_vanish_with_their_secret_and_can_be_written_when_it_is_recreated(
        self, plane: ControlPlane, open_secrets: OpenSecrets, location: KubernetesCluster
    ) -> None:
        store, other = await open_secrets(), await open_secrets()
        name = f"{location.cluster}-credentials-{shard_of('scram/a')}"
        await store.write({"scram/a": b'"1"'})
        assert await other.read() == {"scram/a": b'"1"'}
        following = other.follow()
        plane.kubectl("delete", "secret", name)
        await until(following, {"scram/a": None})
        for change in (store.write({"scram/a": b'"2"'}), store.create("scram/a", b'"2"')):
            with pytest.raises(StoreUnavailable, match=f"Secret {name} is missing"):
                await change
        plane.kubectl("create", "secret", "generic", name)
        await store.write({"scram/a": b'"2"'})
        await until(following, {"scram/a": b'"2"'})

    async def test_foreign_data_in_a_secret_does_not_hide_credentials(
        self, plane: ControlPlane, open_secrets: OpenSecrets, location: KubernetesCluster
    ) -> None:
        store = await open_secrets()
        await store.write({"scram/a": b'"1"'})
        name = f"{location.cluster}-credentials-{shard_of('scram/a')}"
        plane.kubectl("patch", "secret", name, "-p", '{"stringData": {"note": "mine"}}')
        assert await store.read() == {"scram/a": b'"1"'}

    async def test_a_broker_reads_no_other_secret_of_the_namespace(
        self, plane: ControlPlane, open_secrets: OpenSecrets, address: tuple[str, int], account: Path
    ) -> None:
        await open_secrets()
        another = KubernetesSecrets(KubernetesCluster("default", "another"), access_at(address, account))
        with pytest.raises(StoreUnavailable, match=r"another-credentials-.* is forbidden"):
            await another.read()
        await another.close()

    async def test_the_error_for_a_secret_that_is_too_large_contains_its_name(self, open_secrets: OpenSecrets) -> None:
        store = await open_secrets()
        with pytest.raises(StoreUnavailable, match=f"-credentials-{shard_of('large')}: .*1048576"):
            await store.write({"large": b'"' + b"x" * 1_100_000 + b'"'})


def make_secrets(plane: ControlPlane, cluster: str) -> None:
    """Create the Secrets as the operator does."""
    items = [{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}} for name in credential_secrets(cluster)]
    plane.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


def allow(plane: ControlPlane, cluster: str) -> None:
    """Grant the account of the tests the rights of this Cluster's brokers."""
    name, rbac = f"{cluster}-credentials", "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": {"name": name}, "rules": credential_rules(cluster)}
    plane.kubectl("create", "-f", "-", stdin=json.dumps(role))
    plane.kubectl("create", "rolebinding", name, f"--role={name}", f"--serviceaccount=default:{ACCOUNT}")
