"""Reads the Jobs, SparkApplications and pods of a Cluster's maintenance runs from the API server."""

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from barnabas_operator.kube.api import NOT_FOUND, KubeApi, KubeRefused
from barnabas_operator.planning.maintenance.observed_run import (
    NOTHING_SEEN,
    ObservedRun,
    observed_run,
    with_application,
)
from barnabas_operator.planning.object_names import (
    MAINTENANCE_JOB_LABEL,
    application_name,
    driver_name,
    maintenance_selector,
)
from barnabas_operator.planning.status.start_failures import last_warning
from barnabas_operator.resources.json_types import Json
from barnabas_operator.resources.maintenance_job import MaintenanceJob

NAMES_MAX: Final = 50
"""The highest number of MaintenanceJobs that a label selector names.

For more MaintenanceJobs, the objects of all MaintenanceJobs of the Cluster are listed.
"""

log = logging.getLogger(__name__)


async def gather_runs(
    api: KubeApi, namespace: str, cluster: str, runs: Collection[MaintenanceJob], now: str
) -> Mapping[str, ObservedRun]:
    """Return the state of these runs, and possibly of other runs, by name. Raises KubeUnreachable and KubeRefused.

    If SparkApplications cannot be listed, the field `unknown` of their runs has the reason.
    """
    names = [run.metadata.name for run in runs]
    of_kubeflow = {run.metadata.name: run for run in runs if run.spec.backend == "Kubeflow"}
    named = {MAINTENANCE_JOB_LABEL: names} if len(names) <= NAMES_MAX else {}
    chosen = {**maintenance_selector(cluster), **named}
    jobs = await api.listing("Job", namespace, chosen)
    applications, unknown = await _applications(api, namespace, chosen) if of_kubeflow else ([], "")
    # Pods are listed after Jobs. Otherwise a Job could end in between, and its pods would still seem to be alive.
    pods = await api.listing("Pod", namespace, chosen)
    pods_of: defaultdict[str, list[Json]] = defaultdict(list)
    for pod in pods:
        pods_of[_run_of(pod)].append(pod)
    job_of = {_run_of(job): job for job in jobs if job["metadata"]["name"] == driver_name(_run_of(job))}
    found = {name: observed_run(name, job_of.get(name), pods_of[name]) for name in job_of.keys() | pods_of.keys()}
    for each in applications:
        name = _run_of(each)
        if name in of_kubeflow and each["metadata"]["name"] == application_name(name):
            found[name] = with_application(of_kubeflow[name], observed_run(name, None, pods_of[name]), each, now)
    if unknown:
        found |= {name: found.get(name, NOTHING_SEEN)._replace(unknown=unknown) for name in of_kubeflow}
    lacking = {name: run for name, run in found.items() if run.lacks_driver and name not in of_kubeflow}
    events = await _warnings(api, namespace) if lacking else []
    return found | {name: _with_reason(run, driver_name(name), events) for name, run in lacking.items()}


async def _applications(
    api: KubeApi, namespace: str, chosen: Mapping[str, str | Collection[str]]
) -> tuple[list[Json], str]:
    """Return the SparkApplications, and the error if they cannot be listed. A missing CRD is no error."""
    try:
        return [*await api.listing("SparkApplication", namespace, chosen)], ""
    except KubeRefused as error:
        return [], "" if error.status == NOT_FOUND else f"the SparkApplications could not be listed: {error.message}"


def _with_reason(run: ObservedRun, job_name: str, events: Iterable[Json]) -> ObservedRun:
    """Return the run with `unmade` set to the last warning Event about the run's Job.

    `unmade` is the reason why the driver pod is missing. Events about an earlier Job of the same name are ignored.
    """
    uid = run.job.uid if run.job is not None else ""
    own = [event for event in events if event["involvedObject"].get("uid") == uid]
    return run._replace(unmade=last_warning(job_name, own))


async def _warnings(api: KubeApi, namespace: str) -> list[Json]:
    """Return the warning Events about Jobs; none if the operator may not list Events."""
    try:
        return [*await api.listing("Event", namespace, {}, {"involvedObject.kind": "Job", "type": "Warning"})]
    except KubeRefused as error:
        log.debug("the Events in %s could not be listed: %s", namespace, error)
        return []


def _run_of(found: Json) -> str:
    return str(found["metadata"]["labels"].get(MAINTENANCE_JOB_LABEL, ""))
