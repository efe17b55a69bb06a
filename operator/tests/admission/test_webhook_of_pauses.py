"""A Cluster can be paused whatever the API server thinks of its objects by now."""

from typing import Any

from harness.webhook import webhook_said

OBJECTION = "denied the request: every pod needs a label"


def cluster(**spec: Any) -> dict[str, Any]:
    meta = {"name": "one", "namespace": "air", "uid": "u"}
    return {"apiVersion": "barnabas.dev/v1alpha1", "kind": "Cluster", "metadata": meta, "spec": spec}


async def objects(_now: object, _before: object) -> str:
    """What the API server would say since an administrator has added a rule of theirs."""
    return OBJECTION


async def test_a_pause_is_stored_and_its_end_is_looked_at() -> None:
    assert (await webhook_said(cluster(), cluster(pause=True), dry_run=objects))["allowed"]
    ended = await webhook_said(cluster(pause=True), cluster(), dry_run=objects)
    assert ended["status"]["message"] == OBJECTION
