"""The status of a Cluster, from the state of its pods and brokers.

The conditions `Ready` and `Rolling` of a Cluster. A Cluster stays ready during a rolling restart in which every
partition keeps a leader and enough in-sync replicas.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from barnabas_core.topic_partition import TopicPartition
from barnabas_operator.planning.brokers.broker_security import SecurityStage, stage_name, wanted_stage
from barnabas_operator.planning.brokers.broker_steps import (
    BROKERS_UNREACHABLE,
    EVICTION_REFUSED,
    HOLDS_REPLICAS,
    NOT_READY,
    ROLLING_PAUSED,
    UNDER_REPLICATED,
)
from barnabas_operator.planning.brokers.cluster_checks import NOT_BOUND, larger_claims, reported_metadata_version
from barnabas_operator.planning.brokers.pod_properties import has_administrator, of_brokers
from barnabas_operator.planning.brokers.pods import (
    CANNOT_GROW,
    FAILED,
    WAITING_FOR_ADDRESSES,
    BrokerClaim,
    ExternalAccess,
    PodsState,
    bootstrap_servers,
)
from barnabas_operator.planning.cluster_state import APPROVAL, APPROVED, ClusterState, StrayLog, Trouble
from barnabas_operator.planning.conditions import Refusal, condition, conditions_of, listed
from barnabas_operator.planning.object_names import (
    HTTP_PORT,
    PASSING_PORT,
    REPLICATION_PORT,
    administrator_name,
    pod_host,
)
from barnabas_operator.planning.topics.reconcile_plan import MovePlan, NamedProgress, Rebalance
from barnabas_operator.planning.topics.topic_plan import (
    PARTITIONS_OFFLINE,
    REPLICAS_MOVING,
    as_before,
    cluster_losses,
    lost_in_cluster,
)
from barnabas_operator.resources.cluster import (
    Cluster,
    ClusterStatus,
    ListenerStatus,
    RollingStatus,
    SecurityName,
    SecurityStageName,
)
from barnabas_operator.resources.kind import (
    CLAIMS_DELETED,
    CLAIMS_LARGER,
    NODES_LEFT_OUT,
    READY,
    REBALANCE_PROPOSED,
    REBALANCING,
    ROLLING,
    SECURITY_CHANGING,
    VOLUMES_RESIZING,
    Condition,
    condition_of,
    merge_conditions,
)
from barnabas_operator.resources.security import CertificateStatus

UNDER_MIN_ISR: Final = "UnderMinIsr"
STARTING: Final = "BrokersStarting"
"""The reason of `Ready` while the brokers of a new Cluster start: nothing is wrong."""
RESTARTING: Final = "Restarting"
NO_RESTARTS: Final = "NoRestarts"
WAITS: Final = frozenset({NOT_READY, UNDER_REPLICATED, ROLLING_PAUSED, EVICTION_REFUSED, BROKERS_UNREACHABLE})
"""The reasons for which a change of the brokers waits; none of these reasons alone makes the Cluster unready."""
LEAST_URGENT: Final = frozenset({HOLDS_REPLICAS, CANNOT_GROW, NOT_BOUND, WAITING_FOR_ADDRESSES})
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
    last = why if why is not None and why.reason in LEAST_URGENT else None
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
    return why is not None and why.reason not in WAITS | LEAST_URGENT


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


IN_USE: Final = "InUse"
GROWN: Final = "GrownByAnother"


def claim_conditions(cluster: Cluster, now: str, pods: PodsState | None) -> Iterator[Condition]:
    """Yield the conditions about deleted, resizing and too large claims, if there are any; `now` is in RFC 3339.

    While the pods cannot be read (None), the earlier conditions are kept.
    """
    if pods is None:
        for kind in (CLAIMS_DELETED, VOLUMES_RESIZING, CLAIMS_LARGER):
            yield from as_before(cluster, kind)
        return
    deleted = [claim for claim in pods.claims if claim.is_ending and claim.broker_id in pods.pods]
    if deleted:
        yield condition(cluster, CLAIMS_DELETED, "True", IN_USE, _deleted(deleted), now)
    resizing = [claim for claim in pods.claims if claim.resize is not None]
    if resizing:
        reasons = sorted({claim.resize.reason for claim in resizing if claim.resize}, key=lambda each: each != FAILED)
        yield condition(cluster, VOLUMES_RESIZING, "True", reasons[0], _resizing(resizing), now)
    larger = larger_claims(cluster, pods.lasting_claims)
    if larger:
        yield condition(cluster, CLAIMS_LARGER, "True", GROWN, _larger(larger), now)


def _larger(claims: Sequence[BrokerClaim]) -> str:
    names = listed([f"{claim.name} ({claim.size})" for claim in claims])
    return (
        f"claims are larger than spec.storage.volumes declares: {names}. They keep their size, and new brokers get the "
        "declared one; declare the larger size to let all claims of the volume grow to it"
    )


def resize_failure(pods: PodsState) -> Refusal | None:
    """Return the Refusal to report if the resize of claims has failed, or None if no resize has failed."""
    failed = [claim for claim in pods.claims if claim.resize is not None and claim.resize.reason == FAILED]
    return Refusal(CANNOT_GROW, _resizing(failed)) if failed else None


def _resizing(claims: Sequence[BrokerClaim]) -> str:
    return listed([f"{claim.name}: {claim.resize.message}" for claim in claims if claim.resize is not None])


def _deleted(claims: Sequence[BrokerClaim]) -> str:
    names = listed([claim.name for claim in claims])
    return (
        f"claims were deleted while in use: {names}. Their records are lost when the broker's pod ends, "
        "so the operator restarts no broker now. When every partition on these claims has an in-sync replica on "
        "another broker, delete the broker's pod to get a new disk"
    )


UNEVEN: Final = "BrokersUneven"
PLAN_UNDER_WAY: Final = "PlanUnderWay"
PLAN_DONE: Final = "PlanDone"
PLAN_REFUSED: Final = "PlanRefused"
HELD_UP: Final = (
    "the next moves begin when all brokers are ready, all replicas are in sync, and no broker restarts or is removed"
)


def reassignment_conditions(
    cluster: Cluster, now: str, state: ClusterState | None, ahead: MovePlan | None
) -> Iterator[Condition]:
    """Yield the conditions about reassignments, which do not affect `Ready`; `now` is in RFC 3339."""
    moving = {name: len(topic.moving) for name, topic in sorted(state.topics.items()) if topic.moving} if state else {}
    waiting = ahead.waiting if ahead is not None else 0
    stays = f"{_lacking(ahead.without_room)}{_refused(ahead.refused)}" if ahead is not None else ""
    if moving or waiting or stays:
        of_topics = listed([f"{name} ({count})" for name, count in moving.items()]) or "none yet"
        later = f"; {waiting} partitions wait for their reassignment" if waiting else ""
        message = f"partitions of these topics are being reassigned: {of_topics}{later}{stays}"
        yield condition(cluster, REPLICAS_MOVING, "True", REPLICAS_MOVING, message, now)
    if ahead is not None and ahead.named is not None:
        yield _of_plan(cluster, ahead.named, now)
    if ahead is not None and ahead.rebalance is not None and not ahead.rebalance.is_approved:
        message = f"{_described(ahead.rebalance)}; to approve the rebalance, run {_approval(cluster)}"
        yield condition(cluster, REBALANCE_PROPOSED, "True", UNEVEN, message, now)


def _of_plan(cluster: Cluster, plan: NamedProgress, now: str) -> Condition:
    if plan.refusal:
        return condition(cluster, REBALANCING, "False", PLAN_REFUSED, plan.refusal, now)
    left_out = f"; these partitions were left out: {listed(plan.left_out)}" if plan.left_out else ""
    held_up = f"; {HELD_UP}" if plan.is_held_up else ""
    rest = (
        f"; {plan.unlisted} more partitions did not fit into the plan; for them, run the job skew again"
        if plan.unlisted
        else ""
    )
    moved = f"{plan.done} of {plan.total} partitions {plan_words(plan.run)}"
    message = f"{moved}{held_up}{rest}{left_out}"
    if plan.is_done:
        return condition(cluster, REBALANCING, "False", PLAN_DONE, message, now)
    return condition(cluster, REBALANCING, "True", PLAN_UNDER_WAY, message, now)


def plan_words(run: str) -> str:
    """Return the words that identify the rebalance plan of the MaintenanceJob `run` in the message of a condition."""
    return f"of the plan of MaintenanceJob {run} are moved"


def _lacking(without_room: Iterable[TopicPartition]) -> str:
    """Return a description of the partitions that no broker has enough space for, or an empty text."""
    names = [f"{topic}-{number}" for topic, number in without_room]
    what_helps = "enlarge volumes, add brokers or delete records"
    return f"; no broker has enough free space for {listed(names)}; {what_helps}" if names else ""


def _refused(messages: Sequence[str]) -> str:
    return "".join(f"; {each}" for each in messages[:1]) + (
        f" and {len(messages) - 1} more" if len(messages) > 1 else ""
    )


def _described(rebalance: Rebalance) -> str:
    brokers = ", ".join(map(str, rebalance.to_brokers))
    how_much = f"{rebalance.partitions} partitions ({rebalance.size_bytes} bytes)"
    if len(rebalance.to_brokers) == 1:
        return f"broker {brokers} has less data than the other brokers, so {how_much} can move to that broker"
    return f"brokers {brokers} have less data than the other brokers, so {how_much} can move to these brokers"


def _approval(cluster: Cluster) -> str:
    command = f"kubectl annotate clusters.barnabas.dev {cluster.metadata.name} {APPROVAL}={APPROVED}"
    return f"`{command}`, or set spec.rebalance to Automatic"


OFFERING_TLS: Final = "OfferingTls"
USING_TLS: Final = "UsingTls"
CLOSING_PLAINTEXT: Final = "ClosingPlaintext"
OPENING_PLAINTEXT: Final = "OpeningPlaintext"
USING_PLAINTEXT: Final = "UsingPlaintext"
WITHDRAWING_TLS: Final = "WithdrawingTls"
CERTIFICATE_FULL: Final = "CertificateFull"

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


def cluster_status(cluster: Cluster, now: str, why: Refusal | None, found: Findings = NOTHING_FOUND) -> ClusterStatus:
    """Return the new status of a Cluster; `now` is in RFC 3339.

    `why` says what is wrong with the Cluster, or why the operator does not change the brokers yet. While no broker
    answers, topic and partition counts are left out, but conditions about lost records and unknown logs are kept. While
    the pods cannot be read, the condition `Rolling` is kept.
    """
    before, pods, state = cluster.status or ClusterStatus(), found.pods, found.state
    rolling = rolling_of(before.rolling, pods, why) if pods is not None else None
    return ClusterStatus(
        conditions=merge_conditions(before.conditions, _conditions(cluster, now, why, found, rolling)),
        observed_generation=cluster.metadata.generation,
        listeners=_listeners(cluster, pods.external) if pods is not None else before.listeners,
        metrics=_metrics(cluster, pods) if pods is not None else before.metrics,
        certificates=found.certificates if found.certificates is not None else before.certificates,
        cluster_id=state.cluster_id if state is not None else before.cluster_id,
        metadata_version=reported_metadata_version(cluster, state),
        brokers=len(pods.views()) if pods is not None else before.brokers,
        ready_brokers=_ready_brokers(cluster, before, pods),
        topics=len(state.topics) if state is not None else None,
        security=_security(cluster, pods),
        administrator=_administrator(cluster, found) if found.certificates is not None else before.administrator,
        security_stage=_security_stage(cluster, before, pods),
        controller=state.controller_id if state is not None else None,
        under_replicated_partitions=len(state.troubles) if state is not None else None,
        offline_partitions=sum(trouble.offline for trouble in state.troubles) if state is not None else None,
        rolling=rolling,
        restarted=_restarted(before, pods, rolling),
    )


def _ready_brokers(cluster: Cluster, before: ClusterStatus, pods: PodsState | None) -> int | None:
    """Return how many brokers are ready; None while the Cluster is paused, because nobody counts them then."""
    if pods is None:
        return before.ready_brokers if not cluster.is_paused else None
    return sum(view.is_ready for view in pods.views())


def _restarted(before: ClusterStatus, pods: PodsState | None, rolling: RollingStatus | None) -> str | None:
    """Return the requested restart that is complete; the value of the status until then."""
    done = pods is not None and pods.is_rolled_out and rolling is None and not pods.unready()
    if not done or pods is None or pods.broker_set is None:
        return before.restarted
    return pods.broker_set.restart or before.restarted


def _conditions(
    cluster: Cluster, now: str, why: Refusal | None, found: Findings, rolling: RollingStatus | None
) -> Iterator[Condition]:
    ready = unready(cluster, why, found, rolling)
    rolls = progress(rolling, found.pods) if rolling is not None and found.pods is not None else ""
    claims = list(claim_conditions(cluster, now, found.pods))
    note = "; ".join(filter(None, (rolls, *(each.message for each in claims if each.type == CLAIMS_DELETED))))
    yield from conditions_of(cluster, ready.problem, now, status=ready.status, note=note)
    if found.pods is not None:
        yield rolling_condition(cluster, rolling, found.pods, now)
    else:
        yield from as_before(cluster, ROLLING)
    yield from _security_conditions(cluster, now, found.pods)
    yield from claims
    if found.nodes_left_out:
        yield condition(cluster, NODES_LEFT_OUT, "True", CERTIFICATE_FULL, found.nodes_left_out, now)
    yield from cluster_losses(cluster, now, found.state, found.strays)
    yield from reassignment_conditions(cluster, now, found.state, found.ahead)


def _security_conditions(cluster: Cluster, now: str, pods: PodsState | None) -> Iterator[Condition]:
    """Yield the condition for the current security step, or nothing once all brokers have the declared security.

    If the pods could not be read (`pods` is None), yield the condition that the status has.
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


