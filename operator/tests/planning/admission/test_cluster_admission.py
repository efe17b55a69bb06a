"""The webhook's refusals and warnings about a Cluster, before it is stored."""

from collections.abc import Mapping

import pytest

from barnabas_operator.planning.admission import AdmissionContext, Verdict
from barnabas_operator.planning.rules_of_kinds import review
from barnabas_operator.resources.kind import JsonObject


def cluster(**spec: object) -> JsonObject:
    meta = {"name": "quickstart", "namespace": "default"}
    return {
        "apiVersion": "barnabas.dev/v1alpha1",
        "kind": "Cluster",
        "metadata": meta,
        "spec": {"insecure": True, **spec},
    }


def at_level(level: int, **spec: object) -> JsonObject:
    """Return a Cluster whose brokers have finalized that level of the metadata."""
    return {**cluster(**spec), "status": {"metadataVersion": level}}


NEVER_LOWERED = (
    "the brokers have finalized a higher level, and the operator never lowers the level; to lower the level, set "
    "spec.pause: true, run "
    "kafka-features.sh downgrade --feature barnabas.metadata.version=1, then set spec.metadataVersion and "
    "spec.pause: false in one step"
)
ALLOWED = Verdict()
A_QUANTITY = "a quantity such as 500m, 2, 512Mi or 10Gi"
BALANCED = {"name": "outside", "port": 9094, "type": "loadbalancer"}
SAFE = {"name": "safe", "tls": True, "authentication": {"type": "tls"}}
OPEN_LISTENER = (
    "spec.listeners[1] has neither tls nor authentication; set tls: true and authentication: {type: "
    "scram-sha-512}, or set spec.insecure: true, which lets in anybody who can reach the brokers"
)
CLUSTERS: Mapping[str, tuple[JsonObject | None, JsonObject | None, str | None]] = {
    "a good one": (None, cluster(brokers={"replicas": 3}), None),
    "amounts as people write them": (
        None,
        cluster(
            brokers={"resources": {"requests": {"cpu": 1, "memory": "1e9"}, "limits": {"cpu": 2, "memory": ".5Ei"}}},
            storage={"volumes": [{"id": 0, "size": 10_000_000_000}]},
        ),
        None,
    ),
    "a disk that grows in other words": (
        cluster(storage={"volumes": [{"id": 0, "size": 2_000_000_000}]}),
        cluster(storage={"volumes": [{"id": 0, "size": "2e9"}]}),
        None,
    ),
    "half a processor as a number": (
        None,
        cluster(brokers={"resources": {"limits": {"cpu": 0.5}}}),
        f"spec.brokers.resources.limits.cpu is 0.5 (number); allowed: {A_QUANTITY}",
    ),
    "a setting that is none": (
        None,
        cluster(config={"num.partition": 1}),
        "spec.config num.partition=1: is not a setting of a broker; did you mean num.partitions?",
    ),
    "balancers of several brokers by one name": (
        None,
        cluster(brokers={"replicas": 3}, listeners=[{**BALANCED, "advertisedHost": "kafka.example"}]),
        (
            "spec.listeners[0].advertisedHost is kafka.example, which 3 brokers cannot share, because each load "
            "balancer listens at port 9094; remove advertisedHost, or use type nodeport"
        ),
    ),
    "a host with its port": (
        None,
        cluster(listeners=[{**BALANCED, "advertisedHost": "kafka.example:9094"}]),
        (
            "spec.listeners[0].advertisedHost is kafka.example:9094; allowed: a host name or an IP address without "
            "a port; IPv6 addresses must be in square brackets"
        ),
    ),
    "a listener by the name of the port of probes": (
        None,
        cluster(listeners=[{**BALANCED, "name": "http"}]),
        "spec.listeners[0].name is 'http'; allowed: each name only once, and never http or replication",
    ),
    "a balancer of one broker by a name": (
        None,
        cluster(listeners=[{**BALANCED, "advertisedHost": "kafka.example"}]),
        None,
    ),
    "a lower level of the metadata than there is": (
        at_level(2),
        cluster(metadataVersion=1),
        f"spec.metadataVersion is 1; allowed: 2 or more, or no value: {NEVER_LOWERED}",
    ),
    "the level that there is": (at_level(2), cluster(metadataVersion=2), None),
    "a lower level, where the brokers may have been brought back to it": (
        at_level(2, pause=True),
        cluster(metadataVersion=1),
        None,
    ),
    "something else, where the level is too low already": (
        at_level(2, metadataVersion=1),
        cluster(metadataVersion=1, brokers={"replicas": 3}),
        None,
    ),
    "a level that is none": (
        None,
        cluster(metadataVersion=0),
        "spec.metadataVersion is 0 (integer); allowed: an integer from 1 to 32767",
    ),
    "more copies than brokers": (
        None,
        cluster(config={"default.replication.factor": 2}),
        "spec.config default.replication.factor=2: allowed: 1 to 1, the number of brokers",
    ),
    "a new one that says nothing of security": (None, cluster(insecure=False), None),
    "an open listener of a Cluster that is not insecure": (
        None,
        cluster(insecure=False, listeners=[{**SAFE, "port": 9093}, {"name": "plain"}]),
        OPEN_LISTENER,
    ),
    "insecure that is removed before the open listener": (
        {**cluster(listeners=[SAFE, {"name": "plain"}]), "status": {"security": "Insecure"}},
        {
            **cluster(insecure=False, listeners=[SAFE, {"name": "plain", "port": 9093}]),
            "status": {"security": "Insecure"},
        },
        OPEN_LISTENER,
    ),
    "an edit of one from before that has no insecure yet": (
        at_level(2, insecure=False, listeners=[{"name": "plain"}]),
        at_level(2, insecure=False, listeners=[{"name": "plain"}], brokers={"replicas": 2}),
        None,
    ),
    "the end of a protected one": (
        cluster(deletionPolicy="Protect"),
        None,
        "Cluster quickstart is not deleted, because spec.deletionPolicy is Protect; first set Delete or Retain",
    ),
}


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_cluster_is_refused_for_invalid_or_unsafe_changes(name: str) -> None:
    old, new, refusal = CLUSTERS[name]
    assert review(old, new, AdmissionContext()).refusal == refusal


