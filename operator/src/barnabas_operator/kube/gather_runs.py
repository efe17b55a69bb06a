"""Gathers what Kubernetes has of the runs of a Cluster: Jobs, and pods of drivers and executors."""

from collections import defaultdict
from collections.abc import Mapping

from barnabas_operator.kube.api import KubeApi
from barnabas_operator.planning.maintenance.run_facts import DRIVER, RunFacts, driver_pod, is_live, run_job
from barnabas_operator.planning.object_names import (
    MAINTENANCE_JOB_LABEL,
    MAINTENANCE_ROLE_LABEL,
    driver_name,
    maintenance_selector,
)
from barnabas_operator.resources.json_types import Json


async def gather_runs(api: KubeApi, namespace: str, cluster: str) -> Mapping[str, RunFacts]:
    """By the name of the MaintenanceJob. Raises KubeUnreachable and KubeRefused."""
    chosen = maintenance_selector(cluster)
    jobs = await api.listing("Job", namespace, chosen)
    pods = await api.listing("Pod", namespace, chosen)  # After the Jobs: of one that has ended, how its driver ended.
    pods_of: defaultdict[str, list[Json]] = defaultdict(list)
    for pod in pods:
        pods_of[_run_of(pod)].append(pod)
    job_of = {_run_of(job): job for job in jobs if job["metadata"]["name"] == driver_name(_run_of(job))}
    return {name: _facts(job_of.get(name), pods_of[name]) for name in job_of.keys() | pods_of.keys()}


def _run_of(found: Json) -> str:
    return str(found["metadata"]["labels"].get(MAINTENANCE_JOB_LABEL, ""))


def _facts(job: Json | None, pods: list[Json]) -> RunFacts:
    drivers = [each for each in pods if each["metadata"]["labels"].get(MAINTENANCE_ROLE_LABEL) == DRIVER]
    tries = sorted(map(driver_pod, drivers), key=lambda each: (each.made_at, each.name))
    return RunFacts(run_job(job) if job is not None else None, tuple(tries), sum(map(is_live, pods)))
