"""The objects that a Cluster becomes on Kubernetes."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from barnabas_core.config.broker_config import BrokerConfig, parse_broker_config
from barnabas_core.config.definitions import parse_properties
from barnabas_operator.manifests.cluster_objects import CONFIG_HASH, broker_objects, supporting_objects
from barnabas_operator.manifests.kube_object import MONITORING, KubeObject, Neighbours
from barnabas_operator.planning.brokers.pod_properties import (
    Changes,
    dynamic_settings,
    place_settings,
    pod_problems,
    restart_hash,
    setting_changes,
)
from barnabas_operator.planning.brokers.pods import BrokerPod, ExternalAccess, PodsState
from barnabas_operator.planning.object_names import ACCOUNT, maintenance_selector, selector
from barnabas_operator.resources.cluster import (
    Brokers,
    Cluster,
    ClusterSpec,
    ClusterStatus,
    Listener,
    Rack,
    Storage,
    Volume,
)
from barnabas_operator.resources.kind import ObjectMeta

META = ObjectMeta(name="flights", namespace="air", uid="u-1")
INSIDE = Listener(name="plain", port=9092)
OUTSIDE = Listener(name="outside", port=9094, type="nodeport")
SPEC = ClusterSpec(
    brokers=Brokers(replicas=3),
    storage=Storage(volumes=(Volume(id=0), Volume(id=1))),
    insecure=True,
    listeners=(INSIDE, OUTSIDE),
)
CLUSTER = Cluster(metadata=META, spec=SPEC)
EXTERNAL = ExternalAccess(node_ports={("outside", number): 30000 + number for number in range(4)})


def of_kind(objects: Iterable[KubeObject], kind: str) -> dict[str, KubeObject]:
    return {each["metadata"]["name"]: each for each in objects if each["kind"] == kind}


def settings_of(cluster: Cluster, external: ExternalAccess, replicas: int = 3) -> list[BrokerConfig]:
    """Return the configuration that each broker reads."""
    (files,) = of_kind(broker_objects(cluster, external, "image", replicas), "ConfigMap").values()
    texts = [files["data"][f"flights-broker-{number}.properties"] for number in range(replicas)]
    return [parse_broker_config(parse_properties(text)) for text in texts]


def pods_of(cluster: Cluster, external: ExternalAccess = EXTERNAL) -> Any:
    (pods,) = of_kind(broker_objects(cluster, external, "image", 3), "StatefulSet").values()
    return pods["spec"]


def test_each_broker_advertises_its_own_address_on_every_listener() -> None:
    assert [list(map(str, config.listeners.advertised)) for config in settings_of(CLUSTER, EXTERNAL)] == [
        [
            f"REPLICATION://flights-broker-{number}.flights-broker.air.svc:9091",
            f"PLAIN://flights-broker-{number}.flights-broker.air.svc:9092",
            f"OUTSIDE://:3000{number}",
        ]
        for number in range(3)
    ]


def test_a_pod_with_a_node_port_listener_advertises_its_host_ip() -> None:
    (container,) = pods_of(CLUSTER)["template"]["spec"]["containers"]
    assert container["args"][-2:] == ["--override", "advertised.hosts=OUTSIDE:$(HOST_IP)"]
    assert {"name": "HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}} in container["env"]
    name, _, hosts = container["args"][-1].replace("$(HOST_IP)", "10.0.0.7").partition("=")
    (config, *_) = settings_of(CLUSTER, EXTERNAL)
    started = parse_broker_config({**config.originals, name: hosts})
    assert str(started.listeners.advertised[-1]) == "OUTSIDE://10.0.0.7:30000"


def test_a_pod_that_moves_to_another_node_changes_no_object() -> None:
    moved = ExternalAccess(EXTERNAL.node_ports, node_hosts={("outside", 0): "10.0.0.9"})
    assert broker_objects(CLUSTER, moved, "image", 3) == broker_objects(CLUSTER, EXTERNAL, "image", 3)


@pytest.mark.parametrize("listener", [INSIDE, replace(OUTSIDE, advertised_host="kafka.example")])
def test_pods_get_no_host_ip_if_no_listener_advertises_it(listener: Listener) -> None:
    (container,) = pods_of(with_listeners(listener))["template"]["spec"]["containers"]
    assert "--override" not in container["args"]
    assert [each["name"] for each in container["env"]] == ["POD_NAME", "POD_UID"]


def test_only_brokers_runs_and_the_operator_reach_the_replication_listener() -> None:
    assert {config.listeners.inter_broker for config in settings_of(CLUSTER, EXTERNAL)} == {"REPLICATION"}
    neighbours = Neighbours("ops", "barnabas")
    (policy,) = of_kind(supporting_objects(CLUSTER, neighbours=neighbours), "NetworkPolicy").values()
    (first, _) = policy["spec"]["ingress"]
    assert [each["port"] for each in first["ports"]] == [9091]
    brokers, runs, operator = first["from"]
    assert brokers == {"podSelector": {"matchLabels": dict(selector("flights"))}}
    assert runs == {"podSelector": {"matchLabels": dict(maintenance_selector("flights"))}}
    release = {"app.kubernetes.io/name": "barnabas-operator", "app.kubernetes.io/instance": "barnabas"}
    assert operator["podSelector"] == {"matchLabels": release}
    assert operator["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "ops"}}


def test_only_brokers_and_runs_reach_the_replication_listener_if_the_operator_is_no_pod() -> None:
    (policy,) = of_kind(supporting_objects(CLUSTER), "NetworkPolicy").values()
    assert len(policy["spec"]["ingress"][0]["from"]) == 2


def test_a_monitor_has_the_labels_by_which_prometheus_finds_it() -> None:
    neighbours = Neighbours(monitor_labels={"release": "prometheus"})
    (monitor,) = of_kind(supporting_objects(CLUSTER, {MONITORING}, neighbours), "PodMonitor").values()
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["metadata"]["labels"]["barnabas.dev/cluster"] == "flights"


def test_a_listener_with_network_policy_peers_is_closed_to_others() -> None:
    peers = ({"podSelector": {"matchLabels": {"reads": "flights"}}},)
    guarded = with_listeners(INSIDE, replace(OUTSIDE, network_policy_peers=peers))
    (policy,) = of_kind(supporting_objects(guarded), "NetworkPolicy").values()
    (_, anybody, some) = policy["spec"]["ingress"]
    assert [each["port"] for each in anybody["ports"]] == [9092, "http"]
    assert (some["from"], [each["port"] for each in some["ports"]]) == (list(peers), [9094])


def test_every_volume_is_a_claim_a_mount_and_a_log_dir() -> None:
    spec = pods_of(CLUSTER)
    claims = [each["metadata"]["name"] for each in spec["volumeClaimTemplates"]]
    mounts = {each["name"]: each["mountPath"] for each in spec["template"]["spec"]["containers"][0]["volumeMounts"]}
    folders = [mounts[claim] for claim in claims]
    assert claims == ["volume-0", "volume-1"]
    assert settings_of(CLUSTER, EXTERNAL)[0].log_dirs == tuple(f"{folder}/log" for folder in folders)


def test_only_the_operator_restarts_pods_and_they_run_without_privileges() -> None:
    spec = pods_of(CLUSTER)
    pod = spec["template"]["spec"]
    assert spec["updateStrategy"] == {"type": "OnDelete"}
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["automountServiceAccountToken"] is False


def test_every_object_has_the_cluster_as_its_owner_and_its_label() -> None:
    for each in (*supporting_objects(CLUSTER, {MONITORING}), *broker_objects(CLUSTER, EXTERNAL, "image", 3)):
        meta = each["metadata"]
        assert meta["namespace"] == "air"
        assert meta["labels"]["barnabas.dev/cluster"] == "flights"
        assert meta["ownerReferences"][0]["uid"] == "u-1"


def test_claims_get_no_label_that_argo_cd_uses_for_tracking() -> None:
    """The selector's labels are copied to the claims, which have no owner: a sync with pruning would delete them."""
    spec = pods_of(CLUSTER)
    copied = spec["selector"]["matchLabels"] | spec["volumeClaimTemplates"][0]["metadata"]["labels"]
    assert copied == {"app.kubernetes.io/name": "barnabas-broker", "barnabas.dev/cluster": "flights"}


