"""The broker's objects that handlers use, such as the metadata image, the replicas and the coordinators.

`DepartedBrokers` are brokers that died a moment ago, which Metadata responses still list. A client of librdkafka ends
everything that it does with a broker as soon as the broker leaves Metadata. A request that waits for this broker as its
coordinator then waits forever (librdkafka 2.16), and partitions without a broker are only examined once a second. Kafka
lists a dead broker until its session has expired, in which time clients reconnect in vain and ask for the new
coordinator. Here a broker is fenced milliseconds after its process has died, and its partitions have new leaders at
once. So Metadata lists the broker for the time of a session after that. Nothing else does: a departed broker is never
named as a leader, as a coordinator or as the controller.

`BrokerLoggers` has the log levels of this broker's loggers, as Kafka's BROKER_LOGGER configs (KIP-412). Levels can be
changed while the broker runs, and are lost when it stops. Loggers have Python's names, such as
`barnabas_broker.replication`; `root` is the parent of all loggers.

The quotas of clients on this broker, and the use of each quota. The quotas of a user with a client id are cached
until quotas change. Clients with the same quota share a counter: all clients of a user, of a client id, or of both.
"""

import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from barnabas_broker.coordinators.groups.coordinator import GroupCoordinator
from barnabas_broker.coordinators.runtime.peer_requests import FeatureUsers
from barnabas_broker.coordinators.share_delivery.delivery import ShareDelivery
from barnabas_broker.coordinators.share_state.persister import ShareCoordinator, SharePersister
from barnabas_broker.coordinators.transactions.coordinator import ProducerIds, TransactionCoordinator
from barnabas_broker.coordinators.transactions.gate import TransactionGate
from barnabas_broker.handlers.batch_trust import BatchTrust
from barnabas_broker.handlers.large_responses import EncodedTopics, LargeResponses
from barnabas_broker.metadata.controller.decisions.alter_configs import ConfigChange, ConfigOperation
from barnabas_broker.metadata.controller.decisions.cluster_settings import (
    CLIENT_ID,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    AllQuotas,
    client_quotas,
    connection_rates,
    quota_of_client,
)
from barnabas_broker.metadata.controller.metadata_writer import MetadataWriter
from barnabas_broker.metadata.documents import ImageChange
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import NO_LEADER, BrokerRegistration
from barnabas_broker.replication.fetch_session import LogMover
from barnabas_broker.replication.fetchers import Fetchers
from barnabas_broker.replication.follower_sessions import FollowerSessions
from barnabas_broker.replication.leader_replica import IsrChanges, Purgatory
from barnabas_broker.replication.other_brokers import EndOffsets
from barnabas_broker.replication.replica_manager import ReplicaManager
from barnabas_broker.security.authorizer import Authorizer
from barnabas_broker.security.sasl.scram_credential import ScramUsers, StoredPasswords
from barnabas_broker.storage.inspection import BatchInspector
from barnabas_broker.storage.log_dirs.log_manager import LogManager
from barnabas_broker.wire.framing import CurrentLeader, LeaderEndpoint
from barnabas_core.clock import Clock, Timers, monotonic_ms
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.config.listeners import Endpoint
from barnabas_core.errors import ApiError, ErrorCode

LEADER_ERRORS: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


def current_leader(
    image: MetadataImage, listener_name: str, name: str | None, topic_id: bytes | None, index: int
) -> CurrentLeader | None:
    """Return the leader of a partition; None if the partition is unknown or has no leader.

    The topic id is used only if `name` is None.
    """
    if name is None and topic_id is not None:
        name = image.topic_name(UUID(bytes=topic_id))
    document = image.topics.get(name) if name is not None else None
    if document is None or not 0 <= index < len(document.partitions):
        return None
    state = document.partitions[index]
    if state.leader == NO_LEADER:
        return None
    registration = image.brokers.get(state.leader)
    endpoint = None if registration is None or registration.fenced else _endpoint(registration, listener_name)
    return CurrentLeader(state.leader, state.leader_epoch, endpoint)


def _endpoint(registration: BrokerRegistration, listener_name: str) -> LeaderEndpoint | None:
    for each in registration.listeners:
        if each.name == listener_name:
            return LeaderEndpoint(registration.broker_id, each.host, each.port, registration.rack)
    return None


