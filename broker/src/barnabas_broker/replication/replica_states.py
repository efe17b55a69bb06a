"""The state of each replica on this broker, present, planned or being removed, and the table of transitions.

`ReplicaStates.change` is the only writer of a state. A trigger that the table does not list for a state is a bug. Pure.
"""

from enum import Enum
from typing import Final, NamedTuple
from uuid import UUID

from barnabas_broker.replication.partition import Partition
from barnabas_core.topic_partition import TopicPartition


class ReplicaState(Enum):
    """The states of a replica. Only an ONLINE replica is served."""

    UNMADE = "unmade"
    """The log will be opened or created in one of the next turns of the loop."""
    REFUSED = "refused"
    """The log dirs have refused a new log; it is tried again every second."""
    AWAY = "away"
    """The log may be in an offline log dir, or was set aside."""
    DAMAGED = "damaged"
    """The log is in its place and could not be loaded."""
    LOST = "lost"
    """The log is gone or lacks records, and the metadata still relies on it; reported every second."""
    ONLINE = "online"
    """The replica leads or follows."""
    AHEAD = "ahead"
    """The log has a later leader epoch than the metadata: the replica neither leads nor follows."""
    OFFLINE = "offline"
    """The disk or the log failed while the replica was online."""
    GOING = "going"
    """The replica is unassigned; its log is deleted or kept in one of the next turns of the loop."""
    NONE = "none"
    """The replica has no record."""


class Trigger(Enum):
    """The events that change a state."""

    ASSIGNED = "the metadata assigns it to this broker"
    ABSENT = "its log is not found at a start, and a log dir is offline"
    OPENED = "its log was opened or created"
    NOT_MADE = "its log could not be created"
    NOT_FOUND = "its log may be in a log dir that is offline"
    NOT_LOADED = "its log could not be loaded"
    LACKING = "its log is gone or lacks records, and the metadata relies on it"
    FAILED = "its disk or its log failed"
    RETURNED = "its log was loaded again"
    OVERTOOK = "its log has a later leader epoch than the metadata"
    OVERTAKEN = "the metadata has the leader epoch of its log"
    UNASSIGNED = "the metadata assigns it to other brokers, or its topic was deleted"
    REMOVED = "its log was deleted or set aside"
    FORGOTTEN = "an earlier replica of this name is still being removed, or the document has no such partition"


class Transition(NamedTuple):
    """A change of state; `needs` is the condition before it, on the disk or in the metadata."""

    before: tuple[ReplicaState, ...]
    trigger: Trigger
    after: ReplicaState
    needs: str


_S, _T = ReplicaState, Trigger
WITHOUT_LOG: Final = (_S.UNMADE, _S.REFUSED, _S.AWAY, _S.DAMAGED, _S.LOST)
_WITH_LOG: Final = (_S.ONLINE, _S.AHEAD, _S.OFFLINE)
NOT_SERVED: Final = (_S.REFUSED, _S.AWAY, _S.DAMAGED, _S.LOST, _S.AHEAD, _S.OFFLINE)
"""The states that are checked again every second."""

