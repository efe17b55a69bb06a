"""The MaintenanceJob that a schedule creates for an entry in `spec.maintenance`."""

from typing import Any, Final

import msgspec

from barnabas_operator.planning.maintenance.run_checks import REPORT
from barnabas_operator.planning.object_names import MAINTENANCE_CLUSTER_LABEL, SCHEDULE_LABEL
from barnabas_operator.resources.json_types import Json
from barnabas_operator.resources.maintenance_job import MAINTENANCE_JOB
from barnabas_operator.resources.maintenance_run import RunSpec
from barnabas_operator.resources.object_meta import API_VERSION

OF_ITS_JOB: Final = "ttlSecondsAfterFinished"
"""The field for how long the CronJob's Job stays after its end.

The MaintenanceJob is deleted together with that Job, so the field is not copied to the MaintenanceJob.
"""
OF_RUNS: Final = frozenset(each.encode_name for each in msgspec.structs.fields(RunSpec)) - {OF_ITS_JOB}
"""The fields of an entry in `spec.maintenance` that are copied to its MaintenanceJobs.

The other fields are about schedule and history.
"""


def scheduled_run(cluster: Json, entry: str, job_name: str, job_uid: str) -> dict[str, Any]:
    """Return the MaintenanceJob for an entry of `spec.maintenance`.

    The MaintenanceJob has the name of the CronJob's Job, and that Job as its owner. Each MaintenanceJob writes its
    report to a folder of its own, below the folder in the entry.

    Raises LookupError if the Cluster has no such entry.
    """
    entries = {each["name"]: each for each in cluster.get("spec", {}).get("maintenance", ())}
    meta = cluster["metadata"]
    if entry not in entries:
        there = ", ".join(entries) or "none, because spec.maintenance is empty"
        raise LookupError(f"Cluster {meta['name']} has no entry {entry} in spec.maintenance; allowed: {there}")
    run = {name: value for name, value in entries[entry].items() if name in OF_RUNS}
    report = run.get("options", {}).get(REPORT)
    if report is not None:
        run["options"] = {**run["options"], REPORT: f"{report.rstrip('/')}/{job_name}"}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job_name, "uid": job_uid}
    return {
        "apiVersion": API_VERSION,
        "kind": MAINTENANCE_JOB.name,
        "metadata": {
            "name": job_name,
            "namespace": meta["namespace"],
            "labels": {SCHEDULE_LABEL: entry, MAINTENANCE_CLUSTER_LABEL: meta["name"]},
            "ownerReferences": [owner],
        },
        "spec": {**run, "cluster": meta["name"]},
    }
