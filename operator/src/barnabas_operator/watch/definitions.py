"""Definitions that are deleted and applied again while the operator runs."""

import asyncio
from typing import Any, Final

from kopf._cogs.clients import scanning

from barnabas_operator.resources.object_meta import GROUP

PUBLISHED_S: Final = 1.0
"""The API server tells of a definition a moment before it lists its kind among those that it serves."""

_scan_resources: Final = scanning.scan_resources


async def _scan_when_published(**asked: Any) -> Any:
    if asked.get("groups") == {GROUP}:
        await asyncio.sleep(PUBLISHED_S)
    return await _scan_resources(**asked)


def look_again_late() -> None:
    """Has kopf wait before it looks what is served, which it does once for each change of a definition.

    At once is too early: the kind would not be among what it finds, and it would not look again
    (docs/decisions/operator-libraries.md).
    """
    scanning.scan_resources = _scan_when_published
