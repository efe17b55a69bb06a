"""The folders for certificates and for the files of users, and the credentials with which `barnabas up` connects."""

from pathlib import Path

from barnabas_kafka.security import Tls
from barnabas_operator.planning.brokers.local_security import OPERATOR


def security_folder(data_dir: Path) -> Path:
    """Return the folder with the CA, the certificates and the users."""
    return data_dir / "security"


def user_folder(data_dir: Path, user: str) -> Path:
    """Return the folder with the credentials and the client settings of a Kafka user."""
    return security_folder(data_dir) / "users" / user


def of_operator(data_dir: Path) -> Tls:
    """Return the TLS settings with which `barnabas up` itself connects to the inter-broker listener."""
    folder = security_folder(data_dir) / OPERATOR
    return Tls(folder / "ca.crt", folder / "user.crt", folder / "user.key")
