"""The ends of this broker's logs, as its log manager has them: for `metadata.log_ends`.

They are reported soon if a partition has no leader any more: somebody may choose the longest log of those that live,
and a report of minutes ago could make a shorter one look longer.
"""

import logging
from collections.abc import Iterator
from typing import Final

from barnabas_broker.app.chores import Chore
from barnabas_broker.metadata.image.image_change import ImageChange
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.membership.log_ends import HeldLog, LogEnds
from barnabas_broker.metadata.model import NO_LEADER, TopicDocument
from barnabas_broker.metadata.store.metadata_store import MetadataStore, StoreUnavailable
from barnabas_broker.storage.errors import StorageError
from barnabas_broker.storage.log_dirs.log_lookup import kept_by
from barnabas_broker.storage.log_dirs.log_manager import LogManager
from barnabas_core.fair_turns import next_turn

TOLD_S: Final = 300.0
"""The age that the last known end of a partition with a leader may have."""
LEADERLESS_S: Final = 2.0
"""The age that the last known end of a partition without a leader may have."""

log = logging.getLogger(__name__)


class LogEndReports:
    """The reports of this broker's log ends: at a start (`LogEnds`), by a chore, and at a clean shutdown."""

    def __init__(self, broker_id: int, store: MetadataStore, image: MetadataImage, logs: LogManager) -> None:
        self._log_ends = LogEnds(broker_id, store, image, lambda: held_logs(logs, image), next_turn)
        self.begin_incarnation = self._log_ends.begin_incarnation
        self.admitted = self._log_ends.admitted
        self._broker_id = broker_id
        self._strays = logs.strays
        self._strays_told = 0
        self._leaderless: dict[str, frozenset[int]] = {}
        """The partitions here that have no leader, by topic."""
        self._is_due = False
        image.subscribe(self._image_changed)

    def chores(self) -> list[Chore]:
        """The chores that report how far the logs of this broker reach."""
        return [
            Chore("log ends", TOLD_S, self.tell),
            Chore("log ends of partitions without a leader", LEADERLESS_S, self.tell_of_leaderless),
        ]

    def _image_changed(self, change: ImageChange) -> None:
        for topic in change.deleted:
            self._leaderless.pop(topic.name, None)
        for topic in (*change.created, *change.changed):
            before, now = self._leaderless.pop(topic.name, frozenset()), self._leaderless_of(topic)
            if now:
                self._leaderless[topic.name] = now
            self._is_due |= not now <= before

    def _leaderless_of(self, topic: TopicDocument) -> frozenset[int]:
        states = enumerate(topic.partitions)
        return frozenset(n for n, state in states if state.leader == NO_LEADER and self._broker_id in state.replicas)

    async def tell_of_leaderless(self) -> None:
        """Report, if others are leaderless than at the last report, or other logs are unknown to the metadata."""
        if self._is_due or self._strays_told != len(self._strays):
            self._strays_told = len(self._strays)
            self._is_due = False
            await self.tell()

    async def tell(self) -> None:
        """Report; if the store does not answer, the ends are reported again later."""
        try:
            await self._log_ends.tell()
        except StoreUnavailable as error:
            log.warning("the metadata store does not answer; the log ends could not be reported: %s", error)


def held_logs(logs: LogManager, image: MetadataImage) -> Iterator[HeldLog]:
    """Yield all online logs, each as it is when the caller asks for it.

    A log without a stored topic id belongs to the current topic of its name.
    """
    for where in logs.logs:
        held, document = logs.get(where), image.topics.get(where.topic)
        if held is None:  # The partition was removed in another turn of the loop.
            continue
        topic_id = held.topic_id or (document.topic_id if document is not None else None)
        if topic_id is not None:
            try:
                end = held.epochs.latest_epoch, held.log_end_offset
            except StorageError:  # Its disk has failed, so nothing is reported of it.
                continue
            yield HeldLog(where.topic, topic_id, where.partition, *end, kept_by(logs.log_dirs, held))
