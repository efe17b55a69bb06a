"""The callers that wait for a revision of the metadata image, or for a condition on the image."""

import asyncio
import heapq
from collections.abc import Callable


class ImageWaiters:
    """The callers that wait until a metadata image reaches a state; used only on the event loop's thread."""

    def __init__(self) -> None:
        self._for_revisions: list[tuple[int, int, asyncio.Future[None]]] = []
        self._count = 0
        self._for_conditions: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    async def reached(self, revision: int) -> None:
        """Wait until `wake` is called with `revision` or a later revision."""
        waiter = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._for_revisions, (revision, self._count, waiter))
        await waiter

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a call of `wake` finds `condition` true."""
        waiter = asyncio.get_running_loop().create_future()
        self._for_conditions.append((condition, waiter))
        await waiter

    def wake(self, revision: int, *, is_put_back: bool) -> None:
        """Wake the callers that wait for `revision` or an earlier one, and the callers whose condition is now true.

        `is_put_back` is True if an older copy of the store was restored. Then the revisions have gone back, so all
        callers that wait for any revision are woken.
        """
        while self._for_revisions and (is_put_back or self._for_revisions[0][0] <= revision):
            waiter = heapq.heappop(self._for_revisions)[2]
            if not waiter.done():
                waiter.set_result(None)
        for _, waiter in [each for each in self._for_conditions if not each[1].done() and each[0]()]:
            waiter.set_result(None)
        self._for_conditions = [each for each in self._for_conditions if not each[1].done()]
