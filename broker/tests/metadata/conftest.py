"""Async tests of this folder run on asyncio."""

import pytest

pytest.register_assert_rewrite("store_conformance")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
