"""The Kubernetes Events about new attempts and the success of a MaintenanceJob."""

from collections.abc import Iterator
from typing import Final

from barnabas_operator.planning.kube_event import Said
from barnabas_operator.planning.maintenance.run_status import SUCCEEDED
from barnabas_operator.resources.json_types import Json
from barnabas_operator.resources.maintenance_job import MaintenanceJob, MaintenanceJobStatus
from barnabas_operator.resources.object_meta import READY, condition_of

TRIED_AGAIN: Final = "TriedAgain"


def run_events(run: MaintenanceJob, before: Json) -> Iterator[Said]:
    """Yield an Event if another attempt of the run has begun, and an Event if the run has succeeded.

    `before` is the earlier status as JSON, with which the new status is compared.
    """
    status = run.status or MaintenanceJobStatus()
    ready = condition_of(status.conditions, READY)
    said = ready.message if ready is not None else ""
    if (status.attempts or 0) > max(1, before.get("attempts", 0)):
        yield "Warning", TRIED_AGAIN, f"attempt {status.attempts} of {run.spec.backoff_limit + 1}: {said}"
    if status.phase == SUCCEEDED != before.get("phase"):
        yield "Normal", SUCCEEDED, f"{said} ({status.duration or 'unknown duration'})"
