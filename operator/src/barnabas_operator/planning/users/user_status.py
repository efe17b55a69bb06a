"""The status of a User after a reconciliation, and the Events about users."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from barnabas_operator.planning.conditions import Refusal, conditions_of, time_text
from barnabas_operator.planning.object_names import Said
from barnabas_operator.planning.users.user_plan import REVOKE, KnownPassword, SetPassword, UserPlan, UserStep, describe
from barnabas_operator.resources.kind import merge_conditions
from barnabas_operator.resources.security import CertificateStatus
from barnabas_operator.resources.user import User, UserStatus

DRIFT_UNDONE: Final = "DriftUndone"
PASSWORD_ROTATED: Final = "PasswordRotated"
PASSWORD_REVOKED: Final = "PasswordRevoked"


class PasswordStatus(NamedTuple):
    """The part of a status about passwords, as the brokers have them."""

    password_id: str | None = None
    previous_until: str | None = None
    """The time until which the previous password works, in RFC 3339; None if it does not."""
    revoked: str | None = None


def password_status(user: User, plan: UserPlan, known: KnownPassword | None, now_ms: int) -> PasswordStatus:
    """Return the part of the status about passwords after the steps of a plan."""
    if known is None:
        return PasswordStatus()
    before, revoked = password_of_status(user), user.metadata.annotations.get(REVOKE)
    password_id, until = before.password_id, before.previous_until
    for step in plan.steps:
        if isinstance(step, SetPassword):
            password_id, until = known.password_id, time_text(now_ms + step.overlap_s * 1000)
    works = until is not None and until > time_text(now_ms)
    return PasswordStatus(password_id, until if works else None, revoked)


def password_of_status(user: User) -> PasswordStatus:
    """Return the part of the User's present status about passwords."""
    status = user.status or UserStatus()
    return PasswordStatus(status.password_id, status.previous_password_until, status.revoked)


def user_status(
    user: User,
    problem: Refusal | None,
    now: str,
    *,
    cluster: str | None = None,
    has_secret: bool = False,
    passwords: PasswordStatus = PasswordStatus(),  # noqa: B008 (it cannot change)
    certificate: CertificateStatus | None = None,
    note: str = "",
) -> UserStatus:
    """Return the new status; `problem` is the reason why the User is not ready, or None. `now` is in RFC 3339.

    `cluster` is the Cluster in which the user exists, or None if the User was refused before any change in Kafka.
    `passwords` are those that the brokers have stored. `certificate` is the certificate in the
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
        password_id=passwords.password_id,
        previous_password_until=passwords.previous_until,
        revoked=passwords.revoked,
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


def password_event(username: str, before: PasswordStatus, after: PasswordStatus) -> Said | None:
    """Return the Event about a new password, or about the end of the previous one on request; None without either."""
    closed = "connections that used the old password were closed"
    if None not in (before.password_id, after.password_id) and _without_salt(before) != _without_salt(after):
        works = f"the old password works until {after.previous_until}"
        news = works if after.previous_until is not None else closed
        return "Normal", PASSWORD_ROTATED, f"user {username} has a new password; {news}"
    if before.previous_until is not None and after.previous_until is None and before.revoked != after.revoked:
        return "Normal", PASSWORD_REVOKED, f"the previous password of user {username} has ended on request; {closed}"
    return None


def _without_salt(status: PasswordStatus) -> str:
    """Return the id of the password without the prefix that its salt gives it."""
    return (status.password_id or "").rpartition("-")[2]
