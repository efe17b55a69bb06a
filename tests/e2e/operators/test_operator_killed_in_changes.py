"""An operator that dies at any of its writes to the API server or to brokers, while a Topic changes or goes, a Cluster
goes, or a broker, or the level of the metadata is raised: the next one comes to the same."""

import asyncio
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType
from kafka.admin import UpdateFeatureType

from barnabas_operator.app.system_clock import SystemClock
from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from barnabas_operator.planning.brokers.metadata_version import METADATA_VERSION
from barnabas_operator.planning.cluster_state import MetadataVersions
from barnabas_operator.resources.json_types import JsonObject
from e2e.operators.mortal_operator import Bodies, Life, die, live
from harness.cluster import BarnabasCluster, barnabas_cluster
from harness.deadline import wait_for
from harness.soak import size
from local_kubernetes.control_plane import ControlPlane
from local_kubernetes.kube_client import api_client

pytestmark = pytest.mark.soak(only=True)
API = "barnabas.dev/v1alpha1"
BROKERS = 3
WRITES_MAX = 40
EVERY = size(4, 1)
"""A death at each such write."""
SENT = size([True], [False, True])
DELETE = {"deletionPolicy": "Delete"}
LABELS = {
    "app.kubernetes.io/name": "barnabas-broker",
    "app.kubernetes.io/instance": "one",
    "barnabas.dev/cluster": "one",
    "controller-revision-hash": "r",
}


class Scene:
    """A Cluster `one` and a Topic, in a namespace of their own, on brokers that others have topics on, too."""

    def __init__(self, plane: ControlPlane, brokers: BarnabasCluster, name: str) -> None:
        self.plane = plane
        self.brokers = brokers
        self.admin = brokers.client().admin
        self.name = name
        """Of the namespace, the Topic, and the topic."""
        plane.requests.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def declare(self, kind: str, **spec: object) -> None:
        meta = {"name": "one" if kind == "Cluster" else self.name, "namespace": self.name}
        self.plane.requests.apply({"apiVersion": API, "kind": kind, "metadata": meta, "spec": spec})

    def make(self, body: JsonObject) -> None:
        self.plane.requests.create({**body, "metadata": {**body["metadata"], "namespace": self.name}})

    def stateful_set(self) -> JsonObject:
        found = self.plane.requests.get("StatefulSet", self.name, "one-broker")
        assert found is not None
        return found

    def replicas(self) -> list[tuple[int, ...]]:
        """Of each partition of the topic."""
        return [view.replicas for view in self.brokers.describe(self.name)]

    def config(self) -> dict[str, str]:
        """What is set on the topic."""
        (found,) = self.admin.describe_configs([ConfigResource(ResourceType.TOPIC, self.name)]).values()
        return {
            name: entry.value
            for name, entry in found.result(30).items()
            if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        }

    def exists(self) -> bool:
        return self.name in self.admin.list_topics(timeout=30).topics


class Change(NamedTuple):
    """What is declared after all was as declared before, when that is so, and what is there then."""

    begin: Callable[[Scene], None]
    is_done: Callable[[Bodies], bool]
    check: Callable[[Scene], None]


def ready(bodies: Bodies) -> bool:
    """Whether the Topic is, as it is declared now."""
    return any(
        each["type"] == "Ready" and each["status"] == "True" and each["observedGeneration"] == meta["generation"]
        for body in bodies
        for meta in [body["metadata"]]
        if body["kind"] == "Topic"
        for each in body.get("status", {}).get("conditions", ())
    )


def message(bodies: Bodies) -> str:
    """What the Cluster says, as it is declared now."""
    (cluster,) = (body for body in bodies if body["kind"] == "Cluster")
    (said, *_) = cluster.get("status", {}).get("conditions", [{}])
    is_new = said.get("observedGeneration") == cluster["metadata"]["generation"]
    return str(said.get("message", "")) if is_new else ""


def change_topic(scene: Scene) -> None:
    config = {"retention.ms": 2000, "segment.ms": 70_000}
    scene.declare("Topic", cluster="one", partitions=5, replicas=3, config=config, **DELETE)


def check_topic(scene: Scene) -> None:
    assert [len(row) for row in scene.replicas()] == [3] * 5
    assert scene.config() == {"retention.ms": "2000", "segment.ms": "70000"}


def delete_topic(scene: Scene) -> None:
    scene.plane.requests.delete("Topic", scene.name, scene.name)


def check_topic_is_gone(scene: Scene) -> None:
    wait_for(lambda: not scene.exists())


