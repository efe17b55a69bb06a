"""Changes of manifest files on a real disk."""

import asyncio
from pathlib import Path

import pytest

from barnabas_operator.app.up import changes
from harness.deadline import PATIENCE_S


async def first_change(path: Path) -> bool:
    async for _ in changes(path):
        return True
    return False


@pytest.mark.parametrize("name", ["topics.yaml", "topics.txt"])
async def test_a_change_of_a_file_is_seen_whatever_its_suffix(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_text("before")
    seen = asyncio.create_task(first_change(file))
    async with asyncio.timeout(PATIENCE_S):
        while not seen.done():
            file.write_text("after")
            await asyncio.wait([seen], timeout=1)
    assert seen.result()
