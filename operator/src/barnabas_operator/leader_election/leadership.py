"""The leadership: whether this operator may act now. Each write asks: two that act would undo each other's work."""

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Self

from barnabas_operator.planning.lease import DURATION_S, RENEW_S


class NotLeading(Exception):
    """The error that another operator acts, or will soon: nothing was sent."""


class Leadership:
    """The leadership of one operator. Threads that write to Kafka ask as well as coroutines.

    `clock` tells seconds and never goes back.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._acts_until_s = -math.inf
        self._ends_at_s = -math.inf
        self._under_way = 0
        self._lock = threading.Lock()

    @classmethod
    def without_others(cls) -> Self:
        """Return the leadership of an operator that is the only one and asks nobody."""
        alone = cls(lambda: 0.0)
        alone._acts_until_s = alone._ends_at_s = math.inf
        return alone

    @property
    def is_held(self) -> bool:
        """True if this operator holds the lease, and so acts."""
        return self._clock() < self._acts_until_s

    @property
    def acts_for_s(self) -> float:
        """The seconds for which it acts without another renewal."""
        return self._acts_until_s - self._clock()

    @property
    def ended(self) -> bool:
        """True if every write that began as the holder has ended, or the lease has expired anyway."""
        with self._lock:
            return not self._under_way or self._clock() >= self._ends_at_s

    def renewed(self, asked_at_s: float) -> None:
        """The lease was taken or renewed by a request that was sent then: others count from later on."""
        with self._lock:
            self._acts_until_s, self._ends_at_s = asked_at_s + RENEW_S, asked_at_s + DURATION_S

    def stop(self) -> None:
        """Let no write begin from now on."""
        with self._lock:
            self._acts_until_s = -math.inf

    @contextmanager
    def writing(self, needs_s: float = 0.0) -> Iterator[float]:
        """One write that ends in `needs_s`, or in the seconds that it is given: before others act.

        Raises NotLeading.
        """
        with self._lock:
            left_s = self._ends_at_s - self._clock()
            if not self.is_held:
                raise NotLeading("another operator acts, or this one could not renew its lease")
            if left_s < needs_s:
                raise NotLeading(f"the lease ends in {left_s:.1f} s, and a request may take {needs_s:.1f} s")
            self._under_way += 1
        try:
            yield left_s
        finally:
            with self._lock:
                self._under_way -= 1


ALONE: Final = Leadership.without_others()
