"""The interface to the Secrets of users, which the operator and `barnabas up` implement."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol

from barnabas_core.clock import Clock
from barnabas_operator.certificates import certificates_in
from barnabas_operator.kube.api import CONFLICT, KubeApi, KubeRefused
from barnabas_operator.planning.brokers.cluster_secrets import certificate_status
from barnabas_operator.planning.conditions import KUBERNETES_ERROR, Refusal
from barnabas_operator.planning.object_names import (
    MANAGED_BY,
    MANAGED_BY_LABEL,
    certificate_name,
    clients_authority_name,
    cluster_authority_name,
)
from barnabas_operator.planning.users.user_plan import KnownPassword, mechanism_of
from barnabas_operator.planning.users.user_secret import (
    AUTHORITY,
    CERTIFICATE,
    KEY,
    KEYSTORE,
    KEYSTORE_PASSWORD,
    NO_AUTHORITY,
    ROTATE,
    ClientsAuthority,
    Endpoint,
    GivenPassword,
    NewPassword,
    Proof,
    StoredSecret,
    UserCertificate,
    client_files,
    clients_authority,
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
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.kind import Json
from barnabas_operator.resources.maintenance_run import SecretKeyRef
from barnabas_operator.resources.security import CertificateStatus
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


SECRET: Final = "Secret"
_KEY: Final = "ca.key"
_GIVEN_KEY: Final = "tls.key"
"""The entry of cert-manager's Secrets that holds the private key."""


class _Kept(NamedTuple):
    """A User's Secret in the cache, the time `at_s` when it was read, and the User's fields that affect the Secret."""

    declared: tuple[object, ...]
    at_s: float
    secret: StoredSecret
    uid: str


