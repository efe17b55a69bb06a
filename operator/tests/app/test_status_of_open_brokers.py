"""`barnabas status` calls brokers open if it reached them from another machine without authentication."""

import pytest

from barnabas_operator.app.status import is_of_this_machine


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:9092", True),
        ("localhost:9092", True),
        ("[::1]:9092", True),
        ("10.0.0.1:9092", False),
        ("[fd00::1]:9092", False),
        ("broker-0.example.org:9092", False),
    ],
)
def test_only_loopback_addresses_count_as_this_machine(address: str, expected: bool) -> None:
    assert is_of_this_machine(address) == expected
