"""The quota that applies to a client, and changes of quotas that are refused."""

import math

import pytest

from barnabas_broker.metadata.controller.decisions.cluster_settings import (
    AllQuotas,
    QuotaChange,
    QuotaEntity,
    checked_entity,
    connection_rates,
    decide_client_quotas,
    quota_of_client,
)
from barnabas_core.errors import ApiError, ErrorCode

KEY = "producer_byte_rate"
ORDER: tuple[QuotaEntity, ...] = (
    (("client-id", "c"), ("user", "u")),
    (("client-id", None), ("user", "u")),
    (("user", "u"),),
    (("client-id", "c"), ("user", None)),
    (("client-id", None), ("user", None)),
    (("user", None),),
    (("client-id", "c"),),
    (("client-id", None),),
)


def test_the_quota_of_the_most_specific_entity_applies() -> None:
    for first in range(len(ORDER)):
        quotas: AllQuotas = {entity: {KEY: float(number)} for number, entity in enumerate(ORDER) if number >= first}
        found = quota_of_client(quotas, KEY, "u", "c")
        assert found is not None
        assert (found.limit, found.entity) == (first, ORDER[first])
    assert quota_of_client({ORDER[0]: {KEY: 1.0}}, KEY, "u", "another") is None
    assert quota_of_client({ORDER[0]: {KEY: 1.0}}, "request_percentage", "u", "c") is None


def test_rates_of_addresses_are_stored_under_the_normalized_address() -> None:
    rate = {"connection_creation_rate": 5.0}
    quotas: AllQuotas = {(("ip", name),): rate for name in ("2001:DB8:0::1", "::ffff:10.0.0.1", None)}
    assert connection_rates(quotas) == dict.fromkeys(("2001:db8::1", "10.0.0.1", None), 5.0)
    assert connection_rates({(("user", None),): {KEY: 1.0}}) == {}


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [("host", "a")],
        [("user", "")],
        [("user", "a"), ("user", "b")],
        [("ip", "a.b")],
        [("ip", None), ("user", "a")],
    ],
)
def test_an_invalid_quota_entity_is_refused(parts: list[tuple[str, str | None]]) -> None:
    with pytest.raises(ApiError) as refusal:
        checked_entity(parts)
    assert refusal.value.code is ErrorCode.INVALID_REQUEST


def test_changes_of_one_entity_are_applied_together_or_not_at_all() -> None:
    good, bad = ORDER[2], ORDER[6]
    document, failures = decide_client_quotas(
        None, {good: [QuotaChange(KEY, 1024.0)], bad: [QuotaChange("request_percentage", 5), QuotaChange(KEY, 0.5)]}
    )
    assert [each.entity for each in document.entities] == [{"user": "u"}]
    assert list(failures) == [bad]
    emptied, failures = decide_client_quotas(document, {good: [QuotaChange(KEY, None)]})
    assert (emptied.entities, failures) == ((), {})


@pytest.mark.parametrize(
    "change",
    [(KEY, -1.0), (KEY, 1.5), (KEY, 2.0**64), ("request_percentage", math.nan), ("connection_creation_rate", 1.0)],
)
def test_an_invalid_quota_value_is_refused(change: tuple[str, float]) -> None:
    _, failures = decide_client_quotas(None, {ORDER[2]: [QuotaChange(*change)]})
    assert failures[ORDER[2]].code is ErrorCode.INVALID_REQUEST


def test_quotas_that_do_not_fit_into_a_document_are_refused() -> None:
    many: dict[QuotaEntity, list[QuotaChange]] = {
        (("user", "x" * 100 + str(number)),): [QuotaChange(KEY, 1.0)] for number in range(10_000)
    }
    document, failures = decide_client_quotas(None, many)
    assert (document.entities, len(failures)) == ((), 10_000)
    assert decide_client_quotas(None, dict(list(many.items())[:4_000]))[1] == {}
