"""DescribeUserScramCredentials (50), v0: the mechanisms and iterations of users, without their keys (KIP-554)."""

from collections import Counter
from collections.abc import Mapping

from barnabas_broker.handlers.answer_in_turns import stepwise
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.security.sasl.scram_credential import SCRAM_HASHES, ScramCredential
from barnabas_broker.wire.messages import DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse
from barnabas_core.errors import ErrorCode
from barnabas_core.loop_turns import InSteps, in_steps

UserResult = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
Credentials = Mapping[tuple[str, str], ScramCredential]


@stepwise
def handle(
    environment: HandlerEnvironment, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> InSteps[DescribeUserScramCredentialsResponse]:
    """Return the credentials of the requested users, or of all users if the request names none."""
    credentials: Credentials = {} if environment.scram is None else environment.scram.credentials
    times = Counter(user.name for user in request.users or ()) or Counter({user for user, _ in credentials})
    results = yield from in_steps(sorted(times.items()), lambda each: _result(*each, credentials))
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


def _result(user: str, times: int, credentials: Credentials) -> UserResult:
    found = [(kind, credentials[user, name]) for name, kind in SCRAM_HASHES.items() if (user, name) in credentials]
    error, message = ErrorCode.NONE, None
    if times > 1:
        error, message = ErrorCode.DUPLICATE_RESOURCE, f"Cannot describe SCRAM credentials for the user twice: {user}"
    elif not found:
        error = ErrorCode.RESOURCE_NOT_FOUND
        message = f"Attempt to describe a user credential that does not exist: {user}"
    infos = [UserResult.CredentialInfo(mechanism=kind.number, iterations=each.iterations) for kind, each in found]
    return UserResult(user=user, error_code=error, error_message=message, credential_infos=[] if error else infos)
