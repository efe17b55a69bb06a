"""The certificates and users of a Cluster on this machine, in files that only their owner may read."""

import datetime as dt
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from barnabas_kafka.connection import ClusterUnreachable
from barnabas_kafka.security import Tls
from barnabas_operator.app.data_dir import DataDir, replace_secret_file
from barnabas_operator.app.passwords import new_password
from barnabas_operator.certificates.authority import Authority, Pem
from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from barnabas_operator.planning.brokers.broker_security import (
    BROKER,
    HOST,
    OPERATOR,
    BrokerSecrets,
    UserFiles,
    is_secured,
    java_settings,
    librdkafka_settings,
    mechanism_of,
    users_of,
)
from barnabas_operator.planning.brokers.local_properties import properties_text
from barnabas_operator.planning.users.user_plan import SCRAM_512, DeletePassword, SetPassword
from barnabas_operator.resources.cluster import Cluster

HOSTS: Final = ("localhost", HOST, "::1")
_PRIVATE: Final = 0o700


class SecurityBroken(Exception):
    """The error that a file of an earlier run cannot be used; the message names its folder, and says what to do."""


class LocalSecurity:
    """The CA, certificates, passwords and client settings, in the folder `security` of a data directory."""

    def __init__(self, data_dir: DataDir, now: Callable[[], dt.datetime]) -> None:
        self._folder = security_folder(data_dir.path)
        self._data_dir = data_dir.path
        self._now = now
        self._issued: set[Path] = set()
        self._brought: Mapping[str, str] = {}

    def prepare(self, cluster: Cluster) -> BrokerSecrets | None:
        """Create a missing CA and missing passwords, and issue certificates; return the paths of the brokers' files.

        Returns None if the brokers are insecure. Raises SecurityBroken if the CA of an earlier run cannot be used.
        """
        if not is_secured(cluster):
            return None
        self._folder.mkdir(mode=_PRIVATE, exist_ok=True)
        authority = self._authority()
        self._issue(authority, BROKER, self._folder / BROKER, HOSTS)
        self._issue(authority, OPERATOR, self._folder / OPERATOR)
        for user in users_of(cluster):
            folder = Path(self.files_of(user).folder)
            self._issue(authority, user, folder)
            if not (folder / "password").exists():
                replace_secret_file(folder / "password", new_password())
        return BrokerSecrets(str(self._folder / BROKER / "user.pem"), str(self._folder / "ca.crt"))

    def files_of(self, user: str) -> UserFiles:
        """Return the paths of a user's files."""
        return UserFiles(user, str(user_folder(self._data_dir, user)))

    def write_settings(self, cluster: Cluster, bootstrap: str) -> None:
        """Write the client settings of each user."""
        (listener,) = cluster.spec.listeners
        for user, password in self._passwords(cluster).items():
            files = self.files_of(user)
            for path, of_client in (
                (files.java_settings, java_settings),
                (files.librdkafka_settings, librdkafka_settings),
            ):
                replace_secret_file(Path(path), properties_text(of_client(listener, files, bootstrap, password)))

    def bring_users(self, admin: ClusterAdmin, cluster: Cluster) -> None:
        """Set passwords in the brokers if any has changed; delete passwords and files of users that are not declared.

        Raises ClusterUnreachable if no broker answers, or if the brokers refuse a password.
        """
        wanted = self._passwords(cluster)
        gone = [each.name for each in (self._folder / "users").glob("*") if each.name not in wanted]
        if (
            is_secured(cluster)
            and mechanism_of(cluster.spec.listeners[0]) is not None
            and (gone or wanted != self._brought)
        ):
            _set_passwords(admin, wanted, gone)
        self._brought = wanted
        for user in gone:
            shutil.rmtree(self.files_of(user).folder)

    def _authority(self) -> Authority:
        key, certificate = self._folder / "ca.key", self._folder / "ca.crt"
        if not (key.exists() and certificate.exists()):
            made = Authority.create("Barnabas", self._now())
            replace_secret_file(key, made.pem.key)
            replace_secret_file(certificate, made.pem.certificate)
            return made
        try:
            return Authority(Pem(key.read_text(), certificate.read_text()), self._now())
        except (OSError, ValueError) as error:
            what = f"the certificate authority in {self._folder} cannot be used: {error}"
            raise SecurityBroken(
                f"{what}; delete the folder to create a new authority, and new certificates for all users"
            ) from error

    def _issue(self, authority: Authority, name: str, folder: Path, hosts: tuple[str, ...] = ()) -> None:
        """Issue a certificate at most once in this process; a certificate from an earlier `barnabas up` is replaced."""
        if folder in self._issued:
            return
        folder.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        pem = authority.issue(name, hosts)
        texts = {
            "user.key": pem.key,
            "user.crt": pem.certificate,
            "user.pem": pem.both,
            "ca.crt": authority.pem.certificate,
        }
        for file, text in texts.items():
            replace_secret_file(folder / file, text)
        self._issued.add(folder)

    def _passwords(self, cluster: Cluster) -> Mapping[str, str]:
        return {user: Path(self.files_of(user).password).read_text() for user in users_of(cluster)}


def _set_passwords(admin: ClusterAdmin, passwords: Mapping[str, str], gone: Iterable[str]) -> None:
    deletions = [DeletePassword(user, SCRAM_512) for user in gone]
    refused = admin.apply_to_users([*deletions, *(SetPassword(user, SCRAM_512, passwords[user]) for user in passwords)])
    for user in passwords.keys() & refused.keys():
        raise ClusterUnreachable(f"the password of {user} cannot be set: {refused[user][1]}")


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
