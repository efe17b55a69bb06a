"""A cache of Kubernetes nodes, so that not every reconciliation reads them."""

import asyncio
from collections.abc import Collection, Mapping

from barnabas_operator.kube.api import KubeApi
from barnabas_operator.resources.json_types import Json


def addresses_of(node: Json) -> Mapping[str, str]:
    """Return the first address of each type of a node."""
    # Later addresses are inserted first, so that the first one of a type remains.
    return {each["type"]: each["address"] for each in reversed(node.get("status", {}).get("addresses", ()))}


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

    async def addresses(self) -> Mapping[str, Mapping[str, str]]:
        """Return the addresses of all nodes by type; a node's first address of a type counts, as in the kubelet."""
        return {name: addresses_of(node) for name, node in (await self.all()).items()}

    async def of(self, names: Collection[str]) -> Mapping[str, Json]:
        """Return the cached nodes by name; read missing `names` first. Raises KubeUnreachable and KubeRefused."""
        new = [name for name in names if name not in self._found]
        found = await asyncio.gather(*(self._api.get("Node", None, name) for name in new))
        self._found |= {name: node for name, node in zip(new, found, strict=True) if node is not None}
        return self._found
