"""A consumer that is polled by a separate thread, as every client library needs it."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future

from drivers.interface import Assignment, Received
from harness.deadline import PATIENCE_S


class PolledMember(ABC):
    """See `interface.Member`. Calls run between two polls, because a consumer belongs to one thread."""

    def __init__(self) -> None:
        self._records: list[Received] = []
        self._assignment: Assignment = frozenset()
        self._calls: list[tuple[Future[None], Callable[[], None]]] = []
        self._leaving = threading.Event()
        self._failure: BaseException | None = None
        self._read_s: float | None = None
        self.longest_gap_s = 0.0
        """The longest time between two polls that returned records."""
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @abstractmethod
    def poll(self) -> tuple[list[Received], Assignment]:
        """Wait a fraction of a second; return the new records and the current assignment."""

    @abstractmethod
    def commit_now(self) -> None:
        """Commit the positions."""

    @abstractmethod
    def close(self) -> None:
        """Leave the group."""

    def _run(self) -> None:
        try:
            try:
                self._poll_until_leaving()
            finally:  # Failed consumers, too, or their library looks for the broker for ever.
                self.close()
        except BaseException as error:
            self._failure = error

    def _poll_until_leaving(self) -> None:
        while not self._leaving.is_set():
            records, assignment = self.poll()
            if records:
                self._note_gap(time.monotonic())
            with self._lock:
                self._records += records
                self._assignment = assignment
                calls, self._calls = self._calls, []
            for future, call in calls:
                _complete(future, call)

    def _note_gap(self, now_s: float) -> None:
        if self._read_s is not None:
            self.longest_gap_s = max(self.longest_gap_s, now_s - self._read_s)
        self._read_s = now_s

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def assignment(self) -> Assignment:
        self._check()
        return self._assignment

    def records(self) -> list[Received]:
        self._check()
        with self._lock:
            return list(self._records)

    def commit(self) -> None:
        self._check()
        future: Future[None] = Future()
        with self._lock:
            self._calls.append((future, self.commit_now))
        future.result(PATIENCE_S)

    def leave(self) -> None:
        self._leaving.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the member has not left the group"
        self._check()


def _complete(future: Future[None], call: Callable[[], None]) -> None:
    try:
        call()
        future.set_result(None)
    except BaseException as error:
        future.set_exception(error)
