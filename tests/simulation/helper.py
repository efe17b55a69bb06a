"""The helper process of compaction, without the process."""

import asyncio
from random import Random
from typing import Final

from barnabas_broker.storage.disk.files import FileSystem
from barnabas_broker.storage.helper import HelperDied, MapKeys, Request, Response
from barnabas_broker.storage.helper_worker import Worker

DELAYS_S: Final = (0.0, 0.01, 0.1)
MAP_DELAYS_S: Final = (0.01, 0.3, 1.0)
"""The delays of answers: the map of keys is made from all dirty records, a new segment from a few old ones."""
DEATH_SHARE: Final = 0.03
"""The share of requests whose work is done, but whose process ends before it answers."""


class SimulatedHelper:
    """A helper that answers as `Helper` does, some time after the work was done: meanwhile the log may change."""

    def __init__(self, files: FileSystem, random: Random) -> None:
        self.starts = 1
        self.signs_of_life = 0
        self.is_asked = False
        """True if somebody waits for an answer."""
        self._files = files
        self._random = random
        self._worker = self._start()

    def _start(self) -> Worker:
        return Worker(self._files, lambda _: None)

    async def request(self, request: Request) -> Response:
        """Return the answer. Raises HelperDied: the next request finds a process without a map of keys."""
        self.is_asked = True
        answer = await asyncio.to_thread(self._worker.answer, request)
        await asyncio.sleep(self._random.choice(MAP_DELAYS_S if isinstance(request, MapKeys) else DELAYS_S))
        self.is_asked = False
        if self._random.random() < DEATH_SHARE:
            self._worker = self._start()
            self.starts += 1
            raise HelperDied("the simulated helper process was killed")
        return answer

    async def stop(self) -> None:
        """End nothing."""
