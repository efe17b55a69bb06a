"""The checks that may refuse a User; the first refusal becomes the condition of the User."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, NamedTuple

from barnabas_core.acls import MEANINGS, not_one_user, plain_host
from barnabas_operator.planning.conditions import (
    CLUSTER_NOT_READY,
    INVALID_SPEC,
    NOT_SUPPORTED,
    RESOURCE_CONFLICT,
    Refusal,
    other_cluster,
)
from barnabas_operator.planning.users.user_plan import ClusterUsers, declared_acls
from barnabas_operator.resources.user import CERTIFICATE_NAME, CERTIFICATE_NAME_WORDS, INTERNAL, AclResource, User

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
    said = f"spec.authentication.password is set, but spec.authentication.type is {authentication.type}"
    return Refusal(INVALID_SPEC, f"{said}; remove the password, or set the type to scram-sha-512")


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
