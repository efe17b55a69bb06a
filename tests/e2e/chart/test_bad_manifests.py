"""Bad manifests are refused when they are applied, with a message that names field, value and what is allowed.

The API server refuses them if its rules can; the operator's webhook refuses the rest, and all if rules are off.
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from barnabas_operator import admission as operator_webhook
from barnabas_operator.admission import DryRun
from barnabas_operator.app.cluster_options import SystemClock
from barnabas_operator.kube.api import KubeApi
from barnabas_operator.observed.inventory import Inventory
from barnabas_operator.planning.admission import AdmissionContext
from barnabas_operator.planning.cluster_state import ClusterState, TopicState
from barnabas_operator.planning.rules_of_kinds import review
from barnabas_operator.resources.kind import JsonObject
from e2e.chart.bad_manifests import BAD, BROKERS, LIVE_PARTITIONS, Bad, refused_by
from e2e.gates import without_rules
from e2e.webhook_server import webhook
from harness.deadline import wait_for
from harness.webhook import no_preview
from local_kubernetes.control_plane import ControlPlane
from local_kubernetes.kube_client import api_client
from local_kubernetes.kubectl import PATIENTLY

CRDS = Path(__file__).parents[3] / "helm" / "barnabas" / "crd-files"
FILES = [CRDS / f"{plural}.barnabas.dev.yaml" for plural in ("clusters", "topics", "users", "consumergroups")]
NAMESPACE = "bad-manifests"
EVERYWHERE = tuple(range(BROKERS))
STATE = ClusterState(
    racks=dict.fromkeys(EVERYWHERE),
    topics={"flights": TopicState("id", (EVERYWHERE,) * LIVE_PARTITIONS, {})},
    default_replication_factor=BROKERS,
)


def stored(bad: Bad, spec: Any) -> JsonObject:
    """Return the manifest as the API server passes it to the webhook."""
    manifest = bad.manifest(spec) | ({"status": bad.status} if bad.status is not None else {})
    return {**manifest, "metadata": {**manifest["metadata"], "namespace": NAMESPACE}}


@pytest.mark.parametrize("name", refused_by("schema", "rule", "webhook"))
def test_the_review_of_the_webhook_refuses_bad_manifests(name: str) -> None:
    bad = BAD[name]
    name_in_kafka = (bad.spec or {}).get("topicName")
    taken_by = "owner" if name_in_kafka == "taken" else None
    old = stored(bad, bad.before) if bad.before is not None else None
    around = AdmissionContext(taken_by, STATE, "dotted" if name_in_kafka == "a_b" else None)
    refusal = review(old, stored(bad, bad.spec), around).refusal
    assert refusal is not None
    assert [part for part in bad.says if part not in refusal] == [], refusal


@pytest.fixture(scope="module")
def defined(api_server: ControlPlane) -> ControlPlane:
    """The API server with the resources' definitions and a namespace."""
    kubectl = api_server.kubectl
    kubectl("create", "namespace", NAMESPACE)
    define(api_server)
    return api_server


def define(plane: ControlPlane, *, with_rules: bool = True) -> None:
    """Apply the definitions, and wait until their rules are in force, or are gone."""
    for file in FILES:
        definition = YAML(typ="safe").load(file)
        if not with_rules:
            without_rules(definition)
        plane.kubectl("apply", "--server-side", "--force-conflicts", "-f-", stdin=json.dumps(definition))
    plane.kubectl("wait", "--for=condition=Established", PATIENTLY, *(f"--filename={file}" for file in FILES))
    probe = BAD["topic: a topic called dot"]
    wait_for(lambda: is_refused(plane, probe.manifest(probe.spec)) == with_rules)


def is_refused(plane: ControlPlane, manifest: JsonObject) -> bool:
    return plane.kubectl.ask(*IN, "apply", "--dry-run=server", "-f-", stdin=json.dumps(manifest)).returncode != 0


IN = ("-n", NAMESPACE)


def apply_after(plane: ControlPlane, bad: Bad) -> str:
    """Apply what was there before and then the manifest; return the refusal, or "" if it was stored."""
    requests = plane.requests
    if bad.before is not None:
        assert requests.refusal(stored(bad, bad.before)) == ""
    if bad.status is not None:
        requests.merge_status(bad.kind, NAMESPACE, bad.name, bad.status)
    said = requests.refusal(stored(bad, bad.spec))
    if bad.before is not None or not said:
        requests.delete(bad.kind, NAMESPACE, bad.name)
    return said


@pytest.mark.parametrize("name", refused_by("schema", "rule"))
def test_the_api_server_alone_refuses_bad_manifests(name: str, defined: ControlPlane) -> None:
    said = apply_after(defined, BAD[name])
    assert said != "", "the manifest was stored"
    assert [part for part in BAD[name].says if part not in said] == [], said


def test_quantities_are_accepted_in_every_form_that_kubernetes_allows(defined: ControlPlane) -> None:
    def amounts(size: str | int) -> str:
        resources = {"requests": {"cpu": 1, "memory": "1e9"}, "limits": {"cpu": 2, "memory": ".5Ei"}}
        spec = {"brokers": {"resources": resources}, "storage": {"volumes": [{"id": 0, "size": size}]}}
        return json.dumps(Bad("Cluster", "schema", spec, (), name="amounts").manifest(spec))

    for size in ("2e9", 2_000_000_000, "4G"):
        defined.kubectl(*IN, "apply", "-f-", stdin=amounts(size))
    defined.kubectl(*IN, "delete", "cluster", "amounts")


