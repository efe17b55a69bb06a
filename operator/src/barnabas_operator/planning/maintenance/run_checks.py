"""The checks of the spec of a MaintenanceJob or of an entry in `spec.maintenance`."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec

from barnabas_operator.planning import object_names
from barnabas_operator.planning.object_names import (
    MAINTENANCE_CLUSTER_LABEL,
    SCHEDULE_LABEL,
    application_name,
    driver_name,
    maintenance_name,
    run_labels,
    shortened_name,
)
from barnabas_operator.resources.kind import API_VERSION, Json, quantity_value, shown_amount
from barnabas_operator.resources.maintenance_run import (
    JOB_TABLE,
    MAINTENANCE_JOB,
    JobOption,
    JobRule,
    MaintenanceEntry,
    MaintenanceJob,
    PodResources,
    RunPod,
    RunSpec,
    RunVolume,
)

DRIVER_PORT: Final = 7078
BLOCKS_PORT: Final = 7079
APP_NAME_LENGTH_MAX: Final = 28
"""The maximum length of `spark.app.name`, without the id that Spark appends in the names of executors."""
HEAP_PERCENT: Final = 60
"""The percentage of a pod's memory for the heap; Python, the network and the JVM itself use the remaining memory."""
MEMORY_DEFAULT: Final = "2Gi"
MIB: Final = 1 << 20
KUBEFLOW_LABEL: Final = "sparkoperator.k8s.io/app-name"
"""The label by which Kubeflow's Spark operator finds the executors of an application."""
EXECUTOR_TEMPLATE_PATH: Final = "/etc/barnabas"
EXECUTOR_TEMPLATE: Final = "executor-pod.yaml"
"""The file in the driver's pod with the pod template of the executors."""
POD_NAME: Final = "$(BARNABAS_POD_NAME)"
"""The reference to a variable with the pod name, which Kubernetes expands in the driver's container."""
KUBERNETES: Final = "k8s://https://kubernetes.default.svc:443"
RUN: Final = "spark.barnabas.run"
"""The Spark setting with the uid of the run. By the uid, a driver finds the state that an earlier attempt stored."""
OPERATOR_SETS: Final = (
    RUN,
    "spark.app.name",
    "spark.master",
    "spark.submit.",
    "spark.driver.host",
    "spark.driver.port",
    "spark.driver.bindAddress",
    "spark.driver.blockManager.port",
    "spark.driver.memory",
    "spark.executor.memory",
    "spark.executor.memoryOverhead",
    "spark.executor.cores",
    "spark.executor.instances",
    "spark.executorEnv.",
    # The driver's program authenticates and encrypts Spark's connections.
    "spark.authenticate",
    "spark.authenticate.",
    "spark.network.crypto.",
    "spark.ssl.rpc.",
    "spark.eventLog.enabled",
    "spark.eventLog.dir",
    "spark.kubernetes.namespace",
    "spark.kubernetes.container.image",
    "spark.kubernetes.driver.",
    "spark.kubernetes.authenticate.",
    "spark.kubernetes.executor.podNamePrefix",
    "spark.kubernetes.executor.podTemplateFile",
    "spark.kubernetes.executor.label.",
    "spark.kubernetes.executor.request.cores",
    "spark.kubernetes.executor.limit.cores",
    "spark.kubernetes.executor.secretKeyRef.",
    "spark.kubernetes.executor.volumes.",
)
"""The settings that a run must not set; an entry that ends in a dot stands for all settings with that prefix."""


def literal(text: str) -> str:
    """Return the text with each `$` doubled, because Kubernetes replaces `$(NAME)` by a variable's value.

    Kubernetes replaces `$$` by `$`.
    """
    return text.replace("$", "$$")


def is_set_by_operator(name: str) -> bool:
    """True if the operator sets the setting, so that a run must not set it."""
    return any(name == each or (each.endswith(".") and name.startswith(each)) for each in OPERATOR_SETS)


def master_of(run: MaintenanceJob) -> str:
    """Return Spark's master: Kubernetes, or `local[N]` if the run has no executors.

    `local[*]` would use as many cores as the node has, and not as many as the pod may use.
    """
    return KUBERNETES if run.spec.executors else f"local[{whole_cores(run.spec.driver.resources)}]"


