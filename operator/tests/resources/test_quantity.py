"""Quantities as Kubernetes reads them."""

from decimal import Decimal

import pytest

from barnabas_operator.resources.kind import quantity_hint, quantity_value

VALUES = {
    2: Decimal(2),
    "2.": Decimal(2),
    ".5": Decimal("0.5"),
    "500m": Decimal("0.5"),
    "3u": Decimal("0.000003"),
    "5n": Decimal("0.000000005"),
    "1e9": Decimal(10**9),
    "1E3": Decimal(1000),
    "25e-1": Decimal("2.5"),
    "1E": Decimal(10**18),
    "1Ei": Decimal(2**60),
    "1.5Gi": Decimal(3 * 2**29),
    "7k": Decimal(7000),
}


@pytest.mark.parametrize("written", VALUES)
def test_a_quantity_is_parsed_as_in_kubernetes(written: str | int) -> None:
    assert quantity_value(written) == VALUES[written]


HINTS = {
    "10GB": "; write 10Gi or 10G",
    "10 gb": "",
    "1.5 TiB": "; write 1.5Ti or 1.5T",
    "64KB": "; write 64Ki or 64k",
    "64kb": "; write 64Ki or 64k",
    "much": "",
}


@pytest.mark.parametrize("written", HINTS)
def test_a_hint_for_a_wrong_quantity_names_the_form_that_kubernetes_accepts(written: str) -> None:
    assert quantity_hint(written) == HINTS[written]
