"""The rules between the manifests of a directory, and the settings of brokers from a Cluster."""

from collections.abc import Mapping
from dataclasses import replace

import msgspec
import pytest

from barnabas_core.config.broker_config import parse_broker_config
from barnabas_core.config.definitions import parse_properties
from barnabas_operator.planning.brokers.cluster_checks import refuse_change
from barnabas_operator.planning.brokers.local_properties import (
    BrokerPlace,
    manifest_problems,
    properties_text,
    server_properties,
)
from barnabas_operator.planning.cluster_state import DesiredState, remember
from barnabas_operator.resources.cluster import Brokers, Cluster, ClusterSpec, Listener, Storage, Volume
from barnabas_operator.resources.kind import ObjectMeta
from barnabas_operator.resources.topic import Topic
from barnabas_operator.resources.yaml_documents import Manifests, parse_manifests

HEAD = "apiVersion: barnabas.dev/v1alpha1\n"
CLUSTER = HEAD + "kind: Cluster\nmetadata: {name: quickstart}\n"
TOPIC = HEAD + "kind: Topic\nmetadata: {name: flights}\n"

PROBLEMS: Mapping[str, tuple[str, list[str]]] = {
    "nothing wrong": (CLUSTER + "---\n" + TOPIC + "spec: {cluster: quickstart}\n", []),
    "no Cluster": (TOPIC + "spec: {}\n", ["dir:1:1: no manifest declares a Cluster; declare exactly one Cluster"]),
    "two Clusters": (
        CLUSTER + "---\n" + CLUSTER.replace("quickstart", "second"),
        ["a.yaml:5:1: another Cluster is declared at a.yaml:1:1; declare exactly one Cluster"],
    ),
    "a Topic of another Cluster": (
        CLUSTER + "---\n" + TOPIC + "spec: {cluster: other}\n",
        ["a.yaml:8:17: spec.cluster is 'other'; allowed: quickstart, the Cluster of these manifests"],
    ),
    "a config out of range": (
        CLUSTER + "spec:\n  config:\n    num.partitions: 0\n",
        ["a.yaml:6:21: spec.config num.partitions=0: must be an integer, at least 1"],
    ),
    "a config that is none": (
        CLUSTER + "spec:\n  config:\n    num.partition: 1\n",
        ["a.yaml:6:20: spec.config num.partition=1: is not a setting of a broker; did you mean num.partitions?"],
    ),
    "a config that another field sets": (
        CLUSTER + "spec:\n  config:\n    log.dirs: /tmp\n",
        ["a.yaml:6:15: spec.config must not set log.dirs, because the value comes from spec.storage"],
    ),
    "a volume twice": (
        CLUSTER + "spec: {storage: {volumes: [{id: 1}, {id: 1}]}}\n",
        ["a.yaml:4:42: spec.storage.volumes[1].id is 1 for the second time; each volume needs its own id"],
    ),
    "brokers without a port": (
        CLUSTER + "spec: {brokers: {replicas: 9}, listeners: [{name: plain, port: 65528}]}\n",
        [
            (
                "a.yaml:4:64: spec.listeners[0].port is 65528; allowed: 0 to 65527, "
                "because each of the 9 brokers has its own port"
            )
        ],
    ),
    "two listeners": (
        CLUSTER + "spec: {listeners: [{name: plain}, {name: other}]}\n",
        ["a.yaml:4:19: spec.listeners has 2 entries; allowed: one entry, because the brokers are local processes"],
    ),
    "more copies of internal topics than brokers": (
        CLUSTER + "spec:\n  brokers: {replicas: 2}\n  config:\n    offsets.topic.replication.factor: 3\n",
        ["a.yaml:7:39: spec.config offsets.topic.replication.factor=3: allowed: 1 to 2, the number of brokers"],
    ),
    "more replicas in sync than there are": (
        CLUSTER + "spec:\n  brokers: {replicas: 3}\n  config:\n    min.insync.replicas: 2\n",
        ["a.yaml:7:26: spec.config min.insync.replicas=2: allowed: 1 to 1, the value of default.replication.factor"],
    ),
    "three brokers as they should be": (
        CLUSTER
        + "spec:\n  brokers: {replicas: 3}\n  config: {default.replication.factor: 3, min.insync.replicas: 2}\n",
        [],
    ),
    "a manifest that is broken by itself": (TOPIC, ["a.yaml:1:1: spec is missing; allowed: a mapping"]),
}