def spark_conf(run: MaintenanceJob, cluster: str, image: str) -> Mapping[str, str]:
    """Return the Spark settings of the run; the operator's settings override the settings in the spec.

    Kubernetes expands the variable `POD_NAME` in the values.
    """
    own = {
        **run.spec.spark_conf,
        RUN: run.metadata.uid or "",
        "spark.driver.memory": f"{heap_mib(run.spec.driver.resources)}m",
    }
    logs = run.spec.event_logs
    if logs is not None:
        own |= {"spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file:{logs.mount_path}"}
    return own if not run.spec.executors else own | _driver(run, cluster, image) | dict(_executors(run, cluster))


def _driver(run: MaintenanceJob, cluster: str, image: str) -> dict[str, str]:
    meta, of_kubernetes = run.metadata, "spark.kubernetes"
    namespace, account = meta.namespace or "default", maintenance_name(cluster)
    return {
        "spark.app.name": shortened_name(meta.name, APP_NAME_LENGTH_MAX),
        "spark.driver.host": f"{driver_name(meta.name)}.{namespace}.svc",
        "spark.driver.bindAddress": "0.0.0.0",
        "spark.driver.port": str(DRIVER_PORT),
        "spark.driver.blockManager.port": str(BLOCKS_PORT),
        f"{of_kubernetes}.namespace": namespace,
        f"{of_kubernetes}.driver.pod.name": POD_NAME,
        f"{of_kubernetes}.container.image": image,
        f"{of_kubernetes}.authenticate.executor.serviceAccountName": account,
        f"{of_kubernetes}.executor.podTemplateFile": f"{EXECUTOR_TEMPLATE_PATH}/{EXECUTOR_TEMPLATE}",
        # The driver has rights only for pods and ConfigMaps, not for Services and PersistentVolumeClaims.
        f"{of_kubernetes}.driver.service.deleteOnTermination": "false",
        f"{of_kubernetes}.driver.ownPersistentVolumeClaim": "false",
        f"{of_kubernetes}.driver.reusePersistentVolumeClaim": "false",
    }


def _executors(run: MaintenanceJob, cluster: str) -> Iterator[tuple[str, str]]:
    resources, executor = run.spec.executor.resources, "spark.kubernetes.executor"
    heap, whole = heap_mib(resources), memory_mib(resources)
    yield "spark.executor.instances", str(run.spec.executors)
    yield "spark.executor.memory", f"{heap}m"
    yield "spark.executor.memoryOverhead", f"{whole - heap}m"
    yield "spark.executor.cores", str(whole_cores(resources))
    for field, amounts in (("request", resources.requests), ("limit", resources.limits)):
        if "cpu" in amounts:
            yield f"{executor}.{field}.cores", str(amounts["cpu"])
    for name, value in run_labels(cluster, run.metadata.name, "executor").items():
        yield f"{executor}.label.{name}", value
    if run.spec.backend == "Kubeflow":
        yield f"{executor}.label.{KUBEFLOW_LABEL}", application_name(run.metadata.name)
    for volume in run.spec.volumes:
        yield from _volume(volume)
    for each in run.spec.env:
        if each.secret_key_ref is not None:
            yield f"{executor}.secretKeyRef.{each.name}", f"{each.secret_key_ref.name}:{each.secret_key_ref.key}"
        else:
            yield f"spark.executorEnv.{each.name}", literal(each.value or "")  # Kubernetes would expand `$(NAME)`.


def _volume(volume: RunVolume) -> Iterator[tuple[str, str]]:
    prefix = f"spark.kubernetes.executor.volumes.persistentVolumeClaim.{volume.name}"
    yield f"{prefix}.mount.path", volume.mount_path
    yield f"{prefix}.mount.readOnly", str(volume.read_only).lower()
    yield f"{prefix}.options.claimName", volume.claim_name


def memory_mib(resources: PodResources) -> int:
    """Return the memory of a pod in MiB: the limit, or else the request, or else `MEMORY_DEFAULT`."""
    memory = resources.limits.get("memory", resources.requests.get("memory", MEMORY_DEFAULT))
    return int(quantity_value(memory)) // MIB


def heap_mib(resources: PodResources) -> int:
    """Return the heap of a pod's JVM in MiB."""
    return memory_mib(resources) * HEAP_PERCENT // 100


def whole_cores(resources: PodResources) -> int:
    """Return the number of tasks that Spark runs in a pod at the same time: its whole cores, at least 1."""
    cpu = resources.limits.get("cpu", resources.requests.get("cpu", 1))
    return max(1, int(quantity_value(cpu)))