def test_a_pod_mounts_the_config_map_of_its_own_settings() -> None:
    changed = with_config(num_partitions="3")
    named = []
    for cluster in (CLUSTER, changed):
        objects = broker_objects(cluster, EXTERNAL, "image", 3)
        (volume, *_) = pods_of(cluster)["template"]["spec"]["volumes"]
        (made,) = of_kind(objects, "ConfigMap")
        assert volume["configMap"]["name"] == made
        named.append(made)
    assert named[0] != named[1]
    assert of_kind(broker_objects(CLUSTER, EXTERNAL, "image", 4), "ConfigMap").keys() == {named[0]}, "no restart"


@pytest.mark.parametrize(("brokers", "policy"), [(1, "AlwaysAllow"), (2, "IfHealthyBudget"), (3, "IfHealthyBudget")])
def test_the_budget_protects_unready_pods_only_if_there_are_several_brokers(brokers: int, policy: str) -> None:
    wanted = replace(CLUSTER, spec=replace(SPEC, brokers=Brokers(replicas=brokers)))
    (budget,) = of_kind(supporting_objects(wanted), "PodDisruptionBudget").values()
    assert (budget["spec"]["maxUnavailable"], budget["spec"]["unhealthyPodEvictionPolicy"]) == (1, policy)


def test_a_pod_monitor_is_created_only_if_the_prometheus_operator_is_installed() -> None:
    assert not of_kind(supporting_objects(CLUSTER), "PodMonitor")
    assert of_kind(supporting_objects(CLUSTER, {MONITORING}), "PodMonitor")


