"""What the machine must allow."""

import os
from collections.abc import Callable

import pytest

from harness.machines import MachinesUnavailable


@pytest.fixture
def not_here() -> Callable[[MachinesUnavailable], None]:
    """A skip that says why; where CI is to have it, a failure."""

    def missing(reason: MachinesUnavailable) -> None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI must allow namespaces: {reason}")
        pytest.skip(str(reason))

    return missing
