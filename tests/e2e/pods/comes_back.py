"""What somebody deletes and Barnabas or Kubernetes makes again."""

import json
from typing import Any

from e2e.pods.castle import Castle
from harness.deadline import PATIENCE_S, wait_for


def uid(castle: Castle, kind: str, name: str) -> str:
    """Empty where there is none, or one that ends."""
    found = castle.ask("get", kind, name, "-ojson")
    meta: dict[str, Any] = json.loads(found.stdout)["metadata"] if found.returncode == 0 else {}
    return "" if "deletionTimestamp" in meta else str(meta.get("uid", ""))


def await_another(castle: Castle, kind: str, name: str, before: str) -> None:
    """Returns when it is there again."""
    wait_for(lambda: uid(castle, kind, name), lambda now: now not in ("", before), PATIENCE_S)


def delete(castle: Castle, kind: str, *names: str, cascade: str = "background") -> None:
    """Returns when all are there again."""
    before = {name: uid(castle, kind, name) for name in names}
    assert all(before.values())
    castle.kubectl("delete", kind, *names, f"--cascade={cascade}", "--wait=false")
    for name, was in before.items():
        await_another(castle, kind, name, was)
