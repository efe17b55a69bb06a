"""Reconciles the Secret of one user."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from barnabas_operator.certificates.authority import certificates_in
from barnabas_operator.planning.brokers.cluster_secrets import certificate_status
from barnabas_operator.planning.refusal import KUBERNETES_ERROR, Refusal
from barnabas_operator.planning.users.user_plan import KnownPassword, mechanism_of
from barnabas_operator.planning.users.user_secret import (
    CERTIFICATE,
    KEY,
    KEYSTORE,
    KEYSTORE_PASSWORD,
    NO_AUTHORITY,
    ClientsAuthority,
    Endpoint,
    NewPassword,
    Proof,
    StoredSecret,
    UserCertificate,
    client_files,
    endpoint_of,
    given_password_problem,
    is_due,
    issue,
    known_password,
    marks_of,
    no_authority,
    not_own,
    password_of,
    password_reference,
)
from barnabas_operator.reconcile.users.user_secrets import SecretsRefused, SecretTaken, UserSecrets
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.security import CertificateStatus
from barnabas_operator.resources.user import User


class SecretRound(NamedTuple):
    """The input for one reconciliation of Secrets.

    `bootstrap` is the bootstrap address of the Cluster, for use while the Cluster's status has no address.
    `brokers_authority` has the certificates of the CA of the brokers, and `clients_authority` is the CA of the clients.
    """

    cluster: Cluster
    bootstrap: str
    now_ms: int
    brokers_authority: str
    clients_authority: ClientsAuthority | None


class ReadySecret(NamedTuple):
    """The state of a user's Secret; `refusal` says why the Secret is not as declared."""

    is_there: bool = False
    known: KnownPassword | None = None
    refusal: Refusal | None = None
    certificate: CertificateStatus | None = None
    note: str = ""
    """A warning that no listener accepts the user's authentication; empty if there is none."""


class SecretWriter:
    """The writer of the Secrets of one Cluster's users."""

    def __init__(self, secrets: UserSecrets, new_password: NewPassword) -> None:
        self._secrets: Final = secrets
        self._new_password: Final = new_password

    async def bring(self, user: User, round_: SecretRound) -> ReadySecret:
        """Write a User's Secret if changed, or delete it if authentication is external; return the Secret's state."""
        if user.spec.authentication.type == "external":
            return await self._without(user)
        try:
            if user.status is None:
                with suppress(SecretTaken):  # A Secret that already exists is read below.
                    return await self._change(user, None, round_)
            return await self._change(user, await self._secrets.read(user), round_)
        except SecretsRefused as error:
            return ReadySecret(refusal=_refused(user, error))

    async def _change(self, user: User, stored: StoredSecret | None, round_: SecretRound) -> ReadySecret:
        if stored is not None and not stored.is_own:
            return ReadySecret(refusal=not_own(user))
        endpoint = endpoint_of(round_.cluster, user, round_.bootstrap)
        if mechanism_of(user) is not None:
            ready = await self._with_password(user, stored, endpoint, round_.brokers_authority)
        else:
            ready = await self._with_certificate(user, stored, endpoint, round_)
        note = f"no listener of Cluster {round_.cluster.metadata.name} authenticates by {user.spec.authentication.type}"
        return ready if endpoint.fits else ready._replace(note=note)

    async def _without(self, user: User) -> ReadySecret:
        if user.status is None or user.status.secret is None:
            return ReadySecret()
        try:
            stored = await self._secrets.read(user)
            if stored is not None and stored.is_own:
                await self._secrets.delete(user, stored)
        except SecretsRefused as error:
            return ReadySecret(is_there=True, refusal=_refused(user, error))
        return ReadySecret()

    async def _with_password(
        self, user: User, stored: StoredSecret | None, endpoint: Endpoint, authority: str
    ) -> ReadySecret:
        reference = password_reference(user)
        given = await self._secrets.given(reference) if reference is not None else None
        problem = given_password_problem(user, given) if given is not None else None
        if problem is not None:
            return ReadySecret(stored is not None, refusal=problem)
        password = password_of(user, stored, given, self._new_password)
        marks = marks_of(user, stored, self._new_password)
        await self._write(
            user, stored, client_files(user, endpoint, Proof(authority, password), self._secrets.folder(user)), marks
        )
        return ReadySecret(is_there=True, known=known_password(password, marks))

    async def _with_certificate(
        self, user: User, stored: StoredSecret | None, endpoint: Endpoint, round_: SecretRound
    ) -> ReadySecret:
        cluster, authority = round_.cluster, round_.clients_authority
        if authority is None:
            missing = self._secrets.missing_authority(cluster)
            return ReadySecret(stored is not None, refusal=no_authority(cluster.metadata.name, missing))
        try:
            has = self._certificate(user, stored, authority, round_.now_ms)
        except ValueError as error:
            return ReadySecret(
                stored is not None, refusal=Refusal(NO_AUTHORITY, f"the clients CA cannot be used: {error}")
            )
        proof = Proof(round_.brokers_authority, "", has.certificate, has.key, has.keystore, has.keystore_password)
        await self._write(user, stored, client_files(user, endpoint, proof, self._secrets.folder(user)), {})
        (shown,) = certificates_in(has.certificate)
        return ReadySecret(is_there=True, certificate=certificate_status(user.metadata.name, shown))

    def _certificate(
        self, user: User, stored: StoredSecret | None, authority: ClientsAuthority, now_ms: int
    ) -> UserCertificate:
        data = stored.data if stored is not None else {}
        texts = [data.get(name, b"").decode(errors="replace") for name in (CERTIFICATE, KEY, KEYSTORE_PASSWORD)]
        certificate, key, password = texts
        if all(texts) and KEYSTORE in data and not is_due(certificate, user.username, authority, now_ms):
            return UserCertificate(certificate, key, data[KEYSTORE], password)
        return issue(user.username, authority, now_ms, self._new_password())

    async def _write(
        self, user: User, stored: StoredSecret | None, data: Mapping[str, bytes], marks: Mapping[str, str]
    ) -> None:
        is_same = stored is not None and stored.data == data and marks.items() <= stored.marks.items()
        if not is_same:
            await self._secrets.write(user, stored, data, marks)


def _refused(user: User, error: SecretsRefused) -> Refusal:
    return Refusal(KUBERNETES_ERROR, f"Secret {user.metadata.name}: {error}")
