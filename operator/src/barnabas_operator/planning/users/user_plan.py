"""The steps that bring a Cluster's users from their current state to the declared state, and what is refused.

The lag exporter and the maintenance runs of a secured Cluster get ACLs. They authenticate with certificates, as brokers
and operator do, but usually are not super users.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from barnabas_core.acls import (
    ANY_HOST,
    ANY_NAME,
    CLUSTER_NAME,
    MEANINGS,
    AclEntry,
    AclOperation,
    AclPattern,
    PatternType,
    Permission,
    ResourceType,
    not_one_user,
    plain_host,
)
from barnabas_operator.planning.brokers.pod_properties import companion_names, subject
from barnabas_operator.planning.conditions import (
    CLUSTER_NOT_READY,
    INVALID_SPEC,
    NOT_SUPPORTED,
    RESOURCE_CONFLICT,
    Refusal,
    listed,
    other_cluster,
)
from barnabas_operator.planning.topics.topic_plan import deletion_protected
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.kind import READY, condition_of
from barnabas_operator.resources.user import (
    CERTIFICATE_NAME,
    CERTIFICATE_NAME_WORDS,
    INTERNAL,
    AclResource,
    AclRule,
    User,
)

PRINCIPAL: Final = "User:"
SCRAM_512: Final = "SCRAM-SHA-512"
SCRAM_256: Final = "SCRAM-SHA-256"


class Acl(NamedTuple):
    """An ACL: a resource pattern, and an entry that allows or denies a principal one operation."""

    pattern: AclPattern
    entry: AclEntry

    @property
    def plain(self) -> "Acl":
        """Return the ACL with its host in canonical form, for comparisons."""
        return Acl(self.pattern, self.entry._replace(host=plain_host(self.entry.host)))

    def __str__(self) -> str:
        what = f"{self.entry.permission.name.lower()} {self.entry.operation.name}"
        kind = self.pattern.resource_type.name.lower().replace("_", " ")
        of = f"{kind} {self.pattern.name} ({self.pattern.pattern_type.name.lower()})"
        return f"{what} on {of} from {self.entry.host}"


@dataclass(frozen=True, slots=True)
class FoundUser:
    """A user with the SCRAM mechanisms, ACLs and quotas that the brokers report."""

    mechanisms: frozenset[str] = frozenset()
    acls: frozenset[Acl] = frozenset()
    quotas: Mapping[str, float] | None = None
    """The quotas by Kafka's key, or None if the user has no quotas."""

    @property
    def is_there(self) -> bool:
        """True if the user has credentials, ACLs or quotas."""
        return bool(self.mechanisms or self.acls or self.quotas)


@dataclass(frozen=True, slots=True)
class ClusterUsers:
    """All users by name; `has_authorizer` is True if the brokers have an authorizer."""

    users: Mapping[str, FoundUser]
    has_authorizer: bool = True

    def of(self, username: str) -> FoundUser:
        """Return the user with this name, or an empty user if the brokers report none."""
        return self.users.get(username, FoundUser())


MECHANISMS: Final[Mapping[str, str]] = {"scram-sha-512": SCRAM_512, "scram-sha-256": SCRAM_256}
QUOTA_KEYS: Final = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
"""Kafka's quota keys; the fields of the spec have the same names."""
_TYPES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "cluster": ResourceType.CLUSTER,
    "transactionalId": ResourceType.TRANSACTIONAL_ID,
}
_PATTERNS: Final = {"literal": PatternType.LITERAL, "prefix": PatternType.PREFIXED}
_PERMISSIONS: Final = {"allow": Permission.ALLOW, "deny": Permission.DENY}
_OPERATIONS: Final = {operation.name.replace("_", ""): operation for operation in AclOperation}


def mechanism_of(user: User) -> str | None:
    """Return the SCRAM mechanism of the user, or None if the user has no password."""
    return MECHANISMS.get(user.spec.authentication.type)


def declared_acls(user: User) -> frozenset[Acl]:
    """Return the declared ACLs: one for each operation of each rule."""
    rules = user.spec.authorization.acls if user.spec.authorization is not None else ()
    return frozenset(acl for rule in rules for acl in _acls(f"{PRINCIPAL}{user.username}", rule))


def _acls(principal: str, rule: AclRule) -> Iterator[Acl]:
    name = rule.resource.name or CLUSTER_NAME
    pattern = AclPattern(_TYPES[rule.resource.type], name, _PATTERNS[rule.resource.pattern_type])
    for word in rule.operations:
        operation = _OPERATIONS[word.upper()]
        yield Acl(pattern, AclEntry(principal, rule.host, operation, _PERMISSIONS[rule.type])).plain


