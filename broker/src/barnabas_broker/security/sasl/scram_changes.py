"""Decide on the changes of an AlterUserScramCredentials request, user by user (KIP-554)."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from barnabas_broker.security.sasl.scram_credential import (
    BY_NUMBER,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramCredential,
    credential_of,
)
from barnabas_core.errors import ApiError, ErrorCode

SALT_BYTES_MAX: Final = 256
USER_CHARS_MAX: Final = 255


class Upsertion(NamedTuple):
    """A credential to set; the client has already salted the password."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


class Deletion(NamedTuple):
    """A credential to delete."""

    user: str
    mechanism: int


class ScramDecision(NamedTuple):
    """The changes to store, and the outcome for each user in the request: an error, or None."""

    changes: Mapping[tuple[str, str], ScramCredential | None]
    outcomes: Mapping[str, ApiError | None]


def decide_scram_changes(
    asked: Collection[Upsertion | Deletion], existing: Collection[tuple[str, str]]
) -> ScramDecision:
    """Return the changes, and an error or None for each user; an error of one user does not affect other users."""
    times = Counter(each.user for each in asked)
    changes: dict[tuple[str, str], ScramCredential | None] = {}
    outcomes: dict[str, ApiError | None] = {}
    for each in asked:
        try:
            _check_user(each.user, times[each.user])
            changes.update(_change(each, existing))
            outcomes[each.user] = None
        except ApiError as error:
            outcomes[each.user] = error
    return ScramDecision(changes, outcomes)


def _check_user(user: str, times: int) -> None:
    if not user or len(user) > USER_CHARS_MAX:
        message = f"A user's name must have 1 to {USER_CHARS_MAX} characters."
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
    if times > 1:
        message = "A user credential cannot be altered twice in the same request"
        raise ApiError(ErrorCode.DUPLICATE_RESOURCE, message)


def _change(
    asked: Upsertion | Deletion, existing: Collection[tuple[str, str]]
) -> Iterable[tuple[tuple[str, str], ScramCredential | None]]:
    kind = BY_NUMBER.get(asked.mechanism)
    if kind is None:
        raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    name = asked.user, kind.mechanism
    if isinstance(asked, Deletion):
        if name not in existing:
            message = "Attempt to delete a user credential that does not exist"
            raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, message)
        return [(name, None)]
    if not ITERATIONS_MIN <= asked.iterations <= ITERATIONS_MAX:
        message = f"iterations={asked.iterations}: must be from {ITERATIONS_MIN} to {ITERATIONS_MAX}"
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
    if not 0 < len(asked.salt) <= SALT_BYTES_MAX or len(asked.salted_password) != kind.key_bytes:
        message = (
            f"The salt must have 1 to {SALT_BYTES_MAX} bytes, and the salted password must have {kind.key_bytes} bytes."
        )
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
    return [(name, credential_of(kind, asked.salted_password, asked.salt, asked.iterations))]