def test_a_setting_without_effect_causes_a_warning_only_once() -> None:
    before = cluster(storage={}, config={"num.io.threads": 4})
    told = review(None, before, AdmissionContext()).warnings
    assert len(told) == 1
    assert told[0].startswith("spec.config num.io.threads has no effect: ")
    assert (
        review(before, cluster(storage={}, config={"num.io.threads": 4, "num.partitions": 3}), AdmissionContext())
        == ALLOWED
    )


def test_addresses_without_effect_cause_a_warning_only_once() -> None:
    listeners = [
        {"name": "plain", "advertisedHost": "localhost"},
        {**BALANCED, "preferredNodePortAddressType": "ExternalDNS"},
    ]
    disks = {"volumes": [{"id": 0}]}
    asked = cluster(listeners=listeners, storage=disks)
    assert review(None, asked, AdmissionContext()).warnings == (
        (
            "spec.listeners[0].advertisedHost has no effect, because clients of an internal listener connect to "
            "the DNS names of the brokers' pods"
        ),
        (
            "spec.listeners[1].preferredNodePortAddressType has no effect, because "
            "only listeners of type nodeport without advertisedHost use the field"
        ),
    )
    assert (
        review(asked, cluster(listeners=listeners, storage=disks, brokers={"replicas": 3}), AdmissionContext())
        == ALLOWED
    )


