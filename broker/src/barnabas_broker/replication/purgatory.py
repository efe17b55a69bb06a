"""The delayed operations: a Fetch that waits for more bytes, a DeleteRecords that waits until followers delete, too.

When a partition changes, the operations in its wait list are tried again in the next turn of the event loop. A Produce
that waits for replicas is not delayed here, but in the partition's `commit_queue`.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from barnabas_core.clock import Cancellable, Timers


class DelayedOperation(Protocol):
    """A request that waits for a change of a partition, or for its timeout."""

    def try_complete(self, changed: "WaitList") -> bool:
        """Try to answer the request after a change of a partition; return True if the request was answered."""
        ...

    def expire(self) -> None:
        """Answer the request with the results so far, because the request's timeout has passed."""
        ...


class WaitList:
    """The operations that wait for a change of one partition."""

    __slots__ = ("_purgatory", "is_marked", "waiting")

    def __init__(self, purgatory: "Purgatory") -> None:
        self._purgatory = purgatory
        self.waiting: dict[_Waiting, None] = {}
        """The operations, in the order of their arrival."""
        self.is_marked = False

    def mark(self) -> None:
        """Schedule another try of the waiting operations in the next turn of the event loop."""
        if self.waiting and not self.is_marked:
            self.is_marked = True
            self._purgatory.schedule(self)

    def add(self, waiting: "_Waiting") -> None:
        """Add an operation, which is tried again after each change of the partition."""
        self.waiting[waiting] = None

    def remove(self, waiting: "_Waiting") -> None:
        """Remove an operation that no longer waits for the partition."""
        self.waiting.pop(waiting, None)


class _Waiting:
    """A waiting operation with its wait lists and its deadline."""

    __slots__ = ("lists", "operation", "timer")

    def __init__(self, operation: DelayedOperation, lists: tuple[WaitList, ...]) -> None:
        self.operation = operation
        self.lists = lists
        self.timer: Cancellable | None = None

    def leave(self) -> None:
        for wait_list in self.lists:
            wait_list.remove(self)
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def expire(self) -> None:
        self.timer = None
        self.leave()
        self.operation.expire()


class Purgatory:
    """The delayed operations of a broker."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._marked: list[WaitList] = []

    def wait_list(self) -> WaitList:
        """Return a new wait list for one partition."""
        return WaitList(self)

    def watch(self, operation: DelayedOperation, lists: Iterable[WaitList], timeout_s: float) -> Callable[[], None]:
        """Try to complete an operation after each change of its partitions; call `expire` after `timeout_s` seconds.

        Returns a function that ends the wait without a response.
        """
        waiting = _Waiting(operation, tuple(lists))
        for wait_list in waiting.lists:
            wait_list.add(waiting)
        waiting.timer = self._timers.call_later(timeout_s, waiting.expire)
        return waiting.leave

    def schedule(self, wait_list: WaitList) -> None:
        """Schedule another try of the operations that wait for a changed partition."""
        if not self._marked:
            self._timers.call_soon(self._try_marked)
        self._marked.append(wait_list)

    def _try_marked(self) -> None:
        marked, self._marked = self._marked, []
        for wait_list in marked:
            wait_list.is_marked = False
            for waiting in list(wait_list.waiting):
                if waiting.timer is not None and waiting.operation.try_complete(wait_list):
                    waiting.leave()
