"""AlterUserScramCredentials (51), v0: sets and deletes the SCRAM credentials of users (KIP-554).

The client sends the salted password. The broker derives a verifier from the salted password, and stores only the
verifier.
"""

from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.store.metadata_store import StoreUnavailable
from barnabas_broker.security.sasl.scram_changes import Deletion, Upsertion, decide_scram_changes
from barnabas_broker.wire.messages import AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse
from barnabas_core.errors import ApiError, ErrorCode

NO_SCRAM = (
    "No listener has a SCRAM mechanism in sasl.enabled.mechanisms, so this broker cannot store SCRAM credentials; "
    "add a SCRAM mechanism."
)
UserResult = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Set or delete the credential of each user; the next login at this broker uses the new credential."""
    asked: list[Upsertion | Deletion] = [Deletion(each.name, each.mechanism) for each in request.deletions]
    asked += [
        Upsertion(each.name, each.mechanism, each.iterations, bytes(each.salt), bytes(each.salted_password))
        for each in request.upsertions
    ]
    users = environment.scram
    if users is None:
        refusal = ApiError(ErrorCode.SECURITY_DISABLED, NO_SCRAM)
        return _response({each.user: refusal for each in asked})
    decision = decide_scram_changes(asked, users.credentials.keys())
    try:
        await users.change(decision.changes)
    except StoreUnavailable as error:
        failure = ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))
        return _response({user: outcome or failure for user, outcome in decision.outcomes.items()})
    return _response(dict(decision.outcomes))


def _response(outcomes: dict[str, ApiError | None]) -> AlterUserScramCredentialsResponse:
    results = [
        UserResult(user=user, error_message=None)
        if error is None
        else UserResult(user=user, error_code=error.code, error_message=str(error))
        for user, error in outcomes.items()
    ]
    return AlterUserScramCredentialsResponse(results=results)
