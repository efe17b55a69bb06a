"""The Helm chart by helm and a real API server, without pods: what it renders, allows the operator, and leaves."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pytest
from ruamel.yaml import YAML

from barnabas_operator.manifests.cluster_objects import broker_objects, surrounding_objects
from barnabas_operator.planning.facts import Facts
from barnabas_operator.resources.cluster import Brokers, Cluster, ClusterSpec
from barnabas_operator.resources.object_meta import ObjectMeta
from e2e.apiserver import prepare_api_server, unavailable
from e2e.binaries import CannotStart
from e2e.control_plane import ControlPlane
from e2e.helm import CHART, ask_helm, template

NAMESPACE: Final = "air"
OPERATOR: Final = f"system:serviceaccount:{NAMESPACE}:barnabas-operator"
FOREIGN: Final = {"Certificate", "PodMonitor"}
"""Kinds of others, which this API server does not have."""
POLICIES: Final = "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"
"""What helm would find at the API server, and cannot when it only renders."""

VALUES: Final[Mapping[str, Sequence[str]]] = {
    "as it is": (),
    "namespaces": ("watchNamespaces={a,b}",),
    "every namespace": ("watchAnyNamespace=true",),
    "no webhook": ("webhook.enabled=false",),
    "a webhook that must answer": ("webhook.failurePolicy=Fail",),
    "cert-manager": ("webhook.certManager.enabled=true", "webhook.certManager.issuerRef.name=ca"),
    "no policy": ("brokersOwnMetadata.enabled=false",),
    "a monitor": ("podMonitor.enabled=true", "podMonitor.labels.team=air"),
    "where it runs": ("nodeSelector.disk=fast", "priorityClassName=system-cluster-critical", "podLabels.team=air"),
    "a registry that asks who one is": ("imagePullSecrets[0].name=registry", "image.pullPolicy=Always"),
}
BAD_VALUES: Final[Mapping[str, tuple[str, str]]] = {
    "a value that is none": ("watchNamespace=a", "watchNamespace"),
    "a policy that is none": ("webhook.failurePolicy=Maybe", "failurePolicy"),
    "a namespace that is none": ("watchNamespaces={A_b}", "watchNamespaces"),
    "a round every instant": ("driftSeconds=0", "driftSeconds"),
    "a level that is none": ("logLevel=LOUD", "logLevel"),
    "a policy that is not on or off": ("brokersOwnMetadata.enabled=maybe", "brokersOwnMetadata"),
    "an issuer that nobody names": ("webhook.certManager.enabled=true", "issuerRef"),
}


def setting(values: Sequence[str]) -> list[str]:
    return [f"--set={value}" for value in values]


def rendered(*values: str) -> list[dict[str, object]]:
    text = template(f"--namespace={NAMESPACE}", f"--api-versions={POLICIES}", *setting(values))
    return [each for each in YAML(typ="safe").load_all(text) if each]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """An API server of its own: a release owns the definitions, which others share."""
    try:
        own = prepare_api_server(tmp_path_factory.mktemp("chart"))
    except CannotStart as reason:
        unavailable(reason)
    try:
        own.start_api()
        for name in (NAMESPACE, "a", "b"):
            own.kubectl("create", "namespace", name)
        yield own
    finally:
        own.daemons.stop_all()


@pytest.mark.parametrize("name", VALUES)
def test_the_api_server_takes_what_the_chart_renders(name: str, plane: ControlPlane) -> None:
    lint = ask_helm("lint", "--strict", str(CHART), *setting(VALUES[name]))
    assert lint.returncode == 0, lint.stdout + lint.stderr
    known = [each for each in rendered(*VALUES[name]) if each["kind"] not in FOREIGN]
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": known})
    plane.kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f-", stdin=listed)


@pytest.mark.parametrize("name", BAD_VALUES)
def test_a_bad_value_is_named(name: str) -> None:
    value, said = BAD_VALUES[name]
    done = ask_helm("template", "barnabas", str(CHART), *setting([value]))
    assert done.returncode != 0
    assert said in done.stderr


def policies(text: str) -> int:
    return text.count("kind: ValidatingAdmissionPolicy\n")


def test_brokers_are_kept_to_their_own_metadata_where_the_api_server_can() -> None:
    assert policies(template(f"--api-versions={POLICIES}")) == 1
    assert policies(template()) == 0
    assert policies(template(f"--api-versions={POLICIES}", "--set=brokersOwnMetadata.enabled=false")) == 0


@pytest.fixture(scope="module")
def installed(plane: ControlPlane) -> ControlPlane:
    """The same with the chart; there is nobody who could start its pods."""
    release(plane, "install", "webhook.enabled=true")
    return plane


def test_an_installation_has_the_policy_for_brokers_where_it_watches(installed: ControlPlane) -> None:
    name = f"barnabas-operator-{NAMESPACE}-brokers-own-metadata"
    installed.kubectl("get", "validatingadmissionpolicybinding", name)
    found = json.loads(installed.kubectl("get", "validatingadmissionpolicy", name, "-ojson"))
    (chosen,) = found["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"]
    assert chosen["values"] == [NAMESPACE]


def release(plane: ControlPlane, verb: str, *values: str) -> None:
    place = (f"--kubeconfig={plane.kubeconfig}", f"--namespace={NAMESPACE}")
    chart = [str(CHART), *setting(values)] if verb != "uninstall" else []
    done = ask_helm(verb, "barnabas", *chart, *place)
    assert done.returncode == 0, done.stderr


def test_the_operator_may_make_all_that_a_cluster_is_and_only_where_it_watches(installed: ControlPlane) -> None:
    cluster = Cluster(
        metadata=ObjectMeta(name="flights", namespace=NAMESPACE, uid="u-1"),
        spec=ClusterSpec(brokers=Brokers(replicas=3)),
    )
    objects = [*surrounding_objects(cluster), *broker_objects(cluster, Facts(), "image", 3)]
    made = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    apply = ("apply", "--server-side", "-f-", f"--as={OPERATOR}")
    installed.kubectl(*apply, stdin=made)
    done = installed.kubectl.ask(*apply, stdin=made.replace(f'"namespace": "{NAMESPACE}"', '"namespace": "a"'))
    assert done.stderr.count("forbidden") == len(objects)


MAY: Final = (
    ("list", "nodes", True),
    ("watch", "pods", True),
    ("delete", "pods", True),
    ("patch", "topics.barnabas.dev/status", True),
    ("patch", "persistentvolumeclaims", True),
    ("create", "events", True),
    ("patch", "events", False),
    ("deletecollection", "statedocuments.internal.barnabas.dev", True),
    ("get", "secrets", False),
    ("create", "pods", False),
    ("delete", "clusters.barnabas.dev", False),
    ("patch", "nodes", False),
)


@pytest.mark.parametrize(("verb", "resource", "allowed"), MAY)
def test_the_operator_may_do_no_more_than_it_does(
    verb: str, resource: str, *, allowed: bool, installed: ControlPlane
) -> None:
    done = installed.kubectl.ask("-n", NAMESPACE, "auth", "can-i", verb, resource, f"--as={OPERATOR}")
    assert done.stdout.split()[-1:] == (["yes"] if allowed else ["no"]), done.stderr


def test_an_upgrade_keeps_the_certificate_and_the_end_keeps_resources(installed: ControlPlane) -> None:
    kubectl = installed.kubectl
    certificate = ("-n", NAMESPACE, "get", "secret", "barnabas-operator-webhook", "-o", "jsonpath={.data}")
    bundle = ("get", "validatingwebhookconfiguration", f"barnabas-operator-{NAMESPACE}", "-o")
    first = kubectl(*certificate)
    topic = {"apiVersion": "barnabas.dev/v1alpha1", "kind": "Topic", "metadata": {"name": "kept"}, "spec": {}}
    kubectl("-n", NAMESPACE, "apply", "-f-", stdin=json.dumps(topic))
    release(installed, "upgrade", "logLevel=DEBUG")
    assert kubectl(*certificate) == first
    told = kubectl(*bundle, "jsonpath={.webhooks[*].clientConfig.caBundle}")
    assert set(told.split()) == {json.loads(first)["ca.crt"]}
    release(installed, "uninstall")
    assert kubectl.ask("-n", NAMESPACE, "get", "deployment", "barnabas-operator").returncode != 0
    assert kubectl("-n", NAMESPACE, "get", "topic", "kept", "-o", "name") == "topic.barnabas.dev/kept\n"
    release(installed, "install", "webhook.enabled=false")
    assert kubectl("-n", NAMESPACE, "get", "topic", "kept", "-o", "name") == "topic.barnabas.dev/kept\n"
