"""What a Cluster owns is deleted by hand, a disk is lost, the Cluster goes and comes again: no record is lost.

`docs/disasters.md` tells people the same.
"""

import json
from collections.abc import Callable, Iterator

import pytest

from e2e.pods.castle import LOOK_S, NAME, Castle, topic_manifest
from e2e.pods.comes_back import await_another, delete, uid
from e2e.pods.figures import Figures
from e2e.pods.providers import Cluster
from e2e.pods.under_traffic import under_traffic
from harness.deadline import wait_for
from harness.stock_client import StockClient

SECONDS_MAX = 300.0
RECORDS = [b"%d" % number for number in range(1_000)]
AGAIN = "doomed"
TOPIC = "singles"
BROKERS = 5


def _config_map(castle: Castle) -> None:
    found = castle.kubectl("get", "configmap", f"-lbarnabas.dev/cluster={NAME}", "-oname").split()
    delete(castle, "configmap", *(each.partition("/")[2] for each in found))


def _services(castle: Castle) -> None:
    names = [f"{NAME}-broker", f"{NAME}-bootstrap", f"{NAME}-bootstrap-outside", f"{NAME}-broker-2-outside"]
    ports = castle.bootstrap
    delete(castle, "service", *names)
    wait_for(lambda: castle.bootstrap, lambda now: now == ports, SECONDS_MAX)


def _stateful_set(castle: Castle) -> None:
    pods = castle.pods()
    delete(castle, "statefulset", f"{NAME}-broker", cascade="orphan")
    castle.await_ready()
    assert castle.pods() == pods, "brokers run on"


def _disk(castle: Castle) -> None:
    """Kubernetes keeps a claim until no pod uses it."""
    claims = [f"volume-{volume}-{NAME}-broker-1" for volume in (0, 1)]
    before = {claim: uid(castle, "pvc", claim) for claim in claims}
    castle.kubectl("delete", "pvc", *claims, "--wait=false")
    castle.kubectl("delete", "pod", f"{NAME}-broker-1", "--wait=true")
    for claim, was in before.items():
        await_another(castle, "pvc", claim, was)


LOST: dict[str, Callable[[Castle], None]] = {
    "the brokers' ConfigMap is deleted": _config_map,
    "Services are deleted": _services,
    "the StatefulSet is deleted without its pods": _stateful_set,
    "the disks of a broker are lost": _disk,
}


@pytest.mark.parametrize("event", LOST)
def test_nothing_acknowledged_is_lost_and_all_is_back_when(castle: Castle, figures: Figures, event: str) -> None:
    with under_traffic(castle, figures, event, event.lower().replace(" ", "-").replace("'", "")):
        LOST[event](castle)


def manifest(replicas: int) -> str:
    spec = {
        "brokers": {"replicas": replicas, "resources": {"requests": {"cpu": "50m", "memory": "256Mi"}}},
        "storage": {"volumes": [{"id": 0, "size": "1Gi"}]},
        "listeners": [{"name": "plain"}, {"name": "outside", "port": 9094, "type": "nodeport"}],
    }
    return json.dumps(
        {"apiVersion": "barnabas.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": AGAIN}, "spec": spec}
    )


@pytest.fixture
def doomed(castle: Castle, cluster: Cluster) -> Iterator[Castle]:
    """Another Cluster, of five brokers."""
    found = Castle(cluster, AGAIN, BROKERS)
    found.kubectl("apply", "-f-", stdin=manifest(BROKERS))
    found.await_ready()
    yield found
    found.close()
    castle.kubectl("patch", "cluster", AGAIN, "--type=merge", '-p={"spec":{"deletionPolicy":"Delete"}}')
    castle.kubectl("delete", "cluster", AGAIN)
    castle.kubectl("delete", "topic", TOPIC)


def await_pods(castle: Castle, count: int) -> None:
    wait_for(castle.pods, lambda pods: len(pods) == count, SECONDS_MAX, LOOK_S)


def test_a_cluster_made_again_with_the_same_and_then_fewer_brokers_has_every_record(
    doomed: Castle, figures: Figures
) -> None:
    """Records with one replica, on every broker: those that are too many are emptied before they go."""
    doomed.kubectl("apply", "-f-", stdin=topic_manifest(TOPIC, BROKERS, cluster=AGAIN, replicas=1))
    doomed.kubectl("wait", "--for=condition=Ready", f"topic/{TOPIC}", "--timeout=120s")
    for partition in range(BROKERS):
        StockClient(doomed.bootstrap).write(TOPIC, RECORDS, partition)
    for replicas in (BROKERS, 3):
        doomed.kubectl("delete", "cluster", AGAIN)
        await_pods(doomed, 0)
        doomed.kubectl("create", "-f-", stdin=manifest(replicas))
        await_pods(doomed, BROKERS)
        doomed.brokers = replicas
        await_pods(doomed, replicas)
        doomed.await_ready()
        client = StockClient(doomed.bootstrap)
        read = sum(client.read(TOPIC, partition) == RECORDS for partition in range(BROKERS))
        figures.tell(f"a Cluster of {BROKERS} made again with {replicas}", f"{read} of {BROKERS} partitions are whole")
        assert read == BROKERS
