"""F33, F34: some rounds of `make torture`."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from harness.cluster import BarnabasCluster
from harness.deadline import wait_for
from harness.machines import Lan, MachinesUnavailable
from harness.require import missing
from harness.soak import seed, size
from local_kubernetes.binaries import CannotStart
from torture.history import History, Lane, check
from torture.run import BROKERS, KUBERNETES, TOPICS, Plan, Report, cluster_on, lan_of_brokers, torture
from torture.workload import Writer

NotHere = Callable[[MachinesUnavailable], None]

ROUNDS = size(2, 20)
USUAL_SEED = 9
"""The seed gives a full disk, then a paused controller while a leader dies."""
USUAL_SEED_WITH_API_SERVER = 4
"""The seed gives a leader's death while the API server is stopped, then a pause, then another death."""
ACKNOWLEDGED_A_ROUND_MIN = size(50, 500)
"""Three writers of 200 records a second write 600 in a round of a second on an idle machine; most rounds are longer."""


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(900)  # A minute on an idle machine.
def test_random_faults_lose_duplicate_and_reorder_no_record_and_the_cluster_recovers(
    tmp_path: Path, not_here: NotHere
) -> None:
    check_report(torture(tmp_path, Plan(ROUNDS, seed(USUAL_SEED)), print), not_here)


@pytest.mark.soak(only=True)
@pytest.mark.timeout(900)  # A minute on an idle machine.
def test_random_faults_with_an_unavailable_api_server_lose_no_record(tmp_path: Path, not_here: NotHere) -> None:
    try:
        report = torture(tmp_path, Plan(ROUNDS, seed(USUAL_SEED_WITH_API_SERVER), store=KUBERNETES), print)
    except CannotStart as reason:
        missing(reason)
    check_report(report, not_here)


def check_report(report: Report, not_here: NotHere) -> None:
    assert report.problems == []
    assert len(report.rounds) == ROUNDS
    assert report.acknowledged >= ROUNDS * ACKNOWLEDGED_A_ROUND_MIN
    assert report.seen >= report.acknowledged
    assert report.commits >= ROUNDS
    assert report.partitions_compared >= sum(TOPICS.values())
    if report.skipped:
        not_here(MachinesUnavailable("; ".join(report.skipped)))


@pytest.mark.slow
def test_a_loss_with_acks_1_is_found(tmp_path: Path, not_here: NotHere) -> None:
    """This shows that the checker can fail: a leader without followers acknowledges records, and dies."""
    try:
        lan = lan_of_brokers(tmp_path)
    except MachinesUnavailable as reason:
        not_here(reason)
        raise
    with closing(cluster_on(lan, tmp_path)) as cluster, lan:
        problems = check(history_of_a_loss(lan, cluster))
    assert any(problem.startswith("lost: ") for problem in problems)


def history_of_a_loss(lan: Lan, cluster: BarnabasCluster) -> History:
    cluster.start()
    cluster.create_topic("risky", 1, BROKERS, config={"min.insync.replicas": "1"})
    history = History(idempotent_topics=frozenset())
    writer = Writer("writer", history, cluster.bootstrap, "risky", partitions=1, rate=200, acks=1)
    writer.start()
    wait_for(lambda: writer.done > 100)
    leader = cluster.leader("risky")
    for peer in set(cluster.brokers) - {leader}:
        lan.cut(peer, leader)
        lan.cut(leader, peer)
    answered = writer.done
    wait_for(lambda: writer.done > answered + 100)
    cluster.kill(leader)
    lan.mend()
    wait_for(lambda: cluster.leader("risky") not in (leader, -1))
    cluster.start(leader)
    writer.finish()
    cluster.wait_until_full("risky")
    history.logs[Lane("risky", 0)] = cluster.client().read("risky")
    return history
