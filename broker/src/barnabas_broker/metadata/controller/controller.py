"""The background work of the controller: fencing, unfencing, leader elections and leader rebalancing.

The broker that holds the controller lease does this work. The controller derives every change from the present state of
the cluster, so a successor continues where it stopped. Two controllers at the same time do no harm, because every write
is a compare-and-set.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec

from barnabas_broker.metadata.controller.decisions.elections import (
    ElectionType,
    Rules,
    decide_election,
    is_lost,
    wants_preferred,
)
from barnabas_broker.metadata.controller.decisions.fencing import begin_incarnation, remove_dead, unless_older
from barnabas_broker.metadata.controller.deletions import Deletions, Planned, Transitions
from barnabas_broker.metadata.controller.partition_changes import PartitionChanges, for_each
from barnabas_broker.metadata.documents import ImageChange, broker_key
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.membership.log_ends import NO_LOG, KnownEnds, PastIncarnations
from barnabas_broker.metadata.membership.membership import BROKER_LEASES, Membership, holder_of
from barnabas_broker.metadata.model import BrokerRegistration, LogEnd, PartitionState, TopicDocument
from barnabas_broker.metadata.store.metadata_store import Lease, MetadataStore, StoreUnavailable
from barnabas_core.clock import Cancellable, Clock, Timers, monotonic_ms
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.errors import ApiError
from barnabas_core.loop_turns import FairTurn
from barnabas_core.topic_partition import TopicPartition

LACKING_RECORDS: Final = "barnabas.partitions.lacking.records"
"""The read-only topic config that names the partitions that are offline because every replica lacks committed records.

The config shows these partitions to Kafka's tools. If the topic has none, the config is absent.
"""
NAMED_MAX: Final = 100
LINES_MAX: Final = 20

log = logging.getLogger(__name__)


class Lost(msgspec.Struct, frozen=True):
    """A partition that has lost records.

    `ends` has the reported log ends of the replicas; the offset NO_LOG stands for a missing log.
    """

    where: TopicPartition
    replicas: tuple[int, ...]
    ends: Mapping[int, LogEnd]

    @property
    def known_end(self) -> int:
        """The highest log end that any replica reported before the loss; NO_LOG if unknown."""
        return max((end.known for end in self.ends.values()), default=NO_LOG)

    @property
    def longest(self) -> int:
        """The log end that the partition will have if the loss is accepted now and all replicas are alive."""
        return max((end.offset for end in self.ends.values()), default=NO_LOG)

    def text(self) -> str:
        """Return a description of the loss."""
        known = (
            f"the last known log end is {self.known_end}"
            if self.known_end != NO_LOG
            else "the log end before the loss is unknown"
        )
        return ", ".join([known, *(_end_text(replica, self.ends.get(replica)) for replica in self.replicas)])


def _end_text(broker_id: int, end: LogEnd | None) -> str:
    if end is None:
        return f"broker {broker_id} has not reported its log end"
    return (
        f"broker {broker_id} has no log"
        if end.offset == NO_LOG
        else f"the log of broker {broker_id} ends at {end.offset}"
    )


def lost_in(topic: TopicDocument, known: KnownEnds) -> list[Lost]:
    """Return the partitions of a topic that only an unclean election can bring back online."""
    return [
        Lost(
            TopicPartition(topic.name, number),
            state.replicas,
            known.of_replicas(topic.topic_id, number, state.replicas),
        )
        for number, state in enumerate(topic.partitions)
        if is_lost(state)
    ]


def config_value(lost: Sequence[Lost]) -> str:
    """Return the value of LACKING_RECORDS, such as `0: the last known log end is 9308, broker 1 has no log; 3: ...`."""
    named = [f"{each.where.partition}: {each.text()}" for each in lost[:NAMED_MAX]]
    return "; ".join(named + [f"and {len(lost) - NAMED_MAX} more partitions"] * (len(lost) > NAMED_MAX))


class LossReports:
    """The logging of partitions that have lost records; each loss is logged once."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._reported: dict[str, frozenset[int]] = {}

    async def report(self, names: Iterable[str], turn: FairTurn) -> None:
        """Log partitions of the given topics that have lost records, unless the loss was logged before."""
        known = KnownEnds(self._image)
        async for name in turn.over(names):
            topic = self._image.topics.get(name)
            lost = lost_in(topic, known) if topic is not None else []
            before, now = self._reported.pop(name, frozenset()), frozenset(each.where.partition for each in lost)
            if now:
                self._reported[name] = now
            news = [each for each in lost if each.where.partition not in before]
            for each in islice(news, LINES_MAX):
                log.error(
                    "%s is offline because every replica lacks committed records: %s; %s",
                    each.where,
                    each.text(),
                    _way_on(each),
                )
            if len(news) > LINES_MAX:
                log.error(
                    "%d more partitions of %s are offline because every replica lacks committed records",
                    len(news) - LINES_MAX,
                    name,
                )


