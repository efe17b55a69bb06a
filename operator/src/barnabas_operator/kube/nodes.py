"""A cache of Kubernetes nodes, so that not every reconciliation reads them."""

import asyncio
from collections.abc import Collection, Mapping

from barnabas_operator.kube.api import KubeApi
from barnabas_operator.resources.json_types import Json


class Nodes:
    """The cached nodes, which are read again only after `forget`."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._found: dict[str, Json] = {}
        self._has_all = False

    def forget(self) -> None:
        """Empty the cache."""
        self._found.clear()
        self._has_all = False

    async def all(self) -> Mapping[str, Json]:
        """Return all nodes by name. Raises KubeUnreachable and KubeRefused."""
        if not self._has_all:
            self._found = {each["metadata"]["name"]: each for each in await self._api.listing("Node", None, {})}
            self._has_all = True
        return self._found

    async def of(self, names: Collection[str]) -> Mapping[str, Json]:
        """Return the cached nodes by name; read missing `names` first. Raises KubeUnreachable and KubeRefused."""
        new = [name for name in names if name not in self._found]
        found = await asyncio.gather(*(self._api.get("Node", None, name) for name in new))
        self._found |= {name: node for name, node in zip(new, found, strict=True) if node is not None}
        return self._found
