"""The Kubernetes Events about users. Pure."""

from collections.abc import Sequence
from typing import Final

from barnabas_operator.planning.kube_event import Said
from barnabas_operator.planning.users.user_steps import UserStep, describe

DRIFT_UNDONE: Final = "DriftUndone"
PASSWORD_ROTATED: Final = "PasswordRotated"


def drift_undone(steps: Sequence[UserStep]) -> Said | None:
    """Return the Event that these steps undid changes of others; None without steps."""
    if not steps:
        return None
    return "Normal", DRIFT_UNDONE, f"another client had changed this user: {'; '.join(map(describe, steps))}"


def password_rotated(username: str) -> Said:
    """Return the Event that a user has another password."""
    why = "connections that used the old one were closed"
    return "Normal", PASSWORD_ROTATED, f"user {username} has another password; {why}"
