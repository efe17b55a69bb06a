"""Async tests of this folder run on asyncio; those of the Kubernetes store share an API server."""

import pytest

from e2e.apiserver import api_server

__all__ = ["api_server"]

pytest.register_assert_rewrite("store_conformance")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
