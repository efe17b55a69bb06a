"""Checks that the fields of some classes are written in their own modules only: other modules call methods."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCES: Final = ROOT / "broker/src/barnabas_broker"


class Owner(NamedTuple):
    """A class with the modules that may write its fields, and names that fields of other classes have, too."""

    name: str
    modules: tuple[str, ...]
    shared: frozenset[str] = frozenset()


OWNERS: Final = (
    Owner("Group", ("coordinators/groups/group.py",), frozenset({"state"})),
    Owner("Log", ("storage/logs/log.py",), frozenset({"config"})),
    Owner("LeaderReplica and FollowerReplica", ("replication/leader_replica.py",), frozenset({"timer"})),
    Owner("Segments", ("storage/segments/segments.py",)),
    Owner("LeaderEpochs", ("storage/logs/log_history.py",)),
    Owner("LogProducers", ("storage/logs/log_history.py",)),
    Owner("LogSyncs", ("storage/logs/log_syncs.py",)),
    Owner(
        "Partition",
        ("replication/partition.py",),
        frozenset({"failure", "state", "messages_in", "bytes_in", "bytes_out"}),
    ),
    Owner("Group", ("coordinators/groups/group.py", "coordinators/groups/messages.py"), frozenset({"state"})),
)


def written(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield line, object and field of each assignment to an attribute."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node.lineno, ast.unparse(node.value), node.attr


def complaints(owner: Owner) -> Iterator[str]:
    """Yield each assignment elsewhere to a field of the class."""
    homes = {SOURCES / module for module in owner.modules}
    fields = {field for home in homes for _, target, field in written(home) if target == "self"} - owner.shared
    for path in sorted(set(SOURCES.rglob("*.py")) - homes):
        for line, target, field in written(path):
            if field in fields and target != "self":
                where = f"{path.relative_to(ROOT).as_posix()}:{line}"
                yield f"{where} {target}.{field} is written outside {owner.name}: give {owner.name} a method for it"


def main() -> int:
    """Print every complaint; 1 if there is any."""
    found = [line for owner in OWNERS for line in complaints(owner)]
    print("\n".join(found) or "owners: fine")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
