"""The steps that change the credentials, ACLs and quotas of Kafka users, and the descriptions of the steps."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from barnabas_operator.planning.refusal import listed
from barnabas_operator.planning.users.cluster_users import Acl

SHOWN_MAX: Final = 3


class SetPassword(NamedTuple):
    """The step that stores a SCRAM credential with the password.

    Without a salt, a random one is used. With an overlap, the previous password stays valid for that time; it must have
    the same salt.
    """

    user: str
    mechanism: str
    password: str
    salt: bytes | None = None
    overlap_s: int = 0

    def __repr__(self) -> str:  # A traceback must not show the password.
        return f"SetPassword({self.user}, {self.mechanism})"


class DeletePassword(NamedTuple):
    """The step that deletes the SCRAM credential of a user for a mechanism."""

    user: str
    mechanism: str


class CreateAcls(NamedTuple):
    """The step that creates missing ACLs of a user."""

    user: str
    acls: tuple[Acl, ...]


class DeleteAcls(NamedTuple):
    """The step that deletes the undeclared ACLs of a user."""

    user: str
    acls: tuple[Acl, ...]


class SetQuotas(NamedTuple):
    """The step that changes quotas of a user.

    `changes` holds the new value of each quota by Kafka's key, such as `producer_byte_rate`; None removes the quota.
    """

    user: str
    changes: Mapping[str, float | None]


UserStep = SetPassword | DeletePassword | CreateAcls | DeleteAcls | SetQuotas


def describe(step: UserStep) -> str:
    """Return the step in words, for logs and Events."""
    match step:
        case SetPassword(user, mechanism, _, _, overlap_s):
            stays = f"; the previous one stays valid for {overlap_s} s" if overlap_s else ""
            return f"set the password of user {user} ({mechanism}{stays})"
        case DeletePassword(user, mechanism):
            return f"delete the password of user {user} ({mechanism})"
        case CreateAcls(user, acls):
            return f"give user {user} these ACLs: {listed(acls, SHOWN_MAX)}"
        case DeleteAcls(user, acls):
            return f"delete these ACLs of user {user}: {listed(acls, SHOWN_MAX)}"
        case SetQuotas(user, changes):
            said = (f"{key}={value:g}" if value is not None else f"no {key}" for key, value in changes.items())
            return f"set quotas of user {user}: {', '.join(said)}"
