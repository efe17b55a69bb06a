"""Previews an offset reset for the user who applies it, over a separate connection to the brokers."""

from contextlib import nullcontext
from typing import Final

from barnabas_core.clock import Clock
from barnabas_kafka.connection import ClusterUnreachable, connected_client
from barnabas_kafka.security import Credentials
from barnabas_operator.kafka.group_admin import GroupAdmin
from barnabas_operator.kafka.reset_planning import plan_now
from barnabas_operator.planning.groups.reset_warnings import reset_warnings
from barnabas_operator.planning.time_text import utc_moment
from barnabas_operator.resources.consumer_group import ConsumerGroup

CONNECT_S: Final = 1.0
UNKNOWN: Final = (
    "the effect of the reset is unknown, because the brokers do not answer; the status will show the effect"
)


def preview(bootstrap: str, security: Credentials, group: ConsumerGroup, clock: Clock) -> tuple[str, ...]:
    """Return warnings about the effect of the reset; the call blocks until the brokers answer or a timeout."""
    reset = group.spec.offsets.reset
    if reset is None:
        return ()
    try:
        client = connected_client(bootstrap, CONNECT_S, "barnabas-operator-preview", security)
    except ClusterUnreachable:
        return (UNKNOWN,)
    try:
        admin = GroupAdmin(client, nullcontext)
        described = admin.describe([group.group_id]).groups[group.group_id]
        plan = plan_now(admin, reset, group.group_id, utc_moment(clock.now_ms()))
    except ClusterUnreachable:
        return (UNKNOWN,)
    finally:
        client.close()
    return tuple(reset_warnings(reset, group.group_id, described, plan))
