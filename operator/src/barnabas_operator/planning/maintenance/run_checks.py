"""The checks of the spec of a MaintenanceJob or of an entry in `spec.maintenance`."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any, Final

from barnabas_operator.planning import mounted_client
from barnabas_operator.planning.maintenance.spark_conf import EXECUTOR_TEMPLATE_PATH, is_set_by_operator
from barnabas_operator.resources.job_table import JOB_TABLE, JobOption, JobRule
from barnabas_operator.resources.maintenance_entry import MaintenanceEntry
from barnabas_operator.resources.maintenance_run import RunPod, RunSpec
from barnabas_operator.resources.quantity import quantity_value, shown_amount

MEMORY_MIN: Final = "1Gi"
TMP: Final = "tmp"
TMP_PATH: Final = "/tmp"
EVENT_LOGS: Final = "event-logs"
EXECUTOR_POD: Final = "executor-pod"
OWN_VOLUMES: Final = (TMP, EVENT_LOGS, EXECUTOR_POD, mounted_client.VOLUME)
OWN_FOLDERS: Final = frozenset({TMP_PATH, EXECUTOR_TEMPLATE_PATH, mounted_client.FOLDER})
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
    known = {name: each for name, each in job.options.items() if name != BOOTSTRAP}
    if BOOTSTRAP in run.options and BOOTSTRAP in job.options:
        yield f"{at}.{BOOTSTRAP} is {run.options[BOOTSTRAP]}; remove the option, because the operator sets it"
    for name, value in run.options.items():
        if name in known and not _fits(known[name], value):
            yield f"{at}.{name} is {value!r}; allowed: {known[name].allowed}"
        elif name not in job.options:
            yield f"{at}.{name} is not an option of {run.job}; allowed: {', '.join(known)}"
    for name, option in known.items():
        if option.required and name not in run.options:
            yield f"{at}.{name} is missing; allowed: {option.allowed}"
    yield from _rule_problems(job.rules, known, run.options, at)


def _rule_problems(
    rules: tuple[JobRule, ...], known: Mapping[str, JobOption], given: Mapping[str, str], at: str
) -> Iterator[str]:
    """Yield the problems of options that contradict each other, or lack an option that they need."""
    for rule in rules:
        one, other = (_value(known[name], given.get(name)) for name in (rule.option, rule.other))
        broken = {
            "ordered": one is not None and other is not None and one >= other,
            "needs": one is not None and other is not True,
            "excludes": one is True and other is True,
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
