"""The webhook warns about a run whose claims do not exist."""

from barnabas_operator.admission import Previewed, missing_claims
from barnabas_operator.kube.api import KubeUnreachable
from barnabas_operator.observed.inventory import Inventory
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.maintenance_run import MaintenanceJob
from harness.kube_memory import KubeMemory, no_server
from harness.maintenance_world import ARCHIVE, KIND
from harness.webhook import webhook_said
from harness.worker_world import resource

VOLUMES = [{"name": name, "mountPath": f"/{name}", "claimName": name} for name in ("there", "lacking")]
RUN = resource(KIND, "a", cluster="one", job="archive", options={**ARCHIVE, "archive": "/there/a"}, volumes=VOLUMES)


async def warnings(*, is_silent: bool = False) -> list[str]:
    async with no_server() as connection:
        api, inventory = KubeMemory(connection), Inventory()
        api.put({"kind": "PersistentVolumeClaim", "metadata": {"name": "there"}})
        api.refuse = lambda *_: KubeUnreachable("away") if is_silent else None
        cluster = resource("Cluster", "one")
        meta = {**cluster["metadata"], "uid": "u", "resourceVersion": "1"}
        inventory.keep({**cluster, "metadata": meta}, is_gone=False)

        async def preview(_: Cluster, run: Previewed) -> tuple[str, ...]:
            assert isinstance(run, MaintenanceJob)
            return await missing_claims(api, run)

        said = await webhook_said(None, RUN, inventory, preview=preview)
        assert said["allowed"]
        return list(said.get("warnings", ()))


async def test_a_warning_names_a_missing_claim_with_its_field() -> None:
    assert await warnings() == [
        "spec.volumes[1].claimName is lacking, but this claim does not exist; the run waits until the claim exists"
    ]


async def test_an_unreachable_api_server_causes_no_warning() -> None:
    assert await warnings(is_silent=True) == []
