"""The kind `MaintenanceJob`: one run of a maintenance job, and what came of it."""

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct, field

from barnabas_operator.resources.kind import Kind, column
from barnabas_operator.resources.maintenance_run import RUN_KEYS, RUN_RULES, RunSpec
from barnabas_operator.resources.resource import Resource, Status

NAME_MAX: Final = 56
"""The longest name: with `-driver` it is the name of a Service, and the label of pods."""

Phase = Literal["Pending", "Running", "Succeeded", "Failed"]
FINISHED: Final = ("Succeeded", "Failed")


class MaintenanceJobSpec(
    RunSpec, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """A run of a maintenance job. It never changes: another run is another MaintenanceJob."""

    cluster: Annotated[str | None, Meta(description="the Cluster's name; may be left out where there is only one")] = (
        None
    )


class Count(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The progress of a run: done, and in total."""

    done: Annotated[int, Meta(description="so far")]
    total: Annotated[int, Meta(description="the total; left out if it is unknown")] | None = None


class MaintenanceJobStatus(
    Status, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """The state of the run. While it runs, numbers are written every 10 seconds at most."""

    cluster: Annotated[str | None, Meta(description="the Cluster that it is about; never changes")] = None
    phase: (
        Annotated[
            Phase,
            Meta(description="Pending waits, Running has begun; Succeeded and Failed are final: it never runs again"),
        ]
        | None
    ) = None
    start_time: Annotated[str, Meta(description="when it began")] | None = None
    completion_time: Annotated[str, Meta(description="when it ended")] | None = None
    duration_seconds: Annotated[int, Meta(description="the time from its start to its end, or to now")] | None = None
    duration: Annotated[str, Meta(description="the duration in words")] | None = None
    attempts: Annotated[int, Meta(description="how many drivers were started")] | None = None
    driver_running: (
        Annotated[bool, Meta(description="whether the driver of a run that has not ended is running")] | None
    ) = None
    activity: Annotated[str, Meta(description="the phase that the job reports")] | None = None
    stages: Annotated[Count, Meta(description="the stages that are done")] | None = None
    records: Annotated[Count, Meta(description="the records that are done")] | None = None
    records_per_second: Annotated[int, Meta(description="the current rate in records a second")] | None = None
    progress: Annotated[str, Meta(description="such as 43%")] | None = None
    last_commit_time: Annotated[str, Meta(description="when an archive committed last")] | None = None
    records_behind: (
        Annotated[int, Meta(description="the records of the topic that an archive has not committed")] | None
    ) = None
    ledger: Annotated[str, Meta(description="the place of the archive's ledger")] | None = None
    result: Annotated[dict[str, Any], Meta(description="the job's result; docs/how-to/jobs.md lists its fields")] = (
        field(default_factory=dict)
    )


class MaintenanceJob(Resource, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One run of a maintenance job about a Cluster."""

    kind: Literal["MaintenanceJob"] = "MaintenanceJob"
    spec: MaintenanceJobSpec
    status: MaintenanceJobStatus | None = None

    @property
    def has_finished(self) -> bool:
        """True if its status says that it has finished."""
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
        column("Cluster", "string", ".*.cluster", wide=True),  # From spec or status; if both have it, they agree.
        column("Attempts", "integer", ".status.attempts", wide=True),
        column("Ledger", "string", ".status.ledger", wide=True),
    ),
    rules={
        MaintenanceJob: [
            {
                "rule": f"size(self.metadata.name) <= {NAME_MAX} && self.metadata.name.matches('^[a-z][^.]*$')",
                "messageExpression": (
                    f"'metadata.name is ' + self.metadata.name + '; allowed: at most {NAME_MAX} characters, a letter"
                    " first and without a dot, for a Service and pods are called so'"
                ),
            }
        ],
        MaintenanceJobSpec: [
            {
                "rule": "self == oldSelf",
                "message": "spec cannot change, for a run is done once; allowed: another MaintenanceJob",
            }
        ],
        **RUN_RULES,
    },
    list_keys=RUN_KEYS,
    status_is_news=False,
    has_ready_column=False,
)
