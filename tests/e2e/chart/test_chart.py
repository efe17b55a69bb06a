"""The Helm chart with helm and a real API server, without pods: its objects, the operator's rights, its uninstall."""

import base64
import json
import re
import ssl
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from ruamel.yaml import YAML

from barnabas_operator.manifests.cluster_objects import broker_objects, lag_exporter_objects, supporting_objects
from barnabas_operator.manifests.kube_object import NOBODY_ELSE, ClientAccess
from barnabas_operator.manifests.maintenance_run import (
    driver_job,
    driver_service,
    run_access,
    schedules,
    starter_access,
)
from barnabas_operator.planning.brokers.cluster_checks import read_cluster
from barnabas_operator.planning.brokers.pods import ExternalAccess
from barnabas_operator.resources.cluster import Brokers, Cluster, ClusterSpec
from barnabas_operator.resources.kind import ObjectMeta
from barnabas_operator.resources.maintenance_run import MaintenanceEntry, MaintenanceJob, MaintenanceJobSpec
from barnabas_operator.resources.schema_check import resource_of
from barnabas_operator.resources.security import LagExporter
from barnabas_operator.resources.user import User
from harness.deadline import wait_for
from local_kubernetes.apiserver import own_api_server
from local_kubernetes.control_plane import ControlPlane
from local_kubernetes.helm import CHART, ask_helm, template

NAMESPACE: Final = "air"
OPERATOR: Final = f"system:serviceaccount:{NAMESPACE}:barnabas-operator"
OF_THE_WEBHOOK: Final = "b"
"""The namespace of a release without the definitions, whose webhook's certificates tests renew: it upgrades fast."""
WITHOUT_DEFINITIONS: Final = "crds.enabled=false"
KINDS_OF_OTHERS: Final = re.compile(r"^kind: (Certificate|PodMonitor|PrometheusRule)$", re.MULTILINE)
"""Kinds of other projects, which this API server does not have."""
POLICIES: Final = "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"
MONITORS: Final = "monitoring.coreos.com/v1/PodMonitor"
RULES: Final = "monitoring.coreos.com/v1/PrometheusRule"
FLOWS: Final = "flowcontrol.apiserver.k8s.io/v1/FlowSchema"
SERVED: Final = tuple(f"--api-versions={each}" for each in (POLICIES, MONITORS, RULES, FLOWS))
"""The API versions that helm would find at the API server, but does not know when it only renders."""