def declared_quotas(user: User) -> Mapping[str, float]:
    """Return the declared quotas by their names in Kafka, such as `producer_byte_rate`."""
    quotas = user.spec.quotas
    found = {key: getattr(quotas, key, None) for key in QUOTA_KEYS}
    return {key: float(value) for key, value in found.items() if value is not None}


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
            texts = (f"{key}={value:g}" if value is not None else f"no {key}" for key, value in changes.items())
            return f"set quotas of user {user}: {', '.join(texts)}"


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


Rights = Mapping[ResourceType, tuple[AclOperation, ...]]
"""The operations that the lag exporter or a maintenance run may carry out, by resource type.

The operations are allowed on all topics and all groups.
"""
_O: Final = AclOperation
LAG_EXPORTER_RIGHTS: Final[Rights] = {
    ResourceType.TOPIC: (_O.DESCRIBE,),
    ResourceType.GROUP: (_O.DESCRIBE,),
    ResourceType.CLUSTER: (_O.DESCRIBE_CONFIGS,),  # The exporter reads offsets.retention.minutes.
}
MAINTENANCE_RIGHTS: Final[Rights] = {
    # A restore creates and writes topics, and an archive with delete_archived deletes records.
    ResourceType.TOPIC: (_O.READ, _O.WRITE, _O.CREATE, _O.DELETE, _O.DESCRIBE_CONFIGS),
    # An archive reads the committed offsets of all groups, and a restore to a point in time commits them.
    ResourceType.GROUP: (_O.READ,),
    ResourceType.CLUSTER: (_O.DESCRIBE,),  # Maintenance runs list log dirs and reassignments.
}


def companion_acls(cluster: Cluster) -> Mapping[str, frozenset[Acl]]:
    """Return, by user, the ACLs of the lag exporter and of maintenance runs, or nothing without `spec.authorization`.

    With `allowEveryoneIfNoAclFound`, both users are super users and get no ACLs, because an ACL on a resource would
    deny access to all users without an ACL.
    """
    authorization = cluster.spec.authorization
    if authorization is None:
        return {}
    needs_none = authorization.allow_everyone_if_no_acl_found
    exporter, runs = map(subject, companion_names(cluster))
    rights: dict[str, Rights] = {exporter: LAG_EXPORTER_RIGHTS, runs: MAINTENANCE_RIGHTS}
    if cluster.spec.lag_exporter is None:
        rights[exporter] = {}
    return {
        user: frozenset() if needs_none else _companion_acls(user, rights_of_user)
        for user, rights_of_user in rights.items()
    }


def _companion_acls(user: str, rights: Rights) -> frozenset[Acl]:
    return frozenset(
        Acl(_pattern(kind), AclEntry(f"{PRINCIPAL}{user}", ANY_HOST, operation, Permission.ALLOW))
        for kind, operations in rights.items()
        for operation in operations
    )


def _pattern(kind: ResourceType) -> AclPattern:
    return AclPattern(kind, CLUSTER_NAME if kind is ResourceType.CLUSTER else ANY_NAME, PatternType.LITERAL)


NO_AUTHORIZER: Final = "NoAuthorizer"


class UserContext(NamedTuple):
    """The Cluster's users, and the `reserved` names, such as those of brokers and administrators.

    `has_rights` is True if the Cluster declares authorization, which brokers enforce once `status.securityStage` is
    Secured.
    """

    found: ClusterUsers
    reserved: Collection[str] = ()
    has_rights: bool = False


UserCheck = Callable[[User, UserContext], Refusal | None]


def refuse(user: User, context: UserContext, checks: Sequence[UserCheck] | None = None) -> Refusal | None:
    """Return the refusal of the first check that refuses the User, or None if no check refuses the User.

    If `checks` is None, all checks run.
    """
    objections = (check(user, context) for check in (CHECKS if checks is None else checks))
    return next((objection for objection in objections if objection is not None), None)


def same_user_as_before(user: User, _context: UserContext) -> Refusal | None:
    """Refuse another username or Cluster than in the status, because the old Kafka user would be left behind."""
    status = user.status
    if status is None or status.username is None:
        return None
    if status.username != user.username:
        return Refusal(
            NOT_SUPPORTED,
            f"spec.username is {user.username}; allowed: {status.username}, because a user cannot be renamed",
        )
    return other_cluster(user, status.cluster)


