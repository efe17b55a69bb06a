"""Tests of the Kubernetes store share an API server."""

import pytest

pytest.register_assert_rewrite("store_conformance")

from kubernetes_stores import account, address, clock, cluster, open_store, plane  # noqa: E402 - after the line above

from local_kubernetes.apiserver import api_server  # noqa: E402

__all__ = ["account", "address", "api_server", "clock", "cluster", "open_store", "plane"]
