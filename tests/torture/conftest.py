"""Fixtures for what the machine must allow."""

from collections.abc import Callable

import pytest

from harness.machines import MachinesUnavailable
from harness.require import missing


@pytest.fixture
def not_here() -> Callable[[MachinesUnavailable], None]:
    """Return a function that skips the test with the reason, or fails it with CI=true."""

    return missing
