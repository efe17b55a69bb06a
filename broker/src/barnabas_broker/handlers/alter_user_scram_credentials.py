"""AlterUserScramCredentials (51), v0: sets and deletes the SCRAM credentials of users (KIP-554).

The client sends the salted password. The broker derives a verifier from the salted password, and stores only the
verifier.

The tagged field PreviousPasswordMs is our own, and Apache Kafka ignores it. If it is set, the previous password stays
valid for that time. A request without it, such as one of Kafka's tools, ends the previous password at once.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.deferred_answer import error_fields
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.store.metadata_store import StoreUnavailable
from barnabas_broker.security.sasl.scram_credential import (
    BY_NUMBER,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    Named,
    PreviousPassword,
    ScramCredential,
    ScramHash,
    credential_of,
)
from barnabas_broker.wire.messages import AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse
from barnabas_core.acls import MEANINGS, not_one_user
from barnabas_core.errors import ApiError, ErrorCode

NO_SCRAM: Final = (
    "No listener has a SCRAM mechanism in sasl.enabled.mechanisms, so this broker cannot store SCRAM credentials; "
    "add a SCRAM mechanism."
)
OVERLAP_MAX: Final = "sasl.scram.password.overlap.max.ms"
SALT_BYTES_MAX: Final = 256
USER_CHARS_MAX: Final = 255

UserResult = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult


class ScramDecision(NamedTuple):
    """The changes to store, and the outcome for each user in the request: an error, or None."""

    changes: Mapping[Named, ScramCredential | None]
    outcomes: Mapping[str, ApiError | None]


class Present(NamedTuple):
    """The credentials before the changes, the wall-clock time, and the longest allowed overlap of two passwords."""

    credentials: Mapping[Named, ScramCredential]
    stored: Mapping[Named, ScramCredential]
    """The credentials whose passwords may stay valid, as the store has them."""
    now_ms: int
    overlap_ms_max: int


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Set or delete the credential of each user; the next login at this broker uses the new credential."""
    users = environment.scram
    if users is None:
        refusal = ApiError(ErrorCode.SECURITY_DISABLED, NO_SCRAM)
        return _response({each.name: refusal for each in (*request.deletions, *request.upsertions)})
    decision: ScramDecision | None = None
    try:
        # A password that another broker has just replaced must not become valid again: so the store is asked.
        replaced = await users.stored(_overlapping(request))
        present = Present(
            users.credentials,
            replaced,
            environment.clock.now_ms(),
            environment.config.sasl_scram_password_overlap_max_ms,
        )
        decision = decide(request, present)
        await users.change(decision.changes)
    except StoreUnavailable as error:
        failure = ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))
        names = (each.name for each in (*request.deletions, *request.upsertions))
        outcomes = dict.fromkeys(names) if decision is None else decision.outcomes
        return _response({user: outcome or failure for user, outcome in outcomes.items()})
    return _response(decision.outcomes)


def _overlapping(request: AlterUserScramCredentialsRequest) -> list[Named]:
    """Return the credentials for which the request asks for an overlap of two passwords."""
    asked = [each for each in request.upsertions if each.previous_password_ms and each.mechanism in BY_NUMBER]
    return [(each.name, BY_NUMBER[each.mechanism].mechanism) for each in asked]


def _response(outcomes: Mapping[str, ApiError | None]) -> AlterUserScramCredentialsResponse:
    results = [UserResult(user=user, **error_fields(error)) for user, error in outcomes.items()]
    return AlterUserScramCredentialsResponse(results=results)


def decide(request: AlterUserScramCredentialsRequest, present: Present) -> ScramDecision:
    """Return the changes, and an error or None for each user; an error of one user does not affect other users."""
    asked = [*((each, True) for each in request.deletions), *((each, False) for each in request.upsertions)]
    times = Counter(each.name for each, _ in asked)
    changes: dict[Named, ScramCredential | None] = {}
    outcomes: dict[str, ApiError | None] = {}
    for each, is_deletion in asked:
        outcomes[each.name] = None
        try:
            kind = _checked_mechanism(each, times[each.name])
            name = each.name, kind.mechanism
            if is_deletion and name not in present.credentials:
                message = "Attempt to delete a user credential that does not exist"
                raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, message)
            changes[name] = None if is_deletion else _with_previous(name, each, _credential(each, kind), present)
        except ApiError as error:
            outcomes[each.name] = error
    return ScramDecision(changes, outcomes)


def _checked_mechanism(asked: Any, times: int) -> ScramHash:
    if not asked.name or len(asked.name) > USER_CHARS_MAX:
        message = f"A user's name must have 1 to {USER_CHARS_MAX} characters."
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
    if times > 1:
        message = "A user credential cannot be altered twice in the same request"
        raise ApiError(ErrorCode.DUPLICATE_RESOURCE, message)
    kind = BY_NUMBER.get(asked.mechanism)
    if kind is None:
        raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return kind


def _credential(asked: Any, kind: ScramHash) -> ScramCredential:
    if asked.name in MEANINGS:
        # Such a user may be deleted: earlier versions stored it.
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"name={asked.name}: {not_one_user(asked.name)}")
    if not ITERATIONS_MIN <= asked.iterations <= ITERATIONS_MAX:
        message = f"iterations={asked.iterations}: must be from {ITERATIONS_MIN} to {ITERATIONS_MAX}"
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
    if not 0 < len(asked.salt) <= SALT_BYTES_MAX or len(asked.salted_password) != kind.key_bytes:
        message = (
            f"The salt must have 1 to {SALT_BYTES_MAX} bytes, and the salted password must have {kind.key_bytes} bytes."
        )
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
    return credential_of(kind, asked.salted_password, asked.salt, asked.iterations)


def _with_previous(name: Named, asked: Any, new: ScramCredential, present: Present) -> ScramCredential:
    """Return the new credential, with the previous password if the request asks for an overlap.

    If the new password is the current one, the request is a repetition, and its previous password stays as it is.
    """
    overlap_ms, current = asked.previous_password_ms, present.stored.get(name)
    if overlap_ms == 0:
        return new
    if not 0 < overlap_ms <= present.overlap_ms_max:
        allowed = f"must be from 0 to {present.overlap_ms_max} ({OVERLAP_MAX})"
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"PreviousPasswordMs={overlap_ms}: {allowed}")
    if current is None:
        return new
    if not new.has_salt_of(current):
        message = f"PreviousPasswordMs={overlap_ms}: must be 0 if salt or iterations differ from the current password's"
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
    if new.keys == current.keys:
        return current
    return replace(new, previous=PreviousPassword(current.keys, present.now_ms + overlap_ms))
