"""Sets the generated password of the user `admin` on the brokers, and the ACLs of lag exporter and maintenance runs."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Final

from barnabas_kafka.connection import ClusterUnreachable
from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from barnabas_operator.kube.api import KubeApi
from barnabas_operator.planning.brokers.authorities import Data
from barnabas_operator.planning.brokers.local_security import ADMINISTRATOR, SCRAM
from barnabas_operator.planning.object_names import administrator_name
from barnabas_operator.planning.users.cluster_users import FoundUser
from barnabas_operator.planning.users.user_steps import SetPassword, describe
from barnabas_operator.reconcile.broker_calls import blocking
from barnabas_operator.reconcile.brokers.companion_reconciler import CompanionReconciler
from barnabas_operator.resources.cluster import Cluster

PASSWORD_ID: Final = "barnabas.dev/password-id"
"""The annotation with a digest of the password that the brokers have.

The same password is not set twice, because the brokers would close the user's connections.
"""


def _has_password(admin: ClusterAdmin) -> bool:
    return SCRAM in admin.users().users.get(ADMINISTRATOR, FoundUser()).mechanisms


class AdministratorReconciler:
    """The reconciler of the user `admin` in one Cluster.

    Once the brokers have a password, that password is not checked again until `forget` is called.
    """

    def __init__(self, api: KubeApi, connected: Callable[[Cluster], ClusterAdmin]) -> None:
        self._api = api
        self._connected = connected
        self._known = b""
        self._companions = CompanionReconciler(connected)

    def forget(self) -> None:
        """Check the password and ACLs again, because the brokers may have lost them."""
        self._known = b""
        self._companions.forget()

    async def reconcile(self, cluster: Cluster, secrets: Mapping[str, Data]) -> None:
        """Set the ACLs of lag exporter and maintenance runs, and the password of `admin` unless it is already set.

        Raises ClusterUnreachable if no broker answers, or if the brokers refuse a change. May also raise
        KubeUnreachable and KubeRefused.
        """
        await self._companions.reconcile(cluster)
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
