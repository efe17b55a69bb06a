"""The Secrets of users in Kubernetes. Each Secret has the name and namespace of its User."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from barnabas_core.clock import Clock
from barnabas_operator.kube.api import CONFLICT, KubeApi, KubeRefused
from barnabas_operator.planning.object_names import (
    MANAGED_BY,
    MANAGED_BY_LABEL,
    certificate_name,
    clients_authority_name,
    cluster_authority_name,
)
from barnabas_operator.planning.users.user_secret import (
    AUTHORITY,
    ROTATE,
    ClientsAuthority,
    GivenPassword,
    StoredSecret,
    clients_authority,
)
from barnabas_operator.reconcile.users.user_secrets import SecretsRefused, SecretTaken, UserSecrets
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.json_types import Json
from barnabas_operator.resources.maintenance_run import SecretKeyRef
from barnabas_operator.resources.user import User

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
