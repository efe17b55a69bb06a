"""An upgrade and a downgrade under traffic, and refusals once the metadata level is raised.

The next version is this version with a higher level, which a module in a ConfigMap sets; Python imports it first.
So its pods differ from ours like those of another image.
"""

import json
from typing import Any, Final

import pytest
from kafka.admin import UpdateFeatureType

from barnabas_core.conventions import METADATA_LEVEL, METADATA_LEVEL_MAX
from barnabas_operator.app.cluster_options import SystemClock
from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from e2e.pods.castle import NAME, POLL_S, READY_SECONDS_MAX, Castle
from e2e.pods.figures import Figures
from e2e.pods.under_traffic import under_traffic
from harness.deadline import wait_for

pytestmark = pytest.mark.soak(only=True)

NEXT: Final = METADATA_LEVEL_MAX + 1
NEXT_VERSION: Final = "next-version"
FOLDER: Final = "/etc/next-version"
RAISE: Final = f"""
from barnabas_core import metadata_level

metadata_level.METADATA_LEVEL_MAX = {NEXT}
"""
OLDER_IMAGE: Final = "registry.invalid/barnabas-broker:older"


def next_version(castle: Castle) -> dict[str, Any]:
    """Return the template of pods of the next version."""
    content = {"metadata": {"name": NEXT_VERSION}, "data": {"sitecustomize.py": RAISE}}
    castle.kubectl("apply", "-f-", stdin=json.dumps({"apiVersion": "v1", "kind": "ConfigMap", **content}))
    return {
        "pod": {"spec": {"volumes": [{"name": NEXT_VERSION, "configMap": {"name": NEXT_VERSION}}]}},
        "brokerContainer": {
            "env": [{"name": "PYTHONPATH", "value": FOLDER}],
            "volumeMounts": [{"name": NEXT_VERSION, "mountPath": FOLDER}],
        },
    }


def roll(castle: Castle, **spec: object) -> None:
    """Change the Cluster, and wait until every broker has restarted and is in sync."""
    before = castle.pods()
    castle.patch(spec)
    castle.await_new_pods(before)
    castle.await_ready()


def await_level(castle: Castle, level: int) -> None:
    """Wait until the brokers have finalized that level."""
    wait_for(
        lambda: castle.read("cluster", NAME)["status"]["metadataVersion"],
        lambda now: now == level,
        READY_SECONDS_MAX,
        POLL_S,
    )


def await_refusal(castle: Castle, begins: str) -> None:
    """Wait until the condition Ready says that something is not supported."""
    wait_for(
        lambda: (castle.condition("Ready").get("reason"), castle.condition("Ready").get("message", "")),
        lambda now: now[0] == "NotSupported" and now[1].startswith(begins),
        READY_SECONDS_MAX,
        POLL_S,
    )


def lower_by_hand(castle: Castle, level: int) -> None:
    """Pause, lower the level and pin it, as the page about upgrades says."""
    castle.patch({"pause": True})
    wait_for(castle.conditions, lambda now: "ReconciliationPaused" in now, READY_SECONDS_MAX, POLL_S)
    with ClusterAdmin(castle.bootstrap, SystemClock()) as admin:
        client: Any = admin.client
        answer = client.update_features({METADATA_LEVEL: (UpdateFeatureType.SAFE_DOWNGRADE, level)})
    assert answer == {METADATA_LEVEL: "OK"}
    castle.patch({"pause": False, "metadataVersion": level})


def test_an_upgrade_and_a_downgrade_lose_nothing_while_the_level_is_pinned(castle: Castle, figures: Figures) -> None:
    await_level(castle, METADATA_LEVEL_MAX)
    castle.patch({"metadataVersion": METADATA_LEVEL_MAX})
    with under_traffic(castle, figures, "a version up and down", "up-and-down"):
        roll(castle, template=next_version(castle))
        roll(castle, template=None)
    await_level(castle, METADATA_LEVEL_MAX)
    castle.patch({"metadataVersion": None})


def test_a_downgrade_below_the_finalized_level_is_refused_until_the_level_is_lowered(
    castle: Castle, figures: Figures
) -> None:
    await_level(castle, METADATA_LEVEL_MAX)
    with under_traffic(castle, figures, "a version up, what is refused, and down by hand", "back-by-hand"):
        roll(castle, template=next_version(castle))
        await_level(castle, NEXT)
        before = castle.pods()
        castle.release("upgrade", f"brokerImage={OLDER_IMAGE}")
        await_refusal(castle, f"brokerImage is {OLDER_IMAGE}, whose brokers support")
        castle.release("upgrade")
        castle.await_ready()
        pin = json.dumps({"spec": {"metadataVersion": METADATA_LEVEL_MAX}})
        refused = castle.ask("patch", "cluster", NAME, "--type=merge", f"--patch={pin}")
        assert f"spec.metadataVersion is {METADATA_LEVEL_MAX}; allowed: {NEXT} or more" in refused.stderr
        assert castle.pods() == before
        lower_by_hand(castle, METADATA_LEVEL_MAX)
        roll(castle, template=None)
    castle.patch({"metadataVersion": None})
    await_level(castle, METADATA_LEVEL_MAX)
