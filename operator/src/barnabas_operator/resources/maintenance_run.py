"""A run of a maintenance job: what a `MaintenanceJob` and the schedules of a `Cluster` have in common."""

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
        description="the name of the job, one of those in docs/how-to/jobs.md",
        extra_json_schema={"enum": sorted(JOB_TABLE)},
    ),
]
Name = Annotated[
    str, Meta(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", description="letters, digits and '-'")
]
ObjectName = Annotated[str, Meta(min_length=1, max_length=253)]
MountPath = Annotated[
    str, Meta(max_length=1024, pattern=r"^/[^:,\s]+$", description="an absolute path without ':', ',' and spaces")
]


class PodResources(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The resources that a pod requests, and its limits: cpu, memory."""

    requests: Annotated[dict[str, Quantity], Meta(description="the resources that Kubernetes reserves for it")] = field(
        default_factory=lambda: {"cpu": "500m", "memory": "2Gi"}
    )
    limits: Annotated[
        dict[str, Quantity],
        Meta(description="the most that it may use; memory 1Gi or more, 60 percent for Spark's heap"),
    ] = field(default_factory=lambda: {"memory": "2Gi"})


class RunPod(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """A pod of a run."""

    resources: PodResources = PodResources()


class ImagePullSecret(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A Secret of the namespace with the login of a registry."""

    name: Annotated[ObjectName, Meta(description="the Secret")]


class RunPodSpec(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The nodes of pods, the Secrets for their images, and their priority, as in the spec of a pod."""

    node_selector: Annotated[dict[str, str], Meta(description="labels that their node has")] = {}
    tolerations: Annotated[
        tuple[JsonObject, ...],
        Meta(max_length=TOLERATIONS_MAX, description="the taints of nodes that they tolerate"),
    ] = ()
    affinity: Annotated[JsonObject, Meta(description="the nodes and the neighbours that they prefer or avoid")] = {}
    image_pull_secrets: Annotated[
        tuple[ImagePullSecret, ...],
        Meta(
            max_length=PULL_SECRETS_MAX, description="Secrets with logins of registries; left out, those of the chart"
        ),
    ] = ()
    priority_class_name: Annotated[str, Meta(max_length=253, description="their PriorityClass")] | None = None


class RunPodTemplate(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The changes of the pods of a run."""

    metadata: Annotated[
        TemplateMetadata, Meta(description="labels and annotations, over those of the Cluster's template.metadata")
    ] = TemplateMetadata()
    spec: RunPodSpec = RunPodSpec()


class RunTemplate(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """Changes of the objects that are made for a run."""

    pod: Annotated[
        RunPodTemplate, Meta(description="the pods of driver and executors, and, but for nodes, those of schedules")
    ] = RunPodTemplate()


class RunVolume(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """A PersistentVolumeClaim that driver and executors mount."""

    name: Annotated[Name, Meta(description="the volume's name, unique within the list")]
    mount_path: Annotated[MountPath, Meta(description="the mount path, as options name it")]
    claim_name: Annotated[ObjectName, Meta(description="the claim; with executors on several nodes ReadWriteMany")]
    read_only: Annotated[bool, Meta(description="true: the run cannot write there")] = False


class EventLogs(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The claim for Spark's event logs, which its history server reads."""

    claim_name: Annotated[ObjectName, Meta(description="the claim, which the driver mounts")]
    mount_path: Annotated[MountPath, Meta(description="its mount path in the driver")] = "/event-logs"


class SecretKeyRef(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A key of a Secret of the namespace."""

    name: Annotated[ObjectName, Meta(description="the Secret")]
    key: Annotated[ObjectName, Meta(description="the key")]


class EnvVar(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """An environment variable of driver and executors: a value, or a key of a Secret."""

    name: Annotated[str, Meta(max_length=253, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="its name")]
    value: Annotated[str, Meta(description="what it holds")] | None = None
    secret_key_ref: Annotated[SecretKeyRef, Meta(description="the key of a Secret that holds the value")] | None = None


class RunSpec(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """A run of a maintenance job."""

    job: JobName
    options: Annotated[
        dict[str, str],
        Meta(description="the job's options, all as text; the operator fills in bootstrap, which cannot be given"),
    ] = {}
    backend: Annotated[
        Backend,
        Meta(
            description="what starts the driver: Kubernetes' own Job, or Kubeflow's Spark operator, which must be"
            " installed, with a SparkApplication"
        ),
    ] = "Kubernetes"
    executors: Annotated[
        int, Meta(ge=0, le=EXECUTORS_MAX, description="pods that do the work; with 0 the driver does it by itself")
    ] = 0
    driver: Annotated[RunPod, Meta(description="the pod that plans the work and reports it")] = RunPod()
    executor: Annotated[RunPod, Meta(description="each pod that does the work")] = RunPod()
    template: RunTemplate = RunTemplate()
    volumes: Annotated[
        tuple[RunVolume, ...], Meta(max_length=VOLUMES_MAX, description="the volumes of archives and reports")
    ] = ()
    event_logs: (
        Annotated[EventLogs, Meta(description="where Spark's event logs are stored; left out, none are written")] | None
    ) = None
    spark_conf: Annotated[
        dict[str, str], Meta(description="Spark's configuration, without what the operator sets itself")
    ] = {}
    env: Annotated[
        tuple[EnvVar, ...], Meta(max_length=ENV_MAX, description="environment variables of driver and executors")
    ] = ()
    backoff_limit: Annotated[
        int, Meta(ge=0, le=TRIES_MAX, description="how often a failed driver is started again")
    ] = 3
    active_deadline_seconds: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=SECONDS_MAX,
                description="the time after which the run is stopped and has failed, all attempts together",
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
                description="the time after its end when the resource is deleted, with its pods; left out, it stays",
            ),
        ]
        | None
    ) = None


RUN_KEYS: Final[Mapping[type, str]] = {RunVolume: "name", EnvVar: "name"}
"""The field that identifies an entry in each list of a run."""
RUN_RULES: Final[Mapping[type, list[JsonObject]]] = {
    EnvVar: [
        {
            "rule": "(has(self.value) ? 1 : 0) + (has(self.secretKeyRef) ? 1 : 0) == 1",
            "messageExpression": "'env ' + self.name + ' needs exactly one of value and secretKeyRef'",
        }
    ]
}
"""The rules of a run that its types cannot express, wherever it is declared."""
