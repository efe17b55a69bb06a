"""A kind that is added to the table of kinds: the chart gives rights to it, and the operator tells about it."""

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from ruamel.yaml import YAML

from barnabas_operator.reconcile.operator_settings import OperatorSettings
from barnabas_operator.resources.crd import crd_of
from barnabas_operator.resources.kind import Kind
from barnabas_operator.resources.object_meta import API_VERSION
from barnabas_operator.resources.yaml_text import yaml_text
from e2e.operators.watching_operator import SECONDS_MAX, use_api_server, watching
from harness.deadline import wait_for
from local_kubernetes.control_plane import ControlPlane
from local_kubernetes.helm import CHART, ask_helm

LOOK_S = 0.05


@pytest.fixture
def defined(defined_api_server: ControlPlane, made_up: Kind, tmp_path: Path) -> Iterator[ControlPlane]:
    """An API server that knows it, too."""
    file = tmp_path / "crd.yaml"
    file.write_text(yaml_text(crd_of(made_up)))
    kubectl = defined_api_server.kubectl
    kubectl("apply", f"-f{file}")
    wait_for(lambda: kubectl.ask("get", made_up.plural).returncode == 0)
    yield defined_api_server
    kubectl("delete", f"-f{file}")


def test_one_without_a_cluster_says_so_in_its_columns(
    defined: ControlPlane, made_up: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane, namespace = defined, f"mirrors-{uuid4().hex[:8]}"
    plane.kubectl("create", "namespace", namespace)
    use_api_server(plane, monkeypatch)
    meta = {"name": "a", "namespace": namespace}
    body = {"apiVersion": API_VERSION, "kind": made_up.name, "metadata": meta, "spec": {"source": "flights"}}

    def said() -> str:
        return str(plane.kubectl("-n", namespace, "get", "bi", "a", "--no-headers"))

    async def scenario() -> None:
        async with watching(OperatorSettings("image", (namespace,))):
            await asyncio.to_thread(plane.kubectl, "apply", "-f-", stdin=json.dumps(body))
            async with asyncio.timeout(SECONDS_MAX):
                while "False" not in await asyncio.to_thread(said):
                    await asyncio.sleep(LOOK_S)

    asyncio.run(scenario())
    assert said().rstrip().endswith(f"spec.cluster is missing; there is no Cluster in the namespace {namespace} yet")
    scaled = plane.kubectl.ask("-n", namespace, "scale", "mirrors.barnabas.dev/a", "--replicas=10")
    assert "should be less than or equal to 9" in scaled.stderr


def test_the_chart_gives_the_operator_rights_to_it_and_asks_its_webhook(made_up: Kind, tmp_path: Path) -> None:
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart)
    (chart / "crd-files" / "mirrors.barnabas.dev.yaml").write_text(yaml_text(crd_of(made_up)))
    done = ask_helm("template", "barnabas", str(chart), "--namespace=air")
    assert done.returncode == 0, done.stderr
    objects = [each for each in YAML(typ="safe").load_all(done.stdout) if each is not None]
    assert verbs(objects, "mirrors") == {"get", "list", "watch", "patch"}
    assert verbs(objects, "mirrors/status") == {"get", "patch"}
    assert verbs(objects, "mirrors/finalizers") == {"update"}
    (webhooks,) = [each["webhooks"] for each in objects if each["kind"] == "ValidatingWebhookConfiguration"]
    (rule,) = [each["rules"][0] for each in webhooks if each["name"] == "mirrors.barnabas.dev"]
    assert rule["resources"] == ["mirrors", "mirrors/scale"]
    assert "mirrors.barnabas.dev" in [each["metadata"]["name"] for each in objects]


def verbs(objects: list[dict[str, Any]], resource: str) -> set[str]:
    """What the operator's own roles let it do."""
    roles = [each for each in objects if each["kind"] == "ClusterRole" and "operator" in each["metadata"]["name"]]
    return {
        verb
        for role in roles
        for rule in role["rules"]
        if rule["apiGroups"] == ["barnabas.dev"] and resource in rule["resources"]
        for verb in rule["verbs"]
    }
