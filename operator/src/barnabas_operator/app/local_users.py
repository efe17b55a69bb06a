"""The users that manifest files declare, in a Cluster on this machine; their Secrets are folders."""

import asyncio
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from barnabas_core.clock import Clock
from barnabas_operator.app.data_dir import replace_secret_file
from barnabas_operator.app.local_security import security_folder
from barnabas_operator.app.passwords import new_password
from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from barnabas_operator.planning.brokers.broker_security import OWN_USERS, users_of
from barnabas_operator.planning.users.user_plan import ClusterUsers, UserStep
from barnabas_operator.planning.users.user_secret import AUTHORITY, ClientsAuthority, GivenPassword, StoredSecret
from barnabas_operator.reconcile.users.reconcile_users import RefusedSteps, UserBrokers, UsersOutcome, UsersWork
from barnabas_operator.reconcile.users.user_secrets import SecretsRefused, SecretTaken, UserSecrets
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.maintenance_run import SecretKeyRef
from barnabas_operator.resources.user import User

MARKS: Final = ".marks.json"
_PRIVATE: Final = 0o700


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
        work = UsersWork(UserBrokers(self._look, self._apply), self._secrets, new_password, reserved)
        round_ = await work.begin(cluster, declared, bootstrap, self._clock.now_ms())
        return await work.reconcile(round_, declared, removed)

    async def _look(self) -> ClusterUsers:
        return await asyncio.to_thread(lambda: self._connected().users())

    async def _apply(self, steps: Sequence[UserStep]) -> RefusedSteps:
        return await asyncio.to_thread(lambda: self._connected().apply_to_users(steps))
