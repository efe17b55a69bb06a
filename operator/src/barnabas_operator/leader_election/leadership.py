"""The leadership of this operator, which is checked before each write, so that two operators never act together."""

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Self

from barnabas_operator.planning.lease import DURATION_S, RENEW_S


class NotLeading(Exception):
    """The error that a write was not sent, because the lease is not held, or may expire before the write ends."""


class Leadership:
    """The leadership of one operator. Its methods may be called in any thread.

    `clock` is a monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._acts_until_s = -math.inf
        self._ends_at_s = -math.inf
        self._under_way = 0
        self._lock = threading.Lock()

    @classmethod
    def without_others(cls) -> Self:
        """Return the leadership of a single operator, which is always the leader."""
        alone = cls(lambda: 0.0)
        alone._acts_until_s = alone._ends_at_s = math.inf
        return alone

    @property
    def is_held(self) -> bool:
        """True if this operator may begin writes: it acquired or renewed the lease within the last RENEW_S seconds."""
        return self._clock() < self._acts_until_s

    @property
    def acts_for_s(self) -> float:
        """The seconds left in which writes may begin if the lease is not renewed; negative if no write may begin."""
        return self._acts_until_s - self._clock()

    @property
    def ended(self) -> bool:
        """True if every write that has begun has ended, or the lease has expired."""
        with self._lock:
            return not self._under_way or self._clock() >= self._ends_at_s

    def renewed(self, asked_at_s: float) -> None:
        """Extend the leadership. Its time runs from `asked_at_s`, when the request for the lease was sent."""
        with self._lock:
            self._acts_until_s, self._ends_at_s = asked_at_s + RENEW_S, asked_at_s + DURATION_S

    def stop(self) -> None:
        """Forbid new writes until `renewed` is called."""
        with self._lock:
            self._acts_until_s = -math.inf

    @contextmanager
    def writing(self, needs_s: float = 0.0) -> Iterator[float]:
        """Begin a write of at most `needs_s`; yield the seconds until the lease expires, in which the write must end.

        Raises NotLeading if another operator is the leader, or the lease expires too soon.
        """
        with self._lock:
            left_s = self._ends_at_s - self._clock()
            if not self.is_held:
                raise NotLeading("another operator is the leader, or this operator could not renew its lease")
            if left_s < needs_s:
                raise NotLeading(f"the lease ends in {left_s:.1f} s, but the request may take {needs_s:.1f} s")
            self._under_way += 1
        try:
            yield left_s
        finally:
            with self._lock:
                self._under_way -= 1


ALONE: Final = Leadership.without_others()
