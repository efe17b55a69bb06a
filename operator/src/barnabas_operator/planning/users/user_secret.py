"""The Secret of a user: its ownership, its password, and its annotations."""

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from barnabas_operator.planning.refusal import RESOURCE_CONFLICT, Refusal
from barnabas_operator.planning.users.client_files import PASSWORD
from barnabas_operator.planning.users.user_plan import KnownPassword, has_salt, overlap_s
from barnabas_operator.resources.maintenance_run import SecretKeyRef
from barnabas_operator.resources.user import User

ROTATE: Final = "barnabas.dev/rotate-password"
"""The annotation of a User that requests a new password.

The operator makes a new password if the Secret's annotation of the same name is missing or has another value. The
operator copies the value to the Secret together with the new password.
"""
SALT: Final = "barnabas.dev/password-salt"
"""The annotation of a Secret with a salt.

The password id is a hash of the password with the salt, so that the id does not reveal the password. The salt of the
SCRAM credential is a hash of this salt, because every client can read the salt of SCRAM.
"""
NO_PASSWORD: Final = "NoPassword"
PASSWORD_LENGTH: Final = 32
GIVEN_LENGTH_MAX: Final = 255
_GIVEN: Final = re.compile(rf"[!-~]([ -~]{{0,{GIVEN_LENGTH_MAX - 2}}}[!-~])?")
_ID_LENGTH: Final = 16
_SALT_ID_LENGTH: Final = 8
_SCRAM_SALT_BYTES: Final = 24
NewPassword = Callable[[], str]
"""A function that returns a random password of 32 letters and digits."""


class StoredSecret(NamedTuple):
    """A Secret as it is stored; `is_own` is True if the Secret belongs to the User."""

    data: Mapping[str, bytes]
    marks: Mapping[str, str]
    """The annotations of the Secret."""
    is_own: bool


class GivenPassword(NamedTuple):
    """The password in the Secret that a User refers to, or None if the Secret or its key does not exist."""

    text: str | None


def not_own(user: User) -> Refusal:
    """Return the Refusal to report for a User if the Secret of its name already exists and has another owner."""
    name = user.metadata.name
    why = f"Secret {name} already exists and does not belong to the User"
    return Refusal(RESOURCE_CONFLICT, f"{why}; delete the Secret, or choose another metadata.name for the User")


def password_reference(user: User) -> SecretKeyRef | None:
    """Return the key of the Secret that has the password of the User; None if the password is generated."""
    password = user.spec.authentication.password
    return None if password is None or password.value_from is None else password.value_from.secret_key_ref


def given_password_problem(user: User, given: GivenPassword) -> Refusal | None:
    """Return a Refusal if the password to which a User refers is missing or invalid; None if it is valid."""
    ref = password_reference(user)
    assert ref is not None, "the User must refer to a password"
    where = f"spec.authentication.password: key {ref.key} of Secret {ref.name}"
    if given.text is None:
        return Refusal(NO_PASSWORD, f"{where} is missing; create the key with the password as its value")
    if _GIVEN.fullmatch(given.text) is None:
        allowed = f"1 to {GIVEN_LENGTH_MAX} printable ASCII characters, with no space at the beginning or end"
        return Refusal(NO_PASSWORD, f"{where} cannot be a password; allowed: {allowed}")
    return None


def password_of(user: User, stored: StoredSecret | None, given: GivenPassword | None, new: NewPassword) -> str:
    """Return the password for the Secret: the password that the User refers to, or else the stored password.

    A new password is returned if none is stored, the stored one is invalid, or a rotation is requested.
    """
    kept = _stored_password(stored)
    if kept and waits_for_salt(user, stored):
        return kept
    if given is not None:
        return given.text or ""
    return kept if kept and not asks_for_rotation(user, stored) else new()


def _stored_password(stored: StoredSecret | None) -> str:
    """Return the stored password; empty if there is none that clients can send."""
    kept = stored.data.get(PASSWORD, b"").decode(errors="replace") if stored is not None else ""
    return kept if _GIVEN.fullmatch(kept) is not None else ""


def waits_for_salt(user: User, stored: StoredSecret | None) -> bool:
    """Return whether a new password must wait until the brokers have the stored one with the salt of the Secret.

    An earlier version of the operator gave the brokers the stored password with another salt. It cannot stay valid
    beside a password with the salt of the Secret.
    """
    if stored is None or user.status is None or user.status.password_id is None or not overlap_s(user):
        return False
    _, salt_id = _scram_salt(stored.marks)
    return not has_salt(user, salt_id) and bool(_stored_password(stored))


def asks_for_rotation(user: User, stored: StoredSecret | None) -> bool:
    """Return whether the annotation of the User requests a rotation that has not been done yet."""
    wanted = user.metadata.annotations.get(ROTATE)
    return wanted is not None and stored is not None and stored.marks.get(ROTATE) != wanted


def marks_of(user: User, stored: StoredSecret | None, new: NewPassword) -> dict[str, str]:
    """Return the Secret's annotations: the stored or a new salt, and the User's last request for a new password."""
    salt = stored.marks.get(SALT, "") if stored is not None else ""
    rotated = user.metadata.annotations.get(ROTATE)
    if stored is not None and waits_for_salt(user, stored):
        rotated = stored.marks.get(ROTATE)
    return {SALT: salt or new()} | ({ROTATE: rotated} if rotated is not None else {})


def known_password(password: str, marks: Mapping[str, str]) -> KnownPassword:
    """Return the password with its id, a hash of the password and of the salt in `marks`, and with its SCRAM salt."""
    earlier_id = hashlib.sha256(f"{marks[SALT]}:{password}".encode()).hexdigest()[:_ID_LENGTH]
    return KnownPassword(password, *_scram_salt(marks), earlier_id)


def _scram_salt(marks: Mapping[str, str]) -> tuple[bytes, str]:
    """Return the salt of the SCRAM credential, and the prefix that it gives the id of a password."""
    salt = hashlib.sha256(f"SCRAM salt:{marks.get(SALT, '')}".encode()).digest()[:_SCRAM_SALT_BYTES]
    return salt, hashlib.sha256(salt).hexdigest()[:_SALT_ID_LENGTH] + "-"
