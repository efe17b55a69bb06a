"""The status of a Cluster, from the state of its pods and brokers."""

from collections.abc import Iterator, Mapping
from typing import Final

from barnabas_operator.planning.brokers.broker_security import SecurityStage, stage_name, wanted_stage
from barnabas_operator.planning.brokers.cluster_checks import reported_metadata_version
from barnabas_operator.planning.brokers.pod_properties import has_administrator, of_brokers
from barnabas_operator.planning.brokers.pods import ExternalAccess, PodsState, bootstrap_servers
from barnabas_operator.planning.conditions import condition, conditions_of
from barnabas_operator.planning.object_names import (
    HTTP_PORT,
    PASSING_PORT,
    REPLICATION_PORT,
    administrator_name,
    pod_host,
)
from barnabas_operator.planning.refusal import Refusal
from barnabas_operator.planning.status.claim_conditions import claim_conditions
from barnabas_operator.planning.status.readiness import (
    NOTHING_FOUND,
    Findings,
    progress,
    rolling_condition,
    rolling_of,
    unready,
)
from barnabas_operator.planning.status.reassignment_conditions import reassignment_conditions
from barnabas_operator.planning.topics.lost_records import as_before, cluster_losses
from barnabas_operator.resources.cluster import (
    Cluster,
    ClusterStatus,
    ListenerStatus,
    RollingStatus,
    SecurityName,
    SecurityStageName,
)
from barnabas_operator.resources.object_meta import (
    CLAIMS_DELETED,
    NODES_LEFT_OUT,
    ROLLING,
    SECURITY_CHANGING,
    Condition,
    merge_conditions,
)

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
