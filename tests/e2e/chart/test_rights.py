"""The rights from the chart suffice, even while a namespace is deleted; and users have the rights of their roles."""

import json
import os
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from barnabas_operator.resources.cluster_kind import KINDS, edit_role
from e2e.chart.listed_rights import HEADING, PAGE, rights_of, section
from e2e.world import World
from harness.deadline import PATIENCE_S, wait_for
from harness.server_process import ServerProcess
from local_kubernetes.control_plane import ControlPlane
from local_kubernetes.helm import CHART, ask_helm
from local_kubernetes.kubectl import PATIENTLY

pytestmark = pytest.mark.slow
CAN_I = (
    ("view", "get", "topics.barnabas.dev", True),
    ("view", "watch", "clusters.barnabas.dev", True),
    ("view", "list", "statedocuments.internal.barnabas.dev", True),
    ("view", "create", "topics.barnabas.dev", False),
    ("edit", "create", "topics.barnabas.dev", True),
    ("edit", "patch", "topics.barnabas.dev/scale", True),
    ("edit", "get", "clusters.barnabas.dev", True),
    ("edit", "patch", "clusters.barnabas.dev", False),
    ("edit", "patch", "topics.barnabas.dev/status", False),
    ("edit", "get", "users.barnabas.dev", True),
    ("edit", "create", "users.barnabas.dev", False),
    ("admin", "create", "users.barnabas.dev", True),
    ("admin", "delete", "topics.barnabas.dev", True),
    ("admin", "create", "clusters.barnabas.dev", True),
    ("admin", "patch", "clusters.barnabas.dev/scale", True),
    ("admin", "patch", "statedocuments.internal.barnabas.dev", False),
)

SPECS = {
    "Cluster": {},
    "Topic": {"partitions": 1},
    "User": {"authentication": {"type": "scram-sha-512"}},
    "ConsumerGroup": {},
    "MaintenanceJob": {"job": "skew", "options": {"report": "/a/b"}},
}
OF_OTHERS = (
    ("create", "pods"),
    ("create", "pods/exec"),
    ("create", "jobs.batch"),
    ("create", "serviceaccounts/token"),
    ("get", "secrets"),
    ("patch", "deployments.apps/scale"),
    ("patch", "statefulsets.apps"),
    ("create", "rolebindings.rbac.authorization.k8s.io"),
    ("get", "statedocuments.internal.barnabas.dev"),
)
OF_CLUSTERS = (
    ("one-broker", "barnabas-broker"),
    ("one-maintenance", "barnabas-maintenance-driver"),
    ("one-maintenance-start", "barnabas-maintenance-starter"),
)
"""The accounts of a Cluster, and the ClusterRoles that the operator binds to them."""


@pytest.fixture
def namespace(controllers: ControlPlane) -> Iterator[str]:
    name = f"rights-{uuid4().hex[:8]}"
    controllers.kubectl("create", "namespace", name)
    yield name
    controllers.kubectl("delete", "namespace", name, "--ignore-not-found", "--wait=false")


@pytest.fixture
def release(controllers: ControlPlane) -> Iterator[str]:
    """The namespace of a release; the test installs it with the namespaces to watch."""
    name = f"release-{uuid4().hex[:8]}"
    yield name
    ask_helm("uninstall", "barnabas", f"--namespace={name}", of=controllers.kubectl)
    controllers.kubectl("delete", "namespace", name, "--ignore-not-found", "--wait=false")


@pytest.fixture(scope="module")
def watched(controllers: ControlPlane) -> Iterator[str]:
    """A namespace that a release watches; the release is in the namespace `release_of` it."""
    name = f"watched-{uuid4().hex[:8]}"
    controllers.kubectl("create", "namespace", name)
    install(controllers, release_of(name), f"watchNamespaces={{{name}}}")
    yield name
    ask_helm("uninstall", "barnabas", f"--namespace={release_of(name)}", of=controllers.kubectl)
    controllers.kubectl("delete", "namespace", name, release_of(name), "--wait=false")


def release_of(watched: str) -> str:
    return f"{watched}-release"


def operator_of(release: str) -> str:
    """Return the account of a release's operator."""
    return f"system:serviceaccount:{release}:barnabas-operator"