def test_addresses_that_kubernetes_has_not_assigned_are_listed_and_not_advertised() -> None:
    assert EXTERNAL.lacking(CLUSTER) == []
    assert ExternalAccess().lacking(CLUSTER) == [
        f"an address of listener outside for broker {number}" for number in range(3)
    ]
    assert EXTERNAL.lacking(CLUSTER, 5) == ["an address of listener outside for broker 4"], "broker 4 still serves"
    assert [len(config.listeners.advertised) for config in settings_of(CLUSTER, ExternalAccess())] == [2, 2, 2]


def with_config(**config: str) -> Cluster:
    named = {name.replace("_", "."): value for name, value in config.items()}
    return replace(CLUSTER, spec=replace(SPEC, config=named))


RESTARTS = {
    "a setting that running brokers cannot change": (with_config(num_partitions="3"), True),
    "a setting that they take over": (with_config(log_retention_ms="60000"), False),
    "one broker more": (replace(CLUSTER, spec=replace(SPEC, brokers=Brokers(replicas=4))), False),
    "another port": (replace(CLUSTER, spec=replace(SPEC, listeners=(replace(INSIDE, port=9095), OUTSIDE))), True),
    "another address for clients from outside": (
        replace(CLUSTER, spec=replace(SPEC, listeners=(INSIDE, replace(OUTSIDE, advertised_host="kafka.example")))),
        True,
    ),
    "another address of the nodes": (
        replace(
            CLUSTER,
            spec=replace(SPEC, listeners=(INSIDE, replace(OUTSIDE, preferred_node_port_address_type="Hostname"))),
        ),
        False,
    ),
    "one disk more": (
        replace(CLUSTER, spec=replace(SPEC, storage=Storage(volumes=(Volume(id=0), Volume(id=1), Volume(id=2))))),
        True,
    ),
}


@pytest.mark.parametrize("name", RESTARTS)
def test_brokers_restart_only_for_changes_that_they_cannot_apply_at_runtime(name: str) -> None:
    changed, restarts = RESTARTS[name]
    assert (restart_hash(changed, EXTERNAL) != restart_hash(CLUSTER, EXTERNAL)) is restarts
    assert pods_of(changed)["template"]["metadata"]["annotations"][CONFIG_HASH] == restart_hash(changed, EXTERNAL)


def test_pods_are_annotated_with_the_uid_of_their_service_account() -> None:
    """A recreated service account changes the template, so that the pods restart."""
    external = dataclasses.replace(EXTERNAL, account_uid="u-1")
    (brokers,) = (each for each in broker_objects(CLUSTER, external, "i", 3) if each["kind"] == "StatefulSet")
    assert brokers["spec"]["template"]["metadata"]["annotations"][ACCOUNT] == "u-1"
    assert ACCOUNT not in pods_of(CLUSTER)["template"]["metadata"]["annotations"]


def test_only_settings_that_brokers_apply_at_runtime_are_set_cluster_wide() -> None:
    assert dynamic_settings(with_config(log_retention_ms="60000", num_partitions="3")) == {"log.retention.ms": "60000"}


def test_a_setting_that_single_brokers_refuse_is_in_their_files() -> None:
    """By KIP-966, min.insync.replicas has one value for all brokers."""
    cluster = with_config(min_insync_replicas="2")
    assert dynamic_settings(cluster) == {}
    assert {config.min_insync_replicas for config in settings_of(cluster, EXTERNAL)} == {2}


def test_settings_that_brokers_apply_at_runtime_are_not_in_their_files() -> None:
    (config, *_) = settings_of(with_config(log_retention_ms="60000", num_partitions="3"), EXTERNAL)
    assert (config.originals.get("num.partitions"), config.originals.get("log.retention.ms")) == ("3", None)


