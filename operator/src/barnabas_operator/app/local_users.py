"""The certificates and users of a Cluster on this machine, in files that only their owner can read."""

import asyncio
import datetime as dt
import json
import secrets
import shutil
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from barnabas_core.clock import Clock
from barnabas_kafka.connection import ClusterUnreachable
from barnabas_kafka.security import Tls
from barnabas_operator.app.child_process import DataDir, replace_secret_file
from barnabas_operator.certificates import Authority, Pem
from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from barnabas_operator.planning.brokers.broker_security import (
    BROKER,
    HOST,
    OPERATOR,
    OWN_USERS,
    BrokerSecrets,
    UserFiles,
    is_secured,
    java_settings,
    librdkafka_settings,
    mechanism_of,
    users_of,
)
from barnabas_operator.planning.brokers.local_properties import properties_text
from barnabas_operator.planning.users.user_plan import SCRAM_512, ClusterUsers, DeletePassword, SetPassword, UserStep
from barnabas_operator.planning.users.user_secret import (
    AUTHORITY,
    PASSWORD_LENGTH,
    ClientsAuthority,
    GivenPassword,
    StoredSecret,
)
from barnabas_operator.reconcile.users.user_reconciler import RefusedSteps, UserBrokers, UsersOutcome, UsersWork
from barnabas_operator.reconcile.users.user_secrets import SecretsRefused, SecretTaken, UserSecrets
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.maintenance_run import SecretKeyRef
from barnabas_operator.resources.user import User

LETTERS: Final = string.ascii_letters + string.digits


def new_password() -> str:
    """Return 32 random letters and digits."""
    return "".join(secrets.choice(LETTERS) for _ in range(PASSWORD_LENGTH))


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


MARKS: Final = ".marks.json"


class FileSecrets(UserSecrets):
    """The credentials of each user in the folder `users/USER` of a data directory, with mode 0700."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir: Final = data_dir

    def folder(self, user: User) -> str:
        """Return the folder of a user, with a slash at the end."""
        return f"{self._path(user)}/"

    async def read(self, user: User) -> StoredSecret | None:
        """Return the files of a user; None if the user has no folder. Raises SecretsRefused if a file is unreadable."""
        path = self._path(user)
        if not path.is_dir():
            return None
        try:
            data = {file.name: file.read_bytes() for file in path.iterdir() if not file.name.startswith(".")}
            marks = json.loads((path / MARKS).read_bytes()) if (path / MARKS).exists() else {}
        except (OSError, ValueError) as error:
            raise SecretsRefused(
                f"the credentials in {path} cannot be read: {error}; delete the folder to create new credentials"
            ) from error
        return StoredSecret(data, marks, is_own=True)

    async def given(self, reference: SecretKeyRef) -> GivenPassword:
        """Raise SecretsRefused, because there are no Secrets without Kubernetes."""
        raise SecretsRefused(
            f"`barnabas up` cannot read the Secret {reference.name}; leave out spec.authentication.password.valueFrom"
        )

    async def write(
        self, user: User, stored: StoredSecret | None, data: Mapping[str, bytes], marks: Mapping[str, str]
    ) -> None:
        """Write the files in `data`, and delete the user's previous files (`stored`) that are not in `data`.

        Raises SecretTaken if `stored` is None but the user's folder exists. Raises SecretsRefused if a file cannot be
        written.
        """
        path = self._path(user)
        try:
            path.parent.mkdir(mode=_PRIVATE, exist_ok=True)
            path.mkdir(mode=_PRIVATE, exist_ok=stored is not None)
            replace_secret_file(path / MARKS, json.dumps(marks))
            for name, content in data.items():
                replace_secret_file(path / name, content)
            for name in stored.data.keys() - data.keys() if stored is not None else ():
                (path / name).unlink(missing_ok=True)
        except FileExistsError as error:
            raise SecretTaken(f"{path} exists already") from error
        except OSError as error:
            raise SecretsRefused(f"{path} cannot be written: {error}") from error

    async def delete(self, user: User, _stored: StoredSecret) -> None:
        """Delete the folder of a user."""
        await self.dismiss(user)

    async def dismiss(self, user: User) -> None:
        """Delete the folder of a user that is no longer declared."""
        shutil.rmtree(self._path(user), ignore_errors=True)

    async def brokers_authority(self, _cluster: Cluster) -> str:
        """Return the certificate of the CA that signs the brokers' certificates; empty if there is none."""
        return self._text(AUTHORITY)

    async def clients_authority(self, _cluster: Cluster) -> ClientsAuthority | None:
        """Return the CA that signs the certificates of brokers and clients on this machine; None if there is none."""
        key, trusted = self._text("ca.key"), self._text(AUTHORITY)
        return ClientsAuthority(key, trusted) if key and trusted else None

    def missing_authority(self, _cluster: Cluster) -> str:
        """Return the part of a status message that says why the Cluster has no CA."""
        return "no listener of the Cluster has tls: true"

    def _path(self, user: User) -> Path:
        return self._data_dir / "users" / user.metadata.name

    def _text(self, name: str) -> str:
        file = security_folder(self._data_dir) / name
        return file.read_text() if file.exists() else ""


class LocalUsers:
    """The reconciler of one Cluster's declared users.

    `connected` returns a client, or raises ClusterUnreachable. Several threads may call `connected`.
    """

    def __init__(self, data_dir: Path, connected: Callable[[], ClusterAdmin], clock: Clock) -> None:
        self._secrets: Final = FileSecrets(data_dir)
        self._connected: Final = connected
        self._clock: Final = clock

    async def bring(
        self, cluster: Cluster, declared: Sequence[User], removed: Sequence[User], bootstrap: str
    ) -> UsersOutcome:
        """Reconcile all users once. Raises ClusterUnreachable if no broker answers."""
        reserved = (*OWN_USERS, *users_of(cluster))
        work = UsersWork(UserBrokers(self._read_users, self._apply), self._secrets, new_password, reserved)
        round_ = await work.begin(cluster, declared, bootstrap, self._clock.now_ms())
        return await work.reconcile(round_, declared, removed)

    async def _read_users(self) -> ClusterUsers:
        return await asyncio.to_thread(lambda: self._connected().users())

    async def _apply(self, steps: Sequence[UserStep]) -> RefusedSteps:
        return await asyncio.to_thread(lambda: self._connected().apply_to_users(steps))
