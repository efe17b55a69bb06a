"""A template that changes a reserved field is refused with the field, its value and the reason."""

from typing import Any

import pytest

from barnabas_operator.planning.brokers.pod_properties import pod_problems
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.schema_check import resource_of

OUTSIDE = {"name": "outside", "port": 9094, "type": "nodeport"}


def cluster_of(template: Any, *listeners: Any) -> Cluster:
    spec = {"insecure": True, "template": template, "listeners": [{"name": "plain"}, *listeners]}
    meta = {"name": "main", "namespace": "air"}
    return resource_of(
        Cluster, {"apiVersion": "barnabas.dev/v1alpha1", "kind": "Cluster", "metadata": meta, "spec": spec}
    )


def spec(entry: str, **fields: Any) -> dict[str, Any]:
    return {entry: {"spec": fields}}


REFUSED: dict[str, tuple[Any, str]] = {
    "replicas": (
        spec("statefulSet", replicas=5),
        (
            "spec.template.statefulSet.spec.replicas is 5 (integer), which is not allowed because "
            "spec.brokers.replicas sets the field; "
            "remove the field from the template"
        ),
    ),
    "the selector": (
        spec("statefulSet", selector={"matchLabels": {}}),
        (
            "spec.template.statefulSet.spec.selector is a mapping, which is not allowed because the "
            "field selects the brokers' pods; "
            "remove the field from the template"
        ),
    ),
    "the pods by their set": (
        spec("statefulSet", template={"spec": {}}),
        (
            "spec.template.statefulSet.spec.template is a mapping, which is not allowed because spec.template.pod "
            "and spec.template.brokerContainer change the pod template; remove the field from the template"
        ),
    ),
    "the broker's container by the pod": (
        spec("pod", containers=[{"name": "other", "image": "x"}, {"name": "broker", "image": "x"}]),
        (
            "spec.template.pod.spec.containers[1].name is 'broker' (string), "
            "which is not allowed because spec.template.brokerContainer changes the container; "
            "remove the field from the template"
        ),
    ),
    "a disk that goes": (
        spec("pod", volumes=[{"name": "volume-0", "$patch": "delete"}]),
        (
            "spec.template.pod.spec.volumes[0].name is 'volume-0' (string), which is not allowed "
            "because spec.storage sets the "
            "volumes; remove the "
            "field from the template"
        ),
    ),
    "all volumes instead": (
        spec("pod", volumes=[{"$patch": "replace"}, {"name": "x", "emptyDir": {}}]),
        (
            "spec.template.pod.spec.volumes[0].$patch is replace, but spec.volumes.config "
            "must not be removed, because the volume holds the brokers' settings; remove $patch from the template"
        ),
    ),
    "a name that is none": (
        spec("pod", containers=[{"name": {"broker": 1}}]),
        "spec.template.pod.spec.containers[0].name is a mapping; allowed: a text or a number",
    ),
    "a way around the guard of replication": (
        spec("networkPolicy", policyTypes=["Egress"], egress=[{}]),
        (
            "spec.template.networkPolicy.spec.policyTypes lacks Ingress, which protects the replication; "
            "allowed: [Ingress] or [Ingress, Egress]"
        ),
    ),
    "the image": (
        {"brokerContainer": {"image": "x"}},
        (
            "spec.template.brokerContainer.image is 'x' (string), which is not allowed because "
            "spec.brokers.image sets the field; "
            "remove the field from the template"
        ),
    ),
    "the broker's own port": (
        {"brokerContainer": {"ports": [{"containerPort": 9091, "hostPort": 9091}]}},
        (
            "spec.template.brokerContainer.ports[0].containerPort is 9091 (integer), which is not "
            "allowed because brokers replicate "
            "over the port; "
            "remove the field from the template"
        ),
    ),
    "a listener's port": (
        {"brokerContainer": {"ports": [{"containerPort": 9092, "name": "x"}]}},
        (
            "spec.template.brokerContainer.ports[0].containerPort is 9092 (integer), which is not "
            "allowed because spec.listeners sets "
            "the field; "
            "remove the field from the template"
        ),
    ),
    "a mount over a disk": (
        {"brokerContainer": {"volumeMounts": [{"name": "x", "mountPath": "/var/lib/barnabas/volume-0"}]}},
        (
            "spec.template.brokerContainer.volumeMounts[0].mountPath is "
            "'/var/lib/barnabas/volume-0' (string), which is not allowed because the "
            "brokers' disks are mounted at the path; remove the field from the template"
        ),
    ),
    "what tells that a broker is ready": (
        {"brokerContainer": {"readinessProbe": {"periodSeconds": 5, "httpGet": {"path": "/"}}}},
        (
            "spec.template.brokerContainer.readinessProbe.httpGet is a mapping, which is not allowed "
            "because the probe checks the "
            "broker's state; "
            "remove the field from the template"
        ),
    ),
    "another probe": (
        {"brokerContainer": {"readinessProbe": {"$patch": "replace", "exec": {"command": ["true"]}}}},
        (
            "spec.template.brokerContainer.readinessProbe.$patch is replace, but "
            "readinessProbe.httpGet must not be removed, "
            "because the probe checks the broker's state; remove $patch from the template"
        ),
    ),
    "environment as a mapping": (
        {"brokerContainer": {"env": {"TZ": "UTC"}}},
        "spec.template.brokerContainer.env is a mapping; allowed: a list",
    ),
    "a null": (
        spec("pod", securityContext={"runAsUser": None}),
        (
            "spec.template.pod.spec.securityContext.runAsUser is empty; allowed: a value, or "
            "{$patch: delete} to remove the field"
        ),
    ),
    "a directive that is none": (
        spec("pod", securityContext={"$patch": "remove"}),
        "spec.template.pod.spec.securityContext.$patch is 'remove' (string); allowed: replace or delete",
    ),
    "a label that finds pods": (
        {"pod": {"metadata": {"labels": {"app.kubernetes.io/name": "mine"}}}},
        (
            "spec.template.pod.metadata.labels[\"app.kubernetes.io/name\"] is 'mine' "
            "(string), but the operator reserves this name; "
            "choose another name"
        ),
    ),
    "the type of the Service for pods": (
        spec("bootstrapService", type="LoadBalancer"),
        (
            "spec.template.bootstrapService.spec.type is 'LoadBalancer' (string), which is not "
            "allowed because spec.listeners sets "
            "the field; "
            "remove the field from the template"
        ),
    ),
    "one node for all": (
        spec("pod", nodeName="n-1"),
        (
            "spec.template.pod.spec.nodeName is 'n-1' (string), which is not allowed because all "
            "brokers would be on one node; "
            "set nodeSelector or affinity instead"
        ),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_template_that_changes_a_reserved_field_is_refused(name: str) -> None:
    template, message = REFUSED[name]
    assert [said for _, said in pod_problems(cluster_of(template))] == [message]


OF_LISTENERS: dict[str, tuple[Any, list[str]]] = {
    "an internal one": (
        {"name": "inner", "port": 9095, "template": {"brokerService": {"metadata": {"labels": {"a": "b"}}}}},
        [
            (
                "spec.listeners[1].template is set, but an internal listener has no Service of its own; "
                "change spec.template.bootstrapService instead"
            )
        ],
    ),
    "another port": (
        {**OUTSIDE, "template": {"brokerService": {"spec": {"ports": [{"port": 9095, "nodePort": 31000}]}}}},
        [
            (
                "spec.listeners[1].template.brokerService.spec.ports[0].port is 9095 (integer); "
                "allowed: 9094, as declared in spec.listeners"
            )
        ],
    ),
    "one broker twice": (
        {**OUTSIDE, "template": {"brokerServices": [{"brokerId": 0}, {"brokerId": 0}]}},
        [
            ("spec.listeners[1].template.brokerServices[1].brokerId is 0 a second time; list each broker only once"),
        ],
    ),
    "a port of the nodes": (
        {**OUTSIDE, "template": {"brokerServices": [{"brokerId": 0, "spec": {"ports": [{"port": 9094}]}}]}},
        [],
    ),
}


@pytest.mark.parametrize("name", OF_LISTENERS)
def test_templates_of_services_must_fit_their_listener(name: str) -> None:
    listener, messages = OF_LISTENERS[name]
    assert [said for _, said in pod_problems(cluster_of({}, listener))] == messages


def test_all_problems_of_a_template_are_reported_at_once() -> None:
    template = {"statefulSet": {"spec": {"replicas": 1, "serviceName": "x"}}, "brokerContainer": {"image": "x"}}
    assert len(list(pod_problems(cluster_of(template)))) == 3


def test_the_timing_of_a_probe_may_be_changed() -> None:
    template = {"brokerContainer": {"livenessProbe": {"periodSeconds": 30}}}
    assert list(pod_problems(cluster_of(template))) == []
