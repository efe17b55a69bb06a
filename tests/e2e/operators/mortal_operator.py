"""Runs an operator in this process on a real API server and real brokers, and lets it die at one of its writes.

A listing takes the place of the watch, and a death is a request that never ends.
"""

import asyncio
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from barnabas_kafka.connection import ClusterUnreachable
from barnabas_kafka.security import Credentials
from barnabas_kube.client import ApiClient
from barnabas_operator.app.cluster_options import SystemClock, tls_identity
from barnabas_operator.kafka.cluster_admin import ClusterAdmin, TimedWrite
from barnabas_operator.kafka.step_requests import StepRefused
from barnabas_operator.kube.api import KubeApi
from barnabas_operator.observed.inventory import Inventory
from barnabas_operator.observed.operator_metrics import OperatorMetrics
from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.planning.topics.replica_moves import TopicStep
from barnabas_operator.reconcile.cluster_workers import ClusterWorkers
from barnabas_operator.reconcile.worker_environment import OperatorSettings, WorkerEnvironment
from harness.deadline import PATIENCE_S

POLL_S: Final = 0.05
CONNECT_S: Final = 30.0
Bodies = list[dict[str, Any]]


class Life:
    """A life of an operator that ends at its `last` write.

    That write is not sent; or, with `sent`, it is sent and its answer is lost.
    """

    def __init__(self, last: int, *, sent: bool) -> None:
        self.sent = sent
        self.is_over = False
        self._left = last

    def ends(self) -> bool:
        """Count this write; return whether it is the last one or comes after it."""
        self._left -= 1
        return self._left <= 0


IMMORTAL: Final = Life(sys.maxsize, sent=False)


class MortalApi(KubeApi):
    """A client of the API server whose writes end with a life."""

    def __init__(self, connection: ApiClient, life: Life) -> None:
        super().__init__(connection)
        self._life = life

    async def request(self, method: str, path: str, **given: Any) -> dict[str, Any]:
        if not self._life.is_over:
            if method == "GET" or not self._life.ends():
                return await super().request(method, path, **given)
            if self._life.sent:
                await super().request(method, path, **given)
            self._life.is_over = True
        await asyncio.Event().wait()
        raise AssertionError("the dead do not go on")


class MortalAdmin(ClusterAdmin):
    """A client of the brokers whose writes end with a life; each is in a thread, which must end."""

    def __init__(self, life: Life, *given: Any) -> None:
        super().__init__(*given)
        self.life = life

    def cluster_state(self) -> ClusterState:
        self._must_live()
        return super().cluster_state()

    def with_overrides(self, state: ClusterState, names: Collection[str]) -> ClusterState:
        self._must_live()
        return super().with_overrides(state, names)

    def apply(self, steps: Sequence[TopicStep]) -> dict[str, StepRefused]:
        return self._write(lambda: super(MortalAdmin, self).apply(steps)) if steps else {}

    def alter_brokers(self, changes: Mapping[int, Mapping[str, str | None]]) -> dict[int, StepRefused]:
        refused: dict[int, StepRefused] = self._write(lambda: super(MortalAdmin, self).alter_brokers(changes))
        return refused

    def raise_metadata_version(self, level: int) -> StepRefused | None:
        refused: StepRefused | None = self._write(lambda: super(MortalAdmin, self).raise_metadata_version(level))
        return refused

    def balance_leaders(self) -> None:
        self._write(super().balance_leaders)

    def _write(self, send: Callable[[], Any]) -> Any:
        self._must_live()
        if not self.life.ends():
            return send()
        if self.life.sent:
            send()
        self.life.is_over = True
        return self._must_live()

    def _must_live(self) -> None:
        if self.life.is_over:
            raise ClusterUnreachable("the dead do not go on")


def new_workers(api: KubeApi, bootstrap: str, life: Life = IMMORTAL) -> ClusterWorkers:
    """Return the workers of an operator that has just started and knows nothing.

    Its writes to brokers count in its `life`.
    """

    def connect(bootstrap: str, configs_kept_s: float, writing: TimedWrite, security: Credentials) -> ClusterAdmin:
        return MortalAdmin(life, bootstrap, SystemClock(), CONNECT_S, configs_kept_s, writing, security)

    inventory = Inventory()
    settings = OperatorSettings("broker:dev", (), bootstrap, batch_s=0.01, busy_s=0.05, drift_s=30.0)
    environment = WorkerEnvironment(api, settings, SystemClock(), connect, tls_identity, lambda: "a" * 32)
    return ClusterWorkers(inventory, environment, OperatorMetrics(inventory))


async def live(opened: ApiClient, namespace: str, bootstrap: str, done: Callable[[Bodies], bool]) -> None:
    """Run an operator until all resources are `done`."""
    await _live(KubeApi(opened), KubeApi(opened), namespace, bootstrap, done, IMMORTAL)


async def die(life: Life, opened: ApiClient, namespace: str, bootstrap: str, done: Callable[[Bodies], bool]) -> None:
    """Run an operator until its life ends, or until all is done."""
    await _live(MortalApi(opened, life), KubeApi(opened), namespace, bootstrap, done, life)


async def _live(
    api: KubeApi,
    watcher: KubeApi,
    namespace: str,
    bootstrap: str,
    done: Callable[[Bodies], bool],
    life: Life,
) -> None:
    workers = new_workers(api, bootstrap, life)
    told: dict[str, dict[str, Any]] = {}
    bodies: Bodies = []
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not life.is_over:
                bodies = [body for kind in ("Cluster", "Topic") for body in await watcher.listing(kind, namespace, {})]
                if done(bodies):
                    return
                _tell(workers, told, {body["metadata"]["uid"]: body for body in bodies})
                workers.begin(namespace)
                await asyncio.sleep(POLL_S)
    except TimeoutError as error:
        raise AssertionError([body.get("status") for body in bodies]) from error
    finally:
        await workers.close()


def _tell(workers: ClusterWorkers, told: dict[str, dict[str, Any]], there: dict[str, dict[str, Any]]) -> None:
    """Give the workers everything that has changed since."""
    for uid in told.keys() - there.keys():
        workers.resource_event(told.pop(uid), is_gone=True)
    for uid, body in there.items():
        if uid not in told or told[uid]["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            told[uid] = body
            workers.resource_event(body, is_gone=False)
