"""One Cluster's lane: all that is done to it and its Topics is done here, one round after the other."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from msgspec.structs import replace

from barnabas_operator.handlers.broker_rounds import BrokerRounds, BrokersOutcome
from barnabas_operator.handlers.claim_growth import CANNOT_GROW
from barnabas_operator.handlers.inventory import Inventory, Key
from barnabas_operator.handlers.moment import now
from barnabas_operator.handlers.operator_settings import OperatorSettings
from barnabas_operator.handlers.read_topics import ReadTopics
from barnabas_operator.handlers.status_writer import StatusWriter
from barnabas_operator.kafka.cluster_admin import ClusterAdmin, ClusterUnreachable
from barnabas_operator.kafka.topic_reconciler import Outcome, reconcile
from barnabas_operator.kube.api import KubeApi, KubeRefused, KubeUnreachable
from barnabas_operator.planning.broker_settings import setting_changes
from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.planning.cluster_status import cluster_status
from barnabas_operator.planning.memory import Wanted
from barnabas_operator.planning.pod_properties import pod_problems
from barnabas_operator.planning.steps import CreateTopic, describe
from barnabas_operator.planning.topic_checks import CLUSTER_NOT_READY, DELETION_PROTECTED, INVALID_CONFIG, Refusal
from barnabas_operator.planning.topic_status import topic_status
from barnabas_operator.resources.api_objects import InvalidResource, resource_of
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.topic import Topic

log = logging.getLogger(__name__)

Json = Mapping[str, Any]
Racks = Mapping[int, str | None]
CONNECT_S: Final = 3.0
RETRY_S_MAX: Final = 30.0
BATCH_S_MAX: Final = 2.0
INVALID_SPEC: Final = "InvalidSpec"
PROTECTED: Final = "spec.deletionPolicy is Protect; set Delete or Retain first"


class Lane:
    """`wake` says that something has changed; `run` ends with the Cluster."""

    def __init__(
        self,
        key: Key,
        inventory: Inventory,
        api: KubeApi,
        settings: OperatorSettings,
        on_round: Callable[[float, bool], None],
    ) -> None:
        self.key = key
        self._inventory = inventory
        self._settings = settings
        self._statuses = StatusWriter(api)
        self._rounds = BrokerRounds(api, settings)
        self._on_round = on_round
        self._read = ReadTopics()
        self._admin: ClusterAdmin | None = None
        self._woken = asyncio.Event()
        self._applied_at = 0.0
        self._settings_told: object = None
        self.state: ClusterState | None = None
        """What the brokers said last."""

    def wake(self) -> None:
        """Have a round soon."""
        self._woken.set()

    async def run(self) -> None:
        """Round after round, until it is cancelled."""
        loop, pause, took = asyncio.get_running_loop(), 0.0, 0.0
        failures = 0
        try:
            while True:
                await self._pause(pause, took)
                began = loop.time()
                try:
                    pause, failures = await self._round(), 0
                except Exception as error:
                    failures += 1
                    pause = min(RETRY_S_MAX, self._settings.busy_s * 2**failures)
                    is_bug = not isinstance(error, KubeUnreachable | KubeRefused | ClusterUnreachable)
                    log.warning("%s/%s: trying again in %.1f s: %s", *self.key, pause, error, exc_info=is_bug)
                    self._drop_admin()
                took = loop.time() - began
                self._on_round(took, failures == 0)
        finally:
            self._drop_admin()

    async def _pause(self, seconds: float, took: float) -> None:
        """A change is waited for so long; what comes shortly after it goes into the same round.

        Where a round takes long, as with thousands of Topics, at most every other second is spent on rounds.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
            await asyncio.sleep(min(BATCH_S_MAX, max(self._settings.batch_s, took)))
        self._woken.clear()

    async def _round(self) -> float:
        """Brings brokers and topics to what is declared, once; the seconds until the next round."""
        body = self._inventory.clusters.get(self.key)
        if body is None:
            return self._settings.drift_s
        topics = {topic["metadata"]["name"]: topic for topic in self._inventory.topics_of(self.key)}
        try:
            cluster = resource_of(Cluster, body)
        except InvalidResource as error:
            return await self._refuse(body, Refusal(INVALID_SPEC, str(error)))
        if cluster.metadata.deletion_timestamp is not None:
            return await self._end(cluster, body, topics.values())
        if cluster.spec.pause:
            await self._tell(cluster, body, None, None, None)
            return self._settings.drift_s
        problems = [message for _, message in pod_problems(cluster)]
        if problems:
            await self._tell(cluster, body, Refusal(INVALID_CONFIG, "; ".join(problems)), None, None)
            return self._settings.drift_s
        return await self._bring(cluster, body, topics)

    async def _end(self, cluster: Cluster, body: Json, topics: Iterable[Json]) -> float:
        """The Cluster goes, and its Topics as resources with it; its disks by its deletion policy."""
        await asyncio.gather(*(self._statuses.release(topic) for topic in topics))
        if cluster.spec.deletion_policy == "Protect" and not await self._rounds.namespace_ends(cluster):
            await self._tell(cluster, body, Refusal(DELETION_PROTECTED, PROTECTED), None, None)
            return self._settings.drift_s
        if cluster.erases and not await self._rounds.erase(cluster):
            return self._settings.busy_s
        await self._statuses.release(body)
        return self._settings.drift_s

    async def _bring(self, cluster: Cluster, body: Json, topics: Mapping[str, Json]) -> float:
        loop = asyncio.get_running_loop()
        await self._hold(cluster, body)
        if loop.time() - self._applied_at > self._settings.drift_s:
            self._rounds.forget()
            self._applied_at = loop.time()
        state = await self._look(cluster)
        brokers = await self._rounds.advance(cluster, state)
        if brokers.balance:
            await self._balance()
        if state is not None:
            await self._tell_settings(cluster, brokers, state)
        if brokers.waiting is None:
            await self._forget(cluster.spec.brokers.replicas)
        outcome = await self._topics(cluster, topics, _racks(state, brokers) if state is not None else None)
        state = self.state = outcome.state if outcome is not None else state
        await self._tell(cluster, body, brokers.waiting, brokers, state)
        is_waiting = brokers.waiting is not None and brokers.waiting.reason != CANNOT_GROW
        is_busy = is_waiting or state is None or state.is_moving or bool(state.troubles or state.awaited)
        return self._settings.busy_s if is_busy else self._settings.drift_s

    async def _look(self, cluster: Cluster) -> ClusterState | None:
        """What the brokers say; None where none of them answers."""
        try:
            return await asyncio.to_thread(lambda: self._connected(cluster).cluster_state(()))
        except ClusterUnreachable as error:
            log.debug("%s/%s: %s", *self.key, error)
            self._drop_admin()
            return None

    async def _tell_settings(self, cluster: Cluster, brokers: BrokersOutcome, state: ClusterState) -> None:
        """What brokers take over while they run; looked at when something of it has changed, and now and then."""
        racks = {number: pod.rack for number, pod in brokers.pods.pods.items()}
        about = (cluster.metadata.generation, frozenset(state.racks), tuple(racks.items()), self._applied_at)
        if about == self._settings_told:
            return
        admin = self._connected(cluster)
        overrides = await asyncio.to_thread(admin.broker_overrides, sorted(state.racks))
        changes = setting_changes(cluster, overrides, racks)
        if changes:
            log.info("%s/%s: settings of brokers: %s", *self.key, changes)
            await asyncio.to_thread(admin.alter_brokers, changes)
        self._settings_told = about

    async def _balance(self) -> None:
        admin = self._admin
        if admin is not None:
            await asyncio.to_thread(admin.balance_leaders)
            self._rounds.unbalanced = False

    async def _forget(self, count: int) -> None:
        """Brokers that were removed: the others would tell of them for ever."""
        admin = self._admin
        if admin is not None:
            for number in await asyncio.to_thread(admin.forget_brokers, count):
                log.info("%s/%s: broker %d is no longer registered", *self.key, number)

    async def _topics(self, cluster: Cluster, bodies: Mapping[str, Json], racks: Racks | None) -> Outcome | None:
        """Topics after a round with the brokers; without them (None) only what can be told without."""
        typed, invalid = self._read.all(bodies.values())
        told_at = now()
        await self._statuses.write(
            (_with_status(topic, Refusal(INVALID_SPEC, why), told_at), bodies[topic.metadata.name])
            for topic, why in invalid
        )
        if racks is None:
            waiting = Refusal(CLUSTER_NOT_READY, f"Cluster {cluster.metadata.name} does not answer yet")
            new = (topic for topic in typed if topic.status is None)
            await self._statuses.write(
                (_with_status(topic, waiting, told_at), bodies[topic.metadata.name]) for topic in new
            )
            return None
        return await self._reconcile(cluster, typed, bodies, racks)

    async def _reconcile(
        self, cluster: Cluster, topics: Iterable[Topic], bodies: Mapping[str, Json], racks: Racks
    ) -> Outcome:
        declared = tuple(topic for topic in topics if topic.metadata.deletion_timestamp is None)
        ending = tuple(topic for topic in topics if topic.metadata.deletion_timestamp is not None)
        # Nothing is made for a resource whose deletion would not be noticed.
        held = await asyncio.gather(*(self._hold(topic, bodies[topic.metadata.name]) for topic in declared))
        declared = tuple(topic for topic, is_held in zip(declared, held, strict=True) if is_held)
        outcome = await self._steps(Wanted(cluster, declared, ending), racks)
        after = outcome.wanted
        told = [(topic, bodies[topic.metadata.name]) for topic in (*after.topics, *after.removed)]
        await self._take_back(outcome, await self._statuses.write(told))
        stays = {topic.metadata.name for topic in after.removed}
        leaving = (topic.metadata.name for topic in ending if topic.metadata.name not in stays)
        await asyncio.gather(*(self._statuses.release(bodies[name]) for name in leaving))
        return outcome

    async def _take_back(self, outcome: Outcome, gone: Collection[Topic]) -> None:
        """What was made for a resource that another operator let go meanwhile: it knew of no such topic."""
        made = {step.topic for step in outcome.done if isinstance(step, CreateTopic)}
        late = tuple(topic for topic in gone if topic.topic_name in made)
        if late:
            stay = tuple(topic for topic in outcome.wanted.topics if topic not in late)
            await self._steps(Wanted(outcome.wanted.cluster, stay, late))

    async def _steps(self, wanted: Wanted, racks: Racks | None = None) -> Outcome:
        outcome = await asyncio.to_thread(lambda: reconcile(self._connected(wanted.cluster), wanted, now(), racks))
        for line in (*map(describe, outcome.done), *outcome.failed):
            log.info("%s/%s: %s", *self.key, line)
        return outcome

    async def _hold(self, resource: Cluster | Topic, body: Json) -> bool:
        """Where something is to be done, or to be said, before it is gone."""
        erases = isinstance(resource, Cluster) and resource.erases
        return await self._statuses.keep_held(body, wanted=erases or resource.spec.deletion_policy != "Retain")

    async def _tell(
        self,
        cluster: Cluster,
        body: Json,
        why: Refusal | None,
        brokers: BrokersOutcome | None,
        state: ClusterState | None,
    ) -> None:
        pods = brokers.pods if brokers is not None else None
        status = cluster_status(cluster, now(), why, pods, state)
        await self._statuses.write([(replace(cluster, status=status), body)])

    async def _refuse(self, body: Json, why: Refusal) -> float:
        """A Cluster that cannot even be read: its status says so, and all stays as it is."""
        plain = resource_of(Cluster, {**body, "spec": {}})
        await self._tell(plain, body, why, None, None)
        return self._settings.drift_s

    def _connected(self, cluster: Cluster) -> ClusterAdmin:
        if self._admin is None:
            self._admin = ClusterAdmin(self._settings.bootstrap_of(cluster), CONNECT_S, self._settings.drift_s)
        return self._admin

    def _drop_admin(self) -> None:
        if self._admin is not None:
            self._admin.close()
        self._admin = None


def _racks(state: ClusterState, brokers: BrokersOutcome) -> Racks:
    """Of the brokers that answered: they have been told."""
    pods = brokers.pods.pods
    return {number: pods[number].rack if number in pods else None for number in state.racks}


def _with_status(topic: Topic, why: Refusal, told_at: str) -> Topic:
    return replace(topic, status=topic_status(topic, None, why, told_at))
