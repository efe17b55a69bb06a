"""The table of jobs."""

import importlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from barnabas_jobs.spark.partition_tasks import ONE_TASK_EACH


class Job(NamedTuple):
    """A job: a module with `Options` and `run(spark, options) -> Result`, and a summary for the list of jobs.

    `conf` holds the settings of Spark that the job needs.
    """

    module: str
    summary: str
    conf: Mapping[str, str] = {}

    def load(self) -> Any:
        """Import and return the module of the job."""
        return importlib.import_module(self.module)


JOBS: Final = {
    "archive": Job("barnabas_jobs.jobs.archive", "copies a topic to Parquet files, incrementally and exactly once"),
    "audit": Job("barnabas_jobs.jobs.audit", "checks segments, indexes and replicas in log dirs"),
    "compact": Job("barnabas_jobs.jobs.compact", "joins the small files of an archive into larger files"),
    "lag-history": Job(
        "barnabas_jobs.jobs.lag_history",
        "reports the lag of consumer groups over time, and the groups that missed an objective",
    ),
    "restore": Job(
        "barnabas_jobs.jobs.restore",
        "restores an archive, or a part of an archive, into a topic, resumably and exactly once",
        ONE_TASK_EACH,
    ),
    "retention-audit": Job(
        "barnabas_jobs.jobs.retention_audit", "compares the declared retention of topics with the age of their records"
    ),
    "skew": Job(
        "barnabas_jobs.jobs.skew",
        "reports bytes by broker, log dir and partition, and the most frequent keys; plans reassignments that "
        "balance the brokers",
    ),
    "verify": Job("barnabas_jobs.jobs.verify", "compares an archive with its topic by counts, gaps and checksums"),
}


def listing() -> str:
    """Return the list of jobs with the options of each, required options first."""
    return "\n".join(f"{name:<18}{job.summary}\n{'':<18}{_options(job.load().Options)}" for name, job in JOBS.items())


def _options(kind: type[msgspec.Struct]) -> str:
    fields = msgspec.structs.fields(kind)
    shown = [f"{field.name}=" if field.required else f"[{field.name}={_default(field)}]" for field in fields]
    return " ".join(sorted(shown, key=lambda each: each.startswith("[")))


def _default(field: Any) -> str:
    value = field.default
    if value is msgspec.NODEFAULT or value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
