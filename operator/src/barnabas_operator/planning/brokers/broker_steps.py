"""The next step for the brokers of a Cluster: start, restart, remove, or balance leaders.

Each step is decided from the current state. Broker ids begin at 0, and the highest ids are removed first.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import inf
from typing import Final, NamedTuple

from barnabas_core.topic_partition import is_internal
from barnabas_operator.planning.cluster_state import ClusterState, Trouble
from barnabas_operator.planning.conditions import Refusal
from barnabas_operator.resources.cluster import Cluster

NOT_READY: Final = "BrokersNotReady"
BROKERS_UNREACHABLE: Final = "BrokersUnreachable"
UNDER_REPLICATED: Final = "UnderReplicated"
HOLDS_REPLICAS: Final = "BrokerHoldsReplicas"
ROLLING_PAUSED: Final = "RollingPaused"
EVICTION_REFUSED: Final = "EvictionRefused"
NAMED_MAX: Final = 3
ROUTES_SETTLE_S: Final = 90.0
"""The seconds for which restarts wait after an outage of the API server.

kube-proxy and CoreDNS wait up to 60 s before they watch again, and CoreDNS caches addresses for 30 s. Until then,
clients cannot connect to a broker whose pod is new, so no other broker may restart and leave it the leadership.
"""


class BrokerView(NamedTuple):
    """The state of a broker whose id is below the number of replicas of the StatefulSet.

    `is_changed` is True if the broker runs with outdated settings. `lacks_volume` is True if its pod was created before
    a volume was added; the StatefulSet creates no pod with a higher number until that pod is replaced. `is_down` is
    True if the process does not run or has lost access to Kubernetes; a broker that is not ready may still serve
    clients. `ending` lists the broker's pod and claims that are being deleted.
    """

    broker_id: int
    is_running: bool
    is_ready: bool
    is_changed: bool
    lacks_volume: bool = False
    is_down: bool = False
    ending: str = ""


@dataclass(frozen=True, slots=True)
class StartBrokers:
    """The step that starts brokers, all at the same time."""

    broker_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RestartBroker:
    """The step that restarts a broker with its new settings.

    `overrides_budget` is True if the StatefulSet creates missing pods only after this restart: the PodDisruptionBudget
    counts the missing pods as unavailable, and would refuse an eviction for ever.
    """

    broker_id: int
    overrides_budget: bool = False


@dataclass(frozen=True, slots=True)
class RemoveBroker:
    """The step that removes a broker from the cluster and keeps its files."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class BalanceLeaders:
    """The step that elects the preferred leaders after restarts have moved the leadership."""


BrokerStep = StartBrokers | RestartBroker | RemoveBroker | BalanceLeaders


def balances_leaders(cluster: Cluster) -> bool:
    """True if the Cluster does not set `auto.leader.rebalance.enable` to false."""
    return str(cluster.spec.config.get("auto.leader.rebalance.enable", True)).lower() != "false"


class RestartContext(NamedTuple):
    """The facts by which a restart is judged: the brokers, and the state of the cluster, None if no broker answers.

    `since_outage_s` are the seconds since the last outage of the API server ended; infinite without an outage.
    """

    brokers: Sequence[BrokerView]
    state: ClusterState | None
    since_outage_s: float = inf

    @property
    def is_settled(self) -> bool:
        """True if all nodes know the present pods."""
        return self.since_outage_s >= ROUTES_SETTLE_S


def next_step(
    wanted: int,
    brokers: Sequence[BrokerView],
    state: ClusterState | None,
    *,
    unbalanced: bool = False,
    since_outage_s: float = inf,
) -> BrokerStep | Refusal | None:
    """Return the next change of the brokers. If the change has to wait, return a refusal; None if nothing must change.

    `wanted` is the declared number of brokers. `state` is None if no broker answers. `unbalanced` is True if leaders
    have to be balanced after all restarts. `since_outage_s` is that of `RestartContext`.
    """
    context = RestartContext(brokers, state, since_outage_s)
    missing = tuple(broker.broker_id for broker in brokers if not broker.is_running)
    outdated = next((broker for broker in brokers if broker.lacks_volume), None)
    if missing and outdated is not None and _turn(outdated.broker_id) < _turn(max(missing)):
        return _release(outdated, frozenset(missing), context)
    changed = [broker for broker in brokers if broker.is_changed] if outdated is None else [outdated]
    down = next((broker.broker_id for broker in changed if broker.is_down), None)
    if down is not None:  # To restart a broker that is down interrupts nothing, and new settings may repair it.
        return nothing_ends(down, context) or RestartBroker(down)
    if missing:  # Brokers that are down restart first, because they may use quota that the missing pods need.
        return StartBrokers(missing)
    if changed:
        return _one_of(changed, context)
    if unbalanced and context.is_settled:
        return _balance(state)
    leaving = [broker.broker_id for broker in brokers if broker.broker_id >= wanted]
    return _removal(max(leaving), wanted, state) if leaving else None


