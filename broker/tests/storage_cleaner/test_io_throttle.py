"""The throttle of `log.cleaner.io.max.bytes.per.second`."""

from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.storage.helper_worker import CleanerThrottle


@given(steps=st.lists(st.tuples(st.integers(1, 10**6), st.floats(0, 5)), min_size=1), rate=st.integers(1000, 10**7))
def test_the_throttle_never_exceeds_its_rate_and_does_not_pause_below_it(
    steps: list[tuple[int, float]], rate: int
) -> None:
    """Each step spends bytes, then other work takes seconds."""
    now_s, spent = 0.0, 0
    throttle = CleanerThrottle(rate, lambda: now_s)
    for size_bytes, work_s in steps:
        spent += size_bytes
        pause_s = throttle.pause_s(size_bytes)
        assert pause_s == 0 or spent > rate * now_s
        now_s += pause_s
        assert spent <= rate * now_s * (1 + 1e-9) + 1e-6
        now_s += work_s


def test_a_throttle_without_a_limit_does_not_pause() -> None:
    assert CleanerThrottle(float("inf"), lambda: 0.0).pause_s(1 << 60) == 0
