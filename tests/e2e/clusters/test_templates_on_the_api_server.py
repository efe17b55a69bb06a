"""The operator's objects for each example of a template, on a real API server."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from msgspec.structs import replace
from ruamel.yaml import YAML

from barnabas_operator.admission import DryRun
from barnabas_operator.app.cluster_options import SystemClock
from barnabas_operator.kube.api import APPLY, KubeApi, path_of
from barnabas_operator.manifests.cluster_objects import broker_objects, supporting_objects, templated_objects
from barnabas_operator.manifests.kube_object import MONITORING
from barnabas_operator.planning.brokers.pod_properties import pod_problems
from barnabas_operator.planning.brokers.pods import ExternalAccess, PodsState
from barnabas_operator.planning.brokers.templates import DIRECTIVE, KEY_DEFAULTS, LIST_KEYS
from barnabas_operator.planning.conditions import INVALID_SPEC, Refusal
from barnabas_operator.reconcile.brokers.applied_objects import AppliedObjects, ClaimsReconciler, ObjectRefused
from barnabas_operator.resources.cluster import Brokers, Cluster, ClusterSpec, Listener, Rack
from barnabas_operator.resources.kind import (
    ClusterTemplate,
    Json,
    MetadataTemplate,
    ObjectMeta,
    Template,
    TemplateMetadata,
)
from barnabas_operator.resources.schema_check import resource_of
from harness.deadline import wait_for
from local_kubernetes.control_plane import ControlPlane
from local_kubernetes.kube_client import api_client

EXAMPLES: Final = sorted((Path(__file__).parents[3] / "examples" / "kubernetes" / "templates").glob("*.yaml"))
FREE: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
MONITORS: Final = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "podmonitors.monitoring.coreos.com"},
    "spec": {
        "group": "monitoring.coreos.com",
        "scope": "Namespaced",
        "names": {"kind": "PodMonitor", "plural": "podmonitors"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": FREE}}],
    },
}
SCHEMAS: Final = {
    "StatefulSet": ("apis/apps/v1", "io.k8s.api.apps.v1.StatefulSet"),
    "Service": ("api/v1", "io.k8s.api.core.v1.Service"),
    "PodDisruptionBudget": ("apis/policy/v1", "io.k8s.api.policy.v1.PodDisruptionBudget"),
    "NetworkPolicy": ("apis/networking.k8s.io/v1", "io.k8s.api.networking.v1.NetworkPolicy"),
}


@pytest.fixture(scope="module")
def plane(defined_api_server: ControlPlane) -> Iterator[ControlPlane]:
    """The API server with the definition of PodMonitor beside ours."""
    kubectl = defined_api_server.kubectl
    kubectl("apply", "-f-", stdin=json.dumps(MONITORS))
    wait_for(lambda: kubectl.ask("get", "podmonitors").returncode == 0)
    try:
        yield defined_api_server
    finally:
        kubectl("delete", "crd", "podmonitors.monitoring.coreos.com")


@pytest.fixture
def namespace(plane: ControlPlane) -> Iterator[str]:
    name = f"templates-{uuid4().hex[:8]}"
    requests = plane.requests
    requests.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    requests.delete("Namespace", None, name)
    for each in requests.listing("Service", name):  # There are only few node ports.
        requests.delete("Service", name, each["metadata"]["name"])


def stored_cluster(plane: ControlPlane, namespace: str, file: Path) -> Cluster:
    """Return the Cluster of a file as the API server passes it on."""
    manifest = YAML(typ="safe").load(file)
    plane.requests.apply({**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}})
    stored = plane.requests.get("Cluster", namespace, file.stem)
    assert stored is not None
    return resource_of(Cluster, stored)


def objects_of(cluster: Cluster) -> list[dict[str, Any]]:
    replicas = cluster.spec.brokers.replicas
    keys = [(each.name, number) for each in cluster.spec.listeners for number in range(replicas)]
    external = ExternalAccess(dict.fromkeys(keys, 31000), dict.fromkeys(keys, "balancer"))
    return [*supporting_objects(cluster, [MONITORING]), *broker_objects(cluster, external, "image", replicas)]


def with_api(plane: ControlPlane, work: Any) -> Any:
    async def run() -> Any:
        async with api_client(plane) as connection:
            return await work(KubeApi(connection))

    return asyncio.run(run())


def lacks(found: Any, said: Any, path: str = "") -> Iterator[str]:
    """Yield what an object lacks of its template. Each entry of the template's lists must be in the object's."""
    if isinstance(said, Mapping) and isinstance(found, Mapping):
        for name, value in said.items():
            if name != DIRECTIVE:
                yield from lacks(found.get(name), value, f"{path}.{name}")
    elif isinstance(said, list) and isinstance(found, list):
        yield from (f"{path}: {each}" for each in said if all([*lacks(other, each)] for other in found))
    elif found != said:
        yield f"{path}: {found} is not {said}"


def said_of(file: Path) -> Iterator[tuple[str, str, Json]]:
    """Yield kind, name and partial object of all that the templates of a file declare."""
    spec, name = YAML(typ="safe").load(file)["spec"], file.stem
    template, brokers = spec.get("template", {}), f"{file.stem}-broker"
    yield "StatefulSet", brokers, {"spec": {"template": template.get("pod", {})}}
    if "brokerContainer" in template:
        yield "StatefulSet", brokers, {"spec": {"template": {"spec": {"containers": [template["brokerContainer"]]}}}}
    for kind in ("StatefulSet", "ServiceAccount", "PodDisruptionBudget", "NetworkPolicy", "PodMonitor"):
        yield kind, brokers, template.get(kind[0].lower() + kind[1:], {})
    for listener in (each for each in spec.get("listeners", ()) if "template" in each):
        services = listener["template"]
        yield "Service", f"{name}-bootstrap-{listener['name']}", services["bootstrapService"]
        for number in range(spec.get("brokers", {}).get("replicas", 1)):
            yield "Service", f"{brokers}-{number}-{listener['name']}", services["brokerService"]
        for each in services.get("brokerServices", ()):
            yield "Service", f"{brokers}-{each['brokerId']}-{listener['name']}", {"spec": each["spec"]}


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_created_objects_have_all_that_the_template_declares(
    file: Path, plane: ControlPlane, namespace: str
) -> None:
    cluster = stored_cluster(plane, namespace, file)
    assert list(pod_problems(cluster)) == []
    made = objects_of(cluster)

    async def work(api: KubeApi) -> list[dict[str, Any]]:
        assert await DryRun(api, "image", SystemClock())(cluster) is None
        found = [await api.apply(each) for each in made]
        assert await DryRun(api, "image", SystemClock())(cluster) is None, (
            "a second dry run must accept the existing objects"
        )
        return found

    stored = {(each["kind"], each["metadata"]["name"]): each for each in with_api(plane, work)}
    for kind, name, said in said_of(file):
        assert list(lacks(stored[kind, name], said)) == [], f"{kind} {name}"
    everywhere = cluster.spec.template.metadata
    for key, each in stored.items():
        assert everywhere.labels.items() <= each["metadata"]["labels"].items(), key
        assert each["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "barnabas-operator"
        assert everywhere.annotations.items() <= each["metadata"].get("annotations", {}).items(), key
    pods = stored["StatefulSet", f"{file.stem}-broker"]["spec"]["template"]
    broker = pods["spec"]["containers"][0]
    assert everywhere.labels.items() <= pods["metadata"]["labels"].items()
    assert (broker["name"], broker["args"][0]) == ("broker", "broker")
    assert {"config", "access", "tmp"} <= {each["name"] for each in pods["spec"]["volumes"]}


@pytest.mark.parametrize("file", [each for each in EXAMPLES if each.stem != "openshift"], ids=lambda file: file.stem)
def test_pod_templates_are_merged_as_two_server_side_applies_would_be(
    file: Path, plane: ControlPlane, namespace: str
) -> None:
    """The operator applies its part, and another manager the template. (`$patch` is an exception.)"""
    cluster = stored_cluster(plane, namespace, file)
    bare = replace(cluster, spec=replace(cluster.spec, template=ClusterTemplate()))
    whole, own = (next(each for each in objects_of(each) if each["kind"] == "StatefulSet") for each in (cluster, bare))
    template = cluster.spec.template
    container = {"name": "broker", **template.broker_container}
    # A second manager may reuse the name of the first one's object; then nothing of the first one's is left.
    others = template.pod.spec.get("containers", [])
    patch = {"spec": {**template.pod.spec, "containers": [container, *others]}}
    their = {key: own[key] for key in ("apiVersion", "kind")} | {"spec": {"template": patch}}
    name = own["metadata"]["name"]

    async def work(api: KubeApi) -> tuple[Any, Any]:
        async def apply(item: Json, manager: str) -> Json:
            query = {"fieldManager": manager, "force": "true"}
            path = path_of("StatefulSet", namespace, name)
            return await api.request("PATCH", path, query=query, body=item, content_type=APPLY)

        await apply(own, "operator")
        both = await apply({**their, "metadata": {"name": name}}, "template")
        await api.delete("StatefulSet", namespace, name)
        alone = await apply(whole, "operator")
        return both["spec"]["template"]["spec"], alone["spec"]["template"]["spec"]

    both, alone = with_api(plane, work)
    assert in_order(alone) == in_order(both)


def test_existing_claims_get_declared_labels_and_lose_undeclared_ones(plane: ControlPlane, namespace: str) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "volume-0-main-broker-0",
            "namespace": namespace,
            "labels": {"barnabas.dev/cluster": "main", "somebody": "else"},
        },
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    plane.requests.create(claim)

    def labels_with(generation: int, everywhere: dict[str, str], of_claims: dict[str, str]) -> Any:
        template = ClusterTemplate(
            metadata=TemplateMetadata(labels=everywhere),
            persistent_volume_claim=MetadataTemplate(metadata=TemplateMetadata(labels=of_claims)),
        )
        meta = ObjectMeta(name="main", namespace=namespace, generation=generation)
        cluster = Cluster(metadata=meta, spec=ClusterSpec(template=template))
        with_api(plane, lambda api: ClaimsReconciler(api).label(cluster, PodsState(None)))
        found = plane.requests.get("PersistentVolumeClaim", namespace, "volume-0-main-broker-0")
        assert found is not None
        return found["metadata"]["labels"], found["metadata"]["resourceVersion"]

    theirs = claim["metadata"]["labels"]  # type: ignore[index]
    assert labels_with(1, {"team": "a"}, {"backup": "nightly"})[0] == {**theirs, "team": "a", "backup": "nightly"}
    assert labels_with(2, {"team": "b"}, {})[0] == {**theirs, "team": "b"}
    bare, version = labels_with(3, {}, {})
    assert bare == theirs
    assert labels_with(4, {}, {})[1] == version, "unchanged labels must not be written again"


def in_order(value: Any) -> Any:
    """Return the value with its lists in a fixed order."""
    if isinstance(value, Mapping):
        return {name: in_order(item) for name, item in value.items()}
    return sorted(map(in_order, value), key=json.dumps) if isinstance(value, list) else value


def test_list_keys_are_those_of_the_api_servers_schemas(plane: ControlPlane) -> None:
    """All lists in the operator's objects are compared, so that a new one is not forgotten."""
    listeners = (Listener(name="plain"), Listener(name="outside", port=9094, type="nodeport"))
    spec = ClusterSpec(listeners=listeners, brokers=Brokers(rack=Rack()))
    made = objects_of(Cluster(metadata=ObjectMeta(name="main"), spec=spec))
    keyed: dict[str, tuple[str, ...]] = {}
    for kind, (api, schema) in SCHEMAS.items():
        schemas = json.loads(plane.kubectl("get", "--raw", f"/openapi/v3/{api}"))["components"]["schemas"]
        spec = schemas[schema]["properties"]["spec"]
        for each in made:
            if each["kind"] == kind:
                keyed |= keyed_lists(each["spec"], spec, schemas, "spec")
    assert keyed == LIST_KEYS
    assert set(KEY_DEFAULTS) <= {key for keys in keyed.values() for key in keys}