SAMPLES: Final = 11
"""The number of samples of a rate, as in Kafka's default of quota.window.num."""
WINDOW_MS: Final = 1000
"""The length of a sample in ms, as in Kafka's default of quota.window.size.seconds."""


class SampledRate:
    """The amounts of the last eleven seconds, summed in samples of one second; all times are monotonic ms."""

    __slots__ = ("_samples", "_sum")

    def __init__(self) -> None:
        self._samples: deque[tuple[int, float]] = deque()
        """The samples, oldest first: the start of the sample in ms, and the sum of the amounts counted in it."""
        self._sum = 0.0

    def is_unused(self, _limit: float, now_ms: int) -> bool:
        """True if the amounts of the last eleven seconds add up to nothing."""
        self._forget(now_ms)
        return self._sum <= 0

    def count(self, amount: float, _limit: float, now_ms: int) -> None:
        """Count an amount; a negative amount takes back an earlier one."""
        self._forget(now_ms)
        if self._samples and now_ms - self._samples[-1][0] < WINDOW_MS:
            start_ms, counted = self._samples.pop()
            self._samples.append((start_ms, counted + amount))
        else:
            self._samples.append((now_ms, amount))
        self._sum += amount

    def wait_ms(self, limit: float, now_ms: int) -> int:
        """Return the ms until the rate falls to `limit` per second if nothing is counted, or 0 if the rate is lower."""
        self._forget(now_ms)
        if not self._samples:
            return 0
        window_ms = max(now_ms - self._samples[0][0], (SAMPLES - 1) * WINDOW_MS)
        rate = self._sum * 1000 / window_ms
        return round((rate - limit) / limit * window_ms) if rate > limit else 0

    def _forget(self, now_ms: int) -> None:
        while self._samples and now_ms - self._samples[0][0] >= SAMPLES * WINDOW_MS:
            self._sum -= self._samples.popleft()[1]
        if not self._samples:
            self._sum = 0.0  # Reset the sum, so that rounding errors do not add up.


class TokenBucket:
    """A bucket that gets `limit` tokens each second, and holds at most the tokens of eleven seconds.

    A request may take more tokens than there are, so that their number becomes negative.
    """

    __slots__ = ("_filled_ms", "_tokens")

    def __init__(self) -> None:
        self._tokens: float | None = None
        """The tokens in the bucket, negative after an overdraft; None before the first use, which means full."""
        self._filled_ms = 0

    def is_unused(self, limit: float, now_ms: int) -> bool:
        """True if the bucket is full."""
        self._fill(limit, now_ms)
        return self._tokens == _most(limit)

    def count(self, amount: float, limit: float, now_ms: int) -> None:
        """Take tokens; a negative amount gives tokens back."""
        self._fill(limit, now_ms)
        self._tokens = (self._tokens or 0.0) - amount

    def wait_ms(self, limit: float, now_ms: int) -> int:
        """Return the ms until the bucket is not negative; 0 if it is not negative now."""
        self._fill(limit, now_ms)
        return round(max(-(self._tokens or 0.0), 0.0) / limit * 1000)

    def _fill(self, limit: float, now_ms: int) -> None:
        tokens = _most(limit) if self._tokens is None else self._tokens
        self._tokens = min(tokens + (now_ms - self._filled_ms) / 1000 * limit, _most(limit))
        self._filled_ms = now_ms


def _most(limit: float) -> float:
    return limit * SAMPLES * WINDOW_MS / 1000


COUNTERS_MAX: Final = 10_000
"""The maximum number of counters; without a limit, clients could create any number with new client ids."""
COUNTERS_EXAMINED: Final = 16
"""The maximum number of counters to examine when a new counter needs room; the first unused one is dropped."""
CLIENT_ID_CHARS_MAX: Final = 200
"""The number of characters at the beginning of a client id by which quotas distinguish clients."""
FULL_WINDOW_S: Final = (SAMPLES - 1) * WINDOW_MS / 1000
THROTTLE_MS_MAX: Final = 2**31 - 1
"""The longest throttle time in a response, which is an int32."""

Used = SampledRate | TokenBucket


