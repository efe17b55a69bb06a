"""Starts and stops the watches, the workers and the leader election of the operator."""

import asyncio
from typing import Final

from barnabas_kafka.connection import ClusterUnreachable
from barnabas_kafka.security import Credentials
from barnabas_kube.access import Access
from barnabas_kube.client import ApiClient
from barnabas_operator.admission.dry_run import DryRun
from barnabas_operator.admission.run_preview import missing_claims
from barnabas_operator.admission.webhook import Previewed
from barnabas_operator.app.passwords import new_password
from barnabas_operator.app.system_clock import SystemClock
from barnabas_operator.app.tls_identity import tls_identity
from barnabas_operator.kafka.cluster_admin import ClusterAdmin, TimedWrite
from barnabas_operator.kafka.reset_planning import UNKNOWN, preview
from barnabas_operator.kube.api import KubeApi, KubeRefused, KubeUnreachable
from barnabas_operator.leader_election.api_outages import ApiOutages
from barnabas_operator.leader_election.election import Election
from barnabas_operator.leader_election.leadership import ALONE, Leadership
from barnabas_operator.observed.inventory import Inventory
from barnabas_operator.observed.operator_metrics import OperatorMetrics
from barnabas_operator.reconcile.broker_access import broker_access
from barnabas_operator.reconcile.broker_calls import blocking
from barnabas_operator.reconcile.cluster_workers import ClusterWorkers
from barnabas_operator.reconcile.operator_settings import OperatorSettings
from barnabas_operator.reconcile.retrying_loop import MustEnd
from barnabas_operator.reconcile.worker_environment import WorkerEnvironment
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.maintenance_job import MaintenanceJob
from barnabas_operator.resources.object_key import Key
from barnabas_operator.watch.watches import watch_all

AGENT: Final = "barnabas-operator"
CONNECT_S: Final = 3.0
PREVIEW_S_MAX: Final = 2.0
"""The time limit for the webhook's warnings. It is short because the API server waits only 5 s for the webhook."""


class Operator:
    """The operator, with its watches, workers, leader election and metrics."""

    def __init__(self, settings: OperatorSettings, access: Access) -> None:
        self._settings = settings
        self._access = access
        self.clock = SystemClock()
        self.inventory = Inventory()
        self.metrics = OperatorMetrics(self.inventory)
        self.leadership = Leadership(self.clock.monotonic_s) if settings.lease else ALONE
        self.metrics.add_leadership(self.leadership)
        self._outages = ApiOutages(self.clock.monotonic_s)
        self.workers: ClusterWorkers | None = None
        self.dry_run: DryRun | None = None
        self._election: Election | None = None
        self._client: ApiClient | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.ending = asyncio.Event()
        """The event that ends the operator; `why_ending` has the reason."""
        self.why_ending = ""

    @property
    def why_dead(self) -> str | None:
        """The reason why the operator must be restarted, or None."""
        return self.workers.why_dead if self.workers is not None else None

    async def start(self) -> None:
        """Create the API client, and start the watches and, if a lease is configured, the leader election."""
        self._client = ApiClient(self._access, AGENT)
        api = KubeApi(self._client, self.leadership.writing)
        environment = WorkerEnvironment(
            api,
            self._settings,
            self.clock,
            self._connect,
            tls_identity,
            new_password,
            self.leadership,
            self._outages,
        )
        self.workers = ClusterWorkers(self.inventory, environment, self.metrics)
        self.dry_run = DryRun(api, self._settings.broker_image, self.clock)
        self._tasks = [asyncio.create_task(self._watch(api, self.workers))]
        if self._settings.lease:
            self._election = self._new_election(KubeApi(self._client), self.workers)
            self._tasks.append(asyncio.create_task(self._election.run()))

    async def _watch(self, api: KubeApi, workers: ClusterWorkers) -> None:
        try:
            await watch_all(api, self._settings.namespaces, workers, self.metrics.watch_failed, self.clock)
        except MustEnd as error:
            self.why_ending = str(error)
            self.ending.set()

    def _new_election(self, api: KubeApi, workers: ClusterWorkers) -> Election:
        namespace, _, name = self._settings.lease.partition("/")
        identity, lease = self._settings.identity, Key(namespace, name)
        return Election(api, lease, identity, self.leadership, self.clock, workers.begin_anew, self._outages)

    def _connect(
        self, bootstrap: str, configs_kept_s: float, writing: TimedWrite, security: Credentials
    ) -> ClusterAdmin:
        return ClusterAdmin(bootstrap, self.clock, CONNECT_S, configs_kept_s, writing, security)

    async def preview(self, cluster: Cluster, resource: Previewed) -> tuple[str, ...]:
        """Return the webhook's warnings about the effect of an offset reset, or about a run's missing volume claims."""
        if isinstance(resource, MaintenanceJob):
            return await self._preview_run(resource)
        if resource.spec.offsets.reset is None:
            return ()
        assert self._client is not None, "the webhook must not answer before the operator has started"
        try:
            async with asyncio.timeout(PREVIEW_S_MAX):
                security = await broker_access(KubeApi(self._client), cluster, tls_identity)
                return await blocking(preview, self._settings.bootstrap_of(cluster), security, resource, self.clock)
        except (TimeoutError, ClusterUnreachable, KubeUnreachable, KubeRefused):
            return (UNKNOWN,)

    async def _preview_run(self, run: MaintenanceJob) -> tuple[str, ...]:
        assert self._client is not None, "the webhook must not answer before the operator has started"
        try:
            async with asyncio.timeout(PREVIEW_S_MAX):
                return await missing_claims(KubeApi(self._client), run)
        except TimeoutError:
            return ()

    async def stop(self) -> None:
        """Stop all workers, release the lease, so that another operator can act at once, and close all connections."""
        for task in self._tasks:
            task.cancel()
        if self.workers is not None:
            await self.workers.close()
        if self._election is not None:
            await self._election.resign()
        if self._client is not None:
            await self._client.close()
