"""The interface to the Secrets of users, which the operator and `barnabas up` implement."""

from collections.abc import Mapping
from typing import Protocol

from barnabas_operator.planning.users.user_secret import ClientsAuthority, GivenPassword, StoredSecret
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.maintenance_run import SecretKeyRef
from barnabas_operator.resources.user import User


class SecretsRefused(Exception):
    """The error that a Secret cannot be read or written; the message says why."""


class SecretTaken(SecretsRefused):
    """The error that a Secret with the user's name already exists."""


class UserSecrets(Protocol):
    """The Secrets of the users of one Cluster. Every method may raise SecretsRefused."""

    def folder(self, user: User) -> str:
        """Return the folder of the files that kcat.conf names, with a slash at the end; empty if it is unknown."""
        ...

    async def read(self, user: User) -> StoredSecret | None:
        """Return the Secret with the user's name, even if it has another owner; None if there is none."""

    async def given(self, reference: SecretKeyRef) -> GivenPassword:
        """Return the password that a User refers to."""

    async def write(
        self, user: User, stored: StoredSecret | None, data: Mapping[str, bytes], marks: Mapping[str, str]
    ) -> None:
        """Create the user's Secret, or change the `stored` Secret.

        Raises SecretTaken if `stored` is None, but a Secret with the user's name exists.
        """

    async def delete(self, user: User, stored: StoredSecret) -> None:
        """Delete the user's own Secret, which is no longer needed."""

    async def dismiss(self, user: User) -> None:
        """Delete the Secret of a deleted User, unless Kubernetes deletes the Secret."""

    async def brokers_authority(self, cluster: Cluster) -> str:
        """Return the certificates that the brokers' clients trust (PEM); empty if there are none."""

    async def clients_authority(self, cluster: Cluster) -> ClientsAuthority | None:
        """Return the CA that signs the certificates of users; None if there is none."""

    def missing_authority(self, cluster: Cluster) -> str:
        """Return the part of a status message that says why there is no clients CA."""
