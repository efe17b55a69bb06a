"""The kind `MaintenanceJob`, which declares one run of a maintenance job and reports its result."""

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct, field

from barnabas_operator.resources.kind import Kind, column
from barnabas_operator.resources.maintenance_run import RUN_KEYS, RUN_RULES, RunSpec
from barnabas_operator.resources.resource import Resource, Status

NAME_MAX: Final = 56
"""The maximum length of a name. The name with `-driver` is used for a Service and a pod label (63 characters)."""

Phase = Literal["Pending", "Running", "Succeeded", "Failed"]
FINISHED: Final = ("Succeeded", "Failed")


class MaintenanceJobSpec(
    RunSpec, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """The spec of one run of a maintenance job. The spec of an existing MaintenanceJob cannot be changed."""

    cluster: Annotated[
        str | None, Meta(description="the name of the Cluster; may be left out if the namespace has only one Cluster")
    ] = None


class Count(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The progress of a run: how many stages or records are done, and their total number."""

    done: Annotated[int, Meta(description="how many stages or records are done so far")]
    total: (
        Annotated[int, Meta(description="the total number of stages or records; left out if the number is unknown")]
        | None
    ) = None


class MaintenanceJobStatus(
    Status, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """The state of the run. While the run is active, numbers are updated at most every 10 seconds."""

    cluster: Annotated[str | None, Meta(description="the Cluster whose topics the run reads or writes")] = None
    phase: (
        Annotated[
            Phase,
            Meta(description="Pending while the run waits, Running after it has begun; Succeeded and Failed are final"),
        ]
        | None
    ) = None
    start_time: Annotated[str, Meta(description="when the run began")] | None = None
    completion_time: Annotated[str, Meta(description="when the run ended")] | None = None
    duration_seconds: (
        Annotated[int, Meta(description="the seconds from the start of the run to its end, or until now")] | None
    ) = None
    duration: Annotated[str, Meta(description="the duration of the run as text, such as 2m5s")] | None = None
    attempts: Annotated[int, Meta(description="how many drivers were started")] | None = None
    driver_running: Annotated[bool, Meta(description="true if the driver of an active run is running")] | None = None
    activity: Annotated[str, Meta(description="the current activity, as the job reports it")] | None = None
    stages: Annotated[Count, Meta(description="the number of Spark stages")] | None = None
    records: Annotated[Count, Meta(description="the number of processed records")] | None = None
    records_per_second: Annotated[int, Meta(description="the current rate in records per second")] | None = None
    progress: Annotated[str, Meta(description="the progress as text, such as 43%")] | None = None
    last_commit_time: Annotated[str, Meta(description="when the archive job last committed records")] | None = None
    records_behind: (
        Annotated[int, Meta(description="the number of the topic's records that are not in the archive yet")] | None
    ) = None
    ledger: (
        Annotated[
            str, Meta(description="the location of the archive's ledger, which lists the archived offsets and files")
        ]
        | None
    ) = None
    result: Annotated[dict[str, Any], Meta(description="the job's result; docs/how-to/jobs.md lists its fields")] = (
        field(default_factory=dict)
    )


class MaintenanceJob(Resource, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A run of a maintenance job for a Cluster."""

    kind: Literal["MaintenanceJob"] = "MaintenanceJob"
    spec: MaintenanceJobSpec
    status: MaintenanceJobStatus | None = None

    @property
    def has_finished(self) -> bool:
        """True if the phase in the status is Succeeded or Failed."""
        return self.status is not None and self.status.phase in FINISHED


MAINTENANCE_JOB: Final = Kind(
    resource=MaintenanceJob,
    status=MaintenanceJobStatus,
    plural="maintenancejobs",
    short_name="bm",
    writer="edit",
    rights="maintenance",
    thing="run",
    columns=(
        column("Job", "string", ".spec.job"),
        column("Phase", "string", ".status.phase"),
        column("Progress", "string", ".status.progress"),
        column("Records", "integer", ".status.records.done"),
        column("Duration", "string", ".status.duration"),
        column("Cluster", "string", ".*.cluster", wide=True),  # Both spec and status may have this field.
        column("Attempts", "integer", ".status.attempts", wide=True),
        column("Ledger", "string", ".status.ledger", wide=True),
    ),
    rules={
        MaintenanceJob: [
            {
                "rule": f"size(self.metadata.name) <= {NAME_MAX} && self.metadata.name.matches('^[a-z][^.]*$')",
                "messageExpression": (
                    f"'metadata.name is ' + self.metadata.name + '; allowed: at most {NAME_MAX} characters, a letter"
                    " first and without a dot, because the names of a Service and pods are derived from it'"
                ),
            }
        ],
        MaintenanceJobSpec: [
            {
                "rule": "self == oldSelf",
                "message": "spec cannot change, because a MaintenanceJob runs only once; create a new MaintenanceJob",
            }
        ],
        **RUN_RULES,
    },
    list_keys=RUN_KEYS,
    status_is_news=False,
    has_ready_column=False,
)