def _security(cluster: Cluster, pods: PodsState | None) -> SecurityName | None:
    """Return "Insecure" if `spec.insecure` is true, or else "Secured".

    While the pods cannot be read, return the value that the status already has.
    """
    if pods is None and cluster.status is not None:
        return cluster.status.security
    return "Insecure" if cluster.spec.insecure else "Secured"


def _administrator(cluster: Cluster, found: Findings) -> str | None:
    """Return the name of the Secret of the user `admin`; None without the user, or before certificates exist."""
    return administrator_name(cluster.metadata.name) if found.certificates and has_administrator(cluster) else None


def _security_stage(cluster: Cluster, before: ClusterStatus, pods: PodsState | None) -> SecurityStageName | None:
    if pods is None:
        return before.security_stage
    return stage_name(min(pods.stages, default=pods.external.stage_of(cluster)))


def _metrics(cluster: Cluster, pods: PodsState) -> tuple[str, ...]:
    """Return the URL of each broker's Prometheus metrics."""
    name, namespace = cluster.metadata.name, cluster.metadata.namespace or "default"
    hosts = (pod_host(name, namespace, view.broker_id) for view in pods.views())
    scheme = "http" if of_brokers(cluster, pods.external.stage_of(cluster)) is None else "https"
    return tuple(f"{scheme}://{host}:{HTTP_PORT}/metrics" for host in hosts)


def _listeners(cluster: Cluster, external: ExternalAccess) -> tuple[ListenerStatus, ...]:
    before = cluster.status.listeners if cluster.status is not None else ()
    reported = {each.name: each.bootstrap_servers for each in before}
    return tuple(
        ListenerStatus(name=each.name, bootstrap_servers=servers)
        for each in cluster.spec.listeners
        if (servers := bootstrap_servers(cluster, each, external, reported.get(each.name, "")))
    )
