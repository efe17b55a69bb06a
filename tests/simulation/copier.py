"""A program that copies records to another topic, with their offset, in one transaction.

Two of them have the same transactional id and group: each one that starts fences the other, which is then a zombie.
"""

import asyncio
from contextlib import suppress
from typing import Final

from simulation.clients import Client, Failed
from simulation.committed_reader import CommittedReader
from simulation.transactional_client import Lost, TransactionalClient

ID: Final = "copier"
BATCH: Final = 2
COMMITS_SHARE: Final = 0.8


class Copier:
    """Copies partition 0 of `source` to partition 0 of `target`."""

    def __init__(self, client: Client, source: str, target: str) -> None:
        self._client = client
        self._source = source
        self._target = target
        self._lane = TransactionalClient(client, ID, ID)

    async def run(self) -> None:
        """Copy until this is cancelled."""
        while True:
            await self.copy(is_last=False)
            await asyncio.sleep(self._client.random.uniform(0.5, 3))

    async def copy(self, *, is_last: bool) -> int:
        """Copy until another copier has the id, or `is_last` and all is copied; return the committed offset."""
        with suppress(Lost):
            await self._lane.init()
            reader = await self._reader_where_committed()
            while not (is_last and reader.is_at_end):
                await self._copy_some(reader, aborts=not is_last)
        return await self._lane.committed_offset(self._source)

    async def last_stable_offset(self) -> int:
        """Return the last stable offset of the source."""
        reader = CommittedReader(self._client, self._source, 0)
        while True:
            with suppress(Failed):
                return await reader.last_stable_offset()
            await self._client.pause()

    async def _reader_where_committed(self) -> CommittedReader:
        reader = CommittedReader(self._client, self._source, 0)
        reader.position = max(await self._lane.committed_offset(self._source), 0)
        return reader

    async def _copy_some(self, reader: CommittedReader, *, aborts: bool) -> None:
        began = reader.position
        try:
            values = [value for _, value in await reader.poll()]
        except Failed:
            values = []
        if reader.position == began:
            await self._client.pause()
            return
        for at in range(0, len(values), BATCH):
            await self._lane.write(self._target, 0, values[at : at + BATCH])
        await self._lane.commit_offset(self._source, reader.position)
        commits = not aborts or self._client.random.random() < COMMITS_SHARE
        await self._lane.end(commits=commits)
        if not commits:
            reader.position = began
