"""AlterUserScramCredentials (51), v0: sets and deletes the SCRAM credentials of users (KIP-554).

The client sends the salted password. The broker derives a verifier from the salted password, and stores only the
verifier.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.handlers.outcomes import error_fields
from barnabas_broker.metadata.store.metadata_store import StoreUnavailable
from barnabas_broker.security.sasl.scram_credential import (
    BY_NUMBER,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramCredential,
    ScramHash,
    credential_of,
)
from barnabas_broker.security.sasl.scram_users import Named
from barnabas_broker.wire.messages import AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse
from barnabas_core.errors import ApiError, ErrorCode

NO_SCRAM: Final = (
    "No listener has a SCRAM mechanism in sasl.enabled.mechanisms, so this broker cannot store SCRAM credentials; "
    "add a SCRAM mechanism."
)
SALT_BYTES_MAX: Final = 256
USER_CHARS_MAX: Final = 255

UserResult = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult


class ScramDecision(NamedTuple):
    """The changes to store, and the outcome for each user in the request: an error, or None."""

    changes: Mapping[Named, ScramCredential | None]
    outcomes: Mapping[str, ApiError | None]


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Set or delete the credential of each user; the next login at this broker uses the new credential."""
    users = environment.scram
    if users is None:
        refusal = ApiError(ErrorCode.SECURITY_DISABLED, NO_SCRAM)
        return _response({each.name: refusal for each in (*request.deletions, *request.upsertions)})
    decision = decide(request, users.credentials.keys())
    try:
        await users.change(decision.changes)
    except StoreUnavailable as error:
        failure = ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))
        return _response({user: outcome or failure for user, outcome in decision.outcomes.items()})
    return _response(decision.outcomes)


def _response(outcomes: Mapping[str, ApiError | None]) -> AlterUserScramCredentialsResponse:
    results = [UserResult(user=user, **error_fields(error)) for user, error in outcomes.items()]
    return AlterUserScramCredentialsResponse(results=results)


def decide(request: AlterUserScramCredentialsRequest, existing: Collection[Named]) -> ScramDecision:
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
            if is_deletion and name not in existing:
                message = "Attempt to delete a user credential that does not exist"
                raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, message)
            changes[name] = None if is_deletion else _credential(each, kind)
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
    if not ITERATIONS_MIN <= asked.iterations <= ITERATIONS_MAX:
        message = f"iterations={asked.iterations}: must be from {ITERATIONS_MIN} to {ITERATIONS_MAX}"
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
    if not 0 < len(asked.salt) <= SALT_BYTES_MAX or len(asked.salted_password) != kind.key_bytes:
        message = (
            f"The salt must have 1 to {SALT_BYTES_MAX} bytes, and the salted password must have {kind.key_bytes} bytes."
        )
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
    return credential_of(kind, asked.salted_password, asked.salt, asked.iterations)