VALUES: Final[Mapping[str, Sequence[str]]] = {
    "as it is": (),
    "namespaces": ("watchNamespaces={a,b}",),
    "every namespace": ("watchAnyNamespace=true",),
    "no webhook": ("webhook.enabled=false",),
    "a webhook that must answer": ("webhook.failurePolicy=Fail",),
    "cert-manager": ("webhook.certManager.enabled=true", "webhook.certManager.issuerRef.name=ca"),
    "no policy": ("brokersOwnMetadata.enabled=false",),
    "a monitor": ("podMonitor.enabled=true", "podMonitor.labels.team=air"),
    "alerts": ("prometheusRules.enabled=true", "prometheusRules.labels.release=prometheus"),
    "dashboards": ("dashboards.enabled=true", "dashboards.namespace=a", "dashboards.annotations.grafana_folder=Kafka"),
    "where it runs": ("nodeSelector.disk=fast", "priorityClassName=system-cluster-critical", "podLabels.team=air"),
    "no definitions": ("crds.enabled=false",),
    "two operators": ("replicas=2",),
    "a console": (
        "console.enabled=true",
        "console.bootstrap=flights:9092",
        "console.configSecret=client",
        "console.pathPrefix=/kafka",
        "console.mask={card,iban}",
        "console.tlsSecret=pages",
        "console.write=true",
        "console.kubernetes.namespace=a",
        "console.ingress.enabled=true",
        "console.ingress.host=kafka.example",
        "console.networkPolicy.enabled=true",
    ),
    "a console of several clusters": ("console.enabled=true", "console.configSecret=clients"),
    "leases as all else": ("flowSchema.enabled=false",),
    "a registry that asks who one is": ("imagePullSecrets[0].name=registry", "image.pullPolicy=Always"),
}
BAD_VALUES: Final[Mapping[str, tuple[str, str]]] = {
    "a console without brokers": ("console.enabled=true", "console.bootstrap is empty; allowed: the addresses"),
    "a path prefix that ends with a slash": ("console.pathPrefix=/kafka/", "pathPrefix"),
    "a value that is none": ("watchNamespace=a", "watchNamespace"),
    "a policy that is none": ("webhook.failurePolicy=Maybe", "failurePolicy"),
    "a namespace that is none": ("watchNamespaces={A_b}", "watchNamespaces"),
    "a round every instant": ("driftSeconds=0", "driftSeconds"),
    "a level that is none": ("logLevel=LOUD", "logLevel"),
    "a policy that is not on or off": ("brokersOwnMetadata.enabled=maybe", "brokersOwnMetadata"),
    "an issuer that nobody names": ("webhook.certManager.enabled=true", "issuerRef"),
    "fewer than no operators": ("replicas=-1", "replicas"),
    "a precedence that is none": ("flowSchema.matchingPrecedence=0", "matchingPrecedence"),
    "definitions that are not on or off": ("crds.enabled=maybe", "crds"),
    "every namespace and a few": (
        "watchAnyNamespace=true,watchNamespaces={a,b}",
        'watchNamespaces is ["a","b"] and watchAnyNamespace is true; allowed: one of them',
    ),
    "a label of a monitor that is no text": ("podMonitor.labels.team=5", "/podMonitor/labels/team"),
    "a label of alerts that is no text": ("prometheusRules.labels.team=true", "/prometheusRules/labels/team"),
    "a label of pods that is no text": ("podLabels.team=5", "/podLabels/team"),
    "an annotation of pods that is no text": ("podAnnotations.scrape=true", "/podAnnotations/scrape"),
    "a label of nodes that is no text": ("nodeSelector.fast=true", "/nodeSelector/fast"),
    "a label of the chart": (
        "podLabels.app\\.kubernetes\\.io/name=foo",
        "podLabels has app.kubernetes.io/name: foo; allowed: any label but the chart's own, app.kubernetes.io/instance",
    ),
    "a label of the chart for a monitor": (
        "podMonitor.labels.helm\\.sh/chart=foo",
        "podMonitor.labels has helm.sh/chart",
    ),
    "a label of the chart for dashboards": (
        "dashboards.labels.helm\\.sh/chart=foo",
        "dashboards.labels has helm.sh/chart",
    ),
    "an alert that is none": (
        "prometheusRules.enabled=true,prometheusRules.disabled={BrokerDow}",
        "prometheusRules.disabled has BrokerDow; allowed: AbnormalControllerState, BrokerDown,",
    ),
    "alerts that nobody knows": (
        "prometheusRules.enabled=true",
        f"prometheusRules.enabled is true, but the API server has no {RULES}; allowed: false, or install the CRDs",
    ),
    "a monitor that nobody knows": (
        "podMonitor.enabled=true",
        f"podMonitor.enabled is true, but the API server has no {MONITORS}; allowed: false, or install the CRDs",
    ),
}


def setting(values: Sequence[str]) -> list[str]:
    return [f"--set={value}" for value in values]


