"""The repair of the metadata store from the metadata image of a broker: missing or outdated documents are rewritten.

A metadata document that vanished although nobody deleted the document is lost (`MetadataImage.lost`). The controller
rewrites lost documents at once. The other brokers wait a moment, and then rewrite the documents that are still lost,
because a controller that has just started may not have had these documents in its image.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from barnabas_broker.metadata.controller.transitions import Planned, Transitions
from barnabas_broker.metadata.image.image_change import ImageChange
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_core.errors import ApiError
from barnabas_core.steps import Steps

OTHERS_FIRST_S: Final = 1.0
RETRY_S: Final = 1.0
NAMED_MAX: Final = 5

log = logging.getLogger(__name__)


class Restorations:
    """The task, on every broker, of rewriting metadata documents that the metadata store has lost."""

    def __init__(
        self,
        image: MetadataImage,
        transitions: Transitions,
        is_controller: Callable[[], bool],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._image = image
        self._transitions = transitions
        self._is_controller = is_controller
        self._sleep = sleep
        self._woken = asyncio.Event()
        self._steps = Steps()
        self.progress = self._steps.progress

    async def run(self) -> None:
        """Rewrite metadata documents that the metadata store has lost, until the task is cancelled."""
        self._image.subscribe(self._image_changed)
        while True:
            if not self._image.lost:
                await self._woken.wait()
            self._woken.clear()
            await self._steps.count(self._go_round())

    async def _go_round(self) -> None:
        if self._image.lost and not self._is_controller():
            await self._sleep(OTHERS_FIRST_S)
        await self._write_anew()
        if self._image.lost:
            await self._sleep(RETRY_S)

    def _image_changed(self, change: ImageChange) -> None:
        if change.lost:
            self._woken.set()

    async def _write_anew(self) -> None:
        image = self._image

        def decide(keys: Sequence[str]) -> dict[str, Planned | ApiError]:
            return {key: Planned(key, image.lost[key]) for key in keys if key in image.lost}

        outcomes = await self._transitions.carry_out(list(image.lost), decide)
        written = [key for key, outcome in outcomes.items() if isinstance(outcome, Planned)]
        self._image.restored_total += len(written)
        if written:
            named = ", ".join(written[:NAMED_MAX]) + (" and others" if len(written) > NAMED_MAX else "")
            log.error(
                "%d documents of the metadata store were missing or out of date, and were written again: %s",
                len(written),
                named,
            )
