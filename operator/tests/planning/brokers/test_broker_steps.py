"""The next step with a Cluster's brokers: starts at once, restarts one by one and only when safe, removals last."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_operator.planning.brokers.broker_steps import (
    BalanceLeaders,
    BrokerStep,
    BrokerView,
    RemoveBroker,
    RestartBroker,
    StartBrokers,
    next_step,
    step_without_restarts,
)
from barnabas_operator.planning.cluster_state import ClusterState, TopicState, Trouble
from barnabas_operator.planning.conditions import Refusal


def broker(
    number: int,
    *,
    running: bool = True,
    ready: bool = True,
    changed: bool = False,
    lacking: bool = False,
    down: bool = False,
    ending: str = "",
) -> BrokerView:
    is_ready = ready and running and not down
    return BrokerView(number, running, is_ready, changed or lacking, lacking, down, ending)


def brokers(*changed: int, of: int = 3) -> list[BrokerView]:
    return [broker(number, changed=number in changed) for number in range(of)]


def state(
    *troubles: Trouble, alive: int = 3, controller: int = 0, **topics: tuple[tuple[int, ...], ...]
) -> ClusterState:
    found = {name: TopicState("id", partitions, {}) for name, partitions in topics.items()}
    return ClusterState(dict.fromkeys(range(alive)), found, controller_id=controller, troubles=troubles)


def behind(partition: int, missing: int, *in_sync: int) -> Trouble:
    return Trouble("flights", partition, (missing,), in_sync, offline=False)


def moving(*in_sync: int) -> ClusterState:
    """Partition 0 moves from broker 2 to 3, which has not caught up."""
    topic = TopicState("id", ((3, 0, 1, 2),), {}, {0: (3, 0, 1)})
    missing = tuple(each for each in range(4) if each not in in_sync)
    trouble = Trouble("flights", 0, missing, in_sync, offline=False)
    return ClusterState(dict.fromkeys(range(4)), {"flights": topic}, controller_id=0, troubles=(trouble,))


Case = tuple[int, Sequence[BrokerView], ClusterState | None, BrokerStep | Refusal | None]

CASES: Mapping[str, Case] = {
    "all as wanted": (3, brokers(), None, None),
    "all that are not there start at once": (
        3,
        [broker(0), broker(1, running=False), broker(2, running=False)],
        None,
        StartBrokers((1, 2)),
    ),
    "a changed one restarts": (3, brokers(1), state(), RestartBroker(1)),
    "a move does not hold up a restart while all replicas of before are in sync": (
        4,
        brokers(1, of=4),
        moving(0, 1, 2),
        RestartBroker(1),
    ),
    "nor that of the broker that catches up": (4, brokers(3, of=4), moving(0, 1, 2), RestartBroker(3)),
    "a move holds it up while one of those is behind": (
        4,
        brokers(1, of=4),
        moving(0, 1),
        Refusal(
            "UnderReplicated",
            "waiting for the replicas of flights-0 (without broker 2, 3) to be in sync before broker 1 restarts",
        ),
    ),
    "the controller goes last": (3, brokers(0, 1, 2), state(controller=0), RestartBroker(1)),
    "the controller goes when all others have": (3, brokers(0), state(controller=0), RestartBroker(0)),
    "one that is down needs no care": (
        3,
        [broker(0, changed=True), broker(1, down=True, changed=True), broker(2)],
        None,
        RestartBroker(1),
    ),
    "one that is down restarts though another cannot be made, for it may take what that one needs": (
        3,
        [broker(0, down=True, changed=True), broker(1, down=True), broker(2, running=False)],
        None,
        RestartBroker(0),
    ),
    "brokers that are all not ready, and alive for Kafka, do not restart": (
        3,
        [broker(number, ready=False, changed=True) for number in range(3)],
        state(),
        Refusal("BrokersNotReady", "waiting for broker 0, 2 to be ready before broker 1 restarts"),
    ),
    "one that is not ready and leads what nobody else has in sync does not restart": (
        3,
        [broker(0), broker(1, ready=False, changed=True), broker(2)],
        state(behind(0, 2, 1)),
        Refusal(
            "UnderReplicated",
            "waiting for the replicas of flights-0 (without broker 2) to be in sync before broker 1 restarts",
        ),
    ),
    "one that is not ready and not in sync restarts, where all others are well": (
        3,
        [broker(0), broker(1, ready=False, changed=True), broker(2)],
        state(behind(0, 1, 0, 2)),
        RestartBroker(1),
    ),
    "it goes first where all have changed, for the others wait until it is well": (
        3,
        [broker(0, changed=True), broker(1, changed=True), broker(2, ready=False, changed=True)],
        state(behind(0, 2, 0, 1)),
        RestartBroker(2),
    ),
    "so does the controller": (
        3,
        [broker(0, ready=False, changed=True), broker(1, changed=True), broker(2, changed=True)],
        state(controller=0),
        RestartBroker(0),
    ),
    "nobody restarts while the pod of another ends": (
        3,
        [broker(0, changed=True), broker(1), broker(2, ready=False, ending="pod flights-broker-2")],
        state(),
        Refusal("BrokersNotReady", "waiting for the deletion of pod flights-broker-2 before broker 0 restarts"),
    ),
    "also not one that is down": (
        3,
        [broker(0, changed=True, down=True), broker(1), broker(2, ready=False, ending="pod flights-broker-2")],
        state(),
        Refusal("BrokersNotReady", "waiting for the deletion of pod flights-broker-2 before broker 0 restarts"),
    ),
    "nobody restarts while a claim goes with its pod": (
        3,
        [broker(0, changed=True, ending="claim volume-0-flights-broker-0"), broker(1), broker(2)],
        state(),
        Refusal(
            "BrokersNotReady", "waiting for the deletion of claim volume-0-flights-broker-0 before broker 0 restarts"
        ),
    ),
    "with one more volume they restart from the lowest on, the controller or not": (
        3,
        [broker(number, lacking=True) for number in range(3)],
        state(controller=0),
        RestartBroker(0),
    ),
    "with one more volume a higher one that is down waits for the lowest": (
        3,
        [broker(0, lacking=True), broker(1, lacking=True), broker(2, ready=False, lacking=True)],
        state(),
        Refusal("BrokersNotReady", "waiting for broker 2 to be ready before broker 0 restarts"),
    ),
    "who lacks a volume and holds up another pod restarts": (
        3,
        [broker(0, lacking=True), broker(1, running=False), broker(2, lacking=True)],
        state(behind(0, 1, 0, 2)),
        RestartBroker(0, overrides_budget=True),
    ),
    "who lacks a volume and holds up another pod is the last one in sync for none but that": (
        3,
        [broker(0, lacking=True), broker(1, running=False), broker(2, lacking=True)],
        state(behind(0, 2, 0)),
        Refusal(
            "UnderReplicated",
            "waiting for the replicas of flights-0 (without broker 2) to be in sync before broker 0 restarts",
        ),
    ),
    "who lacks a volume holds up nobody in the same turn, nor below": (
        3,
        [broker(0, running=False), broker(1, lacking=True), broker(2, running=False)],
        state(),
        StartBrokers((0, 2)),
    ),
    "nobody answers": (
        3,
        brokers(0),
        None,
        Refusal("BrokersUnreachable", "waiting until a broker reports which replicas are in sync"),
    ),
    "another is down": (
        3,
        [broker(0, changed=True), broker(1), broker(2, ready=False)],
        state(),
        Refusal("BrokersNotReady", "waiting for broker 2 to be ready before broker 0 restarts"),
    ),
    "another is ready and not yet counted as alive": (
        3,
        brokers(0),
        state(alive=2),
        Refusal("BrokersNotReady", "waiting for broker 2 to be ready before broker 0 restarts"),
    ),
    "the last one's replicas are not back in sync": (
        3,
        brokers(2),
        state(*(behind(number, 1, 2, 0) for number in range(5))),
        Refusal(
            "UnderReplicated",
            "waiting for the replicas of flights-0 (without broker 1), flights-1 (without broker 1), "
            "flights-2 (without broker 1) and 2 more to be in sync before broker 2 restarts",
        ),
    ),
    "a partition that the broker has no part in does not hold it up": (
        3,
        brokers(2),
        state(behind(0, 1, 0)),
        RestartBroker(2),
    ),
    "a partition without a leader cannot lose one": (
        1,
        brokers(0, of=1),
        state(Trouble("flights", 0, (), (), offline=True), alive=1),
        RestartBroker(0),
    ),
    "an empty broker is removed, the highest first": (
        1,
        brokers(),
        state(flights=((0,), (0,))),
        RemoveBroker(2),
    ),
    "one that has replicas stays": (
        2,
        brokers(),
        state(flights=((0, 1), (1, 2), (2, 0), (0, 1))),
        Refusal(
            "BrokerHoldsReplicas",
            "broker 2 will be removed after these replicas have moved: flights-1, flights-2",
        ),
    ),
    "one that a topic needs stays, and what can be done is told": (
        2,
        brokers(),
        state(flights=((0, 1),), wide=((0, 1, 2),)),
        Refusal(
            "BrokerHoldsReplicas",
            "broker 2 will be removed after these replicas have moved: wide-0; "
            "first reduce the replicas of topic wide to 2 or fewer: "
            "set spec.replicas of the Topic resource; if the topic has no Topic resource, create one",
        ),
    ),
    "the brokers' own topics get fewer replicas by themselves": (
        2,
        brokers(),
        state(__consumer_offsets=((0, 1, 2),)),
        Refusal(
            "BrokerHoldsReplicas", "broker 2 will be removed after these replicas have moved: __consumer_offsets-0"
        ),
    ),
    "nobody tells what it has": (
        2,
        brokers(),
        None,
        Refusal("BrokersUnreachable", "waiting until the brokers report their replicas before a broker is removed"),
    ),
    "restarts go before removals": (2, brokers(1), state(), RestartBroker(1)),
}


@pytest.mark.parametrize(("wanted", "views", "found", "step"), CASES.values(), ids=CASES.keys())
def test_the_next_step_starts_restarts_or_removes_brokers_safely(
    wanted: int, views: Sequence[BrokerView], found: ClusterState | None, step: BrokerStep | Refusal | None
) -> None:
    assert next_step(wanted, views, found) == step


def test_leaders_are_balanced_after_all_restarts_once_replicas_are_in_sync() -> None:
    assert next_step(3, brokers(1), state(), unbalanced=True) == RestartBroker(1)
    waiting = next_step(3, brokers(), state(behind(0, 2, 0, 1)), unbalanced=True)
    assert waiting == Refusal(
        "UnderReplicated",
        "waiting for the replicas of flights-0 (without broker 2) to be in sync before leaders are balanced",
    )
    assert next_step(3, brokers(), None, unbalanced=True) == Refusal(
        "BrokersUnreachable", "waiting until a broker reports which replicas are in sync"
    )
    assert next_step(3, brokers(), state(), unbalanced=True) == BalanceLeaders()
    assert next_step(4, brokers(of=4), moving(0, 1, 2), unbalanced=True) == BalanceLeaders()


@given(st.integers(1, 7), st.data())
def test_a_rollout_restarts_every_broker_once_and_the_controller_last(count: int, data: st.DataObject) -> None:
    controller = data.draw(st.integers(0, count - 1))
    changed = data.draw(st.sets(st.integers(0, count - 1)))
    found = state(alive=count, controller=controller)
    restarted: list[int] = []
    while (step := next_step(count, brokers(*changed.difference(restarted), of=count), found)) is not None:
        assert isinstance(step, RestartBroker)
        restarted.append(step.broker_id)
    assert restarted == sorted(changed - {controller}) + sorted(changed & {controller})


CALM: Mapping[str, Case] = {
    "all as wanted": (3, brokers(), None, None),
    "those that wait for their restart are told": (
        3,
        brokers(1, 2),
        state(),
        Refusal("RollingPaused", "spec.rolling.pause is true, so brokers 1, 2 will restart only after the pause"),
    ),
    "also one that is down": (
        2,
        [broker(0), broker(1, ready=False, changed=True)],
        state(),
        Refusal("RollingPaused", "spec.rolling.pause is true, so broker 1 will restart only after the pause"),
    ),
    "also one that holds up the others": (
        3,
        [broker(0, lacking=True), broker(1), broker(2, running=False)],
        state(),
        Refusal("RollingPaused", "spec.rolling.pause is true, so broker 0 will restart only after the pause"),
    ),
    "what is not there starts": (
        3,
        [broker(0, changed=True), broker(1), broker(2, running=False)],
        None,
        StartBrokers((2,)),
    ),
    "one that is to go goes": (2, brokers(0, of=3), state(), RemoveBroker(2)),
}


@pytest.mark.parametrize("name", CALM)
def test_a_paused_roll_prevents_restarts_and_nothing_else(name: str) -> None:
    wanted, found, said, expected = CALM[name]
    assert step_without_restarts(wanted, found, said) == expected
