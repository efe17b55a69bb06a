"""`kubectl barnabas reset GROUP`: asks the operator for a reset of a ConsumerGroup, and shows what it does."""

import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from barnabas_kubectl.kubectl import GROUP, JsonObject, Kubectl, KubectlFailed

WAIT_S: Final = 60.0
POLL_S: Final = 0.5
BEGINS: Final = "ResetBegins"
"""The reason of the condition while a share group is about to be reset, which is no answer yet."""
_DURATION: Final = re.compile(r"P(?!$)(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+S)?)?")
ALLOWED: Final = (
    "earliest, latest, a time such as 2026-11-29T08:00:00Z, a duration such as PT2H, or a number such as -100"
)


def position(text: str) -> JsonObject:
    """Return `spec.offsets.reset.to` for a position. Raises ValueError, which says what is allowed."""
    if text in ("earliest", "latest"):
        return {text: {}}
    if _DURATION.fullmatch(text):
        return {"byDuration": text}
    if re.fullmatch(r"[+-]?\d+", text):
        return {"shiftBy": int(text)}
    if re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)", text):
        return {"datetime": text}
    raise ValueError(f"{text!r}; allowed: {ALLOWED}")


def reset_of(identifier: str, to: JsonObject, topics: list[str], *, dry_run: bool) -> JsonObject:
    """Return `spec.offsets.reset`, without fields that were not given."""
    wanted: JsonObject = {"id": identifier, "to": to, "dryRun": dry_run, "topics": topics}
    return {name: value for name, value in wanted.items() if value}


def request(
    kubectl: Kubectl, namespace: str, name: str, wanted: JsonObject, sleep: Callable[[float], None] = time.sleep
) -> JsonObject:
    """Replace the reset of the ConsumerGroup, and return it once the operator has answered. Raises KubectlFailed."""
    where = (f"consumergroups.{GROUP}", name, "-n", namespace)
    has_offsets = "offsets" in (kubectl.json("get", *where).get("spec") or {})
    path, value = ("/spec/offsets/reset", wanted) if has_offsets else ("/spec/offsets", {"reset": wanted})
    change = json.dumps([{"op": "add", "path": path, "value": value}])
    patched = json.loads(kubectl.bytes("patch", *where, "--type=json", "-p", change, "-o", "json"))
    generation = patched["metadata"]["generation"]
    for _ in range(int(WAIT_S / POLL_S)):
        found = kubectl.json("get", *where)
        answer = condition(found)
        if answer is not None and answer.get("observedGeneration", 0) >= generation and answer["reason"] != BEGINS:
            return found
        sleep(POLL_S)
    raise KubectlFailed(
        f"the operator has not answered within {WAIT_S:.0f} s: does it run? `kubectl get pods -A` shows it"
    )


def condition(group: JsonObject) -> JsonObject | None:
    """Return the condition `OffsetsReset`; None if the operator has not set it yet."""
    found: Iterator[Any] = (
        each for each in (group.get("status") or {}).get("conditions") or () if each["type"] == "OffsetsReset"
    )
    return next(found, None)


def report(group: JsonObject) -> Iterator[str]:
    """Yield the lines that say what the reset does: its condition, and the plan of its first partitions."""
    answer = condition(group) or {}
    yield f"{answer.get('reason')}: {answer.get('message')}"
    plan = ((group.get("status") or {}).get("reset") or {}).get("plan") or ()
    if plan:
        yield f"{'TOPIC':<40} {'PARTITION':>9} {'FROM':>12} {'TO':>12}"
    for each in plan:
        before = "-" if each.get("from") is None else each["from"]
        yield f"{each['topic']:<40} {each['partition']:>9} {before:>12} {each['to']:>12}"
