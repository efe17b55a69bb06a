"""The steps that bring a Cluster's users from their current state to the declared state."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from barnabas_operator.planning.refusal import Refusal
from barnabas_operator.planning.topics.topic_checks import deletion_protected
from barnabas_operator.planning.users.cluster_users import Acl, FoundUser
from barnabas_operator.planning.users.declared_rights import declared_acls, declared_quotas, mechanism_of
from barnabas_operator.planning.users.user_steps import (
    CreateAcls,
    DeleteAcls,
    DeletePassword,
    SetPassword,
    SetQuotas,
    UserStep,
)
from barnabas_operator.resources.object_meta import READY, condition_of
from barnabas_operator.resources.user import User

REVOKE: Final = "barnabas.dev/revoke-password"
"""The annotation of a User that requests the end of the previous password.

`status.revoked` has the value that was carried out last.
"""


class KnownPassword(NamedTuple):
    """A password with the salt of the User's Secret, and the ids by which the status records what the brokers have."""

    password: str
    salt: bytes
    salt_id: str
    """The prefix of the password id if the brokers have a password with this salt.

    Only such a password can stay valid beside the next one.
    """
    earlier_id: str
    """The id of the same password by an earlier version of the operator, which used another salt for each password."""

    @property
    def password_id(self) -> str:
        """The id of this password with this salt."""
        return self.salt_id + self.earlier_id


@dataclass(frozen=True, slots=True)
class UserPlan:
    """The plan for one User: the steps in order, or a refusal that says why there are none.

    `drift` holds those steps that undo changes by other clients.
    """

    resource: User
    steps: tuple[UserStep, ...] = ()
    refusal: Refusal | None = None
    drift: tuple[UserStep, ...] = ()


def plan_user(user: User, found: FoundUser, known: KnownPassword | None) -> UserPlan:
    """Return the plan for a declared user that is not refused; `known` is the password in its Secret."""
    steps = tuple(_steps(user, found, known))
    drift = (each for each in steps if not (isinstance(each, SetPassword) and each.mechanism in found.mechanisms))
    return UserPlan(user, steps, drift=tuple(drift) if _was_brought_about(user) else ())


def _was_brought_about(user: User) -> bool:
    """True if the status says that the user has matched the current spec before.

    A difference is then a change by another client.
    """
    status, generation = user.status, user.metadata.generation
    ready = condition_of(status.conditions, READY) if status is not None else None
    return ready is not None and ready.status == "True" and ready.observed_generation == generation


def overlap_s(user: User) -> int:
    """Return for how long the next password of the User leaves the current one valid, in seconds."""
    password = user.spec.authentication.password
    return 0 if password is None or asks_for_revocation(user) else password.overlap_seconds


def asks_for_revocation(user: User) -> bool:
    """Return whether the annotation of the User requests an end of the previous password that is not done yet."""
    wanted, done = user.metadata.annotations.get(REVOKE), user.status.revoked if user.status is not None else None
    return wanted is not None and wanted != done


def has_salt(user: User, salt_id: str) -> bool:
    """Return whether the brokers have a password of the User with the salt that has this id."""
    return user.status is not None and (user.status.password_id or "").startswith(salt_id)


def _password_steps(user: User, found: FoundUser, mechanism: str, known: KnownPassword) -> Iterator[SetPassword]:
    """Yield the step that gives the brokers a new password, ends the previous one, or changes the salt."""
    had = user.status.password_id if user.status is not None else None
    is_there = mechanism in found.mechanisms
    has_current = had == known.password_id or (had == known.earlier_id and not overlap_s(user))
    if is_there and has_current and not asks_for_revocation(user):
        return
    overlap = overlap_s(user) if is_there and has_salt(user, known.salt_id) else 0
    yield SetPassword(user.username, mechanism, known.password, known.salt, overlap)


def _steps(user: User, found: FoundUser, known: KnownPassword | None) -> Iterator[UserStep]:
    mechanism, name = mechanism_of(user), user.username
    if mechanism is not None and known is not None:
        yield from _password_steps(user, found, mechanism, known)
    yield from (DeletePassword(name, each) for each in sorted(found.mechanisms - {mechanism}))
    yield from acl_steps(name, found, declared_acls(user))
    changes = quota_changes(found, dict(declared_quotas(user)))
    if changes:
        yield SetQuotas(name, changes)


def acl_steps(name: str, found: FoundUser, wanted: frozenset[Acl]) -> Iterator[CreateAcls | DeleteAcls]:
    """Yield the steps that replace the current ACLs of a user by the wanted ACLs."""
    surplus = tuple(sorted(acl for acl in found.acls if acl.plain not in wanted))
    lacking = tuple(sorted(wanted - {acl.plain for acl in found.acls}))
    if lacking:
        yield CreateAcls(name, lacking)
    if surplus:
        yield DeleteAcls(name, surplus)


def quota_changes(found: FoundUser, wanted: dict[str, float]) -> dict[str, float | None]:
    """Return the changes from the current quotas to the wanted quotas; None removes a quota."""
    there = found.quotas or {}
    changes: dict[str, float | None] = dict.fromkeys(sorted(there.keys() - wanted.keys()))
    return changes | {key: value for key, value in wanted.items() if there.get(key) != value}


def plan_deletion(
    user: User, found: FoundUser, still_declared: Collection[str], reserved: Collection[str] = ()
) -> UserPlan:
    """Return the plan for a User that is no longer declared. If the plan has a refusal, the User resource is kept.

    A Kafka user that is paused, retained, reserved, declared by another resource, or never created is not deleted.
    """
    name = owned_name(user)
    if name is None or name in (*still_declared, *reserved) or user.spec.pause or not found.is_there:
        return UserPlan(user)
    if user.spec.deletion_policy == "Protect":
        return UserPlan(user, refusal=deletion_protected(f"User {name}"))
    if user.spec.deletion_policy == "Retain":
        return UserPlan(user)
    steps: list[UserStep] = [DeletePassword(name, each) for each in sorted(found.mechanisms)]
    steps += [DeleteAcls(name, tuple(sorted(found.acls)))] if found.acls else []
    steps += [SetQuotas(name, quota_changes(found, {}))] if found.quotas else []
    return UserPlan(user, tuple(steps))


def owned_name(user: User) -> str | None:
    """Return the name of the Kafka user that belongs to the resource, or None if the resource has no Kafka user.

    Without a status, the result is the declared name, because the operator may have created the user and stopped before
    it wrote the first status.
    """
    return user.username if user.status is None else user.status.username