def step_without_restarts(
    wanted: int,
    brokers: Sequence[BrokerView],
    state: ClusterState | None,
    *,
    unbalanced: bool = False,
    since_outage_s: float = inf,
) -> BrokerStep | Refusal | None:
    """Return the next step that is not a restart, for use while `rolling.pause` is true.

    If only restarts remain, return a refusal that names the brokers to restart.
    """
    to_restart = [broker for broker in brokers if broker.is_changed or broker.lacks_volume]
    calm = [broker._replace(is_changed=False, lacks_volume=False) for broker in brokers]
    step = next_step(wanted, calm, state, unbalanced=unbalanced, since_outage_s=since_outage_s)
    is_held_up = isinstance(step, StartBrokers) and any(broker.lacks_volume for broker in to_restart)
    if not to_restart or (step is not None and not is_held_up):
        return step
    listed = ", ".join(str(broker.broker_id) for broker in to_restart)
    subject = f"brokers {listed}" if len(to_restart) > 1 else f"broker {listed}"
    return Refusal(ROLLING_PAUSED, f"spec.rolling.pause is true, so {subject} will restart only after the pause")


def _turn(broker_id: int) -> int:
    """Return the number of the batch in which the StatefulSet controller creates the pod.

    The batches contain 1, 2, 4, ... pods.
    """
    return (broker_id + 1).bit_length()


def _release(outdated: BrokerView, missing: frozenset[int], context: RestartContext) -> RestartBroker | Refusal:
    """Return the step that restarts the broker `outdated`, or a refusal if the restart has to wait.

    The restart does not wait for missing brokers, because the StatefulSet creates their pods only after the restart.
    """
    state, there = context.state, [broker for broker in context.brokers if broker.is_running]
    context = context._replace(brokers=there)
    if outdated.is_down:
        return nothing_ends(outdated.broker_id, context) or RestartBroker(outdated.broker_id)
    if state is not None:
        state = replace(state, troubles=tuple(each for each in state.troubles if not missing.issuperset(each.missing)))
    step = _one_of([outdated], context._replace(state=state))
    return step if isinstance(step, Refusal) else replace(step, overrides_budget=True)


def _one_of(changed: Iterable[BrokerView], context: RestartContext) -> RestartBroker | Refusal:
    """Return the restart of one changed broker, or why it has to wait.

    Brokers that are not ready restart first, because the other brokers wait for them and new settings may repair them.
    The controller restarts last, so that the controller role moves only once.
    """
    controller = context.state.controller_id if context.state else None
    first = min(changed, key=lambda each: (each.is_ready, each.broker_id == controller, each.broker_id)).broker_id
    objections = (check(first, context) for check in SAFE_TO_RESTART)
    return next(filter(None, objections), RestartBroker(first))


def _balance(state: ClusterState | None) -> BalanceLeaders | Refusal:
    """Return the step that balances leaders, or a refusal while a partition with a leader has replicas out of sync."""
    if state is None:
        return Refusal(BROKERS_UNREACHABLE, "waiting until a broker reports which replicas are in sync")
    behind = [
        str(each) for each in state.troubles if not each.offline and len(each.in_sync) < _replicas_to_be(each, state)
    ]
    if not behind:
        return BalanceLeaders()
    return Refusal(
        UNDER_REPLICATED,
        f"waiting for the replicas of {_some(behind, len(behind))} to be in sync before leaders are balanced",
    )


def nothing_ends(broker_id: int, context: RestartContext) -> Refusal | None:
    """Refuse a restart while any broker's pod or claim is being deleted: a deleted claim is lost when its pod ends."""
    ending = [each.ending for each in context.brokers if each.ending]
    if not ending:
        return None
    return Refusal(
        NOT_READY, f"waiting for the deletion of {_some(ending, len(ending))} before broker {broker_id} restarts"
    )


def brokers_answer(_broker_id: int, context: RestartContext) -> Refusal | None:
    """Refuse a restart while no broker reports which replicas are in sync."""
    if context.state is not None:
        return None
    return Refusal(BROKERS_UNREACHABLE, "waiting until a broker reports which replicas are in sync")


def others_ready(broker_id: int, context: RestartContext) -> Refusal | None:
    """Refuse a restart while another broker is not ready, because partitions could lose their leader."""
    alive = context.state.racks if context.state else {}
    others = (each for each in context.brokers if each.broker_id != broker_id)
    down = [each.broker_id for each in others if not each.is_ready or each.broker_id not in alive]
    if not down:
        return None
    listed = ", ".join(map(str, down))
    return Refusal(NOT_READY, f"waiting for broker {listed} to be ready before broker {broker_id} restarts")


