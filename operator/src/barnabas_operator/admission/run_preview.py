"""The webhook's warnings about missing volume claims of a MaintenanceJob."""

from barnabas_operator.kube.api import KubeApi, KubeRefused, KubeUnreachable
from barnabas_operator.kube.claims import CLAIM
from barnabas_operator.resources.maintenance_job import MaintenanceJob


async def missing_claims(api: KubeApi, run: MaintenanceJob) -> tuple[str, ...]:
    """Return warnings about missing volume claims, for which the run would wait; none if claims cannot be read."""
    spec, namespace = run.spec, run.metadata.namespace or "default"
    named = {f"spec.volumes[{index}].claimName": volume.claim_name for index, volume in enumerate(spec.volumes)}
    if spec.event_logs is not None:
        named["spec.eventLogs.claimName"] = spec.event_logs.claim_name
    try:
        lacking = [field for field, claim in named.items() if await api.get(CLAIM, namespace, claim) is None]
    except (KubeUnreachable, KubeRefused):
        return ()
    return tuple(
        f"{field} is {named[field]}, but this claim does not exist; the run waits until the claim exists"
        for field in lacking
    )
