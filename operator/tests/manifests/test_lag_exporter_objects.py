"""The objects of the lag exporter that a Cluster declares."""

from argparse import ArgumentTypeError
from typing import Any

import pytest

from barnabas_lag.app.options import parse, regex
from barnabas_operator.manifests.cluster_objects import lag_exporter_objects, supporting_objects, templated_objects
from barnabas_operator.manifests.kube_object import MONITORING, KubeObject, Neighbours
from barnabas_operator.planning.brokers.pod_properties import pod_problems
from barnabas_operator.planning.object_names import selector
from barnabas_operator.resources.cluster import Brokers, Cluster, ClusterSpec, Listener
from barnabas_operator.resources.kind import ObjectMeta, Template, TemplateMetadata
from barnabas_operator.resources.security import Authentication, LagExporter, LagExporterTemplate

META = ObjectMeta(name="flights", namespace="air", uid="u-1")
NAME = "flights-lag-exporter"


def cluster_with(exporter: LagExporter | None, **spec: Any) -> Cluster:
    return Cluster(metadata=META, spec=ClusterSpec(lag_exporter=exporter, insecure=True, **spec))


def objects(exporter: LagExporter | None, **spec: Any) -> dict[tuple[str, str], KubeObject]:
    neighbours = Neighbours(monitor_labels={"release": "prometheus"})
    cluster = cluster_with(exporter, **spec)
    made = supporting_objects(cluster, [MONITORING], neighbours)
    made += lag_exporter_objects(cluster, "image", [MONITORING], neighbours)
    return {(each["kind"], each["metadata"]["name"]): each for each in made}


def container(exporter: LagExporter, **spec: Any) -> Any:
    deployment = objects(exporter, **spec)["Deployment", NAME]
    (found,) = deployment["spec"]["template"]["spec"]["containers"]
    return found


def test_the_objects_of_a_lag_exporter_exist_only_if_it_is_declared() -> None:
    there, without = objects(LagExporter()), objects(None)
    assert there.keys() - without.keys() == {("Deployment", NAME), ("PodMonitor", NAME)}


def test_the_lag_exporter_command_accepts_the_options_of_its_pod() -> None:
    name, *arguments = container(LagExporter(topic_regex="^a b", group_exclude_regex="-x"))["args"]
    assert name == "lag-exporter"
    options = parse(arguments)
    assert options.bootstrap == "flights-broker.air.svc:9091"
    assert options.listener.port == 9308
    assert options.filters.topics.wanted.pattern == "^a b"
    assert options.filters.groups.excluded.pattern == "-x"
    assert options.filters.groups.wanted.pattern == ".*"


def test_selectors_match_the_lag_exporters_pod_by_its_own_labels_and_not_as_a_broker() -> None:
    made = objects(LagExporter())
    deployment, monitor = made["Deployment", NAME], made["PodMonitor", NAME]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    for chosen in (deployment["spec"]["selector"], monitor["spec"]["selector"]):
        assert chosen["matchLabels"].items() <= labels.items()
    assert not selector("flights").items() <= labels.items()
    assert monitor["metadata"]["labels"]["release"] == "prometheus"


def test_a_network_policy_opens_the_replication_listener_to_a_declared_lag_exporter() -> None:
    def peers(exporter: LagExporter | None) -> Any:
        return objects(exporter)["NetworkPolicy", "flights-broker"]["spec"]["ingress"][0]["from"]

    (more,) = [each for each in peers(LagExporter()) if each not in peers(None)]
    labels = objects(LagExporter())["Deployment", NAME]["spec"]["template"]["metadata"]["labels"]
    assert more["podSelector"]["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize(("own", "expected"), [("", "image"), ("own", "own")])
def test_the_lag_exporter_uses_its_own_image_or_that_of_the_operator(own: str, expected: str) -> None:
    assert container(LagExporter(image=own), brokers=Brokers(image="theirs"))["image"] == expected


def test_a_template_changes_the_deployment_and_only_then_it_gets_a_dry_run() -> None:
    template = LagExporterTemplate(
        deployment=Template(metadata=TemplateMetadata(labels={"team": "air"})),
        pod=Template(spec={"nodeSelector": {"disk": "none"}}),
        container={"env": [{"name": "TZ", "value": "UTC"}]},
    )
    exporter = LagExporter(template=template)
    deployment = objects(exporter)["Deployment", NAME]
    assert deployment["metadata"]["labels"]["team"] == "air"
    assert deployment["spec"]["template"]["spec"]["nodeSelector"] == {"disk": "none"}
    assert container(exporter)["env"] == [{"name": "TZ", "value": "UTC"}]
    assert [each["kind"] for each in templated_objects(cluster_with(exporter), "image")] == ["Deployment"]
    assert templated_objects(cluster_with(LagExporter()), "image") == []


def test_invalid_expressions_and_template_fields_that_the_operator_sets_are_refused() -> None:
    template = LagExporterTemplate(
        deployment=Template(spec={"replicas": 2}),
        pod=Template(spec={"containers": [{"name": "lag-exporter", "image": "x"}]}),
        container={"args": ["x"]},
    )
    said = [text for _, text in pod_problems(cluster_with(LagExporter(topic_regex="(", template=template)))]
    here, pod, leave_out = "spec.lagExporter", "template.pod.spec.containers[0]", "; remove the field from the template"
    assert said[0].startswith(f"{here}.topicRegex is '(', which is not a regular expression of Python: missing )")
    assert said[1:] == [
        (
            f"{here}.template.deployment.spec.replicas is 2 (integer), which is not allowed because two exporters "
            f"would export every series twice{leave_out}"
        ),
        (
            f"{here}.{pod}.name is 'lag-exporter' (string), which is not allowed because "
            f"spec.lagExporter.template.container changes the container{leave_out}"
        ),
        (
            f"{here}.template.container.args is a list, which is not allowed because the operator sets "
            f"the command of the exporter{leave_out}"
        ),
    ]


@pytest.mark.parametrize("text", ["a{99999999999}", "(" * 2_000 + ")" * 2_000], ids=["a number", "parentheses"])
def test_an_expression_that_overflows_python_is_refused_like_an_invalid_one(text: str) -> None:
    (said,) = (problem for _, problem in pod_problems(cluster_with(LagExporter(group_regex=text))))
    assert said.startswith("spec.lagExporter.groupRegex is ")
    assert ", which is not a regular expression of Python: " in said
    with pytest.raises(ArgumentTypeError, match="allowed: a regular expression of Python"):
        regex(text)


def test_the_lag_exporter_of_a_secured_cluster_mounts_a_readable_certificate() -> None:
    listeners = (Listener(name="users", authentication=Authentication(type="scram-sha-512")),)
    pod = objects(LagExporter(), listeners=listeners)["Deployment", NAME]["spec"]["template"]["spec"]
    (volume,), (mount,) = pod["volumes"], pod["containers"][0]["volumeMounts"]
    assert volume == {"name": mount["name"], "secret": {"secretName": NAME, "defaultMode": 0o440}}
    assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsUser"]
    assert f"--command-config={mount['mountPath']}/client.properties" in pod["containers"][0]["args"]
    assert "volumes" not in objects(LagExporter())["Deployment", NAME]["spec"]["template"]["spec"]


def test_the_lag_exporters_pod_runs_without_privileges() -> None:
    pod = objects(LagExporter())["Deployment", NAME]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"]
