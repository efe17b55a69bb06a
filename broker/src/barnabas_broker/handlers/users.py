"""The requests about who clients are (SASL, delegation tokens, SCRAM credentials) and what they may do (ACLs).

SaslHandshake (17), v0 and v1, and SaslAuthenticate (36), v0 to v2, on a listener without SASL, or after the client has
authenticated. `server.sasl_session` handles both during authentication.

CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken and DescribeDelegationToken (38 to 41). Delegation
tokens are not supported, so the errors are those of a Kafka without `delegation.token.secret.key`. Programs estimate
the version of the brokers by these APIs.

AlterUserScramCredentials (51), v0: sets and deletes the SCRAM credentials of users (KIP-554). The client sends the
salted password. The broker derives a verifier from the salted password, and stores only the verifier. The tagged
field PreviousPasswordMs is our own, and Apache Kafka ignores it. If it is set, the previous password stays valid for
that time. A request without it, such as one of Kafka's tools, ends the previous password at once.

DescribeUserScramCredentials (50), v0: the mechanisms and iterations of users, without their keys (KIP-554).

DescribeAcls (29), v1 to v3: lists the ACLs that match a filter. CreateAcls (30), v1 to v3: creates ACLs, each
independently of the others. DeleteAcls (31), v1 to v3: deletes the ACLs that match a filter. Without an authorizer the
error of these three is SECURITY_DISABLED.
"""

import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from barnabas_broker.handlers.channel import ANONYMOUS, AnswerInTurns, RequestContext, error_fields, stepwise
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.store.metadata_store import StoreUnavailable
from barnabas_broker.security.authorizer import changing, key_of
from barnabas_broker.security.sasl.scram_credential import (
    BY_NUMBER,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SCRAM_HASHES,
    Named,
    PreviousPassword,
    ScramCredential,
    ScramHash,
    credential_of,
)
from barnabas_broker.wire.messages import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
    message_class,
)
from barnabas_core.acls import (
    ANY_NAME,
    CLUSTER_NAME,
    MEANINGS,
    AclEntry,
    AclIndex,
    AclOperation,
    AclPattern,
    PatternType,
    Permission,
    ResourceType,
    not_one_user,
    plain_host,
)
from barnabas_core.config.listeners import SecurityProtocol
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import InSteps, in_steps

Word = TypeVar("Word", bound=IntEnum)
_TYPES: Final = ", ".join(each.name for each in ResourceType if each > ResourceType.ANY)
_OPERATIONS: Final = ", ".join(each.name for each in AclOperation if each > AclOperation.ANY)


def new_acl(message: Any) -> tuple[AclPattern, AclEntry]:
    """Return one ACL of a CreateAcls request. Raises ApiError if it is not a valid ACL."""
    pattern = AclPattern(
        _known(ResourceType, message.resource_type, "resource_type"),
        message.resource_name,
        _known(PatternType, message.resource_pattern_type, "resource_pattern_type"),
    )
    entry = AclEntry(
        message.principal,
        message.host,
        _known(AclOperation, message.operation, "operation"),
        _known(Permission, message.permission_type, "permission_type"),
    )
    _check_new(pattern, entry)
    return pattern, entry


def _check_new(pattern: AclPattern, entry: AclEntry) -> None:
    if pattern.resource_type is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        _refuse("resource_name", pattern.name, f"{CLUSTER_NAME}, the only name of a resource of type CLUSTER")
    if not pattern.name:
        _refuse("resource_name", pattern.name, "a non-empty text")
    if pattern.resource_type is ResourceType.ANY:
        _refuse("resource_type", "ANY", _TYPES)
    if pattern.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        _refuse("pattern_type", pattern.pattern_type.name, "LITERAL, PREFIXED")
    if entry.operation is AclOperation.ANY:
        _refuse("operation", "ANY", _OPERATIONS)
    if entry.permission is Permission.ANY:
        _refuse("permission_type", "ANY", "DENY, ALLOW")
    if ":" not in entry.principal:
        _refuse("principal", entry.principal, "TYPE:NAME, such as User:alice")
    if not entry.host:
        _refuse("host", entry.host, "an IP address or *")