SETTINGS: Mapping[str, tuple[dict[int, dict[str, str]], Changes]] = {
    "nothing set yet": ({0: {}, 1: {}}, {0: {"log.retention.ms": "60000"}, 1: {"log.retention.ms": "60000"}}),
    "set on one": ({0: {"log.retention.ms": "60000"}, 1: {}}, {1: {"log.retention.ms": "60000"}}),
    "another value": ({0: {"log.retention.ms": "1"}}, {0: {"log.retention.ms": "60000"}}),
    "one that is not declared": (
        {0: {"log.retention.ms": "60000", "message.max.bytes": "9"}},
        {0: {"message.max.bytes": None}},
    ),
    "a throttle of who moves replicas": (
        {0: {"log.retention.ms": "60000", "leader.replication.throttled.rate": "9"}},
        {},
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_each_broker_gets_the_settings_that_differ_from_the_declared_ones(name: str) -> None:
    found, changes = SETTINGS[name]
    assert setting_changes(with_config(log_retention_ms="60000"), found, {}) == changes


def test_a_broker_gets_the_rack_of_its_node_if_the_cluster_declares_racks() -> None:
    racked = replace(CLUSTER, spec=replace(SPEC, brokers=Brokers(replicas=3, rack=Rack())))
    pods = {number: BrokerPod(number, "", "", "", True, rack=rack) for number, rack in enumerate(("a", "b", None))}
    places = place_settings(racked, PodsState(None, pods))
    assert setting_changes(racked, {0: {}, 1: {"broker.rack": "a"}, 2: {"broker.rack": "c"}}, places) == {
        0: {"broker.rack": "a"},
        1: {"broker.rack": "b"},
    }
    assert setting_changes(CLUSTER, {0: {}}, place_settings(CLUSTER, PodsState(None, pods))) == {}


def test_brokers_must_spread_over_racks_and_should_spread_over_nodes() -> None:
    racked = replace(CLUSTER, spec=replace(SPEC, brokers=Brokers(replicas=3, rack=Rack())))
    spread = pods_of(racked)["template"]["spec"]["topologySpreadConstraints"]
    assert [(each["topologyKey"], each["whenUnsatisfiable"]) for each in spread] == [
        ("topology.kubernetes.io/zone", "DoNotSchedule"),
        ("kubernetes.io/hostname", "ScheduleAnyway"),
    ]


def with_listeners(*listeners: Listener) -> Cluster:
    return replace(CLUSTER, spec=replace(SPEC, listeners=listeners))


PROBLEMS = {
    "nothing wrong": (CLUSTER, []),
    "the port of replication": (
        with_listeners(Listener(name="plain", port=9091)),
        [
            (
                "spec.listeners[0].port is 9091, which is the replication port; "
                "allowed: 1024 to 65535, each port only once"
            ),
        ],
    ),
    "any free port": (
        with_listeners(Listener(name="plain", port=0)),
        ["spec.listeners[0].port is 0, but pods need a fixed port; allowed: 1024 to 65535, each port only once"],
    ),
    "a port of root": (
        with_listeners(Listener(name="plain", port=80)),
        [
            (
                "spec.listeners[0].port is 80, but only root may listen on ports below 1024; "
                "allowed: 1024 to 65535, each port only once"
            )
        ],
    ),
    "two listeners on a port": (
        with_listeners(INSIDE, Listener(name="other", port=9092)),
        ["spec.listeners[1].port is 9092, which is the port of plain; allowed: 1024 to 65535, each port only once"],
    ),
    "a name twice": (
        with_listeners(INSIDE, Listener(name="plain", port=9093)),
        ["spec.listeners[1].name is 'plain'; allowed: each name only once, and never http or replication"],
    ),
    "a setting of another field": (
        with_config(broker_rack="a"),
        ["spec.config must not set broker.rack, because the value comes from spec.brokers.rack"],
    ),
    "more copies than brokers": (
        with_config(default_replication_factor="4"),
        ["spec.config default.replication.factor=4: allowed: 1 to 3, the number of brokers"],
    ),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_fields_that_brokers_in_pods_cannot_have_are_reported(name: str) -> None:
    cluster, expected = PROBLEMS[name]
    assert [message for _, message in pod_problems(cluster)] == expected


def test_a_new_value_of_the_annotation_restart_changes_the_pods_and_its_removal_afterwards_does_not() -> None:
    def mark(asked: str | None, reported: str | None = None) -> str | None:
        annotations = {"barnabas.dev/restart": asked} if asked is not None else {}
        meta = ObjectMeta(name="one", namespace="air", uid="u-1", annotations=annotations)
        cluster = Cluster(metadata=meta, spec=ClusterSpec(), status=ClusterStatus(restarted=reported))
        (brokers,) = (
            each for each in broker_objects(cluster, ExternalAccess(), "i", 1) if each["kind"] == "StatefulSet"
        )
        found: str | None = brokers["spec"]["template"]["metadata"]["annotations"].get("barnabas.dev/restart")
        return found

    assert mark(None) is None
    assert mark("monday") == "monday"
    assert mark(None, "monday") == "monday"
    assert mark("tuesday", "monday") == "tuesday"