def valid_name(user: User, context: UserContext) -> Refusal | None:
    """Refuse the name of a principal that stands for other users, and one that the User cannot have."""
    field = "spec.username" if user.spec.username is not None else "metadata.name"
    if user.username in MEANINGS:
        return Refusal(INVALID_SPEC, f"{field} is {user.username}; {not_one_user(user.username)}")
    if user.username in context.reserved:
        why = "which is a user of the Cluster itself; choose another name"
        return Refusal(RESOURCE_CONFLICT, f"{field} is {user.username}, {why}")
    if user.spec.authentication.type == "tls" and re.fullmatch(CERTIFICATE_NAME, user.username) is None:
        return Refusal(
            INVALID_SPEC, f"{field} is {user.username}; allowed with TLS authentication: {CERTIFICATE_NAME_WORDS}"
        )
    return None


def possible_password(user: User, _context: UserContext) -> Refusal | None:
    """Refuse a declared password if the authentication of the User is not SCRAM."""
    authentication = user.spec.authentication
    if authentication.password is None or authentication.type.startswith("scram-"):
        return None
    problem = f"spec.authentication.password is set, but spec.authentication.type is {authentication.type}"
    return Refusal(INVALID_SPEC, f"{problem}; remove the password, or set the type to scram-sha-512")


def valid_acls(user: User, _context: UserContext) -> Refusal | None:
    """Refuse ACL rules with an invalid resource name, an internal topic, or an invalid host."""
    rules = user.spec.authorization.acls if user.spec.authorization is not None else ()
    for number, rule in enumerate(rules):
        where = f"spec.authorization.acls[{number}]"
        for problem in _of_resource(rule.resource):
            return Refusal(INVALID_SPEC, f"{where}.resource.{problem}")
        if rule.host != "*" and not _is_address(rule.host):
            return Refusal(INVALID_SPEC, f"{where}.host is {rule.host}; allowed: an IP address, or *")
    return None


def _of_resource(resource: AclResource) -> Iterator[str]:
    if resource.type == "cluster":
        if resource.name is not None:
            yield f"name is {resource.name}, but a resource of type cluster has no name; remove the field"
    elif resource.name is None:
        yield f"name is missing, but a resource of type {resource.type} needs a name; allowed: a name, or *"
    elif resource.type == "topic" and resource.name.startswith(INTERNAL):
        why = f"names that do not begin with {INTERNAL}, because topics with this prefix belong to the brokers"
        yield f"name is {resource.name}; allowed: {why}"


def _is_address(host: str) -> bool:
    """Return whether brokers treat the text as an IP address."""
    return plain_host(host) != host or host.count(".") == 3 or "::" in host


def valid_quotas(user: User, _context: UserContext) -> Refusal | None:
    """Refuse a controller mutation rate of 0 or less, or infinity, which brokers refuse."""
    rate = user.spec.quotas.controller_mutation_rate if user.spec.quotas is not None else None
    if rate is None or 0 < rate < float("inf"):
        return None
    return Refusal(INVALID_SPEC, f"spec.quotas.controllerMutationRate is {rate:g}; allowed: more than 0")


def may_have_acls(user: User, context: UserContext) -> Refusal | None:
    """Refuse ACLs if the brokers have no authorizer, because they would not store the ACLs."""
    if context.found.has_authorizer or user.spec.authorization is None:
        return None
    if context.has_rights:
        why = "the brokers have no authorizer until status.securityStage of the Cluster is Secured"
        return Refusal(CLUSTER_NOT_READY, f"spec.authorization waits: {why}")
    allowed = "remove spec.authorization of the User, or set spec.authorization of the Cluster"
    return Refusal(NO_AUTHORIZER, f"spec.authorization is set, but the brokers have no authorizer; {allowed}")


def may_adopt(user: User, context: UserContext) -> Refusal | None:
    """Refuse an existing Kafka user with credentials, quotas or ACLs that are not declared, unless `adopt` is set."""
    found, had = context.found.of(user.username), user.status.username if user.status else None
    if user.spec.adopt or had is not None or not found.is_there:
        return None
    if not found.mechanisms and not found.quotas and found.acls <= declared_acls(user):
        return None
    allowed = "to adopt the user, set spec.adopt to true"
    return Refusal(
        RESOURCE_CONFLICT, f"user {user.username} existed before the User, and spec.adopt is false; {allowed}"
    )


OF_THE_RESOURCE: Final[tuple[UserCheck, ...]] = (
    same_user_as_before,
    valid_name,
    possible_password,
    valid_acls,
    valid_quotas,
)
"""The checks that need no answer from brokers."""
CHECKS: Final = (*OF_THE_RESOURCE, may_have_acls, may_adopt)
