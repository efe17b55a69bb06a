"""Records on disks survive another disk, a disk that cannot be made, and the deletion of their Cluster."""

import json
import time
from collections.abc import Callable

import pytest

from e2e.pods.castle import NAME, POLL_S, Castle
from e2e.pods.figures import Figures
from harness.deadline import wait_for
from harness.stock_client import StockClient

pytestmark = pytest.mark.soak(only=True)
RECORDS = [b"%d" % number for number in range(1_000)]
SECONDS_MAX = 300.0


def written(castle: Castle, topic: str) -> Callable[[], bool]:
    """Write records; return a function that is true if all are there."""
    castle.create_topic(topic, 3)
    StockClient(castle.bootstrap).write(topic, RECORDS, 0)
    return lambda: StockClient(castle.bootstrap).read(topic, 0) == RECORDS


def held(castle: Castle, pod: str, topic: str) -> dict[str, int]:
    """Return the number of replicas of a topic on each disk of a broker."""
    found: dict[str, int] = json.loads(castle.kubectl("exec", pod, "--", "python", "-c", HELD, topic))
    return found


HELD = """
import json, pathlib, sys
disks = [path.parent.parent for path in pathlib.Path('/var/lib/barnabas').glob('*/log/meta.properties')]
print(json.dumps({disk.name: len(list(disk.glob(f'log/{sys.argv[1]}-[0-9]*'))) for disk in disks}))
"""


def test_an_additional_disk_is_used_by_every_broker(castle: Castle, figures: Figures) -> None:
    is_whole = written(castle, "before-the-disk")
    storage, before = castle.read("cluster", NAME)["spec"]["storage"], castle.pods()
    volumes = storage["volumes"]
    more = {**volumes[-1], "id": volumes[-1]["id"] + 1}
    began_s = time.monotonic()
    castle.patch({"storage": {**storage, "volumes": [*volumes, more]}})
    castle.await_new_pods(before)
    castle.await_ready()
    figures.tell("one more disk for each of three brokers", f"{time.monotonic() - began_s:.0f} s")
    disks = {f"volume-{volume['id']}" for volume in (*volumes, more)}
    castle.create_topic("after-the-disk", 3)
    for pod in castle.pods():
        found = held(castle, pod, "after-the-disk")
        assert found == {disk: 3 if disk == f"volume-{more['id']}" else 0 for disk in disks}
    assert is_whole()


def test_a_disk_and_a_broker_are_added_at_once(castle: Castle, figures: Figures) -> None:
    """The StatefulSet creates the new pod only after the others have restarted with their new volume."""
    is_whole = written(castle, "before-both")
    storage, before = castle.read("cluster", NAME)["spec"]["storage"], castle.pods()
    more = {**storage["volumes"][-1], "id": storage["volumes"][-1]["id"] + 1}
    began_s = time.monotonic()
    castle.patch({"brokers": {"replicas": 4}, "storage": {**storage, "volumes": [*storage["volumes"], more]}})
    wait_for(
        castle.pods, lambda now: len(now) == 4 and not set(before.values()) & set(now.values()), SECONDS_MAX, POLL_S
    )
    wait_for(lambda: castle.condition("Rolling"), lambda now: now["status"] == "False", SECONDS_MAX, POLL_S)
    figures.tell("one more disk and one more broker for three brokers", f"{time.monotonic() - began_s:.0f} s")
    assert is_whole()
    castle.patch({"brokers": {"replicas": 3}})
    wait_for(castle.pods, lambda now: len(now) == 3, SECONDS_MAX, POLL_S)
    castle.await_ready()


def test_a_deleted_cluster_that_is_applied_again_has_its_records(castle: Castle, figures: Figures) -> None:
    is_whole = written(castle, "before-the-end")
    found = castle.read("cluster", NAME)
    again = {key: found[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": {"name": NAME}}
    castle.kubectl("delete", "cluster", NAME)
    wait_for(castle.pods, lambda pods: not pods, SECONDS_MAX, POLL_S)
    began_s = time.monotonic()
    castle.kubectl("create", "-f-", stdin=json.dumps(again))
    castle.await_ready()
    figures.tell("a Cluster that was deleted is ready again", f"{time.monotonic() - began_s:.0f} s")
    assert is_whole()


def class_of_nobody(castle: Castle, name: str, binding: str) -> None:
    """Make a storage class whose volumes are never made."""
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}}
    made = {**kind, "provisioner": "nobodys.example/disks", "volumeBindingMode": binding}
    castle.cluster_kubectl("apply", "-f-", stdin=json.dumps(made))


def claims(castle: Castle) -> set[str]:
    return set(castle.kubectl("get", "pvc", "-l", f"barnabas.dev/cluster={NAME}", "-oname").split())


def test_a_disk_that_cannot_be_made_restarts_at_most_one_broker(castle: Castle) -> None:
    is_whole = written(castle, "before-the-wrong-disk")
    storage, before, had = castle.read("cluster", NAME)["spec"]["storage"], castle.pods(), claims(castle)
    for name, binding in (("nobodys-now", "Immediate"), ("nobodys-late", "WaitForFirstConsumer")):
        class_of_nobody(castle, name, binding)
        wrong = {"id": 900, "size": "1Gi", "storageClass": name}
        castle.patch({"storage": {**storage, "volumes": [*storage["volumes"], wrong]}})
        if binding == "Immediate":
            told = wait_for(
                lambda: castle.condition("Ready"), lambda now: now["status"] == "False", SECONDS_MAX, POLL_S
            )
            assert told["reason"] == "ClaimNotBound"
            assert castle.pods() == before, "no broker must restart"
        else:
            wait_for(castle.pods, lambda now: len(now) == len(before) and now != before, SECONDS_MAX, POLL_S)
        castle.patch({"storage": storage})
        castle.await_ready()
        wait_for(lambda: claims(castle), lambda now: now == had, SECONDS_MAX, POLL_S)
    changed = [name for name, uid in castle.pods().items() if uid != before[name]]
    assert len(changed) == 1, "the other brokers must not restart"
    assert is_whole()