def _way_on(lost: Lost) -> str:
    topic, partition = lost.where
    return f"`barnabas accept-loss --topic {topic} --partition {partition}` elects the replica with the longest log"


AWAITED_S: Final = 0.2
"""The longest time, in seconds, between two reads, or renewals, of leases while brokers are awaited after a restart."""
SOON_S: Final = 0.01
"""The shortest wait, in seconds, before a lease that is about to expire is checked again."""


class Known(msgspec.Struct, frozen=True):
    """A broker's registration and the version of the registration, both read before the leases were read."""

    broker_id: int
    version: int
    registration: BrokerRegistration


class Restart:
    """The wait of a controller that has itself just started: all brokers may have been down, and return now.

    The metadata may be an older copy, in whose ISRs are replicas that lack records (`docs/how-to/recover.md`). Nobody
    is unfenced or elected until all brokers have reported their logs, or a session timeout has passed. The wait ends at
    once if a broker renews the lease with which it was unfenced, because this broker was alive all the time. One of
    the live brokers therefore renews its lease every `AWAITED_S` until the controller is unfenced.
    """

    def __init__(self, until_ms: int) -> None:
        self._until_ms = until_ms
        self._expiries: dict[int, int] = {}
        """The times at which the leases of unfenced brokers end, as first seen, in ms by broker id."""

    def is_over(self, registrations: Sequence[BrokerRegistration], leases: Mapping[str, Lease], now_ms: int) -> bool:
        """True if brokers can be unfenced now. The lease of a broker that has died may not have ended yet."""
        holders = [each for each in registrations if _holds(leases, each, now_ms)]
        have_run = [each for each in holders if not each.fenced]
        if now_ms >= self._until_ms or (len(holders) == len(registrations) and not have_run):
            return True
        expiries = [(each.broker_id, leases[_lease_of(each)].expires_at_ms) for each in have_run]
        return any(self._expiries.setdefault(broker_id, expiry) != expiry for broker_id, expiry in expiries)