MEMORY_MIN: Final = "1Gi"
TMP: Final = "tmp"
TMP_PATH: Final = "/tmp"
EVENT_LOGS: Final = "event-logs"
EXECUTOR_POD: Final = "executor-pod"
OWN_VOLUMES: Final = (TMP, EVENT_LOGS, EXECUTOR_POD, object_names.VOLUME)
OWN_FOLDERS: Final = frozenset({TMP_PATH, EXECUTOR_TEMPLATE_PATH, object_names.FOLDER})
"""The mount paths of the volumes that the operator adds to every run."""
OF_OTHERS: Final = ("BARNABAS_", "SPARK_")
"""The prefixes of environment variables that the operator and Spark set in pods."""
NO_SPARK_OPERATOR: Final = "SparkOperatorNotFound"
SPARK_OPERATOR_MISSING: Final = (
    "backend is Kubeflow, but the API server has no kind SparkApplication (sparkoperator.k8s.io/v1beta2); install "
    "Kubeflow's Spark operator, or set backend to Kubernetes"
)
FOLDERS: Final = ("archive", "report", "state")
"""The options of jobs that name a folder to write to."""
OBJECT_STORE: Final = "s3a://"
CONF_NAME: Final = re.compile(r"spark\.[^=\s]+")
BOOTSTRAP: Final = "bootstrap"
"""The job option that names the bootstrap servers; only the operator may set the option."""
CATALOG: Final = "catalog"
NAMESPACE: Final = "namespace"
OF_FIELDS: Final = (CATALOG, NAMESPACE)
"""The job options that are fields of the spec, because a map has no other place there."""
SECRET_PROPERTY: Final = re.compile(
    r"(^|[.-])(credential|token|secret|password|access-key-id)($|[.-])|://[^/@]*:[^/@]*@"
)
"""The pattern of the name or value of a catalog's property with a secret, such as s3.secret-access-key."""
REPORT: Final = "report"
"""The option for a report folder, which must not exist before the run."""
DIGITS_MAX: Final = 20


def run_problems(run: RunSpec, at: str = "spec") -> Iterator[str]:
    """Yield a message for each invalid field of the run. Field paths in the messages begin with the path `at`."""
    job = JOB_TABLE.get(run.job)
    if job is None:
        yield f"{at}.job is {run.job}; allowed: {', '.join(sorted(JOB_TABLE))}"
    else:
        yield from _option_problems(run, f"{at}.options")
        yield from _catalog_problems(run, at)
        yield from _place_problems(run, at)
    yield from _env_problems(run, at)
    yield from _volume_problems(run, at)
    yield from _conf_problems(run, f"{at}.sparkConf")
    yield from _pod_problems(run.driver, f"{at}.driver.resources")
    yield from _pod_problems(run.executor, f"{at}.executor.resources")


def entry_problems(entries: Iterable[MaintenanceEntry]) -> Iterator[tuple[str, str]]:
    """Yield a pair for each problem in `spec.maintenance`: the name of the entry with the problem, and a message."""
    for index, entry in enumerate(entries):
        for problem in run_problems(entry, f"spec.maintenance[{index}]"):
            yield entry.name, problem


def _place_problems(run: RunSpec, at: str) -> Iterator[str]:
    """Yield a message for each option whose folder is neither on a volume of the run nor in an object store.

    Other files are lost with the pods.
    """
    mounts = [PurePosixPath(volume.mount_path) for volume in run.volumes]
    for name in FOLDERS:
        value = run.options.get(name, OBJECT_STORE)
        folder = PurePosixPath(value)
        is_kept = ".." not in folder.parts and any(folder.is_relative_to(mount) for mount in mounts)
        if not (value.startswith(OBJECT_STORE) or is_kept):
            below = (
                ", ".join(f"{mount}/..." for mount in mounts)
                or "the run has no volume yet; add a volume to the field volumes"
            )
            yield (
                f"{at}.options.{name} is {value}; allowed: a folder on one of the run's volumes ({below}), "
                "or a URL that begins with s3a://"
            )


def _env_problems(run: RunSpec, at: str) -> Iterator[str]:
    for each in run.env:
        if (each.value is None) == (each.secret_key_ref is None):
            yield f"{at}.env: the variable {each.name} needs exactly one of value and secretKeyRef"
        if each.name.startswith(OF_OTHERS):
            yield (
                f"{at}.env has the variable {each.name}, which the operator or Spark sets; "
                f"a name must begin neither with {' nor with '.join(OF_OTHERS)}"
            )


