"""The functions that the commands for a cluster's metadata store share."""

import argparse
import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

from barnabas_broker.app.loop_turns import SystemClock
from barnabas_broker.app.main import EXIT_CONFIG, EXIT_FAILED, parser_of, read_config
from barnabas_broker.app.wiring import open_store
from barnabas_broker.metadata.documents import AnyDocument
from barnabas_broker.metadata.image import image_feed
from barnabas_broker.metadata.image.metadata_image import MetadataImage, write_in_order, writes_of
from barnabas_broker.metadata.store.metadata_store import MetadataStore, StoreUnavailable
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.config.definitions import INT_MAX, InvalidConfig, MalformedProperties

DRY_RUN: Final = "Nothing was written. To write the changes, run the command again with --execute."


class OpenMetadata(NamedTuple):
    """The current metadata of a cluster, and the store that holds it."""

    image: MetadataImage
    store: MetadataStore
    config: BrokerConfig
    now_ms: int

    async def write(self, documents: Mapping[str, AnyDocument | None]) -> bool:
        """Write each value under its key, and delete the keys with the value None; return False if a key was skipped.

        A key is skipped if it has changed since the metadata was read.
        """
        plans = [writes_of(key, document, self.image) for key, document in documents.items()]
        results = await write_in_order(plans, self.store)
        return all(isinstance(each, int) for each in results.values())


def parser_of_change(command: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the common options of the commands that change the metadata."""
    parser = parser_of(command, description, "the properties file of any broker")
    parser.add_argument(
        "--execute", action="store_true", help="write the changes, which are only printed without this option"
    )
    return parser


def run(options: argparse.Namespace, work: Callable[[OpenMetadata], Awaitable[int]]) -> int:
    """Call `work` with the metadata, and return the exit code of `work`.

    Return EXIT_CONFIG if the settings are invalid, and EXIT_FAILED if the metadata store is unavailable.
    """
    logging.basicConfig(level=logging.ERROR, format="%(message)s", stream=sys.stderr)
    try:
        config = read_config(options.properties, options.override, connections=INT_MAX)
    except (OSError, MalformedProperties, InvalidConfig) as error:
        print(f"{options.properties}: {error}", file=sys.stderr)
        return EXIT_CONFIG
    try:
        return asyncio.run(_with_metadata(config, work))
    except StoreUnavailable as error:
        print(f"metadata.store={config.metadata_store}: {error}", file=sys.stderr)
        return EXIT_FAILED


async def _with_metadata(config: BrokerConfig, work: Callable[[OpenMetadata], Awaitable[int]]) -> int:
    clock, stopping = SystemClock(), asyncio.Event()
    stopping.set()  # If the store does not respond, `open_store` then fails instead of waiting.
    store = await open_store(config.metadata_store, clock, stopping)
    try:
        image = MetadataImage()
        await image_feed.load(image, store)
        return await work(OpenMetadata(image, store, config, clock.now_ms()))
    finally:
        await store.close()


def print_table(rows: Sequence[Sequence[object]]) -> None:
    """Print rows as a table with aligned columns."""
    texts = [[str(each) for each in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for row in texts:
        print("   ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