def delete_cluster(scene: Scene) -> None:
    """With a disk and a lease, as if its brokers had been there."""
    meta = {"name": "volume-0-one-broker-0", "labels": {"barnabas.dev/cluster": "one"}}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    lease = {"name": "one.broker-0", "labels": meta["labels"]}
    for body in (
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": claim},
        {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": lease, "spec": {}},
    ):
        scene.make(body)
    scene.plane.requests.delete("Cluster", scene.name, "one")


def no_cluster(bodies: Bodies) -> bool:
    return not any(body["kind"] == "Cluster" for body in bodies)


def check_nothing_is_left(scene: Scene) -> None:
    kinds = ("StatefulSet", "Lease", "PersistentVolumeClaim")
    found = [each for kind in kinds for each in scene.plane.requests.listing(kind, scene.name)]
    # Nobody here takes away the finalizer that Kubernetes puts on claims.
    assert [each["metadata"]["name"] for each in found if "deletionTimestamp" not in each["metadata"]] == []
    assert scene.exists(), "it goes with its brokers' disks"


def make_pods(scene: Scene) -> None:
    """Each runs with what is declared, and is ready."""
    scene.make({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})
    for number in range(BROKERS):
        make_pod(scene, f"one-broker-{number}")
    generation = scene.stateful_set()["metadata"]["generation"]
    status = {"observedGeneration": generation, "updateRevision": "r", "replicas": BROKERS}
    scene.plane.requests.merge_status("StatefulSet", scene.name, "one-broker", status)


def scale_down(scene: Scene) -> None:
    """Pods that were made by nobody, of which the last is to go."""
    make_pods(scene)
    scene.declare("Cluster", brokers={"replicas": BROKERS - 1}, **DELETE)


def make_pod(scene: Scene, name: str) -> None:
    volume = {"name": "volume-0", "persistentVolumeClaim": {"claimName": f"volume-0-{name}"}}
    spec = {"containers": [{"name": "broker", "image": "broker"}], "volumes": [volume]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": LABELS}, "spec": spec}
    scene.make(body)
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    scene.plane.requests.merge_status("Pod", scene.name, name, ready)


def has_scaled(bodies: Bodies) -> bool:
    """Nobody takes over the new number of pods here."""
    return message(bodies).endswith("waiting for Kubernetes to observe the StatefulSet")


def check_scale(scene: Scene) -> None:
    assert scene.stateful_set()["spec"]["replicas"] == BROKERS - 1
    assert [sorted(row) for row in scene.replicas()] == [[0, 1]] * 2


def end_a_roll(scene: Scene) -> None:
    """From brokers that had a lower level of the metadata, as the Cluster still says."""
    scene.plane.requests.merge_status("Cluster", scene.name, "one", {"metadataVersion": 1})
    with ClusterAdmin(scene.brokers.bootstrap, SystemClock()) as admin:
        lowered = admin.client.update_features({METADATA_VERSION: (UpdateFeatureType.SAFE_DOWNGRADE, 1)})
    assert lowered == {METADATA_VERSION: "OK"}
    make_pods(scene)


def tells_level_2(bodies: Bodies) -> bool:
    return any(body.get("status", {}).get("metadataVersion") == 2 for body in bodies)


def check_level(scene: Scene) -> None:
    with ClusterAdmin(scene.brokers.bootstrap, SystemClock()) as admin:
        assert admin.cluster_state().metadata_versions == MetadataVersions(finalized=2, offered=2)


CHANGES = {
    "a topic grows, moves and gets another config": Change(change_topic, ready, check_topic),
    "a topic goes": Change(delete_topic, lambda bodies: len(bodies) == 1, check_topic_is_gone),
    "a cluster goes with its disks": Change(delete_cluster, no_cluster, check_nothing_is_left),
    "a broker goes": Change(scale_down, has_scaled, check_scale),
    "the level of the metadata is raised": Change(end_a_roll, tells_level_2, check_level),
}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasCluster]:
    with barnabas_cluster(tmp_path_factory.mktemp("brokers"), brokers=BROKERS) as running:
        yield running


@pytest.mark.parametrize("sent", SENT, ids=["before it is sent", "before the answer"][-len(SENT) :])
@pytest.mark.parametrize("name", CHANGES)
def test_wherever_an_operator_dies_the_next_one_comes_to_the_same_when(
    defined_api_server: ControlPlane, brokers: BarnabasCluster, name: str, *, sent: bool
) -> None:
    number, deaths, has_died = list(CHANGES).index(name), 0, True
    for last in range(1, WRITES_MAX, EVERY):
        scene = Scene(defined_api_server, brokers, f"change-{number}-{last}-{'sent' if sent else 'unsent'}")
        has_died = asyncio.run(die_and_begin_anew(scene, CHANGES[name], last, sent=sent))
        deaths += has_died
        if scene.exists():  # A broker that goes would have to be rid of it, too.
            scene.admin.delete_topics([scene.name])[scene.name].result(30)
        if not has_died:
            break
    print(f"{deaths} deaths")
    assert deaths >= size(1, 2)
    assert not has_died, f"it makes more than {WRITES_MAX} writes"


async def die_and_begin_anew(scene: Scene, change: Change, last: int, *, sent: bool) -> bool:
    """Whether there was a `last` write to die at. What is there in the end is checked."""
    bootstrap, life = scene.brokers.bootstrap, Life(last, sent=sent, applies=False)
    scene.declare("Cluster", brokers={"replicas": BROKERS}, **DELETE)
    scene.declare("Topic", cluster="one", partitions=2, replicas=2, config={"retention.ms": 1000}, **DELETE)
    async with api_client(scene.plane) as opened:
        await live(opened, scene.name, bootstrap, ready)
        change.begin(scene)
        await die(life, opened, scene.name, bootstrap, change.is_done)
        await live(opened, scene.name, bootstrap, change.is_done)
    change.check(scene)
    return life.is_over
