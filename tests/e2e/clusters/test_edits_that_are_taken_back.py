"""Every field of a Cluster gets an edit that cannot work: it is refused at once, or can be reverted."""

import asyncio
import json
from collections.abc import Iterator
from uuid import uuid4

import pytest

from barnabas_operator import admission as operator_webhook
from barnabas_operator.admission import DryRun
from barnabas_operator.kube.api import KubeApi
from barnabas_operator.observed.inventory import Inventory
from barnabas_operator.resources.kind import JsonObject
from e2e.clusters.cluster_edits import EDITS, edited, fields_of
from e2e.webhook_server import webhook
from harness.deadline import wait_for
from harness.manual_loop_clock import ManualLoopClock
from harness.webhook import no_preview
from local_kubernetes.control_plane import ControlPlane
from local_kubernetes.kube_client import api_client

NAME = "edited"


class Edited:
    """A Cluster in its own namespace, on an API server that calls the webhook."""

    def __init__(self, plane: ControlPlane, namespace: str, storage_class: str) -> None:
        self.plane = plane
        self.namespace = namespace
        self.storage_class = storage_class

    @property
    def good(self) -> JsonObject:
        entry = {
            "name": "nightly",
            "schedule": "@daily",
            "job": "skew",
            "options": {"report": "/reports/skew"},
            "volumes": [{"name": "reports", "mountPath": "/reports", "claimName": "reports"}],
        }
        return {
            "storage": {"volumes": [self.volume(0)]},
            "insecure": True,
            "listeners": [{"name": "plain"}],
            "lagExporter": {},
            "metadataVersion": 2,
            "maintenance": [entry],
        }

    def volume(self, number: int, **fields: str) -> JsonObject:
        return {"id": number, "size": "1Gi", "storageClass": self.storage_class, **fields}

    def with_volumes(self, *volumes: JsonObject) -> JsonObject:
        return {**self.good, "storage": {"volumes": list(volumes)}}

    def apply(self, spec: JsonObject) -> str:
        """Apply the Cluster; return the refusal, or "" if it is stored."""
        meta = {"name": NAME, "namespace": self.namespace}
        made = {"apiVersion": "barnabas.dev/v1alpha1", "kind": "Cluster", "metadata": meta, "spec": spec}
        try:
            self.plane.requests.apply(made)
        except AssertionError as refusal:
            return str(refusal)
        return ""

    def is_checked(self) -> bool:
        """True once the API server calls the webhook. A Cluster that was stored before is deleted, since an edit that
        changes nothing is never refused.
        """
        refusal = self.apply(self.with_volumes(self.volume(0, storageClass="x")))
        if not refusal:
            self.plane.kubectl("-n", self.namespace, "delete", "clusters.barnabas.dev", NAME)
        return "no such StorageClass" in refusal

    def claim(self, volume: int, *, is_bound: bool) -> None:
        """Make a claim of broker 0 as its StatefulSet does."""
        name = f"volume-{volume}-{NAME}-broker-0"
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": self.storage_class,
            "resources": {"requests": {"storage": "1Gi"}},
            **({"volumeName": name} if is_bound else {}),
        }
        meta = {"name": name, "namespace": self.namespace, "labels": {"barnabas.dev/cluster": NAME}}
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}
        self.plane.kubectl("apply", "-f-", stdin=json.dumps(claim))


def storage_class(plane: ControlPlane) -> str:
    """Make a class whose volumes cannot grow; return its name."""
    name = f"class-{uuid4().hex[:8]}"
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}}
    plane.kubectl("apply", "-f-", stdin=json.dumps({**kind, "provisioner": "kubernetes.io/no-provisioner"}))
    return name


@pytest.fixture(scope="module")
def cluster(defined_api_server: ControlPlane) -> Iterator[Edited]:
    plane = defined_api_server
    found = Edited(plane, f"edits-{uuid4().hex[:8]}", storage_class(plane))
    plane.kubectl("create", "namespace", found.namespace)

    async def answer(asked: JsonObject) -> JsonObject:
        async with api_client(plane) as connection:
            dry_run = DryRun(KubeApi(connection), "image", ManualLoopClock())
            return await operator_webhook.answer(asked, Inventory(), lambda _: None, dry_run, no_preview)

    with webhook(plane, lambda asked: asyncio.run(answer(asked))):
        wait_for(found.is_checked)
        assert found.apply(found.good) == ""
        found.claim(0, is_bound=True)
        reported = json.dumps({"status": {"metadataVersion": 2, "security": "Insecure"}})
        patch = ("patch", "clusters.barnabas.dev", NAME, "--subresource=status", "--type=merge", "-p", reported)
        plane.kubectl("-n", found.namespace, *patch)
        yield found


def test_every_field_of_a_cluster_has_an_edit() -> None:
    assert list(EDITS) == list(fields_of())


@pytest.mark.parametrize("field", EDITS)
def test_an_edit_that_cannot_work_is_refused_or_can_be_reverted(field: str, cluster: Edited) -> None:
    said = cluster.apply(edited(cluster.good, field, EDITS[field].value))
    assert (said != "") == (EDITS[field].says != ""), said
    assert EDITS[field].says in said
    assert cluster.apply(cluster.good) == ""


def test_a_volume_that_no_broker_has_can_be_changed_and_removed(cluster: Edited) -> None:
    old, other = cluster.volume(0), storage_class(cluster.plane)
    assert cluster.apply(cluster.with_volumes(old, cluster.volume(3, size="900Ti"))) == ""
    cluster.claim(3, is_bound=False)
    for fields in ({"storageClass": other}, {"size": "2Gi"}):
        assert cluster.apply(cluster.with_volumes(old, cluster.volume(3, **fields))) == ""
    assert "no such StorageClass" in cluster.apply(cluster.with_volumes(old, cluster.volume(4, storageClass="nobodys")))
    assert cluster.apply(cluster.with_volumes(old)) == ""
