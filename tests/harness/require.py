"""What a test needs of the machine: without it a skip that says why, and a failure where CI is to have it."""

import os
from typing import NoReturn

import pytest


def missing(reason: object) -> NoReturn:
    """It is not there."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must have all that the tests need: {reason}")
    pytest.skip(str(reason))


def require(is_there: object, reason: object) -> None:
    """Go on only where it is."""
    if not is_there:
        missing(reason)
