"""The places of Secrets: one for the operator, one for `barnabas up`."""

from collections.abc import Mapping
from typing import Protocol

from barnabas_operator.planning.users.user_certificate import ClientsAuthority
from barnabas_operator.planning.users.user_secret import GivenPassword, StoredSecret
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.maintenance_run import SecretKeyRef
from barnabas_operator.resources.user import User


class SecretsRefused(Exception):
    """The error that a Secret cannot be read or written; the message says why."""


class SecretTaken(SecretsRefused):
    """A Secret of that name exists already."""


class UserSecrets(Protocol):
    """The Secrets of the users of one Cluster. Every method may raise SecretsRefused."""

    def folder(self, user: User) -> str:
        """Return the prefix of the user's file names in kcat.conf: empty, or a folder."""
        ...

    async def read(self, user: User) -> StoredSecret | None:
        """Return the Secret with the user's name, even of another owner; None if there is none."""

    async def given(self, reference: SecretKeyRef) -> GivenPassword:
        """Return the password that a User refers to."""

    async def write(
        self, user: User, stored: StoredSecret | None, data: Mapping[str, bytes], marks: Mapping[str, str]
    ) -> None:
        """Make the user's Secret, or change the `stored` one. Raises SecretTaken where a new one exists already."""

    async def delete(self, user: User, stored: StoredSecret) -> None:
        """Delete the user's own Secret, which is no longer needed."""

    async def dismiss(self, user: User) -> None:
        """Release the Secret of a deleted User."""

    async def brokers_authority(self, cluster: Cluster) -> str:
        """Return the certificates that the brokers' clients trust (PEM); empty if there are none."""

    async def clients_authority(self, cluster: Cluster) -> ClientsAuthority | None:
        """Return the authority that signs the certificates of users; None if there is none."""

    def missing_authority(self, cluster: Cluster) -> str:
        """Return a clause that says what is missing of the authority."""
