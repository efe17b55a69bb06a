"""The brokers that died a moment ago, which Metadata responses still list.

A client of librdkafka ends everything that it does with a broker as soon as the broker leaves Metadata. A request that
waits for this broker as its coordinator then waits forever (librdkafka 2.16), and partitions without a broker are only
examined once a second. Kafka lists a dead broker until its session has expired, in which time clients reconnect in vain
and ask for the new coordinator. Here a broker is fenced milliseconds after its process has died, and its partitions
have new leaders at once. So Metadata lists the broker for the time of a session after that. Nothing else does: a
departed broker is never named as a leader, as a coordinator or as the controller.
"""

from collections.abc import Collection
from typing import Final

from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.image.shown_documents import ImageChange
from barnabas_core.clock import Clock, monotonic_ms

NOBODY: Final[Collection[int]] = frozenset()


class DepartedBrokers:
    """The times at which this broker learned that others are dead; brokers that stopped in order are not included."""

    def __init__(self, image: MetadataImage, clock: Clock, session_ms: int) -> None:
        self._image = image
        self._clock = clock
        self._session_ms = session_ms
        self._live = image.live
        self._fenced_ms: dict[int, int] = {}
        image.subscribe(self._changed)

    def ids(self) -> Collection[int]:
        """Return the ids of the brokers that were fenced less than a session ago, and are still fenced."""
        if not self._fenced_ms:
            return NOBODY
        since_ms = monotonic_ms(self._clock) - self._session_ms
        self._fenced_ms = {each: at_ms for each, at_ms in self._fenced_ms.items() if at_ms > since_ms}
        return self._fenced_ms.keys()

    def _changed(self, change: ImageChange) -> None:
        before, self._live = self._live, self._image.live
        for broker_id in change.brokers:
            found = self._image.brokers.get(broker_id)
            if found is None or not found.fenced or found.is_shutting_down:
                self._fenced_ms.pop(broker_id, None)
            elif broker_id in before:
                self._fenced_ms[broker_id] = monotonic_ms(self._clock)