def install(plane: ControlPlane, release: str, *values: str) -> str:
    """Install the chart without definitions, which exist, and without webhook, which needs pods; return the output."""
    given = [f"--set={each}" for each in ("crds.enabled=false", "webhook.enabled=false", *values)]
    place = (f"--namespace={release}", "--create-namespace")
    done = ask_helm("upgrade", "--install", "barnabas", str(CHART), *place, *given, of=plane.kubectl)
    assert done.returncode == 0, done.stderr
    return done.stdout


def kubeconfig_of_the_operator(plane: ControlPlane, release: str, folder: Path) -> Path:
    token = plane.kubectl("-n", release, "create", "token", "barnabas-operator").strip()
    config = json.loads(plane.kubeconfig.read_text())
    config["users"] = [{"name": "admin", "user": {"token": token}}]
    file = folder / "operator.kubeconfig"
    file.write_text(json.dumps(config))
    return file


def test_a_watched_namespace_can_be_deleted_although_its_role_bindings_go_first(
    controllers: ControlPlane, namespace: str, release: str, broker: ServerProcess, tmp_path: Path
) -> None:
    install(controllers, release, f"watchNamespaces={{{namespace}}}")
    world = World(controllers, namespace, broker, tmp_path)
    own = {
        "KUBECONFIG": str(kubeconfig_of_the_operator(controllers, release, tmp_path)),
        "LEASE": f"{release}/barnabas-operator",
    }
    world.apply_cluster("one", brokers={"replicas": 1}, deletionPolicy="Delete")
    names = [f"{policy.lower()}-of-{namespace}" for policy in ("Delete", "Protect")]
    for name, policy in zip(names, ("Delete", "Protect"), strict=True):
        world.apply(name, cluster="one", partitions=1, deletionPolicy=policy)
    with closing(world.operator(**own)):
        world.await_ready(*names)
    controllers.kubectl("delete", "namespace", namespace, "--wait=false")
    wait_for(lambda: world.kubectl("get", "rolebindings", "-oname"), lambda left: left == "", PATIENCE_S)
    assert world.topics() == sorted(names), "the finalizers must keep the topics"
    with closing(world.operator(**own)):
        controllers.kubectl("wait", "--for=delete", f"namespace/{namespace}", PATIENTLY)


def test_a_missing_watched_namespace_is_reported_and_gets_its_rights_on_the_next_upgrade(
    controllers: ControlPlane, release: str
) -> None:
    late = f"{release}-late"
    said = install(controllers, release, f"watchNamespaces={{{late}}}")
    assert f"The namespace {late} does not exist" in said
    assert f"kubectl -n {late} apply" in said
    with controllers.kubectl.namespace(late):
        assert "does not exist" not in install(controllers, release, f"watchNamespaces={{{late}}}")
        # The API server learns of new role bindings by its own watch.
        wait_for(lambda: controllers.requests.may(operator_of(release), late, "create", "statefulsets.apps"))
    # Helm fails if a namespace disappears between its check and its writes.
    controllers.kubectl("wait", "--for=delete", f"namespace/{late}", PATIENTLY)
    gone = install(controllers, release, f"watchNamespaces={{{late}}}", "logLevel=DEBUG")
    assert f"The namespace {late} does not exist" in gone


def test_the_operator_may_scale_deployments_and_stateful_sets_but_not_change_them(
    controllers: ControlPlane, watched: str
) -> None:
    may = partial(controllers.requests.may, operator_of(release_of(watched)), watched)
    wait_for(lambda: may("patch", "deployments.apps/scale"))
    wait_for(lambda: may("patch", "statefulsets.apps/scale"))
    assert may("list", "horizontalpodautoscalers.autoscaling")
    assert not may("patch", "replicasets.apps/scale")
    assert not may("patch", "horizontalpodautoscalers.autoscaling")
    assert not may("patch", "deployments.apps/status")


def test_the_operator_may_read_and_write_secrets_by_name_but_not_list_them(
    controllers: ControlPlane, watched: str
) -> None:
    def may(verb: str, where: str = watched) -> bool:
        return controllers.requests.may(operator_of(release_of(watched)), where, verb, "secrets")

    wait_for(lambda: may("get"))
    verbs = ("create", "patch", "delete", "list", "watch", "update", "deletecollection")
    # The operator passes the right to watch on to brokers, which watch eight Secrets by name.
    assert [verb for verb in verbs if may(verb)] == ["create", "patch", "delete", "watch"]
    assert not may("get", "default")