def keyed_lists(value: Any, schema: Json, schemas: Json, path: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    while "$ref" in schema or "allOf" in schema:
        schema = schema["allOf"][0] if "allOf" in schema else schemas[schema["$ref"].rpartition("/")[2]]
    if isinstance(value, Mapping):
        for name, item in value.items():
            inner = schema.get("properties", {}).get(name)
            if inner is not None:
                found |= keyed_lists(item, inner, schemas, f"{path}.{name}")
    elif isinstance(value, list):
        if schema.get("x-kubernetes-list-type") == "map":
            found[path] = tuple(schema["x-kubernetes-list-map-keys"])
        for item in value:
            found |= keyed_lists(item, schema["items"], schemas, path)
    return found


def test_an_unknown_field_of_a_template_is_reported_as_an_invalid_spec(plane: ControlPlane, namespace: str) -> None:
    """The API server answers it with 500, which would otherwise be retried for ever."""
    meta = ObjectMeta(name="main", namespace=namespace, uid="u-1")
    budget = Template(spec={"maxUnavailabel": 1})
    cluster = Cluster(metadata=meta, spec=ClusterSpec(template=ClusterTemplate(pod_disruption_budget=budget)))
    (wrong,) = templated_objects(cluster, "image")
    with pytest.raises(ObjectRefused) as refused:
        with_api(plane, lambda api: AppliedObjects(api).apply(cluster, wrong))
    assert refused.value.refusal == Refusal(
        INVALID_SPEC, "PodDisruptionBudget main-broker: spec.maxUnavailabel: field not declared in schema"
    )


def test_the_dry_run_reports_an_invalid_template_with_its_object(plane: ControlPlane, namespace: str) -> None:
    """Only the API server knows the allowed fields, so a dry run asks it."""
    (file,) = (each for each in EXAMPLES if each.stem == "load-balancer")
    cluster = stored_cluster(plane, namespace, file)
    assert len(templated_objects(cluster, "image")) == 2

    def said(**spec: object) -> object:
        listener = cluster.spec.listeners[1]
        service = replace(listener.template.bootstrap_service, spec=spec)
        template = replace(listener.template, bootstrap_service=service)
        listeners = (cluster.spec.listeners[0], replace(listener, template=template))
        wrong = replace(cluster, spec=replace(cluster.spec, listeners=listeners))
        return with_api(plane, lambda api: DryRun(api, "image", SystemClock())(wrong))

    service = "Service load-balancer-bootstrap-outside"
    assert said(loadBalancerClas="a") == f"{service}: spec.loadBalancerClas: field not declared in schema"
    assert str(said(loadBalancerClass="a b")).startswith(f'{service}: spec.loadBalancerClass: Invalid value: "a b"')