def _volume_problems(run: RunSpec, at: str) -> Iterator[str]:
    """Yield volumes with a reserved name, and volumes whose mount path is reserved or used by another volume."""
    taken = OWN_FOLDERS | ({run.event_logs.mount_path} if run.event_logs is not None else set())
    for each in run.volumes:
        if each.name in OWN_VOLUMES:
            yield f"{at}.volumes has a volume {each.name}, but the operator reserves the name; choose another name"
        if each.mount_path in taken:
            yield (
                f"{at}.volumes {each.name} is mounted at {each.mount_path}, which another volume uses; "
                "choose another path"
            )
        taken |= {each.mount_path}


def _conf_problems(run: RunSpec, at: str) -> Iterator[str]:
    for name, value in run.spark_conf.items():
        if CONF_NAME.fullmatch(name) is None:
            yield f"{at} has {name}; allowed: names that begin with spark. and contain neither '=' nor spaces"
        elif is_set_by_operator(name):
            yield f"{at}.{name} is {value}; remove the setting, because the operator sets it"


def _pod_problems(pod: RunPod, at: str) -> Iterator[str]:
    """Yield a message if the memory is too small for Spark, and for each request above its limit.

    Kubernetes would refuse a request above its limit only at the creation of the pod.
    """
    requests, limits = pod.resources.requests, pod.resources.limits
    for name, asked in requests.items():
        limit = limits.get(name)
        if limit is not None and quantity_value(asked) > quantity_value(limit):
            yield f"{at}.requests.{name} is {asked}; allowed: at most {limit}, the value in limits"
    memory = limits.get("memory", requests.get("memory"))
    if memory is not None and quantity_value(memory) < quantity_value(MEMORY_MIN):
        field = "limits" if "memory" in limits else "requests"
        yield f"{at}.{field}.memory is {shown_amount(memory)}; allowed: {MEMORY_MIN} or more, which Spark needs"


def _option_problems(run: RunSpec, at: str) -> Iterator[str]:
    """Yield a message for each invalid option: name, value and what is allowed."""
    job = JOB_TABLE[run.job]
    known = {name: each for name, each in job.options.items() if name not in (BOOTSTRAP, *OF_FIELDS)}
    if BOOTSTRAP in run.options and BOOTSTRAP in job.options:
        yield f"{at}.{BOOTSTRAP} is {run.options[BOOTSTRAP]}; remove the option, because the operator sets it"
    for name, value in run.options.items():
        if name in known and not _fits(known[name], value):
            yield f"{at}.{name} is {value!r}; allowed: {known[name].allowed}"
        elif name.partition(".")[0] in OF_FIELDS and CATALOG in job.options:
            field = name.partition(".")[0]
            yield f"{at}.{name} is {value}; remove the option, and set the field {at.removesuffix('.options')}.{field}"
        elif name not in job.options:
            yield f"{at}.{name} is not an option of {run.job}; allowed: {', '.join(known)}"
    for name, option in known.items():
        if option.required and name not in run.options:
            yield f"{at}.{name} is missing; allowed: {option.allowed}"
    yield from _rule_problems(job.rules, known, run.options, at)
    yield from _bucket_problems(job.rules, run, at)


def _catalog_problems(run: RunSpec, at: str) -> Iterator[str]:
    """Yield a message for each invalid property of the catalog, and if the job has no archive."""
    option = JOB_TABLE[run.job].options.get(CATALOG)
    if option is None:
        given = [name for name, value in ((CATALOG, run.catalog), (NAMESPACE, run.namespace)) if value]
        for name in given:
            yield f"{at}.{name} is given; remove the field, because the job {run.job} has no archive"
        return
    for name, value in run.catalog.items():
        if SECRET_PROPERTY.search(name) or SECRET_PROPERTY.search(value):
            variable = f"PYICEBERG_CATALOG__BARNABAS__{name.upper().replace('-', '_').replace('.', '__')}"
            yield (
                f"{at}.{CATALOG}.{name} has a secret; remove the property, and set the variable {variable} in "
                f"{at}.env by secretKeyRef"
            )
        elif option.pattern is not None and re.search(option.pattern, f"{name}={value}") is None:
            yield f"{at}.{CATALOG}.{name} is {value!r}; allowed: {option.allowed.replace('catalog.', f'{at}.catalog.')}"


