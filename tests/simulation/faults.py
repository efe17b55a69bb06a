"""Random faults, one after the other, often while an earlier one lasts."""

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from barnabas_broker.metadata.controller.decisions.elections import ElectionType
from barnabas_core.topic_partition import TopicPartition
from simulation.cluster import SimulatedBroker, SimulatedCluster
from simulation.disk import EIO, ENOSPC
from simulation.loop import Host

BETWEEN_S: Final = 1.0
STRANDED: Final = 8
"""The weight of leaders that are left alone; that of `_kill` is four."""
LATE_S_MAX: Final = 3.0
DELAYED_WATCHES: Final = 3
"""The weight of metadata that reaches a broker late, in the stories that have it."""


class Faults:
    """`topic` is the one whose replicas are moved; `stranded` the one whose leaders are left alone, if any."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        random: Random,
        topic: str,
        *,
        stranded: str | None,
        sets_clocks: bool = True,
        delays_watches: bool = False,
    ) -> None:
        self._cluster = cluster
        self._random = random
        self._topic = topic
        self._stranded = stranded
        self._sets_clocks = sets_clocks
        self._delays_watches = delays_watches
        self._is_over = False
        self._lost_power = False
        """True if power was lost since the cluster was last healthy: only one replica may lose unsynced records."""
        self._broke_disks = False
        """True if disks failed since then: such replicas are not trusted, so no other one may lose records."""

    async def run(self, seconds: float) -> None:
        """Cause faults for this time."""
        end_s = self._cluster.loop.time() + seconds
        kinds = (
            [self._kill] * 4
            + [self._lose_power] * 2
            + [self._kill_who_a_returning_one_follows] * 2
            + [self._lose_power_with_few_in_sync]
            + [self._pause] * 2
            + [self._stop] * 2
            + [self._cut] * 3
            + [self._break_disk] * 2
            + [self._fail_sync] * 3
            + [self._lose_power_after_a_start] * 2
            + [self._slow, self._fill_disk, self._store_away, self._store_flaky, self._forget_history]
            + [self._reassign] * 2
            + [self._elect_preferred, self._set_clock if self._sets_clocks else self._kill]
            + [self._strand] * (0 if self._stranded is None else STRANDED)
            + [self._delay_watch] * (DELAYED_WATCHES if self._delays_watches else 0)
        )
        while self._cluster.loop.time() < end_s:
            await asyncio.sleep(self._random.expovariate(1 / BETWEEN_S))
            if self._cluster.why_unhealthy() is None and not any(each.disk.is_broken for each in self._cluster.brokers):
                self._lost_power = self._broke_disks = False
            self._random.choice(kinds)()
        self._is_over = True

    def _later(self, seconds: float, action: Callable[[], object]) -> None:
        """Call it later, unless all faults are healed before."""
        self._cluster.loop.call_later(seconds, lambda: None if self._is_over else action())

    def _some_broker(self) -> SimulatedBroker:
        """Return a broker, preferably a leader."""
        leaders = [state.leader for state in self._cluster.states().values() if state.leader > 0]
        if leaders and self._random.random() < 0.5:
            return self._cluster.brokers[self._random.choice(leaders) - 1]
        return self._random.choice(self._cluster.brokers)

    def _start(self, broker: SimulatedBroker) -> None:
        broker.wanted = True
        broker.start()

    def _kill(self) -> None:
        broker = self._some_broker()
        self._cluster.note(f"kill {broker.name}")
        broker.kill()
        self._later(self._random.expovariate(1), lambda: self._start(broker))

    def _kill_who_a_returning_one_follows(self) -> None:
        """Start a stopped broker after a while, and at that moment kill the others one after the other."""
        returning, *others = self._random.sample(self._cluster.brokers, 3)
        self._cluster.note(f"{returning.name} comes back while {', '.join(each.name for each in others)} go")
        if self._random.random() < 0.5:
            self._slow()
        returning.kill()
        back_s = self._random.uniform(0.5, 4)
        self._later(back_s, lambda: self._start(returning))
        for other in others:
            back_s += self._random.choice([0.03, 0.1, 0.3]) * self._random.uniform(0.5, 2)
            self._later(back_s, other.kill)
            self._later(back_s + 0.5 + self._random.expovariate(1), partial(self._start, other))

    def _lose_power(self) -> None:
        broker = self._some_broker()
        self._power_off(broker)
        self._later(self._random.expovariate(0.7), lambda: self._start(broker))

    def _power_off(self, broker: SimulatedBroker) -> None:
        if not self._lost_power and not self._broke_disks:
            self._lost_power = True
            self._cut_power(broker)

    def _lose_power_after_a_start(self) -> None:
        """Cut the power after a start: what the start removed or truncated may return."""
        broker = self._some_broker()
        self._cluster.note(f"stop {broker.name}, and cut its power when it has just started again")
        broker.stop()
        self._later(0.8, partial(self._start, broker))
        after_s = self._random.choice([0.0, 0.1, 1.0]) * self._random.random()
        self._later(0.8, partial(self._power_off_once_started, broker, broker.host, after_s))

    def _power_off_once_started(self, broker: SimulatedBroker, earlier: Host | None, after_s: float) -> None:
        if broker.host in (earlier, None) or broker.node is None:
            self._later(0.01, partial(self._power_off_once_started, broker, earlier, after_s))
            return
        self._later(after_s, partial(self._power_off, broker))
        self._later(after_s + self._random.expovariate(1), partial(self._start, broker))

    def _fail_sync(self) -> None:
        """Let one sync fail and the next succeed; perhaps cut the power later, then no other replica may lose any."""
        if self._lost_power or self._broke_disks:
            return
        broker = self._some_broker()
        self._cluster.note(f"the next sync of {broker.name} fails")
        self._lost_power = self._broke_disks = True
        broker.disk.sync_error = self._random.choice([EIO, ENOSPC])
        if self._random.random() < 0.7:
            seconds = self._random.uniform(1, 4)
            self._later(seconds, partial(self._cut_power, broker))
            self._later(seconds + self._random.expovariate(1), partial(self._start, broker))

    def _cut_power(self, broker: SimulatedBroker) -> None:
        self._cluster.note(f"{broker.name} loses power")
        broker.lose_power()

    def _lose_power_with_few_in_sync(self) -> None:
        """Cut the power of one of the last two in-sync replicas, then stop the other: the first one lacks records."""
        states = [state for key, state in self._cluster.states().items() if key[0] == self._topic]
        if not states or self._lost_power:
            return
        down, lossy, last = (self._cluster.brokers[each - 1] for each in self._random.choice(states).replicas[:3])
        self._cluster.note(f"{down.name} goes, then the power of {lossy.name}, then {last.name}")
        down.kill()
        self._later(4.5, partial(self._power_off, lossy))
        self._later(8.5, last.kill)
        self._later(8.8, partial(self._start, lossy))
        self._later(11, partial(self._start, last))
        self._later(11.5, partial(self._start, down))

    def _stop(self) -> None:
        broker = self._some_broker()
        self._cluster.note(f"stop {broker.name}")
        broker.stop()
        self._later(1 + self._random.expovariate(1), lambda: self._start(broker))

    def _pause(self) -> None:
        broker = self._some_broker()
        host = broker.host
        if host is None or host.is_paused:
            return
        seconds = self._random.choice([0.1, 0.5, 2, 6]) * self._random.uniform(0.5, 1.5)
        self._pause_for(broker, host, seconds)

    def _pause_for(self, broker: SimulatedBroker, host: Host, seconds: float) -> None:
        self._cluster.note(f"pause {broker.name} for {seconds:.2f} s")
        host.is_paused = True
        self._later(seconds, lambda: host.resume() if host.is_paused else None)

    def _strand(self) -> None:
        """Leave a leader alone as the only in-sync replica; then let the others go on without it."""
        state = self._cluster.states().get((self._stranded or "", 0))
        if state is None or state.leader < 0 or self._cluster.network.cut:
            return
        leader = self._cluster.brokers[state.leader - 1]
        names = [broker.name for broker in self._cluster.brokers if broker is not leader]
        ways = {way for name in names for way in ((leader.name, name), (name, leader.name))}
        self._cluster.note(f"{leader.name} is left alone")
        self._cluster.network.cut |= ways
        self._later(0.05, partial(self._depose_once_alone, leader, leader.host, ways))

    def _depose_once_alone(self, leader: SimulatedBroker, host: Host | None, ways: set[tuple[str, str]]) -> None:
        """Depose the leader once it has records that no other replica has, and compacts."""
        state = self._cluster.states().get((self._stranded or "", 0))
        if state is not None and state.leader == leader.broker_id and leader.host is host:
            is_alone = state.isr == (leader.broker_id,)
            then = self._depose_in_a_round if is_alone else self._depose_once_alone
            self._later(self._random.uniform(0.3, 1.5) if is_alone else 0.05, partial(then, leader, host, ways))
        else:
            self._cluster.network.cut -= ways

    def _depose_in_a_round(self, leader: SimulatedBroker, host: Host | None, ways: set[tuple[str, str]]) -> None:
        if leader.is_compacting or self._random.random() < 0.05:
            self._depose(leader, host, ways)
        else:
            self._later(0.02, partial(self._depose_in_a_round, leader, host, ways))

    def _depose(self, leader: SimulatedBroker, host: Host | None, ways: set[tuple[str, str]]) -> None:
        self._cluster.network.cut -= ways
        if host is None or leader.host is not host or host.is_paused:
            return
        if self._random.random() < 0.7:
            self._pause_for(leader, host, self._random.uniform(3.5, 5))
        else:
            self._cluster.note(f"kill {leader.name}, which was alone")
            leader.kill()
            self._later(self._random.expovariate(1), partial(self._start, leader))

    def _cut(self) -> None:
        network, names = self._cluster.network, [broker.name for broker in self._cluster.brokers]
        name = self._random.choice(names)
        others = self._random.sample([each for each in (*names, "p0", "p1", "r") if each != name], 2)
        ways = {(name, other) for other in others}
        if self._random.random() < 0.6:
            ways |= {(other, name) for other in others}
        self._cluster.note(f"cut {sorted(ways)}")
        network.cut |= ways
        self._later(self._random.expovariate(0.4), lambda: network.cut.difference_update(ways))

    def _slow(self) -> None:
        network = self._cluster.network
        network.slowness = self._random.choice([5.0, 30.0])
        self._cluster.note(f"the network is {network.slowness} times slower")
        self._later(self._random.expovariate(1), lambda: setattr(network, "slowness", 1.0))

    def _set_clock(self) -> None:
        """Set the clock; on one machine it is the clock of all brokers."""
        broker = self._random.choice(self._cluster.brokers)
        by_s = self._random.choice([0.5, 5, 600]) * self._random.choice([1, -1])
        self._cluster.note(f"the clock of {broker.name} is set by {by_s} s")
        broker.clock.ahead_s += by_s

    def _fill_disk(self) -> None:
        broker = self._some_broker()
        self._cluster.note(f"the disk of {broker.name} is full")
        broker.disk.is_full = True
        self._later(self._random.expovariate(0.7), lambda: setattr(broker.disk, "is_full", False))

    def _break_disk(self) -> None:
        """Let reads and writes fail, and appends be torn; when the disk works again it may have lost unsynced bytes."""
        broker = self._some_broker()
        if self._lost_power or broker.disk.is_broken:
            return
        loses = not self._broke_disks and self._random.random() < 0.7
        self._lost_power, self._broke_disks = loses, True
        self._cluster.note(f"the disk of {broker.name} breaks{', and will lose what is not synced' if loses else ''}")
        broker.disk.is_broken = True
        broker.disk.torn_share = self._random.choice([0.0, 0.5, 1.0])
        seconds = self._random.choice([0.3, 1, 3]) * self._random.uniform(0.5, 1.5)
        self._later(seconds, partial(self._mend_disk, broker, broker.host, loses))

    def _mend_disk(self, broker: SimulatedBroker, host: Host | None, loses: bool) -> None:
        """Repair a disk; a process that did not see it fail cannot continue with lost bytes, so its machine restarts.

        So does that of a process that saw it and dies: it may not have reported it (see docs/decisions/replication.md).
        """
        if not broker.disk.is_broken:
            return
        broker.disk.is_broken = False
        self._cluster.note(f"the disk of {broker.name} works again")
        if loses and broker.host is host and broker.has_lost_its_disk:
            broker.lose_pages()
        elif loses:
            broker.lose_power()
            self._later(self._random.expovariate(1), partial(self._start, broker))

    def _store_away(self) -> None:
        store = self._cluster.store
        self._cluster.note("the metadata store is away")
        store.is_away = True
        self._later(self._random.expovariate(0.6), lambda: setattr(store, "is_away", False))

    def _store_flaky(self) -> None:
        store = self._cluster.store
        self._cluster.note("the metadata store fails now and then")
        store.failure_share = 0.4
        self._later(self._random.expovariate(0.3), lambda: setattr(store, "failure_share", 0.0))

    def _delay_watch(self) -> None:
        """Let the metadata reach one broker late, in order, for a while."""
        broker, late_s = self._some_broker(), self._random.uniform(0.3, LATE_S_MAX)
        self._cluster.note(f"the metadata reaches {broker.name} {late_s:.2f} s late")
        self._cluster.store.late_s[broker.name] = late_s
        self._later(self._random.uniform(1, 4), lambda: self._cluster.store.late_s.pop(broker.name, None))

    def _forget_history(self) -> None:
        self._cluster.note("the metadata store forgets its history")
        self._cluster.store.forget_history()

    def _reassign(self) -> None:
        broker = self._random.choice(self._cluster.brokers)
        states = [key for key in self._cluster.states() if key[0] == self._topic]
        if broker.node is None or broker.host is None or not states:
            return
        where = TopicPartition(*self._random.choice(states))
        wanted = self._random.sample([each.broker_id for each in self._cluster.brokers], 3)
        self._cluster.note(f"reassign {where} to {wanted}")
        self._cluster.loop.spawn(
            broker.host, broker.node.handler_environment.metadata_writer.alter_reassignments({where: wanted})
        )

    def _elect_preferred(self) -> None:
        broker = self._random.choice(self._cluster.brokers)
        if broker.node is not None and broker.host is not None:
            self._cluster.note("elect preferred leaders")
            self._cluster.loop.spawn(
                broker.host, broker.node.handler_environment.metadata_writer.elect_leaders(ElectionType.PREFERRED, None)
            )
