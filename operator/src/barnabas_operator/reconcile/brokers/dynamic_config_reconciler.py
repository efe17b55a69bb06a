"""Sets the dynamic configs of a Cluster's brokers, balances leaders, and finds logs that no broker serves."""

import logging
from collections.abc import Callable
from typing import Final

from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from barnabas_operator.planning.brokers.pod_properties import place_settings, setting_changes
from barnabas_operator.planning.brokers.pods import PodsState
from barnabas_operator.planning.cluster_state import ClusterState, StrayLog
from barnabas_operator.reconcile.broker_calls import blocking
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

    async def look_for_strays(self, cluster: Cluster, state: ClusterState) -> None:
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
