"""Sets the generated password of the user `admin` on the brokers, and the ACLs of lag exporter and maintenance runs."""

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from barnabas_kafka.connection import ClusterUnreachable
from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from barnabas_operator.kube.api import KubeApi
from barnabas_operator.planning.brokers.authorities import Data
from barnabas_operator.planning.brokers.broker_security import ADMINISTRATOR, SCRAM
from barnabas_operator.planning.object_names import administrator_name
from barnabas_operator.planning.users.user_plan import (
    FoundUser,
    SetPassword,
    UserStep,
    acl_steps,
    companion_acls,
    describe,
)
from barnabas_operator.reconcile.broker_calls import blocking
from barnabas_operator.resources.cluster import Cluster

log = logging.getLogger(__name__)

PASSWORD_ID: Final = "barnabas.dev/password-id"
"""The annotation with a digest of the password that the brokers have.

The same password is not set twice, because the brokers would close the user's connections.
"""


def _has_password(admin: ClusterAdmin) -> bool:
    return SCRAM in admin.users().users.get(ADMINISTRATOR, FoundUser()).mechanisms


class AdministratorReconciler:
    """The reconciler of the user `admin` in one Cluster, and of the ACLs of its lag exporter and maintenance runs.

    Once the brokers have a password or ACLs, these are not checked again until `forget` is called.
    """

    def __init__(self, api: KubeApi, connected: Callable[[Cluster], ClusterAdmin]) -> None:
        self._api = api
        self._connected = connected
        self._known = b""
        self._known_acls: object = None

    def forget(self) -> None:
        """Check the password and ACLs again, because the brokers may have lost them."""
        self._known, self._known_acls = b"", None

    async def reconcile(self, cluster: Cluster, secrets: Mapping[str, Data]) -> None:
        """Set the ACLs of lag exporter and maintenance runs, and the password of `admin` unless it is already set.

        Raises ClusterUnreachable if no broker answers, or if the brokers refuse a change. May also raise
        KubeUnreachable and KubeRefused.
        """
        await self._set_acls(cluster)
        name, namespace = administrator_name(cluster.metadata.name), cluster.metadata.namespace or "default"
        password = secrets.get(name, {}).get("password", b"")
        if not password or password == self._known:
            return
        found, mark = await self._api.get("Secret", namespace, name), hashlib.sha256(password).hexdigest()[:16]
        marks: Mapping[str, str] = (found or {"metadata": {}})["metadata"].get("annotations") or {}
        is_set = marks.get(PASSWORD_ID) == mark
        admin = self._connected(cluster)
        if not (is_set and await blocking(_has_password, admin)):
            step = SetPassword(ADMINISTRATOR, SCRAM, password.decode())
            refused = await blocking(admin.apply_to_users, [step])
            if refused:
                raise ClusterUnreachable(f"the brokers refuse to {describe(step)}: {refused[ADMINISTRATOR][1]}")
        if not is_set:
            await self._api.patch("Secret", namespace, name, {"metadata": {"annotations": {PASSWORD_ID: mark}}})
        self._known = password

    async def _set_acls(self, cluster: Cluster) -> None:
        """Set the ACLs of lag exporter and maintenance runs, and remove their other ACLs, if there is an authorizer."""
        wanted = companion_acls(cluster)
        if not wanted or wanted == self._known_acls:
            return
        admin = self._connected(cluster)
        found = await blocking(admin.users)
        if not found.has_authorizer:
            return  # ACLs can be set only after the next rolling restart, which gives the brokers an authorizer.
        steps: Sequence[UserStep] = [
            step for user, acls in wanted.items() for step in acl_steps(user, found.of(user), acls)
        ]
        refused = await blocking(admin.apply_to_users, steps) if steps else {}
        for step, error in refused.values():
            raise ClusterUnreachable(f"the brokers refuse to {describe(step)}: {error}")
        for step in steps:
            log.info("%s/%s: %s", cluster.metadata.namespace, cluster.metadata.name, describe(step))
        self._known_acls = wanted
