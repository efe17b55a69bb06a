"""The failures kept of requests are short, however many parts of a response were refused."""

from kafka.protocol.consumer import OffsetFetchRequest

from barnabas_kafka.asking import Asking

NOT_COORDINATOR = 16
GROUP_AUTHORIZATION_FAILED = 30


def test_equal_refusals_are_one_failure_with_the_first_name_and_a_count() -> None:
    asking = Asking(None)
    codes = [(NOT_COORDINATOR, f"group {number}") for number in range(2_000)]
    asking.refused(OffsetFetchRequest(), 3, [*codes, (0, "group ok"), (GROUP_AUTHORIZATION_FAILED, "group secret")])
    assert list(map(str, asking.failures)) == [
        "the request OffsetFetch to broker 3 failed: NotCoordinatorError for group 0 and 1999 more",
        "the request OffsetFetch to broker 3 failed: GroupAuthorizationFailedError for group secret",
    ]
