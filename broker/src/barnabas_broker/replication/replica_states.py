"""The state of each replica that this broker has, is to have, or had: one record, one table of transitions.

`ReplicaStates.change` is the only way from one state to the next. A trigger that the table does not know in a state is
a bug. Pure.
"""

from enum import Enum
from typing import Final, NamedTuple
from uuid import UUID

from barnabas_broker.replication.partition import Partition
from barnabas_core.topic_partition import TopicPartition


class ReplicaState(Enum):
    """What can be done with a replica. Only one that is ONLINE is served."""

    UNMADE = "unmade"
    """Its log is opened or made in one of the next turns of the loop."""
    REFUSED = "refused"
    """No log dir took a new log: tried again every second."""
    AWAY = "away"
    """Its log may lie in a log dir that is offline, or was set aside."""
    DAMAGED = "damaged"
    """Its log is in its place, and could not be loaded."""
    LOST = "lost"
    """Its log lacks records, and the metadata still relies on it: reported every second."""
    ONLINE = "online"
    """It leads or follows."""
    AHEAD = "ahead"
    """Its log has a later leader epoch than the metadata: it neither leads nor follows."""
    OFFLINE = "offline"
    """Its disk or its log failed while it was online."""
    GOING = "going"
    """Nobody finds it, and its log is deleted or kept in one of the next turns."""
    NONE = "none"
    """There is no record of it."""


class Trigger(Enum):
    """What changes a state."""

    ASSIGNED = "the metadata assigns it to this broker"
    ABSENT = "a start does not find its log, and a log dir is offline"
    OPENED = "its log was opened or made"
    NOT_MADE = "no log dir took a new log"
    NOT_FOUND = "its log may be in a log dir that is offline"
    NOT_LOADED = "its log could not be loaded"
    LACKING = "its log is gone or lacks records, and the metadata relies on it"
    FAILED = "its disk or its log failed"
    RETURNED = "its log was loaded again"
    OVERTOOK = "its log has a later leader epoch than the metadata"
    OVERTAKEN = "the metadata has the leader epoch of its log"
    UNASSIGNED = "the metadata has it elsewhere, or its topic is gone"
    REMOVED = "its log was deleted or kept"
    FORGOTTEN = "an earlier replica of its name is still going, or the document has no such partition"


class Transition(NamedTuple):
    """`needs` is what must be true, on the disk or in the metadata, before it."""

    before: tuple[ReplicaState, ...]
    trigger: Trigger
    after: ReplicaState
    needs: str


_S, _T = ReplicaState, Trigger
WITHOUT_LOG: Final = (_S.UNMADE, _S.REFUSED, _S.AWAY, _S.DAMAGED, _S.LOST)
_WITH_LOG: Final = (_S.ONLINE, _S.AHEAD, _S.OFFLINE)
NOT_SERVED: Final = (_S.REFUSED, _S.AWAY, _S.DAMAGED, _S.LOST, _S.AHEAD, _S.OFFLINE)
"""Looked at again every second."""

TRANSITIONS: Final = (
    Transition((_S.NONE,), _T.ASSIGNED, _S.UNMADE, "the topic's document names this broker"),
    Transition((_S.NONE,), _T.ABSENT, _S.AWAY, "all log dirs that are online are loaded"),
    Transition(WITHOUT_LOG, _T.OPENED, _S.ONLINE, "the log is recovered, or is new, empty and has its topic id"),
    Transition(WITHOUT_LOG, _T.NOT_MADE, _S.REFUSED, "nothing"),
    Transition(WITHOUT_LOG, _T.NOT_FOUND, _S.AWAY, "no new log: an empty one would hide the records"),
    Transition(WITHOUT_LOG, _T.NOT_LOADED, _S.DAMAGED, "the files stay as they are"),
    Transition((*WITHOUT_LOG, _S.OFFLINE), _T.LACKING, _S.LOST, "no new log, until the metadata relies on others"),
    Transition((_S.ONLINE, _S.AHEAD), _T.FAILED, _S.OFFLINE, "nobody waits for an answer of this log any more"),
    Transition((_S.OFFLINE, _S.LOST), _T.RETURNED, _S.ONLINE, "the metadata does not count on the failed log"),
    Transition((_S.ONLINE,), _T.OVERTOOK, _S.AHEAD, "nothing"),
    Transition((_S.AHEAD,), _T.OVERTAKEN, _S.ONLINE, "the document with the higher epoch is in the image"),
    Transition((_S.NONE, *WITHOUT_LOG, *_WITH_LOG), _T.UNASSIGNED, _S.GOING, "the image has the document or tombstone"),
    Transition((_S.GOING,), _T.REMOVED, _S.NONE, "the directory has its `-delete` name, or the log is noted as stray"),
    Transition(WITHOUT_LOG, _T.FORGOTTEN, _S.NONE, "it has no log here"),
)
_AFTER: Final = {(before, each.trigger): each.after for each in TRANSITIONS for before in each.before}


class ReplicaRecord:
    """One replica. `partition` serves it, from the first time that it has a log."""

    __slots__ = ("ahead_since_s", "partition", "state", "topic_id", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, topic_id: UUID) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.state = ReplicaState.NONE
        self.partition: Partition | None = None
        self.ahead_since_s = 0.0
        """By the clock that nobody sets."""


class ReplicaStates:
    """The records by name: of each name at most one that is going, and one that is assigned to this broker."""

    def __init__(self) -> None:
        self._by_state: dict[ReplicaState, dict[TopicPartition, ReplicaRecord]] = {each: {} for each in ReplicaState}
        self._assigned: dict[TopicPartition, ReplicaRecord] = {}

    def get(self, topic_partition: TopicPartition) -> ReplicaRecord | None:
        """The one that is assigned to this broker."""
        return self._assigned.get(topic_partition)

    def is_unmade(self, topic_partition: TopicPartition) -> bool:
        """True if it is to be made in the next turns of the loop."""
        return topic_partition in self._by_state[ReplicaState.UNMADE]

    def hosted(self, topic_partition: TopicPartition) -> ReplicaRecord:
        """The one of a partition that is here."""
        return self._assigned[topic_partition]

    def going(self, topic_partition: TopicPartition) -> ReplicaRecord | None:
        """The one whose log is still to be removed."""
        return self._by_state[ReplicaState.GOING].get(topic_partition)

    def of(self, *states: ReplicaState) -> list[ReplicaRecord]:
        """Those in one of these states, the longest first in each."""
        return [record for state in states for record in self._by_state[state].values()]

    def first(self, state: ReplicaState) -> ReplicaRecord | None:
        """The one that is longest in a state."""
        return next(iter(self._by_state[state].values()), None)

    def begin(self, topic_partition: TopicPartition, topic_id: UUID, trigger: Trigger) -> ReplicaRecord:
        """A record of a replica that has none."""
        record = ReplicaRecord(topic_partition, topic_id)
        self.change(record, trigger)
        return record

    def change(self, record: ReplicaRecord, trigger: Trigger) -> None:
        """Go to the next state, as the table says."""
        where, before = record.topic_partition, record.state
        after = _AFTER.get((before, trigger))
        assert after is not None, f"{where} is {before.value}, where nothing is known of: {trigger.value}"
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
