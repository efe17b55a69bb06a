"""Brokers of two versions in one cluster, as in an upgrade: one after the other restarts as the newer version.

All run these sources; the difference is made at the store. Documents of a newer broker get fields that these
sources do not know, and an older one registers that it supports only the first level of documents. Each mark is another
number, and stays as long as the document is about the same.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from random import Random
from typing import Any, Final

import msgspec

from barnabas_broker.metadata.documents import FEATURES_KEY, broker_key, topic_key, topic_part_key
from barnabas_broker.metadata.model import NEW_LEVELS, PartReference
from barnabas_broker.metadata.store.metadata_store import ABSENT, Change, VersionConflict, Write
from barnabas_broker.wire.messages import message_class
from barnabas_core.conventions import METADATA_LEVEL
from simulation.clients import Client, Failed
from simulation.loop import Host
from simulation.store import SimulatedStore, StoreState

UPGRADED_SHARE: Final = 0.3
"""The share of the starts of an older broker at which it is upgraded."""
FIRST_LEVEL: Final = 1
MARK: Final = "of_a_newer_version"
BROKERS: Final = "brokers/"
OF_TOPICS: Final = topic_key(""), "partitions/"
LOG_ENDS: Final = "log-ends/"
"""Each incarnation of a broker writes its own document, and all of it each time."""
UPDATE_FEATURES: Final = 57, 1
UPGRADE: Final = 1
ASKED_EACH_S: Final = 2.0

Fields = dict[str, Any]
"""A JSON object."""


def has_two_versions(seed: int) -> bool:
    """True for half of the seeds, evenly over other choices by the seed's number."""
    return seed % 4 < 2


class Versions:
    """The brokers of the newer version: one at first. Nothing else uses `random`."""

    def __init__(self, random: Random, brokers: int) -> None:
        self._random = random
        self._newer = {random.randint(1, brokers)}
        self._started: set[int] = set()
        self._marks = 0

    def begin_life(self, broker_id: int) -> bool:
        """True if this incarnation has the newer version; there is no downgrade."""
        if broker_id in self._started and self._random.random() < UPGRADED_SHARE:
            self._newer.add(broker_id)
        self._started.add(broker_id)
        return broker_id in self._newer

    def mark(self, document: Fields) -> None:
        """Add an unknown field, unless the document has one."""
        if MARK not in document:
            self._marks += 1
            document[MARK] = self._marks


class VersionedStore(SimulatedStore):
    """The store client of an incarnation of a broker that `is_newer`, or is not."""

    def __init__(self, state: StoreState, host: Host, versions: Versions, broker_id: int) -> None:
        super().__init__(state, host)
        self._documents = state.documents
        self._versions = versions
        self._own_key = broker_key(broker_id)
        self.is_newer = versions.begin_life(broker_id)

    async def write(self, writes: Sequence[Write]) -> list[int | VersionConflict]:
        return await super().write([self._as_written(write) for write in writes])

    def _as_written(self, write: Write) -> Write:
        if write.value is None:
            return write
        document = msgspec.json.decode(write.value)
        if write.key == FEATURES_KEY and write.expected_version == ABSENT:  # An older version created the cluster.
            document["levels"][METADATA_LEVEL] = FIRST_LEVEL
        if write.key == self._own_key and not self.is_newer:
            document["features"][METADATA_LEVEL] = [FIRST_LEVEL, FIRST_LEVEL]
        if self.is_newer and not write.key.startswith(LOG_ENDS):
            self._versions.mark(document)
            self._mark_partitions(write.key, document)
        return write._replace(value=msgspec.json.encode(document))

    def _mark_partitions(self, key: str, document: Fields) -> None:
        """Mark the partitions that the write changes."""
        found = self._documents.get(key)
        known = msgspec.json.decode(found.value) if found is not None else {}
        before = known.get("partitions", []) if known.get("topic_id") == document.get("topic_id") else []
        partitions = document.get("partitions", [])
        if isinstance(partitions, list):  # A tombstone has their number here.
            for number, state in enumerate(partitions):
                if number >= len(before) or state != before[number]:
                    self._versions.mark(state)


