"""Sets finalizers of resources before anything is created, so that every deletion follows the deletion policy."""

from collections.abc import Callable, Sequence

from barnabas_operator.kube.api import KubeRefused
from barnabas_operator.planning.conditions import with_problem
from barnabas_operator.planning.refusal import KUBERNETES_ERROR, Refusal
from barnabas_operator.reconcile.in_turns import all_ended
from barnabas_operator.reconcile.kind_reconciler import Bodies
from barnabas_operator.reconcile.status_writer import FINALIZER, StatusWriter, has_finalizer_as
from barnabas_operator.resources.api_objects import ResourceT
from barnabas_operator.resources.json_types import Json


async def with_finalizers(
    statuses: StatusWriter,
    resources: Sequence[ResourceT],
    bodies: Bodies,
    needs_finalizer: Callable[[ResourceT], bool],
    now: str,
) -> list[ResourceT]:
    """Set or remove the finalizers of `resources`; return the resources whose finalizers are now as needed.

    If the API server refuses a change, the refusal is written into the status of the resource.
    """
    asked = [
        each for each in resources if not has_finalizer_as(bodies[each.metadata.name], wanted=needs_finalizer(each))
    ]
    found = await all_ended(
        _has_finalizer(statuses, each, bodies[each.metadata.name], now, wanted=needs_finalizer(each)) for each in asked
    )
    others = {each.metadata.name for each, has_it in zip(asked, found, strict=True) if not has_it}
    return [each for each in resources if each.metadata.name not in others]


async def _has_finalizer(statuses: StatusWriter, resource: ResourceT, body: Json, now: str, *, wanted: bool) -> bool:
    try:
        return await statuses.set_finalizer(body, wanted=wanted)
    except KubeRefused as error:
        why = Refusal(KUBERNETES_ERROR, f"the finalizer {FINALIZER} could not be changed: {error.message}")
        await statuses.write([(with_problem(resource, why, now), body)])
        return False
