"""Creates and renews the Secrets of a secured Cluster: CAs, certificates, and the password of the user `admin`."""

import asyncio
import logging
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence

from barnabas_core.clock import LoopClock
from barnabas_core.conventions import credential_secrets
from barnabas_operator.kube.api import KubeApi
from barnabas_operator.kube.gather import Nodes
from barnabas_operator.manifests.cluster_objects import secret
from barnabas_operator.planning.brokers.authorities import Data
from barnabas_operator.planning.brokers.broker_security import SecurityStage
from barnabas_operator.planning.brokers.cluster_secrets import (
    Moment,
    NodeNames,
    broker_hosts,
    given_secrets,
    node_names,
    plan_secrets,
    secret_names,
)
from barnabas_operator.planning.brokers.pods import PodsState, conflict, is_owned
from barnabas_operator.planning.conditions import Refusal, utc_moment
from barnabas_operator.reconcile.brokers.applied_objects import AppliedObjects, ObjectRefused
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.kind import Json
from barnabas_operator.resources.security import CertificateStatus

log = logging.getLogger(__name__)


class ClusterSecretsReconciler:
    """The reconciler of one Cluster's Secrets.

    `reconcile` reads and renews the Secrets only if the Cluster or an address in its certificates has changed, or if
    `forget` was called.
    """

    def __init__(
        self, api: KubeApi, objects: AppliedObjects, nodes: Nodes, clock: LoopClock, new_password: Callable[[], str]
    ) -> None:
        self._api = api
        self._objects = objects
        self._nodes = nodes
        self._clock = clock
        self._new_password = new_password
        self._seen: object = None
        self.data: Mapping[str, Data] = {}
        """The content of the Cluster's Secrets, by name of the Secret; empty for a Cluster without security."""
        self.nodes_left_out = ""
        """The reason why the brokers' certificate lacks addresses of nodes; empty if it lacks none."""
        self.certificates: tuple[CertificateStatus, ...] | None = None
        """The expiry times of the certificates in the Secrets; None until they are known."""

    def forget(self) -> None:
        """Read the Secrets again, because certificates may be due for renewal, or Secrets may have changed."""
        self._seen = None

    async def reconcile(self, cluster: Cluster, pods: PodsState) -> Refusal | None:
        """Create and renew the Secrets; return the first error. Raises KubeUnreachable and KubeRefused."""
        if pods.external.stage_of(cluster) is SecurityStage.OPEN:
            self.data, self.certificates, self._seen, self.nodes_left_out = {}, (), None, ""
            return None
        nodes = await self._node_names(cluster, pods)
        self.nodes_left_out = nodes.left_out
        hosts = broker_hosts(cluster, pods.external, nodes.hosts)
        about = cluster.metadata.generation, hosts, pods.external
        if about == self._seen:
            return None
        refused = await self._bring(cluster, hosts, pods)
        if refused is None:
            self._seen = about
        return refused

    async def _bring(self, cluster: Cluster, hosts: frozenset[str], pods: PodsState) -> Refusal | None:
        found = await self._found(cluster)
        foreign = {name for name, item in found.items() if not is_owned(cluster, item)}
        for name in foreign - given_secrets(cluster):
            return conflict(cluster, {"kind": "Secret", "metadata": {"name": name}}, found[name])
        data = {name: _data(item) for name, item in found.items()}
        marks = {name: item["metadata"].get("annotations") or {} for name, item in found.items()}
        moment = Moment(data, marks, utc_moment(self._clock.now_ms()), self._new_password, foreign)
        plan = plan_secrets(cluster, hosts, pods.external, moment)
        if isinstance(plan, Refusal):
            return plan
        for wanted in plan.secrets:
            try:
                if await self._objects.apply(cluster, secret(cluster, wanted)) and data.get(wanted.name) != wanted.data:
                    log.info("%s/%s: renewed the Secret %s", *_key(cluster), wanted.name)
            except ObjectRefused as error:
                return error.refusal
        self.data, self.certificates = plan.by_name, plan.certificates
        return None

    async def erase(self, cluster: Cluster) -> None:
        """Delete the Secrets that the Cluster owns."""
        name, namespace = cluster.metadata.name, cluster.metadata.namespace or "default"
        found = {**await self._found(cluster), **await self._get(namespace, credential_secrets(name))}
        for each, item in found.items():
            if is_owned(cluster, item):
                uid = item["metadata"]["uid"]
                await self._api.delete("Secret", namespace, each, preconditions={"uid": uid})

    async def _found(self, cluster: Cluster) -> Mapping[str, Json]:
        return await self._get(cluster.metadata.namespace or "default", secret_names(cluster))

    async def _get(self, namespace: str, names: Sequence[str]) -> Mapping[str, Json]:
        found = await asyncio.gather(*(self._api.get("Secret", namespace, name) for name in names))
        return {name: item for name, item in zip(names, found, strict=True) if item is not None}

    async def _node_names(self, cluster: Cluster, pods: PodsState) -> NodeNames:
        """Return the node addresses for the certificate; none if no listener advertises addresses of nodes."""
        if not any(each.is_at_node for each in cluster.spec.listeners):
            return NodeNames()
        return node_names(cluster, await self._nodes.addresses(), [pod.node for pod in pods.pods.values()])


def _key(cluster: Cluster) -> tuple[str, str]:
    return cluster.metadata.namespace or "default", cluster.metadata.name


def _data(item: Json) -> Data:
    data: Mapping[str, str] = item.get("data") or {}
    return {name: b64decode(value) for name, value in data.items()}
