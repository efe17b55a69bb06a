"""The conditions `Ready` and `Rolling` of a Cluster.

A Cluster stays ready during a rolling restart in which every partition keeps a leader and enough in-sync replicas.
"""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from barnabas_operator.planning.brokers.broker_steps import (
    BROKERS_UNREACHABLE,
    EVICTION_REFUSED,
    HOLDS_REPLICAS,
    NOT_READY,
    ROLLING_PAUSED,
    UNDER_REPLICATED,
)
from barnabas_operator.planning.brokers.claims import NOT_BOUND
from barnabas_operator.planning.brokers.pods import CANNOT_GROW, WAITING_FOR_ADDRESSES, PodsState
from barnabas_operator.planning.cluster_state import ClusterState, StrayLog, Trouble
from barnabas_operator.planning.conditions import condition
from barnabas_operator.planning.refusal import Refusal, listed
from barnabas_operator.planning.topics.lost_records import lost_in_cluster
from barnabas_operator.planning.topics.move_plan import MovePlan
from barnabas_operator.planning.topics.topic_status import PARTITIONS_OFFLINE
from barnabas_operator.resources.cluster import Cluster, RollingStatus
from barnabas_operator.resources.object_meta import READY, ROLLING, Condition, condition_of
from barnabas_operator.resources.security import CertificateStatus

UNDER_MIN_ISR: Final = "UnderMinIsr"
STARTING: Final = "BrokersStarting"
"""The reason of `Ready` while the brokers of a new Cluster start: nothing is wrong."""
RESTARTING: Final = "Restarting"
NO_RESTARTS: Final = "NoRestarts"
WAITS: Final = frozenset({NOT_READY, UNDER_REPLICATED, ROLLING_PAUSED, EVICTION_REFUSED, BROKERS_UNREACHABLE})
"""The reasons for which a change of the brokers waits; none of these reasons alone makes the Cluster unready."""
TOLD_LAST: Final = frozenset({HOLDS_REPLICAS, CANNOT_GROW, NOT_BOUND, WAITING_FOR_ADDRESSES})
"""The reasons for which a change of the brokers may wait for hours.

In the condition `Ready`, a problem that clients notice takes precedence over these reasons.
"""


class Findings(NamedTuple):
    """The state of a Cluster's pods and brokers; a field is None if it could not be read.

    `trouble` says why pods do not run. `silence` is the last error if no broker has answered the operator for a while.
    `ahead` describes the reassignments that are proposed, waiting or in progress. `certificates` holds the expiry times
    of certificates in a secured Cluster. `nodes_left_out` says why the brokers' certificate lacks addresses of nodes.
    """

    pods: PodsState | None = None
    state: ClusterState | None = None
    strays: Sequence[StrayLog] | None = None
    trouble: str = ""
    silence: str = ""
    ahead: MovePlan | None = None
    certificates: tuple[CertificateStatus, ...] | None = None
    nodes_left_out: str = ""


NOTHING_FOUND: Final = Findings()


class Unready(NamedTuple):
    """The problem that the condition `Ready` reports, and the status of the condition if there is a problem.

    The status is `Unknown` if no broker answers the operator, because brokers may still serve clients.
    """

    problem: Refusal | None
    status: Literal["False", "Unknown"] = "False"


def unready(cluster: Cluster, why: Refusal | None, found: Findings, rolling: RollingStatus | None) -> Unready:
    """Return the problem that makes the Cluster unready, if there is one.

    `why` says what is wrong with the Cluster resource, or why the operator does not change the brokers yet.
    """
    last = why if why is not None and why.reason in TOLD_LAST else None
    if is_fault(why):
        return Unready(why)
    bad = unserved(found.state) if found.state is not None else None
    away = found.trouble or (_away(cluster, why, found.pods, rolling) if found.pods is not None else "")
    if away:
        reason = STARTING if _starts(cluster) and not found.trouble else NOT_READY
        return Unready(Refusal(reason, "; ".join((away, bad.message) if bad is not None else (away,))))
    if bad is not None:
        return Unready(bad)
    if found.silence:
        return Unready(Refusal(BROKERS_UNREACHABLE, found.silence), "Unknown")
    return Unready(last or (_surplus(cluster, found.pods) if found.pods is not None and rolling is None else None))


