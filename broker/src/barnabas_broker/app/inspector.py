"""Looks into clients' batches off the event loop."""

import asyncio

from barnabas_broker.storage.inspection import inspect_batch
from barnabas_core.config.log_config import LogConfig


class ThreadInspector:
    """In a thread: decompression lets the loop run meanwhile."""

    async def inspect(self, batch: bytes, config: LogConfig) -> bytes:
        """The batch as the topic stores it. ApiError."""
        return await asyncio.to_thread(inspect_batch, batch, config)
