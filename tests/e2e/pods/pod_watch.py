"""Finds out by repeated looks which pods of a Cluster were down at the same time, and whether it stayed ready."""

from collections.abc import Mapping
from typing import Any

from e2e.pods.castle import Castle


class PodWatch:
    """A watch that begins when it is made."""

    def __init__(self, castle: Castle) -> None:
        self._castle = castle
        self._before = castle.pods()
        self._were_ready = set(self._before.values())
        """The pods that were ready. A probe that a busy node delays does not count as down."""
        self.down: set[frozenset[str]] = set()
        """The sets of pods that were seen down together."""
        self.unready: set[str] = set()
        """The messages of the Cluster whenever it was not ready."""

    def look(self) -> bool:
        """Look once; return whether the pods of all brokers have been replaced and are ready."""
        found = {pod["metadata"]["name"]: pod for pod in self._castle.pod_items()}
        self._were_ready |= {pod["metadata"]["uid"] for pod in found.values() if _is_ready(pod)}
        down = frozenset(self._before.keys() - {name for name, pod in found.items() if self._is_up(pod)})
        self.down |= {down} if down else set()
        ready = self._castle.condition("Ready")
        self.unready |= {f"{ready['reason']}: {ready.get('message', '')}"} if ready["status"] != "True" else set()
        return not down and not {pod["metadata"]["uid"] for pod in found.values()} & set(self._before.values())

    def _is_up(self, pod: Mapping[str, Any]) -> bool:
        return pod["metadata"]["uid"] in self._were_ready and "deletionTimestamp" not in pod["metadata"]


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions", [])}
    return conditions.get("Ready") == "True"
