"""The reports of this broker's log end offsets to the metadata store (`metadata.log_ends`).

The log ends of a partition that loses its leader are reported soon, because an administrator may elect the live replica
with the longest log, and old reports could be wrong.
"""

import logging
from collections.abc import Iterator
from typing import Final

from barnabas_broker.app.chores import Chore
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.image.shown_documents import ImageChange
from barnabas_broker.metadata.membership.log_ends import HeldLog, LogEnds
from barnabas_broker.metadata.model import NO_LEADER, TopicDocument
from barnabas_broker.metadata.store.metadata_store import MetadataStore, StoreUnavailable
from barnabas_broker.storage.errors import StorageError
from barnabas_broker.storage.log_dirs.log_manager import LogManager
from barnabas_core.fair_turns import next_turn

TOLD_S: Final = 300.0
"""The seconds between two reports of all log ends."""
LEADERLESS_S: Final = 2.0
"""The seconds between checks whether a partition has lost its leader; if so, the broker reports its log ends."""

log = logging.getLogger(__name__)


class LogEndReports:
    """The reporter of this broker's log end offsets to the controller.

    The reports are sent when the broker starts, periodically, and at a clean shutdown.
    """

    def __init__(self, broker_id: int, store: MetadataStore, image: MetadataImage, logs: LogManager) -> None:
        self._log_ends = LogEnds(broker_id, store, image, lambda: held_logs(logs, image), next_turn)
        self.begin_incarnation = self._log_ends.begin_incarnation
        self.admitted = self._log_ends.admitted
        self._broker_id = broker_id
        self._strays = logs.strays
        self._strays_told = 0
        self._leaderless: dict[str, frozenset[int]] = {}
        """The partitions of this broker that have no leader, by topic."""
        self._is_due = False
        image.subscribe(self._image_changed)

    def chores(self) -> list[Chore]:
        """Return the periodic tasks that report this broker's log end offsets to the controller."""
        return [
            Chore("log ends", TOLD_S, self.tell),
            Chore("reports of log ends of partitions without a leader", LEADERLESS_S, self.tell_of_leaderless),
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
        """Report the log ends to the controller if a report is necessary.

        That is so if a partition has lost its leader or the number of stray logs has changed since the last call.
        """
        if self._is_due or self._strays_told != len(self._strays):
            self._strays_told = len(self._strays)
            self._is_due = False
            await self.tell()

    async def tell(self) -> None:
        """Report the log ends; if the metadata store does not respond, the log ends are reported again later."""
        try:
            await self._log_ends.tell()
        except StoreUnavailable as error:
            log.warning("the broker cannot report its log ends, because the metadata store does not respond: %s", error)


def held_logs(logs: LogManager, image: MetadataImage) -> Iterator[HeldLog]:
    """Yield the state of all online logs.

    A log without a stored topic id counts as a log of the current topic with the same name. If no topic has the name,
    the log is left out.
    """
    for where in logs.logs:
        held, document = logs.get(where), image.topics.get(where.topic)
        if held is None:  # The partition was removed while the caller waited.
            continue
        topic_id = held.topic_id or (document.topic_id if document is not None else None)
        if topic_id is not None:
            try:
                end = held.epochs.latest_epoch, held.log_end_offset
            except StorageError:  # The disk of the log has failed.
                continue
            yield HeldLog(where.topic, topic_id, where.partition, *end, logs.kept(held))
