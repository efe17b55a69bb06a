"""The scale of a target, given back for a ConsumerGroup that is no longer reconciled."""

import logging
from collections.abc import Mapping
from typing import Any

from barnabas_core.clock import Clock
from barnabas_operator.kube.api import KubeApi
from barnabas_operator.planning.groups.reset_conditions import may_hold_target
from barnabas_operator.reconcile.groups.reset_targets import ResetTargets
from barnabas_operator.resources.api_objects import readable_part
from barnabas_operator.resources.consumer_group import ConsumerGroup

log = logging.getLogger(__name__)


async def give_back_target(api: KubeApi, clock: Clock, body: Mapping[str, Any]) -> None:
    """Scale up the target of a reset, before the resource is released, or if it has no Cluster. Raises KubeUnreachable.

    A refusal is logged only: in a namespace that ends the operator may have no right any more, and what keeps the
    resource keeps the namespace. The target's annotation still tells what it had.
    """
    group = readable_part(ConsumerGroup, body)
    goes = group.metadata.deletion_timestamp is not None
    if group.spec.scaling is None or not (goes or may_hold_target(group)):
        return
    namespace = group.metadata.namespace or "default"
    targets = ResetTargets(api, namespace, clock)
    refusal = await targets.give_back(group, None if goes else group.spec.offsets.reset)
    if refusal is not None:
        log.warning("ConsumerGroup %s/%s: %s", namespace, group.metadata.name, refusal.message)
