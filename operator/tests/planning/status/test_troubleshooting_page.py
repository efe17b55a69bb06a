"""The page for troubleshooting has every reason that the operator gives a condition or an Event."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import barnabas_operator
from barnabas_operator.resources.cluster_kind import KINDS

SOURCES = Path(barnabas_operator.__file__).parent
PAGE = Path(__file__).resolve().parents[4] / "docs" / "how-to" / "troubleshoot.md"
REASON = re.compile(r"([A-Z][a-z]+)+")
NO_REASONS = {
    "Dead": "a state of groups",
    "Delete": "a policy",
    "FailedCreate": "Kubernetes' own",
    "CrashLoopBackOff": "Kubernetes' own",
    "VolumeResizeFailed": "Kubernetes' own",
    "NotFound": "a mark of a topic",
    "WaitForFirstConsumer": "a mode of storage classes",
    "Ready": "a condition whose reasons are listed",
    "ScalingActive": "a condition whose reasons are listed",
}
KUBERNETES = {
    "HorizontalPodAutoscaler",
    "Job",
    "Lease",
    "PersistentVolumeClaim",
    "Pod",
    "CronJob",
    "Secret",
    "SparkApplication",
}


def constants() -> Iterator[tuple[str, str]]:
    """Yield the module's name and the text of each constant that reads like a reason."""
    folders = ("planning", "resources", "reconcile")
    for path in sorted(path for folder in folders for path in (SOURCES / folder).rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            value = node.value if isinstance(node, ast.AnnAssign) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str) and REASON.fullmatch(value.value):
                yield path.name, value.value


def test_every_reason_has_an_entry_on_the_troubleshooting_page() -> None:
    listed = set(re.findall(r"`(\w+)`", PAGE.read_text(encoding="utf-8")))
    known = listed | NO_REASONS.keys() | KUBERNETES | KINDS.keys()
    found = {name: file for file, name in constants()}
    assert len(found) > 70
    assert {name: file for name, file in found.items() if name not in known} == {}
