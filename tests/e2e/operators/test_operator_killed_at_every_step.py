"""An operator that dies before or after any of its writes: the next one reaches the same state."""

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from barnabas_operator.kube.api import API_RESOURCES, KubeApi
from barnabas_operator.reconcile.worker_environment import FINALIZER
from e2e.operators.mortal_operator import POLL_S, Life, die, live, new_workers
from harness.deadline import PATIENCE_S, wait_for
from harness.server_process import ServerProcess
from harness.soak import size
from local_kubernetes.control_plane import ControlPlane
from local_kubernetes.kube_client import api_client

WRITES_MAX = 60
EVERY = size(10, 1)
"""The operator dies at each such write of a full set-up."""
DEATHS_MIN = size(2, 50)
"""So many deaths before a write is sent, and as many before its response."""
OWNED = (
    "ConfigMap",
    "NetworkPolicy",
    "PodDisruptionBudget",
    "RoleBinding",
    "Service",
    "ServiceAccount",
    "StatefulSet",
)


def is_ready(bodies: list[dict[str, Any]]) -> bool:
    """True if the Topic is ready, and the Cluster waits for its pod: no controller makes pods here."""
    said = {body["kind"]: body.get("status", {}).get("conditions", [{}])[0] for body in bodies}
    waits = "waiting for Kubernetes to start broker 0"
    return bool(said["Topic"].get("status") == "True" and said["Cluster"].get("message") == waits)


async def owned(api: KubeApi, namespace: str) -> set[tuple[str, str]]:
    labels = {"barnabas.dev/cluster": "one"}
    return {(kind, each["metadata"]["name"]) for kind in OWNED for each in await api.listing(kind, namespace, labels)}


def declare(plane: ControlPlane, namespace: str, topic: str) -> None:
    plane.requests.create({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": namespace}})
    for kind, name, spec in (
        ("Cluster", "one", {"insecure": True, "deletionPolicy": "Delete"}),
        ("Topic", topic, {"cluster": "one", "partitions": 3, "deletionPolicy": "Delete"}),
    ):
        body = {"apiVersion": "barnabas.dev/v1alpha1", "kind": kind, "metadata": {"name": name, "namespace": namespace}}
        plane.requests.apply({**body, "spec": spec})


async def die_and_begin_anew(plane: ControlPlane, bootstrap: str, number: int, last: int, *, sent: bool) -> bool:
    """Let an operator die at its `last` write, and check the state that the next one reaches; True if it died."""
    namespace = f"killed-{number}-{last}-{'sent' if sent else 'unsent'}"
    topic = namespace
    declare(plane, namespace, topic)
    async with api_client(plane) as opened:
        watcher, life = KubeApi(opened), Life(last, sent=sent)
        await die(life, opened, namespace, bootstrap, is_ready)
        await live(opened, namespace, bootstrap, is_ready)
        counts = Counter(kind for kind, _ in await owned(watcher, namespace))
        assert counts == dict.fromkeys(OWNED, 1) | {"Service": 2}
        found = await watcher.listing("Topic", namespace, {})
        assert [each["metadata"]["finalizers"] for each in found] == [[FINALIZER]]
    metadata = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(topic, timeout=PATIENCE_S)
    assert len(metadata.topics[topic].partitions) == 3
    return life.is_over


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("sent", [False, True], ids=["before it is sent", "before the answer"])
def test_the_next_operator_reaches_the_same_state_after_a_death_at_any_write(
    defined_api_server: ControlPlane, broker: ServerProcess, sent: bool
) -> None:
    assert set(OWNED) <= API_RESOURCES.keys()
    deaths, bootstrap, numbers = 0, f"127.0.0.1:{broker.port}", count()
    while deaths < DEATHS_MIN:
        number = next(numbers)
        for last in range(1, WRITES_MAX, EVERY):
            if not asyncio.run(die_and_begin_anew(defined_api_server, bootstrap, number, last, sent=sent)):
                break
            deaths += 1
        else:
            pytest.fail(f"a full set-up takes more than {WRITES_MAX} writes")
    print(f"{deaths} deaths")


async def bring(api: KubeApi, bodies: list[dict[str, Any]], bootstrap: str, done: Callable[[], bool]) -> None:
    """Run an operator that knows these bodies and gets no later events, until it is `done`."""
    workers = new_workers(api, bootstrap)
    try:
        async with asyncio.timeout(PATIENCE_S):
            for body in bodies:
                workers.resource_event(body, is_gone=False)
            workers.begin(None)
            while not done():
                await asyncio.sleep(POLL_S)
    finally:
        await workers.close()


async def test_a_topic_created_after_its_resource_was_deleted_elsewhere_is_deleted_again(
    defined_api_server: ControlPlane, broker: ServerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    declare(defined_api_server, "late", "late")
    caplog.set_level("INFO")
    async with api_client(defined_api_server) as opened:
        api = KubeApi(opened)
        bodies = [body for kind in ("Cluster", "Topic") for body in await api.listing(kind, "late", {})]
        bodies[-1]["metadata"]["finalizers"] = [FINALIZER]
        await api.delete("Topic", "late", "late")
        said = [f"late/one: {step}" for step in ("create late with 3 partitions and 1 replicas of each", "delete late")]
        await bring(api, bodies, f"127.0.0.1:{broker.port}", lambda: set(said) <= set(caplog.messages))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    wait_for(lambda: "late" not in admin.list_topics(timeout=PATIENCE_S).topics)
