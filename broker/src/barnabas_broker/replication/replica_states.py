"""The states of the replicas on this broker, and the table of transitions between the states.

Only `ReplicaStates.change` writes a state. A trigger that the table does not list for a state is a bug.
"""

from enum import Enum
from typing import Final, NamedTuple
from uuid import UUID

from barnabas_broker.replication.partition import Partition
from barnabas_core.topic_partition import TopicPartition


class ReplicaState(Enum):
    """The states of a replica. Only an ONLINE replica is served."""

    UNMADE = "unmade"
    """The replica's log will be opened or created in one of the next turns of the event loop."""
    REFUSED = "refused"
    """The replica's log could not be created; the broker tries again every second."""
    AWAY = "away"
    """The replica's log was not found, but may be in an offline log dir."""
    DAMAGED = "damaged"
    """The replica's log is in its log dir, but could not be loaded."""
    LOST = "lost"
    """The replica leads or may be elected leader, but has no log, or its log may lack records."""
    ONLINE = "online"
    """The replica is served: it leads or follows."""
    AHEAD = "ahead"
    """The replica neither leads nor follows, because its log has a later leader epoch than the metadata."""
    OFFLINE = "offline"
    """The disk or the log of the replica failed while the replica was online."""
    GOING = "going"
    """The partition is no longer assigned to this broker; the log will soon be deleted, or kept as a stray log."""
    NONE = "none"
    """The replica does not exist on this broker."""


class Trigger(Enum):
    """The events that change the state of a replica."""

    ASSIGNED = "the metadata assigns the replica to this broker"
    ABSENT = "the broker starts without the replica's log while a log dir is offline"
    OPENED = "the replica's log was opened or created"
    NOT_MADE = "the replica's log could not be created"
    NOT_FOUND = "the replica's log may be in an offline log dir"
    NOT_LOADED = "the replica's log could not be loaded"
    LACKING = "a replica that leads or may be elected leader has no log, or its log may lack records"
    FAILED = "the disk or the log of the replica failed"
    RETURNED = "the replica's log was loaded again"
    OVERTOOK = "the replica's log has a later leader epoch than the metadata"
    OVERTAKEN = "the leader epoch in the metadata is no longer lower than in the replica's log"
    UNASSIGNED = "the metadata assigns the replica to other brokers, or the topic was deleted"
    REMOVED = "the replica's log was deleted, or is kept as a stray log"
    FORGOTTEN = "an earlier replica of the partition is still being removed, or the topic has no such partition"


class Transition(NamedTuple):
    """A transition between states; `needs` is the condition that must hold before the transition."""

    before: tuple[ReplicaState, ...]
    trigger: Trigger
    after: ReplicaState
    needs: str


_S, _T = ReplicaState, Trigger
WITHOUT_LOG: Final = (_S.UNMADE, _S.REFUSED, _S.AWAY, _S.DAMAGED, _S.LOST)
_WITH_LOG: Final = (_S.ONLINE, _S.AHEAD, _S.OFFLINE)
NOT_SERVED: Final = (_S.REFUSED, _S.AWAY, _S.DAMAGED, _S.LOST, _S.AHEAD, _S.OFFLINE)
"""The states of assigned replicas that are not served; every second, the broker checks if it can serve them."""