def test_a_node_port_that_kubernetes_does_not_give_to_services_causes_a_warning_only_once() -> None:
    def asked(*ports: object, **more: object) -> JsonObject:
        services = {"bootstrapService": {"spec": {"ports": list(ports)}}}
        listener = {"name": "outside", "port": 9094, "type": "nodeport", "template": services}
        return cluster(storage={"volumes": [{"id": 0}]}, listeners=[listener], **more)

    (told,) = review(None, asked({"port": 9094, "nodePort": 80}), AdmissionContext()).warnings
    assert told == (
        "spec.listeners[0].template.bootstrapService.spec.ports[0].nodePort is 80; allowed: 30000 to 32767, "
        "unless --service-node-port-range of the API server differs"
    )
    before = asked({"port": 9094, "nodePort": 80})
    assert review(before, asked({"port": 9094, "nodePort": 80}, pause=True), AdmissionContext()) == ALLOWED
    for fine in ({"port": 9094, "nodePort": 30000}, {"port": 9094, "nodePort": "a"}, {"port": 9094}, 7):
        assert review(None, asked(fine), AdmissionContext()).warnings == ()


def test_a_missing_declaration_of_disks_causes_a_warning_only_once() -> None:
    (told,) = review(None, cluster(), AdmissionContext()).warnings
    assert told == "spec.storage is missing, so each broker gets a disk of 10Gi, which can grow but never shrink"
    assert review(cluster(), cluster(pause=True), AdmissionContext()).warnings == ()
    assert review(None, cluster(storage={"volumes": [{"id": 0}]}), AdmissionContext()).warnings == ()


def test_insecure_causes_a_warning_if_no_listener_needs_it() -> None:
    disks = {"volumes": [{"id": 0}]}
    (told,) = review(None, cluster(storage=disks, listeners=[SAFE]), AdmissionContext()).warnings
    assert told.startswith("spec.insecure is true, although every listener has TLS or authentication; ")
    assert review(None, cluster(storage=disks), AdmissionContext()) == ALLOWED


def annotated(**annotations: str) -> JsonObject:
    declared = cluster(storage={"volumes": [{"id": 0}]})
    named = {f"barnabas.dev/{name}": value for name, value in annotations.items()}
    return {**declared, "metadata": {**declared["metadata"], "annotations": named}}


def test_an_annotation_that_names_no_rebalance_plan_is_refused() -> None:
    told = (
        "the annotation barnabas.dev/rebalance is yes: the Cluster has no MaintenanceJob with that name; allowed: "
        "approve, or the name of a MaintenanceJob of this Cluster with job skew that has succeeded"
    )
    assert review(annotated(), annotated(rebalance="yes"), AdmissionContext()).refusal == told
    assert review(None, annotated(rebalance="yes"), AdmissionContext()).refusal == told
    assert review(annotated(rebalance="yes"), annotated(rebalance="yes"), AdmissionContext()) == ALLOWED
    assert review(annotated(), annotated(rebalance="approve"), AdmissionContext()) == ALLOWED


DELETED: Mapping[str, tuple[JsonObject, tuple[str, ...]]] = {
    "with all disks kept": ({"storage": {"volumes": [{"id": 0}]}}, ()),
    "with disks that go, though it keeps all else": (
        {"storage": {"volumes": [{"id": 0, "deleteClaim": True}, {"id": 1}, {"id": 2, "deleteClaim": True}]}},
        (
            (
                "deleteClaim is true, so the records on volume 0, 2 of each broker are deleted with Cluster main, "
                "although spec.deletionPolicy is Retain"
            ),
        ),
    ),
    "that takes all along, as it says": (
        {"deletionPolicy": "Delete", "storage": {"volumes": [{"id": 0, "deleteClaim": True}]}},
        (),
    ),
}


@pytest.mark.parametrize("name", DELETED)
def test_a_warning_names_the_records_that_are_deleted_with_a_cluster(name: str) -> None:
    spec, warnings = DELETED[name]
    old = {"kind": "Cluster", "metadata": {"name": "main"}, "spec": spec}
    assert review(old, None, AdmissionContext()) == Verdict(None, warnings)
