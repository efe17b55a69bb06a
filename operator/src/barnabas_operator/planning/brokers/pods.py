"""The brokers of a Cluster as Kubernetes has them: pods, what they run with, and where."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from barnabas_operator.planning.brokers.broker_claims import BrokerClaim, brokers_claimed
from barnabas_operator.planning.brokers.broker_steps import BrokerView
from barnabas_operator.planning.brokers.external_access import ExternalAccess
from barnabas_operator.resources.cluster import Volume


class BrokerPod(NamedTuple):
    """One broker's pod. `revision` is that of the template it was made from.

    `is_down`: its broker's process does not run, as far as Kubernetes knows; `trouble` says why, "" where nobody knows.
    `made_at` and `ends_at` are in RFC 3339: the latter is when one that was deleted should have ended, "" of others.
    `volumes` are the names of the claim templates that it has a volume of. `host_ip` is its node's address as the pod
    knows it, "" until it runs there, `node_addresses` are all by type. `stale` is what it tells clients wrongly.
    `is_cut_off`: its ServiceAccount was deleted, so that it can neither read nor write the metadata.

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

    @property
    def is_lost(self) -> bool:
        """Whether waiting saves nothing: it does not run, or whichever of the others restarts takes it for dead."""
        return self.is_down or self.is_cut_off

    @property
    def is_ending(self) -> bool:
        """Whether it was deleted, and is still there."""
        return self.ends_at != ""


@dataclass(frozen=True, slots=True)
class BrokerSet:
    """The StatefulSet: `replicas` pods are asked for; `revision` is that of its template, "" until that is known.

    `volumes` are what its claim templates are for, by their names. One that is ending has the name that another needs.
    `given` are the addresses outside that its brokers advertise, by Service.
    """

    replicas: int
    revision: str
    volumes: Mapping[str, Volume]
    is_ending: bool = False
    given: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PodsState:
    """What was found of a Cluster on Kubernetes."""

    broker_set: BrokerSet | None
    pods: Mapping[int, BrokerPod] = field(default_factory=dict)
    external: ExternalAccess = field(default_factory=ExternalAccess)
    claims: Sequence[BrokerClaim] = ()

    @property
    def volumes(self) -> Collection[Volume]:
        """The disks that the StatefulSet gives its pods."""
        return self.broker_set.volumes.values() if self.broker_set is not None else ()

    @property
    def count(self) -> int:
        """How many brokers have a place; pods and disks keep theirs while there is no StatefulSet."""
        if self.broker_set is not None:
            return self.broker_set.replicas
        return max(brokers_claimed(self.claims), max(self.pods, default=-1) + 1)

    def views(self) -> list[BrokerView]:
        """Every broker that has a place, for the next step."""
        return [self._view(number) for number in range(self.count)]

    def _view(self, number: int) -> BrokerView:
        pod = self.pods.get(number)
        if pod is None:
            return BrokerView(number, is_running=False, is_ready=False, is_changed=False)
        is_ready = pod.is_ready and not pod.is_ending
        ending = ", ".join(self._ending(pod))
        return BrokerView(number, True, is_ready, self._is_changed(pod), self._lacks_volume(pod), pod.is_lost, ending)

    def _ending(self, pod: BrokerPod) -> Iterator[str]:
        """A claim that was deleted stays as long as its pod."""
        if pod.is_ending:
            yield f"pod {pod.name}"
        for claim in self.claims:
            if claim.is_ending and claim.broker_id == pod.broker_id:
                yield f"claim {claim.name}"

    def _lacks_volume(self, pod: BrokerPod) -> bool:
        wanted = self.broker_set.volumes.keys() if self.broker_set is not None else set()
        return not pod.is_ending and not wanted <= pod.volumes

    def _is_changed(self, pod: BrokerPod) -> bool:
        """Whether it shall restart; one that is ending does so already."""
        revision = self.broker_set.revision if self.broker_set is not None else ""
        return not pod.is_ending and (pod.restart_asked or (revision != "" and pod.revision != revision))

    def remaining(self) -> tuple[int, ...]:
        """The brokers that are still to restart."""
        return tuple(view.broker_id for view in self.views() if view.is_changed)

    @property
    def is_rolled_out(self) -> bool:
        """Whether every broker runs with the template that is there, and Kubernetes has seen it."""
        return self.broker_set is not None and self.broker_set.revision != "" and not self.remaining()

    def unready(self) -> tuple[int, ...]:
        """The brokers that are not there, or not in sync yet."""
        return tuple(view.broker_id for view in self.views() if not view.is_ready)

    def troubles(self) -> str:
        """What Kubernetes says of pods that do not run."""
        return "; ".join(pod.trouble for _, pod in sorted(self.pods.items()) if pod.trouble)
