"""Looks into clients' batches for topics that are compacted or have a codec of their own, beside the event loop."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from barnabas_broker.storage.cleaner.helper import Helper, HelperDied
from barnabas_broker.storage.cleaner.inspection import inspect_batch, inspection
from barnabas_broker.storage.cleaner.requests import InspectBatch, Inspected, Refused, Response
from barnabas_broker.wire.compression import Codec
from barnabas_broker.wire.record_batch import BatchHeader, parse_header
from barnabas_core.clock import Clock
from barnabas_core.config.log_config import LogConfig
from barnabas_core.errors import ApiError, ErrorCode

_logger: Final = logging.getLogger(__name__)
RECORDS_HERE_MAX: Final = 64
"""So many uncompressed records are looked through in 0.1 ms; to ask the helper takes this process 0.17 ms."""
BYTES_IN_FLIGHT_MAX: Final = 64 * 1024 * 1024
ANSWER_S_MAX: Final = 25.0
"""Less than a producer's request.timeout.ms of 30 s."""
_ATTEMPTS: Final = 2


class BatchInspector:
    """`helper` is a process of its own: a round of compaction takes too long to wait for."""

    def __init__(self, helper: Helper, clock: Clock) -> None:
        self._helper = helper
        self._clock = clock
        self._bytes_in_flight = 0
        self._fewer_bytes = asyncio.Condition()

    async def inspect(self, batch: bytes, config: LogConfig) -> bytes:
        """The batch as it is to be stored: with the topic's codec, every record with a key where that must be.

        Its header has been checked. ApiError when the records are at fault, a retriable one when the helper is.
        """
        request = inspection(batch, config, self._clock.now_ms())
        header = parse_header(batch, 0)
        keeps_codec = request.codec is None or request.codec == header.compression
        if keeps_codec and not request.requires_keys:
            return batch
        if keeps_codec and _is_quick(header):
            answer: Response = inspect_batch(request)
        else:
            async with self._in_flight(len(batch)):
                answer = await self._ask(request)
        return _stored(batch, answer)

    async def stop(self) -> None:
        """End the helper process."""
        await self._helper.stop()

    @asynccontextmanager
    async def _in_flight(self, size_bytes: int) -> AsyncIterator[None]:
        """Wait until there is room for so many bytes; a batch that is larger than all of it goes alone."""
        async with self._fewer_bytes:
            await self._fewer_bytes.wait_for(
                lambda: not self._bytes_in_flight or self._bytes_in_flight + size_bytes <= BYTES_IN_FLIGHT_MAX
            )
            self._bytes_in_flight += size_bytes
        try:
            yield
        finally:
            self._bytes_in_flight -= size_bytes
            async with self._fewer_bytes:
                self._fewer_bytes.notify_all()

    async def _ask(self, request: InspectBatch) -> Response:
        """Twice, for the helper may have died of another batch."""
        reason = ""
        for _ in range(_ATTEMPTS):
            try:
                async with asyncio.timeout(ANSWER_S_MAX):
                    return await self._helper.request(request)
            except (HelperDied, OSError) as error:
                reason = str(error)
            except TimeoutError:
                await self._helper.stop()
                reason = f"no answer in {ANSWER_S_MAX} s"
                break
        _logger.error("a batch of %d bytes could not be looked into: %s", len(request.batch), reason)
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"the batch could not be looked into: {reason}; try again")


def _is_quick(header: BatchHeader) -> bool:
    return header.compression == Codec.NONE and header.record_count <= RECORDS_HERE_MAX


def _stored(batch: bytes, answer: Response) -> bytes:
    if isinstance(answer, Refused):
        raise ApiError(ErrorCode(answer.code), answer.message)
    if isinstance(answer, Inspected):
        return batch if answer.batch is None else answer.batch
    raise ApiError(ErrorCode.INVALID_RECORD, f"the batch could not be looked into: {answer}")