def topic(name: str, **spec: Any) -> str:
    metadata = {"name": name}
    return json.dumps({"apiVersion": "barnabas.dev/v1alpha1", "kind": "Topic", "metadata": metadata, "spec": spec})


def test_kubectl_scale_cannot_decrease_partitions(defined: ControlPlane) -> None:
    kubectl = defined.kubectl
    kubectl(*IN, "apply", "-f-", stdin=topic("scaled", partitions=6))
    kubectl(*IN, "scale", "topic/scaled", "--replicas=8")
    done = kubectl.ask(*IN, "scale", "topic/scaled", "--replicas=6")
    assert "spec.partitions is 6; allowed: 8 or more" in done.stderr
    assert kubectl(*IN, "get", "topic", "scaled", "-o", "jsonpath={.spec.partitions}") == "8"


@pytest.fixture(scope="module")
def asking(defined: ControlPlane) -> Iterator[ControlPlane]:
    """The API server with the webhook and without the rules that it checks itself."""
    inventory = Inventory()
    topics = (("owner", {"topicName": "taken"}), ("dotted", {"topicName": "a.b"}))
    there = (("Cluster", "demo", {"brokers": {"replicas": BROKERS}}), *(("Topic", *each) for each in topics))
    for kind, name, spec in there:
        metadata = {"name": name, "namespace": NAMESPACE}
        body = {"apiVersion": "barnabas.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}
        inventory.keep(body, is_gone=False)

    async def answer(asked: JsonObject) -> JsonObject:
        async with api_client(defined) as connection:
            dry_run = DryRun(KubeApi(connection), "image", SystemClock())
            return await operator_webhook.answer(asked, inventory, lambda _: STATE, dry_run, no_preview)

    define(defined, with_rules=False)
    try:
        with webhook(defined, lambda asked: asyncio.run(answer(asked))):
            probe = BAD["topic: a topic called dot"]
            wait_for(lambda: is_refused(defined, probe.manifest(probe.spec)))
            yield defined
    finally:
        define(defined)


@pytest.mark.parametrize("name", refused_by("rule", "webhook", "dry run"))
def test_the_webhook_refuses_bad_manifests_when_they_are_applied(name: str, asking: ControlPlane) -> None:
    said = apply_after(asking, BAD[name])
    assert "admission webhook" in said
    assert [part for part in BAD[name].says if part not in said] == [], said


def test_a_dry_run_warns_that_more_partitions_move_keys(asking: ControlPlane) -> None:
    kubectl = asking.kubectl
    kubectl(*IN, "apply", "-f-", stdin=topic("wider", partitions=6))
    done = kubectl.ask(*IN, "apply", "--dry-run=server", "-f-", stdin=topic("wider", partitions=12))
    assert done.returncode == 0
    assert (
        "Warning: after the change from 6 to 12 partitions, producers write many keys to other partitions than before"
        in done.stderr
    )
    assert kubectl(*IN, "get", "topic", "wider", "-o", "jsonpath={.spec.partitions}") == "6"


def test_kubectl_apply_warns_about_a_dropped_null_and_server_side_apply_keeps_it(asking: ControlPlane) -> None:
    kubectl, manifest = asking.kubectl, topic("nulls", config={"retention.ms": None, "segment.ms": 5})
    done = kubectl.ask(*IN, "apply", "-f-", stdin=manifest)
    assert (
        "Warning: spec.config of the manifest sets retention.ms to null, but kubectl apply removes null values"
        in done.stderr
    )
    kubectl(*IN, "delete", "topic", "nulls")
    done = kubectl.ask(*IN, "apply", "--server-side", "-f-", stdin=manifest)
    assert (done.returncode, done.stderr) == (0, "")
    stored_config = json.loads(kubectl(*IN, "get", "topic", "nulls", "-o", "jsonpath={.spec.config}"))
    assert stored_config == {"retention.ms": None, "segment.ms": 5}


def test_a_protected_topic_is_deleted_only_after_its_policy_is_changed(asking: ControlPlane) -> None:
    kubectl = asking.kubectl
    kubectl(*IN, "apply", "-f-", stdin=topic("precious", deletionPolicy="Protect"))
    done = kubectl.ask(*IN, "delete", "topic", "precious")
    assert (
        "Topic precious is not deleted, because spec.deletionPolicy is Protect; first set Delete or Retain"
    ) in done.stderr
    kubectl(*IN, "apply", "-f-", stdin=topic("precious", deletionPolicy="Retain"))
    kubectl(*IN, "delete", "topic", "precious")


def test_deleting_a_retained_cluster_warns_about_volumes_with_delete_claim(asking: ControlPlane) -> None:
    kubectl, volumes = asking.kubectl, [{"id": 0, "deleteClaim": True}, {"id": 1}]
    for name, storage in (("brief", {"volumes": volumes}), ("lasting", {"volumes": volumes[1:]})):
        made = Bad("Cluster", "schema", None, (), name=name).manifest({"storage": storage})
        kubectl(*IN, "apply", "-f-", stdin=json.dumps(made))
    lost = (
        "the records on volume 0 of each broker are deleted with Cluster brief, although spec.deletionPolicy is Retain"
    )
    done = kubectl.ask(*IN, "delete", "cluster", "brief")
    assert (done.returncode, done.stderr) == (0, f"Warning: deleteClaim is true, so {lost}\n")
    done = kubectl.ask(*IN, "delete", "cluster", "lasting")
    assert (done.returncode, done.stderr) == (0, "")