TRANSITIONS: Final = (
    Transition((_S.NONE,), _T.ASSIGNED, _S.UNMADE, "the topic's metadata lists this broker as a replica"),
    Transition((_S.NONE,), _T.ABSENT, _S.AWAY, "all online log dirs are loaded"),
    Transition(
        WITHOUT_LOG,
        _T.OPENED,
        _S.ONLINE,
        "an existing log was recovered, or an empty log with the topic id was created",
    ),
    Transition(WITHOUT_LOG, _T.NOT_MADE, _S.REFUSED, "nothing"),
    Transition(
        WITHOUT_LOG,
        _T.NOT_FOUND,
        _S.AWAY,
        "no new log is created, because an empty log would hide that records are missing",
    ),
    Transition(WITHOUT_LOG, _T.NOT_LOADED, _S.DAMAGED, "the files of the log are unchanged"),
    Transition(
        (*WITHOUT_LOG, _S.OFFLINE),
        _T.LACKING,
        _S.LOST,
        "no new log is created while the replica leads or may be elected leader",
    ),
    Transition(
        (_S.ONLINE, _S.AHEAD), _T.FAILED, _S.OFFLINE, "no Produce or Fetch request is still waiting for the failed log"
    ),
    Transition(
        (_S.OFFLINE, _S.LOST),
        _T.RETURNED,
        _S.ONLINE,
        "the partition's metadata already reflects the failure of the log",
    ),
    Transition((_S.ONLINE,), _T.OVERTOOK, _S.AHEAD, "nothing"),
    Transition((_S.AHEAD,), _T.OVERTAKEN, _S.ONLINE, "the metadata image has the partition's new leader epoch"),
    Transition(
        (_S.NONE, *WITHOUT_LOG, *_WITH_LOG),
        _T.UNASSIGNED,
        _S.GOING,
        "the metadata image says whether the topic exists or was deleted",
    ),
    Transition(
        (_S.GOING,),
        _T.REMOVED,
        _S.NONE,
        "the name of the log's directory ends in `-delete`, or the log is registered as stray",
    ),
    Transition(WITHOUT_LOG, _T.FORGOTTEN, _S.NONE, "the replica has no log on this broker"),
)
_AFTER: Final = {(before, each.trigger): each.after for each in TRANSITIONS for before in each.before}


class ReplicaRecord:
    """A replica and its state; `partition` is None until the replica's log is opened for the first time."""

    __slots__ = ("ahead_since_s", "partition", "state", "topic_id", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, topic_id: UUID) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.state = ReplicaState.NONE
        self.partition: Partition | None = None
        self.ahead_since_s = 0.0
        """The monotonic time in seconds at which the state became AHEAD."""


class ReplicaStates:
    """The `ReplicaRecord` of each replica on this broker.

    This broker has at most two replicas of a partition: an old one that is being removed (GOING), and an assigned one.
    """

    def __init__(self) -> None:
        self._by_state: dict[ReplicaState, dict[TopicPartition, ReplicaRecord]] = {each: {} for each in ReplicaState}
        self._assigned: dict[TopicPartition, ReplicaRecord] = {}

    def get(self, topic_partition: TopicPartition) -> ReplicaRecord | None:
        """Return the `ReplicaRecord` of an assigned replica; None if the replica is not assigned to this broker."""
        return self._assigned.get(topic_partition)

    def is_unmade(self, topic_partition: TopicPartition) -> bool:
        """True if the log of the replica still has to be opened or created."""
        return topic_partition in self._by_state[ReplicaState.UNMADE]

    def hosted(self, topic_partition: TopicPartition) -> ReplicaRecord:
        """Return the `ReplicaRecord` of an assigned replica. Raises KeyError if the replica is not assigned."""
        return self._assigned[topic_partition]

    def going(self, topic_partition: TopicPartition) -> ReplicaRecord | None:
        """Return the `ReplicaRecord` of a replica whose log still has to be removed, or None."""
        return self._by_state[ReplicaState.GOING].get(topic_partition)

    def of(self, *states: ReplicaState) -> list[ReplicaRecord]:
        """Return the replicas in these states, ordered by state, then by the time at which they entered the state."""
        return [record for state in states for record in self._by_state[state].values()]

    def first(self, state: ReplicaState) -> ReplicaRecord | None:
        """Return the replica that has been in a state for the longest time; None if no replica is in the state."""
        return next(iter(self._by_state[state].values()), None)

    def begin(self, topic_partition: TopicPartition, topic_id: UUID, trigger: Trigger) -> ReplicaRecord:
        """Create the `ReplicaRecord` of a replica in the state NONE, and make the transition that `trigger` causes."""
        record = ReplicaRecord(topic_partition, topic_id)
        self.change(record, trigger)
        return record

    def change(self, record: ReplicaRecord, trigger: Trigger) -> None:
        """Change the state of a replica as the table of transitions says for the trigger."""
        where, before = record.topic_partition, record.state
        after = _AFTER.get((before, trigger))
        assert after is not None, (
            f"{where} is {before.value}, and no transition is defined for the trigger: {trigger.value}"
        )
        assert where not in self._by_state[after] or after is before, (
            f"{where} already has a replica in the state {after.value}, and may have only one"
        )
        self._by_state[before].pop(where, None)
        if self._assigned.get(where) is record:
            del self._assigned[where]
        record.state = after
        if after is ReplicaState.NONE:
            return
        self._by_state[after][where] = record
        if after is not ReplicaState.GOING:
            self._assigned[where] = record
