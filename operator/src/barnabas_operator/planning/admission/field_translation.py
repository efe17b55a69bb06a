"""The translation of field paths in the API server's messages to fields of Barnabas resources."""

import re
from typing import Final

_ABOUT: Final = re.compile(
    r'^\S+ "[^"]*" is invalid: |^.*: strict decoding error: '
    r"|^failed to create typed patch object \([^)]*\): (errors:\s*)?\."
)
_OF_BROKERS: Final = (
    (r"spec\.template\.spec\.containers\[0\]\.resources", "spec.brokers.resources"),
    (r"spec\.template\.spec\.containers\[0\]", "spec.template.brokerContainer"),
    (r"spec\.template\.spec\b", "spec.template.pod.spec"),
    (r"spec\.template(?:\.metadata)?\.(labels|annotations)", r"spec.template.pod.metadata.\1"),
)
_EXPORTER: Final = "spec.lagExporter"
_ITS_CONTAINER: Final = r"spec\.template\.spec\.containers\[(?:0|name=\"lag-exporter\")\]"
_OF_THE_LAG_EXPORTER: Final = (
    (rf"{_ITS_CONTAINER}\.(resources|image)\b", rf"{_EXPORTER}.\1"),
    (_ITS_CONTAINER, f"{_EXPORTER}.template.container"),
    (r"spec\.template\.spec\b", f"{_EXPORTER}.template.pod.spec"),
    (r"spec\.template(?:\.metadata)?\.(labels|annotations)", rf"{_EXPORTER}.template.pod.metadata.\1"),
)
_OF_SCHEDULES: Final = ((r"\bspec\.(schedule|timeZone|startingDeadlineSeconds)\b", r"spec.maintenance[].\1"),)
JOB: Final = "Job"
_OF_RUNS: Final = ((r"spec\.template\.spec\b", "spec.template.pod.spec"),)
_FIELDS: Final = {
    JOB: _OF_RUNS,
    "StatefulSet": _OF_BROKERS,
    "Deployment": _OF_THE_LAG_EXPORTER,
    "CronJob": _OF_SCHEDULES,
}


def in_declared_fields(kind: str, message: str) -> str:
    """Replace the Kubernetes field paths in an API server's message by the field paths of the Barnabas resource.

    Paths of fields that only the operator sets stay the same. The introduction of the message, such as
    `Job "a" is invalid:`, is removed.
    """
    said = _ABOUT.sub("", message)
    for theirs, ours in _FIELDS.get(kind, ()):
        said = re.sub(theirs, ours, said)
    return said
