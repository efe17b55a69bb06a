"""The condition of a Cluster whose security is being turned on or off."""

from collections.abc import Iterator, Mapping
from typing import Final

from barnabas_operator.planning.brokers.pods import PodsState
from barnabas_operator.planning.brokers.security_stages import SecurityStage, wanted_stage
from barnabas_operator.planning.conditions import condition
from barnabas_operator.planning.object_names import PASSING_PORT, REPLICATION_PORT
from barnabas_operator.planning.topics.lost_records import as_before
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.object_meta import SECURITY_CHANGING, Condition

OFFERING_TLS: Final = "OfferingTls"
USING_TLS: Final = "UsingTls"
CLOSING_PLAINTEXT: Final = "ClosingPlaintext"
OPENING_PLAINTEXT: Final = "OpeningPlaintext"
USING_PLAINTEXT: Final = "UsingPlaintext"
WITHDRAWING_TLS: Final = "WithdrawingTls"

_UP: Final[Mapping[SecurityStage, tuple[str, str]]] = {
    SecurityStage.OFFERED: (
        OFFERING_TLS,
        f"brokers also accept TLS connections from each other, at port {PASSING_PORT}",
    ),
    SecurityStage.USED: (USING_TLS, "brokers connect to each other by TLS"),
    SecurityStage.SECURED: (
        CLOSING_PLAINTEXT,
        f"brokers accept only TLS at port {REPLICATION_PORT}, and ACLs are enforced",
    ),
}
_DOWN: Final[Mapping[SecurityStage, tuple[str, str]]] = {
    SecurityStage.USED: (
        OPENING_PLAINTEXT,
        f"brokers accept plain text at port {REPLICATION_PORT}, and ACLs are no longer enforced",
    ),
    SecurityStage.OFFERED: (USING_PLAINTEXT, "brokers connect to each other in plain text"),
    SecurityStage.OPEN: (WITHDRAWING_TLS, "brokers no longer accept TLS from each other"),
}
_STEPS: Final = len(_UP)


def security_conditions(cluster: Cluster, now: str, pods: PodsState | None) -> Iterator[Condition]:
    """Yield the condition for the current security step, or nothing once all brokers have the declared security.

    `now` is in RFC 3339. If the pods could not be read (`pods` is None), yield the condition that the status has.
    """
    if pods is None:
        yield from as_before(cluster, SECURITY_CHANGING)
        return
    wanted = wanted_stage(cluster)
    if pods.broker_set is None or pods.stages == {wanted}:
        return
    is_up, present = wanted is SecurityStage.SECURED, pods.broker_set.stage
    reason, what = (_UP if is_up else _DOWN).get(present, ("", ""))
    if reason:
        number = present if is_up else _STEPS - present
        message = f"step {int(number)} of {_STEPS} to {'a secured' if is_up else 'an open'} Cluster: {what}"
        yield condition(cluster, SECURITY_CHANGING, "True", reason, message, now)