def _bucket_problems(rules: tuple[JobRule, ...], run: RunSpec, at: str) -> Iterator[str]:
    """Yield a message if an option is in a bucket, and the field that it then needs is not given."""
    for rule in rules:
        value = run.options.get(rule.option, "")
        if rule.kind == "bucket-needs" and value.startswith(OBJECT_STORE) and not getattr(run, rule.other):
            field = f"{at.removesuffix('.options')}.{rule.other}"
            yield f"{at}.{rule.option} is {value}, and {field} is not given; allowed: {rule.allowed}"


def _rule_problems(
    rules: tuple[JobRule, ...], known: Mapping[str, JobOption], given: Mapping[str, str], at: str
) -> Iterator[str]:
    """Yield the problems of options that contradict each other, or lack an option that they need."""
    for rule in rules:
        if rule.kind == "bucket-needs":
            continue
        one, other = (_value(known[name], given.get(name)) for name in (rule.option, rule.other))
        broken = {
            "ordered": one is not None and other is not None and one >= other,
            "needs": one is not None and other is not True,
            "excludes": bool(one) and bool(other),
        }
        if broken[rule.kind]:
            shown = f"{given[rule.option]}, and {at}.{rule.other} is {given.get(rule.other, 'not given')}"
            yield f"{at}.{rule.option} is {shown}; allowed: {rule.allowed}"


def _value(option: JobOption, text: str | None) -> Any:
    """Return the value of an option, or None if the option is missing or invalid."""
    if text is None or not _fits(option, text):
        return None
    if option.type == "boolean":
        return text == "true"
    if option.type == "string":
        return text
    return datetime.fromisoformat(text) if option.type == "time" else float(text)


def _fits(option: JobOption, value: str) -> bool:
    return all(_item_fits(option, item) for item in (value.split(",") if option.list else [value]))


def _item_fits(option: JobOption, value: str) -> bool:
    if option.type == "boolean":
        return value in ("true", "false")
    if option.type == "time":
        return _is_time(value)
    if option.type in ("integer", "number"):
        return _is_number(option, value)
    if option.choices:
        return value in option.choices
    return option.pattern is None or re.search(option.pattern, value) is not None


def _is_number(option: JobOption, value: str) -> bool:
    if len(value) > DIGITS_MAX:
        return False
    try:
        found = int(value) if option.type == "integer" else float(value)
    except ValueError:
        return False
    low = -math.inf if option.minimum is None else option.minimum
    high = math.inf if option.maximum is None else option.maximum
    return math.isfinite(found) and low <= found <= high


def _is_time(value: str) -> bool:
    """True if the text is a time with a time zone."""
    try:
        return "T" in value and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


OF_ITS_JOB: Final = "ttlSecondsAfterFinished"
"""The field for how long the CronJob's Job stays after its end.

The MaintenanceJob is deleted together with that Job, so the field is not copied to the MaintenanceJob.
"""
OF_RUNS: Final = frozenset(each.encode_name for each in msgspec.structs.fields(RunSpec)) - {OF_ITS_JOB}
"""The fields of an entry in `spec.maintenance` that are copied to its MaintenanceJobs.

The other fields are about schedule and history.
"""


def scheduled_run(cluster: Json, entry: str, job_name: str, job_uid: str) -> dict[str, Any]:
    """Return the MaintenanceJob for an entry of `spec.maintenance`.

    The MaintenanceJob has the name of the CronJob's Job, and that Job as its owner. Each MaintenanceJob writes its
    report to a folder of its own, below the folder in the entry.

    Raises LookupError if the Cluster has no such entry.
    """
    entries = {each["name"]: each for each in cluster.get("spec", {}).get("maintenance", ())}
    meta = cluster["metadata"]
    if entry not in entries:
        there = ", ".join(entries) or "none, because spec.maintenance is empty"
        raise LookupError(f"Cluster {meta['name']} has no entry {entry} in spec.maintenance; allowed: {there}")
    run = {name: value for name, value in entries[entry].items() if name in OF_RUNS}
    report = run.get("options", {}).get(REPORT)
    if report is not None:
        run["options"] = {**run["options"], REPORT: f"{report.rstrip('/')}/{job_name}"}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job_name, "uid": job_uid}
    return {
        "apiVersion": API_VERSION,
        "kind": MAINTENANCE_JOB.name,
        "metadata": {
            "name": job_name,
            "namespace": meta["namespace"],
            "labels": {SCHEDULE_LABEL: entry, MAINTENANCE_CLUSTER_LABEL: meta["name"]},
            "ownerReferences": [owner],
        },
        "spec": {**run, "cluster": meta["name"]},
    }
