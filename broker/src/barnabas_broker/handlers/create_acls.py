"""CreateAcls (30), v1 to v3: creates ACLs, each independently of the others.

The error is SECURITY_DISABLED without an authorizer.
"""

from typing import Any

from barnabas_broker.handlers.answer_in_turns import AnswerInTurns
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.deferred_answer import error_fields
from barnabas_broker.handlers.describe_acls import acls_of
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.security.acls.acl_requests import new_acl
from barnabas_broker.security.acls.authorizer import changing, key_of
from barnabas_broker.wire.messages import CreateAclsRequest, CreateAclsResponse
from barnabas_core.acls import AclEntry, AclPattern
from barnabas_core.errors import ApiError

Result = CreateAclsResponse.AclCreationResult


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: CreateAclsRequest
) -> CreateAclsResponse:
    """Create ACLs; an ACL that exists already is not an error."""
    answer = AnswerInTurns(CreateAclsResponse, context, environment.answers)
    read = [_read(environment, each) async for each in answer.over(request.creations)]
    wanted: dict[AclPattern, list[AclEntry]] = {}
    async for each in answer.over(read):
        if not isinstance(each, ApiError):
            wanted.setdefault(each[0], []).append(each[1])
    changes = {
        key_of(pattern): changing(pattern, added=entries) async for pattern, entries in answer.along(wanted.items())
    }
    failures = await environment.metadata_writer.change_acls(changes)
    outcomes = [
        each if isinstance(each, ApiError) else failures.get(key_of(each[0])) async for each in answer.over(read)
    ]
    return CreateAclsResponse(results=[Result(**error_fields(each)) async for each in answer.over(outcomes)])


def _read(environment: HandlerEnvironment, creation: Any) -> tuple[AclPattern, AclEntry] | ApiError:
    try:
        acls_of(environment)
        return new_acl(creation)
    except ApiError as error:
        return error.with_traceback(None)  # A traceback would keep thousands of frames alive.