@functools.cache
def _by_code(words: type[IntEnum]) -> dict[int, IntEnum]:
    return {int(word): word for word in words if word.name != "UNKNOWN"}


def _known(words: type[Word], code: int, field: str) -> Word:
    """Return the member of the enum `words` with this code. Raises ApiError for UNKNOWN (0) and undefined codes."""
    known = _by_code(words)
    if code not in known:
        allowed = ", ".join(f"{number} ({word.name})" for number, word in known.items())
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{field}={code} is not valid in an ACL; allowed: {allowed}")
    return words(code)


def _refuse(field: str, value: str, allowed: str) -> None:
    raise ApiError(ErrorCode.INVALID_REQUEST, f"the ACL has {field}={value!r}; allowed: {allowed}")


class AclFilter(msgspec.Struct, frozen=True):
    """The filter of a DescribeAcls or DeleteAcls request; ANY and None match all values."""

    resource_type: ResourceType
    name: str | None
    pattern_type: PatternType
    principal: str | None
    host: str | None
    operation: AclOperation
    permission: Permission

    def finds(self, pattern: AclPattern, entry: AclEntry) -> bool:
        """True if the filter matches the ACL; the operation ALL matches only itself."""
        return (
            self._finds_pattern(pattern)
            and self.principal in (None, entry.principal)
            and (self.host is None or plain_host(self.host) == plain_host(entry.host))
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )

    def _finds_pattern(self, pattern: AclPattern) -> bool:
        if self.resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None or self.name == pattern.name:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return False
        if pattern.pattern_type is PatternType.PREFIXED:
            return self.name.startswith(pattern.name)
        return pattern.name == ANY_NAME


def acl_filter(message: Any) -> AclFilter:
    """Return the filter of a DescribeAcls or DeleteAcls request. Raises ApiError if a field has an unknown code."""
    return AclFilter(
        _known(ResourceType, message.resource_type_filter, "resource_type_filter"),
        message.resource_name_filter,
        _known(PatternType, message.pattern_type_filter, "pattern_type_filter"),
        message.principal_filter,
        message.host_filter,
        _known(AclOperation, message.operation, "operation"),
        _known(Permission, message.permission_type, "permission_type"),
    )


def sasl_handshake(
    environment: HandlerEnvironment, context: RequestContext, request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    """Respond with ILLEGAL_SASL_STATE, because SaslHandshake is allowed only during authentication."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


ALREADY_AUTHENTICATED = "SaslAuthenticate request received after successful authentication"


def sasl_authenticate(
    environment: HandlerEnvironment, context: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """Respond with ILLEGAL_SASL_STATE, and keep the connection open."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=ALREADY_AUTHENTICATED, auth_bytes=b""
    )


NO_TIME: Final = -1


def delegation_token(environment: HandlerEnvironment, context: RequestContext, request: Any) -> Any:
    """Return DELEGATION_TOKEN_AUTH_DISABLED, or DELEGATION_TOKEN_REQUEST_NOT_ALLOWED to clients that may have no token.

    As in Kafka, a client on a PLAINTEXT listener, or on an SSL listener without a certificate, may have no token.
    """
    client = context.client
    protocol = environment.config.listeners.protocols[client.listener_name]
    is_open = protocol is SecurityProtocol.PLAINTEXT or (
        protocol is SecurityProtocol.SSL and client.principal == ANONYMOUS
    )
    error = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED if is_open else ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    response = message_class(type(request).__name__.replace("Request", "Response"))(error_code=error)
    for name in response.__struct_fields__:
        if is_open and name.endswith("timestamp_ms"):
            setattr(response, name, NO_TIME)
    if hasattr(request, "owner_principal_type"):
        _name_principals(response, client.principal, request)
    return response


def _name_principals(response: Any, principal: str, request: Any) -> None:
    """Set the owner of the token, which is the client unless the request names another, and the requester."""
    response.token_requester_principal_type, _, response.token_requester_principal_name = principal.partition(":")
    if request.owner_principal_type is None:
        response.principal_type, _, response.principal_name = principal.partition(":")
    else:
        # A request may name only one of both; the response has no null.
        response.principal_type, response.principal_name = (
            request.owner_principal_type,
            request.owner_principal_name or "",
        )


