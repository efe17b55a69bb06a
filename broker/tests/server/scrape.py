"""A page of metrics as one text."""

import asyncio
from collections.abc import Iterable

from barnabas_broker.server.metrics.exposition import Family, render


def scrape(families: Iterable[Family]) -> str:
    """Return the page that Prometheus would get."""

    async def page() -> bytes:
        return b"".join([data async for data in render(families)])

    return asyncio.run(page()).decode()


def shown(families: Iterable[Family]) -> dict[str, str]:
    """Return the values by name and labels."""
    return dict(line.rsplit(" ", 1) for line in scrape(families).splitlines() if not line.startswith("#"))
