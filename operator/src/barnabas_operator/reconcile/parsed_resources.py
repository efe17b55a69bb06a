"""A cache of parsed resources, so that each version of a resource is parsed only once."""

from collections.abc import Iterable
from typing import Final, Generic

from barnabas_operator.resources.api_objects import InvalidResource, ResourceT, readable_part, resource_of
from barnabas_operator.resources.json_types import Json
from barnabas_operator.resources.resource import Status


class ParsedResources(Generic[ResourceT]):
    """The parsed resources of one kind and one Cluster."""

    def __init__(self, kind: type[ResourceT]) -> None:
        self._kind: Final = kind
        self._read: dict[str, tuple[str, ResourceT, str | None]] = {}
        """A mapping from the resource's name to the resourceVersion, the parsed resource, and the error of parsing.

        The error is None if the resource is valid or being deleted. A parsed resource lacks its invalid fields.
        """

    def all(self, bodies: Iterable[Json]) -> tuple[list[ResourceT], list[tuple[ResourceT, str]]]:
        """Return the valid resources, and the invalid resources with their errors.

        A resource that is being deleted is always returned as valid. An invalid or deleted resource lacks the fields
        that cannot be parsed.
        """
        before, self._read = self._read, {}
        for body in bodies:
            name, version = body["metadata"]["name"], body["metadata"]["resourceVersion"]
            known = before.get(name)
            self._read[name] = known if known is not None and known[0] == version else (version, *self._of(body))
        good = [resource for _, resource, wrong in self._read.values() if wrong is None]
        return good, [(resource, wrong) for _, resource, wrong in self._read.values() if wrong is not None]

    def status_of(self, name: str) -> Status | None:
        """Return the status of the resource with this name, as the last call of `all` parsed it."""
        return self._read[name][1].status

    def _of(self, body: Json) -> tuple[ResourceT, str | None]:
        try:
            return resource_of(self._kind, body), None
        except InvalidResource as error:
            part = readable_part(self._kind, body)
            return part, str(error) if part.metadata.deletion_timestamp is None else None
