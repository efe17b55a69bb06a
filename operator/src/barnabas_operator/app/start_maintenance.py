"""`barnabas start-maintenance CLUSTER ENTRY`: start a run of this entry in `spec.maintenance`, and wait for its end.

The pods of CronJobs run this command. If a pod dies, the next pod of the Job finds the run and waits for it.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

from barnabas_kube.access import NoAccess
from barnabas_kube.client import ApiClient
from barnabas_kube.discovery import find_access
from barnabas_operator.kube.api import CONFLICT, KubeApi, KubeRefused, KubeUnreachable
from barnabas_operator.planning.conditions import condition_before
from barnabas_operator.planning.maintenance.run_checks import scheduled_run
from barnabas_operator.resources.cluster_kind import CLUSTER
from barnabas_operator.resources.kind import READY, Json
from barnabas_operator.resources.maintenance_run import FINISHED, MAINTENANCE_JOB

AGENT: Final = "barnabas-start-maintenance"
POLL_S: Final = 5.0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_TRY_AGAIN: Final = 75
"""The exit code after which Kubernetes starts another pod of the Job.

If an earlier pod of the Job has created the MaintenanceJob, the new pod only waits for the end of the MaintenanceJob.
"""
NEEDED: Final = ("POD_NAMESPACE", "JOB_NAME", "JOB_UID")


class Started(NamedTuple):
    """The entry in the Cluster's `spec.maintenance` to start, and the Job that created this pod."""

    cluster: str
    entry: str
    namespace: str
    job_name: str
    job_uid: str


def main(arguments: Sequence[str]) -> int:
    """Run the command; return 0 if the run succeeded, 1 if it failed, 2 if it can never start, 75 to try again."""
    parser = argparse.ArgumentParser(prog="barnabas start-maintenance", description=__doc__, allow_abbrev=False)
    parser.add_argument("cluster", metavar="CLUSTER", help="the name of a Cluster in the pod's namespace")
    parser.add_argument("entry", metavar="ENTRY", help="the name of an entry in the Cluster's spec.maintenance")
    given = parser.parse_args(arguments)
    try:
        started = Started(given.cluster, given.entry, *_job(os.environ))
        return asyncio.run(_run(started))
    except (NoAccess, LookupError) as error:
        return _failed(EXIT_USAGE, error)


def _job(environment: Mapping[str, str]) -> list[str]:
    lacking = [name for name in NEEDED if not environment.get(name)]
    if lacking:
        raise LookupError(
            f"{', '.join(lacking)} are not set; this command runs only in the pods of a Cluster's CronJobs"
        )
    return [environment[name] for name in NEEDED]


async def _run(started: Started) -> int:
    async with ApiClient(find_access(os.environ), AGENT) as client:
        return await exit_code(KubeApi(client), started, lambda: asyncio.sleep(POLL_S))


async def exit_code(api: KubeApi, started: Started, pause: Callable[[], Awaitable[None]]) -> int:
    """Start the run, wait for its end, and return the exit code of the command."""
    try:
        while not await _is_there(api, started):
            await pause()
        while (ended := await _ended(api, started)) is None:
            await pause()
    except LookupError as error:
        return _failed(EXIT_USAGE, error)
    except KubeRefused as error:
        return _failed(EXIT_USAGE if error.is_about_the_object else EXIT_TRY_AGAIN, error)
    return ended


def _failed(code: int, error: Exception) -> int:
    print(f"barnabas start-maintenance: {error}", file=sys.stderr)
    return code


async def _is_there(api: KubeApi, started: Started) -> bool:
    """Create the MaintenanceJob; return True if it now exists, or False if the caller must try again.

    Raises LookupError if the MaintenanceJob can never be created, and KubeRefused.
    """
    try:
        cluster = await api.get(CLUSTER.name, started.namespace, started.cluster)
        if cluster is None:
            raise LookupError(f"there is no Cluster {started.cluster} in the namespace {started.namespace}")
        return await _is_created(api, scheduled_run(cluster, started.entry, started.job_name, started.job_uid), started)
    except KubeUnreachable as error:
        print(f"waiting for the API server: {error}", file=sys.stderr)
        return False


async def _is_created(api: KubeApi, run: Json, started: Started) -> bool:
    """Create the MaintenanceJob; return True if this pod or an earlier pod of the same Job has created it."""
    try:
        await api.create(run)
    except KubeRefused as error:
        if error.status != CONFLICT:
            raise
        return await _is_own_there(api, started)
    return True


async def _is_own_there(api: KubeApi, started: Started) -> bool:
    """True if the Job of this pod owns the MaintenanceJob; False if the MaintenanceJob does not exist.

    If another object owns the MaintenanceJob, return False while the MaintenanceJob is being deleted; otherwise raise
    LookupError.
    """
    found = await _found(api, started)
    if found is None or _is_own(found, started):
        return found is not None
    if "deletionTimestamp" not in found["metadata"]:
        raise LookupError(f"another object owns the MaintenanceJob {started.job_name}; delete this MaintenanceJob")
    return False


def _is_own(found: Json, started: Started) -> bool:
    return started.job_uid in (each["uid"] for each in found["metadata"].get("ownerReferences", ()))


async def _found(api: KubeApi, started: Started) -> Json | None:
    return await api.get(MAINTENANCE_JOB.name, started.namespace, started.job_name)


async def _ended(api: KubeApi, started: Started) -> int | None:
    """Print how the run ended, and return the exit code; None if the run goes on or the API server does not answer."""
    try:
        found = await _found(api, started)
    except KubeUnreachable as error:
        print(f"waiting for the API server: {error}", file=sys.stderr)
        return None
    if found is None or not _is_own(found, started):
        print(f"MaintenanceJob {started.job_name} was deleted before it had ended", file=sys.stderr)
        return EXIT_FAILED
    status = found.get("status", {})
    if status.get("phase") not in FINISHED:
        return None
    print(f"MaintenanceJob {started.job_name}: {status['phase']}: {condition_before(status, READY).get('message', '')}")
    return 0 if status["phase"] == "Succeeded" else EXIT_FAILED
