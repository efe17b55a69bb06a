"""Rates and token buckets give the results of Kafka's formulas."""

from barnabas_broker.handlers.handler_environment import SampledRate, TokenBucket


def test_a_burst_waits_until_its_rate_over_the_window_equals_the_limit() -> None:
    rate = SampledRate()
    rate.count(10_000, 1_000, now_ms=1_000)
    assert rate.wait_ms(limit=1_000, now_ms=1_000) == 0
    rate.count(5_000, 1_000, now_ms=1_500)
    assert rate.wait_ms(limit=1_000, now_ms=1_500) == 5_000
    assert rate.wait_ms(limit=1_000, now_ms=1_000 + 10_500) == 4_500
    assert rate.wait_ms(limit=1_000, now_ms=12_000) == 0


def test_a_reverted_count_does_not_cause_a_wait() -> None:
    rate = SampledRate()
    rate.count(15_000, 1_000, now_ms=0)
    rate.count(-15_000, 1_000, now_ms=10)
    assert rate.wait_ms(limit=1_000, now_ms=20) == 0


def test_a_token_bucket_may_go_below_zero_and_refills_at_its_limit() -> None:
    bucket = TokenBucket()
    bucket.count(13, limit=1, now_ms=0)
    assert bucket.wait_ms(limit=1, now_ms=0) == 2_000
    assert bucket.wait_ms(limit=1, now_ms=1_500) == 500
    assert bucket.wait_ms(limit=1, now_ms=2_000) == 0
