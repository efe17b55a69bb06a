"""The command line options of a lag exporter, and the checks whose errors would appear only in the log of its pod."""

import re
from collections.abc import Iterator
from typing import Final

from barnabas_kafka.security import Tls
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.lag_exporter import LagExporter
from barnabas_operator.resources.schema_check import Path, dotted

EXPRESSIONS: Final = {
    "topicRegex": "topic_regex",
    "topicExcludeRegex": "topic_exclude_regex",
    "groupRegex": "group_regex",
    "groupExcludeRegex": "group_exclude_regex",
}


def lag_exporter_problems(cluster: Cluster) -> Iterator[tuple[Path, str]]:
    """Yield each invalid regular expression of the lag exporter: the field and the problem."""
    for name, attribute in EXPRESSIONS.items() if cluster.spec.lag_exporter is not None else ():
        text = getattr(cluster.spec.lag_exporter, attribute)
        try:
            re.compile(text)
        except (re.error, OverflowError, RecursionError) as error:  # The pattern may be too large or nested too deeply.
            path = ("spec", "lagExporter", name)
            yield path, f"{dotted(path)} is {text!r}, which is not a regular expression of Python: {error}"


def name_options(declared: LagExporter) -> list[str]:
    """Return the options of `barnabas lag-exporter` that select topics and groups."""
    return [
        f"--topic.filter={declared.topic_regex}",
        f"--topic.exclude={declared.topic_exclude_regex}",
        f"--group.filter={declared.group_regex}",
        f"--group.exclude={declared.group_exclude_regex}",
    ]


def tls_options(tls: Tls | None) -> list[str]:
    """Return the TLS options of `barnabas lag-exporter`, or none if the brokers have no TLS."""
    if tls is None:
        return []
    files = {"ca-file": tls.ca_file, "cert-file": tls.cert_file, "key-file": tls.key_file}
    return ["--tls.enabled", *(f"--tls.{name}={file}" for name, file in files.items() if file is not None)]
