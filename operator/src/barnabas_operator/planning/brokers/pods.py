"""The state of a Cluster's brokers in Kubernetes: StatefulSet, pods, claims and addresses."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from barnabas_operator.planning.brokers.broker_claims import BrokerClaim, brokers_claimed
from barnabas_operator.planning.brokers.broker_steps import BrokerView
from barnabas_operator.planning.brokers.external_access import ExternalAccess
from barnabas_operator.planning.brokers.security_stages import SecurityStage, next_stage, wanted_stage
from barnabas_operator.resources.cluster import Cluster, Volume


class BrokerPod(NamedTuple):
    """The pod of a broker. A pod that replaces it has the same name and another `uid`.

    - `revision` is the revision of the pod's template.
    - `is_down` is True if Kubernetes reports that the process does not run; `trouble` says why, if known.
    - `made_at` and `ends_at` are the pod's `creationTimestamp` and `deletionTimestamp`; `ends_at` may be "".
    - `volumes` holds the names of the claim templates of the pod's volumes.
    - `host_ip` is the `hostIP` in the pod's status, or ""; `node_addresses` are all addresses of the node, by type.
    - `stale` describes the outdated address that the broker still advertises.
    - `is_cut_off` is True if the pod's ServiceAccount was deleted, so that the broker has lost access to metadata.
    - `stage` is the stage of turning security on or off with which the pod was started.
    """

    broker_id: int
    name: str
    uid: str
    revision: str
    is_ready: bool
    restart_asked: bool = False
    rack: str | None = None
    trouble: str = ""
    volumes: frozenset[str] = frozenset()
    host_ip: str = ""
    node_addresses: Mapping[str, str] = MappingProxyType({})
    is_down: bool = False
    made_at: str = ""
    ends_at: str = ""
    node: str = ""
    stale: str = ""
    is_cut_off: bool = False
    stage: SecurityStage = SecurityStage.OPEN

    @property
    def is_lost(self) -> bool:
        """True if the broker does not run, or has lost its access to the metadata."""
        return self.is_down or self.is_cut_off

    @property
    def is_ending(self) -> bool:
        """True if the pod was deleted but still exists."""
        return self.ends_at != ""


@dataclass(frozen=True, slots=True)
class BrokerSet:
    """The StatefulSet of the brokers.

    `replicas` is the wanted number of pods. `revision` is the revision of the pod template, or "" if unknown. `volumes`
    holds the volumes of the claim templates by template name. `is_ending` is True if the StatefulSet is being deleted.
    `given` holds the external addresses that brokers advertise, by Service. `image` is the image of the brokers,
    `stage` the `SecurityStage` of new pods, and `restart` the requested restart after which they are created.
    """

    replicas: int
    revision: str
    volumes: Mapping[str, Volume]
    is_ending: bool = False
    given: Mapping[str, str] = field(default_factory=dict)
    image: str = ""
    stage: SecurityStage = SecurityStage.OPEN
    restart: str = ""


@dataclass(frozen=True, slots=True)
class PodsState:
    """The objects of a Cluster that exist in Kubernetes."""

    broker_set: BrokerSet | None
    pods: Mapping[int, BrokerPod] = field(default_factory=dict)
    external: ExternalAccess = field(default_factory=ExternalAccess)
    claims: Sequence[BrokerClaim] = ()

    @property
    def volumes(self) -> Collection[Volume]:
        """Return the volumes of the StatefulSet's claim templates."""
        return self.broker_set.volumes.values() if self.broker_set is not None else ()

    @property
    def lasting_claims(self) -> list[BrokerClaim]:
        """Return the claims that are not being deleted."""
        return [claim for claim in self.claims if not claim.is_ending]

    @property
    def stages(self) -> Collection[SecurityStage]:
        """Return each `SecurityStage` that an existing pod has or a new pod would get."""
        of_pods = {pod.stage for pod in self.pods.values()}
        return of_pods if self.broker_set is None else of_pods | {self.broker_set.stage}

    def next_stage(self, cluster: Cluster) -> SecurityStage:
        """Return the `SecurityStage` that new pods should have next."""
        wanted, of_pods = wanted_stage(cluster), [pod.stage for pod in self.pods.values()]
        present = self.broker_set.stage if self.broker_set is not None else min(of_pods, default=wanted)
        return next_stage(present, wanted, of_pods)

    def at_stage(self, stage: SecurityStage) -> "PodsState":
        """Return a copy of the state with `stage` as the `SecurityStage` of new pods."""
        return replace(self, external=replace(self.external, stage=stage))

    @property
    def count(self) -> int:
        """Return the number of replicas of the StatefulSet.

        Without a StatefulSet, return 1 plus the highest broker id that has a pod or a claim.
        """
        if self.broker_set is not None:
            return self.broker_set.replicas
        return max(brokers_claimed(self.claims), max(self.pods, default=-1) + 1)

    def views(self) -> list[BrokerView]:
        """Return a `BrokerView` for every broker, even if the broker has no pod."""
        return [self._view(number) for number in range(self.count)]

    def _view(self, number: int) -> BrokerView:
        pod = self.pods.get(number)
        if pod is None:
            return BrokerView(number, is_running=False, is_ready=False, is_changed=False)
        is_ready = pod.is_ready and not pod.is_ending
        ending = ", ".join(self._ending(pod))
        return BrokerView(number, True, is_ready, self._is_changed(pod), self._lacks_volume(pod), pod.is_lost, ending)

    def _ending(self, pod: BrokerPod) -> Iterator[str]:
        """Yield `pod NAME` and `claim NAME` for the pod and the claims of the broker that are being deleted."""
        if pod.is_ending:
            yield f"pod {pod.name}"
        for claim in self.claims:
            if claim.is_ending and claim.broker_id == pod.broker_id:
                yield f"claim {claim.name}"

    def _lacks_volume(self, pod: BrokerPod) -> bool:
        wanted = self.broker_set.volumes.keys() if self.broker_set is not None else set()
        return not pod.is_ending and not wanted <= pod.volumes

    def _is_changed(self, pod: BrokerPod) -> bool:
        """True if the pod must restart and is not terminating already."""
        revision = self.broker_set.revision if self.broker_set is not None else ""
        return not pod.is_ending and (pod.restart_asked or (revision != "" and pod.revision != revision))

    def remaining(self) -> tuple[int, ...]:
        """Return the ids of the brokers that still have to restart."""
        return tuple(view.broker_id for view in self.views() if view.is_changed)

    @property
    def is_rolled_out(self) -> bool:
        """True if no pod has to restart, and Kubernetes has observed the pod template of a StatefulSet that stays."""
        there = self.broker_set
        return there is not None and not there.is_ending and there.revision != "" and not self.remaining()

    def unready(self) -> tuple[int, ...]:
        """Return the ids of the brokers that are missing or not ready."""
        return tuple(view.broker_id for view in self.views() if not view.is_ready)

    def troubles(self) -> str:
        """Return the problems of pods that do not run, in the words of Kubernetes."""
        return "; ".join(pod.trouble for _, pod in sorted(self.pods.items()) if pod.trouble)
