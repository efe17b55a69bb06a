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
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from barnabas_broker.coordinators.groups.coordinator import GroupCoordinator
from barnabas_broker.coordinators.runtime.peer_requests import FeatureUsers
from barnabas_broker.coordinators.share_delivery.delivery import ShareDelivery
from barnabas_broker.coordinators.share_state.coordinator import ShareCoordinator
from barnabas_broker.coordinators.share_state.persister import SharePersister
from barnabas_broker.coordinators.transactions.coordinator import ProducerIds, TransactionCoordinator
from barnabas_broker.coordinators.transactions.gate import TransactionGate
from barnabas_broker.handlers.batch_trust import BatchTrust
from barnabas_broker.handlers.client_quotas import ClientQuotas
from barnabas_broker.handlers.encoded_topics import EncodedTopics
from barnabas_broker.handlers.large_responses import LargeResponses
from barnabas_broker.metadata.controller.decisions.alter_configs import ConfigChange, ConfigOperation
from barnabas_broker.metadata.controller.metadata_writer import MetadataWriter
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.image.shown_documents import ImageChange
from barnabas_broker.metadata.model import BrokerRegistration
from barnabas_broker.replication.end_offsets import EndOffsets
from barnabas_broker.replication.fetch_session import LogMover
from barnabas_broker.replication.fetchers import Fetchers
from barnabas_broker.replication.follower_sessions import FollowerSessions
from barnabas_broker.replication.leader_replica import IsrChanges
from barnabas_broker.replication.purgatory import Purgatory
from barnabas_broker.replication.replica_manager import ReplicaManager
from barnabas_broker.security.acls.authorizer import Authorizer
from barnabas_broker.security.sasl.scram_credential import ScramUsers
from barnabas_broker.security.stored_passwords import StoredPasswords
from barnabas_broker.storage.inspection.inspector import BatchInspector
from barnabas_broker.storage.log_dirs.log_manager import LogManager
from barnabas_core.clock import Clock, Timers, monotonic_ms
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.config.listeners import Endpoint
from barnabas_core.errors import ApiError, ErrorCode

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


class IgnoredConfig(NamedTuple):
    """A stored config without effect; `resource` is `topic` or `broker`, and `name` the topic or broker id."""

    resource: str
    name: str
    setting: str


@dataclass(slots=True)
class HandlerEnvironment:
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
    trust: BatchTrust
    attempt: Callable[[Coroutine[object, object, None]], object]
    """A function that runs a coroutine as a task and logs its exceptions."""
    encoded_topics: EncodedTopics
    answers: LargeResponses
    metadata_answers: LargeResponses
    """The scheduler of large Metadata responses; `answers` schedules all other large responses.

    After a failover all clients need Metadata, so Metadata responses do not wait for other large responses.
    """
    ignored_configs: Callable[[], Iterable[IgnoredConfig]]
    """A function that returns the configs that are stored, but have no effect."""
    scram: ScramUsers | None = None
    """The SCRAM credentials; None if no listener has a SCRAM mechanism."""
    authorizer: Authorizer | None = None
    """The authorizer; None means that every client has every right."""
    loggers: BrokerLoggers = field(default_factory=lambda: BrokerLoggers(logging.getLogger()))
    """The loggers of the process."""
    passwords: StoredPasswords | None = None
    """The encryption of password configs; None if the broker has no store for secrets."""
    check_certificates: Callable[[BrokerConfig], Awaitable[None]] | None = None
    """A check that raises InvalidConfig if a listener cannot use the certificates of the config."""
    fetches: LargeResponses = field(init=False)
    """The scheduler of large Fetch requests of clients."""
    broker_fetches: LargeResponses = field(init=False)
    """The scheduler of large Fetch requests of those who may act as brokers: replication waits for no other client."""
    quotas: ClientQuotas = field(init=False)
    departed: DepartedBrokers = field(init=False)

    def __post_init__(self) -> None:
        self.departed = DepartedBrokers(self.image, self.clock, self.config.broker_session_timeout_ms)
        self.fetches = LargeResponses(self.clock, self.timers)
        self.broker_fetches = LargeResponses(self.clock, self.timers)
        self.quotas = ClientQuotas(self.image, self.clock, self.config.listeners.only_between_brokers)

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
