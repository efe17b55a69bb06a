"""Scales up the workload of a ConsumerGroup that is no longer reconciled, if a reset had scaled the workload down."""

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
    """Scale up the workload that a reset of this ConsumerGroup scaled down. Raises KubeUnreachable.

    If the workload cannot be scaled up, the reason is only logged, so that a namespace can be deleted nevertheless.
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
