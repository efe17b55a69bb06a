"""The fields that a MaintenanceJob and the entries of a Cluster's `spec.maintenance` have in common.

The maintenance jobs and their options, read from `job_table.json`, which `make job-table` writes. The operator
cannot import the jobs, because they need Spark.
"""

import pkgutil
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct, field, json

from barnabas_operator.resources.kind import JsonObject, Kind, Quantity, Resource, Status, TemplateMetadata, column


class JobOption(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rule for the value of an option, with `allowed` as its description.

    Bounds of a list apply to each item, and the pattern of a map to each entry, as `KEY=VALUE`.
    """

    required: bool
    allowed: str
    type: Literal["string", "integer", "number", "boolean", "time", "map"]
    list: bool = False
    pattern: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = field(default=())


class JobRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule about two options; `allowed` describes the rule in words.

    The kind `ordered` means that `option` must be less than `other` if both are given. The kind `needs` means that
    `other` must be true if `option` is given. The kind `excludes` means that at most one of the two may be given, or
    be true. The kind `bucket-needs` means that `other` must be given if `option` is in a bucket.
    """

    kind: Literal["ordered", "needs", "excludes", "bucket-needs"]
    option: str
    other: str
    allowed: str


class JobEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A maintenance job, with its options by name."""

    summary: str
    options: dict[str, JobOption]
    rules: tuple[JobRule, ...] = ()


def _read() -> Mapping[str, JobEntry]:
    text = pkgutil.get_data(__package__, "job_table.json")
    assert text is not None, "job_table.json is missing in the package"
    return json.decode(text, type=dict[str, JobEntry])


JOB_TABLE: Final = _read()
"""The maintenance jobs by name."""


EXECUTORS_MAX: Final = 1_000
VOLUMES_MAX: Final = 16
ENV_MAX: Final = 64
TOLERATIONS_MAX: Final = 64
PULL_SECRETS_MAX: Final = 16
TRIES_MAX: Final = 100
SECONDS_MAX: Final = 2**31 - 1

Backend = Literal["Kubernetes", "Kubeflow"]
JobName = Annotated[
    str,
    Meta(
        max_length=63,
        description="the name of a job, as listed in docs/reference/jobs.md",
        extra_json_schema={"enum": sorted(JOB_TABLE)},
    ),
]
Name = Annotated[
    str,
    Meta(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", description="lower-case letters, digits and '-'"),
]
ObjectName = Annotated[str, Meta(min_length=1, max_length=253)]
MountPath = Annotated[
    str, Meta(max_length=1024, pattern=r"^/[^:,\s]+$", description="an absolute path without ':', ',' and spaces")
]


class PodResources(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The resource requests and limits of a pod, for cpu and memory."""

    requests: Annotated[dict[str, Quantity], Meta(description="the resources that Kubernetes reserves for the pod")] = (
        field(default_factory=lambda: {"cpu": "500m", "memory": "2Gi"})
    )
    limits: Annotated[
        dict[str, Quantity],
        Meta(
            description="the resources that the pod may use; memory must be at least 1Gi; Spark's heap gets 60"
            " percent of the memory"
        ),
    ] = field(default_factory=lambda: {"memory": "2Gi"})


class RunPod(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The options of a run's driver or executors."""

    resources: PodResources = PodResources()


class ImagePullSecret(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The name of a Secret in the same namespace with credentials for a registry."""

    name: Annotated[ObjectName, Meta(description="the Secret")]


class RunPodSpec(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The node selection, image pull secrets and priority of a run's pods."""

    node_selector: Annotated[dict[str, str], Meta(description="the labels that a node must have")] = {}
    tolerations: Annotated[
        tuple[JsonObject, ...],
        Meta(max_length=TOLERATIONS_MAX, description="the taints of nodes that the pods tolerate"),
    ] = ()
    affinity: Annotated[
        JsonObject, Meta(description="the nodes and pods that the pods of the run prefer or avoid")
    ] = {}
    image_pull_secrets: Annotated[
        tuple[ImagePullSecret, ...],
        Meta(
            max_length=PULL_SECRETS_MAX,
            description="the image pull secrets; if left out, the image pull secrets of the chart's values",
        ),
    ] = ()
    priority_class_name: Annotated[str, Meta(max_length=253, description="their PriorityClass")] | None = None


class RunPodTemplate(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The labels, annotations and fields of the pod spec that a user sets for the pods of a run."""

    metadata: Annotated[
        TemplateMetadata,
        Meta(
            description="labels and annotations of the pods, which take precedence over the Cluster's template.metadata"
        ),
    ] = TemplateMetadata()
    spec: RunPodSpec = RunPodSpec()


class RunTemplate(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """Changes to the Kubernetes objects of a run."""

    pod: Annotated[
        RunPodTemplate,
        Meta(
            description="changes to the pods of driver and executors; all changes except the choice of nodes also apply"
            " to the CronJob's pods"
        ),
    ] = RunPodTemplate()


class RunVolume(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """A PersistentVolumeClaim that driver and executors mount."""

    name: Annotated[Name, Meta(description="the volume's name, unique within the list")]
    mount_path: Annotated[
        MountPath, Meta(description="the path at which the volume is mounted, for use in the job's options")
    ]
    claim_name: Annotated[
        ObjectName, Meta(description="the volume claim, which must be ReadWriteMany if executors run on several nodes")
    ]
    read_only: Annotated[bool, Meta(description="if true, the volume is mounted read-only")] = False


class EventLogs(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The claim for Spark's event logs, which Spark's history server reads."""

    claim_name: Annotated[ObjectName, Meta(description="the volume claim, which the driver mounts")]
    mount_path: Annotated[MountPath, Meta(description="the mount path of the claim in the driver")] = "/event-logs"


class SecretKeyRef(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A key of a Secret in the same namespace."""

    name: Annotated[ObjectName, Meta(description="the Secret")]
    key: Annotated[ObjectName, Meta(description="the key")]


class EnvVar(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """An environment variable of driver and executors, with a value or a reference to a key of a Secret."""

    name: Annotated[str, Meta(max_length=253, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="its name")]
    value: Annotated[str, Meta(description="what it holds")] | None = None
    secret_key_ref: Annotated[SecretKeyRef, Meta(description="the key of a Secret that holds the value")] | None = None


class RunSpec(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """A run of a maintenance job."""

    job: JobName
    options: Annotated[
        dict[str, str],
        Meta(
            description="the job's options as text, without the options bootstrap, which the operator sets, and catalog"
            " and namespace, which are fields"
        ),
    ] = {}
    catalog: Annotated[
        dict[str, str],
        Meta(
            description="the catalog that names the tables of an archive, as properties of PyIceberg: type (sql, rest"
            " or glue), uri, warehouse and others; if left out, the catalog is a file in the archive's folder."
            " Properties with a secret are refused: they belong into env",
        ),
    ] = {}
    namespace: (
        Annotated[
            str,
            Meta(
                max_length=255,
                pattern=r"^[a-zA-Z0-9_]{1,63}(\.[a-zA-Z0-9_]{1,63}){0,3}$",
                description="the catalog's namespace for the tables of an archive; if left out, the namespace is"
                " barnabas",
            ),
        ]
        | None
    ) = None
    backend: Annotated[
        Backend,
        Meta(
            description="how the driver is started: Kubernetes creates a Job; Kubeflow creates a SparkApplication,"
            " for which Kubeflow's Spark operator must be installed"
        ),
    ] = "Kubernetes"
    executors: Annotated[
        int, Meta(ge=0, le=EXECUTORS_MAX, description="the number of executors; with 0, the driver does all the work")
    ] = 0
    driver: Annotated[RunPod, Meta(description="the pod of the Spark driver, which plans the tasks")] = RunPod()
    executor: Annotated[RunPod, Meta(description="the pods of the Spark executors, which run the tasks")] = RunPod()
    template: RunTemplate = RunTemplate()
    volumes: Annotated[
        tuple[RunVolume, ...], Meta(max_length=VOLUMES_MAX, description="the volumes for archives and reports")
    ] = ()
    event_logs: (
        Annotated[
            EventLogs, Meta(description="where Spark's event logs are stored; if left out, Spark writes no event logs")
        ]
        | None
    ) = None
    spark_conf: Annotated[
        dict[str, str], Meta(description="Spark's configuration; keys that the operator sets itself are refused")
    ] = {}
    env: Annotated[
        tuple[EnvVar, ...], Meta(max_length=ENV_MAX, description="environment variables of driver and executors")
    ] = ()
    backoff_limit: Annotated[
        int, Meta(ge=0, le=TRIES_MAX, description="how many times a failed driver is started again")
    ] = 3
    active_deadline_seconds: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=SECONDS_MAX,
                description="the time limit in seconds for all attempts; a longer run is stopped and counts as failed",
            ),
        ]
        | None
    ) = None
    ttl_seconds_after_finished: (
        Annotated[
            int,
            Meta(
                ge=0,
                le=SECONDS_MAX,
                description="the seconds from the end of the run until this resource is deleted with its pods; if left"
                " out, this resource is not deleted",
            ),
        ]
        | None
    ) = None

    @property
    def is_continuous(self) -> bool:
        """True if the run archives until it is deleted."""
        return self.options.get("continuous") == "true"


RUN_KEYS: Final[Mapping[type, str]] = {RunVolume: "name", EnvVar: "name"}
"""The field that identifies an entry in its list, for each type of list entry in the spec of a run."""
RUN_RULES: Final[Mapping[type, list[JsonObject]]] = {
    EnvVar: [
        {
            "rule": "(has(self.value) ? 1 : 0) + (has(self.secretKeyRef) ? 1 : 0) == 1",
            "messageExpression": "'env ' + self.name + ' needs exactly one of value and secretKeyRef'",
        }
    ]
}
"""The CEL rules for a MaintenanceJob and an entry of `spec.maintenance`, by the type of the objects that they check."""


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
            str, Meta(description="the table of the archive, whose snapshots list the archived offsets and files")
        ]
        | None
    ) = None
    result: Annotated[dict[str, Any], Meta(description="the job's result; docs/reference/jobs.md lists its fields")] = (
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
