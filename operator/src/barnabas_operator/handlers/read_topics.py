"""Topics as the watch told them, read: each once for each version, for there may be thousands."""

from collections.abc import Iterable, Mapping
from typing import Any

from barnabas_operator.resources.api_objects import InvalidResource, readable_part, resource_of
from barnabas_operator.resources.topic import Topic, TopicStatus

Json = Mapping[str, Any]


class ReadTopics:
    """Those of one Cluster."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[str, Topic, str | None]] = {}
        """By name: version, the Topic (where it is wrong, what can be read of it), what is wrong."""

    def all(self, bodies: Iterable[Json]) -> tuple[list[Topic], list[tuple[Topic, str]]]:
        """The Topics that can be read, those that go as far as need be; the others with what is wrong."""
        before, self._read = self._read, {}
        for body in bodies:
            name, version = body["metadata"]["name"], body["metadata"]["resourceVersion"]
            known = before.get(name)
            self._read[name] = known if known is not None and known[0] == version else (version, *_read(body))
        good = [topic for _, topic, wrong in self._read.values() if wrong is None]
        return good, [(topic, wrong) for _, topic, wrong in self._read.values() if wrong is not None]

    def status_of(self, name: str) -> TopicStatus | None:
        """As its object has it."""
        return self._read[name][1].status


def _read(body: Json) -> tuple[Topic, str | None]:
    try:
        return resource_of(Topic, body), None
    except InvalidResource as error:
        part = readable_part(Topic, body)
        return part, str(error) if part.metadata.deletion_timestamp is None else None