class Limited:
    """A quota's limit, its use by the clients that share the quota, and the time for which they were throttled."""

    __slots__ = ("_clock", "_used", "_wait_ms_max", "client_id", "key", "limit", "throttled_ms", "user")

    def __init__(self, key: str, user: str, client_id: str, used: Used, clock: Clock, wait_ms_max: int) -> None:
        self.key = key
        self.user = user
        self.client_id = client_id
        self.limit = 0.0
        self.throttled_ms = 0
        self._used = used
        self._clock = clock
        self._wait_ms_max = wait_ms_max

    @property
    def is_unused(self) -> bool:
        """True if the recent use is 0, so that the counter can be dropped without effect."""
        return self._used.is_unused(self.limit, monotonic_ms(self._clock))

    def wait_ms(self) -> int:
        """Return the throttle time of the client in ms; 0 if the client is within its quota."""
        return min(self._used.wait_ms(self.limit, monotonic_ms(self._clock)), self._wait_ms_max)

    def count(self, amount: float) -> None:
        """Add an amount to what the clients have used of the quota; a negative amount is given back."""
        self._used.count(amount, self.limit, monotonic_ms(self._clock))

    def throttled(self, throttle_ms: int) -> None:
        """Add a throttle time in ms to the total for the metrics."""
        self.throttled_ms += throttle_ms


class ClientLimits(NamedTuple):
    """The quotas of a user with a client id; None means no limit."""

    produced_bytes: Limited | None
    consumed_bytes: Limited | None
    request_share: Limited | None
    mutations: Limited | None


class ClientQuotas:
    """The quotas of all clients and addresses; `on_change` is called after a change of quotas."""

    def __init__(self, image: MetadataImage, clock: Clock, brokers_listener: str | None) -> None:
        """Initialize the quotas; connections to `brokers_listener`, which only brokers use, have no quotas."""
        self._image = image
        self._clock = clock
        self._brokers_listener = brokers_listener
        self._quotas: AllQuotas = {}
        self._connection_rates: Mapping[str | None, float] = {}
        self._limits: dict[tuple[str, str | None], ClientLimits | None] = {}
        self._counters: OrderedDict[tuple[str, str, str], Limited] = OrderedDict()
        self._addresses: OrderedDict[str, SampledRate] = OrderedDict()
        self.on_change: Callable[[], object] = lambda: None
        image.subscribe(self._changed)
        self._read()

    @property
    def are_set(self) -> bool:
        """True if any client or address has a quota."""
        return bool(self._quotas)

    def _changed(self, change: ImageChange) -> None:
        if change.quotas:
            self._read()
            self.on_change()

    def _read(self) -> None:
        self._quotas = client_quotas(self._image)
        self._connection_rates = connection_rates(self._quotas)
        self._limits.clear()

    def of(self, principal: str, client_id: str | None, listener_name: str) -> ClientLimits | None:
        """Return the quotas of a client; None if it has none."""
        key = principal, client_id
        try:
            return self._limits[key] if listener_name != self._brokers_listener else None
        except KeyError:
            kept_id = client_id and client_id[:CLIENT_ID_CHARS_MAX]
            limits = self._decide(principal.removeprefix("User:"), kept_id or "")
            if len(self._limits) >= COUNTERS_MAX:
                self._limits.clear()
            self._limits[principal, kept_id] = limits
            return limits

    def _decide(self, user: str, client_id: str) -> ClientLimits | None:
        limits = ClientLimits(
            self._limited(PRODUCER_BYTE_RATE, user, client_id, SampledRate, THROTTLE_MS_MAX),
            self._limited(CONSUMER_BYTE_RATE, user, client_id, SampledRate, THROTTLE_MS_MAX),
            self._limited(REQUEST_PERCENTAGE, user, client_id, SampledRate, WINDOW_MS),
            self._limited(CONTROLLER_MUTATION_RATE, user, client_id, TokenBucket, THROTTLE_MS_MAX),
        )
        return limits if any(limits) else None

    def _limited(
        self, key: str, user: str, client_id: str, make: Callable[[], Used], wait_ms_max: int
    ) -> Limited | None:
        found = quota_of_client(self._quotas, key, user, client_id)
        if found is None:
            return None
        types = {kind for kind, _ in found.entity}
        place = key, user if USER in types else "", client_id if CLIENT_ID in types else ""
        limited = self._counters.get(place)
        if limited is None:
            if len(self._counters) >= COUNTERS_MAX:
                self._make_room()
            limited = self._counters[place] = Limited(*place, make(), self._clock, wait_ms_max)
        limited.limit = found.limit
        return limited

    def _make_room(self) -> None:
        """Drop an unused counter, to make room for a new counter.

        If the first COUNTERS_EXAMINED counters are all in use, the counter after them is dropped.
        """
        for _ in range(COUNTERS_EXAMINED):
            place, limited = self._counters.popitem(last=False)
            if limited.is_unused:
                return
            self._counters[place] = limited
        self._counters.popitem(last=False)

    def counters(self) -> list[Limited]:
        """Return all counters, for the metrics."""
        return list(self._counters.values())

    def connection_wait_ms(self, address: str) -> int:
        """Return the ms that a new connection from `address` must wait; if it need not wait, count it and return 0."""
        limit = self._connection_rates.get(address, self._connection_rates.get(None))
        if limit is None:
            return 0
        rate, now_ms = self._addresses.setdefault(address, SampledRate()), monotonic_ms(self._clock)
        self._addresses.move_to_end(address)
        if len(self._addresses) > COUNTERS_MAX:
            self._addresses.popitem(last=False)
        rate.count(1, limit, now_ms)
        wait_ms = rate.wait_ms(limit, now_ms)
        if wait_ms:
            rate.count(-1, limit, now_ms)
        return min(wait_ms, WINDOW_MS)


