"""Finalizers of resources, before anything is done for them: what their deletion policy asks for must be noticed."""

import asyncio
from collections.abc import Callable, Sequence

from barnabas_operator.kube.api import KubeRefused
from barnabas_operator.planning.conditions import with_problem
from barnabas_operator.planning.refusal import KUBERNETES_ERROR, Refusal
from barnabas_operator.reconcile.kind_reconciler import Bodies, Json
from barnabas_operator.reconcile.status_writer import FINALIZER, StatusWriter, is_held_as
from barnabas_operator.resources.api_objects import ResourceT


async def held(
    statuses: StatusWriter,
    resources: Sequence[ResourceT],
    bodies: Bodies,
    is_to_be_held: Callable[[ResourceT], bool],
    now: str,
) -> list[ResourceT]:
    """Those that are held as they shall be; of thousands few have to be asked about."""
    asked = [each for each in resources if not is_held_as(bodies[each.metadata.name], wanted=is_to_be_held(each))]
    found = await asyncio.gather(
        *(_is_held(statuses, each, bodies[each.metadata.name], now, wanted=is_to_be_held(each)) for each in asked)
    )
    unheld = {each.metadata.name for each, is_held in zip(asked, found, strict=True) if not is_held}
    return [each for each in resources if each.metadata.name not in unheld]


async def _is_held(statuses: StatusWriter, resource: ResourceT, body: Json, now: str, *, wanted: bool) -> bool:
    """As it shall be: nothing is made for a resource whose deletion would not be noticed."""
    try:
        return await statuses.keep_held(body, wanted=wanted)
    except KubeRefused as error:
        why = Refusal(KUBERNETES_ERROR, f"the finalizer {FINALIZER}: {error.message}")
        await statuses.write([(with_problem(resource, why, now), body)])
        return False
