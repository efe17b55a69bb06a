"""After the restore of an older copy of the metadata, no broker leads below the epochs of the logs."""

from pathlib import Path
from uuid import UUID

import pytest
from one_replica import AWAY, FLIGHTS, HERE, OTHER, Broker, led

from barnabas_broker.metadata.controller.decisions.elections import LogAhead, Rules, overtake
from barnabas_broker.metadata.model import NO_LEADER, BrokerRegistration, LogEnd, PartitionState
from barnabas_core.errors import ErrorCode


def restarted(folder: Path, before: PartitionState, after: PartitionState, records: int = 3) -> Broker:
    """Return the next incarnation of a broker that wrote as leader of `before`."""
    broker = Broker(folder, before)
    broker.append(records)
    broker.stop()
    return Broker(folder, after)


def test_a_leader_does_not_lead_in_an_epoch_below_that_of_its_log(tmp_path: Path) -> None:
    broker = restarted(tmp_path, led(HERE, 9, HERE), led(HERE, 4, HERE, OTHER))
    assert broker.error_of_read() is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert broker.ahead == [{FLIGHTS: LogAhead(9, waits=True)}]
    broker.replicas.bring_back()
    assert len(broker.ahead) == 2
    broker.show(led(HERE, 10, HERE))
    assert broker.error_of_read() is None
    broker.append(1)
    assert broker.partition.end_offset_for_epoch(9) == (9, 3)
    broker.replicas.bring_back()
    assert len(broker.ahead) == 2


def test_a_leader_may_lead_in_the_epoch_of_its_log(tmp_path: Path) -> None:
    broker = restarted(tmp_path, led(HERE, 9, HERE, replicas=1), led(HERE, 9, HERE, replicas=1, partition_epoch=1))
    assert broker.error_of_read() is None
    assert broker.ahead == []


def terms(*living: int, **ends: tuple[int, int]) -> Rules:
    """Return the rules for brokers 1 to 3; `b2` is the epoch and the offset of the end of broker 2's log."""
    registered = {n: BrokerRegistration(n, UUID(int=n), (), fenced=n not in living) for n in (HERE, OTHER, AWAY)}
    log_ends = {int(name[1:]): LogEnd(0, *end, end[1]) for name, end in ends.items()}
    return Rules(registered, 2, log_ends=log_ends)


OVERTAKEN = [
    pytest.param(terms(1, 2, 3, b1=(5, 90), b2=(7, 95), b3=(7, 99)), 3, (3,), 8, id="the longest in the latest epoch"),
    pytest.param(terms(1, 2, 3, b1=(5, 90), b2=(5, 90), b3=(5, 80)), 1, (1, 2), 6, id="an equal end is in sync"),
    pytest.param(terms(1, 2, 3, b1=(5, 90)), 1, (1,), 6, id="the other log ends are unknown"),
]


@pytest.mark.parametrize(("of_now", "leader", "isr", "epoch"), OVERTAKEN)
def test_the_longest_log_leads_in_an_epoch_above_those_of_all_logs(
    of_now: Rules, leader: int, isr: tuple[int, ...], epoch: int
) -> None:
    before = led(OTHER, 4, HERE, OTHER, AWAY, elr=(AWAY,))
    after = overtake(before, LogAhead(5, waits=True), of_now)
    assert (after.leader, after.isr, after.leader_epoch, after.elr) == (leader, isr, epoch, ())
    assert after.partition_epoch == before.partition_epoch + 1
    assert overtake(after, LogAhead(5, waits=True), of_now) is after


def test_an_election_waits_for_replicas_that_may_have_more_records() -> None:
    before = led(OTHER, 4, HERE, OTHER, AWAY)
    of_now = terms(1, 2, b1=(5, 90), b2=(4, 90))
    assert overtake(before, LogAhead(5, waits=True), of_now) is before
    assert overtake(before, LogAhead(5, waits=False), of_now).leader == HERE
    assert overtake(before, LogAhead(5, waits=False), terms()) is before


def test_a_replica_known_to_lack_records_is_not_elected() -> None:
    lacking = PartitionState((HERE, OTHER), NO_LEADER, 4, (), lacking=(HERE,))
    after = overtake(lacking, LogAhead(5, waits=False), terms(1, 2, b1=(5, 90), b2=(5, 10)))
    assert (after.leader, after.lacking) == (OTHER, (HERE,))
