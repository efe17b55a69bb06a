"""A plugin of pytest that decides which tests run, in which order, and which of them in one worker.

Tests that share something expensive run in one worker (`--dist loadgroup`): each worker would start its own. So do
the tests of a file, whose fixtures are made once. Quarantined tests run only with `--quarantined`, and alone; tests
that only the soak has run only with BARNABAS_SOAK=true.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import pytest

from gate.quarantine import QUARANTINE, read_quarantine
from harness.soak import IS_SOAK

FLOORS: Final = ("broker/tests/", "operator/tests/")
DEAR_FLOOR: Final = "broker/tests/metadata/"
"""The only floor whose tests may have a group: the part `rest` does not even collect the other floors."""
GROUPS: Final[Mapping[str, str]] = {
    "spark": "spark",
    "controllers": "controllers",
    "api_server": "api-server",
    "peer": "client-drivers",
    "java": "client-drivers",
    "secured": "secured-clients",
}
"""The group of a test with the fixture; the first match counts. `xdist_group` names the group of others."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--part", choices=("floors", "rest"), help="floors: tests of broker and operator that share nothing"
    )
    parser.addoption("--quarantined", action="store_true", help=f"run the tests in {QUARANTINE.name} and no others")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "soak(only=False): `make proof` runs it, larger; with only=True nothing else does"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    quarantined, asked, part = read_quarantine(), bool(config.getoption("--quarantined")), config.getoption("--part")
    chosen = [
        item
        for item in items
        if (item.nodeid in quarantined) is asked
        and (IS_SOAK or not _of_the_soak(item))
        and part in (None, part_of(item.nodeid, _fixtures(item)))
    ]
    if astray := [item.nodeid for item in items if part == "floors" and _is_astray(item)]:
        raise pytest.UsageError(f"needs what only tests in {DEAR_FLOOR} or tests/ may have: {', '.join(astray)}")
    kept = set(chosen)
    if left_out := [item for item in items if item not in kept]:
        config.hook.pytest_deselected(items=left_out)
    for item in chosen:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(group_of(_fixtures(item)) or item.path.stem))
    items[:] = _in_turn(chosen)


def _in_turn(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the long ones first, so that no worker runs a long one when the others have finished."""
    groups = list(GROUPS.values())
    slow = {item.path for item in items if item.get_closest_marker("slow") is not None}

    def turn(item: pytest.Item) -> tuple[int, bool]:
        group = group_of(_fixtures(item))
        return groups.index(group) if group else len(groups), item.path not in slow

    return sorted(items, key=turn)


def group_of(fixtures: Sequence[str]) -> str | None:
    """Return the group of a test with these fixtures."""
    return next((group for fixture, group in GROUPS.items() if fixture in fixtures), None)


def part_of(test: str, fixtures: Sequence[str]) -> str:
    """Return `floors` for tests that need no builds and can run beside them, or `rest`."""
    return "floors" if test.startswith(FLOORS) and group_of(fixtures) is None else "rest"


def _is_astray(item: pytest.Item) -> bool:
    return part_of(item.nodeid, _fixtures(item)) == "rest" and not item.nodeid.startswith(DEAR_FLOOR)


def _fixtures(item: pytest.Item) -> Sequence[str]:
    return item.fixturenames if isinstance(item, pytest.Function) else ()


def _of_the_soak(item: pytest.Item) -> bool:
    return any(mark.kwargs.get("only") for mark in item.iter_markers("soak"))
