"""The inspection of clients' batches: small batches on the event loop, larger batches in a helper process."""

import logging
from dataclasses import replace
from typing import Final

from barnabas_broker.storage.helper.helper import Helper, HelperDied
from barnabas_broker.storage.helper.requests import InspectBatch, Inspected, Refused, Response
from barnabas_broker.storage.inspection.batch_inspection import (
    inspect_batch,
    inspection,
    topics_codec,
)
from barnabas_broker.storage.inspection.kept_batches import KeptBatches
from barnabas_broker.storage.inspection.record_check import TooManyHeaders
from barnabas_broker.wire.compression import Codec
from barnabas_broker.wire.record_batch import BatchHeader, parse_header
from barnabas_core.clock import Clock, Timeout
from barnabas_core.config.log_config import LogConfig
from barnabas_core.errors import ApiError, ErrorCode

_logger: Final = logging.getLogger(__name__)
RECORDS_HERE_MAX: Final = 64
"""The largest number of records in a batch that is checked on the event loop.

The event loop takes 0.1 ms for so many records, the helper process 0.17 ms.
"""
FIRST_HERE_MAX: Final = 500
"""The largest number of records in a connection's first batch that is checked on the event loop.

The event loop takes 0.7 ms for so many records, but no helper process has to be started.
"""
PACKED_HERE_MAX: Final = 16 * 1024
UNPACKED_HERE_MAX: Final = 128 * 1024
"""The largest decompressed size of a batch that is checked on the event loop (0.1 ms, or 0.4 ms with gzip)."""
HEADERS_A_RECORD_HERE: Final = 8
"""The limit for the average number of headers per record, above which a batch is checked by the helper process.

Checking a header takes 1 us, and a record of 1 MB may have 500,000 headers.
"""
KEPT_BYTES_MAX: Final = 64 * 1024 * 1024
"""The largest total size of the batches that wait for the helper, which needs one to six seconds for so many bytes.

A single batch may be larger.
"""
ANSWER_S_MAX: Final = 25.0
"""The longest time in seconds to wait until the helper process has checked a batch.

Producers wait longer for the response to a Produce request: 30 s by the default of request.timeout.ms.
"""
_ATTEMPTS: Final = 2


class BatchRefused(ApiError):
    """A batch with invalid records. `record_errors` lists them; if it is empty, the whole batch is invalid.

    `is_broken` is True if the bytes cannot be parsed as records.
    """

    def __init__(self, refused: Refused) -> None:
        super().__init__(ErrorCode(refused.code), refused.message)
        self.record_errors = refused.record_errors
        self.is_broken = refused.is_broken


class CannotInspect(ApiError):
    """The error for a batch that could not be checked. The batch may be valid, so the error is retriable."""


class BatchInspector:
    """The checks of clients' batches.

    They have a helper process of their own, so that they need not wait for a compaction in the other helper process.
    """

    def __init__(self, helper: Helper, clock: Clock, timeout: Timeout) -> None:
        self._helper = helper
        self._clock = clock
        self._timeout = timeout
        self.kept = KeptBatches(KEPT_BYTES_MAX, "to be checked")

    def inspect_now(self, batch: bytes, config: LogConfig) -> Inspected | None:
        """Check the records of a batch on the event loop; the batch header must be valid, and `is_quick` true.

        Raises BatchRefused if the batch is invalid. Returns None if only the helper process can check the batch,
        because the batch cannot be decompressed within the limits of the event loop, or its records have too many
        record headers.
        """
        header = parse_header(batch, 0)
        is_packed = header.compression != Codec.NONE
        request = inspection(batch, config, self._clock.now_ms())
        bytes_max = min(request.unpacked_bytes_max, UNPACKED_HERE_MAX) if is_packed else request.unpacked_bytes_max
        headers_max = HEADERS_A_RECORD_HERE * (header.record_count + 1)
        try:
            answer = inspect_batch(replace(request, unpacked_bytes_max=bytes_max, headers_max=headers_max))
        except TooManyHeaders:
            return None
        return None if is_packed and isinstance(answer, Refused) and answer.is_broken else _accepted(answer)

    @property
    def is_busy(self) -> bool:
        """True while batches wait for the helper."""
        return self.kept.bytes_kept > 0

    async def inspect(self, batch: bytes, config: LogConfig) -> Inspected:
        """Inspect a batch in the helper process.

        Raises BatchRefused if the batch is invalid, CannotInspect if the helper dies or does not answer in time, and
        another ApiError if the check fails with an unexpected error.
        """
        return _accepted(await self._ask(inspection(batch, config, self._clock.now_ms())))

    async def stop(self) -> None:
        """End the helper process."""
        await self._helper.stop()

    async def _ask(self, request: InspectBatch) -> Response:
        """Send the request to the helper process; if the process dies, send it once more to a new process.

        The second attempt is useful because another batch may have killed the process. Raises CannotInspect if the
        second process dies too, or if the helper does not answer in time.
        """
        reason = ""
        for _ in range(_ATTEMPTS):
            try:
                async with self._timeout(ANSWER_S_MAX):
                    return await self._helper.request(request)
            except (HelperDied, OSError) as error:
                reason = str(error)
            except TimeoutError:
                await self._helper.stop()
                reason = f"the helper process gave no answer within {ANSWER_S_MAX} s"
                break
        _logger.error("a batch of %d bytes could not be checked: %s", len(request.batch), reason)
        raise CannotInspect(ErrorCode.REQUEST_TIMED_OUT, f"the batch could not be checked: {reason}; try again")


def is_quick(config: LogConfig, header: BatchHeader, records_max: int) -> bool:
    """True if the event loop can check the batch: small, at most `records_max` records, and no recompression."""
    if topics_codec(config) not in {None, header.compression} or header.record_count > records_max:
        return False
    return header.compression == Codec.NONE or header.length <= PACKED_HERE_MAX


def _accepted(answer: Response) -> Inspected:
    if isinstance(answer, Inspected):
        return answer
    if isinstance(answer, Refused):
        raise BatchRefused(answer)
    raise ApiError(ErrorCode.INVALID_RECORD, f"the batch could not be checked: {answer}")