NOBODY: Final[Collection[int]] = frozenset()


class DepartedBrokers:
    """The times at which this broker learned that others are dead; brokers that stopped in order are not included."""

    def __init__(self, image: MetadataImage, clock: Clock, session_ms: int) -> None:
        self._image = image
        self._clock = clock
        self._session_ms = session_ms
        self._live = image.live
        self._fenced_ms: dict[int, int] = {}
        image.subscribe(self._changed)

    def ids(self) -> Collection[int]:
        """Return the ids of the brokers that were fenced less than a session ago, and are still fenced."""
        if not self._fenced_ms:
            return NOBODY
        since_ms = monotonic_ms(self._clock) - self._session_ms
        self._fenced_ms = {each: at_ms for each, at_ms in self._fenced_ms.items() if at_ms > since_ms}
        return self._fenced_ms.keys()

    def _changed(self, change: ImageChange) -> None:
        before, self._live = self._live, self._image.live
        for broker_id in change.brokers:
            found = self._image.brokers.get(broker_id)
            if found is None or not found.fenced or found.is_shutting_down:
                self._fenced_ms.pop(broker_id, None)
            elif broker_id in before:
                self._fenced_ms[broker_id] = monotonic_ms(self._clock)


ROOT: Final = "root"
TRACE: Final = 5
LEVELS: Final[Mapping[str, int]] = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": TRACE,
    "WARN": logging.WARNING,
}
"""The Python log level by Kafka's name, in the order in which Kafka's error message lists the names."""


class BrokerLoggers:
    """The log levels of the root logger and of all loggers below it."""

    def __init__(self, root: logging.Logger) -> None:
        self._root = root

    def levels(self) -> dict[str, str]:
        """Return the effective level of each logger, by the name of the logger."""
        names = sorted(self._root.manager.loggerDict)
        return {ROOT: _name(self._root.level)} | {name: _name(self._logger(name).getEffectiveLevel()) for name in names}

    def alter(self, changes: Sequence[ConfigChange], *, validate_only: bool) -> None:
        """Set or delete log levels; a logger without a level inherits the level of its parent.

        Raises ApiError if one of the changes is invalid, and then makes no change.
        """
        for change in changes:
            self._check(change)
        for change in () if validate_only else changes:
            deleted = change.operation is ConfigOperation.DELETE
            self._logger(change.name).setLevel(logging.NOTSET if deleted else LEVELS[change.value or ""])

    def _check(self, change: ConfigChange) -> None:
        if change.operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
            message = f"{change.operation.name} operation is not allowed for the BROKER_LOGGER resource"
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
        if change.name != ROOT and change.name not in self._root.manager.loggerDict:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Logger {change.name} does not exist!")
        if change.operation is ConfigOperation.SET and change.value not in LEVELS:
            message = f"Cannot set the log level of {change.name} to {change.value} as it is not a supported log level."
            raise ApiError(ErrorCode.INVALID_CONFIG, f"{message} Valid log levels are {', '.join(LEVELS)}")
        if change.operation is ConfigOperation.DELETE and change.name == ROOT:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")

    def _logger(self, name: str) -> logging.Logger:
        return self._root if name == ROOT else self._root.manager.getLogger(name)


def check_this_broker(name: str, broker_id: int) -> None:
    """Raise ApiError unless `name`, the name of a BROKER_LOGGER resource, is the id of this broker."""
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    if name != str(broker_id):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {broker_id}, but received {name}")


