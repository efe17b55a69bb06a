"""The brokers of a Cluster as Kubernetes has them: their pods, templates and addresses."""

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
    """A broker's pod. `revision` is that of the template it was made from.

    `is_down`: its broker's process does not run, as far as Kubernetes knows; `trouble` says why, "" if unknown.
    `made_at` and `ends_at` are in RFC 3339: the latter is when a deleted pod should have ended, "" of others.
    `volumes` are the names of the claim templates that it has a volume of. `host_ip` is its node's address as the pod
    knows it, "" until it runs there; `node_addresses` are all of the node, by type. `stale` is the outdated address
    that it advertises. `is_cut_off`: its ServiceAccount was deleted, so it can neither read nor write the metadata.
    `stage` is that of its security.

    The pod that is made in its place has the same name and another `uid`.
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
        """True if waiting for it saves nothing: it does not run, or any broker that restarts takes it for dead."""
        return self.is_down or self.is_cut_off

    @property
    def is_ending(self) -> bool:
        """True if it was deleted and still exists."""
        return self.ends_at != ""


@dataclass(frozen=True, slots=True)
class BrokerSet:
    """The StatefulSet: `replicas` is its wanted number of pods; `revision` is that of its template, "" while unknown.

    `volumes` are its claim templates' volumes by template name. While `is_ending`, no new one can have its name.
    `given` are the outside addresses that its brokers advertise, by Service; `image` is the one that they run.
    `stage` is that of the security of pods that are made now.
    """

    replicas: int
    revision: str
    volumes: Mapping[str, Volume]
    is_ending: bool = False
    given: Mapping[str, str] = field(default_factory=dict)
    image: str = ""
    stage: SecurityStage = SecurityStage.OPEN


@dataclass(frozen=True, slots=True)
class PodsState:
    """The objects of a Cluster found on Kubernetes."""

    broker_set: BrokerSet | None
    pods: Mapping[int, BrokerPod] = field(default_factory=dict)
    external: ExternalAccess = field(default_factory=ExternalAccess)
    claims: Sequence[BrokerClaim] = ()

    @property
    def volumes(self) -> Collection[Volume]:
        """Return the volumes that the StatefulSet gives its pods."""
        return self.broker_set.volumes.values() if self.broker_set is not None else ()

    @property
    def stages(self) -> Collection[SecurityStage]:
        """Return the stages of security that pods have, or would have if they were made now."""
        of_pods = {pod.stage for pod in self.pods.values()}
        return of_pods if self.broker_set is None else of_pods | {self.broker_set.stage}

    def next_stage(self, cluster: Cluster) -> SecurityStage:
        """Return the stage of security for pods that are made from now on."""
        wanted, of_pods = wanted_stage(cluster), [pod.stage for pod in self.pods.values()]
        present = self.broker_set.stage if self.broker_set is not None else min(of_pods, default=wanted)
        return next_stage(present, wanted, of_pods)

    def at_stage(self, stage: SecurityStage) -> "PodsState":
        """Return the pods' state with the wanted stage of security."""
        return replace(self, external=replace(self.external, stage=stage))

    @property
    def count(self) -> int:
        """Return the number of brokers that have a place; pods and claims keep theirs while there is no StatefulSet."""
        if self.broker_set is not None:
            return self.broker_set.replicas
        return max(brokers_claimed(self.claims), max(self.pods, default=-1) + 1)

    def views(self) -> list[BrokerView]:
        """Return every broker that has a place, for the next step."""
        return [self._view(number) for number in range(self.count)]

    def _view(self, number: int) -> BrokerView:
        pod = self.pods.get(number)
        if pod is None:
            return BrokerView(number, is_running=False, is_ready=False, is_changed=False)
        is_ready = pod.is_ready and not pod.is_ending
        ending = ", ".join(self._ending(pod))
        return BrokerView(number, True, is_ready, self._is_changed(pod), self._lacks_volume(pod), pod.is_lost, ending)

    def _ending(self, pod: BrokerPod) -> Iterator[str]:
        """Yield the broker's objects that are being deleted; a deleted claim stays as long as its pod."""
        if pod.is_ending:
            yield f"pod {pod.name}"
        for claim in self.claims:
            if claim.is_ending and claim.broker_id == pod.broker_id:
                yield f"claim {claim.name}"

    def _lacks_volume(self, pod: BrokerPod) -> bool:
        wanted = self.broker_set.volumes.keys() if self.broker_set is not None else set()
        return not pod.is_ending and not wanted <= pod.volumes

    def _is_changed(self, pod: BrokerPod) -> bool:
        """True if the pod must restart; one that is terminating does so already."""
        revision = self.broker_set.revision if self.broker_set is not None else ""
        return not pod.is_ending and (pod.restart_asked or (revision != "" and pod.revision != revision))

    def remaining(self) -> tuple[int, ...]:
        """Return the brokers that still have to restart."""
        return tuple(view.broker_id for view in self.views() if view.is_changed)

    @property
    def is_rolled_out(self) -> bool:
        """True if every broker runs with the current template, and Kubernetes has observed that template."""
        return self.broker_set is not None and self.broker_set.revision != "" and not self.remaining()

    def unready(self) -> tuple[int, ...]:
        """Return the brokers that are missing or not ready."""
        return tuple(view.broker_id for view in self.views() if not view.is_ready)

    def troubles(self) -> str:
        """Return the troubles of pods that do not run, as Kubernetes reports them."""
        return "; ".join(pod.trouble for _, pod in sorted(self.pods.items()) if pod.trouble)