class Controller:
    """The controller task of a broker.

    `run` runs on every broker. On a broker that is not the controller, `run` does only two things. After a call of
    `suspect`, `run` ends the leases of brokers that have died, and fences brokers whose leases have ended. When the
    controller is fenced or not registered, `run` tries to take the controller lease.

    A suspect has died if it has answered, and now its machine refuses connections to the port between brokers. A
    machine that hangs, is away, or is behind a broken network refuses nothing, and a broker that starts has not
    answered: their leases go on until they expire.
    """

    def __init__(
        self,
        broker_id: int,
        store: MetadataStore,
        image: MetadataImage,
        membership: Membership,
        partitions: PartitionChanges,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        timers: Timers,
        refuses: Callable[[int], Awaitable[bool]],
    ) -> None:
        """Create the controller; `refuses` tells for a broker id if the broker's machine refuses connections."""
        self._refuses = refuses
        self._broker_id = broker_id
        self._store = store
        self._image = image
        self._membership = membership
        self._partitions = partitions
        self._config = config
        self._clock = clock
        self._timers = timers
        self._transitions = Transitions(store, image)
        self._losses = LossReports(image)
        self._past_incarnations = PastIncarnations(image)
        self._deletions = Deletions(image, self._transitions, clock)
        self._woken = asyncio.Event()
        self._timer: Cancellable | None = None
        self._controls = False
        self._restart: Restart | None = None
        """The wait after a restart of all brokers, until it is over."""
        self._suspects: dict[int, int | None] = {}
        """The arguments of `suspect`, until they are checked."""
        self._brokers_changed = True
        self._beat = False
        """True if a heartbeat is due. The controller checks the leases of brokers at every heartbeat."""
        self._changed_topics: set[str] = set()
        self._next_expiry_ms: int | None = None
        self._balance_at_s = 0.0
        self._passes = 0

    def progress(self) -> object:
        """Return a value that changes whenever the loop in `run` completes an iteration or writes changes."""
        return self._passes, self._transitions.rounds, self._partitions.rounds

    def suspect(self, broker_id: int, answered_epoch: int | None = None) -> None:
        """Wake `run`, which fences a broker that has died, and those whose leases have ended.

        This broker has lost a connection to the broker `broker_id`, which may therefore have died. `answered_epoch` is
        the broker epoch of the incarnation that has answered last; None if none has.
        """
        registration = self._image.brokers.get(broker_id)
        if registration is not None and not registration.fenced:
            self._suspects[broker_id] = answered_epoch
            self._woken.set()

    async def run(self) -> None:
        """Do the controller's work while this broker holds the controller lease, until the task is cancelled."""
        self._past_incarnations.start()
        self._image.subscribe(self._image_changed)
        while True:
            try:
                await self._run_once()
            except StoreUnavailable as error:
                self._next_expiry_ms = None  # The leases may have been renewed since they were read.
                log.warning(
                    "no broker can be fenced and no leader elected, because the metadata store does not answer: %s",
                    error,
                )
            self._passes += 1
            self._wake_later()
            await self._woken.wait()
            self._woken.clear()

    def _image_changed(self, change: ImageChange) -> None:
        self._changed_topics.update(topic.name for topics in (change.created, change.changed) for topic in topics)
        if change.brokers or change.controller or change.configs:
            self._brokers_changed = True
            self._changed_topics.update(self._image.topics)
        self._woken.set()

    def _wake_later(self) -> None:
        """Wake at the next heartbeat, or when the next lease expires if that is earlier."""
        if self._timer is not None:
            self._timer.cancel()
        delay_s = self._config().broker_heartbeat_interval_ms / 1000
        if self._restart is not None or self._vouches():
            delay_s = min(delay_s, AWAITED_S)
        if self._controls and self._next_expiry_ms is not None:
            delay_s = max(SOON_S, min(delay_s, (self._next_expiry_ms - monotonic_ms(self._clock)) / 1000))
        self._timer = self._timers.call_later(delay_s, self._heartbeat)

    def _heartbeat(self) -> None:
        self._beat = True
        self._woken.set()

    async def _run_once(self) -> None:
        if self._suspects:
            suspects, self._suspects = self._suspects, {}
            try:
                await self._end_leases(suspects)
                await self._fence(*await self._registrations_and_leases())
            except StoreUnavailable:
                self._suspects = suspects | self._suspects
                raise
        if self._vouches():
            await self._membership.renew()
        if not self._membership.is_controller and self._controller_is_gone():
            await self._membership.try_for_controller()
        if not self._check_control() or await self._awaits_brokers():
            return
        if self._beat and await self._leases_differ():
            self._brokers_changed = True
        self._beat = False
        while self._brokers_changed:  # Brokers come before partitions, so that unfenced brokers count as alive.
            self._brokers_changed = False
            await self._care_for_brokers()
        await self._update_partitions()
        await self._balance()
        await self._deletions.tend()

    def _controller_is_gone(self) -> bool:
        registration = self._image.brokers.get(self._image.controller_id)
        return registration is None or registration.fenced

    async def _end_leases(self, suspects: Mapping[int, int | None]) -> None:
        """End the leases of suspects that have died, so that nobody waits until they expire."""
        live = [self._image.brokers[each] for each in suspects if each in self._image.live]
        answered = [each for each in live if each.broker_epoch == suspects[each.broker_id]]
        refusals = await asyncio.gather(*(self._refuses(each.broker_id) for each in answered))
        dead = {holder_of(each) for each, refuses in zip(answered, refusals, strict=True) if refuses}
        for lease in await self._store.leases("") if dead else ():
            if lease.holder in dead:
                log.warning("%s has died, because its port refuses connections: its lease %s ends", *lease[1::-1])
                await self._store.release_lease(lease)

    def _vouches(self) -> bool:
        """True if the controller starts again while brokers are alive, and this broker must show it (`Restart`).

        One broker does: the live one with the lowest id.
        """
        live = self._image.live
        return bool(live) and min(live) == self._broker_id and self._controller_is_gone()

    def _check_control(self) -> bool:
        """True if this broker is the controller.

        When this broker becomes the controller, all brokers and topics are marked as changed, so that they are checked.
        """
        began = self._membership.is_controller and not self._controls
        self._controls = self._membership.is_controller
        if began:
            log.info("broker %d is the controller", self._broker_id)
            self._restart = self._begun_restart()
            self._deletions.begin()
            self._brokers_changed = True
            self._changed_topics.update(self._image.topics)
            self._balance_at_s = self._clock.monotonic_s() + self._config().leader_imbalance_check_interval_seconds
        if not self._controls:
            self._changed_topics.clear()
        return self._controls

    def _begun_restart(self) -> Restart | None:
        """Return the wait for other brokers if this broker is not admitted yet, so that all brokers may be starting."""
        own = self._image.brokers.get(self._broker_id)
        if own is not None and not own.fenced and own.broker_epoch == self._membership.registered_epoch:
            return None
        timeout_ms = self._config().broker_session_timeout_ms
        if len(self._image.brokers) > 1:
            log.info(
                "leaders are elected once all of %s have started, or after %d ms", set(self._image.brokers), timeout_ms
            )
        return Restart(monotonic_ms(self._clock) + timeout_ms)

    async def _awaits_brokers(self) -> bool:
        """True if brokers are awaited after a restart of all, before anybody is unfenced."""
        if self._restart is None:
            return False
        known, leases = await self._registrations_and_leases()
        if self._restart.is_over([each.registration for each in known], leases, monotonic_ms(self._clock)):
            self._restart = None
        return self._restart is not None

    async def _care_for_brokers(self) -> None:
        try:
            known, leases = await self._registrations_and_leases()
        except StoreUnavailable:
            self._brokers_changed = True
            raise
        await self._fence(known, leases)
        await self._admit(known, leases)

    async def _registrations_and_leases(self) -> tuple[Sequence[Known], Mapping[str, Lease]]:
        """Read the registrations first, and then the leases, so that the leases are not older than the registrations.

        With older leases, a broker could be unfenced because of the lease that it had before it was fenced, or be
        fenced although it has renewed its lease.
        """
        known = [
            Known(broker_id, self._image.version(broker_key(broker_id)), registration)
            for broker_id, registration in self._image.brokers.items()
        ]
        return known, self._by_name(await self._store.leases(BROKER_LEASES))

    async def _leases_differ(self) -> bool:
        """True if a broker other than this one is fenced despite a valid lease, or unfenced without a valid lease.

        The leases are those of `followed_leases`, and may be out of date. Fenced brokers that are shutting down do not
        count.
        """
        leases = self._by_name(await self._store.followed_leases(BROKER_LEASES))
        now_ms = monotonic_ms(self._clock)
        return any(
            _holds(leases, each, now_ms) == each.fenced
            for broker_id, each in self._image.brokers.items()
            if broker_id != self._broker_id and not (each.fenced and each.is_shutting_down)
        )

    def _by_name(self, leases: Sequence[Lease]) -> Mapping[str, Lease]:
        now_ms = monotonic_ms(self._clock)
        self._next_expiry_ms = min((each.expires_at_ms for each in leases if each.expires_at_ms > now_ms), default=None)
        return {each.name: each for each in leases}

    async def _fence(self, known: Sequence[Known], leases: Mapping[str, Lease]) -> None:
        """Fence brokers whose lease has ended.

        An expired lease counts only if this broker renewed its own lease in time: otherwise the store or the
        machine may have stood still.
        """
        now_ms = monotonic_ms(self._clock)
        since_ms = now_ms if self._membership.trusts_expiry(now_ms) else 0
        ended = [
            each
            for each in known
            if each.broker_id != self._broker_id
            and not each.registration.fenced
            and not _holds(leases, each.registration, since_ms)
        ]
        for broker_id in await self._change_registrations(ended, _fenced):
            log.warning("broker %d is fenced, because its lease has ended", broker_id)

    async def _admit(self, known: Sequence[Known], leases: Mapping[str, Lease]) -> None:
        """Unfence brokers whose lease is valid, unless they are shutting down.

        Before that, update the partitions that have replicas on a restarted broker, because its logs may lack records.
        """
        now_ms = monotonic_ms(self._clock)
        returning = {
            each.broker_id: each
            for each in known
            if each.registration.fenced
            and not each.registration.is_shutting_down
            and _holds(leases, each.registration, now_ms)
        }

        known_ends = KnownEnds(self._image)

        def begin_incarnations(which: TopicPartition, topic: TopicDocument, rules: Rules) -> PartitionState:
            before = state = topic.partitions[which.partition]
            for broker_id, each in returning.items():
                has_changed = self._image.brokers.get(broker_id) != each.registration
                if broker_id in state.replicas and not has_changed:
                    lacks = known_ends.lost_by_a_start(each.registration, topic.topic_id, which.partition)
                    is_past = self._past_incarnations.is_past(broker_id, topic, which.partition)
                    state = begin_incarnation(state, broker_id, lacks, rules, is_past=is_past)
            if state.leader_epoch == before.leader_epoch:  # The log ends of most partitions need not be decoded.
                return state
            return unless_older(before, state, known_ends.latest_epoch(topic.topic_id, which.partition, state.replicas))

        names = [name for name, topic in self._image.topics.items() if _is_on(topic.partitions, returning)]
        if returning and not await self._partitions.change_topics(names, begin_incarnations):
            for broker_id in await self._change_registrations(list(returning.values()), _admitted):
                log.info("broker %d is unfenced", broker_id)

    async def _change_registrations(
        self, known: Sequence[Known], change: Callable[[BrokerRegistration], BrokerRegistration]
    ) -> list[int]:
        """Change registrations that nobody has changed since they were read; return the ids of the changed brokers."""
        by_id = {each.broker_id: each for each in known}

        def decide(wanted: Sequence[int]) -> dict[int, Planned | ApiError]:
            return {
                broker_id: Planned(broker_key(broker_id), change(by_id[broker_id].registration))
                for broker_id in wanted
                if self._image.version(broker_key(broker_id)) == by_id[broker_id].version
            }

        outcomes = await self._transitions.carry_out(list(by_id), decide)
        return [broker_id for broker_id, outcome in outcomes.items() if isinstance(outcome, Planned)]

    async def _update_partitions(self) -> None:
        """Remove dead brokers from ISRs and elect leaders, first in topics that have a partition without a live leader.

        When a broker joins or dies, all topics are checked, but only the topics that change are written. Finally, log
        partitions that have lost records.
        """
        changed, self._changed_topics = self._changed_topics, set()
        turn, topics, decide = FairTurn(self._clock), sorted(changed), for_each(remove_dead)
        names = [name for name in topics if await self._partitions.would_change(name, decide, turn)]
        if names:
            names.sort(key=lambda name: not self._is_leaderless(name))
            self._changed_topics |= (await self._partitions.change_topics(names, decide)).keys()
        await self._losses.report(topics, turn)

    def _is_leaderless(self, name: str) -> bool:
        topic = self._image.topics.get(name)
        return topic is not None and any(state.leader not in self._image.live for state in topic.partitions)

    async def _balance(self) -> None:
        """Return leadership to preferred replicas periodically, because a restarted broker leads nothing at first."""
        config, now_s = self._config(), self._clock.monotonic_s()
        if not config.auto_leader_rebalance_enable or now_s < self._balance_at_s:
            return
        self._balance_at_s = now_s + config.leader_imbalance_check_interval_seconds
        wanted = await all_unbalanced(self._image, FairTurn(self._clock))
        if wanted:
            log.info("electing the preferred replicas as the leaders of %d partitions", len(wanted))
            await self._partitions.change(wanted, _prefer)


