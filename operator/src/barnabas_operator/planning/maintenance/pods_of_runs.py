"""The pods of a MaintenanceJob, identified by their owner because anybody may set labels."""

from barnabas_operator.planning.maintenance.observed_run import DRIVER
from barnabas_operator.planning.object_names import MAINTENANCE_ROLE_LABEL, application_name, driver_name
from barnabas_operator.resources.json_types import Json


def is_driver(pod: Json) -> bool:
    """True if the pod has the label of a driver."""
    return bool(pod["metadata"]["labels"].get(MAINTENANCE_ROLE_LABEL) == DRIVER)


def is_of_run(pod: Json, run: str, job_uid: str | None) -> bool:
    """True if the controller of a pod is the Job, the SparkApplication or a driver of the MaintenanceJob `run`.

    `job_uid` is None if there is no Job; pods of a deleted Job then count until Kubernetes deletes them. A driver whose
    controller is neither a Job nor a SparkApplication is recognized by its name.
    """
    owners = (each for each in pod["metadata"].get("ownerReferences", ()) if each.get("controller"))
    owner: Json = next(owners, {"kind": "", "name": "", "uid": ""})
    if not is_driver(pod):
        return bool(owner["kind"] == "Pod" and owner["name"].startswith(driver_name(run)))
    if owner["kind"] == "Job":
        return bool(owner["name"] == driver_name(run) and job_uid in (None, owner["uid"]))
    if owner["kind"] == "SparkApplication":
        return bool(owner["name"] == application_name(run))
    return bool(pod["metadata"]["name"] == driver_name(run))  # Kubeflow sets no owner if its webhook is off.
