"""Options of the tests that run whole servers; this folder is on `sys.path`, so `harness` can be imported."""

import os

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--peer",
        choices=("barnabas", "kafka"),
        default=os.environ.get("BARNABAS_PEER", "barnabas"),
        help="the broker under the client tests; `kafka` is the control: Apache Kafka itself must pass them too",
    )