async def all_unbalanced(image: MetadataImage, turn: FairTurn) -> list[TopicPartition]:
    """Return the partitions of all topics whose preferred replica could lead the partition, but does not.

    Other tasks run during the search, so the caller must check each partition again before changing it.
    """
    found: list[TopicPartition] = []
    async for name in turn.over(image.topics):
        topic, rules = image.topics.get(name), Rules(image.brokers)
        states = enumerate(topic.partitions if topic is not None else ())
        found += [TopicPartition(name, number) for number, state in states if wants_preferred(state, rules)]
    return found


def _prefer(which: TopicPartition, topic: TopicDocument, rules: Rules) -> PartitionState:
    return decide_election(topic.partitions[which.partition], ElectionType.PREFERRED, rules)


def _holds(leases: Mapping[str, Lease], registration: BrokerRegistration, now_ms: int) -> bool:
    """True if the registered incarnation of the broker holds an unexpired lease."""
    lease = leases.get(_lease_of(registration))
    return lease is not None and lease.token == registration.broker_epoch and lease.expires_at_ms > now_ms


def _lease_of(registration: BrokerRegistration) -> str:
    return f"{BROKER_LEASES}{registration.broker_id}"


def _fenced(registration: BrokerRegistration) -> BrokerRegistration:
    return msgspec.structs.replace(registration, fenced=True)


def _admitted(registration: BrokerRegistration) -> BrokerRegistration:
    """Return the registration with the broker unfenced and `may_lack_records` cleared.

    The partitions now show which replicas lack records.
    """
    return msgspec.structs.replace(registration, fenced=False, may_lack_records=False)


def _is_on(partitions: Sequence[PartitionState], brokers: Mapping[int, Known]) -> bool:
    return any(not brokers.keys().isdisjoint(state.replicas) for state in partitions)
