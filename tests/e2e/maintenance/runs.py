"""Runs on a real API server whatever starts their drivers: their statuses, and drivers that the test ends."""

import json
from typing import Final

from barnabas_operator.planning.maintenance.observed_run import DRIVER
from barnabas_operator.resources.kind import Json
from e2e.world import World
from harness.deadline import PATIENCE_S, wait_for

RUN: Final = "MaintenanceJob"
ARCHIVE: Final = {"topic": "flights", "archive": "/archive/flights"}
VOLUMES: Final = [{"name": "archive", "mountPath": "/archive", "claimName": "archives"}]


def status(world: World, name: str) -> Json:
    """Return the status of a run, empty if it has none."""
    found: Json = (world.plane.requests.get(RUN, world.namespace, name) or {}).get("status", {})
    return found


def await_phase(world: World, name: str, phase: str) -> Json:
    """Wait until the run has this phase; return its status."""
    return wait_for(lambda: status(world, name), lambda found: found.get("phase") == phase, PATIENCE_S)


def said(found: Json) -> tuple[str, str]:
    """Return reason and message of the condition Ready."""
    (ready,) = (each for each in found["conditions"] if each["type"] == "Ready")
    return ready["reason"], ready.get("message", "")


def driver_ends(world: World, pod: str, exit_code: int, container: str = DRIVER, **told: object) -> None:
    """End a driver, as a kubelet tells it."""
    ended = {"exitCode": exit_code, "message": json.dumps({"exit": exit_code, **told})}
    of_container = {"name": container, "image": "x", "imageID": "", "ready": False, "restartCount": 0}
    phase = "Failed" if exit_code else "Succeeded"
    statuses = [{**of_container, "state": {"terminated": ended}}]
    world.plane.requests.merge_status("Pod", world.namespace, pod, {"phase": phase, "containerStatuses": statuses})