def rendered(*values: str) -> list[str]:
    """Return the objects as YAML, a text each."""
    return template(f"--namespace={NAMESPACE}", *SERVED, *setting(values)).split("\n---\n")


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A separate API server, since a release owns the definitions that others share."""
    with own_api_server(tmp_path_factory.mktemp("chart")) as own:
        for name in (NAMESPACE, "a", "b"):
            own.kubectl("create", "namespace", name)
        yield own


@pytest.fixture(scope="module")
def accepted() -> set[str]:
    """The objects, as YAML, that the API server has accepted: most values change a few."""
    return set()


@pytest.mark.parametrize("name", VALUES)
def test_the_api_server_accepts_the_rendered_chart(name: str, plane: ControlPlane, accepted: set[str]) -> None:
    """No value but `crds.enabled` changes the definitions, whose rendering takes most of the time."""
    values = [*VALUES[name], *([] if name == "as it is" else [WITHOUT_DEFINITIONS])]
    lint = ask_helm("lint", "--strict", str(CHART), *setting(values))
    assert lint.returncode == 0, lint.stdout + lint.stderr
    known = [each for each in rendered(*values) if not KINDS_OF_OTHERS.search(each)]
    assert known
    new = "\n---\n".join(each for each in known if each not in accepted)
    if new:
        plane.kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f-", stdin=new)
    accepted.update(known)


@pytest.mark.parametrize("name", BAD_VALUES)
def test_a_bad_value_is_refused_by_name(name: str) -> None:
    value, said = BAD_VALUES[name]
    served = [each for each in SERVED if name == "an alert that is none"]
    done = ask_helm("template", "barnabas", str(CHART), *served, *setting([value]))
    assert done.returncode != 0
    assert said in done.stderr


def test_a_release_name_may_look_like_a_number() -> None:
    done = ask_helm("template", "2026", str(CHART), f"--namespace={NAMESPACE}", "--set=crds.enabled=false")
    (operator,) = (each for each in YAML(typ="safe").load_all(done.stdout) if each and each["kind"] == "Deployment")
    assert operator["spec"]["selector"]["matchLabels"]["app.kubernetes.io/instance"] == "2026"
    variables = operator["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "RELEASE", "value": "2026"} in variables


def test_the_notes_make_a_secured_cluster_and_its_first_user_without_a_file_of_the_sources() -> None:
    """Bash reads the commands as a reader pastes them, with a `kubectl` that shows what it would apply."""
    flags = [f"--namespace={NAMESPACE}", "--dry-run=client", *setting(["watchNamespaces={a,b}", WITHOUT_DEFINITIONS])]
    notes = ask_helm("install", "barnabas", str(CHART), *flags).stdout.partition("NOTES:")[2]
    commands = notes[notes.index("kubectl -n a apply") : notes.index("kubectl -n a wait")]
    shown = subprocess.run(
        ["bash", "-euc", f"kubectl() {{ cat; }}\n{commands}"], capture_output=True, text=True, check=True
    )
    assert shown.stderr == ""
    cluster, user = YAML(typ="safe").load_all(shown.stdout)
    declared, problem = read_cluster(cluster)
    assert (problem, declared.spec.insecure) == (None, False)
    assert resource_of(User, user).spec.authentication.type == "scram-sha-512"
    assert set(re.findall(r"kubectl -n (\S+)", notes)) == {NAMESPACE, "a"}
    assert not re.findall(r"examples/|-f (?!- )\S+", notes)


def policies(text: str) -> int:
    return text.count("kind: ValidatingAdmissionPolicy\n")


def test_the_policies_are_rendered_if_the_api_server_supports_them() -> None:
    assert policies(template(f"--api-versions={POLICIES}")) == 3
    assert policies(template()) == 0
    assert policies(template(f"--api-versions={POLICIES}", "--set=brokersOwnMetadata.enabled=false")) == 2
    assert policies(template(f"--api-versions={POLICIES}", "--set=keepMetadata.enabled=false")) == 2
    assert policies(template(f"--api-versions={POLICIES}", "--set=protect.enabled=false")) == 2


@pytest.fixture(scope="module")
def installed(plane: ControlPlane) -> ControlPlane:
    """The API server with the chart, once it knows the operator's rights; no kubelet starts the chart's pods."""
    release(plane, "install", "webhook.enabled=true")
    for asked in (("list", "nodes"), ("create", "statefulsets.apps")):
        wait_for(partial(plane.requests.may, OPERATOR, NAMESPACE, *asked))
    return plane


def test_the_policy_for_brokers_applies_to_the_watched_namespaces(installed: ControlPlane) -> None:
    name = f"barnabas-operator-{NAMESPACE}-brokers-own-metadata"
    installed.kubectl("get", "validatingadmissionpolicybinding", name)
    found = json.loads(installed.kubectl("get", "validatingadmissionpolicy", name, "-ojson"))
    (chosen,) = found["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"]
    assert chosen["values"] == [NAMESPACE]


def a_document(plane: ControlPlane, name: str) -> None:
    spec = {"key": "topics/a", "document": {}, "summary": {}}
    kind = {"apiVersion": "internal.barnabas.dev/v1", "kind": "StateDocument"}
    made = {**kind, "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}
    plane.kubectl("apply", "-f-", stdin=json.dumps(made))


def test_nobody_else_deletes_the_credentials_of_users_and_other_secrets_are_deleted(installed: ControlPlane) -> None:
    for name in ("flights-credentials-3", "flights-admin"):
        meta = {"name": name, "namespace": NAMESPACE, "labels": {"barnabas.dev/cluster": "flights"}}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": meta}
        installed.kubectl("apply", "-f-", stdin=json.dumps(secret))
    delete = ("delete", "secret", f"--namespace={NAMESPACE}")
    refused = "flights-credentials-3: is the metadata of a Cluster or has passwords of its users"
    wait_for(lambda: installed.kubectl.ask(*delete, "flights-credentials-3").stderr, lambda said: refused in said)
    installed.kubectl(*delete, "flights-admin")
    installed.kubectl(*delete, "flights-credentials-3", f"--as={OPERATOR}", "--as-group=system:masters")


def test_only_brokers_the_operator_and_namespace_deletion_may_delete_metadata(installed: ControlPlane) -> None:
    a_document(installed, "flights.topics.a")
    delete = ("delete", "statedocument", f"--namespace={NAMESPACE}")
    refused = "its brokers delete alone"

    def refusal() -> str:
        return str(installed.kubectl.ask(*delete, "flights.topics.a", "--dry-run=server").stderr)

    wait_for(refusal, lambda said: refused in said)
    stranger = "system:serviceaccount:other:flights-broker"
    for who in (stranger, "system:serviceaccount:kube-system:default"):
        done = installed.kubectl.ask(*delete, "--all", f"--as={who}", "--as-group=system:masters")
        assert refused in done.stderr
    allowed = (
        f"system:serviceaccount:{NAMESPACE}:flights-broker",
        OPERATOR,
        "system:serviceaccount:kube-system:namespace-controller",
        "system:serviceaccount:kube-system:generic-garbage-collector",
    )
    for who in allowed:
        installed.kubectl(*delete, "flights.topics.a", f"--as={who}", "--as-group=system:masters")
        a_document(installed, "flights.topics.a")
    installed.kubectl(*delete, "flights.topics.a", f"--as={OPERATOR}", "--as-group=system:masters")


def test_a_protected_cluster_is_not_deleted_in_the_foreground_while_no_operator_runs(installed: ControlPlane) -> None:
    cluster: dict[str, Any] = {"apiVersion": "barnabas.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "kept"}}
    here = f"--namespace={NAMESPACE}"
    delete = ("delete", "cluster.barnabas.dev", "kept", here, "--cascade=foreground", "--wait=false")
    refused = "Cluster kept is not deleted, because spec.deletionPolicy is Protect"
    installed.kubectl("apply", here, "-f-", stdin=json.dumps({**cluster, "spec": {"deletionPolicy": "Protect"}}))
    wait_for(lambda: refused in installed.kubectl.ask(*delete, "--dry-run=server").stderr)
    assert refused in installed.kubectl.ask(*delete).stderr
    namespaces = "--as=system:serviceaccount:kube-system:namespace-controller"
    installed.kubectl(*delete, "--dry-run=server", namespaces, "--as-group=system:masters")
    installed.kubectl("apply", here, "-f-", stdin=json.dumps({**cluster, "spec": {"deletionPolicy": "Retain"}}))
    installed.kubectl(*delete)


def release(plane: ControlPlane, verb: str, *values: str) -> None:
    done = ask_release(plane, verb, "barnabas", NAMESPACE, *values)
    assert done.returncode == 0, done.stderr


def ask_release(
    plane: ControlPlane, verb: str, name: str, namespace: str, *values: str
) -> subprocess.CompletedProcess[str]:
    chart = [str(CHART), *setting(values)] if verb != "uninstall" else []
    return ask_helm(verb, name, *chart, f"--namespace={namespace}", of=plane.kubectl)


def test_the_operator_can_create_all_objects_of_a_cluster_only_in_watched_namespaces(installed: ControlPlane) -> None:
    cluster = Cluster(
        metadata=ObjectMeta(name="flights", namespace=NAMESPACE, uid="u-1"),
        spec=ClusterSpec(brokers=Brokers(replicas=3), lag_exporter=LagExporter(), maintenance=(NIGHTLY,)),
    )
    run = MaintenanceJob(
        metadata=ObjectMeta(name="once", namespace=NAMESPACE, uid="u-2"), spec=MaintenanceJobSpec(job="verify")
    )
    objects = [
        *supporting_objects(cluster),
        *broker_objects(cluster, ExternalAccess(), "image", 3),
        *lag_exporter_objects(cluster, "image", (), NOBODY_ELSE),
        *starter_access(cluster),
        *schedules(cluster, "image"),
        *run_access(cluster),
        driver_service(run, "flights"),
        driver_job(run, "flights", ClientAccess("bootstrap:9092"), "image"),
    ]
    made = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    apply = ("apply", "--server-side", "-f-", f"--as={OPERATOR}")
    installed.kubectl(*apply, stdin=made)
    done = installed.kubectl.ask(*apply, stdin=made.replace(f'"namespace": "{NAMESPACE}"', '"namespace": "a"'))
    assert done.stderr.count("forbidden") == len(objects)


NIGHTLY: Final = MaintenanceEntry(name="nightly", schedule="0 3 * * *", job="verify")
ROLES: Final = "clusterroles.rbac.authorization.k8s.io"
MAY: Final = (
    ("list", "nodes", True),
    ("list", "storageclasses.storage.k8s.io", True),
    ("patch", "pods", True),
    ("bind", f"{ROLES}=barnabas-broker", True),
    ("bind", f"{ROLES}=barnabas-maintenance-driver", True),
    ("bind", f"{ROLES}=cluster-admin", False),
    ("delete", "maintenancejobs.barnabas.dev", True),
    ("create", "maintenancejobs.barnabas.dev", False),
    ("watch", "cronjobs.batch", True),
    ("watch", "jobs.batch", False),
    ("create", "roles.rbac.authorization.k8s.io", True),
    ("escalate", "roles.rbac.authorization.k8s.io", False),
    ("create", "statedocuments.internal.barnabas.dev", False),
    ("watch", "pods", True),
    ("delete", "pods", True),
    ("create", "pods/eviction", True),
    ("patch", "topics.barnabas.dev/status", True),
    ("update", "topics.barnabas.dev", False),
    ("patch", "persistentvolumeclaims", True),
    ("create", "events", True),
    ("list", "events", True),
    ("patch", "events", False),
    ("deletecollection", "statedocuments.internal.barnabas.dev", True),
    ("delete", "persistentvolumeclaims", True),
    ("deletecollection", "persistentvolumeclaims", False),
    ("get", "secrets", True),
    ("list", "secrets", False),
    ("deletecollection", "secrets", False),
    ("create", "pods", False),
    ("delete", "clusters.barnabas.dev", False),
    ("patch", "nodes", False),
    ("patch", "storageclasses.storage.k8s.io", False),
)


@pytest.mark.parametrize(("verb", "resource", "allowed"), MAY)
def test_the_operator_has_only_the_rights_that_it_needs(
    verb: str, resource: str, *, allowed: bool, installed: ControlPlane
) -> None:
    kind, _, name = resource.partition("=")
    assert installed.requests.may(OPERATOR, NAMESPACE, verb, kind, name) is allowed


def test_broker_leases_have_their_own_flow_schema(installed: ControlPlane) -> None:
    name = f"barnabas-operator-{NAMESPACE}-leases"
    uid = installed.kubectl("get", "flowschema", name, "-o", "jsonpath={.metadata.uid}")
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/flights.broker-0"

    def flow_of(path: str, account: str) -> str:
        who = (f"--as={account}", f"--as-group=system:serviceaccounts:{NAMESPACE}", "--as-group=system:authenticated")
        said: str = installed.kubectl.ask("get", "--raw", path, *who, "-v=9").stderr
        return next(line.split()[-1] for line in said.splitlines() if "X-Kubernetes-Pf-Flowschema-Uid" in line)

    broker = f"system:serviceaccount:{NAMESPACE}:flights-broker"
    wait_for(lambda: flow_of(lease, broker), lambda flow: flow == uid)
    assert flow_of(lease.replace("leases", "pods").replace("coordination.k8s.io", "x"), broker) != uid
    assert flow_of(lease.replace(NAMESPACE, "b"), broker) != uid


class Webhook(NamedTuple):
    """The certificates that the chart made as PEM, and their end as the Secret has it."""

    certificate: str
    authorities: list[str]
    told_authorities: str
    not_after: str


def webhook_of(plane: ControlPlane) -> Webhook:
    secret = json.loads(plane.kubectl("-n", OF_THE_WEBHOOK, "get", "secret", "barnabas-operator-webhook", "-ojson"))
    bundle = ("get", "validatingwebhookconfiguration", f"barnabas-operator-{OF_THE_WEBHOOK}", "-o")
    (told,) = set(plane.kubectl(*bundle, "jsonpath={.webhooks[*].clientConfig.caBundle}").split())
    found = {name: base64.b64decode(text).decode() for name, text in secret["data"].items()}
    authorities = [f"{each}{END}" for each in found["ca.crt"].split(END) if each.strip()]
    end = secret["metadata"]["annotations"][NOT_AFTER]
    return Webhook(found["tls.crt"], authorities, base64.b64decode(told).decode(), end)


END: Final = "-----END CERTIFICATE-----\n"
NOT_AFTER: Final = "barnabas.dev/not-after"


@pytest.fixture(scope="module")
def with_webhook(installed: ControlPlane) -> ControlPlane:
    """The API server with a second release, whose certificate ends soon."""
    upgraded(installed, days=9, verb="install")
    return installed


def upgraded(plane: ControlPlane, days: int, verb: str = "upgrade") -> Webhook:
    """Give the certificates of the second release this lifetime; return those that it has then."""
    values = (WITHOUT_DEFINITIONS, f"webhook.certificateDays={days}")
    done = ask_release(plane, verb, "barnabas", OF_THE_WEBHOOK, *values)
    assert done.returncode == 0, done.stderr
    return webhook_of(plane)


def test_a_certificate_near_its_end_is_renewed_and_the_old_authority_stays_trusted(
    with_webhook: ControlPlane, tmp_path: Path
) -> None:
    first = webhook_of(with_webhook)
    assert upgraded(with_webhook, days=25) == first, "more than a third of its days are left"
    second = upgraded(with_webhook, days=30)
    assert second.authorities[1:] == first.authorities[:1]
    assert second.told_authorities == "".join(second.authorities)
    (tmp_path / "ca.crt").write_text(second.told_authorities)
    for name, each in (("old", first), ("new", second)):
        (tmp_path / name).write_text(each.certificate)
        subprocess.run(["openssl", "verify", "-CAfile", tmp_path / "ca.crt", tmp_path / name], check=True)
    printed = subprocess.run(
        ["openssl", "x509", "-enddate", "-noout", "-in", tmp_path / "new"], check=True, capture_output=True, text=True
    )
    ends = datetime.fromtimestamp(ssl.cert_time_to_seconds(printed.stdout.strip().partition("=")[2]), UTC)
    assert abs(ends - datetime.fromisoformat(second.not_after)) < timedelta(minutes=1)
    assert abs(ends - datetime.now(UTC) - timedelta(days=30)) < timedelta(hours=1)
    assert upgraded(with_webhook, days=30) == second
    assert upgraded(with_webhook, days=100).authorities[1:] == second.authorities[:1], (
        "there are two authorities at most"
    )


def test_a_deleted_webhook_secret_is_created_again_by_an_upgrade(with_webhook: ControlPlane) -> None:
    first = webhook_of(with_webhook)
    with_webhook.kubectl("-n", OF_THE_WEBHOOK, "delete", "secret", "barnabas-operator-webhook")
    second = upgraded(with_webhook, days=100)
    assert second.certificate != first.certificate
    assert len(second.authorities) == 1


def test_a_second_release_can_be_installed_without_the_definitions(installed: ControlPlane) -> None:
    refused = ask_release(installed, "install", "second", "a")
    assert refused.returncode != 0
    assert "release-name" in refused.stderr, "helm names the owner of the definitions"
    taken = ask_release(installed, "install", "second", "a", WITHOUT_DEFINITIONS)
    assert taken.returncode == 0, taken.stderr
    gone = ask_release(installed, "uninstall", "second", "a")
    assert gone.returncode == 0, gone.stderr
    installed.kubectl("get", "crd", "clusters.barnabas.dev", "topics.barnabas.dev")


def test_an_upgrade_keeps_the_certificate_and_an_uninstall_keeps_resources(installed: ControlPlane) -> None:
    kubectl = installed.kubectl
    certificate = ("-n", NAMESPACE, "get", "secret", "barnabas-operator-webhook", "-o", "jsonpath={.data}")
    first = kubectl(*certificate)
    topic = {"apiVersion": "barnabas.dev/v1alpha1", "kind": "Topic", "metadata": {"name": "kept"}, "spec": {}}
    kubectl("-n", NAMESPACE, "apply", "-f-", stdin=json.dumps(topic))
    release(installed, "upgrade", "logLevel=DEBUG")
    assert kubectl(*certificate) == first
    bundle = "jsonpath={.webhooks[*].clientConfig.caBundle}"
    told = kubectl("get", "validatingwebhookconfiguration", f"barnabas-operator-{NAMESPACE}", "-o", bundle)
    assert set(told.split()) == {json.loads(first)["ca.crt"]}
    release(installed, "uninstall")
    assert kubectl.ask("-n", NAMESPACE, "get", "deployment", "barnabas-operator").returncode != 0
    release(installed, "install", "webhook.enabled=false")
    assert kubectl("-n", NAMESPACE, "get", "topic", "kept", "-o", "name") == "topic.barnabas.dev/kept\n"
