"""The rows of the pages of one topic and of users that are not in the snapshot."""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

OPEN, UNKNOWN, HANGING = "open", "unknown", "hanging"
HANGS_AFTER_S: Final = 15 * 60
"""The longest timeout that brokers allow by default (transaction.max.timeout.ms), as in find-hanging of Kafka."""


class Config(NamedTuple):
    """A setting of a topic: its value, None if it is secret, and where the value comes from."""

    name: str
    value: str | None
    source: str
    is_read_only: bool = False


class TopicDetail(NamedTuple):
    """The configs and rights of one topic, each None if it is not known; `failure` has the reason."""

    configs: Sequence[Config] | None
    rights: Collection[str] | None
    failure: str = ""


class AclRow(NamedTuple):
    """A rule about a principal: the operation that it allows or denies, and the resource."""

    principal: str
    permission: str
    operation: str
    resource_type: str
    resource: str
    pattern: str
    host: str


class TransactionRow(NamedTuple):
    """An open transaction in a partition; `held_back` is the number of offsets that it and others withhold."""

    topic: str
    partition: int
    state: str
    """HANGING, UNKNOWN if no coordinator that the visitor may ask knows it and it is younger, otherwise OPEN."""
    transactional_id: str | None
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_write: str
    idle_s: int
    held_back: int


class RunRow(NamedTuple):
    """A MaintenanceJob; times and duration are texts, empty before they are known."""

    name: str
    job: str
    cluster: str
    phase: str
    created: str
    started: str
    ended: str
    duration: str
    attempts: int
    progress: str
    records: int
    message: str


class UserRow(NamedTuple):
    """A user with a password, a rule or a quota."""

    name: str
    mechanisms: tuple[str, ...]
    rules: int
    quotas: str
