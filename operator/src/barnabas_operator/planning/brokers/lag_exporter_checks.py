"""The checks of a Cluster's lag exporter, whose errors would otherwise appear only in the log of its pod."""

import re
from collections.abc import Iterator
from typing import Final

from barnabas_operator.resources.cluster import Cluster
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
