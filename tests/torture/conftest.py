"""What the machine must allow."""

from collections.abc import Callable

import pytest

from harness.machines import MachinesUnavailable
from harness.require import missing


@pytest.fixture
def not_here() -> Callable[[MachinesUnavailable], None]:
    """A skip that says why; where CI is to have it, a failure."""

    return missing
