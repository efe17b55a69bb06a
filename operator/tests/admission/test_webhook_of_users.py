"""A User cannot have the name of a user that the Cluster has itself."""

from typing import Any

import pytest

from barnabas_operator.observed.inventory import Inventory
from barnabas_operator.resources.kind import Key
from harness.webhook import webhook_said
from harness.worker_world import resource


def user(name: str) -> dict[str, Any]:
    return resource("User", name, cluster="one", authentication={"type": "scram-sha-512"})


@pytest.mark.parametrize("insecure", [False, True])
async def test_the_webhook_refuses_a_user_with_the_name_of_the_administrator_of_a_secured_cluster(
    insecure: bool,
) -> None:
    inventory = Inventory()
    inventory.clusters[Key("air", "one")] = resource("Cluster", "one", insecure=insecure)
    assert (await webhook_said(None, user("alice"), inventory))["allowed"]
    answer = await webhook_said(None, user("admin"), inventory)
    assert answer["allowed"] == insecure
    if not insecure:
        assert answer["status"]["message"] == (
            "metadata.name is admin, which is a user of the Cluster itself; choose another name"
        )
