"""Rates and buckets against the figures that Kafka's formulas give."""

from barnabas_core.sampled_rate import SampledRate
from barnabas_core.token_bucket import TokenBucket


def test_a_burst_waits_until_its_rate_over_the_window_is_the_limit() -> None:
    rate = SampledRate()
    rate.count(10_000, 1_000, now_ms=1_000)
    assert rate.wait_ms(limit=1_000, now_ms=1_000) == 0
    rate.count(5_000, 1_000, now_ms=1_500)
    assert rate.wait_ms(limit=1_000, now_ms=1_500) == 5_000
    assert rate.wait_ms(limit=1_000, now_ms=1_000 + 10_500) == 4_500
    assert rate.wait_ms(limit=1_000, now_ms=12_000) == 0


def test_what_is_taken_back_does_not_count() -> None:
    rate = SampledRate()
    rate.count(15_000, 1_000, now_ms=0)
    rate.count(-15_000, 1_000, now_ms=10)
    assert rate.wait_ms(limit=1_000, now_ms=20) == 0


def test_a_bucket_goes_below_zero_once_and_fills_at_its_limit() -> None:
    bucket = TokenBucket()
    bucket.count(13, limit=1, now_ms=0)
    assert bucket.wait_ms(limit=1, now_ms=0) == 2_000
    assert bucket.wait_ms(limit=1, now_ms=1_500) == 500
    assert bucket.wait_ms(limit=1, now_ms=2_000) == 0
