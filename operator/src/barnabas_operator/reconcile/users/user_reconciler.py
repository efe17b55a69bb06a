"""Reconciles a Cluster's Users and writes their statuses."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from barnabas_operator.planning.brokers.pod_properties import reserved_users
from barnabas_operator.planning.kube_event import kube_event
from barnabas_operator.planning.object_names import bootstrap_name
from barnabas_operator.planning.users.user_plan import ClusterUsers, UserStep
from barnabas_operator.planning.users.user_status import drift_undone
from barnabas_operator.reconcile.broker_calls import blocking
from barnabas_operator.reconcile.kind_reconciler import Bodies, DirectReconciler, ReconcilerEnvironment, Seen
from barnabas_operator.reconcile.status_writer import EventWriter
from barnabas_operator.reconcile.users.kube_secrets import KubeSecrets
from barnabas_operator.reconcile.users.reconcile_users import (
    RefusedSteps,
    UserBrokers,
    UserOutcome,
    UsersOutcome,
    UsersWork,
)
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.user import User

log = logging.getLogger(__name__)

PART: Final = 100
"""The number of Users in one batch, so that the first of thousands of Users are soon ready."""
SECRETS_KEPT: Final = 0.5
"""The time for which a Secret is cached, as a fraction of the interval between reconciliations."""


class UserReconciler(DirectReconciler[User]):
    """The reconciler of one Cluster's Users."""

    def __init__(self, environment: ReconcilerEnvironment) -> None:
        super().__init__(environment, User)
        worker_environment = environment.worker_environment
        self._events: Final = EventWriter(worker_environment.api)
        kept_s = worker_environment.settings.drift_s * SECRETS_KEPT
        self._secrets: Final = KubeSecrets(worker_environment.api, environment.key.namespace, self._clock, kept_s)
        self._new_password: Final = worker_environment.new_password

    async def reconcile(self, cluster: Cluster, bodies: Bodies, seen: Seen) -> Seen:
        """Reconcile the Users once. Without Users, send no request to the brokers."""
        declared, ending = await self._readable(bodies)
        if not declared and not ending:
            return seen
        work = UsersWork(self._brokers(cluster), self._secrets, self._new_password, reserved_users(cluster))
        round_ = await work.begin(cluster, declared, _bootstrap(cluster), self._clock.now_ms())
        for part in _parts(declared):
            held = await self._with_finalizers(part, bodies)
            await self._write(cluster, await work.reconcile(round_, held, ()), bodies)
        outcome = await work.reconcile(round_, (), ending)
        await self._write(cluster, outcome, bodies)
        await self._release_others(ending, outcome.kept, bodies)
        return seen

    async def _write(self, cluster: Cluster, outcome: UsersOutcome, bodies: Bodies) -> None:
        for line in outcome.done:
            log.info("%s/%s: %s", cluster.metadata.namespace, cluster.metadata.name, line)
        await self._write_statuses((*(each.user for each in outcome.declared), *outcome.kept), bodies)
        await self._tell(outcome.declared)

    def _brokers(self, cluster: Cluster) -> UserBrokers:
        async def look() -> ClusterUsers:
            return await blocking(lambda: self._connected(cluster).users())

        async def apply(steps: Sequence[UserStep]) -> RefusedSteps:
            return await blocking(lambda: self._connected(cluster).apply_to_users(steps))

        return UserBrokers(look, apply)

    async def _tell(self, outcomes: Iterable[UserOutcome]) -> None:
        for outcome in outcomes:
            for said in filter(None, (drift_undone(outcome.drift), outcome.password_event)):
                await self._events.tell(kube_event(outcome.user, *said, self._now()))


def _parts(users: Sequence[User]) -> Iterator[Sequence[User]]:
    return (users[start : start + PART] for start in range(0, len(users), PART))


def _bootstrap(cluster: Cluster) -> str:
    """Return the bootstrap address for clients in pods, which is used until the Cluster's status has an address."""
    name, namespace = bootstrap_name(cluster.metadata.name), cluster.metadata.namespace or "default"
    return f"{name}.{namespace}.svc:{cluster.spec.listeners[0].port}"
