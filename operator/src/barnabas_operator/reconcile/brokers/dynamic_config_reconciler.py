"""Sets the dynamic configs of a Cluster's brokers, balances leaders, and finds logs that no broker serves."""

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from barnabas_kafka.connection import ClusterUnreachable
from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from barnabas_operator.kube.api import KubeApi
from barnabas_operator.planning.brokers.authorities import Data
from barnabas_operator.planning.brokers.broker_security import ADMINISTRATOR, SCRAM
from barnabas_operator.planning.brokers.broker_steps import BrokerView
from barnabas_operator.planning.brokers.cluster_checks import (
    RaiseMetadataVersion,
    may_raise,
    metadata_version_of,
    next_version,
    refuse_lower,
)
from barnabas_operator.planning.brokers.pod_properties import place_settings, setting_changes
from barnabas_operator.planning.brokers.pods import PodsState
from barnabas_operator.planning.cluster_state import ClusterState, StrayLog
from barnabas_operator.planning.conditions import KAFKA_ERROR, Refusal
from barnabas_operator.planning.object_names import administrator_name
from barnabas_operator.planning.users.user_plan import (
    FoundUser,
    SetPassword,
    UserStep,
    acl_steps,
    companion_acls,
    describe,
)
from barnabas_operator.reconcile.reconcile_parts import blocking
from barnabas_operator.resources.cluster import Cluster

log = logging.getLogger(__name__)


class DynamicConfigReconciler:
    """The reconciler of dynamic configs, leaders, stray logs and registrations of one Cluster's brokers.

    All methods but `forget` may raise ClusterUnreachable.
    """

    def __init__(self, connected: Callable[[Cluster], ClusterAdmin]) -> None:
        self._connected: Final = connected
        self._set_about: object = None
        self._asked: frozenset[int] | None = None
        self.strays: tuple[StrayLog, ...] | None = None
        """The logs on disk that brokers do not serve; None until the brokers have been asked for such logs."""

    def forget(self) -> None:
        """Check the dynamic configs again, because other clients may have changed them."""
        self._set_about = self._asked = None

    async def set_configs(self, cluster: Cluster, pods: PodsState, state: ClusterState) -> None:
        """Set the dynamic configs if the Cluster, the live brokers or their nodes changed, or `forget` was called."""
        places = place_settings(cluster, pods)
        about = (cluster.metadata.generation, frozenset(state.racks), places)
        if about == self._set_about:
            return
        admin = self._connected(cluster)
        overrides = await blocking(admin.broker_overrides, sorted(state.racks))
        changes = setting_changes(cluster, overrides, places)
        if changes:
            log.info(
                "%s/%s: changing dynamic configs of brokers: %s",
                cluster.metadata.namespace,
                cluster.metadata.name,
                changes,
            )
            for broker, refusal in (await blocking(admin.alter_brokers, changes)).items():
                log.warning(
                    "%s/%s: broker %d refused the dynamic configs: %s",
                    cluster.metadata.namespace,
                    cluster.metadata.name,
                    broker,
                    refusal,
                )
        self._set_about = about

    async def find_strays(self, cluster: Cluster, state: ClusterState) -> None:
        """Ask the brokers for stray logs, but only if a broker has started or stopped, or `forget` was called."""
        alive = frozenset(state.racks)
        if alive != self._asked:
            self.strays = await blocking(self._connected(cluster).stray_logs, sorted(alive))
            self._asked = alive

    async def balance(self, cluster: Cluster) -> None:
        """Elect the preferred leaders."""
        await blocking(self._connected(cluster).balance_leaders)

    async def unregister_removed(self, cluster: Cluster) -> None:
        """Unregister removed brokers, because they would otherwise be reported as offline for ever."""
        admin = self._connected(cluster)
        for number in await blocking(admin.forget_brokers, cluster.spec.brokers.replicas):
            meta = cluster.metadata
            log.info("%s/%s: broker %d is no longer registered", meta.namespace, meta.name, number)


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


class VersionOutcome(NamedTuple):
    """The outcome: `done` is the step that was carried out; `refusal` says why the version is not as declared.

    At most one field is set. Both are None if the version is as declared, or the brokers are not ready for a step.
    """

    done: RaiseMetadataVersion | None = None
    refusal: Refusal | None = None


def reconcile_metadata_version(
    admin: ClusterAdmin, cluster: Cluster, brokers: Sequence[BrokerView], state: ClusterState
) -> VersionOutcome:
    """Raise the metadata version by one step, if all brokers are ready and support a higher version.

    Raises ClusterUnreachable if no broker answers.
    """
    lower = refuse_lower(cluster, metadata_version_of(state))
    if lower is not None or not may_raise(cluster, brokers, state):
        return VersionOutcome(refusal=lower)
    step = next_version(cluster, state, admin.supported_metadata_versions(sorted(state.racks)))
    if not isinstance(step, RaiseMetadataVersion):
        return VersionOutcome(refusal=step)
    refused = admin.raise_metadata_version(step.after)
    if refused is not None:
        return VersionOutcome(refusal=Refusal(KAFKA_ERROR, f"could not {step}: {refused}"))
    log.info("%s/%s: %s", cluster.metadata.namespace, cluster.metadata.name, step)
    return VersionOutcome(done=step)
