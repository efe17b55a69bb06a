"""The status of a User after a reconciliation, and the Events about users."""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from barnabas_operator.planning.conditions import conditions_of
from barnabas_operator.planning.kube_event import Said
from barnabas_operator.planning.refusal import Refusal
from barnabas_operator.planning.users.user_steps import UserStep, describe
from barnabas_operator.resources.object_meta import merge_conditions
from barnabas_operator.resources.security import CertificateStatus
from barnabas_operator.resources.user import User, UserStatus

DRIFT_UNDONE: Final = "DriftUndone"
PASSWORD_ROTATED: Final = "PasswordRotated"


def user_status(
    user: User,
    problem: Refusal | None,
    now: str,
    *,
    cluster: str | None = None,
    has_secret: bool = False,
    password_id: str | None = None,
    certificate: CertificateStatus | None = None,
    note: str = "",
) -> UserStatus:
    """Return the new status; `problem` is the reason why the User is not ready, or None. `now` is in RFC 3339.

    `cluster` is the Cluster in which the user exists, or None if the User was refused before any change in Kafka.
    `password_id` is the id of the password that the brokers have stored. `certificate` is the certificate in the
    Secret. `note` is the message of the condition `Ready` if the User is ready.
    """
    before = user.status or UserStatus()
    conditions = merge_conditions(before.conditions, conditions_of(user, problem, now, note=note))
    status = replace(before, conditions=conditions, observed_generation=user.metadata.generation)
    if cluster is None:
        return status
    return replace(
        status,
        cluster=before.cluster or cluster,
        username=user.username,
        secret=user.metadata.name if has_secret else None,
        password_id=password_id,
        certificate=certificate,
    )


def without_cluster(user: User, why: Refusal, now: str) -> User:
    """Return the User with a status that says why it is not reconciled; `now` is in RFC 3339."""
    return replace(user, status=user_status(user, why, now))


def drift_undone(steps: Sequence[UserStep]) -> Said | None:
    """Return an Event that lists the changes of another client that `steps` have undone; None without steps."""
    if not steps:
        return None
    return (
        "Normal",
        DRIFT_UNDONE,
        (
            "another client had changed the user, and the operator has undone the change: "
            f"{'; '.join(map(describe, steps))}"
        ),
    )


def password_rotated(username: str) -> Said:
    """Return the Event for a user with a new password."""
    why = "connections that used the old password were closed"
    return "Normal", PASSWORD_ROTATED, f"user {username} has a new password; {why}"
