"""The policy for logs of partitions that are not assigned to this broker.

A log is deleted if the metadata has a tombstone with the log's topic id. A log is also deleted if the topic's metadata
is not older than the log, and assigns the partition to other brokers. An empty log without a topic id, as a power cut
may leave behind, is deleted, too. All other logs stay in place as stray logs, because an older copy of the metadata may
have been restored, or somebody may have deleted a topic's metadata by hand. `barnabas restore-metadata` restores topics
of stray logs, `barnabas forget-topic` writes tombstones.
"""

import logging
import sys
from contextlib import suppress
from typing import Final
from uuid import UUID

from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.storage.errors import StorageError
from barnabas_broker.storage.log_dirs.log_dir_loader import StrayLog
from barnabas_broker.storage.log_dirs.log_manager import LogManager
from barnabas_broker.storage.logs.log import Log
from barnabas_core.loop_turns import FairTurn
from barnabas_core.topic_partition import TopicPartition

log = logging.getLogger(__name__)


def assigned_partition(image: MetadataImage, broker_id: int, topic_id: UUID, number: int) -> TopicPartition | None:
    """Return the partition with this topic id and number, None if the partition is not assigned to this broker."""
    document = image.topics.get(image.topic_name(topic_id) or "")
    if document is None or number >= len(document.partitions):
        return None
    is_here = broker_id in document.partitions[number].replicas
    return TopicPartition(document.name, number) if is_here else None


def only_topic(image: MetadataImage, name: str) -> UUID | None:
    """Return the id of the topic that a log without partition.metadata belongs to.

    Return None if the log may belong to a deleted topic of the same name. Without a tombstone of that name, the log
    belongs to the present topic: a deleted topic has a tombstone while a broker that may have its log is down.
    """
    document = image.topics.get(name)
    had_earlier = any(tombstone.name == name for tombstone in image.tombstones.values())
    return None if document is None or had_earlier else document.topic_id


def why_kept(
    image: MetadataImage, topic_partition: TopicPartition, topic_id: UUID | None, latest_epoch: int
) -> str | None:
    """Return the reason to keep the log of an unassigned partition, None to delete the log.

    `latest_epoch` is the latest leader epoch in the log.
    """
    name, number = topic_partition
    document = image.topics.get(name)
    if topic_id in image.tombstones:
        return None
    if document is None:
        return f"the metadata has no topic {name}, and does not say that the topic of the log was deleted"
    if topic_id not in (None, document.topic_id):
        return f"topic {name} has another topic id, and the metadata does not say that the log's topic was deleted"
    if number >= len(document.partitions):
        return f"the metadata has only {len(document.partitions)} partitions of topic {name}"
    state = document.partitions[number]
    if state.leader_epoch < latest_epoch:
        return f"leader epoch {state.leader_epoch} in the metadata is older than leader epoch {latest_epoch} in the log"
    if 0 <= latest_epoch < state.restored_epoch:
        return f"the metadata of topic {name} was restored while this broker was down"
    return None


