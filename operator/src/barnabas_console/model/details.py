"""The rows of the pages of one topic and of users that are not in the snapshot."""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from barnabas_console.model.snapshot import Unknown

OPEN, UNKNOWN, HANGING, UNREAD = "open", "unknown", "hanging", "not read"
HANGS_AFTER_S: Final = 15 * 60
"""The longest timeout that brokers allow by default (transaction.max.timeout.ms), as in find-hanging of Kafka."""


class Config(NamedTuple):
    """A setting of a topic: its value, None if it is secret, and where the value comes from."""

    name: str
    value: str | None
    source: str
    is_read_only: bool = False


class Detail(NamedTuple):
    """The configs of a topic or group, and the rights to a topic, each None if not known; `failure` has the reason."""

    configs: Sequence[Config] | None = None
    rights: Collection[str] | None = None
    failure: str = ""


class TransactionRow(NamedTuple):
    """An open transaction in a partition; `held_back` is the number of offsets that it and others withhold."""

    topic: str
    partition: int
    state: str
    """OPEN if a coordinator knows it; else HANGING if it is old and all coordinators have answered, or UNKNOWN.

    UNREAD for a partition whose transactions are not known, for the reason `why`; then only `held_back` is set.
    """
    held_back: int
    transactional_id: str | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    coordinator_epoch: int | None = None
    start_offset: int | None = None
    last_write: str = ""
    idle_s: int = 0
    why: Unknown | None = None


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


class Roll(NamedTuple):
    """A rolling restart: the ids of brokers that wait for it and that restart now, and why the next one waits."""

    remaining: Sequence[int]
    restarting: Sequence[int]
    blocked_by: str
    message: str


class Manifest(NamedTuple):
    """The resource of Kubernetes that declares a topic or a group, as YAML to copy."""

    kind: str
    name: str
    text: str


class UserRow(NamedTuple):
    """A user with a password, a rule or a quota."""

    name: str
    mechanisms: tuple[str, ...]
    rules: int
    quotas: str
