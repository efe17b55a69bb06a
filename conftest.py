"""What holds for the tests of all folders."""

import gc
from collections.abc import Iterator

import pytest
from hypothesis import settings

from barnabas_core.loop_turns import LOOP_SHARE
from harness.soak import IS_SOAK, size

pytest_plugins = ("gate.pytest_costs", "gate.pytest_selection")

# No test fails because the machine is busy; one that fails prints what replays it.
settings.register_profile(
    "barnabas", deadline=None, print_blob=True, derandomize=not IS_SOAK, max_examples=size(10, 1_000)
)
settings.load_profile("barnabas")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect tests with the garbage collector off. Later collections of garbage do not visit the collected tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture
def anyio_backend() -> str:
    """Run tests that are coroutines on asyncio."""
    return "asyncio"


@pytest.fixture(autouse=True)
def loop_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore the share of a turn after a test that measures turns; a share that has ended delays all later brokers."""
    monkeypatch.setattr(LOOP_SHARE, "ends_s", LOOP_SHARE.ends_s)
    monkeypatch.setattr(LOOP_SHARE, "now_s", LOOP_SHARE.now_s)