class Upgrade:
    """An administrator who requests the highest level until cancelled, without checking who supports it."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def run(self) -> None:
        request = message_class("UpdateFeaturesRequest")
        level = NEW_LEVELS[METADATA_LEVEL]
        wanted = request.FeatureUpdateKey(feature=METADATA_LEVEL, max_version_level=level, upgrade_type=UPGRADE)
        while True:
            await asyncio.sleep(self._client.random.expovariate(1 / ASKED_EACH_S))
            with suppress(Failed):
                asked = request(timeout_ms=2000, feature_updates=[wanted], validate_only=False)
                await self._client.any(UPDATE_FEATURES, asked)


class StoredVersions:
    """Checks of the store with brokers of two versions: none drops the newer ones' fields, or leaves one behind.

    It reads the JSON itself, since the decoding of documents may have the mistake.
    """

    def __init__(self, store: StoreState) -> None:
        self._store = store
        self._seen = 0
        self._documents: dict[str, Fields] = {}
        self._topics: dict[str, tuple[object, list[Fields]]] = {}
        """By key, the topic of the document and all its partitions."""

    def violations(self) -> Iterator[str]:
        """Yield the violations since the last look."""
        news, self._seen = self._store.changes[self._seen :], len(self._store.changes)
        for change in news:
            yield from self._violations_of(change)

    def _violations_of(self, change: Change) -> Iterator[str]:
        before = self._documents.pop(change.key, None)
        if change.value is None:
            return
        after = self._documents[change.key] = msgspec.json.decode(change.value)
        if before is not None and _is_about(before) == _is_about(after):
            yield from _dropped(change.key, before, after)
        if change.key.startswith(OF_TOPICS):
            yield from self._dropped_of_partitions(topic_key(after["name"]))
        if change.key == FEATURES_KEY:
            yield from self._unsupported(after["levels"])

    def _dropped_of_partitions(self, key: str) -> Iterator[str]:
        """Yield violations in whole topics: a partition may move from the topic's document to another one."""
        head = self._documents.get(key)
        states = None if head is None else self._states(head)
        if head is None or states is None:
            return
        about, before = self._topics.get(key, (None, []))
        self._topics[key] = _is_about(head), states
        if about == _is_about(head):
            for number, (old, new) in enumerate(zip(before, states, strict=False)):
                yield from _dropped(f"{key}-{number}", old, new)

    def _states(self, head: Fields) -> list[Fields] | None:
        """Return the states of all its partitions, or None while a part is missing."""
        states = list(head["partitions"])
        for first, count, part_id in head.get("parts", ()):
            part = self._documents.get(topic_part_key(head["name"], PartReference(first, count, part_id)))
            if part is None:
                return None
            states += part["partitions"][:count]
        return states

    def _unsupported(self, levels: dict[str, int]) -> Iterator[str]:
        registered = {key: each for key, each in self._documents.items() if key.startswith(BROKERS)}
        for name, level in levels.items():
            for key, broker in registered.items():
                lowest, highest = broker["features"][name]
                if not lowest <= level <= highest:
                    yield f"level {level} of {name} is finalized, and {key} supports {lowest} to {highest}"


def _is_about(document: Fields) -> object:
    """Return a value that changes with the document's subject: topic, incarnation of a broker, term of a controller."""
    names = ("topic_id", "incarnation_id", "broker_id", "broker_epoch", "epoch")
    return [document.get(name) for name in names]


def _dropped(what: str, before: Fields, after: Fields) -> Iterator[str]:
    if MARK in before and before[MARK] != after.get(MARK):
        yield f"what a newer version wrote of {what} is gone: {before[MARK]}; {after.get(MARK)} is there"
