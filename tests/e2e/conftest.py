"""The API server that the tests in this folder share."""

from e2e.apiserver import api_server

__all__ = ["api_server"]
