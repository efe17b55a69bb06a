"""A cluster of brokers in one dict, with the interface of the operator's admin client."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from barnabas_core.placement import DiskSpace
from barnabas_kafka.connection import ClusterUnreachable
from barnabas_operator.kafka.step_requests import StepRefused
from barnabas_operator.planning.brokers.cluster_checks import Supported
from barnabas_operator.planning.cluster_state import (
    ClusterState,
    Disks,
    LogDirContent,
    MetadataVersions,
    StrayLog,
    TopicState,
    Trouble,
)
from barnabas_operator.planning.topics.replica_moves import (
    AlterConfigs,
    CreateTopic,
    DeleteTopic,
    LogDirMove,
    MoveReplicas,
    TopicStep,
)
from barnabas_operator.planning.users.user_plan import (
    ClusterUsers,
    CreateAcls,
    DeleteAcls,
    DeletePassword,
    FoundUser,
    SetPassword,
    SetQuotas,
    UserStep,
)


def after(found: FoundUser, step: UserStep) -> FoundUser:
    """Return the state of a user at the brokers after a step."""
    match step:
        case SetPassword(_, mechanism):
            return replace(found, mechanisms=found.mechanisms | {mechanism})
        case DeletePassword(_, mechanism):
            return replace(found, mechanisms=found.mechanisms - {mechanism})
        case CreateAcls(_, acls):
            return replace(found, acls=found.acls | set(acls))
        case DeleteAcls(_, acls):
            return replace(found, acls=found.acls - set(acls))
        case SetQuotas(_, changes):
            values = {**(found.quotas or {}), **changes}
            return replace(found, quotas={key: value for key, value in values.items() if value is not None})


class BrokersMemory:
    """A cluster of `count` brokers; with 0 none answers. If `bug` is set, applying steps raises it.

    All have the level `finalized` of their metadata; `highest` is the level that each supports, 1 if it has none.
    """

    def __init__(self, count: int = 1) -> None:
        self.count = count
        self.answered_at = 0.0
        self.looks = 0
        self.topics: dict[str, TopicState] = {}
        self.bug: Exception | None = None
        self.refused_move: StepRefused | None = None
        self.refused_configs: StepRefused | None = None
        self.troubles: tuple[Trouble, ...] = ()
        self.strays: tuple[StrayLog, ...] = ()
        self.log_dirs: dict[str, LogDirContent] = {}
        """The content of the log dirs of every broker."""
        self.begun: list[LogDirMove] = []
        self.accounts: dict[str, FoundUser] = {}
        self.passwords: dict[str, str] = {}
        self.overlaps_s: dict[str, int] = {}
        """The overlap of the last password of each user with the one before."""
        self.refused_user: StepRefused | None = None
        self.finalized = 1
        self.highest: dict[int, int] = {}
        self.refusal: StepRefused | None = None
        """The answer to a request to raise the level; None accepts it."""

    def __call__(self, *_: object) -> "BrokersMemory":
        """Return itself: a connection."""
        return self

    def cluster_state(self) -> ClusterState:
        """Return the present state, without the configs of topics."""
        self.looks += 1
        if not self.count:
            raise ClusterUnreachable("nobody is there")
        ids = range(self.count)
        racks = dict.fromkeys(ids)
        return ClusterState(
            racks,
            {name: replace(found, overrides={}) for name, found in self.topics.items()},
            registered=frozenset(ids),
            controller_id=0,
            cluster_id="a-cluster",
            troubles=self.troubles,
            metadata_versions=MetadataVersions(self.finalized, self.highest.get(0, 1)),
        )

    def with_overrides(self, state: ClusterState, names: Collection[str]) -> ClusterState:
        """Return the state with the configs of these topics."""
        return state.with_overrides({name: self.topics[name].overrides for name in names if name in self.topics})

    def apply(self, steps: Sequence[TopicStep]) -> dict[str, StepRefused]:
        """Make, change and delete topics; replicas move at once."""
        if self.bug is not None:
            raise self.bug
        if self.refused_move is not None:
            return {step.topic: self.refused_move for step in steps if isinstance(step, MoveReplicas)}
        for step in steps:
            match step:
                case CreateTopic(topic, placed, configs):
                    self.topics[topic] = TopicState(f"id-{topic}", placed, configs)
                case AlterConfigs(topic, changes):
                    found = {**self.topics[topic].overrides, **changes}
                    kept = {name: text for name, text in found.items() if text is not None}
                    self.topics[topic] = replace(self.topics[topic], overrides=kept)
                case MoveReplicas(topic, moved):
                    rows = enumerate(self.topics[topic].partitions)
                    there = tuple(moved.get(number, row) for number, row in rows)
                    self.topics[topic] = replace(self.topics[topic], partitions=there)
                case DeleteTopic(topic, topic_id) if topic in self.topics and self.topics[topic].topic_id == topic_id:
                    del self.topics[topic]
        return {}

    def users(self) -> ClusterUsers:
        """Return the users that were made, without their passwords."""
        return ClusterUsers(dict(self.accounts))

    def apply_to_users(self, steps: Sequence[UserStep]) -> dict[str, tuple[UserStep, StepRefused]]:
        """Apply the steps; if `refused_user` is set, refuse all of them with it."""
        if self.refused_user is not None:
            return {step.user: (step, self.refused_user) for step in steps}
        for step in steps:
            found = self.accounts.get(step.user, FoundUser())
            self.accounts[step.user] = after(found, step)
            if isinstance(step, SetPassword):
                self.passwords[step.user] = step.password
                self.overlaps_s[step.user] = step.overlap_s
        return {}

    def disks(self, broker_ids: Collection[int]) -> Disks:
        """Return the disks: all have room, and all replicas are empty."""
        empty = {"/data": LogDirContent(DiskSpace(1 << 40, 1 << 40), {}, {})}
        return Disks(dict.fromkeys(broker_ids, self.log_dirs or empty))

    def move_between_log_dirs(self, moves: Collection[LogDirMove]) -> list[str]:
        """Begin all moves; refuse none."""
        self.begun += moves
        for each in moves:
            content = self.log_dirs[each.path]
            self.log_dirs[each.path] = content._replace(coming={**content.coming, each.partition: 0})
        return []

    def broker_overrides(self, _broker_ids: Sequence[int]) -> Mapping[int, Mapping[str, str]]:
        """Return no settings of single brokers."""
        return {number: {} for number in range(self.count)}

    def stray_logs(self, _broker_ids: Sequence[int]) -> tuple[StrayLog, ...]:
        """Return the logs that are now set aside."""
        return self.strays

    def alter_brokers(self, changes: Mapping[int, object]) -> dict[int, StepRefused]:
        """Accept any change, unless `refused_configs` is set."""
        return {} if self.refused_configs is None else dict.fromkeys(changes, self.refused_configs)

    def supported_metadata_versions(self, broker_ids: Sequence[int]) -> dict[int, Supported]:
        """Return the levels that each broker supports."""
        return {number: Supported(1, self.highest.get(number, 1)) for number in broker_ids}

    def raise_metadata_version(self, level: int) -> StepRefused | None:
        """Raise the level, unless `refusal` is set."""
        if self.refusal is None:
            self.finalized = level
        return self.refusal

    def balance_leaders(self) -> None:
        """Do nothing."""

    def forget_brokers(self, _count: int) -> list[int]:
        """Return no broker: none is to be forgotten."""
        return []

    def close(self) -> None:
        """Do nothing."""