NO_SCRAM: Final = (
    "No listener has a SCRAM mechanism in sasl.enabled.mechanisms, so this broker cannot store SCRAM credentials; "
    "add a SCRAM mechanism."
)
OVERLAP_MAX: Final = "sasl.scram.password.overlap.max.ms"
SALT_BYTES_MAX: Final = 256
USER_CHARS_MAX: Final = 255

AlteredUser = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult


class ScramDecision(msgspec.Struct, frozen=True):
    """The changes to store, and the outcome for each user in the request: an error, or None."""

    changes: Mapping[Named, ScramCredential | None]
    outcomes: Mapping[str, ApiError | None]


class Present(msgspec.Struct, frozen=True):
    """The credentials before the changes, the wall-clock time, and the longest allowed overlap of two passwords."""

    credentials: Mapping[Named, ScramCredential]
    stored: Mapping[Named, ScramCredential]
    """The credentials whose passwords may stay valid, as the store has them."""
    now_ms: int
    overlap_ms_max: int


async def alter_user_scram_credentials(
    environment: HandlerEnvironment, context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Set or delete the credential of each user; the next login at this broker uses the new credential."""
    users = environment.scram
    if users is None:
        refusal = ApiError(ErrorCode.SECURITY_DISABLED, NO_SCRAM)
        return _alter_response({each.name: refusal for each in (*request.deletions, *request.upsertions)})
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
        return _alter_response({user: outcome or failure for user, outcome in outcomes.items()})
    return _alter_response(decision.outcomes)


def _overlapping(request: AlterUserScramCredentialsRequest) -> list[Named]:
    """Return the credentials for which the request asks for an overlap of two passwords."""
    asked = [each for each in request.upsertions if each.previous_password_ms and each.mechanism in BY_NUMBER]
    return [(each.name, BY_NUMBER[each.mechanism].mechanism) for each in asked]


def _alter_response(outcomes: Mapping[str, ApiError | None]) -> AlterUserScramCredentialsResponse:
    results = [AlteredUser(user=user, **error_fields(error)) for user, error in outcomes.items()]
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


DescribedUser = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
Credentials = Mapping[tuple[str, str], ScramCredential]


@stepwise
def describe_user_scram_credentials(
    environment: HandlerEnvironment, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> InSteps[DescribeUserScramCredentialsResponse]:
    """Return the credentials of the requested users, or of all users if the request names none."""
    credentials: Credentials = {} if environment.scram is None else environment.scram.credentials
    times = Counter(user.name for user in request.users or ()) or Counter({user for user, _ in credentials})
    results = yield from in_steps(sorted(times.items()), lambda each: _described_user(*each, credentials))
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


def _described_user(user: str, times: int, credentials: Credentials) -> DescribedUser:
    found = [(kind, credentials[user, name]) for name, kind in SCRAM_HASHES.items() if (user, name) in credentials]
    error, message = ErrorCode.NONE, None
    if times > 1:
        error, message = ErrorCode.DUPLICATE_RESOURCE, f"Cannot describe SCRAM credentials for the user twice: {user}"
    elif not found:
        error = ErrorCode.RESOURCE_NOT_FOUND
        message = f"Attempt to describe a user credential that does not exist: {user}"
    infos = [DescribedUser.CredentialInfo(mechanism=kind.number, iterations=each.iterations) for kind, each in found]
    return DescribedUser(user=user, error_code=error, error_message=message, credential_infos=[] if error else infos)


DescribedResource = DescribeAclsResponse.DescribeAclsResource


async def describe_acls(
    environment: HandlerEnvironment, context: RequestContext, request: DescribeAclsRequest
) -> DescribeAclsResponse:
    """Return the ACLs that match the filter, grouped by resource pattern."""
    try:
        acls, wanted = acls_of(environment), acl_filter(request)
    except ApiError as error:
        return DescribeAclsResponse(error_code=error.code, error_message=error.message)
    answer = AnswerInTurns(DescribeAclsResponse, context, environment.answers)
    resources = []
    async for pattern, entries in answer.over(list(acls.patterns())):
        found = [each for each in entries if wanted.finds(pattern, each)]
        if found:
            resources.append(answer.encoded(("resources",), _described_resource(pattern, found)))
    return DescribeAclsResponse(error_message=None, resources=resources)


def acls_of(environment: HandlerEnvironment) -> AclIndex:
    """Return the ACLs of the cluster. Raises ApiError if the broker has no authorizer."""
    if environment.authorizer is None:
        raise ApiError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    return environment.authorizer.index


def _described_resource(pattern: AclPattern, entries: list[AclEntry]) -> DescribedResource:
    acls = [
        DescribedResource.AclDescription(
            principal=each.principal, host=each.host, operation=each.operation, permission_type=each.permission
        )
        for each in entries
    ]
    return DescribedResource(
        resource_type=pattern.resource_type, resource_name=pattern.name, pattern_type=pattern.pattern_type, acls=acls
    )


CreationResult = CreateAclsResponse.AclCreationResult


async def create_acls(
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
    return CreateAclsResponse(results=[CreationResult(**error_fields(each)) async for each in answer.over(outcomes)])


def _read(environment: HandlerEnvironment, creation: Any) -> tuple[AclPattern, AclEntry] | ApiError:
    try:
        acls_of(environment)
        return new_acl(creation)
    except ApiError as error:
        return error.with_traceback(None)  # A traceback would keep thousands of frames alive.


DELETED_MAX: Final = 10_000
"""The maximum number of ACLs that one request may delete, as in Kafka."""

FilterResult = DeleteAclsResponse.DeleteAclsFilterResult
Acl = tuple[AclPattern, AclEntry]


async def delete_acls(
    environment: HandlerEnvironment, context: RequestContext, request: DeleteAclsRequest
) -> DeleteAclsResponse:
    """Delete the ACLs that match the filters; the response lists the matching ACLs of each filter."""
    answer = AnswerInTurns(DeleteAclsResponse, context, environment.answers)
    found = [await _acls_to_delete(environment, answer, each) async for each in answer.over(request.filters)]
    every = {acl for each in found if not isinstance(each, ApiError) for acl in each}
    if len(every) > DELETED_MAX:
        message = (
            f"the filters match {len(every)} ACLs, but one request may delete only {DELETED_MAX}: use narrower filters"
        )
        refused = ApiError(ErrorCode.INVALID_REQUEST, message)
        return DeleteAclsResponse(filter_results=[_filter_result(refused, {}) for _ in found])
    failures = await environment.metadata_writer.change_acls(_changes(every))
    return DeleteAclsResponse(filter_results=[_filter_result(each, failures) async for each in answer.over(found)])


async def _acls_to_delete(environment: HandlerEnvironment, answer: AnswerInTurns, asked: Any) -> list[Acl] | ApiError:
    try:
        patterns, wanted = acls_of(environment).patterns(), acl_filter(asked)
    except ApiError as error:
        return error.with_traceback(None)  # A traceback would keep thousands of frames alive.
    return [
        (pattern, each)
        async for pattern, entries in answer.over(patterns)
        for each in entries
        if wanted.finds(pattern, each)
    ]


def _changes(acls: Iterable[Acl]) -> dict[str, Any]:
    by_pattern: dict[AclPattern, list[AclEntry]] = {}
    for pattern, entry in acls:
        by_pattern.setdefault(pattern, []).append(entry)
    return {key_of(pattern): changing(pattern, removed=entries) for pattern, entries in by_pattern.items()}


def _filter_result(found: list[Acl] | ApiError, failures: Mapping[str, ApiError | None]) -> FilterResult:
    if isinstance(found, ApiError):
        return FilterResult(**error_fields(found))
    matching = [_matching(pattern, entry, failures.get(key_of(pattern))) for pattern, entry in found]
    return FilterResult(error_message=None, matching_acls=matching)


def _matching(pattern: AclPattern, entry: AclEntry, error: ApiError | None) -> FilterResult.DeleteAclsMatchingAcl:
    return FilterResult.DeleteAclsMatchingAcl(
        **error_fields(error),
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )
