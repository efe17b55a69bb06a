"""The entries of `spec.maintenance` of a Cluster, which schedule maintenance jobs."""

from typing import Annotated, Final, Literal

from msgspec import Meta

from barnabas_operator.resources.maintenance_run import SECONDS_MAX, Name, RunSpec

ENTRIES_MAX: Final = 32
HISTORY_MAX: Final = 1_000
OVERDUE_S_MIN: Final = 10
"""The minimum of `startingDeadlineSeconds`, because Kubernetes checks CronJobs only every ten seconds."""

Concurrency = Literal["Allow", "Forbid", "Replace"]


class MaintenanceEntry(
    RunSpec, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """A scheduled maintenance job. A CronJob creates a MaintenanceJob for each run."""

    name: Annotated[Name, Meta(description="the name of the scheduled job, unique within spec.maintenance")]
    schedule: Annotated[
        str,
        Meta(
            max_length=256,
            pattern=r"^(@(yearly|annually|monthly|weekly|daily|midnight|hourly|every \S+)|\S+( +\S+){4})$",
            description=(
                "a schedule as in crontab (minute, hour, day of month, month, day of week), or a word such as @daily"
            ),
        ),
    ]
    time_zone: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=64,
                description="the time zone of the schedule, such as Europe/Berlin; if left out, the time zone of the"
                " kube-controller-manager",
            ),
        ]
        | None
    ) = None
    suspend: Annotated[bool, Meta(description="if true, no run is started; active runs continue")] = False
    concurrency_policy: Annotated[
        Concurrency,
        Meta(
            description="what happens if a run is due while another run is active: Forbid skips the new run, Replace"
            " stops the active run, Allow starts the new run"
        ),
    ] = "Forbid"
    starting_deadline_seconds: (
        Annotated[
            int,
            Meta(
                ge=OVERDUE_S_MIN,
                le=SECONDS_MAX,
                description="the delay in seconds after which a run that could not start is skipped",
            ),
        ]
        | None
    ) = None
    max_age_seconds: (
        Annotated[
            int,
            Meta(
                ge=60,
                le=SECONDS_MAX,
                description="the highest allowed age of the last successful run, in seconds; if a run is older, the"
                " alert MaintenanceNotRun fires; if left out, the alert never fires",
            ),
        ]
        | None
    ) = None
    successful_jobs_history_limit: Annotated[
        int, Meta(ge=0, le=HISTORY_MAX, description="how many successful runs are kept")
    ] = 3
    failed_jobs_history_limit: Annotated[
        int, Meta(ge=0, le=HISTORY_MAX, description="how many failed runs are kept")
    ] = 1
