"""The pods of a MaintenanceJob, identified by their owner because anybody may set labels."""

from barnabas_operator.planning.maintenance.observed_run import DRIVER
from barnabas_operator.planning.object_names import MAINTENANCE_ROLE_LABEL, application_name, driver_name
from barnabas_operator.resources.json_types import Json


def is_driver(pod: Json) -> bool:
    """True if the pod has the label of a driver."""
    return bool(pod["metadata"]["labels"].get(MAINTENANCE_ROLE_LABEL) == DRIVER)


def is_of_run(pod: Json, run: str, job_uid: str | None) -> bool:
    """True if a pod is a driver or an executor of the MaintenanceJob `run`.

    The owner of an executor must be a driver of the run. The owner of a driver must be the run's Job or
    SparkApplication; a driver without an owner is recognized by its name. `job_uid` is None if the Job no longer
    exists; then the owner may be any Job with the name of the run's Job.
    """
    owners = (each for each in pod["metadata"].get("ownerReferences", ()) if each.get("controller"))
    owner: Json = next(owners, {"kind": "", "name": "", "uid": ""})
    if not is_driver(pod):
        return bool(owner["kind"] == "Pod" and owner["name"].startswith(driver_name(run)))
    if owner["kind"] == "Job":
        return bool(owner["name"] == driver_name(run) and job_uid in (None, owner["uid"]))
    if owner["kind"] == "SparkApplication":
        return bool(owner["name"] == application_name(run))
    return bool(pod["metadata"]["name"] == driver_name(run))  # If Kubeflow's webhook is off, drivers have no owner.
