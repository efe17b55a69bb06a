"""Random passwords."""

import secrets
import string
from typing import Final

from barnabas_operator.planning.users.user_secret import PASSWORD_LENGTH

LETTERS: Final = string.ascii_letters + string.digits


def new_password() -> str:
    """Return 32 random letters and digits."""
    return "".join(secrets.choice(LETTERS) for _ in range(PASSWORD_LENGTH))
