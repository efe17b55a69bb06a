"""All that the dashboards are about, real and under load: three brokers, operator, lag exporter; and a Prometheus."""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from barnabas_operator.resources.object_meta import API_VERSION
from e2e.world import World, world_of_one
from local_kubernetes.control_plane import ControlPlane
from monitoring.cluster_under_load import PARTITIONS, TRAFFIC, load, three_brokers
from monitoring.prometheus_server import Job, Prometheus, prometheus
from monitoring.promtool import RULES
from monitoring.scraped import CLUSTER, NAMESPACE, brokers_job, exporter_job, lag_exporter


class Stack(NamedTuple):
    """What is looked at, and the values that a user may choose."""

    prometheus: Prometheus
    chosen: Mapping[str, str]


OBJECTIVE: Final = {"maxRecords": 1000, "maxSeconds": 60, "for": "1s"}


@contextmanager
def whole_stack(plane: ControlPlane, folder: Path) -> Iterator[Stack]:
    """It runs while inside."""
    namespace = f"dash-{os.getpid()}"
    with ExitStack() as running:
        cluster = running.enter_context(three_brokers(folder))
        world = running.enter_context(world_of_one(plane, namespace, cluster.brokers[0], folder))
        world.apply_cluster(CLUSTER, brokers={"replicas": 3})
        operator = world.operator()
        running.callback(operator.close)
        for topic in TRAFFIC:
            world.apply(topic, partitions=PARTITIONS, replicas=3)
        world.await_ready(*TRAFFIC)
        running.enter_context(load(cluster))
        exporter = running.enter_context(lag_exporter(folder, cluster.bootstrap))
        _declare_groups(world)
        of_operator = Job("operator", [(f"127.0.0.1:{operator.port}", {"namespace": "barnabas"})])
        jobs = [brokers_job(cluster), exporter_job(exporter), of_operator]
        found = running.enter_context(prometheus(folder, jobs, RULES))
        chosen = {"cluster": CLUSTER, "broker": "0|1|2", "topic": "|".join(TRAFFIC), "group": "slow|gone|quick"}
        yield Stack(found, {**chosen, "namespace": f"{NAMESPACE}|{namespace}"})


def _declare_groups(world: World) -> None:
    """One that misses its objective, whose reset waits and whose target is scaled; one that keeps it."""
    pod = {"metadata": {"labels": {"app": "slow"}}, "spec": {"containers": [{"name": "slow", "image": "slow"}]}}
    deployment = {"replicas": 1, "selector": {"matchLabels": {"app": "slow"}}, "template": pod}
    scaling = {"target": {"name": "slow"}, "lagThreshold": 1000, "max": PARTITIONS}
    reset = {"id": "once", "to": {"latest": {}}}
    slow = {"lagObjective": OBJECTIVE, "scaling": scaling, "offsets": {"reset": reset}}
    for api, kind, name, spec in (
        ("apps/v1", "Deployment", "slow", deployment),
        (API_VERSION, "ConsumerGroup", "slow", slow),
        (API_VERSION, "ConsumerGroup", "quick", {"lagObjective": OBJECTIVE}),
    ):
        meta = {"name": name, "namespace": world.namespace}
        world.plane.requests.apply({"apiVersion": api, "kind": kind, "metadata": meta, "spec": spec})
