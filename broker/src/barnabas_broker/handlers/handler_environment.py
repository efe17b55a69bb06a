"""The broker's objects that handlers use, such as the metadata image, the replicas and the coordinators."""

import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas_broker.coordinators.groups.coordinator import GroupCoordinator
from barnabas_broker.coordinators.producer_ids import ProducerIds
from barnabas_broker.coordinators.runtime.feature_users import FeatureUsers
from barnabas_broker.coordinators.share_delivery.delivery import ShareDelivery
from barnabas_broker.coordinators.share_state.coordinator import ShareCoordinator
from barnabas_broker.coordinators.share_state.persister import SharePersister
from barnabas_broker.coordinators.transactions.coordinator import TransactionCoordinator
from barnabas_broker.coordinators.transactions.gate import TransactionGate
from barnabas_broker.handlers.batch_trust import BatchTrust
from barnabas_broker.handlers.broker_loggers import BrokerLoggers
from barnabas_broker.handlers.client_quotas import ClientQuotas
from barnabas_broker.handlers.departed_brokers import NOBODY, DepartedBrokers
from barnabas_broker.handlers.encoded_topics import EncodedTopics
from barnabas_broker.handlers.large_responses import LargeResponses, OneATurn
from barnabas_broker.metadata.controller.metadata_writer import MetadataWriter
from barnabas_broker.metadata.image.metadata_image import MetadataImage
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
from barnabas_core.clock import Clock, Timers
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.config.listeners import Endpoint


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
    fetches: OneATurn = field(default_factory=OneATurn)
    """The turns of the event loop in which large Fetch requests read partitions; each turn has one slice of one."""
    quotas: ClientQuotas = field(init=False)
    departed: DepartedBrokers = field(init=False)

    def __post_init__(self) -> None:
        self.departed = DepartedBrokers(self.image, self.clock, self.config.broker_session_timeout_ms)
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
