"""Faults at the moment at which a known mistake matters. Without the mistake they do no harm."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context
from functools import partial
from typing import Final
from unittest.mock import patch

from barnabas_broker.coordinators.share_state.persister import OnOutcomes, SharePersister
from barnabas_broker.coordinators.share_state.share_state import InitializeEntry
from barnabas_broker.metadata.controller.decisions.elections import ElectionType
from barnabas_broker.storage.helper import MapKeys, Request, Response
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.segments.segment import Segment
from barnabas_core.topic_partition import TopicPartition
from simulation import backups, faults, fresh_topics, transaction_story
from simulation.cluster import SimulatedBroker, SimulatedCluster
from simulation.compaction import WILD
from simulation.faults import Faults
from simulation.fresh_topics import FreshTopics
from simulation.helper import SimulatedHelper
from simulation.share_story import KEYED, SOURCE

POLL_S: Final = 0.01
LOOKS_MAX: Final = 1000
OFF_S: Final = 1.0
LATE_S: Final = 3.0
WATCH_LATE_S: Final = 1.5
DEPOSED: Final = 30
"""The weight of leaders that learn late that another broker leads; all faults together have about as much."""
COMMITTED: Final = 60
"""The transactions after which a run with topics that are made again ends."""
OPEN_S: Final = 3.5
"""The longest time for which transactions to new topics are open; they time out after 4 s."""


@contextmanager
def loses_power_in_a_truncation(
    in_order: Callable[[list[Segment]], list[Segment]] = lambda above: above[::-1],
) -> Iterator[None]:
    """Cut the power once, when the first of several segments is deleted. `in_order` returns them in order of deletion.

    At least two of them must count as synced: then the next start does not check for holes.
    """
    discard_above, is_done = Log.discard_above, False

    def ended(self: Log, offset: int) -> None:
        nonlocal is_done
        above = [each for each in self.segments if each.base_offset > offset]
        if is_done or len(above) < 2 or above[1].base_offset > self.syncs.recovery_point:
            discard_above(self, offset)
            return
        is_done = True
        first, *rest = in_order(above)
        self.removal.discard([first], due_ms=0)
        self.files.sync_dir(self.directory)
        _lose_power_now(next(each for each in brokers if each.disk is self.files))
        self.removal.discard(rest, due_ms=0)

    with _known_brokers() as brokers, patch.object(Log, "discard_above", ended):
        yield


def _lose_power_now(broker: SimulatedBroker) -> None:
    """Cut the power in the middle of a turn, in which nothing else gets to the disk; it is the last turn."""
    broker.cluster.note(f"set up: {broker.name} loses power in a truncation")
    broker.disk.is_broken = True
    later = partial(broker.cluster.loop.call_later, context=Context())
    later(0, partial(_power_off, broker))
    later(OFF_S, partial(_power_on, broker))


def _power_off(broker: SimulatedBroker) -> None:
    broker.disk.is_broken = False
    broker.lose_power()


def _power_on(broker: SimulatedBroker) -> None:
    broker.wanted = True
    broker.start()


@contextmanager
def maps_keys_until_a_truncation() -> Iterator[None]:
    """Slow down the helper of a leader that is alone, so that it is deposed and its log truncated during the round."""
    request = SimulatedHelper.request

    async def slow(self: SimulatedHelper, asked: Request) -> Response:
        log = _log_of_one_alone(brokers, self, asked) if isinstance(asked, MapKeys) else None
        if log is None:
            return await request(self, asked)
        brokers[0].cluster.note("set up: the helper of a leader alone waits until its log is cut")
        truncations, answer = log.segments.truncations, await request(self, asked)
        self.is_asked = True
        for _ in range(LOOKS_MAX):
            if log.segments.truncations != truncations and not log.known_producers.are_held_back:
                break
            await asyncio.sleep(POLL_S)
        self.is_asked = False
        return answer

    with _known_brokers() as brokers, patch.object(SimulatedHelper, "request", slow):
        yield


def _log_of_one_alone(brokers: Sequence[SimulatedBroker], helper: SimulatedHelper, asked: MapKeys) -> Log | None:
    """Return the log of the topic with stranded leaders, if the map is to have keys that no other replica has."""
    found = {
        broker.helper: partition.log
        for broker in brokers
        for partition in broker.partitions()
        if partition.topic_partition.topic == WILD
    }
    log = found.pop(helper, None)
    is_it = log is not None and log.directory == asked.directory
    return log if is_it and all(each.log_end_offset < asked.end_offset for each in found.values()) else None


@contextmanager
def delays_watches_while_topics_are_made_again() -> Iterator[None]:
    """Let the metadata reach some broker late whenever a topic is made, mostly in place of a deleted one.

    Topics are checked only after the faults, so that the run goes on for longer then.
    """
    until = FreshTopics._until

    async def late(self: FreshTopics, topic: str, *, exists: bool) -> None:
        if exists:
            cluster, name = self._cluster, self._random.choice(self._cluster.brokers).name
            cluster.note(f"set up: the metadata reaches {name} late, while {topic} is made")
            cluster.store.late_s[name] = WATCH_LATE_S
            cluster.loop.call_later(WATCH_LATE_S, lambda: cluster.store.late_s.pop(name, None))
        await until(self, topic, exists=exists)

    with (
        patch.object(FreshTopics, "_until", late),
        patch.object(fresh_topics, "REPLICAS", 2),  # A late replica would delay the transaction, too.
        patch.object(transaction_story, "COMMITTED_MIN", COMMITTED),
        patch.object(transaction_story, "FRESH_SHARE", 1.0),
        patch.object(transaction_story, "BACKUP_SHARE", 0.0),
    ):
        yield


@contextmanager
def puts_an_older_backup_back() -> Iterator[None]:
    """Put the metadata store back to a backup in every seed, while all brokers are down.

    Transactions to new topics are open for longer, and so are most of them at that moment.
    """
    with (
        patch.object(transaction_story, "FRESH_SHARE", 1.0),
        patch.object(transaction_story, "BACKUP_SHARE", 1.0),
        patch.object(backups, "DOWN_SHARE", 1.0),
        patch.object(fresh_topics, "OPEN_S_MAX", OPEN_S),
    ):
        yield


@contextmanager
def initializes_share_states_again() -> Iterator[None]:
    """Send each initialization of a share state once more, as late as a network may deliver it."""
    initialize = SharePersister.initialize

    def twice(self: SharePersister, group_id: str, entries: Sequence[InitializeEntry], answer: OnOutcomes) -> None:
        initialize(self, group_id, entries, answer)
        brokers[0].cluster.note("set up: a share state is initialized again in a while")
        self._timers.call_later(LATE_S, lambda: initialize(self, group_id, entries, lambda _: None))

    with _known_brokers() as brokers, patch.object(SharePersister, "initialize", twice):
        yield


@contextmanager
def deposes_leaders_that_learn_it_late() -> Iterator[None]:
    """Often let another broker lead the partitions of a broker, which learns it late.

    Meanwhile some members of a share group work with the one, and some with the other.
    """

    def deposed(self: Faults) -> None:
        cluster, states = self._cluster, self._cluster.states()
        led = sorted(key for key, state in states.items() if state.leader > 0 and key[0] in (SOURCE, KEYED))
        if not led:
            return
        name, number = self._random.choice(led)
        leader, *others = sorted(states[name, number].replicas, key=lambda each: each != states[name, number].leader)
        writer, late = cluster.brokers[others[0] - 1], cluster.brokers[leader - 1].name
        if writer.node is None or writer.host is None:
            return
        cluster.note(f"set up: broker {others[0]} leads {name}-{number}, and {late} learns it late")
        cluster.store.late_s[late] = LATE_S
        self._later(LATE_S, lambda: cluster.store.late_s.pop(late, None))
        cluster.loop.spawn(writer.host, _lead(writer, TopicPartition(name, number), [*others, leader]))

    with patch.object(faults, "DELAYED_WATCHES", DEPOSED), patch.object(Faults, "_delay_watch", deposed):
        yield


async def _lead(broker: SimulatedBroker, where: TopicPartition, replicas: Sequence[int]) -> None:
    """Let the first of these replicas lead the partition."""
    assert broker.node is not None, "the broker must run"
    writer = broker.node.handler_environment.metadata_writer
    await writer.alter_reassignments({where: replicas})
    await writer.elect_leaders(ElectionType.PREFERRED, {where})


@contextmanager
def _known_brokers() -> Iterator[list[SimulatedBroker]]:
    """Yield the list of brokers of the cluster that is made in the context."""
    make = SimulatedBroker.__init__
    brokers: list[SimulatedBroker] = []

    def known(self: SimulatedBroker, cluster: SimulatedCluster, broker_id: int) -> None:
        make(self, cluster, broker_id)
        brokers.append(self)

    with patch.object(SimulatedBroker, "__init__", known):
        yield brokers