def fully_replicated(broker_id: int, context: RestartContext) -> Refusal | None:
    """Refuse a restart while a partition with an in-sync replica on the broker has other replicas out of sync.

    A partition that is being reassigned needs only as many in-sync replicas as it has target replicas.
    """
    if context.state is None:
        return None
    troubles = [
        each
        for each in context.state.troubles
        if broker_id in each.in_sync and len(each.in_sync) < _replicas_to_be(each, context.state)
    ]
    if not troubles:
        return None
    message = (
        f"waiting for the replicas of {_some(map(str, troubles), len(troubles))} to be in sync "
        f"before broker {broker_id} restarts"
    )
    return Refusal(UNDER_REPLICATED, message)


def routes_settled(broker_id: int, context: RestartContext) -> Refusal | None:
    """Refuse a restart during ROUTES_SETTLE_S after an outage of the API server."""
    if context.is_settled:
        return None
    return Refusal(
        NOT_READY,
        f"waiting before broker {broker_id} restarts: for {ROUTES_SETTLE_S:.0f} s after an outage of the API server, "
        "nodes may route clients to pods that no longer exist",
    )


def _replicas_to_be(trouble: Trouble, state: ClusterState) -> float:
    """Return how many in-sync replicas a partition needs so that its brokers may restart.

    A partition that is being reassigned needs as many as it has target replicas. For any other partition with a
    `Trouble`, return infinity: a replica is out of sync, so the brokers must not restart.
    """
    topic = state.topics.get(trouble.topic)
    target = topic.moving.get(trouble.partition) if topic is not None else None
    return inf if target is None else len(target)


RestartCheck = Callable[[int, RestartContext], Refusal | None]
SAFE_TO_RESTART: Final[tuple[RestartCheck, ...]] = (
    nothing_ends,
    brokers_answer,
    others_ready,
    fully_replicated,
    routes_settled,
)


def restart_batch(first: int, brokers: Sequence[BrokerView], state: ClusterState | None, count_max: int) -> list[int]:
    """Return the ids of the brokers to restart together: `first`, and up to `count_max` - 1 others.

    The others are brokers with outdated settings. Each partition loses at most one replica, as when brokers restart one
    by one. The controller is never one of the others, because it restarts last. A broker restarts alone if it has no
    rack or is not ready, and while replicas move or volumes are added.
    """
    batch = [first]
    grows = any(broker.lacks_volume for broker in brokers)
    if state is None or state.is_moving or grows or not _is_ready(first, brokers):
        return batch
    for number in _companions(first, brokers, state):
        if len(batch) < count_max and _shares_nothing(number, batch, state):
            batch.append(number)
    return batch


def _is_ready(first: int, brokers: Sequence[BrokerView]) -> bool:
    """True if the broker `first` is ready. If not, it restarts alone, because its partitions already lack a replica."""
    return any(broker.broker_id == first and broker.is_ready for broker in brokers)


def _companions(first: int, brokers: Sequence[BrokerView], state: ClusterState) -> Iterable[int]:
    rack = state.racks.get(first)
    changed = (broker.broker_id for broker in brokers if broker.is_changed and broker.broker_id != first)
    return [
        number
        for number in changed
        if rack is not None
        and state.racks.get(number) == rack
        and number != state.controller_id
        and fully_replicated(number, RestartContext(brokers, state)) is None
    ]


def _shares_nothing(number: int, batch: Iterable[int], state: ClusterState) -> bool:
    others = frozenset(batch)
    rows = (row for topic in state.topics.values() for row in topic.partitions)
    return not any(number in row and not others.isdisjoint(row) for row in rows)


def _removal(broker_id: int, wanted: int, state: ClusterState | None) -> RemoveBroker | Refusal:
    if state is None:
        return Refusal(
            BROKERS_UNREACHABLE, "waiting until the brokers report their replicas before a broker is removed"
        )
    held = replicas_on(broker_id, state)
    if not held:
        return RemoveBroker(broker_id)
    too_wide = [
        name
        for name, topic in sorted(state.topics.items())
        if max(map(len, topic.targets)) > wanted and not is_internal(name)
    ]
    message = f"broker {broker_id} will be removed after these replicas have moved: {_some(held, len(held))}"
    if too_wide:
        message += f"; first reduce the replicas of topic {_some(too_wide, len(too_wide))} to {wanted} or fewer: "
        message += "set spec.replicas of the Topic resource; if the topic has no Topic resource, create one"
    return Refusal(HOLDS_REPLICAS, message)


def replicas_on(broker_id: int, state: ClusterState) -> list[str]:
    """Return the partitions that have a replica on the broker, as `topic-partition`."""
    return [
        f"{name}-{number}"
        for name, topic in sorted(state.topics.items())
        for number, replicas in enumerate(topic.partitions)
        if broker_id in replicas
    ]


def _some(items: Iterable[str], count: int) -> str:
    listed = ", ".join(islice(items, NAMED_MAX))
    return listed if count <= NAMED_MAX else f"{listed} and {count - NAMED_MAX} more"
