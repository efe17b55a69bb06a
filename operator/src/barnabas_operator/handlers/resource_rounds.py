"""A Cluster's resources of all kinds, in its rounds."""

from collections.abc import Callable, Mapping
from typing import Final

from barnabas_operator.handlers.inventory import Inventory, Key
from barnabas_operator.handlers.kind_rounds import Bodies, Connected, KindRounds, Seen
from barnabas_operator.handlers.round_parts import RoundParts
from barnabas_operator.handlers.status_writer import StatusWriter
from barnabas_operator.handlers.topic_rounds import TopicRounds
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.topic import TOPIC

ROUNDS: Final[Mapping[str, Callable[[StatusWriter, Connected], KindRounds]]] = {
    TOPIC.name: TopicRounds,
}
"""What has a part in the rounds, by the field `kind`, in the order of the parts."""

Found = Mapping[str, Bodies]
"""The resources of a Cluster by kind."""


class ResourceRounds:
    """Of one Cluster."""

    def __init__(self, statuses: StatusWriter, connected: Connected) -> None:
        self._rounds: Final = {kind: rounds(statuses, connected) for kind, rounds in ROUNDS.items()}

    def found(self, inventory: Inventory, cluster: Key) -> Found:
        """What a round is about: what changes meanwhile is for the next one."""
        return {
            kind: {body["metadata"]["name"]: body for body in inventory.resources_of(kind, cluster)}
            for kind in self._rounds
        }

    async def release(self, found: Found) -> None:
        """Nobody looks after them any more."""
        for kind, rounds in self._rounds.items():
            await rounds.release(found[kind])

    async def wait(self, found: Found, why: str) -> None:
        """Without the brokers."""
        for kind, rounds in self._rounds.items():
            await rounds.wait(found[kind], why)

    async def bring(self, cluster: Cluster, found: Found, seen: Seen, parts: RoundParts) -> Seen:
        """Each kind in its turn; a kind that fails changes nothing of what is known."""
        for kind, rounds in self._rounds.items():
            seen = await parts.run(rounds.bring(cluster, found[kind], seen)) or seen
        return seen