def _name(level: int) -> str:
    """Return Kafka's name of the Python level `level`; a level between two names gets the name of the higher one."""
    return min(LEVELS, key=lambda name: (LEVELS[name] < level, abs(LEVELS[name] - level)))


class IgnoredConfig(msgspec.Struct, frozen=True):
    """A stored config without effect; `resource` is `topic` or `broker`, and `name` the topic or broker id."""

    resource: str
    name: str
    setting: str


class HandlerEnvironment(msgspec.Struct):
    """The broker's objects that handlers use, such as the metadata image, the replicas and the coordinators.

    `config` is replaced when dynamic broker configs change; all other fields stay the same.
    """

    broker_id: int
    config: BrokerConfig
    clock: Clock
    timers: Timers
    image: MetadataImage
    metadata_writer: MetadataWriter
    logs: LogManager
    replicas: ReplicaManager
    fetchers: Fetchers
    followers: FollowerSessions
    isr_changes: IsrChanges
    suspect: Callable[[int, int | None], object]
    """Report that a connection to or from a broker was lost, with the broker epoch of its incarnation."""
    end_offsets: EndOffsets
    purgatory: Purgatory
    mover: LogMover
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    gate: TransactionGate
    shares: ShareDelivery
    share_state: ShareCoordinator
    persister: SharePersister
    feature_users: FeatureUsers
    producer_ids: ProducerIds
    inspector: BatchInspector
    attempt: Callable[[Coroutine[object, object, None]], object]
    """A function that runs a coroutine as a task and logs its exceptions."""
    answers: LargeResponses
    metadata_answers: LargeResponses
    """The scheduler of large Metadata responses; `answers` schedules all other large responses.

    After a failover all clients need Metadata, so Metadata responses do not wait for other large responses.
    """
    fetches: LargeResponses
    """The scheduler of large Fetch requests of clients."""
    broker_fetches: LargeResponses
    """The scheduler of large Fetch requests of those who may act as brokers: replication waits for no other client."""
    quotas: ClientQuotas
    departed: DepartedBrokers
    ignored_configs: Callable[[], Iterable[IgnoredConfig]]
    """A function that returns the configs that are stored, but have no effect."""
    scram: ScramUsers | None = None
    """The SCRAM credentials; None if no listener has a SCRAM mechanism."""
    authorizer: Authorizer | None = None
    """The authorizer; None means that every client has every right."""
    trust: BatchTrust = msgspec.field(default_factory=BatchTrust)
    encoded_topics: EncodedTopics = msgspec.field(default_factory=EncodedTopics)
    loggers: BrokerLoggers = msgspec.field(default_factory=lambda: BrokerLoggers(logging.getLogger()))
    """The loggers of the process."""
    passwords: StoredPasswords | None = None
    """The encryption of password configs; None if the broker has no store for secrets."""
    check_certificates: Callable[[BrokerConfig], Awaitable[None]] | None = None
    """A check that raises InvalidConfig if a listener cannot use the certificates of the config."""

    @property
    def controller_id(self) -> int:
        """The id of the controller, or the id of this broker while the controller is not alive."""
        controller_id = self.image.controller_id
        return controller_id if controller_id in self.image.live else self.broker_id

    def nodes(
        self, listener_name: str, *, with_fenced: bool = False, with_departed: bool = False
    ) -> Iterable[tuple[BrokerRegistration, Endpoint]]:
        """Yield the `visible_brokers` that have the listener, each with its advertised address."""
        departed = self.departed.ids() if with_departed else NOBODY
        for registration in visible_brokers(self.image.brokers.values(), departed, with_fenced=with_fenced):
            for endpoint in registration.listeners:
                if endpoint.name == listener_name:
                    yield registration, endpoint


def visible_brokers(
    registrations: Collection[BrokerRegistration], departed: Collection[int] = NOBODY, *, with_fenced: bool = False
) -> Collection[BrokerRegistration]:
    """Return the live brokers and those in `departed`; all brokers if none is alive or `with_fenced` is True.

    After a restore of the metadata store no broker is alive until it has registered again. A client that gets no
    brokers forgets those that it knows, and never connects again (librdkafka 2.16).
    """
    if with_fenced or all(each.fenced for each in registrations):
        return registrations
    return [each for each in registrations if not each.fenced or each.broker_id in departed]