def _starts(cluster: Cluster) -> bool:
    """True if the Cluster has not been ready yet, and nothing has gone wrong so far."""
    ready = condition_of(cluster.conditions, READY)
    return ready is None or ready.reason == STARTING


def is_fault(why: Refusal | None) -> bool:
    """True if `why` is a problem that a user must fix.

    The condition `Ready` reports this problem rather than a problem that clients notice.
    """
    return why is not None and why.reason not in WAITS | TOLD_LAST


def _away(cluster: Cluster, why: Refusal | None, pods: PodsState, rolling: RollingStatus | None) -> str:
    """Return a message about brokers that a rolling restart did not stop and that are not ready, or an empty text."""
    rolls = rolling is not None and not cluster.spec.rolling.pause
    if why is not None and why.reason == NOT_READY and not rolls:
        return why.message
    by_roll = rolling.restarting if rolling is not None and rolls else ()
    others = [str(number) for number in pods.unready() if number not in by_roll]
    return f"waiting for broker {', '.join(others)} to be ready" if others else ""


def _surplus(cluster: Cluster, pods: PodsState) -> Refusal | None:
    """Return a Refusal that names the brokers to be removed, or None if no broker is to be removed."""
    leaving = [str(number) for number in range(cluster.spec.brokers.replicas, pods.count)]
    return Refusal(HOLDS_REPLICAS, f"broker {', '.join(leaving)} will be removed") if leaving else None


def unserved(state: ClusterState) -> Refusal | None:
    """Return the problem of partitions that clients cannot read, or cannot write to with acks=all."""
    lost = lost_in_cluster(state)
    if lost is not None:
        return lost
    offline = [each for each in state.troubles if each.offline]
    if offline:
        return Refusal(PARTITIONS_OFFLINE, f"{_count(offline)} no leader: {_names(offline)}")
    short = [each for each in state.troubles if each.under_min_isr]
    if short:
        what = "fewer replicas in sync than min.insync.replicas, so writes with acks=all are refused"
        return Refusal(UNDER_MIN_ISR, f"{_count(short)} {what}: {_names(short)}")
    return None


def _count(troubles: Sequence[Trouble]) -> str:
    return f"{len(troubles)} partition has" if len(troubles) == 1 else f"{len(troubles)} partitions have"


def _names(troubles: Sequence[Trouble]) -> str:
    return listed([f"{each.topic}-{each.partition}" for each in troubles])


def rolling_of(before: RollingStatus | None, pods: PodsState, why: Refusal | None) -> RollingStatus | None:
    """Return the status of the rolling restart, or None if no broker has to restart.

    A rolling restart ends when its last broker is ready again.
    """
    remaining, away = pods.remaining(), pods.unready()
    restarting = tuple(number for number in away if number not in remaining)
    goes_on = before is not None and bool(restarting)
    begins = bool(pods.pods) and not away and not pods.is_rolled_out
    if not (remaining or goes_on or begins):
        return None
    reason, message = why or ("", "")
    return RollingStatus(remaining=remaining, restarting=restarting, blocked_by=reason, message=message)


def progress(rolling: RollingStatus, pods: PodsState) -> str:
    """Return a sentence with the progress of a rolling restart and with what it waits for."""
    done = pods.count - len(rolling.remaining) - len(rolling.restarting)
    message = f"{done} of {pods.count} brokers run with the declared settings"
    return f"{message}; {rolling.message}" if rolling.message else message


def rolling_condition(cluster: Cluster, rolling: RollingStatus | None, pods: PodsState, now: str) -> Condition:
    """Return the condition `Rolling`, which always exists, so that `kubectl wait` works; `now` is in RFC 3339."""
    if rolling is None:
        return condition(cluster, ROLLING, "False", NO_RESTARTS, "no broker has to restart", now)
    reason = RESTARTING if rolling.blocked_by in ("", NOT_READY) else rolling.blocked_by
    return condition(cluster, ROLLING, "True", reason, progress(rolling, pods), now)