class KubeSecrets(UserSecrets):
    """The Secrets of one Cluster's Users, cached until the User changes, or for `kept_s`."""

    def __init__(self, api: KubeApi, namespace: str, clock: Clock, kept_s: float) -> None:
        self._api: Final = api
        self._namespace: Final = namespace
        self._clock: Final = clock
        self._kept_s: Final = kept_s
        self._kept: dict[str, _Kept] = {}
        self._given: dict[SecretKeyRef, tuple[float, GivenPassword]] = {}

    def folder(self, _user: User) -> str:
        """Return an empty path, because the path at which pods mount the Secret is unknown."""
        return ""

    async def read(self, user: User) -> StoredSecret | None:
        """Return the Secret with the User's name, from the cache if possible; None if there is none."""
        name = user.metadata.name
        kept = self._kept.get(name)
        if kept is not None and kept.declared == _declared(user) and self._is_fresh(kept.at_s):
            return kept.secret
        found = await self._get(name)
        if found is None:
            self._kept.pop(name, None)
            return None
        return self._keep(user, found)

    async def given(self, reference: SecretKeyRef) -> GivenPassword:
        """Return the password that a User refers to, from the cache if possible."""
        kept = self._given.get(reference)
        if kept is not None and self._is_fresh(kept[0]):
            return kept[1]
        data = _data(await self._get(reference.name) or {})
        found = data.get(reference.key)
        if found is None:
            return GivenPassword(None)
        given = GivenPassword(found.decode(errors="replace").rstrip("\r\n"))
        self._given[reference] = self._clock.monotonic_s(), given
        return given

    async def write(
        self, user: User, stored: StoredSecret | None, data: Mapping[str, bytes], marks: Mapping[str, str]
    ) -> None:
        """Create the Secret, or change the `stored` Secret if its uid is still the same."""
        wanted: dict[str, str | None] = {name: b64encode(value).decode() for name, value in data.items()}
        name = user.metadata.name
        try:
            if stored is None:
                found = await self._api.create(self._new(user, wanted, marks))
            else:
                wanted |= dict.fromkeys(stored.data.keys() - data.keys())
                meta = {"uid": self._kept[name].uid, "annotations": dict(marks)}
                change = {"metadata": meta, "data": wanted}
                patched = await self._api.patch(SECRET, self._namespace, name, change)
                found = patched or {}
        except KubeRefused as error:
            self._kept.pop(name, None)
            refused = SecretTaken if stored is None and error.status == CONFLICT else SecretsRefused
            raise refused(str(error)) from error
        if found:
            self._keep(user, found)
        else:  # The Secret was deleted meanwhile, so the next reconciliation creates a new Secret.
            self._kept.pop(name, None)

    async def delete(self, user: User, stored: StoredSecret) -> None:
        """Delete the `stored` Secret, which must be the last result of `read`."""
        kept = self._kept.pop(user.metadata.name)
        assert kept.secret is stored, "the Secret to delete must be the Secret that was read last"
        try:
            await self._api.delete(SECRET, self._namespace, user.metadata.name, preconditions={"uid": kept.uid})
        except KubeRefused as error:
            raise SecretsRefused(str(error)) from error

    async def dismiss(self, user: User) -> None:
        """Remove the Secret from the cache. Kubernetes deletes a Secret with its User."""
        self._kept.pop(user.metadata.name, None)

    async def brokers_authority(self, cluster: Cluster) -> str:
        """Return the certificates in the Secret CLUSTER-cluster-ca-cert."""
        name = certificate_name(cluster_authority_name(cluster.metadata.name))
        return _text(await self._get(name), AUTHORITY)

    async def clients_authority(self, cluster: Cluster) -> ClientsAuthority | None:
        """Return the CA in the Secrets CLUSTER-clients-ca and CLUSTER-clients-ca-cert."""
        name = clients_authority_name(cluster.metadata.name)
        secret = await self._get(name)
        key = _text(secret, _KEY) or _text(secret, _GIVEN_KEY)
        trusted = _text(await self._get(certificate_name(name)), AUTHORITY)
        return clients_authority(key, trusted) if key and trusted else None

    def missing_authority(self, cluster: Cluster) -> str:
        """Return the part of a status message that names the two Secrets in which the clients CA is missing."""
        name = clients_authority_name(cluster.metadata.name)
        return f"ca.key of Secret {name} or ca.crt of Secret {certificate_name(name)} is missing"

    def _is_fresh(self, at_s: float) -> bool:
        return self._clock.monotonic_s() - at_s < self._kept_s

    async def _get(self, name: str) -> dict[str, Any] | None:
        try:
            return await self._api.get(SECRET, self._namespace, name)
        except KubeRefused as error:
            raise SecretsRefused(f"Secret {name}: {error}") from error

    def _keep(self, user: User, found: Json) -> StoredSecret:
        meta = found["metadata"]
        is_own = any(each.get("uid") == user.metadata.uid for each in meta.get("ownerReferences", ()))
        secret = StoredSecret(_data(found), meta.get("annotations") or {}, is_own)
        if is_own:
            self._kept[user.metadata.name] = _Kept(_declared(user), self._clock.monotonic_s(), secret, meta["uid"])
        return secret

    def _new(self, user: User, data: Mapping[str, str | None], marks: Mapping[str, str]) -> Json:
        return {
            "apiVersion": "v1",
            "kind": SECRET,
            "metadata": {
                "name": user.metadata.name,
                "namespace": self._namespace,
                "labels": {MANAGED_BY_LABEL: MANAGED_BY},
                "annotations": dict(marks),
                "ownerReferences": [user.owner_reference],
            },
            "type": "Opaque",
            "data": data,
        }


def _declared(user: User) -> tuple[object, ...]:
    """Return the fields of a User on which the content of the User's Secret depends."""
    meta = user.metadata
    return meta.uid, meta.generation, meta.annotations.get(ROTATE)


def _data(secret: Json) -> dict[str, bytes]:
    return {name: b64decode(value) for name, value in (secret.get("data") or {}).items()}


def _text(secret: Json | None, key: str) -> str:
    return _data(secret or {}).get(key, b"").decode(errors="replace")


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
