"""A Cluster can be paused even if the API server would refuse its objects."""

from typing import Any

from harness.webhook import webhook_said

OBJECTION = "denied the request: every pod needs a label"


def cluster(**spec: Any) -> dict[str, Any]:
    meta = {"name": "one", "namespace": "air", "uid": "u"}
    return {"apiVersion": "barnabas.dev/v1alpha1", "kind": "Cluster", "metadata": meta, "spec": spec}


async def objects(_now: object, _before: object) -> str:
    """Return the API server's objection after an administrator has added a rule."""
    return OBJECTION


async def test_the_webhook_validates_the_end_of_a_pause_but_not_its_start() -> None:
    assert (await webhook_said(cluster(), cluster(pause=True), dry_run=objects))["allowed"]
    ended = await webhook_said(cluster(pause=True), cluster(), dry_run=objects)
    assert ended["status"]["message"] == OBJECTION