@pytest.mark.parametrize(("text", "messages"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_problems_between_manifests_are_reported_with_their_position(text: str, messages: list[str]) -> None:
    assert [str(error) for error in manifest_problems(parse_manifests({"a.yaml": text}), "dir")] == messages


def cluster(name: str = "c", **spec: object) -> Cluster:
    return Cluster(metadata=ObjectMeta(name=name), spec=ClusterSpec(**spec))  # type: ignore[arg-type]


PLACE = BrokerPlace(0, 19092, 18080, "/data/broker-0", "/data/metadata.sqlite")


def test_a_broker_can_parse_the_settings_of_its_cluster() -> None:
    declared = cluster(
        listeners=(Listener(name="external", port=0),),
        storage=Storage(volumes=(Volume(id=0), Volume(id=7))),
        config={"num.partitions": 3, "auto.create.topics.enable": False, "log.retention.hours": None},
    )
    config = parse_broker_config(parse_properties(properties_text(server_properties(declared, PLACE))))
    assert config.broker_id == 0
    assert [str(endpoint) for endpoint in config.listeners.bound] == ["EXTERNAL://127.0.0.1:19092"]
    assert config.log_dirs == ("/data/broker-0/volume-0", "/data/broker-0/volume-7")
    assert config.metadata_store == "sqlite:////data/metadata.sqlite"
    assert config.http_listener == "127.0.0.1:18080"
    assert (config.num_partitions, config.auto_create_topics_enable) == (3, False)
    assert config.offsets_topic_replication_factor == 1


def test_three_brokers_have_their_own_ports_and_folders_and_offsets_have_three_replicas() -> None:
    places = [replace(PLACE, broker_id=number, port=19092 + number, folder=f"/data/{number}") for number in range(3)]
    settings = [server_properties(cluster(brokers=Brokers(replicas=3)), place) for place in places]
    configs = [parse_broker_config(parse_properties(properties_text(each))) for each in settings]
    assert [config.broker_id for config in configs] == [0, 1, 2]
    assert [config.listeners.bound[0].port for config in configs] == [19092, 19093, 19094]
    assert [config.log_dirs for config in configs] == [(f"/data/{number}/volume-0",) for number in range(3)]
    assert {config.metadata_store for config in configs} == {"sqlite:////data/metadata.sqlite"}
    assert {config.offsets_topic_replication_factor for config in configs} == {3}


def test_a_config_of_the_manifest_takes_precedence_over_a_derived_value() -> None:
    settings = server_properties(cluster(config={"offsets.topic.replication.factor": 2}), PLACE)
    assert settings["offsets.topic.replication.factor"] == "2"


CHANGES: Mapping[str, tuple[Cluster, Cluster, str | None]] = {
    "another config": (cluster(), cluster(config={"num.partitions": 2}), None),
    "a volume more": (cluster(), cluster(storage=Storage(volumes=(Volume(id=1), Volume(id=0)))), None),
    "a volume less": (
        cluster(storage=Storage(volumes=(Volume(id=0), Volume(id=1), Volume(id=2)))),
        cluster(storage=Storage(volumes=(Volume(id=1),))),
        "Removing volumes is not supported: spec.storage.volumes lacks the id 0, 2; declare the missing volumes again",
    ),
    "a broker more": (cluster(brokers=Brokers(replicas=3)), cluster(brokers=Brokers(replicas=4)), None),
    "a broker less": (cluster(brokers=Brokers(replicas=3)), cluster(brokers=Brokers(replicas=2)), None),
    "another cluster": (
        cluster("a"),
        cluster("b"),
        "the data directory belongs to the Cluster a, not to b; choose another directory with --data-dir",
    ),
}


@pytest.mark.parametrize(("before", "after", "message"), CHANGES.values(), ids=CHANGES.keys())
def test_a_change_of_a_cluster_that_would_leave_data_behind_is_refused(
    before: Cluster, after: Cluster, message: str | None
) -> None:
    refusal = refuse_change(before, after)
    assert (refusal.message if refusal else None) == message


def manifests(*topics: str) -> Manifests:
    return parse_manifests({"a.yaml": "---\n".join([CLUSTER, *(f"{TOPIC}spec: {spec}\n" for spec in topics)])})


def test_a_resource_keeps_its_uid_and_creation_time_and_counts_its_generations() -> None:
    first = remember(manifests("{}"), None, "T1", lambda: "uid-1")
    same = remember(manifests("{}"), first, "T2", lambda: "uid-2")
    changed = remember(manifests("{partitions: 2}"), same, "T3", lambda: "uid-3")
    metas = [wanted.topics[0].metadata for wanted in (first, same, changed)]
    assert [(meta.uid, meta.creation_timestamp, meta.generation) for meta in metas] == [
        ("uid-1", "T1", 1),
        ("uid-1", "T1", 1),
        ("uid-1", "T1", 2),
    ]


def test_a_resource_that_is_no_longer_declared_is_removed_until_it_is_declared_again() -> None:
    first = remember(manifests("{}"), None, "T1", lambda: "uid-1")
    removed = remember(manifests(), first, "T2", lambda: "uid-2")
    again = remember(manifests("{}"), removed, "T3", lambda: "uid-3")
    assert [topic.metadata.name for topic in removed.removed] == ["flights"]
    assert removed.topics == again.removed == ()
    assert again.topics == first.topics


def test_a_status_in_a_manifest_is_ignored() -> None:
    text = CLUSTER + "---\n" + TOPIC + "spec: {deletionPolicy: Delete}\nstatus: {topicName: other}\n"
    wanted = remember(parse_manifests({"a.yaml": text}), None, "T", lambda: "uid")
    assert isinstance(wanted.topics[0], Topic)
    assert wanted.topics[0].status is None


def test_a_rebalance_that_names_a_run_is_refused_in_manifest_files() -> None:
    """Files declare no runs, so the rebalance would wait forever without a message."""
    text = CLUSTER.replace("quickstart}", "quickstart, annotations: {barnabas.dev/rebalance: even}}")
    wanted = remember(parse_manifests({"a.yaml": text}), None, "T", lambda: "uid")
    assert wanted.named is not None
    assert "is even: the Cluster has no MaintenanceJob with that name; allowed: approve" in wanted.named.refusal
    assert msgspec.json.decode(msgspec.json.encode(wanted), type=DesiredState) == wanted, "the data directory has it so"
    assert remember(parse_manifests({"a.yaml": CLUSTER}), wanted, "T", lambda: "uid").named is None
