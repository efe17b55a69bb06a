"""The files of `barnabas up` that secured brokers and their users need, and its own credentials."""

from pathlib import Path

from barnabas_kafka.security import Tls
from barnabas_operator.planning.brokers.local_security import OPERATOR


def security_folder(data_dir: Path) -> Path:
    """Return the folder with the authority, the certificates and the users."""
    return data_dir / "security"


def user_folder(data_dir: Path, user: str) -> Path:
    """Return the folder with all that a user needs."""
    return security_folder(data_dir) / "users" / user


def of_operator(data_dir: Path) -> Tls:
    """Return the certificates with which `barnabas up` itself connects, by the listener between brokers."""
    folder = security_folder(data_dir) / OPERATOR
    return Tls(folder / "ca.crt", folder / "user.crt", folder / "user.key")
