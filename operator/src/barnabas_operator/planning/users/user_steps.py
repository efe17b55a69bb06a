"""The steps of a plan for users, and their words."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from barnabas_operator.planning.users.cluster_users import Acl

SHOWN_MAX: Final = 3


class SetPassword(NamedTuple):
    """The brokers check this password from now on."""

    user: str
    mechanism: str
    password: str

    def __repr__(self) -> str:  # A traceback must not show the password.
        return f"SetPassword({self.user}, {self.mechanism})"


class DeletePassword(NamedTuple):
    """The step that deletes a user's credential for a mechanism."""

    user: str
    mechanism: str


class CreateAcls(NamedTuple):
    """ACLs that the user lacks."""

    user: str
    acls: tuple[Acl, ...]


class DeleteAcls(NamedTuple):
    """The step that deletes ACLs that are not declared."""

    user: str
    acls: tuple[Acl, ...]


class SetQuotas(NamedTuple):
    """Quotas by Kafka's key; None takes one away."""

    user: str
    changes: Mapping[str, float | None]


UserStep = SetPassword | DeletePassword | CreateAcls | DeleteAcls | SetQuotas


def describe(step: UserStep) -> str:
    """Return the step in words."""
    match step:
        case SetPassword(user, mechanism, _):
            return f"set the password of user {user} ({mechanism})"
        case DeletePassword(user, mechanism):
            return f"delete the password of user {user} ({mechanism})"
        case CreateAcls(user, acls):
            return f"give user {user} {_listed(acls)}"
        case DeleteAcls(user, acls):
            return f"take from user {user} {_listed(acls)}"
        case SetQuotas(user, changes):
            said = (f"{key}={value:g}" if value is not None else f"no {key}" for key, value in changes.items())
            return f"set quotas of user {user}: {', '.join(said)}"


def _listed(acls: tuple[Acl, ...]) -> str:
    shown = ", ".join(map(str, acls[:SHOWN_MAX]))
    return shown if len(acls) <= SHOWN_MAX else f"{shown} and {len(acls) - SHOWN_MAX} more"
