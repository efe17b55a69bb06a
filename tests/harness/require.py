"""Checks what a test needs of the machine.

If it is missing, the test is skipped with the reason; with CI=true it fails.
"""

import os
from typing import NoReturn

import pytest


def missing(reason: object) -> NoReturn:
    """Skip the test, or fail it with CI=true."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must have all that the tests need: {reason}")
    pytest.skip(str(reason))


def require(is_there: object, reason: object) -> None:
    """Go on only if it is there."""
    if not is_there:
        missing(reason)
