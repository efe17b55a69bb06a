"""The admission review of a change to a User, as pure functions."""

from collections.abc import Iterator

from barnabas_operator.planning.admission.verdict import AdmissionContext, Verdict
from barnabas_operator.planning.users.user_checks import OF_THE_RESOURCE, UserContext, refuse
from barnabas_operator.planning.users.user_plan import ClusterUsers
from barnabas_operator.resources.user import User


def review_user(wanted: User, before: User | None, context: AdmissionContext) -> Verdict:
    """Return the first problem that can be found without asking the brokers.

    Problems that only the brokers' answers show are reported later, in the condition `Ready`.
    """
    return Verdict(next(_refusals(wanted, before, context), None))


def _refusals(wanted: User, before: User | None, context: AdmissionContext) -> Iterator[str]:
    if context.taken_by is not None and not wanted.spec.pause:
        allowed = "only one User resource may manage a user"
        yield f"user {wanted.username} is already managed by the User {context.taken_by}; {allowed}"
    if before is not None and before.spec.username != wanted.spec.username:
        had = before.spec.username or "no value"
        yield f"spec.username is {wanted.spec.username or 'missing'}; allowed: {had}, because a user cannot be renamed"
    refusal = refuse(wanted, UserContext(ClusterUsers({}), context.reserved), OF_THE_RESOURCE)
    if refusal is not None:
        yield refusal.message
