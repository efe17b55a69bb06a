"""The helper process, which answers the broker's requests one by one, at low priority and with limited memory.

It is run as `python -m barnabas_broker.storage.helper_worker MEMORY_BYTES_MAX`, with requests on standard input and
responses on standard output. During long work it sends an empty frame every ten seconds, which shows that it is not
stuck. It ends when the broker closes the pipe or dies, even in the middle of a request.
"""

import logging
import os
import pickle
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import IO, Any, Final

from barnabas_broker.storage.cleaner.cleaned_segment import (
    BatchFilter,
    OffsetMap,
    Pacer,
    RoundTransactions,
    clean_segments,
    map_keys,
)
from barnabas_broker.storage.disk.files import FileSystem, PosixFileSystem
from barnabas_broker.storage.errors import InvalidBatch, SyncFailed
from barnabas_broker.storage.helper import (
    LENGTH,
    SIGN_OF_LIFE,
    CleanSegments,
    Failed,
    InspectBatch,
    KeysMapped,
    MapKeys,
    Request,
    Response,
    SegmentCleaned,
    frame,
)
from barnabas_broker.storage.inspection import inspect_batch

_logger: Final = logging.getLogger(__name__)
NICENESS: Final = 10
WAIT_S_MAX: Final = 3600.0
SIGN_OF_LIFE_S: Final = 10.0
"""The interval in seconds at which the process sends empty frames during long work."""
OOM_SCORE: Final = 500
"""The OOM score that makes the kernel kill this process before the broker; only the current request is then lost."""


class CleanerThrottle:
    """The pauses that limit the rate of reads and writes to `bytes_per_s` (`log.cleaner.io.max.bytes.per.second`)."""

    def __init__(self, bytes_per_s: float, monotonic_s: Callable[[], float]) -> None:
        self._bytes_per_s = bytes_per_s
        self._monotonic_s = monotonic_s
        self._started_s = monotonic_s()
        self._spent_bytes = 0

    def pause_s(self, size_bytes: int) -> float:
        """Count `size_bytes` that were read or written, and return the seconds to wait."""
        self._spent_bytes += size_bytes
        ahead_s = self._spent_bytes / self._bytes_per_s - (self._monotonic_s() - self._started_s)
        return max(ahead_s, 0.0)


class Worker:
    """The handler of requests. It keeps the key map and the transactions between the requests of a compaction."""

    def __init__(self, files: FileSystem, wait: Callable[[float], None]) -> None:
        """Create a worker. `wait` sleeps for some seconds, and raises SystemExit once the broker has ended."""
        self._files = files
        self._wait = wait
        self._offsets: OffsetMap | None = None
        self._transactions = RoundTransactions(())
        self._answers: Mapping[type, Callable[[Any], Response]] = {
            MapKeys: self._map_keys,
            CleanSegments: self._clean_segments,
            InspectBatch: inspect_batch,
        }

    def answer(self, request: Request) -> Response:
        """Return the response, which is a `Failed` after an error. Raises SystemExit if the broker has ended."""
        try:
            return self._answers[type(request)](request)
        except (OSError, InvalidBatch) as error:
            return Failed(str(error), sync_failed=isinstance(error, SyncFailed))
        except MemoryError:
            self._offsets = None
            return Failed("the helper process has too little memory for a batch or for the deduplication buffer")
        except Exception as error:
            _logger.exception("unexpected error in the helper process")
            return Failed(repr(error))

    def _map_keys(self, request: MapKeys) -> KeysMapped:
        self._offsets = None  # Free the previous map first, because two maps need twice the memory.
        self._offsets, mapped = map_keys(self._files, request, self._pace(request.bytes_per_s))
        self._transactions = RoundTransactions(request.aborted)
        return mapped

    def _clean_segments(self, request: CleanSegments) -> SegmentCleaned | Failed:
        if self._offsets is None:
            return Failed("the helper process was restarted during a compaction and has lost its key map")
        batch_filter = BatchFilter(request.rules, self._offsets.get, self._transactions)
        return clean_segments(self._files, request, batch_filter, self._pace(request.bytes_per_s))

    def _pace(self, bytes_per_s: float) -> Pacer:
        throttle = CleanerThrottle(bytes_per_s, time.monotonic)
        return lambda size_bytes: self._wait(throttle.pause_s(size_bytes))


def serve(worker: Worker, requests: IO[bytes], responses: IO[bytes]) -> None:
    """Answer requests until the broker closes the pipe, or dies in the middle of a request."""
    while len(length := requests.read(LENGTH.size)) == LENGTH.size:
        (size_bytes,) = LENGTH.unpack(length)
        request = requests.read(size_bytes)
        if len(request) < size_bytes:
            return
        responses.write(frame(worker.answer(pickle.loads(request))))
        responses.flush()


class PauseBesideTheBroker:
    """A callable that waits for some seconds.

    The process exits if the broker has closed `descriptor`, the standard input. During the wait, empty frames are
    written to `responses`, to show that the process is not stuck.
    """

    def __init__(self, descriptor: int, responses: IO[bytes]) -> None:
        self._poll = select.poll()
        self._poll.register(descriptor, 0)
        self._responses = responses
        self._sent_s = time.monotonic()

    def __call__(self, seconds: float) -> None:
        """Wait for `seconds`, at most an hour. Raises SystemExit if the broker has ended."""
        end_s = time.monotonic() + min(seconds, WAIT_S_MAX)
        while True:
            self._live()
            left_s = max(end_s - time.monotonic(), 0.0)
            if self._poll.poll(min(left_s, SIGN_OF_LIFE_S) * 1000):
                sys.exit("the broker has ended")
            if left_s <= SIGN_OF_LIFE_S:
                return

    def _live(self) -> None:
        if time.monotonic() >= self._sent_s + SIGN_OF_LIFE_S:
            self._sent_s = time.monotonic()
            self._responses.write(SIGN_OF_LIFE)
            self._responses.flush()


def _be_modest(memory_bytes_max: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is meant for the broker, which then stops this process.
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes_max, memory_bytes_max))
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write(str(OOM_SCORE))


def main() -> None:
    """Answer requests on standard input until it is closed."""
    _be_modest(int(sys.argv[1]))
    worker = Worker(PosixFileSystem(), PauseBesideTheBroker(sys.stdin.fileno(), sys.stdout.buffer))
    with suppress(BrokenPipeError):
        serve(worker, sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
