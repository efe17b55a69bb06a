"""Deletes objects that Barnabas or Kubernetes makes again."""

import json
from typing import Any

from e2e.pods.castle import Castle
from harness.deadline import PATIENCE_S, wait_for


def uid(castle: Castle, kind: str, name: str) -> str:
    """Return the uid of an object; empty if there is none, or if it is being deleted."""
    found = castle.ask("get", kind, name, "-ojson")
    meta: dict[str, Any] = json.loads(found.stdout)["metadata"] if found.returncode == 0 else {}
    return "" if "deletionTimestamp" in meta else str(meta.get("uid", ""))


def await_another(castle: Castle, kind: str, name: str, before: str) -> None:
    """Return when there is another object of that name."""
    wait_for(lambda: uid(castle, kind, name), lambda now: now not in ("", before), PATIENCE_S)


def delete(castle: Castle, kind: str, *names: str, cascade: str = "background") -> None:
    """Delete objects; return when all of them exist again."""
    before = {name: uid(castle, kind, name) for name in names}
    assert all(before.values())
    castle.kubectl("delete", kind, *names, f"--cascade={cascade}", "--wait=false")
    for name, was in before.items():
        await_another(castle, kind, name, was)
