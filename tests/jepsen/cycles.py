"""Cycles in directed graphs: Tarjan's strongly connected components, and a shortest cycle in one."""

from collections import deque
from collections.abc import Collection, Iterator, Mapping

Graph = Mapping[int, Collection[int]]


def knots(graph: Graph) -> list[set[int]]:
    """Return the strongly connected components of more than one node: every cycle is within one of them."""
    return [members for members in _Search(graph).components() if len(members) > 1]


def cycle_in(graph: Graph, knot: set[int]) -> list[int]:
    """Return the nodes of a shortest cycle through the lowest node of a component, which comes first and last."""
    first = min(knot)
    came_from: dict[int, int] = {}
    waiting = deque([first])
    while first not in came_from:
        node = waiting.popleft()
        for target in graph.get(node, ()):
            if target in knot and target not in came_from:
                came_from[target] = node
                waiting.append(target)
    cycle = [first, came_from[first]]
    while cycle[-1] != first:
        cycle.append(came_from[cycle[-1]])
    return cycle[::-1]


class _Search:
    """One depth-first search without recursion, since chains of transactions are long."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._order: dict[int, int] = {}
        self._lowest: dict[int, int] = {}
        self._open: dict[int, None] = {}
        """The nodes whose component is not complete, in the order in which they were met."""
        self._calls: list[tuple[int, Iterator[int]]] = []

    def components(self) -> Iterator[set[int]]:
        for root in self._graph:
            if root not in self._order:
                self._enter(root)
            while self._calls:
                yield from self._step()

    def _enter(self, node: int) -> None:
        self._order[node] = self._lowest[node] = len(self._order)
        self._open[node] = None
        self._calls.append((node, iter(self._graph.get(node, ()))))

    def _step(self) -> Iterator[set[int]]:
        """Go down one edge, or back up when a node has none left."""
        node, targets = self._calls[-1]
        for target in targets:
            if target not in self._order:
                self._enter(target)
                return
            if target in self._open:
                self._lower(node, self._order[target])
        self._calls.pop()
        if self._calls:
            self._lower(self._calls[-1][0], self._lowest[node])
        if self._lowest[node] == self._order[node]:
            yield self._close(node)

    def _lower(self, node: int, order: int) -> None:
        self._lowest[node] = min(self._lowest[node], order)

    def _close(self, root: int) -> set[int]:
        members = set[int]()
        while root not in members:
            members.add(self._open.popitem()[0])
        return members
