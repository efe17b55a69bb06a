"""The parts of the broker that handlers may use. One value, made by the app."""

import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas_broker.coordinators.groups.coordinator import GroupCoordinator
from barnabas_broker.coordinators.producer_ids import ProducerIds
from barnabas_broker.coordinators.transactions.coordinator import TransactionCoordinator
from barnabas_broker.coordinators.transactions.gate import TransactionGate
from barnabas_broker.handlers.batch_trust import BatchTrust
from barnabas_broker.handlers.broker_loggers import BrokerLoggers
from barnabas_broker.handlers.client_quotas import ClientQuotas
from barnabas_broker.handlers.encoded_topics import EncodedTopics
from barnabas_broker.handlers.large_responses import LargeResponses
from barnabas_broker.metadata.controller.metadata_writer import MetadataWriter
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import BrokerRegistration
from barnabas_broker.replication.end_offsets import EndOffsets
from barnabas_broker.replication.fetchers import Fetchers
from barnabas_broker.replication.follower_sessions import FollowerSessions
from barnabas_broker.replication.isr_changes import IsrChanges
from barnabas_broker.replication.log_mover import LogMover
from barnabas_broker.replication.purgatory import Purgatory
from barnabas_broker.replication.replica_manager import ReplicaManager
from barnabas_broker.security.acls.authorizer import Authorizer
from barnabas_broker.security.sasl.scram_users import ScramUsers
from barnabas_broker.security.stored_passwords import StoredPasswords
from barnabas_broker.storage.inspection.inspector import BatchInspector
from barnabas_broker.storage.log_dirs.log_manager import LogManager
from barnabas_core.clock import Clock, Timers
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.config.listeners import Endpoint


class IgnoredConfig(NamedTuple):
    """A setting of a `topic` or `broker`, by its name, that is stored and has no effect."""

    resource: str
    name: str
    setting: str


@dataclass(slots=True)
class HandlerEnvironment:
    """`config` changes as a whole when a dynamic broker config does; all else stays for the life of the broker."""

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
    producer_ids: ProducerIds
    inspector: BatchInspector
    trust: BatchTrust
    attempt: Callable[[Coroutine[object, object, None]], object]
    """Run a coroutine as a task; its exceptions are logged."""
    encoded_topics: EncodedTopics
    answers: LargeResponses
    metadata_answers: LargeResponses
    """Metadata takes turns with itself only: after a failover all clients need it, whatever else is asked."""
    ignored_configs: Callable[[], Iterable[IgnoredConfig]]
    """Settings that are stored and cannot be used."""
    scram: ScramUsers | None = None
    """The SCRAM credentials, where a listener asks for them."""
    authorizer: Authorizer | None = None
    """The rights of clients; without an authorizer they may do everything."""
    loggers: BrokerLoggers = field(default_factory=lambda: BrokerLoggers(logging.getLogger()))
    """The loggers of the process, unless a test has others."""
    passwords: StoredPasswords | None = None
    """The keeper of password configs; None if there is no store of secrets, as in the simulation."""
    check_certificates: Callable[[BrokerConfig], Awaitable[None]] | None = None
    """A check that raises InvalidConfig where a listener cannot use the certificates of these settings."""
    quotas: ClientQuotas = field(init=False)

    def __post_init__(self) -> None:
        self.quotas = ClientQuotas(self.image, self.clock, self.config.listeners.only_between_brokers)

    @property
    def controller_id(self) -> int:
        """The broker to which clients send requests for the controller: any live broker can answer them."""
        controller_id = self.image.controller_id
        return controller_id if controller_id in self.image.live else self.broker_id

    def nodes(self, listener_name: str, *, with_fenced: bool = False) -> Iterable[tuple[BrokerRegistration, Endpoint]]:
        """Return the brokers that clients may know, each with its advertised address of this listener."""
        for registration in visible_brokers(self.image.brokers.values(), with_fenced=with_fenced):
            for endpoint in registration.listeners:
                if endpoint.name == listener_name:
                    yield registration, endpoint


def visible_brokers(
    registrations: Collection[BrokerRegistration], *, with_fenced: bool = False
) -> Collection[BrokerRegistration]:
    """Return the brokers that are alive, or all if none is: after a restore of the metadata store they register again.

    A client that gets no broker forgets those that it has, and never asks again (librdkafka 2.16).
    """
    alive = [each for each in registrations if not each.fenced]
    return registrations if with_fenced or not alive else alive