TRANSITIONS: Final = (
    Transition((_S.NONE,), _T.ASSIGNED, _S.UNMADE, "the topic's document names this broker"),
    Transition((_S.NONE,), _T.ABSENT, _S.AWAY, "all log dirs that are online are loaded"),
    Transition(WITHOUT_LOG, _T.OPENED, _S.ONLINE, "the log is recovered, or is new, empty and has its topic id"),
    Transition(WITHOUT_LOG, _T.NOT_MADE, _S.REFUSED, "nothing"),
    Transition(WITHOUT_LOG, _T.NOT_FOUND, _S.AWAY, "no new log: an empty one would hide the records"),
    Transition(WITHOUT_LOG, _T.NOT_LOADED, _S.DAMAGED, "the files stay as they are"),
    Transition((*WITHOUT_LOG, _S.OFFLINE), _T.LACKING, _S.LOST, "no new log, until the metadata relies on others"),
    Transition((_S.ONLINE, _S.AHEAD), _T.FAILED, _S.OFFLINE, "no request waits for this log"),
    Transition((_S.OFFLINE, _S.LOST), _T.RETURNED, _S.ONLINE, "the metadata does not count on the failed log"),
    Transition((_S.ONLINE,), _T.OVERTOOK, _S.AHEAD, "nothing"),
    Transition((_S.AHEAD,), _T.OVERTAKEN, _S.ONLINE, "the document with the higher epoch is in the image"),
    Transition((_S.NONE, *WITHOUT_LOG, *_WITH_LOG), _T.UNASSIGNED, _S.GOING, "the image has the document or tombstone"),
    Transition((_S.GOING,), _T.REMOVED, _S.NONE, "the directory has its `-delete` name, or the log is noted as stray"),
    Transition(WITHOUT_LOG, _T.FORGOTTEN, _S.NONE, "it has no log here"),
)
_AFTER: Final = {(before, each.trigger): each.after for each in TRANSITIONS for before in each.before}


class ReplicaRecord:
    """A replica; `partition` is set once its log was first opened."""

    __slots__ = ("ahead_since_s", "partition", "state", "topic_id", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, topic_id: UUID) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.state = ReplicaState.NONE
        self.partition: Partition | None = None
        self.ahead_since_s = 0.0
        """The time, in seconds of the monotonic clock, since when the log is ahead of the metadata."""


class ReplicaStates:
    """The records by topic and partition: for each at most one that is GOING and one assigned to this broker."""

    def __init__(self) -> None:
        self._by_state: dict[ReplicaState, dict[TopicPartition, ReplicaRecord]] = {each: {} for each in ReplicaState}
        self._assigned: dict[TopicPartition, ReplicaRecord] = {}

    def get(self, topic_partition: TopicPartition) -> ReplicaRecord | None:
        """Return the record of the replica assigned to this broker, or None."""
        return self._assigned.get(topic_partition)

    def is_unmade(self, topic_partition: TopicPartition) -> bool:
        """Return True if the replica is UNMADE."""
        return topic_partition in self._by_state[ReplicaState.UNMADE]

    def hosted(self, topic_partition: TopicPartition) -> ReplicaRecord:
        """Return the record of the replica assigned to this broker, which must exist."""
        return self._assigned[topic_partition]

    def going(self, topic_partition: TopicPartition) -> ReplicaRecord | None:
        """Return the record of the replica whose log is still to be removed, or None."""
        return self._by_state[ReplicaState.GOING].get(topic_partition)

    def of(self, *states: ReplicaState) -> list[ReplicaRecord]:
        """Return the records in these states, state by state, each in the order in which they entered it."""
        return [record for state in states for record in self._by_state[state].values()]

    def first(self, state: ReplicaState) -> ReplicaRecord | None:
        """Return the record that entered a state first, or None."""
        return next(iter(self._by_state[state].values()), None)

    def begin(self, topic_partition: TopicPartition, topic_id: UUID, trigger: Trigger) -> ReplicaRecord:
        """Create the record of a replica that has none, and change its state by `trigger`."""
        record = ReplicaRecord(topic_partition, topic_id)
        self.change(record, trigger)
        return record

    def change(self, record: ReplicaRecord, trigger: Trigger) -> None:
        """Move a record to the state that the table gives for `trigger`."""
        where, before = record.topic_partition, record.state
        after = _AFTER.get((before, trigger))
        assert after is not None, f"{where} is {before.value}, and has no transition for: {trigger.value}"
        assert where not in self._by_state[after] or after is before, f"another {where} is {after.value}"
        self._by_state[before].pop(where, None)
        if self._assigned.get(where) is record:
            del self._assigned[where]
        record.state = after
        if after is ReplicaState.NONE:
            return
        self._by_state[after][where] = record
        if after is not ReplicaState.GOING:
            self._assigned[where] = record