class StrayLogPolicy:
    """The policy that deletes or keeps the logs of unassigned partitions."""

    def __init__(self, broker_id: int, logs: LogManager, image: MetadataImage) -> None:
        self._broker_id: Final = broker_id
        self._logs = logs
        self._image = image
        self._refused: set[str] = set()
        """The logs whose removal has failed since the last call of `sweep` began."""
        self._reported: set[str] = set()

    @property
    def is_sweep_due(self) -> bool:
        """True if a removal has failed, so that another call of `sweep` may succeed."""
        return bool(self._refused)

    async def sweep(self, turn: FairTurn) -> None:
        """Apply the policy to all loaded, damaged and stray logs."""
        self._reported, self._refused = self._refused, set()
        async for stray in turn.over(self.deleted_strays()):
            self.delete_stray(stray)
        async for topic_partition in turn.over(self._logs.logs):
            found = self._logs.get(topic_partition)
            is_unwanted = found is not None and (
                found.topic_id in self._image.tombstones or not self._is_assigned(topic_partition)
            )
            if found is not None and is_unwanted:
                self.remove(topic_partition, found.topic_id)
        async for topic_partition in turn.over(self._logs.failed):
            for topic_id in self._damaged_ids(topic_partition):
                if topic_id in self._image.tombstones or not self._is_assigned(topic_partition):
                    self.remove(topic_partition, topic_id)

    def _damaged_ids(self, topic_partition: TopicPartition) -> set[UUID]:
        """Return the readable topic ids of the damaged logs with this partition name."""
        found = set()
        for log_dir in self._logs.log_dirs:
            if log_dir.is_online and topic_partition in log_dir.damaged:
                with suppress(StorageError):
                    found.add(self._logs.strays.damaged_id(log_dir, topic_partition))
        return {each for each in found if each is not None}

    def _damaged_epoch(self, topic_partition: TopicPartition) -> int:
        """Return the latest leader epoch in the damaged logs of a partition.

        Return sys.maxsize if a log's epochs cannot be read, -1 if the partition has no damaged log.
        """
        dirs = [each for each in self._logs.log_dirs if topic_partition in each.damaged]
        epochs = [self._logs.strays.damaged_epoch(each, topic_partition) for each in dirs]
        return max((sys.maxsize if each is None else each for each in epochs), default=-1)

    def is_untaken(self, topic_partition: TopicPartition, topic_id: UUID) -> bool:
        """True if this broker has a loaded or damaged log of an unassigned partition with this topic id."""
        found = self._logs.get(topic_partition)
        if found is not None:
            return found.topic_id == topic_id
        return topic_id in self._damaged_ids(topic_partition)

    def remove_untaken(self, topic_partition: TopicPartition, topic_id: UUID) -> None:
        """Delete the log of an unassigned partition or keep it as a stray log; do nothing if there is no log."""
        if self.is_untaken(topic_partition, topic_id):
            self.remove(topic_partition, topic_id)

    def _is_assigned(self, topic_partition: TopicPartition) -> bool:
        """True if a partition with this name is assigned to this broker, whatever its topic id is."""
        document, number = self._image.topics.get(topic_partition.topic), topic_partition.partition
        if document is None or number >= len(document.partitions):
            return False
        return self._broker_id in document.partitions[number].replicas

    def deleted_strays(self) -> list[StrayLog]:
        """Return the stray logs whose topics have a tombstone."""
        return [stray for stray in self._logs.strays if stray.topic_id in self._image.tombstones]

    def delete_stray(self, stray: StrayLog) -> None:
        """Delete a stray log; the caller has found a tombstone of its topic."""
        in_place = self._logs.get(stray.topic_partition)
        if in_place is not None and in_place.directory == stray.directory:
            self.remove(stray.topic_partition, stray.topic_id)
            return
        try:
            self._logs.strays.delete(stray)
        except StorageError as error:
            self._is_refused(stray.directory, error)

    def remove(self, topic_partition: TopicPartition, topic_id: UUID | None) -> None:
        """Remove the log of a partition that left this broker.

        Keep it as a stray log if `why_kept` returns a reason; otherwise delete it. Do nothing if the log belongs to
        another topic of the same name.
        """
        try:
            found = self._logs.get(topic_partition)
            if found is not None and topic_id is not None and found.topic_id not in (None, topic_id):
                return
            latest_epoch = self._damaged_epoch(topic_partition) if found is None else found.epochs.latest_epoch
            why = why_kept(self._image, topic_partition, topic_id, latest_epoch)
            if why is None or (found is not None and found.topic_id is None and found.log_end_offset == 0):
                self._delete(topic_partition, found)
            else:
                self._keep(topic_partition, found, why)
        except StorageError as error:
            self._is_refused(str(topic_partition), error)

    def _delete(self, topic_partition: TopicPartition, found: Log | None) -> None:
        if found is not None:
            self._logs.strays.forget(found)
        log.info("the log of %s is deleted, because the partition is no longer on this broker", topic_partition)
        self._logs.delete(topic_partition)

    def _keep(self, topic_partition: TopicPartition, found: Log | None, why: str) -> None:
        self._logs.moves.stop(topic_partition)
        if found is not None:
            self._logs.strays.keep(found, why)

    def _is_refused(self, what: str, error: StorageError) -> None:
        if what not in self._reported:
            log.error("the log %s cannot be removed; the broker will try again: %s", what, error)
        self._refused.add(what)