def test_the_page_lists_every_right_of_each_account(controllers: ControlPlane, watched: str) -> None:
    kubectl, namespace, release = controllers.kubectl, watched, release_of(watched)
    operator = f"{release}:barnabas-operator"
    asked = {
        "`barnabas-operator`, in a watched namespace": (namespace, operator),
        "`barnabas-operator`, in its own namespace": (release, operator),
    }
    for account, role in OF_CLUSTERS:
        given = (f"--clusterrole={role}", f"--serviceaccount={namespace}:{account}")
        kubectl("-n", namespace, "create", "rolebinding", account, *given)
        asked[f"`{account.replace('one', 'CLUSTER')}`, in the namespace of the Cluster"] = (
            namespace,
            f"{namespace}:{account}",
        )

    def listed() -> str:
        return section({title: rights_of(kubectl, *of) for title, of in asked.items()})

    before, heading, written = PAGE.read_text().partition(HEADING)
    if os.environ.get("WRITE_RIGHTS"):
        wait_for(lambda: all(rights_of(kubectl, *of) for of in asked.values()))
        PAGE.write_text(f"{before}{heading}{listed()}")
        return
    # The API server learns of new role bindings by its own watch, so the page is compared when all rights are there.
    wait_for(listed, lambda text: text.count("\n") == written.count("\n"))
    assert listed() == written


def test_the_operator_may_remove_the_owner_of_a_pod(controllers: ControlPlane, watched: str) -> None:
    meta = {"name": "one-broker-0", "namespace": watched, "ownerReferences": [owner_of(controllers, watched)]}
    spec = {"containers": [{"name": "broker", "image": "broker"}]}
    controllers.requests.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    patch = ("patch", "pod", "one-broker-0", "--type=merge", '-p={"metadata":{"ownerReferences":[]}}')
    account = f"--as={operator_of(release_of(watched))}"
    wait_for(lambda: controllers.kubectl.ask("-n", watched, *patch, account).returncode == 0)
    found = controllers.requests.get("Pod", watched, "one-broker-0")
    assert found is not None
    assert "ownerReferences" not in found["metadata"]


def owner_of(plane: ControlPlane, namespace: str) -> dict[str, str]:
    """Return a reference to an object that exists."""
    found = wait_for(lambda: plane.requests.get("ServiceAccount", namespace, "default"))
    assert found is not None
    return {"apiVersion": "v1", "kind": "ServiceAccount", "name": "default", "uid": found["metadata"]["uid"]}


@pytest.mark.parametrize("role", ["view", "edit", "admin"])
def test_the_default_roles_of_a_namespace_have_rights_to_topics_and_clusters(
    role: str, controllers: ControlPlane, namespace: str
) -> None:
    controllers.kubectl("-n", namespace, "create", "rolebinding", role, f"--clusterrole={role}", "--user=somebody")

    may = partial(controllers.requests.may, "somebody", namespace)
    wait_for(lambda: may("get", "topics.barnabas.dev"))
    for whose, verb, resource, allowed in CAN_I:
        if whose == role:
            assert may(verb, resource) is allowed, f"{verb} {resource}"


@pytest.mark.parametrize("name", KINDS)
def test_the_role_of_a_kind_allows_to_apply_only_that_kind(
    name: str, controllers: ControlPlane, namespace: str
) -> None:
    role, kubectl = edit_role(KINDS[name]), controllers.kubectl
    kubectl("-n", namespace, "create", "rolebinding", role, f"--clusterrole={role}", "--user=somebody")

    def is_applied(kind: str) -> bool:
        manifest = {"apiVersion": "barnabas.dev/v1alpha1", "kind": kind, "metadata": {"name": "a"}, "spec": SPECS[kind]}
        told = ("-n", namespace, "apply", "-f-", "--as=somebody")
        return kubectl.ask(*told, stdin=json.dumps(manifest)).returncode == 0

    wait_for(lambda: is_applied(name))
    assert [kind for kind in KINDS if is_applied(kind)] == [name]
    for verb, resource in OF_OTHERS:
        assert not controllers.requests.may("somebody", namespace, verb, resource), f"{verb} {resource}"
