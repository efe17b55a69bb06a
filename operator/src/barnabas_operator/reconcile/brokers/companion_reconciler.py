"""Sets the ACLs of a secured Cluster's lag exporter and maintenance runs, and removes their other ACLs."""

import logging
from collections.abc import Callable, Sequence

from barnabas_kafka.connection import ClusterUnreachable
from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from barnabas_operator.planning.users.companion_rights import companion_acls
from barnabas_operator.planning.users.user_plan import acl_steps
from barnabas_operator.planning.users.user_steps import UserStep, describe
from barnabas_operator.reconcile.broker_calls import blocking
from barnabas_operator.resources.cluster import Cluster

log = logging.getLogger(__name__)


class CompanionReconciler:
    """The reconciler of the ACLs of one Cluster's lag exporter and maintenance runs."""

    def __init__(self, connected: Callable[[Cluster], ClusterAdmin]) -> None:
        self._connected = connected
        self._known: object = None

    def forget(self) -> None:
        """Make the next reconciliation read the ACLs again, because other clients may have changed the ACLs."""
        self._known = None

    async def reconcile(self, cluster: Cluster) -> None:
        """Set the ACLs of the lag exporter and of maintenance runs, if the brokers have an authorizer.

        Raises ClusterUnreachable if no broker answers, or if the brokers refuse an ACL.
        """
        wanted = companion_acls(cluster)
        if not wanted or wanted == self._known:
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
        self._known = wanted
