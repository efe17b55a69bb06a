"""Checks that time, chance and the network are arguments: nothing below the broker's server takes them from the system.

The same holds below the `app` of the operator and of the lag exporter.

Import contracts in `pyproject.toml` keep the modules out; this checks calls of the modules that remain.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
BROKER: Final = "broker/src/barnabas_broker"
OPERATOR: Final = "operator/src/barnabas_operator"
FLOORS: Final = (
    *(
        f"{BROKER}/{floor}"
        for floor in ("coordinators", "handlers", "metadata", "replication", "security", "storage", "wire")
    ),
    "broker/src/barnabas_core",
    "broker/src/barnabas_kube",
    OPERATOR,
    "operator/src/barnabas_console",
    "operator/src/barnabas_kafka",
    "operator/src/barnabas_lag",
)
AMBIENT: Final = {
    "asyncio": {
        "sleep",
        "timeout",
        "timeout_at",
        "wait_for",
        "open_connection",
        "start_server",
        "create_subprocess_exec",
    },
    "datetime": {"now", "today", "utcnow"},
    "date": {"today"},
    "uuid": {"uuid1", "uuid4"},
    "os": {"urandom", "getpid"},
    "loop": {"time"},
}
"""By module or name of a variable, the calls that return what should have been passed in."""
BY_NAME: Final = frozenset({"Random", "SystemRandom", "uuid1", "uuid4", "urandom"})
"""The same names if they are imported; `Random` is allowed as a type."""
OUTSIDE: Final = (
    # These create what is passed in.
    f"{OPERATOR}/app/",
    "operator/src/barnabas_console/app/",
    "operator/src/barnabas_lag/app/",
    # This limits requests on the sockets that it opens.
    "broker/src/barnabas_kube/client.py",
    # These decide how long to wait before the API server is asked again, and make a mark in etcd that is unique.
    f"{BROKER}/metadata/store/kubernetes/leases.py",
    f"{BROKER}/metadata/store/kubernetes/kubernetes_store.py",
    # This decides how long to wait for a signal of another process before the file is read anyway.
    f"{BROKER}/metadata/store/sqlite_store.py",
    # This starts the process.
    f"{BROKER}/storage/helper.py",
    # This runs in that process, which has only the system's clock.
    f"{BROKER}/storage/helper_worker.py",
)
"""Files at the border of the program: an API server, a file shared by several processes, a process.

Simulated time would need simulations of these. The simulation has its own store and helper, and the operator's
tests have an API server in memory.
"""


def ambient_calls(path: Path) -> Iterator[str]:
    """Yield complaints about one module, each `file:line what`. `asyncio.sleep(0)` is allowed: it only ends a turn."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="asyncio"), attr="sleep"), args=[ast.Constant(value=0)]):
                pass
            case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=name)) if name in AMBIENT.get(owner, ()):
                yield f"{path.relative_to(ROOT)}:{node.lineno} {owner}.{name}: it has to be passed in"
            case ast.Call(func=ast.Attribute(value=ast.Name(id="asyncio"), attr="wait"), keywords=given) if any(
                each.arg == "timeout" for each in given
            ):
                yield f"{path.relative_to(ROOT)}:{node.lineno} asyncio.wait with a timeout: it has to be passed in"
            case ast.Call(func=ast.Name(id=name)) if name in BY_NAME:
                yield f"{path.relative_to(ROOT)}:{node.lineno} {name}: it has to be passed in"
            case ast.Import(names=names) if any(each.name == "random" for each in names):
                yield f"{path.relative_to(ROOT)}:{node.lineno} import random: chance has to be passed in"


def shared_threads(path: Path) -> Iterator[str]:
    """Yield complaints about one module of the broker that uses shared threads, which a hanging disk would block."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Call(func=ast.Attribute(attr="to_thread")) | ast.Call(func=ast.Name(id="to_thread")):
                yield f"{path.relative_to(ROOT)}:{node.lineno} to_thread: name the threads (`DiskThreads`)"
            case ast.Call(func=ast.Attribute(attr="run_in_executor"), args=[ast.Constant(value=None), *_]):
                yield f"{path.relative_to(ROOT)}:{node.lineno} run_in_executor(None): name the threads (`DiskThreads`)"


def main() -> int:
    """Print every complaint; return 1 if there is any."""
    paths = [path for floor in FLOORS for path in sorted((ROOT / floor).rglob("*.py"))]
    inside = [path for path in paths if not path.relative_to(ROOT).as_posix().startswith(OUTSIDE)]
    complaints = [line for path in inside for line in ambient_calls(path)]
    served = [path for path in sorted((ROOT / BROKER).rglob("*.py")) if "app" not in path.relative_to(ROOT).parts]
    complaints += [line for path in served for line in shared_threads(path)]
    print("\n".join(complaints) or "passed in: fine")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
