"""The Secret of a user: whether it may be written, and its password. Pure."""

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from barnabas_operator.planning.refusal import RESOURCE_CONFLICT, Refusal
from barnabas_operator.planning.users.client_files import PASSWORD
from barnabas_operator.planning.users.user_plan import KnownPassword
from barnabas_operator.resources.user import User

ROTATE: Final = "barnabas.dev/rotate-password"
"""The annotation of a User: another value asks for another password. Its Secret has the last one."""
SALT: Final = "barnabas.dev/password-salt"
"""The annotation of a Secret with the salt of its password's id, which reveals nothing without it."""
NO_PASSWORD: Final = "NoPassword"
PASSWORD_LENGTH: Final = 32
GIVEN_LENGTH_MAX: Final = 255
_GIVEN: Final = re.compile(rf"[!-~]([ -~]{{0,{GIVEN_LENGTH_MAX - 2}}}[!-~])?")
_ID_LENGTH: Final = 16
NewPassword = Callable[[], str]
"""Returns a random password of 32 letters and digits."""


class StoredSecret(NamedTuple):
    """A Secret as it is stored. `is_own`: it belongs to this very User."""

    data: Mapping[str, bytes]
    marks: Mapping[str, str]
    """The annotations of the Secret."""
    is_own: bool


class GivenPassword(NamedTuple):
    """The password that a User refers to; None if the Secret or the key does not exist."""

    text: str | None


def not_own(user: User) -> Refusal:
    """Return the refusal of a name that another owner's Secret has."""
    name = user.metadata.name
    why = f"a Secret {name} is there already, and does not belong to this User"
    return Refusal(RESOURCE_CONFLICT, f"{why}; allowed: another metadata.name, or delete that Secret")


def given_password_problem(user: User, given: GivenPassword) -> Refusal | None:
    """Return the problem of the password that a User refers to."""
    reference = user.spec.authentication.password
    assert reference is not None, "nothing is given"
    ref = reference.value_from.secret_key_ref
    where = f"spec.authentication.password: key {ref.key} of Secret {ref.name}"
    if given.text is None:
        return Refusal(NO_PASSWORD, f"{where} is missing; allowed: a key that holds the password")
    if _GIVEN.fullmatch(given.text) is None:
        allowed = f"1 to {GIVEN_LENGTH_MAX} ASCII characters without control characters, none at the ends a space"
        return Refusal(NO_PASSWORD, f"{where} cannot be a password; allowed: {allowed}")
    return None


def password_of(user: User, stored: StoredSecret | None, given: GivenPassword | None, new: NewPassword) -> str:
    """Return the password that the Secret shall have: the given one, the one that it has, or a new one."""
    if given is not None:
        return given.text or ""
    kept = stored.data.get(PASSWORD, b"").decode(errors="replace") if stored is not None else ""
    is_usable = _GIVEN.fullmatch(kept) is not None
    return kept if is_usable and not asks_for_rotation(user, stored) else new()


def asks_for_rotation(user: User, stored: StoredSecret | None) -> bool:
    """Return whether the User has a value of the annotation that its Secret has not followed."""
    wanted = user.metadata.annotations.get(ROTATE)
    return wanted is not None and stored is not None and stored.marks.get(ROTATE) != wanted


def marks_of(user: User, stored: StoredSecret | None, new: NewPassword) -> dict[str, str]:
    """Return the annotations that the Secret shall have."""
    salt = stored.marks.get(SALT, "") if stored is not None else ""
    rotated = user.metadata.annotations.get(ROTATE)
    return {SALT: salt or new()} | ({ROTATE: rotated} if rotated is not None else {})


def known_password(password: str, marks: Mapping[str, str]) -> KnownPassword:
    """Return the password with its id."""
    digest = hashlib.sha256(f"{marks[SALT]}:{password}".encode()).hexdigest()
    return KnownPassword(password, digest[:_ID_LENGTH])
