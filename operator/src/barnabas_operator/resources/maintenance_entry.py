"""The part of a `Cluster` that says which maintenance jobs are run, and when."""

from typing import Annotated, Final, Literal

from msgspec import Meta

from barnabas_operator.resources.maintenance_run import SECONDS_MAX, Name, RunSpec

ENTRIES_MAX: Final = 32
HISTORY_MAX: Final = 1_000
OVERDUE_S_MIN: Final = 10
"""Kubernetes looks every ten seconds, and would never start a run that may be less late."""

Concurrency = Literal["Allow", "Forbid", "Replace"]


class MaintenanceEntry(
    RunSpec, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """A maintenance job that is run by a schedule: a CronJob keeps time, and each run is a MaintenanceJob."""

    name: Annotated[Name, Meta(description="the entry's name, unique within the list")]
    schedule: Annotated[
        str,
        Meta(
            max_length=256,
            pattern=r"^(@(yearly|annually|monthly|weekly|daily|midnight|hourly|every \S+)|\S+( +\S+){4})$",
            description=(
                "the times, as in crontab: minute, hour, day of month, month, day of week; or for example @daily"
            ),
        ),
    ]
    time_zone: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=64,
                description="the time zone of the schedule, such as Europe/Berlin; left out, that of Kubernetes",
            ),
        ]
        | None
    ) = None
    suspend: Annotated[bool, Meta(description="true: no run is started; those that have begun continue")] = False
    concurrency_policy: Annotated[
        Concurrency,
        Meta(
            description="when a run is due before the last one has ended: Forbid skips it, Replace stops the last one"
        ),
    ] = "Forbid"
    starting_deadline_seconds: (
        Annotated[
            int, Meta(ge=OVERDUE_S_MIN, le=SECONDS_MAX, description="a run that would start later than this is skipped")
        ]
        | None
    ) = None
    max_age_seconds: (
        Annotated[
            int,
            Meta(
                ge=60,
                le=SECONDS_MAX,
                description="the age of the last success at which the alert MaintenanceNotRun fires;"
                " left out, it never does",
            ),
        ]
        | None
    ) = None
    successful_jobs_history_limit: Annotated[
        int, Meta(ge=0, le=HISTORY_MAX, description="how many runs that succeeded are kept")
    ] = 3
    failed_jobs_history_limit: Annotated[
        int, Meta(ge=0, le=HISTORY_MAX, description="how many runs that failed are kept")
    ] = 1
