"""The Kubernetes Events about users."""

from collections.abc import Sequence
from typing import Final

from barnabas_operator.planning.kube_event import Said
from barnabas_operator.planning.users.user_steps import UserStep, describe

DRIFT_UNDONE: Final = "DriftUndone"
PASSWORD_ROTATED: Final = "PasswordRotated"


def drift_undone(steps: Sequence[UserStep]) -> Said | None:
    """Return an Event that lists the changes of another client that `steps` have undone; None without steps."""
    if not steps:
        return None
    return (
        "Normal",
        DRIFT_UNDONE,
        (
            "another client had changed the user, and the operator has undone the change: "
            f"{'; '.join(map(describe, steps))}"
        ),
    )


def password_rotated(username: str) -> Said:
    """Return the Event for a user with a new password."""
    why = "connections that used the old password were closed"
    return "Normal", PASSWORD_ROTATED, f"user {username} has a new password; {why}"
