"""The rows of the pages of one topic and of users that are not in the snapshot."""

from collections.abc import Collection, Sequence
from typing import NamedTuple


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


class UserRow(NamedTuple):
    """A user with a password, a rule or a quota."""

    name: str
    mechanisms: tuple[str, ...]
    rules: int
    quotas: str
