"""The fields that a MaintenanceJob and the entries of a Cluster's `spec.maintenance` have in common."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct, field

from barnabas_operator.resources.job_table import JOB_TABLE
from barnabas_operator.resources.json_types import JsonObject
from barnabas_operator.resources.quantity import Quantity
from barnabas_operator.resources.template import TemplateMetadata

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
        description="the name of a job, as listed in docs/how-to/jobs.md",
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
        Meta(description="the job's options as text, without the option bootstrap, which the operator sets"),
    ] = {}
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
